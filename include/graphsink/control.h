// if_, switch_ and while_: control flow as nodes of the graph. A launch holds them as conditional nodes if the device
// can do that; if not, the host drives them, and explain() says why. Bodies may read any Value made before them. A
// Value made in a body exists only there: using it after the body, in the other branch or in another body throws Error.
// Bodies return the Values that are needed outside, or assign() them to Variables.
//
// A body may lie in a body of another loop or branch, and so on, kMaxNestedBodies deep; a deeper one throws Error where
// it is built. Loops with `recompute` are two, one in the other. grad() builds bodies, too: those of the gradient of a
// loop or branch nest as deep as its own.
#pragma once

#include <array>
#include <concepts>
#include <cstdint>
#include <functional>
#include <ranges>
#include <span>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "graphsink/graph.h"
#include "graphsink/version.h"

namespace GRAPHSINK_PUBLIC graphsink {

using Values = std::vector<Value>;  // state and results of bodies

// How deep bodies nest: the body of an if_ that lies in no other body is 1 deep. The planner and the executors walk
// bodies recursively; so many levels fit a stack of 1 MiB.
inline constexpr int kMaxNestedBodies = 64;

// Options of while_().
struct WhileOptions {
  // A loop whose condition still holds after this many iterations is ended, and the step fails. 0 means no limit: a
  // loop whose condition always holds never ends.
  std::int64_t max_iterations = 0;
  // Takes less memory for the gradient of a loop with max_iterations, n: it keeps about 2 sqrt(n) states instead of n,
  // and runs the loop again, sqrt(n) iterations at a time ("Training Deep Nets with Sublinear Memory Cost", Chen et al.
  // 2016). For that the loop is made of two, one in the other, so that random ops in it draw other numbers. Otherwise
  // the results have the same bits; gradients that are sums over the iterations are added up in another order. A loop
  // with max_iterations of at most 3 is built as without it.
  bool recompute = false;
};

namespace detail {
template <class T>
concept ArgRange =
    std::ranges::forward_range<const T> && std::convertible_to<std::ranges::range_reference_t<const T>, Arg>;

Values while_values(std::span<const Arg> init, const std::function<Value(const Values&)>& condition,
                    const std::function<Values(const Values&)>& body);
// The same with a limit of at least one iteration (src/build/while_limit.cpp).
Values while_values(std::span<const Arg> init, const std::function<Value(const Values&)>& condition,
                    const std::function<Values(const Values&)>& body, const WhileOptions& options);
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

// A loop: state = init; while (condition(state...)) state = body(state...); returns the last state. `condition` returns
// a boolean scalar. `body` returns a Value (N = 1) or a std::array<Value, N>, with the types of `init`. A loop with
// max_iterations has a gradient, for which it keeps its state of each iteration, max_iterations times its size; without
// a limit grad() throws Error.
//
// In a step, a loop of n iterations evaluates the condition n + 1 times, whatever the options are: random ops in it
// draw new numbers each time, and what it assigns to Variables counts each time.
//
// Both functions are called while the graph is built: `condition` with the state that the loop begins with, then `body`
// with that of an iteration, and `condition` with what the body has returned. If one of the last two calls assigns
// Variables, both are made a second time, and with `recompute` a third and a fourth time; only what the last ones build
// stays. Where such loops nest, that multiplies: with an assign() in the innermost body of a nest of d loops, that body
// is called 2^d times, and 4^d times with `recompute`.
//
// A condition that compares denormal numbers may end the loop after another number of iterations on another device: CPU
// bodies read and write them as zeros, unless CompileOptions::flush_denormals is false, and GPU kernels compute with
// them.
template <std::size_t N, class Condition, class Body>
std::array<Value, N> while_(const Arg (&init)[N], const Condition& condition, const Body& body,
                            const WhileOptions& options = {}) {
  constexpr auto indices = std::make_index_sequence<N>();
  Values results = detail::while_values(
      init, [&](const Values& state) { return Value(detail::apply(condition, state, indices)); },
      [&](const Values& state) { return detail::to_values(detail::apply(body, state, indices)); }, options);
  std::array<Value, N> out;
  for (std::size_t i = 0; i < N; ++i) out[i] = results[i];
  return out;
}

// The same for a number of Values that is known only at run time. `init` is a std::vector, or another range, of Values,
// Variables or numbers. Condition and body take a `const Values&`, and the body returns Values.
template <detail::ArgRange Init, class Condition, class Body>
Values while_(const Init& init, const Condition& condition, const Body& body, const WhileOptions& options = {},
              Where where = Where::current()) {
  std::vector<Arg> args;
  for (const auto& value : init) {
    if constexpr (std::same_as<std::ranges::range_value_t<Init>, Arg>) {
      args.push_back(value);
    } else {
      args.emplace_back(value, where);
    }
  }
  if (args.empty())
    throw Error("while_", where, "the state is empty", "begin with one Value at least, such as a counter");
  return detail::while_values(
      args, [&](const Values& state) { return Value(condition(state)); },
      [&](const Values& state) { return detail::to_values(body(state)); }, options);
}

// A branch: returns the results of `then_body` if the predicate, a boolean scalar, is true, else those of `else_body`.
// Both return a Value, or both a std::vector of Values, with the same types. The gradient is that of the branch that
// was taken.
template <class Then, class Else>
auto if_(const Arg& predicate, const Then& then_body, const Else& else_body) {
  Values results = detail::if_values(
      predicate, [&] { return detail::to_values(then_body()); }, [&] { return detail::to_values(else_body()); });
  if constexpr (std::convertible_to<std::invoke_result_t<const Then&>, Value>) {
    return results[0];
  } else {
    return results;
  }
}

// A choice among several bodies: returns the results of bodies[index]. `index` is one integer (i32, i64 or u8). A step
// in which it is not the number of a body fails, and commits nothing. All bodies return a Value, or all a std::vector
// of Values, with the same types. The gradient is that of the body that was chosen.
// @{
Value switch_(const Arg& index, const std::vector<std::function<Value()>>& bodies);
Values switch_(const Arg& index, const std::vector<std::function<Values()>>& bodies);
// @}

// The state of a loop over slices, and Values of an iteration: of one, or of all, stacked along a new first axis.
struct Scan {
  Values state;    // next state, with the types of `init`; from scan(), the last one
  Values outputs;  // Values to keep, [...] each; from scan(), those of all iterations, [iterations, ...]
};
// Options of scan().
struct ScanOptions {
  std::int64_t iterations = 0;  // 0: as many as the inputs have slices
  bool recompute = false;       // as in WhileOptions; the body is called twice if there is a rest of iterations
};

// A loop over the slices of `inputs` along their first axis, which must be as long for all: iteration i gets slice i of
// each, and the state. It returns the next state, with the types of `init`, and Values to keep. The result is the last
// state, and what was kept, stacked: [iterations, ...]. Without inputs, give the number of iterations. It has a
// gradient, for which it keeps its state of each iteration; gradients of 16-bit Values from outside are added up in f32
// over the iterations, and rounded once. That holds with `recompute`, for while_(), and for loops in the bodies of
// loops, too, but a branch rounds what the loops in its bodies add up. `body` is called while the graph is built: once,
// unless it assigns Variables or the options say otherwise.
Scan scan(const std::vector<Arg>& init, const std::vector<Arg>& inputs,
          const std::function<Scan(const Values& state, const Values& slices)>& body, const ScanOptions& options = {},
          Where where = Where::current());

}  // namespace graphsink
