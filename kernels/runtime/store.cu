// store: the commit of assigned values, one kernel for all of them.
#include <cstring>

#include "kernels/runtime/system_parts.h"
#include "kernels/support/copy.h"
#include "kernels/support/multi_tensor.h"

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

void store_cpu(const CpuArgs& a) {
  if (a.step()->ok == 0) return;
  for (int i = 0; i + 1 < a.inputs(); i += 2)
    if (a.in_type(i).bytes() > 0) std::memcpy(a.in_out<void>(i), a.in<void>(i + 1), a.in_type(i).bytes());
}

Access store_access(int operand, int) { return operand % 2 == 0 ? Access::write : Access::read; }

}  // namespace

const OpDef store_op{.name = "store",
                     .access = store_access,
                     .traits = {.kernels_wait = true},
                     .prepare = load_kernels<store_tensors>,
                     .bodies = {store_cpu, store_cuda}};

}  // namespace graphsink
