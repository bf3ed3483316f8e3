#include "exec/issue/session.h"

#include <algorithm>
#include <thread>

#include "kernels/support/blas_memory.h"

namespace graphsink {
namespace {

// How many threads of a CPU device may run bodies at the same time: those that share a launch, or its streams.
int threads_of(const Target& target, const CpuOptions& options) {
  const int threads = options.threads > 0 ? options.threads : static_cast<int>(std::thread::hardware_concurrency());
  return std::max(threads, target.max_streams);
}

// Devices that one of them refers to: destroyed in reverse order.
struct KeptDevices {
  std::vector<std::shared_ptr<Device>> devices;

  explicit KeptDevices(std::span<const std::shared_ptr<Device>> kept) : devices(kept.begin(), kept.end()) {}
  ~KeptDevices() {
    while (!devices.empty()) devices.pop_back();
  }
  KeptDevices(const KeptDevices&) = delete;
  KeptDevices& operator=(const KeptDevices&) = delete;
};

}  // namespace

Session::Session(DeviceId target, std::span<const DeviceId> further, const Log& log, const CpuOptions& options) {
  auto open = [&](DeviceId id) {
    devices_.push_back(open_device(id, log, pointers_, options));
    pointers_.push_back(devices_.back().get());
    if (pointers_.back()->target().runs_cpu_bodies()) take_blas_memory(threads_of(pointers_.back()->target(), options));
    streams_.push_back(devices_.back()->make_stream());
  };
  open(target);
  if (!device().target().takes_further_devices) return;
  for (DeviceId id : further) open(id);
}

// Destroys the devices in reverse order, because each device may refer to those opened before it.
Session::~Session() {
  more_streams_.clear();
  borrowed_.reset();
  while (!devices_.empty()) {
    streams_.pop_back();
    devices_.pop_back();
  }
}

std::shared_ptr<Device> Session::shared_device(int number) const {
  if (number == 0) return devices_[0];
  auto kept = std::make_shared<KeptDevices>(std::span(devices_).first(at(number) + 1));
  return {kept, kept->devices.back().get()};
}

Stream& Session::target_stream(std::size_t number) {
  if (number == 0) return stream();
  while (more_streams_.size() < number) more_streams_.push_back(device().make_stream());
  return *more_streams_[number - 1];
}

Stream& Session::borrowed_stream(void* handle) {
  if (!borrowed_ || borrowed_handle_ != handle) {
    borrowed_ = device().borrow_stream(handle);
    borrowed_handle_ = handle;
  }
  return *borrowed_;
}

Streams Session::streams_for(std::span<const int> devices, Spread spread) {
  std::size_t used = 0;  // streams of the target device used so far
  for (std::size_t i = 0; i < devices.size(); ++i) {
    if (devices[i] > 0) {
      given_[i] = &stream(devices[i]);
    } else {
      given_[i] = &target_stream(spread == Spread::parallel ? used++ : spread == Spread::serial ? 0 : 1);
    }
    given_[i]->shares_nodes = spread == Spread::parallel;
  }
  return {given_.data(), devices.size()};
}

void Session::issue_on(int number, FunctionRef<void(DeviceQueue&, Stream&)> issue) const {
  if (number > 0) device(number).make_wait(stream(number), stream());
  issue(device(number), stream(number));
  if (number > 0) device().make_wait(stream(), stream(number));
}

void Session::for_each_stream(FunctionRef<void(DeviceQueue&, Stream&)> wait_for) const {
  wait_for(device(), stream());
  for (const auto& more : more_streams_) wait_for(device(), *more);
  for (int number = 1; number < count(); ++number) wait_for(device(number), stream(number));
}

bool Session::is_done() const {
  bool is_done = true;
  for_each_stream([&](DeviceQueue& device, Stream& stream) { is_done = is_done && device.is_done(stream); });
  return is_done;
}

bool Session::wait_otherwise() const noexcept {
  bool is_done = true;
  for_each_stream([&](DeviceQueue& device, Stream& stream) { is_done = device.wait_otherwise(stream) && is_done; });
  return is_done;
}

Counters Session::counters() const {
  Counters sum;
  for (const auto& device : devices_) sum += device->counters();
  return sum;
}

}  // namespace graphsink
