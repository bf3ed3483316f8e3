// StreamLoader: a Loader for code that knows nothing of graphsink. It brings batches of samples to memory of a CUDA
// device, in the order of a stream, for kernels of your own or the function of a SinkCache (capture.h).
//
//   gs::StreamLoader loader(stream, source, order, {.workers = 4});
//   const auto* images = loader.data<float>("image");  // device memory, the same for all batches
//   const auto* labels = loader.data<std::int32_t>("label");
//   gs::SinkCache sinks;
//   while (const std::int64_t samples = loader.next())  // an epoch
//     sinks.run(stream, gs::Key{samples}, [&](cudaStream_t s) { train(s, images, labels, samples); });
//
// A launch repeats the addresses of its capture, so there is one slice for each field, whose address never changes and
// need not be in the key. The number of samples must be in it where it is an argument and batches have several sizes.
//
// Call next() before each step: before SinkCache::run(), and never in its function. A call of run() with several steps
// (SinkRunOptions::steps) takes all of them on one batch, because CUDA repeats what was captured as it is, and nothing
// in it tells the steps apart. For a batch in each of several steps of one launch, write a Graph and use a Loader.
//
// Needs a build with CUDA. This header needs no CUDA toolkit.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "graphsink/data_loader.h"
#include "graphsink/error.h"
#include "graphsink/log.h"
#include "graphsink/order.h"
#include "graphsink/source.h"
#include "graphsink/stream.h"
#include "graphsink/type.h"
#include "graphsink/version.h"

namespace GRAPHSINK_PUBLIC graphsink {

// Options of a StreamLoader. The first five are those of LoaderOptions, for launches of one batch.
struct StreamLoaderOptions {
  int workers = 1;         // threads that read and prepare samples; 0: next() does that itself. At most 256
  int ahead = 2;           // batches that workers prepare ahead, at least 1
  Prepare prepare{};       // makes the fields of a sample; empty: they are those of the source
  std::uint64_t seed = 0;  // seed in the SampleKey of `prepare`
  std::function<void()> while_waiting{};  // called by next() now and then; what it throws ends next()
  // Fields that `prepare` makes of a sample, in the order of its argument `to`. Empty: those of the source, which also
  // holds without `prepare`.
  std::vector<Field> fields{};
  // Name of one more field, f32[]: 1 for a sample in its turn, 0 for padding, see Batch::real. Empty: none.
  std::string mask{};
  // Largest number of samples that the slices have room for. 0: as many as the larger one of the first and the last
  // batch of an epoch has. Needed for buckets (LengthBucket) of several sizes. Each copy has the size of the largest
  // batch.
  std::int64_t most_samples = 0;
  int device = 0;     // number of the CUDA device that the stream belongs to
  LogFunction log{};  // receives failures that cannot be thrown. Empty: spdlog's default logger
};

// For a StreamLoader each batch is a launch.
struct StreamLoaderReport : LoaderReport {
  // Copies from the host to the device, one for all fields of a batch: those of batches that an Error or seek() dropped
  // are counted, too. The host itself copies nothing behind Source::read() and `prepare`.
  std::int64_t copies = 0;
  std::int64_t copied_bytes = 0;  // bytes of all these copies
  // The copies that were enqueued by the call of next() for the batch before, so that they run beside its work even
  // where the host waits for that.
  std::int64_t copied_ahead = 0;
};
// As that of a LoaderReport, with one more line.
std::string to_string(const StreamLoaderReport& report);

// Feeds work on a CUDA stream with batches of samples of a source, in an order. The samples and their order are those
// of a Loader with the same source, order, `prepare` and seed.
//
// Memory: workers read and prepare samples in pinned memory. From there a batch goes to a buffer on the device, on a
// stream of the loader's own, beside the work that the stream was given before; and from the buffer, in the order of
// the stream, to the slices. The device holds three times the memory of the largest batch: two buffers and the slices.
// Pinned memory has room for up to `ahead` + 1 batches, at least 4.
//
// Threads: used by one thread at a time; the source and `prepare` are called by the workers, or by next() without any.
// The loader captures nothing, and captures of other threads neither break it nor are broken by it. Where it was given
// the legacy stream, CUDA refuses its calls while a stream that was made without cudaStreamNonBlocking is captured, and
// next() throws Error.
//
// Lifetime: the stream must exist as long as next() is called. data() is memory of the loader, unless memory() is kept:
// work that uses it must have ended before the loader goes, and keys of a SinkCache that hold its addresses must not be
// launched afterwards. The destructor waits for the workers to finish their sample and for the loader's own copies. A
// child of fork() can only destroy it.
//
// Errors: what Source::read() or `prepare` throw, and what CUDA refuses, next() throws in the place of the batch that
// it is about. Nothing is skipped: the next call tries that batch again. After an Error of CUDA's, data() holds the
// batch of before or the one that failed.
class StreamLoader {
 public:
  // Takes `stream`, which may be the legacy stream (nullptr), for all batches. Without `prepare` all fields of the
  // source are brought, as they are. Throws Error in a build without CUDA and without a GPU, for a stream that is
  // being captured or belongs to another device, for options out of their ranges, and where memory is short.
  StreamLoader(cudaStream_t stream, std::shared_ptr<const Source> source, SampleOrder order,
               const StreamLoaderOptions& options = {}, Where where = Where::current());
  StreamLoader(StreamLoader&&) noexcept;  // every later call on the other throws Error
  // Likewise, after the loader that was here has ended as by its destructor.
  StreamLoader& operator=(StreamLoader&&) noexcept;
  ~StreamLoader();

  // Brings the next batch: work that is given to the stream from now on finds it in data(), and work from before has
  // read the one before. Returns how many samples it has, those that pad it included. 0 at the end of an epoch, where
  // it brings nothing; the call after that begins the next one. Waits on the host until the batch is prepared, and
  // where the stream is several batches behind. Throws Error, too, while the stream is being captured or in the
  // function of a SinkCache, whose launches would all repeat one batch, and for a batch above most_samples.
  std::int64_t next(Where where = Where::current());

  // The fields as data() has them: those of a sample, in order, and last the mask.
  const std::vector<Field>& fields(Where where = Where::current()) const;
  // Address of the slice of a field, in device memory: [samples, ...], row-major, 256-byte aligned, with room for the
  // largest batch; behind the samples of a smaller one is anything. Work may also write to it, until the next batch
  // overwrites it. The address is the same as long as the loader lives, also when that is moved. Throws Error for a
  // name that there is not, and for a T that is not the dtype.
  template <class T>
  T* data(const std::string& field, Where where = Where::current()) const {
    return static_cast<T*>(address(field, dtype_of<T>(), where));
  }
  // Keeps what data() returns, also without the loader: it is freed when the last copy of this goes, on any thread.
  std::shared_ptr<void> memory(Where where = Where::current()) const;
  std::int64_t most_samples(Where where = Where::current()) const;  // that the slices have room for

  std::int64_t batches(Where where = Where::current()) const;  // in an epoch
  // Place of the batch that next() brings next: the two numbers that a checkpoint of yours keeps.
  LoaderPosition position(Where where = Where::current()) const;
  // Goes to another place in the order. Throws Error for one that the order does not have.
  void seek(const LoaderPosition& position, Where where = Where::current());

  // Counts and times since the loader was made.
  StreamLoaderReport report(Where where = Where::current()) const;

 private:
  void* address(const std::string& field, DType dtype, const Where& where) const;

  class Impl;
  Impl& impl(const Where& where) const;  // throws Error for a StreamLoader that was moved from
  struct Close {
    void operator()(Impl* impl) const noexcept;
  };
  std::unique_ptr<Impl, Close> impl_;
};

}  // namespace graphsink
