// Models that are divided among ranks, and built as a whole by one.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "graphsink/graphsink.h"
#include "graphsink/ranks.h"

namespace graphsink::testing {

enum class Divided { no, rows, columns };
inline int axis_of(Divided divided) { return divided == Divided::rows ? 0 : 1; }

// Part `number` of `parts` along an axis.
inline Tensor part_of(const Tensor& whole, int axis, std::int64_t number, std::int64_t parts) {
  Eager eager;
  return Eager::read(split(eager.tensor(whole), static_cast<int>(parts), axis)[static_cast<std::size_t>(number)]);
}
// The part of a rank: all of the tensor where it is not divided.
inline Tensor part_of(const Tensor& whole, Divided divided, const Comm& comm) {
  return divided == Divided::no ? whole : part_of(whole, axis_of(divided), comm.rank(), comm.size());
}

// The largest difference between elements.
inline double farthest(const Tensor& a, const Tensor& b) {
  EXPECT_EQ(a.type(), b.type());
  double most = 0;
  for (std::int64_t i = 0; i < a.shape().size(); ++i) most = std::max(most, std::abs(a.at(i) - b.at(i)));
  return most;
}

struct Weight {
  std::string name;
  Divided divided;
  Tensor whole;

  Variable variable(const Comm& comm) const {
    return divided == Divided::no ? Variable(name, whole) : divided_variable(name, whole, axis_of(divided), comm);
  }
};

inline Weight weight(const std::string& name, Divided divided, const Shape& shape, std::uint64_t seed) {
  return {name, divided, Tensor::normal(shape, seed).to(f64)};
}

// The sizes are multiples of 1, 2, 3 and 4.
constexpr std::int64_t kContext = 3, kWidth = 12, kHeads = 12, kClasses = 24;

inline Tensor targets(std::int64_t rows, DType dtype = i32) {
  Tensor all(i32, {rows});
  std::int32_t next = 1;
  for (std::int32_t& target : all.as<std::int32_t>()) target = (next = next * 5 + 3) % kClasses;
  return all.to(dtype);
}

// A model is a list of weights, and builds its loss from x and the Variables.
struct Mlp {
  std::vector<Weight> weights() const {
    return {weight("w1", Divided::columns, {kWidth, 24}, 1), weight("w2", Divided::rows, {24, kClasses}, 2),
            weight("b2", Divided::no, {kClasses}, 3)};
  }
  static Value loss(const Value& x, const Values& w, const Comm& comm) {
    const Value hidden = tanh(matmul(enter_parallel(x, comm), w[0]));
    const Value y = leave_parallel(matmul(hidden, w[1]), comm) + w[2];
    return cross_entropy(y, Graph(x.graph()).constant(targets(x.shape()[0])));
  }
  static Shape input() { return {5, kWidth}; }
};

// Attention with some heads on each rank, two layers behind it, and a vocabulary that is divided, too.
struct Layer {
  std::vector<Weight> weights() const {
    return {weight("gain", Divided::no, {kWidth}, 1),
            weight("bias", Divided::no, {kWidth}, 2),
            weight("query", Divided::columns, {kWidth, 2 * kHeads}, 3),
            weight("key", Divided::columns, {kWidth, 2 * kHeads}, 4),
            weight("value", Divided::columns, {kWidth, 2 * kHeads}, 5),
            weight("project", Divided::rows, {2 * kHeads, kWidth}, 6),
            weight("widen", Divided::columns, {kWidth, 24}, 7),
            weight("narrow", Divided::rows, {24, kWidth}, 8),
            weight("vocabulary", Divided::columns, {kWidth, kClasses}, 9)};
  }
  static Value loss(const Value& x, const Values& w, const Comm& comm) {
    const std::int64_t heads = kHeads / comm.size();
    const Value in = enter_parallel(layer_norm(x, w[0], w[1]), comm);
    const auto of_heads = [&](const Value& weights) {
      return permute(reshape(matmul(in, weights), {-1, kContext, heads, 2}), {0, 2, 1, 3});
    };
    const Value mixed = attention(of_heads(w[2]), of_heads(w[3]), of_heads(w[4]), {.causal = true});
    const Value joined = reshape(permute(mixed, {0, 2, 1, 3}), {-1, kContext, 2 * heads});
    const Value stream = x + leave_parallel(matmul(joined, w[5]), comm);
    const Value hidden = gelu(matmul(enter_parallel(layer_norm(stream, w[0], w[1]), comm), w[6]));
    const Value out = stream + leave_parallel(matmul(hidden, w[7]), comm);
    const Value logits = matmul(enter_parallel(reshape(out, {-1, kWidth}), comm), w[8]);
    return cross_entropy_parallel(logits, Graph(x.graph()).constant(targets(x.shape()[0] * kContext)), comm);
  }
  static Shape input() { return {2, kContext, kWidth}; }
};

}  // namespace graphsink::testing
