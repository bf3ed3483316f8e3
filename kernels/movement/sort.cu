// sort: the elements of each line in order, and their places.
#include "kernels/movement/sort.h"

#include "graphsink/ops.h"
#include "kernels/movement/take_along.h"
#include "kernels/support/extremes.h"
#include "kernels/support/lines.h"

namespace graphsink {
namespace {

struct SortAttrs {
  int axis;
  bool descends;
  friend bool operator==(const SortAttrs&, const SortAttrs&) = default;
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

constexpr Extent kBlock{static_cast<unsigned>(kThreads)};

// Lines of `padded` items, a power of 2; those behind the end of a line come after all others.
struct SortPlan {
  Lines lines;
  std::int64_t padded = 2;
  HD std::int64_t items() const { return lines.count() * padded; }
};
SortPlan sort_plan(const Shape& shape, int axis) {
  SortPlan plan{lines_of(shape, axis)};
  while (plan.padded < plan.lines.length) plan.padded *= 2;
  return plan;
}

template <class T, class Order>
__device__ inline Placed<Compared<T>> load_item(const T* x, const SortPlan& plan, std::int64_t line,
                                                std::int64_t place) {
  using V = Compared<T>;
  if (place >= plan.lines.length) return no_place<Order, V>();
  return {static_cast<V>(x[plan.lines.first(line) + place * plan.lines.inner]), static_cast<std::int32_t>(place)};
}
template <class T>
__device__ inline void store_item(const Placed<Compared<T>>& item, T* values, std::int32_t* places,
                                  const SortPlan& plan, std::int64_t line, std::int64_t place) {
  if (place >= plan.lines.length) return;
  std::int64_t to = plan.lines.first(line) + place * plan.lines.inner;
  values[to] = static_cast<T>(item.value);
  places[to] = item.place;
}

// A block for each line that fits into one. Here and below, the items that a thread stores are those that it loads
// next: there is no barrier between.
template <class T, class Order>
__global__ void sort_lines(const T* x, T* values, std::int32_t* places, SortPlan plan) {
  wait_for_inputs();
  __shared__ Placed<Compared<T>> items[kBlockSort];
  auto size = static_cast<int>(plan.padded), thread = static_cast<int>(threadIdx.x);
  auto threads = static_cast<int>(blockDim.x);
  for (std::int64_t line = blockIdx.x; line < plan.lines.count(); line += gridDim.x) {
    for (int i = thread; i < size; i += threads) items[i] = load_item<T, Order>(x, plan, line, i);
    sort_in_block(items, size, 0, precedes<Order, Compared<T>>);
    for (int i = thread; i < size; i += threads) store_item(items[i], values, places, plan, line, i);
  }
}

// Longer lines are sorted in the workspace: first in blocks of kBlockSort items, then run by run, each line for itself.
// `begin` of a block is where it lies in its line.
template <class T, class Order>
__global__ void sort_blocks(const T* x, Placed<Compared<T>>* all, SortPlan plan) {
  wait_for_inputs();
  __shared__ Placed<Compared<T>> items[kBlockSort];
  auto thread = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
  for (std::int64_t first = std::int64_t{blockIdx.x} * kBlockSort; first < plan.items();
       first += std::int64_t{gridDim.x} * kBlockSort) {
    std::int64_t line = quotient(first, plan.padded), begin = first - line * plan.padded;
    for (int i = thread; i < kBlockSort; i += threads) items[i] = load_item<T, Order>(x, plan, line, begin + i);
    sort_in_block(items, kBlockSort, begin, precedes<Order, Compared<T>>);
    for (int i = thread; i < kBlockSort; i += threads) all[first + i] = items[i];
  }
}
// One step of items that are too far apart for a block.
template <class V, class Order>
__global__ void merge_far(Placed<V>* all, SortPlan plan, std::int64_t run, std::int64_t apart) {
  wait_for_inputs();
  std::int64_t pairs = plan.items() / 2, in_line = plan.padded / 2;
  for (std::int64_t pair = thread_index(); pair < pairs; pair += all_threads()) {
    std::int64_t line = quotient(pair, in_line);
    sort_pair(all + line * plan.padded, pair - line * in_line, 0, run, apart, precedes<Order, V>);
  }
}
// The other steps of a run.
template <class V, class Order>
__global__ void merge_near(Placed<V>* all, SortPlan plan, std::int64_t run) {
  wait_for_inputs();
  __shared__ Placed<V> items[kBlockSort];
  auto thread = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
  for (std::int64_t first = std::int64_t{blockIdx.x} * kBlockSort; first < plan.items();
       first += std::int64_t{gridDim.x} * kBlockSort) {
    std::int64_t line = quotient(first, plan.padded);
    for (int i = thread; i < kBlockSort; i += threads) items[i] = all[first + i];
    merge_in_block(items, kBlockSort, first - line * plan.padded, run, kBlockSort / 2, precedes<Order, V>);
    for (int i = thread; i < kBlockSort; i += threads) all[first + i] = items[i];
  }
}
template <class T>
__global__ void store_sorted(const Placed<Compared<T>>* all, T* values, std::int32_t* places, SortPlan plan) {
  wait_for_inputs();
  for (std::int64_t i = thread_index(); i < plan.items(); i += all_threads()) {
    std::int64_t line = quotient(i, plan.padded);
    store_item(all[i], values, places, plan, line, i - line * plan.padded);
  }
}

template <class T, class Order>
void sort_on(CudaArgs& a, const SortPlan& plan) {
  using V = Compared<T>;
  const T* x = a.in<T>(0);
  T* values = a.out<T>(0);
  auto* places = a.out<std::int32_t>(1);
  auto blocks = [](std::int64_t count) { return Extent{static_cast<unsigned>(std::min(count, kMaxBlocks))}; };
  if (plan.lines.length == 0) return;
  if (plan.padded <= kBlockSort) {
    Extent block{static_cast<unsigned>(std::clamp<std::int64_t>(plan.padded / 2, kWarp, kThreads))};
    return a.launch(sort_lines<T, Order>, blocks(plan.lines.count()), block, 0, x, values, places, plan);
  }
  auto* all = static_cast<Placed<V>*>(a.workspace());
  Extent near = blocks(plan.items() / kBlockSort);
  LaunchSize far = launch_size(plan.items() / 2), store = launch_size(plan.items());
  a.launch(sort_blocks<T, Order>, near, kBlock, 0, x, all, plan);
  for (std::int64_t run = 2 * kBlockSort; run <= plan.padded; run *= 2) {
    for (std::int64_t apart = run / 2; apart >= kBlockSort; apart /= 2)
      a.launch(merge_far<V, Order>, far.grid, far.block, 0, all, plan, run, apart);
    a.launch(merge_near<V, Order>, near, kBlock, 0, all, plan, run);
  }
  a.launch(store_sorted<T>, store.grid, store.block, 0, all, values, places, plan);
}

template <class T, class Order>
void sort_on(const CpuArgs& a, const SortPlan& plan) {
  const Lines& lines = plan.lines;
  auto* items = static_cast<Placed<Compared<T>>*>(a.workspace());
  for (std::int64_t line = 0; line < lines.count(); ++line) {
    std::int64_t first = lines.first(line);
    for (std::int64_t i = 0; i < lines.length; ++i)
      items[i] = {static_cast<Compared<T>>(a.in<T>(0)[first + i * lines.inner]), static_cast<std::int32_t>(i)};
    std::sort(items, items + lines.length, precedes<Order, Compared<T>>);
    for (std::int64_t i = 0; i < lines.length; ++i) {
      a.out<T>(0)[first + i * lines.inner] = static_cast<T>(items[i].value);
      a.out<std::int32_t>(1)[first + i * lines.inner] = items[i].place;
    }
  }
}

template <class Args>
void sort_any(Args& a) {
  const auto& [axis, descends] = a.template attrs<SortAttrs>();
  SortPlan plan = sort_plan(a.in_type(0).shape, axis);
  for_comparable(a.in_type(0).dtype, [&, descends = descends]<class T>() {
    descends ? sort_on<T, Descending>(a, plan) : sort_on<T, Ascending>(a, plan);
  });
}

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

template <class T, class Order>
void load_sort(const PrepareArgs& p) {
  using V = Compared<T>;
  load_kernels<sort_lines<T, Order>, sort_blocks<T, Order>, merge_far<V, Order>, merge_near<V, Order>>(p);
}

Prepared prepare_sort(const PrepareArgs& p) {
  const auto& [axis, descends] = p.attrs.as<SortAttrs>();
  SortPlan plan = sort_plan(p.in(0).shape, axis);
  std::int64_t items = p.cuda ? (plan.padded > kBlockSort ? plan.items() : 0) : plan.lines.length;
  std::size_t workspace = 0;
  for_comparable(p.in(0).dtype, [&, descends = descends]<class T>() {
    descends ? load_sort<T, Descending>(p) : load_sort<T, Ascending>(p);
    load_kernel(p, store_sorted<T>);
    workspace = static_cast<std::size_t>(items) * sizeof(Placed<Compared<T>>);
  });
  return {nullptr, workspace};
}

std::vector<Value> sort_grad(const GradArgs& a) {
  return emit(place_along_op, {Arg(a.grads[0], a.where), a.outputs[1], a.inputs[0]},
              TakeAlongAttrs{a.attrs.as<SortAttrs>().axis});
}

const OpDef sort_op{.name = "sort",
                    .infer = infer_sort,
                    .prepare = prepare_sort,
                    .bodies = {sort_any<const CpuArgs>, sort_any<CudaArgs>},
                    .grad = sort_grad};

}  // namespace

Sorted sort(Arg x, int axis, bool descending, Placement placement) {
  std::vector<Value> made = emit(sort_op, {x}, SortAttrs{axis, descending}, placement);
  return {made[0], made[1]};
}

}  // namespace graphsink
