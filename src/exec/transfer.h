// Copies between host and device outside of any program's stream.
#pragma once

#include <memory>
#include <mutex>

#include "device/device.h"

namespace graphsink {

// Shared by all Variables that a program brought to its device. Any thread; the calls return when the copy is done.
class Transfer {
 public:
  explicit Transfer(std::shared_ptr<Device> device) : device_(std::move(device)) {}

  Device& device() const { return *device_; }
  void upload(void* destination, const void* source, std::size_t bytes);
  void download(void* destination, const void* source, std::size_t bytes);

 private:
  Stream& stream();

  std::shared_ptr<Device> device_;
  std::mutex mutex_;
  std::unique_ptr<Stream> stream_;  // made on first use; gone before the device
};

}  // namespace graphsink
