// store: the commit of assigned values, one kernel for all of them.
#include <cstring>

#include "kernels/runtime/system_parts.h"
#include "kernels/support/copy.h"
#include "kernels/support/multi_tensor.h"
#include "kernels/support/tiles.h"

namespace graphsink {
namespace {

constexpr std::int64_t kChunk = kThreads * 64;  // bytes for a block; a multiple of 16

__global__ void store_tensors(TensorTable<2> table, const StepBlock* step) {
  wait_for_inputs();
  if (step->ok == 0) return;
  Chunk chunk = chunk_of_block(table, kChunk);
  auto* to = static_cast<unsigned char*>(table.pointers[chunk.tensor][0]);
  const auto* from = static_cast<const unsigned char*>(table.pointers[chunk.tensor][1]);
  copy_bytes(to + chunk.begin, from + chunk.begin, chunk.end - chunk.begin, threadIdx.x, blockDim.x);
}

void store_cuda(CudaArgs& a) {
  auto launch = [&](const TensorTable<2>& table, Extent blocks) {
    a.launch(store_tensors, blocks, Extent{static_cast<unsigned>(kThreads)}, 0, table, a.step());
  };
  TensorTables<2, decltype(launch)> tables(kChunk, launch);
  for (int i = 0; i + 1 < a.inputs(); i += 2)
    tables.add({a.in_out<void>(i), a.in_out<void>(i + 1)}, static_cast<std::int64_t>(a.in_type(i).bytes()));
  tables.flush();
}

// A tile is some bytes of the assigned values, one after the other.
constexpr std::size_t kTileBytes = kTileElements * sizeof(float);

std::int64_t count_store_tiles(const BodyArgs& a) {
  std::size_t bytes = 0;
  for (int i = 0; i + 1 < a.inputs(); i += 2) bytes += a.in_type(i).bytes();
  return static_cast<std::int64_t>(std::max<std::size_t>(1, (bytes + kTileBytes - 1) / kTileBytes));
}

void run_store_tiles(const CpuArgs& a, std::int64_t first, std::int64_t end) {
  if (a.step()->ok == 0) return;
  std::size_t skipped = static_cast<std::size_t>(first) * kTileBytes;
  std::size_t left = static_cast<std::size_t>(end - first) * kTileBytes;
  for (int i = 0; i + 1 < a.inputs(); i += 2) {
    const std::size_t bytes = a.in_type(i).bytes(), begin = std::min(skipped, bytes);
    const std::size_t size = std::min(bytes - begin, left);
    if (size > 0) std::memcpy(a.in_out<std::byte>(i) + begin, a.in<std::byte>(i + 1) + begin, size);
    skipped -= begin;
    left -= size;
  }
}

constexpr Tiles kStoreTiles{count_store_tiles, run_store_tiles};

Access store_access(int operand, int) { return operand % 2 == 0 ? Access::write : Access::read; }

}  // namespace

const OpDef store_op{.name = "store",
                     .access = store_access,
                     .traits = {.kernels_wait = true},
                     .prepare = load_kernels<store_tensors>,
                     .bodies = {kStoreTiles, store_cuda}};

}  // namespace graphsink
