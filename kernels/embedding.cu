// embedding: rows of a table by index, and the table's gradient, whose rows add up in the order of the indices.
#include "graphsink/ops.h"
#include "kernels/kernel.h"

namespace graphsink {
namespace {

template <class T>
__global__ void gather_rows(const T* table, const std::int32_t* indices, T* out, std::int64_t size, std::int64_t rows,
                            std::int64_t width, StepBlock* step, int node) {
  wait_for_inputs();
  for (std::int64_t i = thread_index(); i < size; i += all_threads()) {
    std::int64_t row = indices[i / width];
    bool is_row = row >= 0 && row < rows;
    out[i] = is_row ? table[row * width + i % width] : T(0);
    if (!is_row) fail_step(step, node);
  }
}

// A block for each row of the table looks at all indices, a blockful at a time, and each of its threads adds up its own
// columns.
template <class T>
__global__ void add_rows(const T* grad, const std::int32_t* indices, T* out, std::int64_t count, std::int64_t rows,
                         std::int64_t width) {
  wait_for_inputs();
  __shared__ bool is_hit[kThreads];
  for (std::int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    T* sum = out + row * width;
    for (std::int64_t c = threadIdx.x; c < width; c += blockDim.x) sum[c] = T(0);
    for (std::int64_t first = 0; first < count; first += blockDim.x) {
      std::int64_t mine = first + threadIdx.x;
      bool hit = mine < count && indices[mine] == row;
      is_hit[threadIdx.x] = hit;
      if (__syncthreads_or(hit)) {
        for (unsigned j = 0; j < blockDim.x; ++j) {
          if (!is_hit[j]) continue;
          for (std::int64_t c = threadIdx.x; c < width; c += blockDim.x) sum[c] += grad[(first + j) * width + c];
        }
      }
      __syncthreads();
    }
  }
}

template <class T>
void embedding_on(CudaArgs& a) {
  const Shape& table = a.in_type(0).shape;
  std::int64_t size = a.out_type(0).shape.size();
  LaunchSize launch = launch_size(size);
  a.launch(gather_rows<T>, launch.grid, launch.block, 0, a.in<T>(0), a.in<std::int32_t>(1), a.out<T>(0), size, table[0],
           table[1], a.step(), a.node().id);
}

template <class T>
void embedding_on(const CpuArgs& a) {
  const Shape& table = a.in_type(0).shape;
  const auto* indices = a.in<std::int32_t>(1);
  std::int64_t count = a.in_type(1).shape.size(), width = table[1];
  bool is_bad = false;
  for (std::int64_t i = 0; i < count; ++i) {
    std::int64_t row = indices[i];
    T* out = a.out<T>(0) + i * width;
    if (row >= 0 && row < table[0]) {
      std::copy_n(a.in<T>(0) + row * width, width, out);
    } else {
      std::fill_n(out, width, T(0));
      is_bad = true;
    }
  }
  if (is_bad) fail_step(a, "an index outside the table");
}

template <class T>
void embedding_grad_on(CudaArgs& a) {
  const Shape& table = a.out_type(0).shape;
  std::int64_t count = a.in_type(1).shape.size();
  LaunchSize launch = launch_size(std::max(table[1], std::min(count, kThreads)));
  auto blocks = static_cast<unsigned>(table[1] == 0 ? 0 : std::min(table[0], kMaxBlocks));
  a.launch(add_rows<T>, Extent{blocks}, launch.block, 0, a.in<T>(0), a.in<std::int32_t>(1), a.out<T>(0), count,
           table[0], table[1]);
}

template <class T>
void embedding_grad_on(const CpuArgs& a) {
  const Shape& table = a.out_type(0).shape;
  const auto* indices = a.in<std::int32_t>(1);
  std::int64_t count = a.in_type(1).shape.size(), width = table[1];
  std::fill_n(a.out<T>(0), table.size(), T(0));
  for (std::int64_t i = 0; i < count; ++i) {
    std::int64_t row = indices[i];
    if (row < 0 || row >= table[0]) continue;  // the forward op has failed the step
    const T* grad = a.in<T>(0) + i * width;
    T* sum = a.out<T>(0) + row * width;
    for_each_index(width, [=](std::int64_t c) { sum[c] += grad[c]; });
  }
}

template <class Args>
void embedding_any(Args& a) {
  a.out_type(0).dtype == DType::f32 ? embedding_on<float>(a) : embedding_on<double>(a);
}
template <class Args>
void embedding_grad_any(Args& a) {
  a.out_type(0).dtype == DType::f32 ? embedding_grad_on<float>(a) : embedding_grad_on<double>(a);
}

void infer_embedding(InferArgs& a) {
  a.expect_inputs(2);
  if (!is_float(a.in(0).dtype)) a.fail("the table is not of floats", "cast() it");
  if (a.in(0).shape.rank() != 2) a.fail("the table is not a matrix", "reshape() it to [rows, width]");
  if (a.in(1).dtype != DType::i32) a.fail("the indices are not i32", "cast() them");
  Shape out = a.in(1).shape;
  out.push_back(a.in(0).shape[1]);
  a.out(a.in(0).dtype, out);
}

// Inputs: gradient, indices, table (shape only).
void infer_embedding_grad(InferArgs& a) { a.out(a.in(0).dtype, a.in(2).shape); }
Access embedding_grad_access(int operand, int) { return operand == 2 ? Access::shape_only : Access::read; }

constexpr CudaBody kGradCuda[] = {{0, embedding_grad_any<CudaArgs>}};
const OpDef embedding_grad_op{.name = "embedding_grad",
                              .infer = infer_embedding_grad,
                              .access = embedding_grad_access,
                              .prepare = load_kernels<add_rows<float>, add_rows<double>>,
                              .cuda = kGradCuda,
                              .cpu = embedding_grad_any<const CpuArgs>};

std::vector<Value> embedding_grad(const GradArgs& a) {
  return {emit(embedding_grad_op, {Arg(a.grads[0], a.where), a.inputs[1], a.inputs[0]})[0], Value()};
}

constexpr CudaBody kCuda[] = {{0, embedding_any<CudaArgs>}};
const OpDef embedding_op{.name = "embedding",
                         .infer = infer_embedding,
                         .prepare = load_kernels<gather_rows<float>, gather_rows<double>>,
                         .cuda = kCuda,
                         .cpu = embedding_any<const CpuArgs>,
                         .grad = embedding_grad};

}  // namespace

Value embedding(Arg table, Arg indices, Label label) { return emit(embedding_op, {table, indices}, {}, label)[0]; }

}  // namespace graphsink
