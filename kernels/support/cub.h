// The algorithms of CUB that ops use. nvcc compiles CUB; a C++ compiler, for the software CUDA device, compiles a
// kernel of one thread with the same results, integers bit for bit. The bodies of templates that are only declared here
// are in cub.cu, so that nvcc compiles the many kernels of CUB once.
//
// CUB is called in two phases, with a workspace whose size the first phase tells, because those of its interfaces never
// allocate. It loads its kernels at their first use, which must not fall into a capture: see run_once().
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "kernels/support/kernel.h"
#ifdef GRAPHSINK_CUDA
#include "device/cuda/run_once.h"
#endif
#ifdef __CUDACC__
#include <thrust/iterator/counting_iterator.h>
#include <cub/device/device_select.cuh>
#endif

namespace graphsink {

// Where the next part of a workspace may begin, behind `bytes`.
constexpr std::size_t aligned(std::size_t bytes) { return (bytes + 255) / 256 * 256; }

template <class T>
struct IsNonzero {
  const T* x;
  __device__ bool operator()(std::int32_t i) const { return static_cast<bool>(x[i] != T(0)); }
};

#ifdef __CUDACC__

template <class T>
cudaError_t cub_select(void* workspace, std::size_t& bytes, const T* x, std::int32_t size, std::int32_t* places,
                       std::int32_t* count, cudaStream_t stream) {
  return cub::DeviceSelect::If(workspace, bytes, thrust::counting_iterator<std::int32_t>(0), places, count, size,
                               IsNonzero<T>{x}, stream);
}

// In prepare(): throws Error if a call of CUB has failed.
inline void check_cub(const PrepareArgs& p, cudaError_t code, const char* call) {
  if (code == cudaSuccess) return;
  (void)cudaGetLastError();  // reported here
  throw Error(std::string(p.op), p.where,
              std::string(call) + " returned " + cudaGetErrorName(code) + " (" + cudaGetErrorString(code) + ")",
              "build for the compute capability of this device");
}

#else

template <class T>
__global__ void select_by_one_thread(IsNonzero<T> is_selected, std::int32_t size, std::int32_t* places,
                                     std::int32_t* count) {
  wait_for_inputs();
  std::int32_t found = 0;
  for (std::int32_t i = 0; i < size; ++i)
    if (is_selected(i)) places[found++] = i;
  *count = found;
}

#endif

// In prepare(), for a CUDA body: the workspace of select_nonzero(), whose kernels it loads if the first step may not do
// so.
template <class T>
std::size_t prepare_select([[maybe_unused]] const PrepareArgs& p, [[maybe_unused]] std::int32_t size) {
#ifdef __CUDACC__
  std::size_t bytes = 0;
  check_cub(p, cub_select<T>(nullptr, bytes, nullptr, size, nullptr, nullptr, nullptr), "cub::DeviceSelect::If");
  if (p.may_be_skipped) {
    const std::size_t elements = aligned(static_cast<std::size_t>(size) * sizeof(T));
    const std::size_t places = aligned((static_cast<std::size_t>(size) + 1) * sizeof(std::int32_t));
    run_once(p, elements + places + bytes, [&](cudaStream_t stream, std::byte* memory) {
      auto* found = reinterpret_cast<std::int32_t*>(memory + elements);
      check_cub(p,
                cub_select(memory + elements + places, bytes, reinterpret_cast<const T*>(memory), size, found,
                           found + size, stream),
                "cub::DeviceSelect::If");
    });
  }
  return bytes;
#else
  load_kernel(p, select_by_one_thread<T>);
  return 0;
#endif
}

// The places of the elements of x that are not zero, ascending, and how many there are. NaN is not zero. `places` has
// room for `size`, which is at least 1.
template <class T>
void select_nonzero(CudaArgs& a, const T* x, std::int32_t size, std::int32_t* places, std::int32_t* count,
                    [[maybe_unused]] void* workspace, [[maybe_unused]] std::size_t bytes) {
#ifdef __CUDACC__
  check_cuda(cub_select(workspace, bytes, x, size, places, count, a.stream()), "cub::DeviceSelect::If", a);
  a.count_kernel();
#else
  a.launch(select_by_one_thread<T>, Extent{}, Extent{}, 0, IsNonzero<T>{x}, size, places, count);
#endif
}

// --- sort

// Sorts unsigned numbers by the bits [first_bit, end_bit), ascending. Numbers that are equal in these bits keep their
// order.
struct RadixSort {
  std::int64_t items = 0;  // at least 1
  int first_bit = 0, end_bit = 1;
  std::size_t cub_bytes = 0;  // the part of the workspace that belongs to CUB
};

// In prepare(), for a CUDA body: sets cub_bytes, and loads the kernels of radix_sort() if the first step may not do so.
// Returns the bytes of the workspace. Item is std::uint64_t or __uint128_t.
template <class Item>
std::size_t prepare_radix_sort(const PrepareArgs& p, RadixSort& sort);

// Sorts the items at the beginning of the workspace. Returns the sorted items, which lie somewhere in the workspace.
template <class Item>
const Item* radix_sort(CudaArgs& a, const RadixSort& sort, void* workspace);

// --- scan

// In prepare(), for a CUDA body: the bytes of the workspace of scan(), whose kernels it loads if the first step may not
// do so. T is std::uint32_t or std::uint64_t; `length` is at least 1.
template <class T>
std::size_t prepare_scan(const PrepareArgs& p, std::int64_t length, bool exclusive);

// Element k of a line is x[k * step], and that of its sums out[k * step]: the sum of the elements up to k or, if
// exclusive, before k. Sums wrap. `out` may be x.
template <class T>
void scan(CudaArgs& a, const T* x, T* out, std::int64_t length, std::int64_t step, bool exclusive, void* workspace,
          std::size_t bytes);

}  // namespace graphsink
