// slice and pad: a regular part of a tensor, and a tensor as such a part of a larger one.
#include "base/at.h"
#include "base/convert.h"
#include "base/number_text.h"
#include "base/sizes.h"
#include "graphsink/ops.h"
#include "kernels/file_ops.h"
#include "kernels/support/reduce_ops.h"
#include "kernels/support/strided_copy.h"
#include "kernels/support/tiles.h"

namespace graphsink {
namespace {

// One axis of a larger tensor and of the part: element q of the part lies at begin + q * step.
struct Range {
  std::int64_t begin = 0, step = 1, count = 0;
};

struct SliceAttrs {
  std::vector<std::int64_t> begins, ends, steps;

  // As NumPy resolves begin:end:step for an axis of that size. Axes that are not named are whole.
  Range range(int axis, std::int64_t size) const {
    auto d = at(axis);
    if (d >= begins.size()) return {0, 1, size};
    std::int64_t step = d < steps.size() ? std::max(steps[d], -std::numeric_limits<std::int64_t>::max()) : 1;
    std::int64_t lowest = step > 0 ? 0 : -1, highest = step > 0 ? size : size - 1;
    auto resolve = [&](std::int64_t at) { return std::clamp(at < 0 ? at + size : at, lowest, highest); };
    std::int64_t begin = resolve(begins[d]), end = ends[d] == to_end && step < 0 ? lowest : resolve(ends[d]);
    std::int64_t length = step > 0 ? end - begin : begin - end, stride = step > 0 ? step : -step;
    std::int64_t count = length > 0 ? (length - 1) / stride + 1 : 0;
    return {begin, count > 1 ? step : 1, count};
  }
  static auto fields(auto& s) { return std::tie("begins", s.begins, "ends", s.ends, "steps", s.steps); }
};

// The larger tensor of words, `fill` but for the part: where its elements come from.
struct Window {
  int rank = 0;
  std::int64_t size = 1;
  std::int64_t first = 0;  // element of the part that lies first; axes with a negative step are read backwards
  std::int64_t dims[Shape::kMaxRank] = {};
  Range parts[Shape::kMaxRank] = {};  // steps are positive
  std::int64_t strides[Shape::kMaxRank] = {};
  int word = 1;  // bytes
  Words fill{};

  // Element of the part, or -1.
  HD std::int64_t find(std::int64_t i) const {
    std::int64_t offset = first;
    for (int d = rank - 1; d >= 0; --d) {
      std::int64_t outer = d > 0 ? quotient(i, dims[d]) : 0;
      std::int64_t q = i - outer * dims[d] - parts[d].begin;
      i = outer;
      if (parts[d].step != 1) {
        if (q % parts[d].step != 0) return -1;
        q /= parts[d].step;
      }
      if (q < 0 || q >= parts[d].count) return -1;
      offset += q * strides[d];
    }
    return offset;
  }
};

template <class T>
__global__ void place(const T* x, T* out, Window p, T fill) {
  wait_for_inputs();
  for (std::int64_t i = thread_index(); i < p.size; i += all_threads()) {
    std::int64_t from = p.find(i);
    out[i] = from < 0 ? fill : x[from];
  }
}

// Adds an axis inside those that are there already; merged if it is whole.
void append(Window& p, std::int64_t dim, Range part, std::int64_t stride) {
  if (part.step < 0) {
    part.begin += (part.count - 1) * part.step;
    p.first += (part.count - 1) * stride;
    part.step = -part.step;
    stride = -stride;
  }
  bool is_whole = part.count == dim && part.step == 1 && stride > 0;
  int last = p.rank - 1;
  if (p.rank > 0 && is_whole && p.parts[last].step == 1 && p.strides[last] == stride * dim) {
    p.dims[last] *= dim;
    p.parts[last].begin *= dim;
    p.parts[last].count *= dim;
    p.strides[last] = stride;
    return;
  }
  p.dims[p.rank] = dim;
  p.parts[p.rank] = part;
  p.strides[p.rank++] = stride;
}

// Rows of neighbours become rows of larger words.
void widen(Window& p, std::int64_t element) {
  p.word = static_cast<int>(element);
  int last = p.rank - 1;
  if (p.rank == 0 || p.parts[last].step != 1 || p.strides[last] != 1) return;
  p.word = word_size(
      {p.dims[last] * element, p.parts[last].begin * element, p.parts[last].count * element, p.first * element});
  for (int d = 0; d < last; ++d) p.word = word_size({p.word, p.strides[d] * element});
  std::int64_t elements = p.word / element;
  p.size /= elements;
  p.first /= elements;
  p.dims[last] /= elements;
  p.parts[last].begin /= elements;
  p.parts[last].count /= elements;
  for (int d = 0; d < last; ++d) p.strides[d] /= elements;
}

// `ranges` says where the axes of operand 0 lie in those of the result. `fill` is one element.
Prepared prepare_placement(const PrepareArgs& p, const Range (&ranges)[Shape::kMaxRank], const void* fill) {
  Window window;
  const Shape& out = p.out(0).shape;
  window.size = out.size();
  std::int64_t strides[Shape::kMaxRank] = {};
  dense_strides(p.in(0).shape, strides);
  if (p.in(0).shape.size() == 0) {  // no part
    append(window, out.size(), {0, 1, 0}, 1);
  } else {
    for (int d = 0; d < out.rank(); ++d) append(window, out[d], ranges[d], strides[d]);
  }
  std::size_t element = size_of(p.out(0).dtype);
  for (std::size_t at = 0; at < sizeof window.fill; at += element)
    std::memcpy(reinterpret_cast<std::byte*>(&window.fill) + at, fill, element);
  widen(window, static_cast<std::int64_t>(element));
  with_word(window.word, [&]<class T>(T) { load_kernel(p, place<T>); });
  return {std::make_shared<Window>(window)};
}

template <class T>
T fill_of(const Window& p) {
  T fill;
  std::memcpy(&fill, &p.fill, sizeof fill);
  return fill;
}

void place_cuda(CudaArgs& a) {
  const auto& p = a.local<Window>();
  with_word(p.word,
            [&]<class T>(T) { a.launch(place<T>, launch_size(p.size), a.in<T>(0), a.out<T>(0), p, fill_of<T>(p)); });
}

// Walks along the rows of the innermost axis, without the divisions of Window::find(), which take longer than a short
// row.
class WindowWalk {
 public:
  WindowWalk(const Window& window, std::int64_t row) : window_(window) {
    for (int d = window.rank - 2; d >= 0; --d) {
      at_[d] = row % window.dims[d];
      row /= window.dims[d];
    }
  }
  // The element of the part with which its row begins, or -1 if no part of it is in the row.
  std::int64_t find() const {
    std::int64_t offset = window_.first;
    for (int d = 0; d + 1 < window_.rank; ++d) {
      const Range& part = window_.parts[d];
      std::int64_t q = at_[d] - part.begin;
      if (part.step != 1) {
        if (q % part.step != 0) return -1;
        q /= part.step;
      }
      if (q < 0 || q >= part.count) return -1;
      offset += q * window_.strides[d];
    }
    return offset;
  }
  // In a row with a part, the number of rows, this one included, whose parts follow one another at a distance of
  // row_stride() elements.
  std::int64_t rows_left() const {
    if (window_.rank < 2) return 1;
    const Range& part = window_.parts[window_.rank - 2];
    return part.step == 1 ? part.begin + part.count - at_[window_.rank - 2] : 1;
  }
  std::int64_t row_stride() const { return window_.rank < 2 ? 0 : window_.strides[window_.rank - 2]; }
  // `count` is at most rows_left(), or 1.
  void next_rows(std::int64_t count) {
    for (int d = window_.rank - 2; d >= 0; --d, count = 1) {
      at_[d] += count;
      if (at_[d] < window_.dims[d]) return;
      at_[d] = 0;
    }
  }

 private:
  const Window& window_;
  std::int64_t at_[Shape::kMaxRank] = {};  // coordinates of the row
};

// An OutputPart. In each row of the innermost axis, the part of the operand is between elements of `fill`.
void place_part(const CpuArgs& a, std::int64_t begin, std::int64_t size, void* result) {
  const auto& p = a.local<Window>();
  const std::int64_t word = p.word / static_cast<std::int64_t>(size_of(a.out_type(0).dtype));
  const std::int64_t first = begin / word, end = first + size / word;
  with_word(p.word, [&]<class T>(T) {
    T* out = static_cast<T*>(result) - first;
    for_each_index(end - first, [to = out + first, fill = fill_of<T>(p)](std::int64_t i) { to[i] = fill; });
    if (p.rank == 0) {
      out[0] = *a.in<T>(0);
      return;
    }
    const Range& inner = p.parts[p.rank - 1];
    const std::int64_t row = p.dims[p.rank - 1], stride = p.strides[p.rank - 1];
    WindowWalk walk(p, first / row);
    std::int64_t rows = 1;
    for (std::int64_t i = first - first % row + inner.begin; inner.count > 0 && i < end;
         i += rows * row, walk.next_rows(rows)) {
      rows = 1;
      const std::int64_t from = walk.find();
      if (from < 0) continue;
      const std::int64_t skipped = i < first ? (first - i + inner.step - 1) / inner.step : 0;
      const std::int64_t count = std::min(inner.count, (end - i + inner.step - 1) / inner.step);
      const T* x = a.in<T>(0) + from;
      const bool is_contiguous = inner.step == 1 && stride == 1;
      if (is_contiguous && skipped == 0 && count == inner.count) {
        rows = std::min(walk.rows_left(), (end - i - count) / row + 1);
        copy_rows(out + i, row, x, walk.row_stride(), rows, count);
      } else if (is_contiguous) {
        if (count > skipped) copy_row(out + i + skipped, x + skipped, count - skipped);
      } else {
        for (std::int64_t q = skipped; q < count; ++q) out[i + q * inner.step] = x[q * stride];
      }
    }
  });
}

void infer_slice(InferArgs& a) {
  a.expect_inputs(1);
  const auto& attrs = a.attrs<SliceAttrs>();
  Shape shape = a.in(0).shape;
  auto rank = static_cast<std::size_t>(shape.rank());
  if (attrs.begins.size() != attrs.ends.size() || attrs.begins.size() > rank || attrs.steps.size() > rank)
    a.fail("the numbers of begins, ends and steps do not fit", "give a begin and an end for each of the first axes");
  if (std::find(attrs.steps.begin(), attrs.steps.end(), 0) != attrs.steps.end())
    a.fail("a step is 0", "use steps of 1 and more, or of -1 and less");
  for (int d = 0; d < shape.rank(); ++d) shape[d] = attrs.range(d, shape[d]).count;
  a.out(a.in(0).dtype, shape);
}

AxisMap slice_moves(const MoveArgs& a, int) {
  AxisMap map;
  for (int d = 0; d < a.in(0).shape.rank(); ++d) {
    const Range range = a.attrs.as<SliceAttrs>().range(d, a.in(0).shape[d]);
    map.axes[d] = {d, range.begin, range.step};
  }
  return map;
}

Prepared prepare_slice(const PrepareArgs& p) {
  return {std::make_shared<StridedCopy>(make_strided_copy(p, slice_moves({p.attrs, p.types, p.inputs}, 0)))};
}

void slice_cuda(CudaArgs& a) { run_copy(a.local<StridedCopy>(), a); }
void slice_part(const CpuArgs& a, std::int64_t begin, std::int64_t size, void* out) {
  run_copy_part(a.local<StridedCopy>(), a, begin, size, out);
}

// Inputs: the gradient of the part, the whole (shape only).
void infer_slice_grad(InferArgs& a) {
  a.expect_inputs(2);
  a.expect_input(0, a.outputs_of(infer_slice, {a.in(1)})[0].shape);
  a.out(a.in(0).dtype, a.in(1).shape);
}

Prepared prepare_slice_grad(const PrepareArgs& p) {
  const auto& attrs = p.attrs.as<SliceAttrs>();
  Range ranges[Shape::kMaxRank];
  for (int d = 0; d < p.out(0).shape.rank(); ++d) ranges[d] = attrs.range(d, p.out(0).shape[d]);
  const std::uint64_t zero = 0;
  return prepare_placement(p, ranges, &zero);
}

Value slice_of(const Value& x, const SliceAttrs& attrs, Where where);

std::vector<Value> slice_grad_grad(const GradArgs& a) {
  return {slice_of(a.grads[0], a.attrs.as<SliceAttrs>(), a.where), Value()};
}

const OpDef slice_grad_op{.name = "slice_grad",
                          .infer = infer_slice_grad,
                          .access = like_access,
                          .traits = {.kernels_wait = true},
                          .prepare = prepare_slice_grad,
                          .bodies = {place_part, place_cuda},
                          .grad = slice_grad_grad};

std::vector<Value> slice_grad(const GradArgs& a) {
  return emit(slice_grad_op, {Arg(a.grads[0], a.where), a.inputs[0]}, a.attrs);
}

const OpDef slice_op{.name = "slice",
                     .infer = infer_slice,
                     .traits = {.kernels_wait = true},
                     .prepare = prepare_slice,
                     .bodies = {slice_part, slice_cuda},
                     .grad = slice_grad,
                     .moves = slice_moves};

Value slice_of(const Value& x, const SliceAttrs& attrs, Where where) {
  return emit(slice_op, {Arg(x, where)}, attrs)[0];
}

struct PadAttrs {
  std::vector<std::int64_t> before, after;
  double value;
  static auto fields(auto& s) { return std::tie("before", s.before, "after", s.after, "value", s.value); }
};

void infer_pad(InferArgs& a) {
  a.expect_inputs(1);
  const auto& attrs = a.attrs<PadAttrs>();
  Shape shape = a.in(0).shape;
  auto rank = static_cast<std::size_t>(shape.rank());
  if (!holds(a.in(0).dtype, attrs.value))
    a.fail(std::string(to_string(a.in(0).dtype)) + " cannot hold the value " + number_text(attrs.value),
           "cast() the operand, or pass a value of its dtype");
  if (attrs.before.size() != rank || attrs.after.size() != rank)
    a.fail("the numbers of paddings do not fit", "give one before and one after each axis");
  for (int d = 0; d < shape.rank(); ++d) {
    std::int64_t before = attrs.before[at(d)], after = attrs.after[at(d)];
    if (before < 0 || after < 0) a.fail("a padding is negative", "slice() the operand");
    shape[d] = sum_of_sizes(shape[d], sum_of_sizes(before, after));
  }
  a.out(a.in(0).dtype, shape);
}

Prepared prepare_pad(const PrepareArgs& p) {
  const auto& attrs = p.attrs.as<PadAttrs>();
  Range ranges[Shape::kMaxRank];
  for (std::size_t d = 0; d < attrs.before.size(); ++d)
    ranges[d] = {attrs.before[d], 1, p.in(0).shape[static_cast<int>(d)]};
  Tensor fill = Tensor::full(p.in(0).dtype, {1}, attrs.value);
  return prepare_placement(p, ranges, fill.data());
}

std::vector<Value> pad_grad(const GradArgs& a) {
  const auto& attrs = a.attrs.as<PadAttrs>();
  SliceAttrs part{attrs.before, attrs.after, {}};
  for (std::int64_t& end : part.ends) end = end == 0 ? std::numeric_limits<std::int64_t>::max() : -end;
  return {slice_of(a.grads[0], part, a.where)};
}

const OpDef pad_op{.name = "pad",
                   .infer = infer_pad,
                   .traits = {.kernels_wait = true},
                   .prepare = prepare_pad,
                   .bodies = {place_part, place_cuda},
                   .grad = pad_grad};

}  // namespace

Value slice(Arg x, std::vector<std::int64_t> begins, std::vector<std::int64_t> ends, std::vector<std::int64_t> steps,
            Placement placement) {
  return emit(slice_op, {x}, SliceAttrs{std::move(begins), std::move(ends), std::move(steps)}, placement)[0];
}
Value pad(Arg x, std::vector<std::int64_t> before, std::vector<std::int64_t> after, double value, Placement placement) {
  return emit(pad_op, {x}, PadAttrs{std::move(before), std::move(after), value}, placement)[0];
}

std::span<const FileOp> slice_file_ops() {
  static constexpr FileOp ops[] = {file_op<SliceAttrs>(slice_op), file_op<SliceAttrs>(slice_grad_op),
                                   file_op<PadAttrs>(pad_op)};
  return ops;
}

}  // namespace graphsink
