#include "exec/variable.h"

namespace graphsink {

DeviceVariable::DeviceVariable(std::shared_ptr<Device> device, const Tensor& value)
    : device_(std::move(device)), type_(value.type()), memory_(device_->allocate(type_.bytes())) {
  write(value);
}

void DeviceVariable::settle() {
  if (last_user_) device_->sync(*last_user_);
  if (!own_stream_) own_stream_ = device_->make_stream();
}

Tensor DeviceVariable::read() {
  settle();
  Tensor tensor(type_);
  device_->copy(*own_stream_, tensor.data(), memory_.get(), tensor.bytes());
  device_->sync(*own_stream_);
  return tensor;
}

void DeviceVariable::write(const Tensor& tensor) {
  settle();
  device_->upload(*own_stream_, memory_.get(), tensor.data(), tensor.bytes());
  device_->sync(*own_stream_);
}

void DeviceVariable::used_by(Device& device, const std::shared_ptr<Stream>& stream) {
  if (last_user_ == stream) return;
  if (last_user_) device.fence(*stream, *last_user_);
  last_user_ = stream;
}

void DeviceVariable::released_by(const Stream& stream) noexcept {
  if (last_user_.get() == &stream) last_user_.reset();
}

std::shared_ptr<DeviceVariable> home_of(const Variable& variable, const std::shared_ptr<Device>& device,
                                        const Where& where) {
  VariableData& data = *variable.data();
  std::lock_guard lock(data.mutex);
  if (!data.storage) data.storage = std::make_shared<DeviceVariable>(device, data.value);
  auto home = std::static_pointer_cast<DeviceVariable>(data.storage);
  if (home->device_id() != device->target().id) {
    throw Error("Variable \"" + data.name + "\"", where,
                "lives on " + to_string(home->device_id()) + ", this program on " + to_string(device->target().id),
                "compile both programs for one device, or copy it into another Variable");
  }
  return home;
}

}  // namespace graphsink
