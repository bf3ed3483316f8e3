// The host as a device: streams are in-order queues with threads, a captured graph is an array of pre-bound calls.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/in_body.h"
#include "device/cpu/captured.h"
#include "device/cpu/helpers.h"
#include "device/cpu/queue.h"
#include "device/cpu/slots.h"
#include "device/cpu/workers.h"
#include "device/device.h"

namespace graphsink {

class CpuDevice : public Device {
 public:
  CpuDevice(const Log& log, const CpuOptions& options);

  Memory allocate(std::size_t bytes) override;
  Memory allocate_host(std::size_t bytes) override;
  std::unique_ptr<Arena> reserve() override;
  std::unique_ptr<FeedMemory> make_feed_memory() override;
  std::size_t staging_bytes() const override { return staging_.bytes(); }
  std::unique_ptr<Stream> make_stream() override {
    return std::make_unique<CpuQueue>(this, options_.flush_denormals, helpers_);
  }
  std::unique_ptr<Stream> borrow_stream(void* handle) override;
  void wait(Stream& stream) override;
  bool is_done(Stream& stream) override { return static_cast<CpuQueue&>(stream).is_done(); }
  bool wait_otherwise(Stream&) noexcept override { return true; }  // wait() does not throw
  void make_wait(Stream& later, Stream& earlier) override;
  void begin(Stream& stream, const LaunchRing& ring) override;
  void call(Stream& stream, const BoundNode& node) override;
  void call_now(const BoundNode& node) override;
  void copy(Stream& stream, void* destination, const void* source, std::size_t bytes) override;
  void upload(Stream& stream, void* destination, const void* source, std::size_t bytes) override;
  void control(Streams streams, TaskKind kind, const void* decision, std::size_t count, const Bodies& bodies) override;
  void begin_capture(Streams streams) override;
  std::unique_ptr<CapturedGraph> end_capture(Streams streams, std::unique_ptr<CapturedGraph> spare) override;
  void leave_capture(Streams streams) noexcept override;
  void launch(Stream& stream, CapturedGraph& graph, std::int64_t steps = 1) override;
  Counters counters() const override;

 private:
  void push(CpuQueue& queue, const CpuTask& task);
  // The tiles of a node that several threads compute; 1 if only the thread of the stream does.
  std::int64_t tiles_to_share(const Stream& stream, const BoundNode& node) const;

  const CpuOptions options_;
  Workers workers_;  // threads that run launches together
  Helpers helpers_;  // helpers of streams to which nodes are given one by one
  Counters counters_;
  std::shared_ptr<HeldBytes> held_ = std::make_shared<HeldBytes>();
  // Holds the data of uploads to busy streams.
  CpuSlots staging_{held_, &HeldBytes::host};
  std::unique_ptr<CpuItems> items_;  // items of the capture in progress
};

}  // namespace graphsink
