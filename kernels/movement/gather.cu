// gather and embedding: elements of an axis by index. Elements are moved, whatever they are.
#include <limits>

#include "graphsink/ops.h"
#include "kernels/file_ops.h"
#include "kernels/movement/indexed.h"
#include "kernels/support/tiles.h"
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
  with_word(p.word, [&]<class T>(T) {
    a.launch(gather_words<T>, launch_size(p.outer * p.count * p.width), a.in<T>(0), a.in<std::int32_t>(1), a.out<T>(0),
             p, a.step(), a.id());
  });
}

// Whether some of these indices are no rows.
bool any_is_bad(const std::int32_t* indices, std::int64_t count, std::int64_t rows) {
  auto last = static_cast<std::int32_t>(std::min<std::int64_t>(rows - 1, std::numeric_limits<std::int32_t>::max()));
  return any_of_indices(count, [=](std::int64_t i) { return (indices[i] < 0) | (indices[i] > last); });
}

// Lines of one word: the axis is the last one.
template <class T>
void gather_words_cpu(const T* x, const std::int32_t* indices, T* out, std::int64_t count, std::int64_t rows,
                      bool are_rows) {
  if (are_rows) {
    for_each_index(count, [=](std::int64_t k) { out[k] = x[indices[k]]; });
  } else {
    for (std::int64_t k = 0; k < count; ++k) {
      std::int64_t row = indices[k];
      out[k] = row >= 0 && row < rows ? x[row] : T{};
    }
  }
}

void gather_lines(const std::byte* x, const std::int32_t* indices, std::byte* out, std::int64_t count,
                  std::int64_t rows, std::size_t bytes) {
  for (std::int64_t k = 0; k < count; ++k, out += bytes) {
    std::int64_t row = indices[k];
    if (row >= 0 && row < rows) {
      copy_row(out, x + static_cast<std::size_t>(row) * bytes, static_cast<std::int64_t>(bytes));
    } else {
      std::memset(out, 0, bytes);
    }
  }
}

// Number of tiles. A tile is some lines of the result.
std::int64_t count_gather_tiles(const BodyArgs& a) {
  const auto& p = a.local<IndexedPlan>();
  return count_row_tiles(p.outer * p.count, p.width);
}
void run_gather_tiles(const CpuArgs& a, std::int64_t first, std::int64_t end) {
  const auto& p = a.local<IndexedPlan>();
  const auto* all = a.in<std::int32_t>(1);
  const RowRange range(first, end, p.outer * p.count, p.width);
  const std::int64_t lines = range.end - range.first;
  if (p.width == 0 || lines == 0) return;
  // All indices, or those from that of the first line on, with which they begin again behind the last one.
  const std::int64_t begin = lines < p.count ? range.first % p.count : 0;
  const std::int64_t used = std::min(lines, p.count), to_last = std::min(used, p.count - begin);
  const bool is_bad = any_is_bad(all + begin, to_last, p.rows) || any_is_bad(all, used - to_last, p.rows);
  std::int64_t size = 0;  // lines that follow each other with the same indices of the axes before the indexed one
  for (std::int64_t line = range.first; line < range.end; line += size) {
    const std::int64_t outer = line / p.count, k = line - outer * p.count;
    size = std::min(p.count - k, range.end - line);
    if (p.width == 1) {
      with_word(p.word, [&]<class T>(T) {
        gather_words_cpu(a.in<T>(0) + outer * p.rows, all + k, a.out<T>(0) + line, size, p.rows, !is_bad);
      });
    } else {
      const std::int64_t bytes = p.width * p.word;
      gather_lines(a.in<std::byte>(0) + outer * p.rows * bytes, all + k, a.out<std::byte>(0) + line * bytes, size,
                   p.rows, static_cast<std::size_t>(bytes));
    }
  }
  if (!is_bad) return;
  // The first of all, whichever tiles fail first.
  const auto* bad = std::find_if(all, all + p.count, [&](std::int64_t row) { return row < 0 || row >= p.rows; });
  fail_step(a, StepError::index, *bad);
}
constexpr Tiles kGatherTiles{count_gather_tiles, run_gather_tiles};

void infer_gather(InferArgs& a) {
  a.expect_inputs(2);
  a.out(a.in(0).dtype, indexed_shape(a, a.in(0).shape, 1));
}

void infer_embedding(InferArgs& a) {
  a.expect_inputs(2);
  if (!is_float(a.in(0).dtype)) a.fail("the table is not of floats", "cast() it");
  if (a.in(0).shape.rank() != 2) a.fail("the table is not a matrix", "reshape() it to [rows, width]");
  expect_indices(a, 1);
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
          .traits = {.kernels_wait = true},
          .prepare = prepare_gather,
          .bodies = {kGatherTiles, gather_cuda},
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

std::span<const FileOp> gather_file_ops() {
  static constexpr FileOp ops[] = {file_op<IndexedAttrs>(gather_op), file_op<IndexedAttrs>(embedding_op)};
  return ops;
}

}  // namespace graphsink
