// Reductions over axes, by what combines two terms (operations.h). The order in which terms are combined depends on
// shapes alone.
#pragma once

#include <numeric>

#include "ir/fused.h"
#include "kernels/reduce/float_pairs.h"
#include "kernels/reduce/operations.h"
#include "kernels/runtime/fusion_rules.h"
#include "kernels/support/dtype.h"
#include "kernels/support/layout.h"
#include "kernels/support/reduce_ops.h"
#include "kernels/support/row.h"
#include "kernels/support/tiles.h"

namespace graphsink {

// Element o of the result is made of x[outputs.find(o) + terms.find(k)] for all k.
struct ReductionLayouts {
  Layout<1> outputs;
  Layout<1> terms;
};

// Where several blocks share an element, each makes a Value of its part of the terms, and these are joined.
template <class Op>
struct PartOf : Op {
  using Result = typename Op::Value;
  HD Result result(typename Op::Value x) const { return x; }
};
template <class Op>
struct JoinOf : Op {
  using Term = typename Op::Value;
  HD static Term add(Term all, Term part, std::int64_t) { return Op::join(all, part); }
};

// Element o of the result is made in `parts` parts, by as many groups of threads: out[o * parts + p] is made of part p
// of its terms.
template <class Op, class Group>
__global__ void reduce(const typename Op::Term* x, typename Op::Result* out, ReductionLayouts r, std::int64_t parts,
                       Op op) {
  wait_for_inputs();
  const std::int64_t per_part = (r.terms.size + parts - 1) / parts;
  for (std::int64_t i = Group::first_row(); i < r.outputs.size * parts; i += Group::stride()) {
    const std::int64_t o = quotient(i, parts), begin = (i - o * parts) * per_part;
    const std::int64_t end = begin + per_part < r.terms.size ? begin + per_part : r.terms.size;
    const auto* first = x + r.outputs.find(o);
    auto all = Op::none();
    for (std::int64_t k = begin + Group::lane(); k < end; k += Group::kSize)
      all = Op::add(all, first[r.terms.find(k)], k);
    all = Group::template join<Op>(all);
    if (Group::lane() == 0) out[i] = op.result(all);
  }
}

struct ReductionPlan {
  void (*cpu)(const ReductionPlan&, const CpuArgs&, std::int64_t first, std::int64_t end) = nullptr;  // elements
  void (*cpu_rows)(const ReductionPlan&, std::int64_t rows, const void* in, void* out) = nullptr;     // if they lie so
  // Functions for elements whose terms are reduced in parts: cpu_parts makes parts [first, end), counted over all
  // elements, and cpu_join joins them.
  void (*cpu_parts)(const ReductionPlan&, const CpuArgs&, std::int64_t first, std::int64_t end) = nullptr;
  void (*cpu_join)(const ReductionPlan&, const CpuArgs&) = nullptr;
  void (*cuda)(const ReductionPlan&, CudaArgs&) = nullptr;
  ReductionLayouts reduction;
  double divisor = 1;  // number by which a sum is divided
  enum class By { thread, warp, block } by = By::thread;
  std::int64_t parts = 1;  // per element, when a block or, on the CPU, a tile is not enough
  std::size_t value = 0;   // bytes of the Value of a part
};

template <class Op>
Op op_of(const ReductionPlan& plan) {
  if constexpr (std::is_empty_v<Op>) {
    return {};
  } else {
    return {static_cast<typename Op::Value>(plan.divisor)};
  }
}

// Few terms want a thread for each element, a few elements of many terms all the threads there are. Groups of ops that
// reduce rows have kernels of the same kind (kernels/runtime/fused_source.h), so that their bits are the same.
inline void choose_kernel(ReductionPlan& plan) {
  using By = ReductionPlan::By;
  const auto& [outputs, terms] = plan.reduction;
  bool is_row_wise = outputs.rank > 0 && outputs.step(0) == 1;  // neighbouring threads read neighbouring elements
  if (terms.size <= 32 || (is_row_wise && outputs.size >= 8192)) {
    plan.by = By::thread;
  } else if (terms.size <= 256 || outputs.size >= 1024) {
    plan.by = By::warp;
  } else {
    plan.by = By::block;
    if (terms.size >= 32768 && outputs.size <= 64) plan.parts = std::min(terms.size / 4096, kThreads);
  }
}

template <class Op>
void reduce_cuda(const ReductionPlan& plan, CudaArgs& a) {
  using By = ReductionPlan::By;
  using Value = typename Op::Value;
  const ReductionLayouts& r = plan.reduction;
  const auto* x = a.in<typename Op::Term>(0);
  auto* out = a.out<typename Op::Result>(0);
  Op op = op_of<Op>(plan);
  if (plan.by != By::block) {
    bool by_thread = plan.by == By::thread;
    return a.launch(by_thread ? reduce<Op, ByThread> : reduce<Op, ByWarp>,
                    launch_size(r.outputs.size * (by_thread ? 1 : kWarp)), x, out, r, std::int64_t{1}, op);
  }
  Extent grid{static_cast<unsigned>(r.outputs.size)}, block{static_cast<unsigned>(kBlock)};
  if (plan.parts == 1) return a.launch(reduce<Op, ByBlock>, grid, block, 0, x, out, r, std::int64_t{1}, op);
  auto* parts = static_cast<Value*>(a.workspace());
  a.launch(reduce<PartOf<Op>, ByBlock>, Extent{static_cast<unsigned>(r.outputs.size * plan.parts)}, block, 0, x, parts,
           r, plan.parts, PartOf<Op>{op});
  ReductionLayouts rest;
  rest.outputs.size = r.outputs.size;
  append(rest.outputs, r.outputs.size, {plan.parts});
  rest.terms.size = plan.parts;
  append(rest.terms, plan.parts, {1});
  a.launch(reduce<JoinOf<Op>, ByBlock>, grid, block, 0, parts, out, rest, std::int64_t{1}, JoinOf<Op>{op});
}

// f(offset of the first term, its number, terms, stride) for each row of terms.
template <class F>
void for_each_row(const Layout<1>& terms, const F& f) {
  std::int64_t row = terms.row();
  for (std::int64_t k = 0; k < terms.size; k += row) f(terms.find(k), k, row, terms.step(0));
}

template <class Op>
typename Op::Value reduce_few_terms(const typename Op::Term* first, const Layout<1>& terms) {
  constexpr int kChains = 8;  // independent, so that operations need not wait for one another
  typename Op::Value chains[kChains];
  std::fill_n(chains, kChains, Op::none());
  for_each_row(terms, [&](std::int64_t offset, std::int64_t number, std::int64_t row, std::int64_t stride) {
    const auto* x = first + offset;
    std::int64_t k = 0;
    for (; k + kChains <= row; k += kChains)
      for (int j = 0; j < kChains; ++j) chains[j] = Op::add(chains[j], x[(k + j) * stride], number + k + j);
    for (; k < row; ++k) chains[0] = Op::add(chains[0], x[k * stride], number + k);
  });
  auto all = Op::none();
  for (const auto& chain : chains) all = Op::join(all, chain);
  return all;
}

// Joins n pairs of terms, which lie side by side from x and from y on.
template <class Op>
typename Op::Value reduce_pairs(std::int64_t n, const typename Op::Term* x, const typename Op::Term* y) {
  using Value = typename Op::Value;
  auto add = [=](Value all, std::int64_t k) { return Op::add_pair(all, x[k], y[k]); };
#ifdef GRAPHSINK_VECTOR_LEVELS
  constexpr bool kAreFloats = std::is_same_v<Wide<typename Op::Term>, float>;
  if constexpr (kAreFloats && std::is_same_v<Op, Sum<typename Op::Term, double>>) {
    const VectorLevel level = vector_level();
    if constexpr (sizeof(*x) == sizeof(float))
      if (level == VectorLevel::avx2 || (level == VectorLevel::avx512 && halves_avx512()))
        return sum_pairs_avx2(n, x, y);
    if (level == VectorLevel::avx512) return sum_pairs_avx512(n, x, y);
  }
#endif
  return reduce_in_lanes(n, Op::none(), add, [](Value a, Value b) { return Op::join(a, b); });
}

// Terms that lie side by side.
template <class Op>
typename Op::Value reduce_row(std::int64_t n, const typename Op::Term* x, std::int64_t number) {
  using Value = typename Op::Value;
  if constexpr (requires { Op::add_pair(Op::none(), *x, *x); }) {
    const Value pairs = reduce_pairs<Op>(n / 2, x, x + n / 2);
    return n % 2 == 0 ? pairs : Op::add(pairs, x[n - 1], number + n - 1);
  } else {
    return reduce_in_lanes(
        n, Op::none(), [=](Value all, std::int64_t k) { return Op::add(all, x[k], number + k); },
        [](Value a, Value b) { return Op::join(a, b); });
  }
}

// Long rows of terms that lie side by side.
template <class Op>
constexpr bool kHasRows = requires(const typename Op::Term* x) {
  Op::of_row(1, x, 0);
};
template <class Op>
typename Op::Value reduce_long_row(std::int64_t n, const typename Op::Term* x, std::int64_t number) {
  if constexpr (kHasRows<Op>) {
    return Op::of_row(n, x, number);
  } else {
    return reduce_row<Op>(n, x, number);
  }
}
template <class Op>
constexpr bool kHasLongRows = kHasRows<Op> || std::is_arithmetic_v<typename Op::Value>;

// The order depends on the layout alone.
template <class Op>
typename Op::Value reduce_terms(const typename Op::Term* first, const Layout<1>& terms) {
  using Value = typename Op::Value;
  auto join_rows = [&](const auto& of_row) {
    Value all = Op::none();
    for_each_row(terms, [&](std::int64_t offset, std::int64_t number, std::int64_t row, std::int64_t) {
      all = Op::join(all, of_row(row, first + offset, number));
    });
    return all;
  };
  if constexpr (kHasLongRows<Op>) {
    if (terms.step(0) == 1 && (kHasRows<Op> || terms.row() >= kLongRow)) return join_rows(reduce_long_row<Op>);
  }
  return reduce_few_terms<Op>(first, terms);
}

// Makes `columns` neighbouring elements of the result, whose first terms begin at `first`, together, to read memory in
// order.
template <class Op>
void reduce_columns(const typename Op::Term* first, std::int64_t columns, const Layout<1>& terms, const Op& op,
                    typename Op::Result* out) {
  using Value = typename Op::Value;
  constexpr std::int64_t kColumns = 512;
  Value all[kColumns];
  for (std::int64_t c = 0; c < columns; c += kColumns) {
    std::int64_t n = std::min(kColumns, columns - c);
    std::fill_n(all, n, Op::none());
    for_each_row(terms,
                 [&, sums = &all[0]](std::int64_t offset, std::int64_t number, std::int64_t rows, std::int64_t stride) {
                   const auto* at = first + c + offset;
                   for (std::int64_t k = number; k < number + rows; ++k, at += stride)
                     for_each_index(n, [=](std::int64_t j) { sums[j] = Op::add(sums[j], at[j], k); });
                 });
    for (std::int64_t j = 0; j < n; ++j) out[c + j] = op.result(all[j]);
  }
}

// Makes elements [first, end) of the result.
template <class Op>
void reduce_cpu(const ReductionPlan& plan, const CpuArgs& a, std::int64_t first, std::int64_t end) {
  const auto& [outputs, terms] = plan.reduction;
  const auto* x = a.in<typename Op::Term>(0);
  auto* out = a.out<typename Op::Result>(0);
  Op op = op_of<Op>(plan);
  if (outputs.rank == 0 || outputs.step(0) != 1) {
    for (std::int64_t o = first; o < end; ++o) out[o] = op.result(reduce_terms<Op>(x + outputs.find(o), terms));
    return;
  }
  const std::int64_t row = outputs.row();
  for (std::int64_t o = first, count = 0; o < end; o += count) {
    count = std::min(row - o % row, end - o);
    reduce_columns<Op>(x + outputs.find(o), count, terms, op, out + o);
  }
}

// The parts of an element are kTileElements of its terms, the last one what is left of them.
template <class Op>
void reduce_parts_cpu(const ReductionPlan& plan, const CpuArgs& a, std::int64_t first, std::int64_t end) {
  if constexpr (kHasLongRows<Op>) {
    const auto& [outputs, terms] = plan.reduction;
    auto* parts = static_cast<typename Op::Value*>(a.workspace());
    for (std::int64_t p = first; p < end; ++p) {
      const std::int64_t begin = p % plan.parts * kTileElements;
      const auto* x = a.in<typename Op::Term>(0) + outputs.find(p / plan.parts) + begin;
      parts[p] = reduce_long_row<Op>(std::min(kTileElements, terms.size - begin), x, begin);
    }
  }
}
template <class Op>
void join_parts_cpu(const ReductionPlan& plan, const CpuArgs& a) {
  const auto* part = static_cast<const typename Op::Value*>(a.workspace());
  const Op op = op_of<Op>(plan);
  for (std::int64_t o = 0; o < plan.reduction.outputs.size; ++o, part += plan.parts)
    a.out<typename Op::Result>(0)[o] = op.result(std::accumulate(part, part + plan.parts, Op::none(), Op::join));
}
constexpr std::int64_t kLeastInParts = 2 * kTileElements;
// Rows that a group reduces have the bits of those that are reduced alone, so neither may be in parts. In a
// group, the rows of at least four values together fit into kMaxFusedRowBytes, so such rows are short enough.
static_assert(kMaxFusedRowBytes / 4 < kLeastInParts);
template <class Op>
std::int64_t count_parts_on_cpu(const Layout<1>& terms) {
  const bool is_long_row = terms.rank == 1 && terms.step(0) == 1 && terms.size >= kLeastInParts;
  return kHasLongRows<Op> && is_long_row ? (terms.size + kTileElements - 1) / kTileElements : 1;
}

// Reduces rows that lie one after the other.
template <class Op>
void reduce_rows_cpu(const ReductionPlan& plan, std::int64_t rows, const void* in, void* out) {
  const Layout<1>& terms = plan.reduction.terms;
  const auto* x = static_cast<const typename Op::Term*>(in);
  Op op = op_of<Op>(plan);
  for (std::int64_t r = 0; r < rows; ++r)
    static_cast<typename Op::Result*>(out)[r] = op.result(reduce_terms<Op>(x + r * terms.size, terms));
}

// The shape of the first operand without these axes, or with 1 in their place.
inline Shape reduced_shape(const InferArgs& a, const std::vector<int>& axes, bool keep_axes) {
  const Shape& shape = a.in(0).shape;
  std::vector<int> seen;
  for (int axis : axes) {
    int d = from_front(axis, shape.rank());
    if (d < 0 || d >= shape.rank())
      a.fail("there is no axis " + std::to_string(axis), "name axes from -rank to rank - 1");
    if (std::find(seen.begin(), seen.end(), d) != seen.end())
      a.fail("axis " + std::to_string(axis) + " is named twice", "name each axis once");
    seen.push_back(d);
  }
  bool is_reduced[Shape::kMaxRank] = {};
  mark_axes(axes, shape.rank(), is_reduced);
  Shape out;
  for (int d = 0; d < shape.rank(); ++d) {
    if (!is_reduced[d]) out.push_back(shape[d]);
    if (is_reduced[d] && keep_axes) out.push_back(1);
  }
  return out;
}

inline ReductionPlan plan_reduction(const Shape& shape, const bool (&is_reduced)[Shape::kMaxRank]) {
  ReductionPlan plan;
  std::int64_t strides[Shape::kMaxRank] = {};
  dense_strides(shape, strides);
  for (int d = 0; d < shape.rank(); ++d) {
    Layout<1>& layout = is_reduced[d] ? plan.reduction.terms : plan.reduction.outputs;
    layout.size *= shape[d];
    if (shape.size() > 0) append(layout, shape[d], {strides[d]});
  }
  choose_kernel(plan);
  return plan;
}

// See RowReduction::width.
inline std::int64_t width_of_rows(const Shape& shape, const std::vector<int>& axes) {
  bool is_reduced[Shape::kMaxRank] = {};
  mark_axes(axes, shape.rank(), is_reduced);
  const auto& [outputs, terms] = plan_reduction(shape, is_reduced).reduction;
  if (shape.size() == 0 || terms.rank != 1 || terms.step(0) != 1) return 0;
  const bool are_rows = outputs.rank == 0 || (outputs.rank == 1 && outputs.step(0) == terms.size);
  return are_rows ? terms.size : 0;
}
template <class Attributes>
std::int64_t row_width(const TensorType& operand, const Attrs& attrs) {
  return width_of_rows(operand.shape, attrs.as<Attributes>().axes);
}

// The bodies of `plan` for one operation on either side.
template <class OnCpu, class OnCuda>
void choose_op(const PrepareArgs& p, ReductionPlan& plan) {
  load_kernels<reduce<OnCuda, ByThread>, reduce<OnCuda, ByWarp>, reduce<OnCuda, ByBlock>,
               reduce<PartOf<OnCuda>, ByBlock>, reduce<JoinOf<OnCuda>, ByBlock>>(p);
  plan.cpu = reduce_cpu<OnCpu>;
  plan.cpu_rows = reduce_rows_cpu<OnCpu>;
  plan.cpu_parts = reduce_parts_cpu<OnCpu>;
  plan.cpu_join = join_parts_cpu<OnCpu>;
  plan.cuda = reduce_cuda<OnCuda>;
  plan.value = p.cuda ? sizeof(typename OnCuda::Value) : sizeof(typename OnCpu::Value);
  if (!p.cuda) plan.parts = count_parts_on_cpu<OnCpu>(plan.reduction.terms);
}

inline Prepared prepared(const ReductionPlan& plan) {
  std::size_t parts = static_cast<std::size_t>(plan.reduction.outputs.size * plan.parts) * plan.value;
  return {std::make_shared<ReductionPlan>(plan), plan.parts > 1 ? parts : 0};
}

// A tile is some elements of the result, at least as many as are made together, or one part of an element.
inline std::int64_t terms_of_tile(const ReductionPlan& plan) {
  constexpr std::int64_t kTogether = 64;
  const auto& [outputs, terms] = plan.reduction;
  const bool are_columns = outputs.rank > 0 && outputs.step(0) == 1;
  return are_columns ? std::min(terms.size, kTileElements / kTogether) : terms.size;
}
inline std::int64_t count_reduction_tiles(const BodyArgs& a) {
  const auto& plan = a.local<ReductionPlan>();
  if (plan.parts > 1) return std::max<std::int64_t>(1, plan.reduction.outputs.size * plan.parts);
  return count_row_tiles(plan.reduction.outputs.size, terms_of_tile(plan));
}
inline void run_reduction_tiles(const CpuArgs& a, std::int64_t first, std::int64_t end) {
  const auto& plan = a.local<ReductionPlan>();
  if (plan.parts > 1) return plan.cpu_parts(plan, a, first, std::min(end, plan.reduction.outputs.size * plan.parts));
  const RowRange range(first, end, plan.reduction.outputs.size, terms_of_tile(plan));
  plan.cpu(plan, a, range.first, range.end);
}
inline void join_reduction_tiles(const CpuArgs& a) {
  const auto& plan = a.local<ReductionPlan>();
  plan.cpu_join(plan, a);
}
inline constexpr Tiles kReductionTiles{count_reduction_tiles, run_reduction_tiles, join_reduction_tiles};
inline void run_reduction_rows(const CpuArgs& a, std::int64_t rows, const void* in, void* out) {
  const auto& plan = a.local<ReductionPlan>();
  plan.cpu_rows(plan, rows, in, out);
}
template <class Attributes, std::string (*operation)(DType, const Attrs&)>
constexpr RowReduction kRowReduction{row_width<Attributes>, run_reduction_rows, operation};

inline void reduction_cuda(CudaArgs& a) {
  const auto& plan = a.local<ReductionPlan>();
  plan.cuda(plan, a);
}

}  // namespace graphsink
