// The algorithms that cub.h declares.
#include "kernels/support/cub.h"

#ifdef __CUDACC__
#include <thrust/iterator/counting_iterator.h>
#include <thrust/iterator/transform_iterator.h>
#include <cub/device/device_radix_sort.cuh>
#include <cub/device/device_scan.cuh>
#endif

namespace graphsink {
namespace {

// The workspace of a sort: two arrays, between which the items move, and what belongs to CUB.
template <class Item>
std::size_t array_bytes(const RadixSort& sort) {
  return aligned(static_cast<std::size_t>(sort.items) * sizeof(Item));
}
template <class Item>
Item* second_array(void* workspace, const RadixSort& sort) {
  return reinterpret_cast<Item*>(static_cast<std::byte*>(workspace) + array_bytes<Item>(sort));
}

#ifdef __CUDACC__

constexpr char kSortCall[] = "cub::DeviceRadixSort::SortKeys";

// Sorts in the workspace, and sets `sorted` to the array that holds the result.
template <class Item>
cudaError_t cub_sort(void* workspace, RadixSort sort, const Item*& sorted, cudaStream_t stream) {
  Item* second = second_array<Item>(workspace, sort);
  cub::DoubleBuffer<Item> arrays(static_cast<Item*>(workspace), second);
  void* cub_memory = reinterpret_cast<std::byte*>(second) + array_bytes<Item>(sort);
  cudaError_t code = cub::DeviceRadixSort::SortKeys(cub_memory, sort.cub_bytes, arrays, sort.items, sort.first_bit,
                                                    sort.end_bit, stream);
  sorted = arrays.Current();
  return code;
}

constexpr char kScanCall[] = "cub::DeviceScan";

// Element k of a line.
template <class T>
struct LineElement {
  T* line;
  std::int64_t step;
  HD T& operator()(std::int64_t k) const { return line[k * step]; }
};

// Null `workspace`: only sets `bytes`.
template <class T>
cudaError_t cub_scan(void* workspace, std::size_t& bytes, const T* x, T* out, std::int64_t length, std::int64_t step,
                     bool exclusive, cudaStream_t stream) {
  thrust::counting_iterator<std::int64_t> places(0);
  auto from = thrust::make_transform_iterator(places, LineElement<const T>{x, step});
  auto to = thrust::make_transform_iterator(places, LineElement<T>{out, step});
  return exclusive ? cub::DeviceScan::ExclusiveSum(workspace, bytes, from, to, length, stream)
                   : cub::DeviceScan::InclusiveSum(workspace, bytes, from, to, length, stream);
}

#else

constexpr int kDigitBits = 8, kDigits = 1 << kDigitBits;

// Digit by digit from the lowest on, to and fro between the arrays. A digit keeps the order of equal ones, and hence
// that of the digits before it.
template <class Item>
__global__ void sort_by_one_thread(Item* items, Item* other, RadixSort sort) {
  wait_for_inputs();
  for (int bit = sort.first_bit; bit < sort.end_bit; bit += kDigitBits) {
    const Item mask = (Item{1} << std::min(kDigitBits, sort.end_bit - bit)) - 1;
    std::int64_t next[kDigits + 1] = {};  // where the next item of each digit goes
    for (std::int64_t i = 0; i < sort.items; ++i) ++next[static_cast<int>(items[i] >> bit & mask) + 1];
    for (int digit = 0; digit < kDigits; ++digit) next[digit + 1] += next[digit];
    for (std::int64_t i = 0; i < sort.items; ++i) other[next[static_cast<int>(items[i] >> bit & mask)]++] = items[i];
    std::swap(items, other);
  }
}

template <class T>
__global__ void scan_by_one_thread(const T* x, T* out, std::int64_t length, std::int64_t step, bool exclusive) {
  wait_for_inputs();
  T sum(0);
  for (std::int64_t k = 0; k < length; ++k) {
    const T before = sum;
    sum += x[k * step];
    out[k * step] = exclusive ? before : sum;
  }
}

#endif

}  // namespace

template <class Item>
std::size_t prepare_radix_sort(const PrepareArgs& p, RadixSort& sort) {
#ifdef __CUDACC__
  cub::DoubleBuffer<Item> arrays;
  check_cub(p,
            cub::DeviceRadixSort::SortKeys(nullptr, sort.cub_bytes, arrays, sort.items, sort.first_bit, sort.end_bit),
            kSortCall);
  const std::size_t workspace = 2 * array_bytes<Item>(sort) + sort.cub_bytes;
  if (p.may_be_skipped) {
    run_once(p, workspace, [&](cudaStream_t stream, std::byte* memory) {
      const Item* sorted = nullptr;
      check_cub(p, cub_sort(memory, sort, sorted, stream), kSortCall);
    });
  }
  return workspace;
#else
  load_kernel(p, sort_by_one_thread<Item>);
  return 2 * array_bytes<Item>(sort);
#endif
}

template <class Item>
const Item* radix_sort(CudaArgs& a, const RadixSort& sort, void* workspace) {
#ifdef __CUDACC__
  const Item* sorted = nullptr;
  check_cuda(cub_sort(workspace, sort, sorted, a.stream()), kSortCall, a);
  a.count_kernel();
  return sorted;
#else
  auto* items = static_cast<Item*>(workspace);
  Item* other = second_array<Item>(workspace, sort);
  a.launch(sort_by_one_thread<Item>, Extent{}, Extent{}, 0, items, other, sort);
  const int digits = (sort.end_bit - sort.first_bit + kDigitBits - 1) / kDigitBits;
  return digits % 2 == 0 ? items : other;
#endif
}

template <class T>
std::size_t prepare_scan(const PrepareArgs& p, [[maybe_unused]] std::int64_t length, [[maybe_unused]] bool exclusive) {
#ifdef __CUDACC__
  std::size_t bytes = 0;
  check_cub(p, cub_scan<T>(nullptr, bytes, nullptr, nullptr, length, 1, exclusive, nullptr), kScanCall);
  if (p.may_be_skipped) {
    const std::size_t line = aligned(static_cast<std::size_t>(length) * sizeof(T));
    run_once(p, line + bytes, [&](cudaStream_t stream, std::byte* memory) {
      auto* x = reinterpret_cast<T*>(memory);
      check_cub(p, cub_scan<T>(memory + line, bytes, x, x, length, 1, exclusive, stream), kScanCall);
    });
  }
  return bytes;
#else
  load_kernel(p, scan_by_one_thread<T>);
  return 0;
#endif
}

template <class T>
void scan(CudaArgs& a, const T* x, T* out, std::int64_t length, std::int64_t step, bool exclusive,
          [[maybe_unused]] void* workspace, [[maybe_unused]] std::size_t bytes) {
#ifdef __CUDACC__
  check_cuda(cub_scan(workspace, bytes, x, out, length, step, exclusive, a.stream()), kScanCall, a);
  a.count_kernel();
#else
  a.launch(scan_by_one_thread<T>, Extent{}, Extent{}, 0, x, out, length, step, exclusive);
#endif
}

template std::size_t prepare_radix_sort<std::uint64_t>(const PrepareArgs&, RadixSort&);
template std::size_t prepare_radix_sort<__uint128_t>(const PrepareArgs&, RadixSort&);
template const std::uint64_t* radix_sort<std::uint64_t>(CudaArgs&, const RadixSort&, void*);
template const __uint128_t* radix_sort<__uint128_t>(CudaArgs&, const RadixSort&, void*);
template std::size_t prepare_scan<std::uint32_t>(const PrepareArgs&, std::int64_t, bool);
template std::size_t prepare_scan<std::uint64_t>(const PrepareArgs&, std::int64_t, bool);
template void scan<std::uint32_t>(CudaArgs&, const std::uint32_t*, std::uint32_t*, std::int64_t, std::int64_t, bool,
                                  void*, std::size_t);
template void scan<std::uint64_t>(CudaArgs&, const std::uint64_t*, std::uint64_t*, std::int64_t, std::int64_t, bool,
                                  void*, std::size_t);

}  // namespace graphsink
