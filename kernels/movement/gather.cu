// gather and embedding: elements of an axis by index. Elements are moved, whatever they are.
#include <limits>
#include <optional>

#include "graphsink/ops.h"
#include "kernels/movement/indexed.h"
#include "kernels/support/words.h"

namespace graphsink {
namespace {

template <class T>
__global__ void gather_words(const T* x, const std::int32_t* indices, T* out, IndexedPlan p, StepBlock* step,
                             int node) {
  wait_for_inputs();
  std::int64_t size = p.outer * p.count * p.width;
  for (std::int64_t i = thread_index(); i < size; i += all_threads()) {
    std::int64_t item = quotient(i, p.width), outer = quotient(item, p.count);
    std::int64_t row = indices[item - outer * p.count];
    bool is_row = row >= 0 && row < p.rows;
    out[i] = is_row ? x[(outer * p.rows + row) * p.width + (i - item * p.width)] : T{};
    if (!is_row) fail_step(step, node, StepError::index, row);
  }
}

Prepared prepare_gather(const PrepareArgs& p) {
  IndexedPlan plan = plan_of(p.in(0).shape, p.in(1).shape, p.attrs.as<IndexedAttrs>().axis);
  std::int64_t bytes = plan.width * static_cast<std::int64_t>(size_of(p.in(0).dtype));
  plan.word = word_size({bytes});
  plan.width = bytes / plan.word;
  with_word(plan.word, [&]<class T>(T) { load_kernel(p, gather_words<T>); });
  return {std::make_shared<IndexedPlan>(plan)};
}

void gather_cuda(CudaArgs& a) {
  const auto& p = a.local<IndexedPlan>();
  std::int64_t size = p.outer * p.count * p.width;
  if (size == 0) return;
  LaunchSize launch = launch_size(size);
  with_word(p.word, [&]<class T>(T) {
    a.launch(gather_words<T>, launch.grid, launch.block, 0, a.in<T>(0), a.in<std::int32_t>(1), a.out<T>(0), p, a.step(),
             a.node().id);
  });
}

// The first index that is none, if there is one.
std::optional<std::int64_t> first_bad(const std::int32_t* indices, std::int64_t count, std::int64_t rows) {
  std::uint32_t is_bad[kLanes] = {};
  auto last = static_cast<std::int32_t>(std::min<std::int64_t>(rows - 1, std::numeric_limits<std::int32_t>::max()));
  add_to_lanes(count, is_bad, [=](std::uint32_t any, std::int64_t i) {
    return any | static_cast<std::uint32_t>((indices[i] < 0) | (indices[i] > last));
  });
  if (std::all_of(is_bad, is_bad + kLanes, [](std::uint32_t any) { return any == 0; })) return {};
  const auto* bad = std::find_if(indices, indices + count, [=](std::int64_t row) { return row < 0 || row > last; });
  return *bad;
}

// Lines of one word: the axis is the last one.
template <class T>
void gather_words_cpu(const T* x, const std::int32_t* indices, T* out, const IndexedPlan& p, bool are_rows) {
  for (std::int64_t outer = 0; outer < p.outer; ++outer, x += p.rows, out += p.count) {
    if (are_rows) {
      for_each_index(p.count, [=](std::int64_t k) { out[k] = x[indices[k]]; });
    } else {
      for (std::int64_t k = 0; k < p.count; ++k) {
        std::int64_t row = indices[k];
        out[k] = row >= 0 && row < p.rows ? x[row] : T{};
      }
    }
  }
}

void gather_lines(const CpuArgs& a, const IndexedPlan& p, const std::int32_t* indices) {
  auto bytes = static_cast<std::size_t>(p.width * p.word);
  const auto* x = a.in<std::byte>(0);
  auto* out = a.out<std::byte>(0);
  for (std::int64_t outer = 0; outer < p.outer; ++outer, x += static_cast<std::size_t>(p.rows) * bytes) {
    for (std::int64_t k = 0; k < p.count; ++k, out += bytes) {
      std::int64_t row = indices[k];
      if (row >= 0 && row < p.rows) {
        std::memcpy(out, x + static_cast<std::size_t>(row) * bytes, bytes);
      } else {
        std::memset(out, 0, bytes);
      }
    }
  }
}

void gather_cpu(const CpuArgs& a) {
  const auto& p = a.local<IndexedPlan>();
  const auto* indices = a.in<std::int32_t>(1);
  if (p.width == 0 || p.outer == 0) return;
  std::optional<std::int64_t> bad = first_bad(indices, p.count, p.rows);
  if (p.width == 1) {
    with_word(p.word, [&]<class T>(T) { gather_words_cpu(a.in<T>(0), indices, a.out<T>(0), p, !bad.has_value()); });
  } else {
    gather_lines(a, p, indices);
  }
  if (bad) fail_step(a, StepError::index, *bad);
}

void infer_gather(InferArgs& a) {
  a.expect_inputs(2);
  a.out(a.in(0).dtype, indexed_shape(a, a.in(0).shape, a.in(1)));
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

std::vector<Value> gather_grad(const GradArgs& a) {
  return {emit(gather_grad_op, {Arg(a.grads[0], a.where), a.inputs[1], a.inputs[0]}, a.attrs)[0], Value()};
}

constexpr OpDef gather_like_op(std::string_view name, void (*infer)(InferArgs&)) {
  return {.name = name,
          .infer = infer,
          .prepare = prepare_gather,
          .bodies = {gather_cpu, gather_cuda},
          .grad = gather_grad};
}
const OpDef gather_op = gather_like_op("gather", infer_gather);
const OpDef embedding_op = gather_like_op("embedding", infer_embedding);

}  // namespace

Value gather(Arg x, Arg indices, int axis, Placement placement) {
  return emit(gather_op, {x, indices}, IndexedAttrs{axis}, placement)[0];
}
Value embedding(Arg table, Arg indices, Placement placement) {
  return emit(embedding_op, {table, indices}, IndexedAttrs{0}, placement)[0];
}

}  // namespace graphsink
