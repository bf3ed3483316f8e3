// if_ and while_: control flow as nodes. Where the device can hold it, a conditional node of the launch; else the host
// decides. Bodies may read any Value made before them; they return Values of the types stated below. A Value made in a
// body has no value outside of it: using one after the body, in the other branch or in another body throws Error,
// unless the body returned it.
#pragma once

#include <array>
#include <functional>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "graphsink/graph.h"

namespace graphsink {

using Values = std::vector<Value>;

namespace detail {
Values while_values(std::span<const Arg> init, const std::function<Value(const Values&)>& condition,
                    const std::function<Values(const Values&)>& body);
Values if_values(const Arg& predicate, const std::function<Values()>& then_body,
                 const std::function<Values()>& else_body);

inline Values to_values(Value value) { return {std::move(value)}; }
inline Values to_values(Values values) { return values; }
template <std::size_t N>
Values to_values(const std::array<Value, N>& values) {
  return {values.begin(), values.end()};
}
template <class F, std::size_t... I>
auto apply(const F& f, const Values& values, std::index_sequence<I...>) {
  return f(values[I]...);
}
}  // namespace detail

// Repeats body while condition holds: state = init; while (condition(state...)) state = body(state...); returns state.
// `condition` returns a boolean scalar; `body` returns a Value (N = 1) or std::array<Value, N> of the types of `init`.
// Both are called while building, the condition twice. There is no gradient through a loop: grad() throws Error.
template <std::size_t N, class Condition, class Body>
std::array<Value, N> while_(const Arg (&init)[N], const Condition& condition, const Body& body) {
  constexpr auto indices = std::make_index_sequence<N>();
  Values results = detail::while_values(
      init, [&](const Values& state) { return Value(detail::apply(condition, state, indices)); },
      [&](const Values& state) { return detail::to_values(detail::apply(body, state, indices)); });
  std::array<Value, N> out;
  for (std::size_t i = 0; i < N; ++i) out[i] = results[i];
  return out;
}

// The result of one of two bodies, each returning a Value; types must agree. `predicate` is a boolean scalar.
// There is no gradient through a branch: grad() throws Error.
template <class Then, class Else>
Value if_(const Arg& predicate, const Then& then_body, const Else& else_body) {
  return detail::if_values(
      predicate, [&] { return detail::to_values(then_body()); }, [&] { return detail::to_values(else_body()); })[0];
}

}  // namespace graphsink
