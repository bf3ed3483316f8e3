// The driver's virtual memory management: reservations are inaccessible address ranges, physical memory is a file in
// memory, so that one block can be mapped at several addresses.
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>

#include "memory.h"
#include "runtime.h"

namespace emu {
namespace {

void* host(CUdeviceptr address) { return reinterpret_cast<void*>(address); }
bool is_granular(CUdeviceptr value) { return value % Memory::kGranularity == 0; }

}  // namespace

CUresult Memory::reserve(CUdeviceptr* address, std::size_t bytes, std::size_t alignment) {
  if (bytes == 0 || !is_granular(bytes) || !is_granular(alignment)) return CUDA_ERROR_INVALID_VALUE;
  const std::size_t align = alignment == 0 ? kGranularity : alignment;
  void* raw = mmap(nullptr, bytes + align, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (raw == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  const auto begin = reinterpret_cast<CUdeviceptr>(raw);
  const CUdeviceptr aligned = (begin + align - 1) / align * align;
  if (aligned > begin) munmap(raw, aligned - begin);
  const CUdeviceptr tail = begin + align - aligned;
  if (tail > 0) munmap(host(aligned + bytes), tail);
  const std::lock_guard guard(mutex_);
  reservations_[aligned] = bytes;
  *address = aligned;
  return CUDA_SUCCESS;
}

CUresult Memory::unreserve(CUdeviceptr address, std::size_t bytes) {
  const std::lock_guard guard(mutex_);
  const auto found = reservations_.find(address);
  if (found == reservations_.end() || found->second != bytes) return CUDA_ERROR_INVALID_VALUE;
  const auto mapping = mappings_.lower_bound(address);
  if (mapping != mappings_.end() && mapping->first < address + bytes) return CUDA_ERROR_INVALID_VALUE;
  munmap(host(address), bytes);
  reservations_.erase(found);
  return CUDA_SUCCESS;
}

CUresult Memory::create_physical(CUmemGenericAllocationHandle* handle, std::size_t bytes) {
  if (bytes == 0 || !is_granular(bytes)) return CUDA_ERROR_INVALID_VALUE;
  const std::lock_guard guard(mutex_);
  if (used_ + bytes > capacity_) return CUDA_ERROR_OUT_OF_MEMORY;
  const int file = memfd_create("cuda_emulator", MFD_CLOEXEC);
  if (file < 0 || ftruncate(file, static_cast<off_t>(bytes)) != 0) return CUDA_ERROR_OUT_OF_MEMORY;
  void* view = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (view == MAP_FAILED) {
    close(file);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  std::memset(view, 0xFF, bytes);
  munmap(view, bytes);
  used_ += bytes;
  *handle = next_physical_++;
  physical_[*handle] = Physical{file, bytes};
  return CUDA_SUCCESS;
}

CUresult Memory::release_physical(CUmemGenericAllocationHandle handle) {
  const std::lock_guard guard(mutex_);
  const auto found = physical_.find(handle);
  if (found == physical_.end() || found->second.released) return CUDA_ERROR_INVALID_VALUE;
  found->second.released = true;
  drop_physical(handle);
  return CUDA_SUCCESS;
}

void Memory::drop_physical(CUmemGenericAllocationHandle handle) {
  const auto found = physical_.find(handle);
  if (!found->second.released || found->second.mappings > 0) return;
  close(found->second.file);
  used_ -= found->second.bytes;
  physical_.erase(found);
}

CUresult Memory::map(CUdeviceptr address, std::size_t bytes, std::size_t offset, CUmemGenericAllocationHandle handle) {
  const std::lock_guard guard(mutex_);
  const auto physical = physical_.find(handle);
  if (physical == physical_.end() || physical->second.released) return CUDA_ERROR_INVALID_VALUE;
  if (offset != 0 || bytes == 0 || bytes > physical->second.bytes) return CUDA_ERROR_INVALID_VALUE;
  if (!is_granular(address) || !is_granular(bytes)) return CUDA_ERROR_INVALID_VALUE;
  auto reservation = reservations_.upper_bound(address);
  if (reservation == reservations_.begin()) return CUDA_ERROR_INVALID_VALUE;
  --reservation;
  if (address + bytes > reservation->first + reservation->second) return CUDA_ERROR_INVALID_VALUE;
  for (const auto& [start, mapping] : mappings_) {
    if (start < address + bytes && address < start + mapping.bytes) return CUDA_ERROR_ALREADY_MAPPED;
  }
  if (mmap(host(address), bytes, PROT_NONE, MAP_SHARED | MAP_FIXED, physical->second.file, 0) == MAP_FAILED) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  mappings_[address] = Mapping{bytes, handle, false};
  ++physical->second.mappings;
  return CUDA_SUCCESS;
}

CUresult Memory::unmap(CUdeviceptr address, std::size_t bytes) {
  const std::lock_guard guard(mutex_);
  CUdeviceptr end = address;
  for (auto it = mappings_.find(address); it != mappings_.end() && it->first == end && end < address + bytes; ++it) {
    end += it->second.bytes;
  }
  if (end != address + bytes || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  protect_device(host(address), bytes, false);
  mmap(host(address), bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  for (auto it = mappings_.find(address); it != mappings_.end() && it->first < end; it = mappings_.erase(it)) {
    --physical_.find(it->second.physical)->second.mappings;
    drop_physical(it->second.physical);
  }
  return CUDA_SUCCESS;
}

bool Memory::is_reachable(const void* pointer, int device) {
  const std::lock_guard guard(mutex_);
  const auto address = reinterpret_cast<CUdeviceptr>(pointer);
  const auto after = mappings_.upper_bound(address);
  if (device < 0 || after == mappings_.begin()) return true;
  const auto& [start, mapping] = *std::prev(after);
  return address >= start + mapping.bytes || (mapping.devices >> device & 1) != 0;
}

CUresult Memory::set_access(CUdeviceptr address, std::size_t bytes, unsigned devices) {
  const std::lock_guard guard(mutex_);
  CUdeviceptr end = address;
  for (auto it = mappings_.find(address); it != mappings_.end() && it->first == end && end < address + bytes; ++it) {
    end += it->second.bytes;
  }
  if (end != address + bytes || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  if (protect_device(host(address), bytes, devices != 0) != 0) return CUDA_ERROR_UNKNOWN;
  for (auto it = mappings_.find(address); it != mappings_.end() && it->first < end; ++it) {
    it->second.devices = devices;
  }
  return CUDA_SUCCESS;
}

void Memory::release_all() {
  while (!blocks_.empty()) release(arena_ + blocks_.begin()->first, blocks_.begin()->second.of_graph);
  while (!pinned_.empty()) release_pinned(const_cast<char*>(pinned_.begin()->first));
  while (!mappings_.empty()) unmap(mappings_.begin()->first, mappings_.begin()->second.bytes);
  while (!physical_.empty()) release_physical(physical_.begin()->first);
  while (!reservations_.empty()) unreserve(reservations_.begin()->first, reservations_.begin()->second);
}

void Memory::release_device(int device) {
  std::vector<Blocks::value_type> own;
  {
    const std::lock_guard guard(mutex_);
    for (const auto& block : blocks_) {
      if (block.second.device == device) own.push_back(block);
    }
  }
  for (const auto& [offset, block] : own) release(arena_ + offset, block.of_graph);
}

bool Memory::covers(CUdeviceptr address, std::size_t bytes) const {
  auto it = mappings_.upper_bound(address);
  if (it == mappings_.begin()) return false;
  --it;
  CUdeviceptr at = address;
  const CUdeviceptr end = address + bytes;
  for (; it != mappings_.end() && it->first <= at && it->second.devices != 0; ++it) {
    at = it->first + it->second.bytes;
    if (at >= end) return true;
  }
  return false;
}

namespace {

CUresult mem_address_reserve(CUdeviceptr* address, size_t bytes, size_t alignment, CUdeviceptr,
                             unsigned long long flags) {
  return driver("cuMemAddressReserve", When::kHealthy, [&]() -> CUresult {
    if (address == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
    return runtime().memory.reserve(address, bytes, alignment);
  });
}

CUresult mem_address_free(CUdeviceptr address, size_t bytes) {
  return driver("cuMemAddressFree", When::kAlways, [&] { return runtime().memory.unreserve(address, bytes); });
}

bool is_device(const CUmemLocation& location) {
  return location.type == CU_MEM_LOCATION_TYPE_DEVICE && location.id >= 0 && location.id < runtime().device_count;
}

CUresult mem_create(CUmemGenericAllocationHandle* handle, size_t bytes, const CUmemAllocationProp* properties,
                    unsigned long long flags) {
  return driver("cuMemCreate", When::kHealthy, [&]() -> CUresult {
    if (handle == nullptr || properties == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
    if (properties->type != CU_MEM_ALLOCATION_TYPE_PINNED) return CUDA_ERROR_INVALID_VALUE;
    if (!is_device(properties->location)) return CUDA_ERROR_INVALID_DEVICE;
    return runtime().memory.create_physical(handle, bytes);
  });
}

CUresult mem_release(CUmemGenericAllocationHandle handle) {
  return driver("cuMemRelease", When::kAlways, [&] { return runtime().memory.release_physical(handle); });
}

CUresult mem_map(CUdeviceptr address, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
                 unsigned long long flags) {
  return driver("cuMemMap", When::kHealthy, [&]() -> CUresult {
    return flags != 0 ? CUDA_ERROR_INVALID_VALUE : runtime().memory.map(address, bytes, offset, handle);
  });
}

CUresult mem_unmap(CUdeviceptr address, size_t bytes) {
  return driver("cuMemUnmap", When::kAlways, [&] { return runtime().memory.unmap(address, bytes); });
}

CUresult mem_set_access(CUdeviceptr address, size_t bytes, const CUmemAccessDesc* access, size_t count) {
  return driver("cuMemSetAccess", When::kHealthy, [&]() -> CUresult {
    if (access == nullptr || count == 0) return CUDA_ERROR_INVALID_VALUE;
    unsigned devices = 0;
    for (size_t i = 0; i < count; ++i) {
      if (!is_device(access[i].location)) return CUDA_ERROR_INVALID_VALUE;
      switch (access[i].flags) {
        case CU_MEM_ACCESS_FLAGS_PROT_NONE:
          break;
        case CU_MEM_ACCESS_FLAGS_PROT_READ:
          return CUDA_ERROR_NOT_SUPPORTED;
        case CU_MEM_ACCESS_FLAGS_PROT_READWRITE:
          devices |= 1u << access[i].location.id;
          break;
        default:
          return CUDA_ERROR_INVALID_VALUE;
      }
    }
    return runtime().memory.set_access(address, bytes, devices);
  });
}

// As on NVIDIA hardware, according to tests that pass there, the properties are not looked at.
CUresult mem_granularity(size_t* bytes, const CUmemAllocationProp* properties, CUmemAllocationGranularity_flags flags) {
  return driver("cuMemGetAllocationGranularity", When::kHealthy, [&]() -> CUresult {
    if (bytes == nullptr || properties == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (flags != CU_MEM_ALLOC_GRANULARITY_MINIMUM && flags != CU_MEM_ALLOC_GRANULARITY_RECOMMENDED) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    *bytes = Memory::kGranularity;
    return CUDA_SUCCESS;
  });
}

}  // namespace

void* driver_entry(const char* symbol) {
  const struct {
    const char* name;
    void* function;
  } entries[] = {{"cuMemAddressReserve", reinterpret_cast<void*>(mem_address_reserve)},
                 {"cuMemAddressFree", reinterpret_cast<void*>(mem_address_free)},
                 {"cuMemCreate", reinterpret_cast<void*>(mem_create)},
                 {"cuMemRelease", reinterpret_cast<void*>(mem_release)},
                 {"cuMemMap", reinterpret_cast<void*>(mem_map)},
                 {"cuMemUnmap", reinterpret_cast<void*>(mem_unmap)},
                 {"cuMemSetAccess", reinterpret_cast<void*>(mem_set_access)},
                 {"cuMemGetAllocationGranularity", reinterpret_cast<void*>(mem_granularity)},
                 {"cuGraphKernelNodeGetParams", reinterpret_cast<void*>(graph_kernel_node_get_params)},
                 {"cuFuncGetParamInfo", reinterpret_cast<void*>(func_get_param_info)},
                 {"cuKernelGetParamInfo", reinterpret_cast<void*>(kernel_get_param_info)},
                 {"cuFuncGetName", reinterpret_cast<void*>(func_get_name)},
                 {"cuKernelGetName", reinterpret_cast<void*>(kernel_get_name)}};
  for (const auto& entry : entries) {
    if (std::strcmp(entry.name, symbol) == 0) return entry.function;
  }
  return nullptr;
}

}  // namespace emu
