// The devices of a program and the streams that its work goes to.
#pragma once

#include <array>
#include <memory>
#include <span>
#include <vector>

#include "base/at.h"
#include "base/function_ref.h"
#include "base/log.h"
#include "device/device.h"

namespace graphsink {

// Devices have the numbers that a plan gives them: 0 is the target. Each has a main stream, on which its work begins
// and ends; that of the target is the program's, where all work is joined. Used by one thread at a time.
class Session {
 public:
  // Opens the devices; `options` as in open_device(). Throws Error if one is not there.
  Session(DeviceId target, std::span<const DeviceId> further, const Log& log, const CpuOptions& options);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  std::span<Device* const> devices() const { return pointers_; }
  int count() const { return static_cast<int>(devices_.size()); }
  Device& device(int number = 0) const { return *pointers_[at(number)]; }
  const std::shared_ptr<Device>& shared_device() const { return devices_[0]; }
  // A device that may outlive the session, together with those that were opened before it, to which it refers.
  std::shared_ptr<Device> shared_device(int number) const;
  // The main stream of a device.
  Stream& stream(int device = 0) const { return *streams_[at(device)]; }
  const std::shared_ptr<Stream>& shared_stream() const { return streams_[0]; }
  // A stream of the target's that the caller owns, given as a cudaStream_t. Valid until the next call; see
  // DeviceQueue::borrow_stream(). Makes no call to the device if it is the one of the last call.
  Stream& borrowed_stream(void* handle);
  // A second stream of the target, on which nothing of a plan that is issued in series runs.
  Stream& stream_beside() { return target_stream(1); }

  // The streams on which a plan is issued; devices[i] is the device of the plan's stream i. With `serial`, all work of
  // the target goes to its main stream, with `serial_beside` to stream_beside(), and only with `parallel` do several
  // threads of the CPU share a node. Valid until the next call.
  enum class Spread : std::uint8_t { parallel, serial, serial_beside };
  Streams streams_for(std::span<const int> devices, Spread spread);

  // Gives work to the main stream of a device. It runs after all work that the program's stream was given so far, and
  // before all that the program's stream is given later.
  void issue_on(int number, FunctionRef<void(DeviceQueue&, Stream&)> issue) const;

  // Waits for the streams one by one, calling wait_for(device, stream) for each.
  void for_each_stream(FunctionRef<void(DeviceQueue&, Stream&)> wait_for) const;
  // Whether all that was given to any stream is done. Never waits.
  bool is_done() const;
  // For destructors, after a wait threw: waits by other means. Returns false if some work may still be running.
  bool wait_otherwise() const noexcept;
  // The sums over all devices.
  Counters counters() const;

 private:
  Stream& target_stream(std::size_t number);

  std::vector<std::shared_ptr<Device>> devices_;
  std::vector<Device*> pointers_;
  std::vector<std::shared_ptr<Stream>> streams_;       // per device: its main stream
  std::vector<std::unique_ptr<Stream>> more_streams_;  // further streams of the target
  void* borrowed_handle_ = nullptr;
  std::unique_ptr<Stream> borrowed_;
  std::array<Stream*, kMaxStreams> given_{};  // by streams_for()
};

}  // namespace graphsink
