// compile(), Program, Eager: the front door.
#pragma once

#include <chrono>
#include <cstdint>
#include <iosfwd>
#include <memory>
#include <optional>
#include <ranges>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "graphsink/automatic.h"
#include "graphsink/counters.h"
#include "graphsink/graph.h"
#include "graphsink/log.h"
#include "graphsink/memory.h"
#include "graphsink/mode.h"
#include "graphsink/plan.h"

namespace graphsink {

// Searches for mistakes in ops and in this library; all are off by default and slow.
struct Guards {
  // Before each run the arena, and that of ops on the host, are overwritten with bytes 0xff, NaN in all floats: an op
  // that reads what no op of the run wrote shows in its results.
  bool poison = false;
  // Every so many sunk runs (0: never) are made twice from the same state, first op by op, and the bits of Variables,
  // outputs and records compared; run() waits, and throws Error naming what differs. What ops do on the host they do
  // twice. compile() refuses a negative number.
  int replay_every = 0;
  // After each recording the arguments of its kernels are read back, and a warning is logged, once for each op, for an
  // address in memory that the program has freed or not allocated yet, and for a number that is another than when the
  // same op was recorded before (for one step, then for several a launch): a recording keeps it. Arguments that are
  // structs are not looked at. On devices of CUDA; others read arguments in each step.
  bool arguments = false;
};

struct CompileOptions {
  DeviceId target = cpu();
  // More CUDA devices for a program on one, in the order in which labels number them: on_device(1) is the first. Values
  // cross by copies, direct ones where the devices can reach each other's memory. Ops without a label follow where
  // fewer bytes cross then. Control flow, Variables, inputs and outputs stay on `target`. On a program for cpu() they
  // are ignored, as are labels. At most kMaxFurtherTargets.
  std::vector<DeviceId> further_devices{};
  // Checks every float result and fails the step, naming the op that first produced a non-finite value. Slow.
  bool check_finite = false;
  // Products take over the bias and the activation behind them: fewer kernels, the same bits. Off: every op for itself.
  bool fuse = true;
  // Where ops without a label run. Place::device: on the device wherever they have a body for it; Place::cpu: on the
  // host likewise.
  Place default_place = Place::anywhere;
  // Refuse (throw) unless the whole step is one launch.
  bool require_whole_graph = false;
  // Random ops give the same numbers for the same seed, step and graph, whatever the mode and the order of execution.
  std::uint32_t seed = 0;
  // On a device with separate memory, a warning is logged for an op that has been running on the host for so long, and
  // again each time that doubles: its step, and whoever waits for it, hangs. On any device likewise for a program with
  // while_ loops, while a call waits and no launch ends for so long. 0: never; at most 100 years.
  std::chrono::milliseconds host_op_patience{10000};
  Guards guards{};
  // Where the program, its device and the homes of Variables that it brings there log; empty: spdlog's default logger.
  LogFunction log{};
};

struct RunOptions {
  // Steps to run. In sink mode all of them are one launch where the plan allows it.
  std::int64_t steps = 1;
};

// A compiled graph on a device. Used by one thread at a time. Different Programs may be used by different threads:
// those that share a Variable take turns, in the order in which their calls of run() come, and each run sees the
// Variables as a whole run of another program, or a write(), has left them. Shares ownership of the graph and the
// Variables. The destructor waits for its work, and logs a failed step that nobody was told of (CompileOptions::log);
// where it cannot wait, it logs so and keeps the memory, which the device may still be using.
// Every call on a Program that was moved from throws Error, and so does one that runs, waits, reads or writes if the
// body of one of the program's own ops makes it.
//
// A CUDA call that fails throws Error, naming the call, and loses nothing: steps() says how many steps were committed,
// and the next run() goes on from there. Two failures are more than that. Where issuing op by op fails in the middle of
// a commit, or an op that writes Variables throws, the Variables it assigns hold values of two steps: run(), sync(),
// read() and Variable::read() say so until all of them were written. After an error that ends the CUDA context every
// call that needs the device says what happened first.
class Program {
 public:
  Program(Program&&) noexcept;
  Program& operator=(Program&&) noexcept;
  ~Program();

  // The plan for the shapes written last (the examples, before any write).
  const Plan& plan(Where where = Where::current()) const;
  // That plan, and what turned out since it was made: workspaces, once they are known, and launches that the device
  // refused to capture. See Plan::explain() and Plan::explain_json().
  std::string explain(Where where = Where::current()) const;
  std::string explain_json(Where where = Where::current()) const;
  // What that plan needs, known before run() allocates it: everything but code, and recordings, which CUDA keeps where
  // it likes. Other shapes that were bound keep workspaces and host arenas of their own; the arena is shared. Lets the
  // ops choose what they need, as bind() would. to_string() of it is for a person. Throws Error as bind().
  MemoryReport memory(Where where = Where::current());

  // Gives data to an input (one tensor) or feed (one slice, used in every step, or one for each step of the coming
  // runs, along a new first dimension). The data is copied before the call returns. For an open dimension the tensor's
  // shape decides. Throws Error for another dtype or shape.
  void write(const Value& input, const Tensor& tensor, Where where = Where::current());
  // The same of elements that lie behind each other, in a std::vector, std::array, std::span...
  template <std::ranges::contiguous_range Range>
  void write(const Value& input, const Range& data, Where where = Where::current()) {
    using T = std::ranges::range_value_t<Range>;
    write_raw(input, dtype_of<T>(), std::ranges::data(data), static_cast<std::int64_t>(std::ranges::size(data)), where);
  }

  // Plans, prepares and allocates for the shapes written last; run() does so by itself when it meets new shapes. Where
  // there is not enough memory the Error says for what, how much is free where that is known, the largest values with
  // their lines, and what to do; the program can be used on, with smaller shapes too.
  void bind(Where where = Where::current());

  // Runs steps; returns when they are issued, not when they are done. Allocates nothing on a bound shape. The first
  // step for each set of input shapes runs interactively, and is then recorded. Throws Error, having changed nothing,
  // if an input is missing or has too few slices.
  void run(Mode mode = sink, const RunOptions& options = {}, Where where = Where::current());

  // Waits. Throws Error if a step failed and nobody was told of it yet, naming the op and the step: that step, and all
  // that were issued behind it until now, committed nothing. poll(), the calls that read records and outputs, and
  // Variable::read() of a Variable that the program writes tell the same, and only the first of them does; but what a
  // read on another thread tells stays to be told here.
  void sync(Where where = Where::current());

  // Whether everything that run() issued is done; never waits for it. When it is, throws what sync() would, once. The
  // first call that says true comes after all values of records are there and outputs can be read without waiting.
  bool poll(Where where = Where::current());

  // sync(), then every value recorded under `name` since the last read of it, oldest first. Newer values overwrite
  // those that RecordOptions::capacity leaves no room for: the first time that some are lost so, it is logged, and
  // lost_records() says how many they are.
  template <class T = float>
  std::vector<T> read(std::string_view name, Where where = Where::current()) {
    std::vector<double> values = read_record(name, where);
    return {values.begin(), values.end()};
  }
  // The same without sync(): what was recorded since the last read of `name`, by steps that are done while later ones
  // may be running, even those of the same launch, oldest first (one less than the ring holds, at most); empty if
  // nothing is there. Never waits, and asks nothing of the device. What is returned here will not be returned by
  // read(). Says nothing of failed steps: poll() and sync() do.
  template <class T = float>
  std::vector<T> try_read(std::string_view name, Where where = Where::current()) {
    std::vector<double> values = take_record(name, where);
    return {values.begin(), values.end()};
  }
  // How many values recorded under `name` were overwritten before read() or try_read() came for them, as those found.
  std::int64_t lost_records(std::string_view name, Where where = Where::current()) const;
  // sync(), then an output, by name or by Value. Valid until the next run(). Throws Error after a run of which a step
  // failed: it left no outputs.
  Tensor read_output(std::string_view name, Where where = Where::current());
  Tensor read(const Value& output, Where where = Where::current());

  // Another seed from the next run() on; nothing is recorded anew.
  void set_seed(std::uint32_t seed, Where where = Where::current());
  // Committed steps so far. Waits.
  std::int64_t steps(Where where = Where::current());
  // The next step is number `steps`, as if so many were committed: for what a checkpoint goes on with. Ops see it as
  // Graph::step(). Waits. Throws Error unless 0 <= steps < 2^31.
  void set_steps(std::int64_t steps, Where where = Where::current());
  Counters counters(Where where = Where::current()) const;
  // What run(automatic) has measured and chosen for the shapes written last. Never waits: the last steps may be
  // missing.
  AutomaticReport automatic_report(Where where = Where::current());
  // What `sink` recorded for the current shapes, for one step or for several steps per launch; empty before that.
  std::optional<RecordingInfo> recording(bool several_steps = false, Where where = Where::current()) const;
  // Bytes of the arena, for all input shapes together.
  std::size_t arena_bytes(Where where = Where::current()) const;
  const Target& target(Where where = Where::current()) const;
  // The Variables that the graph names, in the order in which it did: parameters, and the states of optimizers.
  std::vector<Variable> variables(Where where = Where::current()) const;

 private:
  void close() noexcept;
  friend class ProgramAccess;
  friend Program compile(const Graph& graph, const CompileOptions& options, Where where);
  class Impl;
  Program(const Graph& graph, const CompileOptions& options, Where where);
  void write_raw(const Value& input, DType dtype, const void* data, std::int64_t count, Where where);
  std::vector<double> read_record(std::string_view name, Where where);
  std::vector<double> take_record(std::string_view name, Where where);
  Impl& impl(const Where& where) const;  // throws Error for a moved-from Program
  std::unique_ptr<Impl> impl_;
};

// Plans `graph` for the device and opens it. Throws Error if the graph cannot run there, or there is no such device.
Program compile(const Graph& graph, const CompileOptions& options = {}, Where where = Where::current());

// Number of usable CUDA devices; 0 without a driver, a device, or CUDA support in this build.
int cuda_device_count() noexcept;

// Single-op scheduling: each op on Values of an Eager runs as it is called. Used by one thread at a time. tensor() of
// one that was moved from throws Error.
class Eager {
 public:
  explicit Eager(DeviceId device = cpu());

  // f32 vector.
  Value tensor(std::initializer_list<double> values, Where where = Where::current());
  Value tensor(const Tensor& tensor, Where where = Where::current());
  // Waits and copies.
  static Tensor read(const Value& value, Where where = Where::current());

 private:
  std::shared_ptr<GraphData> data_;
};

// A Value of an Eager prints its elements; of a Graph, its type.
std::ostream& operator<<(std::ostream& out, const Value& value);

}  // namespace graphsink
