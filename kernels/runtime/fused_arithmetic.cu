#include "kernels/runtime/fused_arithmetic.h"

#include <algorithm>
#include <array>
#include <utility>

#include "kernels/support/kernel.h"

namespace graphsink {
namespace {

constexpr std::array kArithmetic = {Scalar::add, Scalar::subtract, Scalar::multiply};

template <int number>
float compute(float a, float b) {
  constexpr Scalar kScalar = kArithmetic[number];
  if constexpr (kScalar == Scalar::add) return a + b;
  if constexpr (kScalar == Scalar::subtract) return a - b;
  if constexpr (kScalar == Scalar::multiply) return a * b;
}

// Which operands have more than one element: both of the first op or either; the other one of the second op, or not.
struct Steps {
  bool a, b, c;
};
constexpr Steps kSteps[] = {{true, true, true},  {true, false, true},  {false, true, true},
                            {true, true, false}, {true, false, false}, {false, true, false}};

template <bool is_many>
float element(const float* data, float first, std::int64_t i) {
  return is_many ? data[i] : first;
}

// `operand`: of the second op, the result of the first.
template <int first, int second, int operand, int steps>
void pair_row(std::int64_t size, const void* const* in, const std::int64_t*, void* result) {
  constexpr Steps kMany = kSteps[steps];
  const auto *a = static_cast<const float*>(in[0]), *b = static_cast<const float*>(in[1]),
             *c = static_cast<const float*>(in[2]);
  const float first_a = *a, first_b = *b, first_c = *c;
  auto* out = static_cast<float*>(result);
  for_each_index(size, [=](std::int64_t i) {
    const float inner = compute<first>(element<kMany.a>(a, first_a, i), element<kMany.b>(b, first_b, i));
    const float other = element<kMany.c>(c, first_c, i);
    out[i] = operand == 0 ? compute<second>(inner, other) : compute<second>(other, inner);
  });
}

constexpr std::size_t kKinds = kArithmetic.size(), kPatterns = std::size(kSteps);

template <std::size_t... numbers>
constexpr std::array<ElementwiseRow, sizeof...(numbers)> make_rows(std::index_sequence<numbers...>) {
  return {pair_row<numbers / (kKinds * 2 * kPatterns), numbers / (2 * kPatterns) % kKinds, numbers / kPatterns % 2,
                   numbers % kPatterns>...};
}
constexpr auto kRows = make_rows(std::make_index_sequence<kKinds * kKinds * 2 * kPatterns>());

float factor_of(const Affine& a) { return a.factor_sign * (a.factor ? *a.factor : 1.0f); }
float summand_of(const Affine& a) { return a.summand_sign * (a.summand ? *a.summand : -0.0f); }

template <std::size_t... k>
void compute_affine(std::int64_t size, const float* x, const Affine* expressions, float* out,
                    std::index_sequence<k...>) {
  const std::array factors = {factor_of(expressions[k])...}, summands = {summand_of(expressions[k])...};
  for_each_index(size, [=](std::int64_t i) {
    float value = x[i];
    ((value = value * factors[k] + summands[k]), ...);
    out[i] = value;
  });
}
template <std::size_t count>
void affine_row(std::int64_t size, const float* x, const Affine* expressions, float* out) {
  compute_affine(size, x, expressions, out, std::make_index_sequence<count>());
}

}  // namespace

Scalar arithmetic_of(const FusedOp& op) {
  const bool is_f32 =
      std::all_of(op.types.begin(), op.types.end(), [](auto& type) { return type.dtype == DType::f32; });
  const Scalar scalar = op.op->elements.scalar;
  const bool is_known = std::find(kArithmetic.begin(), kArithmetic.end(), scalar) != kArithmetic.end();
  return is_f32 && op.op->elements.row && is_known ? scalar : Scalar::other;
}

ElementwiseRow row_of(const FusedPair& pair) {
  const auto number_of = [](const FusedOp& op) {
    return static_cast<std::size_t>(std::find(kArithmetic.begin(), kArithmetic.end(), arithmetic_of(op)) -
                                    kArithmetic.begin());
  };
  const std::size_t first = number_of(pair.first), second = number_of(pair.second);
  if (first == kKinds || second == kKinds) return nullptr;
  auto is_pattern = [&](const Steps& steps) {
    return steps.a == (pair.steps[0] != 0) && steps.b == (pair.steps[1] != 0) && steps.c == (pair.steps[2] != 0);
  };
  const auto steps = static_cast<std::size_t>(std::find_if(std::begin(kSteps), std::end(kSteps), is_pattern) - kSteps);
  if (steps == kPatterns) return nullptr;
  const auto operand = static_cast<std::size_t>(pair.operand);
  const std::size_t kinds = first * kKinds + second;
  return kRows[(kinds * 2 + operand) * kPatterns + steps];
}

void run_affine(std::int64_t size, const float* x, std::span<const Affine> expressions, float* out) {
  static_assert(kMostAffine == 4);
  constexpr decltype(&affine_row<1>) kRowsOf[] = {affine_row<1>, affine_row<2>, affine_row<3>, affine_row<4>};
  kRowsOf[expressions.size() - 1](size, x, expressions.data(), out);
}

}  // namespace graphsink
