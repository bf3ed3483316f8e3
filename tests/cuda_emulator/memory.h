// Device and pinned memory. Device memory is an arena that grows at its end, plus what cuMemMap maps; the host may not
// touch it (protection keys, where the processor has them), and address sanitizer knows which bytes are allocated.
// Thread-safe by its own lock.
#pragma once

#include <cuda.h>
#include <cuda_runtime.h>

#include <cstddef>
#include <map>
#include <mutex>
#include <optional>
#include <set>

#include "emulator.h"
#include "protection.h"

namespace emu {

enum class Place { kDevice, kPinned, kPageable };

class Memory {
 public:
  Memory();

  // Null when the arena is full. 256-byte aligned, filled with 0xFF. Memory of a graph's allocation node is released as
  // such only.
  void* allocate(std::size_t bytes, int device, bool of_graph = false);
  bool release(void* pointer, bool of_graph = false);
  // Whether cudaMalloc or cudaMallocAsync gave this pointer.
  bool is_allocation(const void* pointer);
  // Whether an allocation node of a graph gave it.
  bool is_allocation_of_graph(const void* pointer);
  // The allocation of a node of a graph in which the address lies, or null.
  void* graph_allocation_at(const void* pointer);
  // Of memory from allocate(); else nothing.
  std::optional<int> device_of(const void* pointer);
  // Null for more than the machine has.
  void* allocate_pinned(std::size_t bytes);
  bool release_pinned(void* pointer);

  CUresult reserve(CUdeviceptr* address, std::size_t bytes, std::size_t alignment);
  CUresult unreserve(CUdeviceptr address, std::size_t bytes);
  CUresult create_physical(CUmemGenericAllocationHandle* handle, std::size_t bytes);
  CUresult release_physical(CUmemGenericAllocationHandle handle);
  CUresult map(CUdeviceptr address, std::size_t bytes, std::size_t offset, CUmemGenericAllocationHandle handle);
  CUresult unmap(CUdeviceptr address, std::size_t bytes);
  // `devices`: one bit for each that may touch it; 0: nobody may.
  CUresult set_access(CUdeviceptr address, std::size_t bytes, unsigned devices);

  void release_all();
  void release_device(int device);  // what allocate() gave on it

  // Which kind of memory an address is in. Any address of the arena or of a reservation is device memory.
  Place place(const void* pointer);
  // Device: wholly inside live memory. Pinned: wholly inside one allocation. Pageable: true.
  bool is_valid(const void* pointer, std::size_t bytes);
  // Of device memory: whether the address is in live memory or just behind it, where an empty array may be.
  bool is_inside_or_at_end(const void* pointer);
  // False for mapped memory to which the device was given no access. Allocated memory can be copied by all devices.
  bool is_reachable(const void* pointer, int device);

  std::size_t free_bytes();
  std::size_t total_bytes() const { return capacity_; }
  void count(LiveObjects& live);

  static constexpr std::size_t kGranularity = 64 << 10;

 private:
  struct Block {
    std::size_t bytes;  // asked for
    int device;
    bool of_graph;
  };
  using Blocks = std::map<std::size_t, Block>;  // by offset
  struct Physical {
    int file;
    std::size_t bytes;
    int mappings = 0;
    bool released = false;
  };
  struct Mapping {
    std::size_t bytes;
    CUmemGenericAllocationHandle physical;
    unsigned devices;  // that have access, as bits
  };

  bool commit(std::size_t end);
  Place find_place(const void* pointer) const;
  bool in_arena(const void* pointer) const;
  Blocks::iterator find_block(const void* pointer);  // the one that begins at or before it
  void drop_physical(CUmemGenericAllocationHandle handle);
  bool covers(CUdeviceptr address, std::size_t bytes) const;

  std::mutex mutex_;
  char* arena_;
  std::size_t capacity_;
  std::size_t committed_ = 0;
  std::size_t used_ = 0;
  Blocks blocks_;
  std::map<const char*, std::size_t> pinned_;
  std::map<CUdeviceptr, std::size_t> reservations_;
  std::map<CUdeviceptr, Mapping> mappings_;
  std::map<CUmemGenericAllocationHandle, Physical> physical_;
  CUmemGenericAllocationHandle next_physical_ = 1;
};

}  // namespace emu
