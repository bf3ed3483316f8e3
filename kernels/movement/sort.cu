// sort: the elements of each line in order, and their places.
#include "graphsink/ops.h"
#include "kernels/file_ops.h"
#include "kernels/movement/line_tiles.h"
#include "kernels/movement/long_lines.h"
#include "kernels/movement/sort.h"
#include "kernels/movement/take_along.h"
#include "kernels/support/extremes.h"

namespace graphsink {
namespace {

struct SortAttrs {
  int axis;
  bool descends;
  static auto fields(auto& s) { return std::tie("axis", s.axis, "descending", s.descends); }
};

// The smallest first. A NaN counts as the largest of all, as in NumPy.
struct Ascending {
  template <class V>
  HD static bool precedes(V x, V y) {
    return x < y || (!is_nan(x) && is_nan(y));
  }
  template <class V>
  HD static V last() {
    return std::numeric_limits<V>::has_quiet_NaN ? std::numeric_limits<V>::quiet_NaN() : std::numeric_limits<V>::max();
  }
};
using Descending = Larger;

// A block for each line, up to kBlockSort elements and as many more as make a power of 2: those come after all others.
// The items that a thread stores are those that it loads next, so there is no barrier between. An element is stored as
// it was read, so its bits stay, those of a NaN included.
template <class T, class Order>
__global__ void sort_lines(const T* x, T* values, std::int32_t* places, Lines lines, int padded) {
  wait_for_inputs();
  using V = Compared<T>;
  __shared__ Placed<V> items[kBlockSort];
  auto thread = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
  for (std::int64_t line = blockIdx.x; line < lines.count(); line += gridDim.x) {
    std::int64_t first = lines.first(line);
    for (int i = thread; i < padded; i += threads) {
      items[i] = no_place<Order, V>();
      if (i < lines.length) items[i] = {static_cast<V>(x[first + i * lines.inner]), i};
    }
    sort_in_block(items, padded, precedes<Order, V>);
    for (int i = thread; i < lines.length; i += threads) {
      std::int64_t to = first + i * lines.inner;
      values[to] = x[first + items[i].place * lines.inner];
      places[to] = items[i].place;
    }
  }
}

bool is_long(const Lines& lines) { return lines.length > kBlockSort; }

template <class T, class Order>
void sort_on(CudaArgs& a, const Lines& lines) {
  if (lines.count() * lines.length == 0) return;
  if (is_long(lines)) return sort_long_lines<T>(a, lines.length);
  int padded = 2;
  while (padded < lines.length) padded *= 2;
  Extent blocks{static_cast<unsigned>(std::min(lines.count(), kMaxBlocks))};
  Extent block{static_cast<unsigned>(std::clamp<std::int64_t>(padded / 2, kWarp, kThreads))};
  a.launch(sort_lines<T, Order>, blocks, block, 0, a.in<T>(0), a.out<T>(0), a.out<std::int32_t>(1), lines, padded);
}

// Sorts the lines of tile `tile`.
template <class T, class Order>
void sort_on(const CpuArgs& a, const Lines& lines, std::int64_t tile) {
  auto* items = static_cast<Placed<Compared<T>>*>(a.workspace()) + tile * lines.length;
  const LineRange range(lines, tile);
  for (std::int64_t line = range.first; line < range.end; ++line) {
    std::int64_t first = lines.first(line);
    for (std::int64_t i = 0; i < lines.length; ++i)
      items[i] = {static_cast<Compared<T>>(a.in<T>(0)[first + i * lines.inner]), static_cast<std::int32_t>(i)};
    std::sort(items, items + lines.length, precedes<Order, Compared<T>>);
    for (std::int64_t i = 0; i < lines.length; ++i) {
      a.out<T>(0)[first + i * lines.inner] = a.in<T>(0)[first + items[i].place * lines.inner];
      a.out<std::int32_t>(1)[first + i * lines.inner] = items[i].place;
    }
  }
}

void sort_cuda(CudaArgs& a) {
  const auto& [axis, descends] = a.attrs<SortAttrs>();
  Lines lines = lines_of(a.in_type(0).shape, axis);
  for_comparable(a.in_type(0).dtype, [&, descends = descends]<class T>() {
    descends ? sort_on<T, Descending>(a, lines) : sort_on<T, Ascending>(a, lines);
  });
}

std::int64_t count_sort_tiles(const BodyArgs& a) {
  return count_line_tiles(lines_of(a.in_type(0).shape, a.attrs<SortAttrs>().axis));
}
void run_sort_tiles(const CpuArgs& a, std::int64_t first, std::int64_t end) {
  const auto& [axis, descends] = a.attrs<SortAttrs>();
  Lines lines = lines_of(a.in_type(0).shape, axis);
  for_comparable(a.in_type(0).dtype, [&, descends = descends]<class T>() {
    for (std::int64_t tile = first; tile < end; ++tile)
      descends ? sort_on<T, Descending>(a, lines, tile) : sort_on<T, Ascending>(a, lines, tile);
  });
}
constexpr Tiles kSortTiles{count_sort_tiles, run_sort_tiles};

void infer_sort(InferArgs& a) {
  a.expect_inputs(1);
  expect_comparable(a, 0);
  const Shape& shape = a.in(0).shape;
  int axis = axis_from_front(a, a.attrs<SortAttrs>().axis, shape.rank());
  if (shape[axis] > std::numeric_limits<std::int32_t>::max())
    a.fail("the axis is too long for indices of i32", "split() it");
  a.out(a.in(0).dtype, shape);
  a.out(DType::i32, shape);
}

Prepared prepare_sort(const PrepareArgs& p) {
  const auto& [axis, descends] = p.attrs.as<SortAttrs>();
  Lines lines = lines_of(p.in(0).shape, axis);
  Prepared prepared;
  for_comparable(p.in(0).dtype, [&, descends = descends]<class T>() {
    if (!p.cuda) {
      prepared.workspace =
          static_cast<std::size_t>(count_line_tiles(lines) * lines.length) * sizeof(Placed<Compared<T>>);
    } else if (!is_long(lines)) {
      descends ? load_kernel(p, sort_lines<T, Descending>) : load_kernel(p, sort_lines<T, Ascending>);
    } else if (lines.count() > 0) {
      prepared = prepare_long_lines<T>(p, lines, descends);
    }
  });
  return prepared;
}

std::vector<Value> sort_grad(const GradArgs& a) {
  return emit(place_along_op, {Arg(a.grads[0], a.where), a.outputs[1], a.inputs[0]},
              TakeAlongAttrs{a.attrs.as<SortAttrs>().axis});
}

const OpDef sort_op{
    .name = "sort", .infer = infer_sort, .prepare = prepare_sort, .bodies = {kSortTiles, sort_cuda}, .grad = sort_grad};

}  // namespace

Sorted sort(Arg x, int axis, SortOptions options, Placement placement) {
  std::vector<Value> made = emit(sort_op, {x}, SortAttrs{axis, options.descending}, placement);
  return {made[0], made[1]};
}

std::span<const FileOp> sort_file_ops() {
  static constexpr FileOp ops[] = {file_op<SortAttrs>(sort_op)};
  return ops;
}

}  // namespace graphsink
