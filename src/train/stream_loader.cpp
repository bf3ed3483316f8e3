#include "graphsink/stream_loader.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/in_capture.h"
#include "base/sizes.h"
#include "device/device.h"
#include "passes/plan_queries.h"
#include "train/launches.h"

namespace graphsink {
namespace data_loading {

constexpr const char* kStreamLoader = "StreamLoader";
constexpr const char* kStreamLoaderNext = "StreamLoader::next";

// Names the caller's line in errors of the device.
template <class Call>
auto on_device(const char* op, const Where& where, const Call& call) {
  try {
    return call();
  } catch (const Error& e) {
    throw Error(op, where, e.op() + ": " + e.problem(), e.remedy(), e.code());
  }
}

LoaderOptions options_of(const StreamLoaderOptions& options) {
  return {.workers = options.workers,
          .ahead = options.ahead,
          .prepare = options.prepare,
          .seed = options.seed,
          .while_waiting = options.while_waiting};
}

// The slices of the fields of a batch, one behind the other in one block.
struct SliceLayout {
  std::vector<Field> fields;  // with the mask
  std::vector<std::size_t> offsets;
  std::int64_t most_samples = 0;
  std::size_t bytes = 0;

  void add(Field field, const Where& where) {
    const TensorType slice{field.type.dtype, slice_of(field.type.shape, most_samples, where)};
    offsets.push_back(bytes);
    bytes = static_cast<std::size_t>(
        sum_of_sizes(static_cast<std::int64_t>(bytes), static_cast<std::int64_t>(rounded_block(slice.bytes(where)))));
    fields.push_back(std::move(field));
  }
};

SliceLayout layout_of(const Source* source, const SampleOrder& order, const StreamLoaderOptions& options,
                      const Where& where) {
  check_options(kStreamLoader, source, options_of(options), where);
  demand(options.prepare || options.fields.empty(), kStreamLoader, "fields without `prepare`",
         "leave them out, as they are those of the source, or give the function that makes them", where);
  demand(options.most_samples >= 0, kStreamLoader, "most_samples is " + std::to_string(options.most_samples),
         "give the number of samples of the largest batch, or 0", where);
  const auto size_of_batch = [&](std::int64_t number) {
    return static_cast<std::int64_t>(order.batch(0, number, where).samples.size());
  };
  SliceLayout layout;
  layout.most_samples = options.most_samples;
  if (layout.most_samples == 0) layout.most_samples = std::max(size_of_batch(0), size_of_batch(order.batches() - 1));
  const auto add = [&](const Field& field) {
    demand(!field.name.empty(), kStreamLoader, "a field without a name", "give it the name for data()", where);
    demand(std::none_of(layout.fields.begin(), layout.fields.end(),
                        [&](const Field& other) { return other.name == field.name; }),
           kStreamLoader, "two fields are named \"" + field.name + "\"", "give each another name", where);
    layout.add(field, where);
  };
  for (const Field& field : options.fields.empty() ? source->fields() : options.fields) add(field);
  if (!options.mask.empty()) add({options.mask, {DType::f32, {}}});
  return layout;
}

// Memory on a device that batches are brought to, in the order of a stream of somebody else.
class DeviceSlices final : public Receiver {
 public:
  DeviceSlices(cudaStream_t stream, SliceLayout layout, const StreamLoaderOptions& options, const Where& where)
      : layout_(std::move(layout)), has_mask_(!options.mask.empty()) {
    try {
      device_ = open_device(cuda(options.device), Log(options.log));
    } catch (const Error& e) {
      const bool is_missing = e.code() == ErrorCode::unavailable;
      throw Error(kStreamLoader, where, e.op() + ": " + e.problem(),
                  is_missing ? "use a build with GRAPHSINK_FLAVOUR=cuda on a machine with that GPU, or feed a Program "
                               "by a Loader, which also runs on the CPU"
                             : e.remedy(),
                  e.code());
    }
    try {
      stream_ = device_->borrow_stream(stream);
    } catch (const Error& e) {
      throw Error(kStreamLoader, where, "the stream of the caller: " + e.problem(),
                  e.code() == ErrorCode::misuse
                      ? "set StreamLoaderOptions::device to that of the stream; or " + e.remedy()
                      : e.remedy(),
                  e.code());
    }
    require_live(kStreamLoader, where);
    on_device(kStreamLoader, where, [&] {
      side_ = device_->make_stream();
      buffers_ = device_->make_feed_memory();
      memory_ = device_->allocate(layout_.bytes);
      // Both buffers are allocated now: later that would wait for all work that the caller has given to the stream.
      const StagedMemory blank = buffers_->stage(layout_.bytes);
      for (int buffer = 0; buffer < 2; ++buffer) (void)buffers_->send(*side_, blank, layout_.bytes);
      device_->wait(*side_);
    });
  }

  // Copies into the memory may be under way; workers have ended.
  ~DeviceSlices() {
    try {
      device_->wait(*side_);
    } catch (const Error&) {
      (void)device_->wait_otherwise(*side_);
    }
  }

  // Throws Error while the stream is being captured.
  void require_live(const char* op, const Where& where) {
    const bool is_captured = on_device(op, where, [&] { return device_->is_captured_by_others(*stream_); });
    demand(!is_captured, op, "the stream is being captured, and every launch would repeat the same batch",
           "call it before the capture begins, or after it has ended", where);
  }

  std::unique_ptr<LaunchMemory> stage(Launch& launch, const Where& where) override {
    const std::int64_t samples = launch.batch_size();
    demand(samples <= layout_.most_samples, kStreamLoaderNext,
           "batch " + std::to_string(launch.begin.batch) + " has " + std::to_string(samples) +
               " samples, and there is room for " + std::to_string(layout_.most_samples),
           "set StreamLoaderOptions::most_samples to the size of the largest batch", where);
    auto memory = std::make_unique<PinnedBatch>(*this, samples);
    memory->staged = on_device(kStreamLoaderNext, where, [&] { return buffers_->stage(layout_.bytes); });
    const std::size_t parts = layout_.fields.size() - (has_mask_ ? 1 : 0);
    for (std::size_t p = 0; p < parts; ++p) launch.places.push_back({memory->staged.get() + layout_.offsets[p], 0});
    if (has_mask_) {
      std::byte* mask = memory->staged.get() + layout_.offsets.back();
      for (std::int64_t row = 0; row < samples; ++row) {
        const float is_real = row < launch.batches[0].real ? 1.0f : 0.0f;
        std::memcpy(mask + static_cast<std::size_t>(row) * sizeof is_real, &is_real, sizeof is_real);
      }
    }
    return memory;
  }

  // Begins the copy of a batch that is made already and comes next. An error is thrown when its turn has come.
  void send_ahead(LaunchMemory& memory) noexcept {
    try {
      send(static_cast<PinnedBatch&>(memory));
      ++copied_ahead_;
    } catch (const std::exception&) {
    }
  }

  const SliceLayout& layout() const { return layout_; }
  const Memory& memory() const { return memory_; }
  void* address(std::size_t field) const { return static_cast<std::byte*>(memory_.get()) + layout_.offsets[field]; }
  std::int64_t given_samples() const { return given_samples_; }
  void count(StreamLoaderReport& report) const {
    report.copies = copies_;
    report.copied_bytes = copies_ * static_cast<std::int64_t>(layout_.bytes);
    report.copied_ahead = copied_ahead_;
  }

 private:
  struct PinnedBatch : LaunchMemory {
    PinnedBatch(DeviceSlices& o, std::int64_t n) : owner(o), samples(n) {}
    void give(std::int64_t, const Where& where) override {
      on_device(kStreamLoaderNext, where, [&] { owner.bring(*this); });
    }

    DeviceSlices& owner;
    const std::int64_t samples;
    StagedMemory staged;
    const void* sent = nullptr;  // the buffer on the device, once the copy to it was enqueued
  };

  // The copy does not wait for work that the stream was given behind the batch before.
  void send(PinnedBatch& batch) {
    batch.sent = buffers_->send(*side_, batch.staged, layout_.bytes);
    ++copies_;
  }

  void bring(PinnedBatch& batch) {
    if (!batch.sent) send(batch);
    device_->make_wait(*stream_, *side_);
    device_->copy(*stream_, memory_.get(), batch.sent, layout_.bytes);
    try {
      device_->make_wait(*side_, *stream_);  // so copies to this buffer come behind the one from it
    } catch (const Error&) {
      (void)device_->wait_otherwise(*stream_);
      throw;
    }
    given_samples_ = batch.samples;
  }

  const SliceLayout layout_;
  const bool has_mask_;
  std::shared_ptr<Device> device_;
  std::unique_ptr<Stream> stream_;  // the caller's
  std::unique_ptr<Stream> side_;    // has the order of copies to buffers and from them
  std::unique_ptr<FeedMemory> buffers_;
  Memory memory_;
  std::int64_t given_samples_ = 0;  // size of the last batch
  std::int64_t copies_ = 0, copied_ahead_ = 0;
};

}  // namespace data_loading

using namespace data_loading;

class StreamLoader::Impl {
 public:
  Impl(cudaStream_t stream, std::shared_ptr<const Source> source, SampleOrder order, const StreamLoaderOptions& options,
       const Where& where)
      : slices_(stream, layout_of(source.get(), order, options, where), options, where),
        launches_(kStreamLoader, slices_, source, order, parts_of(slices_.layout(), options), options_of(options),
                  where) {}

  Launches& launches() { return launches_; }
  const DeviceSlices& slices() const { return slices_; }

  std::int64_t next(const Where& where) {
    launches_.require_parent("next", where);
    const Held call = launches_.hold(where);
    demand(!InCapture::here(), kStreamLoaderNext,
           "was called in a function that a SinkCache captures, and every launch would repeat its batch",
           "call it before SinkCache::run()", where);
    slices_.require_live(kStreamLoaderNext, where);
    if (launches_.next(1, where) == 0) return 0;
    if (LaunchMemory* made = launches_.made_ahead()) slices_.send_ahead(*made);
    return slices_.given_samples();
  }

 private:
  static std::vector<Part> parts_of(const SliceLayout& layout, const StreamLoaderOptions& options) {
    std::vector<Part> parts;
    for (std::size_t f = 0; f < layout.fields.size() - (options.mask.empty() ? 0 : 1); ++f)
      parts.push_back({layout.fields[f].type, f});
    return parts;
  }

  DeviceSlices slices_;
  Launches launches_;  // behind the memory that its workers write to
};

StreamLoader::StreamLoader(cudaStream_t stream, std::shared_ptr<const Source> source, SampleOrder order,
                           const StreamLoaderOptions& options, Where where)
    : impl_(new Impl(stream, std::move(source), std::move(order), options, where)) {}
void StreamLoader::Close::operator()(Impl* impl) const noexcept {
  // A child of fork() has neither the threads nor the device: nothing of it can be destroyed there.
  if (!impl->launches().is_in_child()) delete impl;
}
StreamLoader::StreamLoader(StreamLoader&&) noexcept = default;
StreamLoader& StreamLoader::operator=(StreamLoader&&) noexcept = default;
StreamLoader::~StreamLoader() = default;

std::int64_t StreamLoader::next(Where where) { return impl(where).next(where); }
const std::vector<Field>& StreamLoader::fields(Where where) const { return impl(where).slices().layout().fields; }
std::shared_ptr<void> StreamLoader::memory(Where where) const { return impl(where).slices().memory(); }
std::int64_t StreamLoader::most_samples(Where where) const { return impl(where).slices().layout().most_samples; }
std::int64_t StreamLoader::batches(Where where) const { return impl(where).launches().order().batches(); }
LoaderPosition StreamLoader::position(Where where) const { return impl(where).launches().position(where); }
void StreamLoader::seek(const LoaderPosition& position, Where where) { impl(where).launches().seek(position, where); }

StreamLoaderReport StreamLoader::report(Where where) const {
  const Held call = impl(where).launches().hold(where);
  StreamLoaderReport report{impl(where).launches().report(where)};
  impl(where).slices().count(report);
  return report;
}

void* StreamLoader::address(const std::string& field, DType dtype, const Where& where) const {
  const DeviceSlices& slices = impl(where).slices();
  const std::vector<Field>& fields = slices.layout().fields;
  const auto found = std::find_if(fields.begin(), fields.end(), [&](const Field& f) { return f.name == field; });
  demand(found != fields.end(), "StreamLoader::data", "there is no field \"" + field + "\"",
         "it has " + names_of(fields), where);
  demand(found->type.dtype == dtype, "StreamLoader::data",
         "\"" + field + "\" is " + to_string(found->type) + ", and " + std::string(to_string(dtype)) + " was asked for",
         "ask for its dtype", where);
  return slices.address(static_cast<std::size_t>(found - fields.begin()));
}

StreamLoader::Impl& StreamLoader::impl(const Where& where) const {
  if (!impl_) throw Error(kStreamLoader, where, "a moved-from StreamLoader", "use the one that it was moved to");
  return *impl_;
}

std::string to_string(const StreamLoaderReport& report) {
  return to_string(static_cast<const LoaderReport&>(report)) + "\n" + std::to_string(report.copies) +
         " copies to the device of " + bytes_text(static_cast<std::size_t>(report.copied_bytes)) + ", " +
         std::to_string(report.copied_ahead) + " of them ahead";
}

}  // namespace graphsink
