#include "exec/memory/variable.h"

#include <algorithm>

#include "base/in_body.h"

namespace graphsink {
namespace {

// Keeps the given programs outside of their calls while it lives.
class Held {
 public:
  explicit Held(const std::vector<std::shared_ptr<RunGate>>& gates) : gates_(gates) {
    for (const auto& gate : gates_) gate->hold();
  }
  ~Held() {
    for (const auto& gate : gates_) gate->release();
  }
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;

 private:
  const std::vector<std::shared_ptr<RunGate>>& gates_;
};

}  // namespace

DeviceVariable::DeviceVariable(std::string name, std::shared_ptr<Transfer> transfer, const Tensor& value)
    : name_(std::move(name)),
      transfer_(std::move(transfer)),
      type_(value.type()),
      memory_(transfer_->allocate(type_.bytes())) {
  write(value);
}

DeviceVariable::DeviceVariable(std::string name, std::shared_ptr<Transfer> transfer, const TensorType& type,
                               Memory memory)
    : name_(std::move(name)),
      transfer_(std::move(transfer)),
      type_(type),
      memory_(std::move(memory)),
      is_callers_(true) {}

void DeviceVariable::require_parent(const char* event, const Where& where) const {
  if (!fork_mark_.is_in_child()) return;
  throw Error("Variable \"" + name_ + "\"", where,
              std::string(event) +
                  " in a child of fork(), and its elements are with a program of the parent, whose "
                  "threads the child does not have",
              "read() it in the parent before fork(), and make another Variable of that value in the child");
}

void DeviceVariable::add_user(const std::shared_ptr<RunGate>& gate) {
  std::lock_guard lock(mutex_);
  users_.push_back(gate);
}

void DeviceVariable::touch_users(const RunGate* except) const {
  for (const auto& gate : users_)
    if (gate.get() != except) gate->touch();
}

void DeviceVariable::set_broken(const Error& why) {
  std::lock_guard lock(mutex_);
  broken_ = why;
  touch_users();
}

void DeviceVariable::require_whole() const {
  std::lock_guard lock(mutex_);
  if (broken_) throw Error(*broken_);
}

void DeviceVariable::wait_for_user() {
  if (!last_user_) return;
  std::optional<RunGate::Awaited> awaited;
  for (const auto& gate : users_)
    if (gate.get() == last_gate_) awaited.emplace(*gate);
  transfer_->wait(*last_user_);
}

std::shared_ptr<const void> DeviceVariable::hold_users(const char* call) {
  require_parent((std::string(call) + "() was called").c_str(), Where());
  return std::make_shared<const Held>(users_);
}

Tensor DeviceVariable::read() {
  require_parent("read() was called", Where());
  Tensor tensor(type_);
  const Held users(users_);
  require_whole();  // checked only now that no commit can break off
  wait_for_user();
  transfer_->download(tensor.data(), memory_.get(), tensor.bytes());
  return tensor;
}

void DeviceVariable::write(const Tensor& tensor) {
  require_parent("write() was called", Where());
  touch_users();
  const Held users(users_);
  ++version_;
  wait_for_user();
  try {
    transfer_->upload(memory_.get(), tensor.data(), tensor.bytes());
  } catch (const Error& e) {
    set_broken(
        Error(e.op(), e.where(), "a write to the Variable broke off: " + e.problem(), "write it again", e.code()));
    throw;
  }
  std::lock_guard lock(mutex_);
  broken_.reset();
}

void DeviceVariable::take(DeviceQueue& device, const std::shared_ptr<Stream>& stream, const RunGate& gate) {
  if (last_user_ == stream) return;
  require_parent("a program was run with it", Where());
  if (users_.size() > 1 && InBody::here()) {
    throw Error("run", Where(),
                "was called by the body of an op, and other programs use Variables of this program, too",
                "run the program before or after the step that the body is part of");
  }
  touch_users(&gate);
  for (const auto& user : users_)
    if (user.get() != &gate) user->wait_until_outside();
  if (last_user_) device.make_wait(*stream, *last_user_);
  last_user_ = stream;
  last_gate_ = &gate;
}

void DeviceVariable::released_by(const Stream& stream, const RunGate& gate) noexcept {
  if (last_user_.get() == &stream) last_user_.reset();
  std::lock_guard lock(mutex_);
  std::erase_if(users_, [&](const auto& known) { return known.get() == &gate; });
}

std::shared_ptr<DeviceVariable> home_of(const Variable& variable, const std::shared_ptr<Transfer>& transfer,
                                        const std::shared_ptr<RunGate>& gate, const Where& where) {
  VariableData& data = *variable.data();
  std::lock_guard lock(data.lock);
  if (!data.storage) data.storage = std::make_shared<DeviceVariable>(data.name, transfer, data.value);
  auto home = std::static_pointer_cast<DeviceVariable>(data.storage);
  home->require_parent("a program was run with it", where);
  DeviceId here = transfer->device().target().id;
  if (home->device_id() != here) {
    throw Error("Variable \"" + data.name + "\"", where,
                "lives on " + to_string(home->device_id()) + ", this program on " + to_string(here),
                "compile both programs for the same devices, or copy it into another Variable");
  }
  home->add_user(gate);
  return home;
}

}  // namespace graphsink
