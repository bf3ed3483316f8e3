// A Variable's home on a device.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <vector>

#include "exec/run_gate.h"
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
  // Makes `stream`, on which the program of `gate` works, the user of the Variable: work given to it from here on comes
  // after all uses so far. Another program that uses the Variable is told so by its gate, and is waited for if it is
  // inside run(). The mutex of the Variable must be held, as for all other members but version().
  void used_by(Device& device, const std::shared_ptr<Stream>& stream, const std::shared_ptr<RunGate>& gate);
  // Changes with each write, and is never 0. A program that asks for it before used_by() copies the value that belongs
  // to this version, or to a later one.
  std::uint64_t version() const { return version_.load(std::memory_order_acquire); }
  // The program of `writer` has given all that writes the Variable to its stream. Needed only where is_shared().
  void was_written(const RunGate& writer);
  // Whether several programs use it. A program learns that it became so by its gate.
  bool is_shared() const { return gates_.size() > 1; }
  // What it holds belongs to no step: until the next write(), read() and require_whole() throw `why`.
  void set_broken(const Error& why);
  void require_whole() const {
    if (broken_) throw *broken_;
  }
  // The work of `stream`, on which the program of `gate` worked, is done, and both go away.
  void released_by(const Stream& stream, const RunGate& gate) noexcept;

 private:
  void touch_users(const RunGate* except = nullptr);
  // Afterwards no program but that of `except` is inside a run() that uses the Variable. None enters one before the
  // mutex is free.
  void keep_out_users(const RunGate* except = nullptr);
  void wait_for_user();

  std::shared_ptr<Transfer> transfer_;
  TensorType type_;
  Memory memory_;
  std::shared_ptr<Stream> last_user_;
  std::vector<std::shared_ptr<RunGate>> gates_;  // of all programs that use it
  std::atomic<std::uint64_t> version_ = 1;
  std::optional<Error> broken_;
};

// The Variable's home on the device of `transfer`, made there from its value if it has none yet. Throws Error if it
// lives elsewhere.
std::shared_ptr<DeviceVariable> home_of(const Variable& variable, const std::shared_ptr<Transfer>& transfer,
                                        const Where& where);

}  // namespace graphsink
