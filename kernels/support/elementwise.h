// Element-wise ops. One scalar expression yields the CPU body, the kernels and Elements::text.
#pragma once

#include <string_view>

#include "graphsink/ops.h"
#include "kernels/support/dtype.h"
#include "kernels/support/half_rows.h"
#include "kernels/support/layout.h"
#include "kernels/support/reduce_ops.h"
#include "kernels/support/threads.h"
#include "kernels/support/tiles.h"

// Defines a functor for an expression in x, in a and b, or in a, b and c, all of type T. half and bfloat16 use the
// functor with T = float. The planner knows those with a Scalar.
#define GRAPHSINK_SCALAR(Name, scalar, parameters, ...)     \
  struct Name {                                             \
    static constexpr Scalar kScalar = Scalar::scalar;       \
    static constexpr std::string_view kText = #__VA_ARGS__; \
    template <class T>                                      \
    HD static auto apply parameters {                       \
      return __VA_ARGS__;                                   \
    }                                                       \
  }
#define UNARY_SCALAR(Name, scalar, ...) GRAPHSINK_SCALAR(Name, scalar, (T x), __VA_ARGS__)
#define BINARY_SCALAR(Name, scalar, ...) GRAPHSINK_SCALAR(Name, scalar, (T a, T b), __VA_ARGS__)
#define UNARY_EXPRESSION(Name, ...) UNARY_SCALAR(Name, other, __VA_ARGS__)
#define BINARY_EXPRESSION(Name, ...) BINARY_SCALAR(Name, other, __VA_ARGS__)
#define TERNARY_EXPRESSION(Name, ...) GRAPHSINK_SCALAR(Name, other, (T a, T b, T c), __VA_ARGS__)

namespace graphsink {

template <class In, int N>
struct Operands {
  const In* data[N];
  bool is_repeated[N];  // the operand has one element
};

template <class F, class In, int N>
HD auto apply(const In (&x)[N]) {
  if constexpr (N == 1) {
    return F::apply(Wide<In>(x[0]));
  } else if constexpr (N == 2) {
    return F::apply(Wide<In>(x[0]), Wide<In>(x[1]));
  } else {
    return F::apply(Wide<In>(x[0]), Wide<In>(x[1]), Wide<In>(x[2]));
  }
}

template <class F, class In, class Out, int N>
__global__ void map_contiguous(Operands<In, N> in, Out* out, std::int64_t size) {
  wait_for_inputs();
  for_each_pack(
      size,
      [&](std::int64_t p) {
        Pack<In> x[N];
        for (int n = 0; n < N; ++n) {
          if (in.is_repeated[n]) {
            for (In& element : x[n].elements) element = *in.data[n];
          } else {
            x[n] = reinterpret_cast<const Pack<In>*>(in.data[n])[p];
          }
        }
        Pack<Out> y;
        for (int j = 0; j < kPack; ++j) {
          In element[N];
          for (int n = 0; n < N; ++n) element[n] = x[n].elements[j];
          y.elements[j] = static_cast<Out>(apply<F>(element));
        }
        reinterpret_cast<Pack<Out>*>(out)[p] = y;
      },
      [&](std::int64_t i) {
        In element[N];
        for (int n = 0; n < N; ++n) element[n] = in.data[n][in.is_repeated[n] ? 0 : i];
        out[i] = static_cast<Out>(apply<F>(element));
      });
}

template <class F, class In, class Out, int N>
__global__ void map_broadcast(Operands<In, N> in, Out* out, Layout<N> layout) {
  wait_for_inputs();
  for_each_element(layout.size, [&](std::int64_t i) {
    std::int64_t offsets[N];
    layout.find(i, offsets);
    In element[N];
    for (int n = 0; n < N; ++n) element[n] = in.data[n][offsets[n]];
    out[i] = static_cast<Out>(apply<F>(element));
  });
}

template <class F, class In, class Out, int N>
void map_cuda(const Layout<N>& layout, CudaArgs& a) {
  Operands<In, N> in{};
  for (int n = 0; n < N; ++n) in.data[n] = a.in<In>(n);
  if constexpr (N > 1) {
    if (layout.rank > 1) {
      return a.launch(map_broadcast<F, In, Out, N>, launch_size(layout.size), in, a.out<Out>(0), layout);
    }
  }
  for (int n = 0; n < N; ++n) in.is_repeated[n] = layout.step(n) == 0;
  a.launch(map_contiguous<F, In, Out, N>, launch_size((layout.size + kPack - 1) / kPack), in, a.out<Out>(0),
           layout.size);
}

// Computes one row of the innermost dimension, as F::row(size, x, out) or F::repeated_row(size, a, b, out) does, where
// b is one number, if F has a faster loop with the same results. Precondition: size > 0.
template <class F, class In, class Out>
void map_row(std::int64_t size, const In* x, std::int64_t, Out* out) {
  if constexpr (requires { F::row(size, x, out); }) return F::row(size, x, out);
  for_each_index(size, [=](std::int64_t i) { out[i] = static_cast<Out>(F::apply(Wide<In>(x[i]))); });
}
template <class F, class In, class Out>
void map_row(std::int64_t size, const In* a, std::int64_t step_a, const In* b, std::int64_t step_b, Out* out) {
  Wide<In> first_a(*a), first_b(*b);
  if (step_a == 0) {
    for_each_index(size, [=](std::int64_t i) { out[i] = static_cast<Out>(F::apply(first_a, Wide<In>(b[i]))); });
  } else if (step_b == 0) {
    if constexpr (requires { F::repeated_row(size, a, first_b, out); }) return F::repeated_row(size, a, first_b, out);
    for_each_index(size, [=](std::int64_t i) { out[i] = static_cast<Out>(F::apply(Wide<In>(a[i]), first_b)); });
  } else {
    for_each_index(size, [=](std::int64_t i) { out[i] = static_cast<Out>(F::apply(Wide<In>(a[i]), Wide<In>(b[i]))); });
  }
}
template <class F, class In, class Out>
void map_row(std::int64_t size, const In* a, std::int64_t step_a, const In* b, std::int64_t step_b, const In* c,
             std::int64_t step_c, Out* out) {
  auto at = [](In x, In y, In z) { return static_cast<Out>(F::apply(Wide<In>(x), Wide<In>(y), Wide<In>(z))); };
  if (step_a == 1 && step_b == 1 && step_c == 1) {
    for_each_index(size, [=](std::int64_t i) { out[i] = at(a[i], b[i], c[i]); });
  } else {
    for_each_index(size, [=](std::int64_t i) { out[i] = at(a[i * step_a], b[i * step_b], c[i * step_c]); });
  }
}

// Whether map_row() has a faster loop than one over elements.
template <class F, int N>
bool has_own_row(const std::int64_t* steps) {
  constexpr bool kOfOne = requires(const float* x, float* out) { F::row(1, x, out); };
  constexpr bool kOfRepeated = requires(const float* x, float* out) { F::repeated_row(1, x, 1.0f, out); };
  return N == 1 ? kOfOne : N == 2 && kOfRepeated && steps[1] == 0;
}

// The same for half, of which many elements are converted to float together. Steps are 0 or 1. Loops that take floats
// from memory (has_own_row()), and what is left behind the last block, have a longer block converted before and behind.
template <class F, int N, class Out>
void map_half_row(std::int64_t size, const half* const (&in)[N], const std::int64_t* steps, Out* out) {
  constexpr std::int64_t kBlock = 512;
  using Result = std::conditional_t<std::is_same_v<Out, half>, float, Out>;
  float operands[N][kBlock];
  Result results[kBlock];
  std::int64_t first = 0;
#ifdef GRAPHSINK_HALF_BLOCKS
  if constexpr (std::is_same_v<Out, half>) {
    if (!has_own_row<F, N>(steps)) first = map_half(size, in, steps, out, [](auto& x) { return apply<F>(x); });
  }
#endif
  for (; first < size; first += kBlock) {
    std::int64_t n = std::min(kBlock, size - first);
    for (int k = 0; k < N; ++k) widen(steps[k] == 0 ? 1 : n, in[k] + first * steps[k], operands[k]);
    if constexpr (N == 1) {
      map_row<F>(n, operands[0], steps[0], results);
    } else if constexpr (N == 2) {
      map_row<F>(n, operands[0], steps[0], operands[1], steps[1], results);
    } else {
      map_row<F>(n, operands[0], steps[0], operands[1], steps[1], operands[2], steps[2], results);
    }
    if constexpr (std::is_same_v<Out, half>) {
      narrow(n, results, out + first);
    } else {
      std::copy_n(results, n, out + first);
    }
  }
}

// An ElementwiseRow.
template <class F, class In, class Out, int N>
void elementwise_row(std::int64_t size, const void* const* in, const std::int64_t* steps, void* out) {
  auto operand = [&](int n) { return static_cast<const In*>(in[n]); };
  auto* result = static_cast<Out*>(out);
  if constexpr (std::is_same_v<In, half>) {
    if constexpr (requires { F::row(size, operand(0), result); }) {
      F::row(size, operand(0), result);
    } else {
      const half* halves[N];
      for (int n = 0; n < N; ++n) halves[n] = operand(n);
      map_half_row<F>(size, halves, steps, result);
    }
  } else if constexpr (N == 1) {
    map_row<F>(size, operand(0), steps[0], result);
  } else if constexpr (N == 2) {
    map_row<F>(size, operand(0), steps[0], operand(1), steps[1], result);
  } else {
    map_row<F>(size, operand(0), steps[0], operand(1), steps[1], operand(2), steps[2], result);
  }
}

template <class F, class In, class Out, int N>
void map_cpu(const Layout<N>& layout, const CpuArgs& a, std::int64_t begin, std::int64_t size, void* result) {
  const std::int64_t row = layout.row(), end = begin + size;
  std::int64_t steps[N];
  for (int n = 0; n < N; ++n) steps[n] = layout.step(n);
  Out* out = static_cast<Out*>(result);
  std::int64_t in_row = begin % row;  // place of the first element in its row
  for (std::int64_t i = begin, count = 0; i < end; i += count, out += count, in_row = 0) {
    count = std::min(row - in_row, end - i);
    std::int64_t offsets[N] = {};
    if (i > 0) layout.find(i, offsets);
    const void* in[N];
    for (int n = 0; n < N; ++n) in[n] = a.in<In>(n) + offsets[n];
    elementwise_row<F, In, Out, N>(count, in, steps, out);
  }
}

// Choice of prepare(): the bodies for the dtypes, and the layout for the shapes.
template <int N>
struct ElementwisePlan {
  void (*cpu)(const Layout<N>&, const CpuArgs&, std::int64_t begin, std::int64_t size, void* out) = nullptr;
  void (*cuda)(const Layout<N>&, CudaArgs&) = nullptr;
  Layout<N> layout;
};

template <class F, class In, class Out, int N>
ElementwisePlan<N> elementwise_plan(const PrepareArgs& p) {
  load_kernel(p, map_contiguous<F, In, Out, N>);
  if constexpr (N > 1) load_kernel(p, map_broadcast<F, In, Out, N>);
  Shape shapes[N];
  for (int n = 0; n < N; ++n) shapes[n] = p.in(n).shape;
  return {map_cpu<F, In, Out, N>, map_cuda<F, In, Out, N>, make_layout<N>(p.out(0).shape, shapes)};
}

template <int N>
void elementwise_part(const CpuArgs& a, std::int64_t begin, std::int64_t size, void* out) {
  const auto& plan = a.local<ElementwisePlan<N>>();
  plan.cpu(plan.layout, a, begin, size, out);
}
template <int N>
void elementwise_cpu(const CpuArgs& a) {
  const auto& plan = a.local<ElementwisePlan<N>>();
  if (plan.layout.size > 0) plan.cpu(plan.layout, a, 0, plan.layout.size, a.out<void>(0));
}
template <int N>
void elementwise_cuda(CudaArgs& a) {
  const auto& plan = a.local<ElementwisePlan<N>>();
  plan.cuda(plan.layout, a);
}
// Elements::type of ops whose operands are not converted before.
inline std::string_view as_stored(std::span<const TensorType>) { return ""; }
template <int N>
inline constexpr Alias kElementwiseInPlace[N] = {};
template <>
inline constexpr Alias kElementwiseInPlace<2>[2] = {{0, 0}, {0, 1}};
template <>
inline constexpr Alias kElementwiseInPlace<3>[3] = {{0, 0}, {0, 1}, {0, 2}};

// Tells whether elements of this dtype are computed in T.
template <class T>
constexpr bool is_computed_in(DType dtype) {
  return dtype == element_dtype<T>() || (std::is_same_v<T, float> && is_half(dtype));
}

// The result of F for elements of type In. If F returns the type that In is computed in, the result is stored as In.
template <class F, class In, int N>
struct ResultOf {
  using Type = decltype(apply<F>(std::declval<const In (&)[N]>()));
  using Stored = std::conditional_t<std::is_same_v<Type, Wide<In>>, In, Type>;
};

// Infers the type of an element-wise F on N inputs of one dtype, which must be computed in one of the types Ts. The
// result is boolean if F returns bool; else it has the dtype of the inputs.
template <class F, int N, class... Ts>
void infer_elementwise(InferArgs& a) {
  a.expect_inputs(N);
  a.expect_same_dtype(N);
  DType in = a.in(0).dtype;
  if (!(is_computed_in<Ts>(in) || ...)) {
    std::string taken;
    for (DType dtype : kAllDTypes)
      if ((is_computed_in<Ts>(dtype) || ...)) taken += (taken.empty() ? "" : ", ") + std::string(to_string(dtype));
    a.fail("takes " + taken, "cast() the operands to one of these that holds their numbers");
  }
  Shape shape = a.in(0).shape;
  for (int n = 1; n < N; ++n) shape = broadcast_shape(a, shape, a.in(n).shape);
  constexpr bool is_comparison = (std::is_same_v<typename ResultOf<F, Ts, N>::Type, bool> && ...);
  a.out(is_comparison ? DType::boolean : in, shape);
}

// Calls body.operator()<In>() with the type of the elements, which must be computed in one of the types Ts.
template <class... Ts, class Body>
void for_elements(DType dtype, const Body& body) {
  if constexpr ((std::is_same_v<Ts, float> || ...)) {
    if (is_half(dtype)) return for_dtype<half, bfloat16>(dtype, body);
  }
  for_dtype<Ts...>(dtype, body);
}

template <class F, int N, class... Ts>
Prepared prepare_elementwise(const PrepareArgs& p) {
  ElementwisePlan<N> plan;
  for_elements<Ts...>(p.in(0).dtype,
                      [&]<class In>() { plan = elementwise_plan<F, In, typename ResultOf<F, In, N>::Stored, N>(p); });
  return {std::make_shared<ElementwisePlan<N>>(plan)};
}

template <class F, int N, class... Ts>
ElementwiseRow choose_row(std::span<const TensorType> types) {
  ElementwiseRow row = nullptr;
  for_elements<Ts...>(types[0].dtype,
                      [&]<class In>() { row = elementwise_row<F, In, typename ResultOf<F, In, N>::Stored, N>; });
  return row;
}

// Elements::type.
template <class... Ts>
std::string_view choose_type(std::span<const TensorType> types) {
  std::string_view name;
  ((is_computed_in<Ts>(types[0].dtype) ? void(name = type_name<Ts>()) : void()), ...);
  return name;
}

// A Gradient::Formula, as a function of two or three operands.
template <auto formula>
std::vector<Value> formula_of(std::span<const Value> in, const Attrs&) {
  if constexpr (requires { formula(in[0], in[1]); }) {
    return {formula(in[0], in[1])};
  } else {
    return {formula(in[0], in[1], in[2])};
  }
}

template <class F, int N, class... Ts>
constexpr OpDef elementwise_op(std::string_view name, Gradient grad = {}) {
  return {.name = name,
          .infer = infer_elementwise<F, N, Ts...>,
          .in_place = kElementwiseInPlace<N>,
          .traits = {.kernels_wait = true},
          .prepare = prepare_elementwise<F, N, Ts...>,
          .elements = {F::kScalar, F::kText, choose_type<Ts...>, choose_row<F, N, Ts...>},
          .bodies = {{elementwise_part<N>, elementwise_cpu<N>}, elementwise_cuda<N>},
          .grad = grad};
}

}  // namespace graphsink
