// Copies between host and device outside of any program's stream.
#pragma once

#include <memory>
#include <mutex>

#include "device/device.h"

namespace graphsink {

// Shared by all Variables that a program brought to one of its devices. Any thread, while the program whose device it
// is is kept outside of its calls (RunGate); the calls return when the copy is done.
class Transfer {
 public:
  // `mutex` is that of all Transfers of a program: its devices have one state, which says whether one of them is lost.
  Transfer(std::shared_ptr<Device> device, std::shared_ptr<std::mutex> mutex)
      : device_(std::move(device)), mutex_(std::move(mutex)) {}

  Device& device() const { return *device_; }
  Memory allocate(std::size_t bytes);
  void wait(Stream& stream);
  void upload(void* destination, const void* source, std::size_t bytes);
  void download(void* destination, const void* source, std::size_t bytes);

 private:
  Stream& stream();

  std::shared_ptr<Device> device_;
  std::shared_ptr<std::mutex> mutex_;
  std::unique_ptr<Stream> stream_;  // made on first use; gone before the device
};

}  // namespace graphsink
