// What one launch holds: captured once, from a function that gives it to streams, and then launched as often as it is
// to run. Knows no Plan.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>

#include "base/function_ref.h"
#include "device/device.h"

namespace graphsink {

// Used by one thread at a time. What the captured work uses must outlive the slot.
class CaptureSlot {
 public:
  // What disturbs a capture from outside, such as another thread that waits for the whole device, is over at the next
  // attempt; what is wrong with the work itself is not. After so many failures nobody tries again.
  static constexpr int kMaxFailures = 3;

  bool is_captured() const { return graph_ != nullptr; }
  bool is_refused() const { return failures_ >= kMaxFailures; }
  // An estimate of the memory that the captured graph takes; see CaptureInfo::bytes.
  std::size_t bytes() const { return graph_ ? graph_->info().bytes : 0; }
  // Captures what `issue` gives to the streams, which it is called with; nothing of it runs. At its end the first
  // stream must wait for all others. Returns false if the device could not do it: failure() says why, and the work can
  // be given to the streams without a capture. Throws what `issue` throws. Precondition: neither captured nor refused.
  bool capture(Device& device, Streams streams, FunctionRef<void(Streams)> issue);
  // Why the last attempt failed; empty after one that did not.
  const std::optional<CaptureFailed>& failure() const { return failure_; }

  // Precondition of both: it is captured. A loop over steps is counted as `steps` iterations.
  const CapturedGraph& graph() const { return *graph_; }
  void launch(Device& device, Stream& stream, std::int64_t steps = 1) { device.launch(stream, *graph_, steps); }

 private:
  std::unique_ptr<CapturedGraph> graph_;
  std::optional<CaptureFailed> failure_;
  int failures_ = 0;
};

}  // namespace graphsink
