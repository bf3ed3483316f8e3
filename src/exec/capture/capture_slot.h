// The life of one captured graph: work that a function gives to streams is captured once, then launched any number of
// times. A slot knows nothing of plans.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <utility>

#include "base/function_ref.h"
#include "device/device.h"

namespace graphsink {

// Used by one thread at a time. Everything that the captured work uses must outlive the slot.
class CaptureSlot {
 public:
  // A capture can fail because of something outside, for example another thread that waits for the whole device; then a
  // later attempt succeeds. If the work itself cannot be captured, every attempt fails. After this number of failures
  // the slot is refused.
  static constexpr int kMaxFailures = 3;

  bool is_captured() const { return graph_ != nullptr; }
  bool is_refused() const { return failures_ >= kMaxFailures; }
  // Whether the last attempt failed: what was to be captured is given to the streams as it is.
  bool has_failed() const { return !graph_ && failures_ > 0; }
  // An estimate of the memory that the captured graph takes; see CaptureInfo::bytes.
  std::size_t bytes() const { return graph_ ? graph_->info().bytes : 0; }
  // Captures what `issue` gives to the streams, which it is called with; nothing of it runs. At its end the first
  // stream must wait for all others. Returns false if the device could not do it: failure() says why, and the work can
  // be given to the streams without a capture. Throws what `issue` throws. `spare`: see DeviceCapture::end_capture().
  // Precondition: neither captured nor refused.
  bool capture(DeviceCapture& device, Streams streams, FunctionRef<void(Streams)> issue,
               std::unique_ptr<CapturedGraph> spare = nullptr);
  // The same for a capture that `make` does: it returns a graph that can be launched, or throws CaptureFailed.
  bool capture(FunctionRef<std::unique_ptr<CapturedGraph>()> make);
  // Why the last attempt failed; empty after one that did not.
  const std::optional<CaptureFailed>& failure() const { return failure_; }
  // Destroys the captured graph, which could not be launched for this reason. It counts as a failed attempt.
  void drop(const CaptureFailed& reason);
  // The same for a reason that no further attempt changes: the slot is refused for good.
  void refuse(const CaptureFailed& reason);
  bool is_refused_for_good() const { return is_refused() && is_final_; }
  // A refused slot can be captured once more; if that fails, it is refused again.
  void allow_attempt() { failures_ = kMaxFailures - 1; }
  // The captured graph, which the slot has no longer; null if it has none.
  std::unique_ptr<CapturedGraph> take() { return std::move(graph_); }
  // A refused slot can be captured again.
  void forget_failures() {
    failures_ = 0;
    is_final_ = false;
  }

  // Precondition of these: it is captured. A loop over steps is counted as `steps` iterations.
  const CapturedGraph& graph() const { return *graph_; }
  CapturedGraph& graph() { return *graph_; }
  void launch(DeviceCapture& device, Stream& stream, std::int64_t steps = 1) { device.launch(stream, *graph_, steps); }

 private:
  std::unique_ptr<CapturedGraph> graph_;
  std::optional<CaptureFailed> failure_;
  int failures_ = 0;
  bool is_final_ = false;  // refuse() was called
};

}  // namespace graphsink
