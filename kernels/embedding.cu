// embedding: rows of a table by index, and the table's gradient, whose rows add up in the order of the indices.
#include "graphsink/ops.h"
#include "kernels/dtype.h"

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

// A block for each row of the table looks at all indices, a blockful at a time, and each of its threads adds up a
// column of its own.
template <class T>
__global__ void add_rows(const T* grad, const std::int32_t* indices, T* out, std::int64_t count, std::int64_t rows,
                         std::int64_t width) {
  wait_for_inputs();
  __shared__ bool is_hit[kThreads];
  for (std::int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    for (std::int64_t first_column = 0; first_column < width; first_column += blockDim.x) {
      std::int64_t column = first_column + threadIdx.x;
      Wide<T> sum(0);
      for (std::int64_t first = 0; first < count; first += blockDim.x) {
        std::int64_t mine = first + threadIdx.x;
        bool hit = mine < count && indices[mine] == row;
        is_hit[threadIdx.x] = hit;
        if (__syncthreads_or(hit) && column < width) {
          for (unsigned j = 0; j < blockDim.x; ++j)
            if (is_hit[j]) sum += grad[(first + j) * width + column];
        }
        __syncthreads();
      }
      if (column < width) out[row * width + column] = static_cast<T>(sum);
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
  auto* sums = std::is_same_v<T, Wide<T>> ? a.out<Wide<T>>(0) : static_cast<Wide<T>*>(a.workspace());
  std::fill_n(sums, table.size(), Wide<T>(0));
  for (std::int64_t i = 0; i < count; ++i) {
    std::int64_t row = indices[i];
    if (row < 0 || row >= table[0]) continue;  // the forward op has failed the step
    const T* grad = a.in<T>(0) + i * width;
    Wide<T>* sum = sums + row * width;
    for_each_index(width, [=](std::int64_t c) { sum[c] += grad[c]; });
  }
  if constexpr (!std::is_same_v<T, Wide<T>>)
    std::transform(sums, sums + table.size(), a.out<T>(0), [](Wide<T> sum) { return static_cast<T>(sum); });
}

template <class Args>
void embedding_any(Args& a) {
  for_dtype<float, double, half, bfloat16>(a.out_type(0).dtype, [&]<class T>() { embedding_on<T>(a); });
}
template <class Args>
void embedding_grad_any(Args& a) {
  for_dtype<float, double, half, bfloat16>(a.out_type(0).dtype, [&]<class T>() { embedding_grad_on<T>(a); });
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

// The CPU sums f16 and bf16 in a table of f32.
Prepared prepare_embedding_grad(const PrepareArgs& p) {
  load_kernels<add_rows<float>, add_rows<double>, add_rows<half>, add_rows<bfloat16>>(p);
  const TensorType& table = p.out(0);
  bool needs_sums = is_half(table.dtype) && !p.cuda;
  return {nullptr, needs_sums ? sizeof(float) * static_cast<std::size_t>(table.shape.size()) : 0};
}

constexpr CudaBody kGradCuda[] = {{0, embedding_grad_any<CudaArgs>}};
const OpDef embedding_grad_op{.name = "embedding_grad",
                              .infer = infer_embedding_grad,
                              .access = embedding_grad_access,
                              .prepare = prepare_embedding_grad,
                              .cuda = kGradCuda,
                              .cpu = embedding_grad_any<const CpuArgs>};

std::vector<Value> embedding_grad(const GradArgs& a) {
  return {emit(embedding_grad_op, {Arg(a.grads[0], a.where), a.inputs[1], a.inputs[0]})[0], Value()};
}

constexpr CudaBody kCuda[] = {{0, embedding_any<CudaArgs>}};
const OpDef embedding_op{
    .name = "embedding",
    .infer = infer_embedding,
    .prepare = load_kernels<gather_rows<float>, gather_rows<double>, gather_rows<half>, gather_rows<bfloat16>>,
    .cuda = kCuda,
    .cpu = embedding_any<const CpuArgs>,
    .grad = embedding_grad};

}  // namespace

Value embedding(Arg table, Arg indices, Label label) { return emit(embedding_op, {table, indices}, {}, label)[0]; }

}  // namespace graphsink
