// A Variable's home on a device.
#pragma once

#include <atomic>
#include <memory>
#include <optional>

#include "exec/transfer.h"
#include "ir/graph_data.h"

namespace graphsink {

class DeviceVariable : public VariableStorage {
 public:
  DeviceVariable(std::shared_ptr<Transfer> transfer, const Tensor& value);

  Tensor read() override;
  void write(const Tensor& tensor) override;

  void* address() const { return memory_.get(); }
  DeviceId device_id() const { return transfer_->device().target().id; }
  // Work given to `stream` from here on comes after all uses so far; `stream` is the user from now on. Costs nothing if
  // it was before. The mutex of the Variable must be held, as for all others but the next two.
  void used_by(Device& device, const std::shared_ptr<Stream>& stream);
  // Another number after each write, never 0. Whoever asks for it before used_by() copies what belongs to it, or to a
  // later one.
  std::uint64_t version() const { return version_.load(std::memory_order_acquire); }
  // A user has given all that writes the Variable to its stream.
  void was_written() { version_.fetch_add(1, std::memory_order_release); }
  // What it holds belongs to no step: until the next write(), read() and require_whole() throw `why`.
  void set_broken(const Error& why) { broken_ = why; }
  void require_whole() const {
    if (broken_) throw *broken_;
  }
  // The work of `stream` is done and it goes away.
  void released_by(const Stream& stream) noexcept;

 private:
  void wait_for_user();

  std::shared_ptr<Transfer> transfer_;
  TensorType type_;
  Memory memory_;
  std::shared_ptr<Stream> last_user_;
  std::atomic<std::uint64_t> version_ = 1;
  std::optional<Error> broken_;
};

// The Variable's home on the device of `transfer`, made there from its value if it has none yet. Throws Error if it
// lives elsewhere.
std::shared_ptr<DeviceVariable> home_of(const Variable& variable, const std::shared_ptr<Transfer>& transfer,
                                        const Where& where);

}  // namespace graphsink
