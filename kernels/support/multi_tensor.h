// Handles many tensors in one kernel launch, with their addresses as a kernel parameter.
#pragma once

#include "kernels/support/kernel.h"

namespace graphsink {

// For each tensor, P addresses that belong together (a parameter, its gradient, ...), of `size` items each. Block b of
// the launch works on the chunk of items that begins at (b - first_block[t]) * chunk, where t is the tensor whose
// blocks include b.
template <int P>
struct TensorTable {
  static constexpr int kCapacity = 3800 / (8 * P + 12);  // kernel parameters are limited to 4 KiB
  void* pointers[kCapacity][P];
  std::int64_t sizes[kCapacity];
  std::int32_t first_block[kCapacity + 1];
  std::int32_t tensors;
};

struct Chunk {
  int tensor;
  std::int64_t begin, end;
};
template <int P>
__device__ inline Chunk chunk_of_block(const TensorTable<P>& table, std::int64_t chunk) {
  auto block = static_cast<std::int32_t>(blockIdx.x);
  int low = 0, high = table.tensors;  // invariant: first_block[low] <= block < first_block[high]
  while (high - low > 1) {
    int middle = (low + high) / 2;
    (table.first_block[middle] <= block ? low : high) = middle;
  }
  std::int64_t begin = (block - table.first_block[low]) * chunk;
  std::int64_t end = begin + chunk;
  return {low, begin, end < table.sizes[low] ? end : table.sizes[low]};
}

// Collects tensors in a table. Calls launch(table, blocks) whenever the table is full; flush() launches the rest. A
// block works on a chunk of `chunk` items.
template <int P, class Launch>
class TensorTables {
 public:
  TensorTables(std::int64_t chunk, Launch launch) : chunk_(chunk), launch_(std::move(launch)) {}

  void add(void* const (&pointers)[P], std::int64_t size) {
    if (size == 0) return;
    if (table_.tensors == TensorTable<P>::kCapacity) flush();
    int t = table_.tensors++;
    std::copy_n(pointers, P, table_.pointers[t]);
    table_.sizes[t] = size;
    table_.first_block[t] = blocks_;
    blocks_ += static_cast<std::int32_t>((size + chunk_ - 1) / chunk_);
    table_.first_block[t + 1] = blocks_;
  }
  void flush() {
    if (blocks_ > 0) launch_(table_, Extent{static_cast<unsigned>(blocks_)});
    table_.tensors = 0;
    blocks_ = 0;
  }

 private:
  std::int64_t chunk_;
  Launch launch_;
  TensorTable<P> table_{};  // zero-filled, because a captured graph keeps all bytes of it
  std::int32_t blocks_ = 0;
};

}  // namespace graphsink
