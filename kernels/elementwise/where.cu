// where: elements of one operand or the other, with broadcasting. Elements are moved, whatever they are.
#include "ir/graph_data.h"
#include "kernels/file_ops.h"
#include "kernels/support/elementwise.h"
#include "kernels/support/words.h"
#ifdef GRAPHSINK_VECTOR_LEVELS
#include <immintrin.h>
#endif

namespace graphsink {
namespace {

template <class W>
__global__ void select(const bool* condition, const W* a, const W* b, W* out, Layout<3> layout) {
  wait_for_inputs();
  for (std::int64_t i = thread_index(); i < layout.size; i += all_threads()) {
    std::int64_t offsets[3];
    layout.find(i, offsets);
    out[i] = condition[offsets[0]] ? a[offsets[1]] : b[offsets[2]];
  }
}

template <class W>
void select_cuda(CudaArgs& args) {
  const auto& layout = args.local<Layout<3>>();
  args.launch(select<W>, launch_size(layout.size), args.in<bool>(0), args.in<W>(1), args.in<W>(2), args.out<W>(0),
              layout);
}

#ifdef GRAPHSINK_VECTOR_LEVELS
// Compilers make no vector code of a condition and a choice, whose elements are of different sizes. This chooses as
// many elements as fit into a vector at once. Returns the number of elements done, all but the last few.
template <class W>
[[gnu::target("arch=x86-64-v4")]] std::int64_t select_avx512(std::int64_t size, const bool* condition, const W* a,
                                                             std::int64_t step_a, const W* b, std::int64_t step_b,
                                                             W* out) {
  static_assert(sizeof(W) <= 8);
  constexpr std::int64_t kLanes = 64 / sizeof(W);
  W repeated_a[kLanes], repeated_b[kLanes];
  std::fill_n(repeated_a, kLanes, *a);
  std::fill_n(repeated_b, kLanes, *b);
  std::int64_t i = 0;
  for (; i + kLanes <= size; i += kLanes) {
    const __m512i chosen = _mm512_loadu_si512(step_a == 0 ? repeated_a : a + i);
    const __m512i other = _mm512_loadu_si512(step_b == 0 ? repeated_b : b + i);
    const bool* at = condition + i;
    __m512i result;
    if constexpr (sizeof(W) == 1) {
      const __m512i is_chosen = _mm512_loadu_si512(at);
      result = _mm512_mask_blend_epi8(_mm512_test_epi8_mask(is_chosen, is_chosen), other, chosen);
    } else if constexpr (sizeof(W) == 2) {
      const __m256i is_chosen = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at));
      result = _mm512_mask_blend_epi16(_mm256_test_epi8_mask(is_chosen, is_chosen), other, chosen);
    } else if constexpr (sizeof(W) == 4) {
      const __m128i is_chosen = _mm_loadu_si128(reinterpret_cast<const __m128i*>(at));
      result = _mm512_mask_blend_epi32(_mm_test_epi8_mask(is_chosen, is_chosen), other, chosen);
    } else {
      const __m128i is_chosen = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(at));
      result = _mm512_mask_blend_epi64(static_cast<__mmask8>(_mm_test_epi8_mask(is_chosen, is_chosen)), other, chosen);
    }
    _mm512_storeu_si512(out + i, result);
  }
  return i;
}
#endif

// An ElementwiseRow.
template <class W>
void select_row(std::int64_t size, const void* const* in, const std::int64_t* steps, void* result) {
  const auto* condition = static_cast<const bool*>(in[0]);
  const auto *a = static_cast<const W*>(in[1]), *b = static_cast<const W*>(in[2]);
  auto* out = static_cast<W*>(result);
  const std::int64_t step_c = steps[0], step_a = steps[1], step_b = steps[2];
  std::int64_t done = 0;
#ifdef GRAPHSINK_VECTOR_LEVELS
  if constexpr (sizeof(W) <= 8)
    if (step_c == 1 && vector_level() == VectorLevel::avx512)
      done = select_avx512(size, condition, a, step_a, b, step_b, out);
#endif
  // Both elements are read before one is chosen. A choice between their addresses would be a branch, and processors
  // cannot predict a condition that varies.
  for (std::int64_t k = done; k < size; ++k) {
    const W chosen = a[k * step_a], other = b[k * step_b];
    out[k] = condition[k * step_c] ? chosen : other;
  }
}

template <class W>
void select_part(const CpuArgs& args, std::int64_t begin, std::int64_t size, void* result) {
  const auto& layout = args.local<Layout<3>>();
  const std::int64_t row = layout.row(), end = begin + size;
  const std::int64_t steps[] = {layout.step(0), layout.step(1), layout.step(2)};
  W* out = static_cast<W*>(result);
  std::int64_t in_row = begin % row;  // place of the first element in its row
  for (std::int64_t i = begin, count = 0; i < end; i += count, out += count, in_row = 0) {
    count = std::min(row - in_row, end - i);
    std::int64_t offsets[3];
    layout.find(i, offsets);
    const void* in[] = {args.in<bool>(0) + offsets[0], args.in<W>(1) + offsets[1], args.in<W>(2) + offsets[2]};
    select_row<W>(count, in, steps, out);
  }
}

ElementwiseRow where_row(std::span<const TensorType> types) {
  ElementwiseRow row = nullptr;
  with_word(word_size(types[1].dtype), [&]<class W>(W) { row = select_row<W>; });
  return row;
}

void infer_where(InferArgs& a) {
  a.expect_inputs(3);
  if (a.in(0).dtype != DType::boolean) a.fail("the condition is not boolean", "compare, or cast() it");
  if (a.in(1).dtype != a.in(2).dtype)
    a.fail("the last two operands are of different dtypes", "cast() one of them to a dtype that holds both");
  a.out(a.in(1).dtype, broadcast_shape(a, broadcast_shape(a, a.in(0).shape, a.in(1).shape), a.in(2).shape));
}

Prepared prepare_where(const PrepareArgs& p) {
  with_word(word_size(p.out(0).dtype), [&]<class W>(W) { load_kernel(p, select<W>); });
  return {std::make_shared<Layout<3>>(make_layout<3>(p.out(0).shape, {p.in(0).shape, p.in(1).shape, p.in(2).shape}))};
}

void where_cuda(CudaArgs& a) {
  with_word(word_size(a.out_type(0).dtype), [&]<class W>(W) { select_cuda<W>(a); });
}
void where_part(const CpuArgs& a, std::int64_t begin, std::int64_t size, void* out) {
  with_word(word_size(a.out_type(0).dtype), [&]<class W>(W) { select_part<W>(a, begin, size, out); });
}

std::vector<Value> where_grad(const GradArgs& a) {
  std::vector<Value> result(3);
  Arg condition(a.inputs[0], a.where), g(a.grads[0], a.where);
  if (a.needed[1]) result[1] = sum_to(a, where(condition, g, 0.0), a.inputs[1]);
  if (a.needed[2]) result[2] = sum_to(a, where(condition, 0.0, g), a.inputs[2]);
  return result;
}

constexpr Alias kInPlace[] = {{0, 1}, {0, 2}};

const OpDef where_op{.name = "where",
                     .infer = infer_where,
                     .in_place = kInPlace,
                     .traits = {.kernels_wait = true},
                     .prepare = prepare_where,
                     .elements = {.text = "a ? b : c", .type = as_stored, .row = where_row},
                     .bodies = {where_part, where_cuda},
                     .grad = where_grad};

}  // namespace

Value where(Arg condition, Arg a, Arg b, Placement placement) {
  // The condition says nothing about the dtype of numbers that it chooses between.
  const Arg operands[] = {std::move(condition), std::move(a), std::move(b)};
  const std::vector<Value> values = operand_values("where", operands, std::span(operands).subspan(1));
  const Where& line = operands[0].where();
  return emit(where_op, {Arg(values[0], line), Arg(values[1], line), Arg(values[2], line)}, {}, placement)[0];
}

std::span<const FileOp> where_file_ops() {
  static constexpr FileOp ops[] = {file_op(where_op)};
  return ops;
}

}  // namespace graphsink
