// slice_at, store_at and clear: the stacks of loops.
#include "kernels/runtime/stack.h"

#include <cstring>

#include "ir/bound_node.h"
#include "ir/system_ops.h"
#include "kernels/file_ops.h"
#include "kernels/movement/indexed.h"
#include "kernels/runtime/system_parts.h"
#include "kernels/support/copy.h"
#include "kernels/support/multi_tensor.h"

namespace graphsink {
namespace {

constexpr std::int64_t kChunk = kThreads * 16;  // bytes for a block; a multiple of 16

enum class Direction { from_stacks, to_stacks };

// The place is the last input. Before it come the stacks, and the outputs are slices of them, or the reverse.
template <Direction direction>
struct Moves {
  const BodyArgs& a;

  int count() const { return a.inputs() - 1; }
  std::int64_t places() const { return stack_type(0).shape[0]; }
  const std::int32_t* place() const { return a.in<std::int32_t>(count()); }
  unsigned char* slice(int k) const { return address(k, direction == Direction::to_stacks); }
  unsigned char* stack(int k) const { return address(k, direction == Direction::from_stacks); }
  std::size_t bytes(int k) const { return slice_type(k).bytes(); }
  // Which node fails the step if there is no such place.
  int node() const { return direction == Direction::to_stacks ? a.attrs<NodeAttrs>().id : a.id(); }

 private:
  unsigned char* address(int k, bool is_input) const {
    return static_cast<unsigned char*>(bound_node(a).pointers[is_input ? k : a.inputs() + k]);
  }
  const TensorType& stack_type(int k) const {
    return direction == Direction::from_stacks ? a.in_type(k) : a.out_type(k);
  }
  const TensorType& slice_type(int k) const {
    return direction == Direction::from_stacks ? a.out_type(k) : a.in_type(k);
  }
};

// The table has a slice and its stack for each of the moves. Slices of a place that does not exist are those of the
// first one.
template <Direction direction>
__global__ void move_slices(TensorTable<2> table, const std::int32_t* place, std::int64_t places, StepBlock* step,
                            int node) {
  wait_for_inputs();
  const bool is_there = 0 <= *place && *place < places;
  if (!is_there && thread_index() == 0) fail_step(step, node, StepError::index, *place);
  if (!is_there && direction == Direction::to_stacks) return;
  const Chunk chunk = chunk_of_block(table, kChunk);
  auto* slice = static_cast<unsigned char*>(table.pointers[chunk.tensor][0]) + chunk.begin;
  auto* stack = static_cast<unsigned char*>(table.pointers[chunk.tensor][1]) + chunk.begin;
  if (is_there) stack += *place * table.sizes[chunk.tensor];
  const bool is_store = direction == Direction::to_stacks;
  copy_bytes(is_store ? stack : slice, is_store ? slice : stack, chunk.end - chunk.begin, threadIdx.x, blockDim.x);
}

template <Direction direction>
void move_on_cuda(CudaArgs& a) {
  const Moves<direction> moves{a};
  auto launch = [&](const TensorTable<2>& table, Extent blocks) {
    a.launch(move_slices<direction>, blocks, Extent{static_cast<unsigned>(kThreads)}, 0, table, moves.place(),
             moves.places(), a.step(), moves.node());
  };
  TensorTables<2, decltype(launch)> tables(kChunk, launch);
  for (int k = 0; k < moves.count(); ++k)
    tables.add({moves.slice(k), moves.stack(k)}, static_cast<std::int64_t>(moves.bytes(k)));
  tables.flush();
}

template <Direction direction>
void move_on_cpu(const CpuArgs& a) {
  const Moves<direction> moves{a};
  const std::int32_t place = *moves.place();
  const bool is_there = 0 <= place && place < moves.places(), is_store = direction == Direction::to_stacks;
  if (!is_there) fail_step(a, moves.node(), StepError::index, place);
  if (!is_there && is_store) return;
  for (int k = 0; k < moves.count(); ++k) {
    const std::size_t bytes = moves.bytes(k);
    unsigned char* in_stack = moves.stack(k) + static_cast<std::size_t>(is_there ? place : 0) * bytes;
    if (bytes > 0) std::memcpy(is_store ? in_stack : moves.slice(k), is_store ? moves.slice(k) : in_stack, bytes);
  }
}

void infer_slice_at(InferArgs& a) {
  if (a.inputs() < 2) a.fail("there is no stack or no place", "give it stacks, then an i32");
  if (a.in(a.inputs() - 1) != TensorType{DType::i32, {}})
    a.fail("the place is not one i32", "pass an i32, such as the number of an iteration");
  for (int k = 0; k + 1 < a.inputs(); ++k) {
    const Shape& stack = a.in(k).shape;
    if (stack.rank() == 0 || stack[0] == 0) a.fail("takes slices of " + to_string(a.in(k)), "give it a first axis");
    if (stack[0] != a.in(0).shape[0])
      a.fail("the stacks have different numbers of slices", "use one slice_at for each");
    Shape out;
    for (int d = 1; d < stack.rank(); ++d) out.push_back(stack[d]);
    a.out(a.in(k).dtype, out);
  }
}

std::vector<Value> slice_at_grad(const GradArgs& a) {
  const std::size_t stacks = a.outputs.size();
  std::vector<Value> gradients(stacks + 1);
  for (std::size_t k = 0; k < stacks; ++k)
    if (a.grads[k].valid())
      gradients[k] =
          emit(gather_grad_op, {Arg(a.grads[k], a.where), a.inputs[stacks], a.inputs[k]}, IndexedAttrs{0})[0];
  return gradients;
}

// --- clear

void clear_cuda(CudaArgs& a) {
  const auto bytes = static_cast<std::int64_t>(a.out_type(0).bytes());
  auto fill = [&]<class T>(T) {
    const std::int64_t size = bytes / static_cast<std::int64_t>(sizeof(T));
    a.launch(fill_zeros<T>, launch_size(size), a.out<T>(0), size);
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
                        .prepare = load_kernels<move_slices<Direction::from_stacks>>,
                        .bodies = {move_on_cpu<Direction::from_stacks>, move_on_cuda<Direction::from_stacks>},
                        .grad = slice_at_grad};
const OpDef store_at_op{.name = "store_at",
                        .traits = {.kernels_wait = true},
                        .prepare = load_kernels<move_slices<Direction::to_stacks>>,
                        .bodies = {move_on_cpu<Direction::to_stacks>, move_on_cuda<Direction::to_stacks>}};
const OpDef clear_op{.name = "clear",
                     .traits = {.kernels_wait = true},
                     .prepare = load_kernels<fill_zeros<std::uint32_t>, fill_zeros<std::uint8_t>>,
                     .bodies = {clear_cpu, clear_cuda}};

std::span<const FileOp> stack_file_ops() {
  static constexpr FileOp ops[] = {file_op(slice_at_op)};
  return ops;
}

}  // namespace graphsink
