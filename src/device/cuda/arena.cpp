// Implements an arena as a reserved address range that is backed with memory block by block, through the driver's
// virtual memory management API.
#include <algorithm>
#include <vector>

#include "device/cuda/driver.h"
#include "device/cuda/memory.h"

namespace graphsink {
namespace {

struct VirtualMemory {
  decltype(&cuMemGetAllocationGranularity) granularity = nullptr;
  decltype(&cuMemAddressReserve) reserve = nullptr;
  decltype(&cuMemAddressFree) unreserve = nullptr;
  decltype(&cuMemCreate) create = nullptr;
  decltype(&cuMemRelease) release = nullptr;
  decltype(&cuMemMap) map = nullptr;
  decltype(&cuMemUnmap) unmap = nullptr;
  decltype(&cuMemSetAccess) set_access = nullptr;

  explicit VirtualMemory(Calls& calls) {
    find_driver_function(calls, "cuMemGetAllocationGranularity", granularity);
    find_driver_function(calls, "cuMemAddressReserve", reserve);
    find_driver_function(calls, "cuMemAddressFree", unreserve);
    find_driver_function(calls, "cuMemCreate", create);
    find_driver_function(calls, "cuMemRelease", release);
    find_driver_function(calls, "cuMemMap", map);
    find_driver_function(calls, "cuMemUnmap", unmap);
    find_driver_function(calls, "cuMemSetAccess", set_access);
  }
};

void log_if_failed(const Log& log, CUresult code, const char* call) noexcept {
  if (code != CUDA_SUCCESS) log_failure(log, call, cudaGetErrorName(runtime_code(code)));
}

class CudaArena : public Arena {
 public:
  explicit CudaArena(std::shared_ptr<Calls> calls) : calls_(std::move(calls)), driver_(*calls_) {
    RelaxedCapture relaxed(*calls_);
    // cudaSetDevice() also makes the device's context current, which the driver functions need.
    calls_->check(cudaSetDevice(calls_->device()), "cudaSetDevice");
    properties_.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties_.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    properties_.location.id = calls_->device();
    check(driver_.granularity(&granularity_, &properties_, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED),
          "cuMemGetAllocationGranularity");
    add_access(calls_->device());
    for (int peer : calls_->peers) add_access(peer);
    std::size_t free = 0, total = 0;
    calls_->check(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
    capacity_ = rounded(total);
    check(driver_.reserve(&base_, capacity_, 0, 0, 0), "cuMemAddressReserve");
    try {
      calls_->memory->set(base(), capacity_, MemoryState::gone);
    } catch (...) {
      unreserve();
      throw;
    }
  }

  ~CudaArena() override {
    calls_->memory->set_gone(base(), capacity_);
    RelaxedCapture always_allowed(calls_->log);
    CUdeviceptr block = base_;
    if (stuck_ > 0) blocks_.push_back(stuck_);  // cannot throw: grow() reserved the space
    for (std::size_t bytes : blocks_) {
      log_if_failed(calls_->log, driver_.unmap(block, bytes), "cuMemUnmap");
      block += bytes;
    }
    unreserve();
    calls_->held->device -= size_;
  }
  CudaArena(const CudaArena&) = delete;
  CudaArena& operator=(const CudaArena&) = delete;

  std::byte* base() const override { return reinterpret_cast<std::byte*>(base_); }
  std::size_t size() const override { return size_; }

  std::size_t size_for(std::size_t bytes) const override { return std::max(size_, rounded(bytes)); }

  void grow(std::size_t bytes) override {
    if (bytes <= size_) return;
    calls_->require_device();
    CurrentDevice current(*calls_);
    if (bytes > capacity_) throw_out_of_memory(*calls_, "the address range of an arena", bytes);
    std::size_t more = rounded(bytes) - size_;
    // Calls that may throw for want of memory come before the block is added.
    blocks_.reserve(blocks_.size() + 2);
    calls_->memory->set(base() + size_, more, MemoryState::live);
    try {
      add_block(base_ + size_, more, bytes);
    } catch (...) {
      calls_->memory->set_gone(base() + size_, more);
      throw;
    }
    blocks_.push_back(more);
    size_ += more;
    calls_->held->device += more;
  }

 private:
  void unreserve() noexcept { log_if_failed(calls_->log, driver_.unreserve(base_, capacity_), "cuMemAddressFree"); }

  std::size_t rounded(std::size_t bytes) const { return (bytes + granularity_ - 1) / granularity_ * granularity_; }

  void add_access(int device) {
    CUmemAccessDesc access = {};
    access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    access.location.id = device;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    access_.push_back(access);
  }

  void check(CUresult code, const char* call) { calls_->check(runtime_code(code), call); }

  void add_block(CUdeviceptr address, std::size_t bytes, std::size_t wanted) {
    RelaxedCapture relaxed(*calls_);
    calls_->check(cudaSetDevice(calls_->device()), "cudaSetDevice");
    if (stuck_ > 0) check(driver_.unmap(address, stuck_), "cuMemUnmap");
    stuck_ = 0;
    CUmemGenericAllocationHandle block = 0;
    CUresult code = driver_.create(&block, bytes, &properties_, 0);
    if (code == CUDA_ERROR_OUT_OF_MEMORY) throw_out_of_memory(*calls_, "cuMemCreate for an arena", wanted);
    check(code, "cuMemCreate");
    code = driver_.map(address, bytes, 0, block, 0);
    // From here on the mapping keeps the memory alive, so the allocation handle can be released.
    log_if_failed(calls_->log, driver_.release(block), "cuMemRelease");
    check(code, "cuMemMap");
    code = driver_.set_access(address, bytes, access_.data(), access_.size());
    if (code != CUDA_SUCCESS) {
      CUresult unmapped = driver_.unmap(address, bytes);
      log_if_failed(calls_->log, unmapped, "cuMemUnmap");
      if (unmapped != CUDA_SUCCESS) stuck_ = bytes;
    }
    check(code, "cuMemSetAccess");
  }

  std::shared_ptr<Calls> calls_;
  VirtualMemory driver_;
  CUmemAllocationProp properties_ = {};
  std::vector<CUmemAccessDesc> access_;
  std::size_t granularity_ = 0;
  std::size_t capacity_ = 0;
  CUdeviceptr base_ = 0;
  std::size_t size_ = 0;
  std::vector<std::size_t> blocks_;  // bytes of each, from base_ on
  std::size_t stuck_ = 0;  // bytes behind the blocks that are mapped but not accessible, because cuMemUnmap failed
};

}  // namespace

std::unique_ptr<Arena> reserve_arena(std::shared_ptr<Calls> calls) {
  return std::make_unique<CudaArena>(std::move(calls));
}

}  // namespace graphsink
