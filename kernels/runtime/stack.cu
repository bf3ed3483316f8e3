// slice_at, store_at and clear: the stacks of loops.
#include "kernels/runtime/stack.h"

#include <cstring>

#include "ir/system_ops.h"
#include "kernels/movement/indexed.h"
#include "kernels/runtime/system_parts.h"
#include "kernels/support/copy.h"

namespace graphsink {
namespace {

constexpr std::int64_t kBytesOfThread = 16;

bool is_place(std::int64_t place, std::int64_t places) { return 0 <= place && place < places; }

// --- slice_at

__global__ void read_slice(const unsigned char* stack, const std::int32_t* place, unsigned char* out,
                           std::int64_t bytes, std::int64_t places, StepBlock* step, int node) {
  wait_for_inputs();
  const bool is_there = 0 <= *place && *place < places;
  if (!is_there && thread_index() == 0) fail_step(step, node, StepError::index, *place);
  copy_bytes(out, stack + (is_there ? *place : 0) * bytes, bytes, thread_index(), all_threads());
}

void slice_at_cuda(CudaArgs& a) {
  const auto bytes = static_cast<std::int64_t>(a.out_type(0).bytes());
  if (bytes == 0) return;
  const LaunchSize launch = launch_size((bytes + kBytesOfThread - 1) / kBytesOfThread);
  a.launch(read_slice, launch.grid, launch.block, 0, a.in<unsigned char>(0), a.in<std::int32_t>(1),
           a.out<unsigned char>(0), bytes, a.in_type(0).shape[0], a.step(), a.node().id);
}

void slice_at_cpu(const CpuArgs& a) {
  const std::size_t bytes = a.out_type(0).bytes();
  const std::int32_t place = *a.in<std::int32_t>(1);
  const bool is_there = is_place(place, a.in_type(0).shape[0]);
  if (!is_there) fail_step(a, StepError::index, place);
  const auto* slice = a.in<unsigned char>(0) + static_cast<std::size_t>(is_there ? place : 0) * bytes;
  if (bytes > 0) std::memcpy(a.out<unsigned char>(0), slice, bytes);
}

void infer_slice_at(InferArgs& a) {
  a.expect_inputs(2);
  const Shape& stack = a.in(0).shape;
  if (stack.rank() == 0 || stack[0] == 0) a.fail("takes slices of " + to_string(a.in(0)), "give it a first axis");
  if (a.in(1) != TensorType{DType::i32, {}}) a.fail("the place is not one i32", "cast() it");
  Shape out;
  for (int d = 1; d < stack.rank(); ++d) out.push_back(stack[d]);
  a.out(a.in(0).dtype, out);
}

std::vector<Value> slice_at_grad(const GradArgs& a) {
  return {emit(gather_grad_op, {Arg(a.grads[0], a.where), a.inputs[1], a.inputs[0]}, IndexedAttrs{0})[0], Value()};
}

// --- store_at

__global__ void write_slice(const unsigned char* value, const std::int32_t* place, unsigned char* stack,
                            std::int64_t bytes, std::int64_t places, StepBlock* step, int node) {
  wait_for_inputs();
  if (0 <= *place && *place < places) {
    copy_bytes(stack + *place * bytes, value, bytes, thread_index(), all_threads());
  } else if (thread_index() == 0) {
    fail_step(step, node, StepError::index, *place);
  }
}

void store_at_cuda(CudaArgs& a) {
  const auto bytes = static_cast<std::int64_t>(a.in_type(0).bytes());
  if (bytes == 0) return;
  const LaunchSize launch = launch_size((bytes + kBytesOfThread - 1) / kBytesOfThread);
  a.launch(write_slice, launch.grid, launch.block, 0, a.in<unsigned char>(0), a.in<std::int32_t>(1),
           a.out<unsigned char>(0), bytes, a.out_type(0).shape[0], a.step(), a.attrs<NodeAttrs>().id);
}

void store_at_cpu(const CpuArgs& a) {
  const std::size_t bytes = a.in_type(0).bytes();
  const std::int32_t place = *a.in<std::int32_t>(1);
  if (!is_place(place, a.out_type(0).shape[0])) return fail_step(a, a.attrs<NodeAttrs>().id, StepError::index, place);
  if (bytes > 0) std::memcpy(a.out<unsigned char>(0) + static_cast<std::size_t>(place) * bytes, a.in<void>(0), bytes);
}

// --- clear

void clear_cuda(CudaArgs& a) {
  const auto bytes = static_cast<std::int64_t>(a.out_type(0).bytes());
  auto fill = [&]<class T>(T) {
    const std::int64_t size = bytes / static_cast<std::int64_t>(sizeof(T));
    const LaunchSize launch = launch_size(size);
    a.launch(fill_zeros<T>, launch.grid, launch.block, 0, a.out<T>(0), size);
  };
  if (bytes == 0) return;
  if (bytes % 4 == 0) return fill(std::uint32_t{});
  fill(std::uint8_t{});
}

void clear_cpu(const CpuArgs& a) {
  if (a.out_type(0).bytes() > 0) std::memset(a.out<void>(0), 0, a.out_type(0).bytes());
}

}  // namespace

const OpDef slice_at_op{.name = "slice_at",
                        .infer = infer_slice_at,
                        .traits = {.kernels_wait = true},
                        .prepare = load_kernels<read_slice>,
                        .bodies = {slice_at_cpu, slice_at_cuda},
                        .grad = slice_at_grad};
const OpDef store_at_op{.name = "store_at",
                        .traits = {.kernels_wait = true},
                        .prepare = load_kernels<write_slice>,
                        .bodies = {store_at_cpu, store_at_cuda}};
const OpDef clear_op{.name = "clear",
                     .traits = {.kernels_wait = true},
                     .prepare = load_kernels<fill_zeros<std::uint32_t>, fill_zeros<std::uint8_t>>,
                     .bodies = {clear_cpu, clear_cuda}};

}  // namespace graphsink
