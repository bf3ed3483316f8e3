// A Variable's home on a device.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/fork_mark.h"
#include "exec/memory/run_gate.h"
#include "exec/memory/transfer.h"
#include "ir/graph_data.h"

namespace graphsink {

// The lock of the Variable must be held for all members but address(), device_id(), is_callers(), set_broken() and
// require_whole().
class DeviceVariable : public VariableStorage {
 public:
  DeviceVariable(std::string name, std::shared_ptr<Transfer> transfer, const Tensor& value);
  // In memory of the caller's, which holds its value.
  DeviceVariable(std::string name, std::shared_ptr<Transfer> transfer, const TensorType& type, Memory memory);

  Tensor read() override;
  void write(const Tensor& tensor) override;
  std::shared_ptr<const void> hold_users(const char* call) override;

  void* address() const { return memory_.get(); }
  DeviceId device_id() const { return transfer_->device().target().id; }
  // Throws Error in a child of the process that made it, where nothing can be done with it. `event`: what was tried, as
  // "read() was called".
  void require_parent(const char* event, const Where& where) const;
  bool is_callers() const { return is_callers_; }  // the memory
  // The caller has said once more that it is there: its owner, if it has one, now stands for the one of before, which
  // `memory` then holds, to be dropped without the lock.
  void keep(Memory& memory) {
    if (is_callers_ && memory.use_count() > 0) memory_.swap(memory);
  }
  // Registers the program of `gate` as a user.
  void add_user(const std::shared_ptr<RunGate>& gate);
  // Makes `stream`, on which the program of `gate` works, the user of the Variable: work given to it from here on comes
  // after all uses so far. The other programs that use it take their Variables again before they run next, and those
  // that are inside a call are waited for.
  void take(DeviceQueue& device, const std::shared_ptr<Stream>& stream, const RunGate& gate);
  // Changes with each write, and is never 0.
  std::uint64_t version() const { return version_; }
  // For a program that has taken it: its runs write the Variable.
  void will_be_written() { ++version_; }
  // The work of `stream`, on which the program of `gate` worked, is done, and both go away.
  void released_by(const Stream& stream, const RunGate& gate) noexcept;

  // Marks the value as broken, because it belongs to no single step: until the next write(), read() and require_whole()
  // throw `why`.
  void set_broken(const Error& why);
  void require_whole() const;

 private:
  void touch_users(const RunGate* except = nullptr) const;
  void wait_for_user();

  const std::string name_;  // name of the Variable
  ForkMark fork_mark_;
  std::shared_ptr<Transfer> transfer_;
  TensorType type_;
  Memory memory_;
  const bool is_callers_ = false;
  std::shared_ptr<Stream> last_user_;
  const RunGate* last_gate_ = nullptr;  // the gate of its program, which may be gone
  std::uint64_t version_ = 1;
  // Never held while waiting. Protects broken_, and users_ together with the lock of the Variable: both are held to
  // change them, one is enough to look at them.
  mutable std::mutex mutex_;
  std::vector<std::shared_ptr<RunGate>> users_;  // all programs that use it
  std::optional<Error> broken_;
};

// The Variable's home on the device of `transfer`, made there from its value if it has none yet; the program of `gate`
// becomes a user of it. Throws Error if it lives elsewhere.
std::shared_ptr<DeviceVariable> home_of(const Variable& variable, const std::shared_ptr<Transfer>& transfer,
                                        const std::shared_ptr<RunGate>& gate, const Where& where);

}  // namespace graphsink
