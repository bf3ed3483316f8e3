// Loader: brings batches of samples to a program, launch by launch, while the launches before are running.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "graphsink/error.h"
#include "graphsink/order.h"
#include "graphsink/preprocess.h"
#include "graphsink/program.h"
#include "graphsink/source.h"
#include "graphsink/version.h"

namespace GRAPHSINK_PUBLIC graphsink {

// Makes what the feeds take of one sample: `from` are its fields, as the source has them, and `to` is one span for each
// feed, in their order, of the bytes of one sample of it, which it must all write: they are not initialised. Called by
// several threads at once. It must depend on its arguments alone, so that a run can be repeated and resumed.
using Prepare = std::function<void(const SampleKey& key, SampleMemory from, SampleMemory to)>;

// Behaviour of next() if workers have made only some batches of the launch that it is called for.
enum class WhenStarved : std::uint8_t {
  wait,    // waits for the others
  shrink,  // returns a launch of those that are there, but waits for one
};

// Options of a Loader.
struct LoaderOptions {
  // Steps of a launch: next() gives the program so many batches, or fewer at the end of an epoch, and
  // where batches of another size follow. Results do not depend on it.
  std::int64_t steps_per_launch = 1;
  // Threads that read and prepare samples. 0: next() does that itself, for the launch that it is called for
  // (synchronous loading). Results do not depend on it. At most 256.
  int workers = 1;
  // Launches that workers prepare ahead of the one that next() returns, at least 1. Each takes memory for its batches.
  int ahead = 2;
  // Results do not depend on it. Loader refuses `shrink` where ranks exchange values: each would shrink other
  // launches, and they have to launch alike, because what is called between launches may wait for the other ranks.
  WhenStarved when_starved = WhenStarved::wait;
  // None: the bytes of each field go to the feed of the same number as they are, straight into the memory from which
  // the device reads.
  Prepare prepare{};
  // The seed in the SampleKey of `prepare`.
  std::uint64_t seed = 0;
  // A feed of f32 or booleans of shape [batch], which tells for each sample of a batch whether it is one in its turn,
  // 1, or padding, 0: see Batch::real.
  std::optional<Value> mask{};
  // A function that next() calls on its thread, about every 50 ms, while it waits for samples, or between two that it
  // reads. An exception of it ends next() and skips nothing: the next call waits for the same batches. For time-outs
  // and signals. It may ask for the position and the report; what changes the loader throws Error in it.
  std::function<void()> while_waiting{};
};

// Where in its order a Loader is. A run that begins there again sees the same batches from there on.
struct LoaderPosition {
  std::int64_t epoch = 0;  // number of the epoch, counted from 0
  std::int64_t batch = 0;  // number of the next batch in the epoch
  // Whether both numbers are equal.
  friend bool operator==(const LoaderPosition&, const LoaderPosition&) = default;
};

// Counts of what a Loader did, and where its time went.
struct LoaderReport {
  std::int64_t launches = 0;  // launches that next() has returned
  std::int64_t batches = 0;   // batches of these, which are the steps
  std::int64_t samples = 0;   // with those that pad batches
  // Launches whose batches were not all there when next() was called: a sign that workers are too few. Without workers
  // next() does not wait, but reads.
  std::int64_t starved = 0;
  std::int64_t shrunk = 0;  // those of them that were shrunk: see WhenStarved
  // Whole batches that were there when next() was called, summed over all calls: divided by the launches, the mean
  // depth of the queue.
  std::int64_t ready = 0;
  double seconds = 0;           // from the first call of next() to the end of the last
  double waited_seconds = 0;    // time that next() waited for data, or read them itself
  double read_seconds = 0;      // time of all workers together in Source::read()
  double prepared_seconds = 0;  // the same in `prepare`
  int workers = 0;              // threads that read, as the options say
  // Why fewer launches than LoaderOptions::ahead were prepared ahead, the last time that this was so; or "".
  std::string obstacle{};
};
// The largest part of the time, from 0 to 1, in which the device can have had nothing to do for want of data.
double idle_share(const LoaderReport& report);
// How many workers would have kept up with the program, by what reading and preparing took; at least 1.
int workers_to_keep_up(const LoaderReport& report);
// Prints the report, and which option to change.
std::string to_string(const LoaderReport& report);

// Feeds a program with batches of samples of a source, in an order.
//
//   gs::Loader loader(program, source, order, {{"image", x}, {"label", t}}, {.steps_per_launch = 16});
//   while (std::int64_t steps = loader.next()) program.run(gs::sink, {.steps = steps});  // an epoch
//
// Threads: used by the thread that uses the program. Lifetime: the program must exist, and must not be moved, as long
// as next() is called; the Loader keeps the source. Its destructor waits for the workers to finish their sample.
// Errors: what Source::read(), `prepare`, Program::stage() or Program::write() throw, next() throws in the place of the
// batch that it is about, once the batches before it were returned. Nothing is skipped: the next call tries that
// batch again.
class Loader {
 public:
  // One field of the source for each feed; with LoaderOptions::prepare all fields are read, and `feeds` may have other
  // names. A feed takes [batch, ...]. Throws Error if a field is missing, or has another type than the feed takes of a
  // sample, for feeds of another batch than the order has, and for options out of their ranges.
  Loader(Program& program, std::shared_ptr<const Source> source, SampleOrder order,
         std::vector<std::pair<std::string, Value>> feeds, const LoaderOptions& options = {},
         Where where = Where::current());
  // @{
  // Every call on a Loader that was moved from throws Error.
  Loader(Loader&&) noexcept;
  Loader& operator=(Loader&&) noexcept;
  // @}
  ~Loader();

  // Writes the slices of the next launch to the program and returns how many steps it has. 0 at the end of an epoch;
  // the call after that begins the next one.
  std::int64_t next(Where where = Where::current());
  // The same for a launch of at most `most` steps, for a program that is to stop there: it is evaluated, or saved. The
  // batches that were prepared behind them are the next launch. Throws Error if `most` is less than 1.
  std::int64_t next(std::int64_t most, Where where = Where::current());

  // Changes LoaderOptions::steps_per_launch. If the number is another than before, what was prepared ahead is prepared
  // anew.
  void set_steps_per_launch(std::int64_t steps, Where where = Where::current());

  bool feeds(const Program& program, Where where = Where::current()) const;  // whether it was made for it
  std::int64_t batches(Where where = Where::current()) const;                // in an epoch
  const SampleOrder& order(Where where = Where::current()) const;            // valid as long as the Loader
  LoaderPosition position(Where where = Where::current()) const;             // where next() goes on
  // Goes to another place in the order. Throws Error for one that the order does not have.
  void seek(const LoaderPosition& position, Where where = Where::current());

  // Counts since the Loader was made. Waits for nothing.
  LoaderReport report(Where where = Where::current()) const;

 private:
  friend class LoaderAccess;
  class Impl;
  Impl& impl(const Where& where) const;  // throws Error for a Loader that was moved from
  struct Close {
    void operator()(Impl* impl) const noexcept;
  };
  std::unique_ptr<Impl, Close> impl_;
};

}  // namespace graphsink
