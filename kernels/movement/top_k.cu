// top_k: the largest elements of each line and their places.
#include "graphsink/ops.h"
#include "kernels/file_ops.h"
#include "kernels/movement/line_tiles.h"
#include "kernels/movement/long_lines.h"
#include "kernels/movement/sort.h"
#include "kernels/movement/take_along.h"
#include "kernels/support/extremes.h"

namespace graphsink {
namespace {

struct TopKAttrs {
  std::int64_t k;
  int axis;
  static auto fields(auto& s) { return std::tie("k", s.k, "axis", s.axis); }
};

constexpr int kMost = 1024;  // elements to choose from a line, at most
static_assert(kMost < kBlockSort);

// A block for each line sorts its first elements, then the best k so far with the next ones in place of the others. The
// items that a thread stores are those that it loads of the next line: there is no barrier between.
template <class T>
__global__ void select_top(const T* x, T* values, std::int32_t* places, Lines lines, int k, int size) {
  wait_for_inputs();
  using V = Compared<T>;
  __shared__ Placed<V> items[kBlockSort];
  Lines selected = lines;
  selected.length = k;
  auto thread = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
  for (std::int64_t line = blockIdx.x; line < lines.count(); line += gridDim.x) {
    const T* from = x + lines.first(line);
    int kept = 0;
    for (std::int64_t begin = 0; begin < lines.length; begin += size - kept, kept = k) {
      for (int i = kept + thread; i < size; i += threads) {
        std::int64_t place = begin + (i - kept);
        items[i] = no_place<Larger, V>();
        if (place < lines.length) items[i] = {static_cast<V>(from[place * lines.inner]), static_cast<int>(place)};
      }
      sort_in_block(items, size, precedes<Larger, V>);
    }
    for (int i = thread; i < k; i += threads) {
      std::int64_t to = selected.first(line) + i * lines.inner;
      values[to] = from[items[i].place * lines.inner];
      places[to] = items[i].place;
    }
  }
}

// Long lines are sorted as a whole if they are few. Many lines keep a GPU busy with a block for each, which needs no
// workspace.
bool sorts_whole_lines(const Lines& lines) { return lines.length > kBlockSort && lines.count() < kFewLines; }

Extent line_blocks(const Lines& lines) { return {static_cast<unsigned>(std::min(lines.count(), kMaxBlocks))}; }

template <class T>
void top_k_on(CudaArgs& a, const Lines& lines, int k) {
  if (lines.count() == 0) return;
  if (sorts_whole_lines(lines)) return sort_long_lines<T>(a, k);
  std::int64_t size = 2;
  while (size < kBlockSort && size < lines.length) size *= 2;
  Extent block{static_cast<unsigned>(std::clamp<std::int64_t>(size / 2, kWarp, kThreads))};
  a.launch(select_top<T>, line_blocks(lines), block, 0, a.in<T>(0), a.out<T>(0), a.out<std::int32_t>(1), lines, k,
           static_cast<int>(size));
}

// Chooses the k largest elements of each line of tile `tile`.
template <class T>
void top_k_on(const CpuArgs& a, const Lines& lines, int k, std::int64_t tile) {
  using Item = Placed<Compared<T>>;
  auto* items = static_cast<Item*>(a.workspace()) + tile * lines.length;
  Lines selected = lines;
  selected.length = k;
  const LineRange range(lines, tile);
  for (std::int64_t line = range.first; line < range.end; ++line) {
    const T* from = a.in<T>(0) + lines.first(line);
    for (std::int64_t i = 0; i < lines.length; ++i)
      items[i] = {static_cast<Compared<T>>(from[i * lines.inner]), static_cast<std::int32_t>(i)};
    std::partial_sort(items, items + k, items + lines.length, precedes<Larger, Compared<T>>);
    for (std::int64_t i = 0; i < k; ++i) {
      std::int64_t to = selected.first(line) + i * lines.inner;
      a.out<T>(0)[to] = from[items[i].place * lines.inner];
      a.out<std::int32_t>(1)[to] = items[i].place;
    }
  }
}

void top_k_cuda(CudaArgs& a) {
  const auto& [k, axis] = a.attrs<TopKAttrs>();
  Lines lines = lines_of(a.in_type(0).shape, axis);
  for_comparable(a.in_type(0).dtype, [&, k = static_cast<int>(k)]<class T>() { top_k_on<T>(a, lines, k); });
}

std::int64_t count_top_k_tiles(const BodyArgs& a) {
  return count_line_tiles(lines_of(a.in_type(0).shape, a.attrs<TopKAttrs>().axis));
}
void run_top_k_tiles(const CpuArgs& a, std::int64_t first, std::int64_t end) {
  const auto& [k, axis] = a.attrs<TopKAttrs>();
  Lines lines = lines_of(a.in_type(0).shape, axis);
  for_comparable(a.in_type(0).dtype, [&, k = static_cast<int>(k)]<class T>() {
    for (std::int64_t tile = first; tile < end; ++tile) top_k_on<T>(a, lines, k, tile);
  });
}
constexpr Tiles kTopKTiles{count_top_k_tiles, run_top_k_tiles};

void infer_top_k(InferArgs& a) {
  a.expect_inputs(1);
  expect_comparable(a, 0);
  const auto& attrs = a.attrs<TopKAttrs>();
  Shape shape = a.in(0).shape;
  int axis = axis_from_front(a, attrs.axis, shape.rank());
  if (attrs.k < 1 || attrs.k > kMost)
    a.fail("k is " + std::to_string(attrs.k), "choose from 1 to " + std::to_string(kMost) + " elements");
  if (attrs.k > shape[axis])
    a.fail("k is " + std::to_string(attrs.k) + ", and the axis has fewer elements", "choose fewer");
  if (shape[axis] > std::numeric_limits<std::int32_t>::max())
    a.fail("the axis is too long for indices of i32", "split() it");
  shape[axis] = attrs.k;
  a.out(a.in(0).dtype, shape);
  a.out(DType::i32, shape);
}

Prepared prepare_top_k(const PrepareArgs& p) {
  Lines lines = lines_of(p.in(0).shape, p.attrs.as<TopKAttrs>().axis);
  Prepared prepared;
  for_comparable(p.in(0).dtype, [&]<class T>() {
    if (!p.cuda) {
      prepared.workspace =
          static_cast<std::size_t>(count_line_tiles(lines) * lines.length) * sizeof(Placed<Compared<T>>);
    } else if (!sorts_whole_lines(lines)) {
      load_kernel(p, select_top<T>);
    } else if (lines.count() > 0) {
      prepared = prepare_long_lines<T>(p, lines, true);
    }
  });
  return prepared;
}

std::vector<Value> top_k_grad(const GradArgs& a) {
  return emit(place_along_op, {Arg(a.grads[0], a.where), a.outputs[1], a.inputs[0]},
              TakeAlongAttrs{a.attrs.as<TopKAttrs>().axis});
}

const OpDef top_k_op{.name = "top_k",
                     .infer = infer_top_k,
                     .prepare = prepare_top_k,
                     .bodies = {kTopKTiles, top_k_cuda},
                     .grad = top_k_grad};

}  // namespace

TopK top_k(Arg x, std::int64_t k, int axis, Placement placement) {
  std::vector<Value> made = emit(top_k_op, {x}, TopKAttrs{k, axis}, placement);
  return {made[0], made[1]};
}

std::span<const FileOp> top_k_file_ops() {
  static constexpr FileOp ops[] = {file_op<TopKAttrs>(top_k_op)};
  return ops;
}

}  // namespace graphsink
