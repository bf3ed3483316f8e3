#include "exec/variable.h"

#include <algorithm>

namespace graphsink {
namespace {

// Keeps programs outside of run() while it lives.
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

DeviceVariable::DeviceVariable(std::shared_ptr<Transfer> transfer, const Tensor& value)
    : transfer_(std::move(transfer)), type_(value.type()), memory_(transfer_->device().allocate(type_.bytes())) {
  write(value);
}

void DeviceVariable::touch_users(const RunGate* except) {
  for (const auto& gate : gates_)
    if (gate.get() != except) gate->touch();
}

void DeviceVariable::keep_out_users(const RunGate* except) {
  touch_users(except);
  for (const auto& gate : gates_)
    if (gate.get() != except) gate->wait_until_outside();
}

void DeviceVariable::was_written(const RunGate& writer) {
  version_.fetch_add(1, std::memory_order_release);
  touch_users(&writer);
}

void DeviceVariable::set_broken(const Error& why) {
  broken_ = why;
  touch_users();
}

void DeviceVariable::wait_for_user() {
  if (last_user_) transfer_->device().wait(*last_user_);
}

Tensor DeviceVariable::read() {
  require_whole();
  Tensor tensor(type_);
  const Held users(gates_);
  wait_for_user();
  transfer_->download(tensor.data(), memory_.get(), tensor.bytes());
  return tensor;
}

void DeviceVariable::write(const Tensor& tensor) {
  keep_out_users();
  version_.fetch_add(1, std::memory_order_release);
  wait_for_user();
  try {
    transfer_->upload(memory_.get(), tensor.data(), tensor.bytes());
  } catch (const Error& e) {
    broken_ = Error(e.op(), e.where(), "a write to the Variable broke off: " + e.problem(), "write it again");
    throw;
  }
  broken_.reset();
}

void DeviceVariable::used_by(Device& device, const std::shared_ptr<Stream>& stream,
                             const std::shared_ptr<RunGate>& gate) {
  if (last_user_ == stream) return;
  if (std::find(gates_.begin(), gates_.end(), gate) == gates_.end()) gates_.push_back(gate);
  keep_out_users(gate.get());
  if (last_user_) device.fence(*stream, *last_user_);
  last_user_ = stream;
}

void DeviceVariable::released_by(const Stream& stream, const RunGate& gate) noexcept {
  if (last_user_.get() == &stream) last_user_.reset();
  std::erase_if(gates_, [&](const auto& known) { return known.get() == &gate; });
  touch_users();  // the Variable may be no longer shared
}

std::shared_ptr<DeviceVariable> home_of(const Variable& variable, const std::shared_ptr<Transfer>& transfer,
                                        const Where& where) {
  VariableData& data = *variable.data();
  std::lock_guard lock(data.mutex);
  if (!data.storage) data.storage = std::make_shared<DeviceVariable>(transfer, data.value);
  auto home = std::static_pointer_cast<DeviceVariable>(data.storage);
  DeviceId here = transfer->device().target().id;
  if (home->device_id() != here) {
    throw Error("Variable \"" + data.name + "\"", where,
                "lives on " + to_string(home->device_id()) + ", this program on " + to_string(here),
                "compile both programs for one device, or copy it into another Variable");
  }
  return home;
}

}  // namespace graphsink
