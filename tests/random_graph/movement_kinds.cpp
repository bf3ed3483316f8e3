// Kinds of entries that move, choose or sum up elements.
#include <climits>

#include "site.h"

namespace graphsink::testing {
namespace {

// None, one or two axes.
std::vector<int> axes(Site& s, const Value& x) {
  std::vector<int> result;
  for (int d = 0; d < x.shape().rank() && result.size() < 2; ++d)
    if (s.random.chance(40)) result.push_back(s.random.chance(50) ? d : d - x.shape().rank());
  return result;
}
template <Value (*op)(Arg, Axes, ReduceOptions, Placement)>
Values reduce(Site& s) {
  constexpr Value (*kMean)(Arg, Axes, ReduceOptions, Placement) = mean;
  Value x = s.number(0);
  if (op == kMean || op == logsumexp) x = s.floating(0);
  if (op == prod) x = clamp(x, -1, 1);
  if (op == any || op == all) x = Site::as(x, boolean);
  std::vector<int> over = axes(s, x);
  return {s.tame(op(x, over, {s.random.chance(50)}, s.placement))};
}
// --- movement

Values slices(Site& s) {
  Value x = Site::with_axes(s.any(0));
  std::vector<std::int64_t> begins, ends, steps;
  for (int d = 0; d < x.shape().rank(); ++d) {
    std::int64_t n = x.shape()[d];
    bool is_back = s.random.chance(25);
    begins.push_back(is_back ? n - 1 : s.random.below(static_cast<int>((n + 1) / 2)));
    ends.push_back(is_back ? INT64_MIN : n);
    steps.push_back((is_back ? -1 : 1) * (1 + s.random.below(2)));
  }
  return {slice(x, begins, ends, steps, s.placement)};
}
Values pads(Site& s) {
  Value x = s.any(0);
  std::vector<std::int64_t> before, after;
  for (int d = 0; d < x.shape().rank(); ++d) {
    before.push_back(s.random.below(2));
    after.push_back(s.random.below(2));
  }
  return {pad(x, before, after, 1, s.placement)};
}
Values permutes(Site& s) {
  Value x = s.any(0);
  std::vector<int> order;
  for (int d = 0; d < x.shape().rank(); ++d)
    order.insert(order.begin() + s.random.below(static_cast<int>(order.size()) + 1), d);
  return {permute(x, order, s.placement)};
}
Values splits(Site& s) {
  Value x = Site::with_axes(s.any(0));
  int d = s.axis(x);
  std::int64_t n = x.shape()[d];
  if (n < 2) return {concat({x, x}, d, s.placement)};
  if (n % 2 == 0 && s.random.chance(50)) return split(x, 2, d, s.placement);
  return split(x, std::vector<std::int64_t>{1, n - 1}, d, s.placement);
}
Values joins(Site& s) {
  Value x = Site::with_axes(s.any(0));
  Value y = Site::fit(Site::as(s.any(1), x.dtype()), x.shape());
  return {s.random.chance(70) ? concat({x, y}, s.axis(x), s.placement) : stack({x, y}, s.axis(x), s.placement)};
}
Values gathers(Site& s) {
  Value x = Site::with_axes(s.any(0));
  int d = s.axis(x);
  Value at = s.indices(1, x.shape()[d], s.random.chance(50) ? Shape{3} : Shape{2, 2});
  return {gather(x, at, d, s.placement)};
}
Values scatters(Site& s) {
  Value x = s.any(0);
  x = Site::with_axes(is_float(x.dtype()) || x.dtype() == i32 ? x : Site::as(x, f32));
  int d = s.axis(x);
  Shape shape = x.shape();
  shape[d] = 3;
  Value updates = Site::fit(Site::as(s.any(2), x.dtype()), shape);
  return {s.tame(scatter_add(x, s.indices(1, x.shape()[d], {3}), updates, d, s.placement))};
}
Values embeds(Site& s) {
  Value table = Site::fit(s.floating(0), {4, 3});
  return {embedding(table, s.indices(1, 4, {5}), s.placement)};
}
Values reshapes(Site& s) {
  Value x = s.any(0);
  std::int64_t n = x.shape().size();
  int divisor = 1 + s.random.below(4);
  if (n % divisor != 0) return {reshape(x, {-1}, s.placement)};
  return {s.random.chance(50) ? reshape(x, {divisor, -1}, s.placement)
                              : reshape(x, {n / divisor, 1, divisor}, s.placement)};
}

Values top(Site& s) {
  Value x = s.any(0);
  x = Site::with_axes(x.dtype() == boolean ? Site::as(x, i32) : x);
  int d = s.axis(x);
  TopK found = top_k(x, 1 + s.random.below(static_cast<int>(x.shape()[d])), d, s.placement);
  return {found.values, found.indices};
}
Values sorts(Site& s) {
  Value x = s.any(0);
  x = Site::with_axes(x.dtype() == boolean ? Site::as(x, i32) : x);
  Sorted sorted = sort(x, s.axis(x), {.descending = s.random.chance(50)}, s.placement);
  return {sorted.values, sorted.indices};
}
Values takes_along(Site& s) {
  Value x = Site::with_axes(s.any(0));
  int d = s.axis(x);
  Shape shape = x.shape();
  shape[d] = 2;
  return {take_along_axis(x, s.indices(1, x.shape()[d], shape), d, s.placement)};
}
Values arg(Site& s) {
  Value x = Site::with_axes(s.number(0));
  return {(s.random.chance(50) ? argmax : argmin)(x, s.axis(x), {s.random.chance(50)}, s.placement)};
}

const Kind kMovementKinds[] = {
    {"gather", Family::gather, 2, 3, gathers},
    {"scatter_add", Family::gather, 3, 2, scatters},
    {"embedding", Family::gather, 2, 1, embeds},
    {"take_along_axis", Family::gather, 2, 1, takes_along},
    {"one_hot", Family::gather, 1, 1,
     [](Site& s) {
       return Values{one_hot(s.indices(0, 3, {2, 2}), 3, f32, s.placement)};
     }},
    {"tril", Family::movement, 1, 1,
     [](Site& s) { return Values{tril(s.matrices(0), s.random.below(3) - 1, s.placement)}; }},
    {"triu", Family::movement, 1, 1,
     [](Site& s) { return Values{triu(s.matrices(0), s.random.below(3) - 1, s.placement)}; }},
    {"transpose", Family::movement, 1, 3, [](Site& s) { return Values{transpose(s.matrices(0), s.placement)}; }},
    {"permute", Family::movement, 1, 2, permutes},
    {"slice", Family::movement, 1, 3, slices},
    {"pad", Family::movement, 1, 1, pads},
    {"concat", Family::movement, 2, 3, joins},
    {"split", Family::movement, 1, 4, splits},
    {"broadcast_like", Family::movement, 2, 1,
     [](Site& s) {
       Value like = s.any(1);
       return Values{
           broadcast_like(Site::fit(s.number(0), like.shape().rank() ? Shape{1} : Shape{}), like, s.placement)};
     }},
    {"reshape", Family::view, 1, 4, reshapes},
    {"flatten", Family::view, 1, 1, [](Site& s) { return Values{flatten(Site::with_axes(s.any(0)), 0, s.placement)}; }},
    {"stop_gradient", Family::view, 1, 1, [](Site& s) { return Values{stop_gradient(s.any(0), s.placement)}; }},
    {"unsqueeze", Family::view, 1, 1, [](Site& s) { return Values{squeeze(unsqueeze(s.any(0), 0), 0, s.placement)}; }},
    {"argmax", Family::order, 1, 2, arg},
    {"top_k", Family::order, 1, 1, top},
    {"sort", Family::order, 1, 1, sorts},
    {"arange", Family::order, 1, 1,
     [](Site& s) {
       Value x = Site::with_axes(s.any(0));
       return Values{arange(x, s.axis(x), s.random.chance(50) ? i32 : f32, s.placement)};
     }},
    {"cumsum", Family::order, 1, 2,
     [](Site& s) {
       Value x = Site::with_axes(s.number(0));
       CumsumOptions options{s.random.chance(30), s.random.chance(30)};
       return Values{s.tame(cumsum(x, s.axis(x), options, s.placement))};
     }},
    {"sum", Family::reduction, 1, 3, reduce<sum>},
    {"mean", Family::reduction, 1, 3, reduce<mean>},
    {"max", Family::reduction, 1, 2, reduce<max>},
    {"min", Family::reduction, 1, 2, reduce<min>},
    {"prod", Family::reduction, 1, 1, reduce<prod>},
    {"logsumexp", Family::reduction, 1, 1, reduce<logsumexp>},
    {"any", Family::reduction, 1, 1, reduce<any>},
    {"all", Family::reduction, 1, 1, reduce<all>},
    {"var", Family::reduction, 1, 1,
     [](Site& s) {
       Value x = s.floating(0);
       return Values{s.tame(var(x, axes(s, x), {.keep_axes = s.random.chance(50), .correction = 0}, s.placement))};
     }},
};

}  // namespace

std::span<const Kind> movement_kinds() { return kMovementKinds; }

}  // namespace graphsink::testing
