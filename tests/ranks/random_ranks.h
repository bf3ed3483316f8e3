// Random programs with collectives: a recipe drawn from a seed, and what the recipe means, which is said once for any
// kind of values: those of a graph, and those of all ranks at once, which an oracle computes without the library.
// Every recipe is a program on any number of ranks, and no rank waits in it for another one for ever.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "graphsink/ranks.h"

namespace graphsink::testing {

constexpr std::int64_t kMostElements = 64;  // of a value, all of which are vectors
constexpr double kLargest = 9;              // numbers are kept within [-kLargest, kLargest]

struct Instruction {
  enum Kind {
    negate,
    add,
    subtract,
    multiply,
    larger,
    all_reduced,
    all_gathered,
    scattered,
    broadcasted,
    exchanged,
    branch,
    loop,
    kinds,
  };
  Kind kind = negate;
  std::size_t a = 0, b = 0;  // the operands, counted from the last value in sight; modulo the number of values
  Reduction reduction = Reduction::sum;
  std::size_t root = 0;  // modulo the number of ranks
  bool on_cpu = false;
  std::array<std::vector<Instruction>, 2> bodies;
};

class RecipeOfRanks {
 public:
  explicit RecipeOfRanks(std::uint64_t seed) : random_(seed) {
    cpu_percent_ = below(3) == 0 ? 30 : 0;
    fails = below(3) == 0;
    failing_step = below(4);
    failing_rank = below(4);
    instructions = list(6 + below(18), 0);
  }

  std::vector<Instruction> instructions;
  bool fails = false;  // on one rank, in one step
  std::size_t failing_step = 0, failing_rank = 0;

 private:
  std::size_t below(std::size_t n) { return static_cast<std::size_t>(random_() % n); }

  std::vector<Instruction> list(std::size_t size, int depth) {
    std::vector<Instruction> result;
    while (size-- > 0) result.push_back(one(depth));
    return result;
  }

  Instruction one(int depth) {
    Instruction made;
    made.kind = static_cast<Instruction::Kind>(below(depth < 2 ? Instruction::kinds : Instruction::branch));
    made.a = below(4);
    made.b = below(12);
    made.reduction = static_cast<Reduction>(below(3));
    made.root = below(4);
    made.on_cpu = below(100) < cpu_percent_;
    if (made.kind == Instruction::branch) made.bodies = {list(below(4), depth + 1), list(below(4), depth + 1)};
    if (made.kind == Instruction::loop) made.bodies[0] = list(1 + below(3), depth + 1);
    return made;
  }

  std::mt19937_64 random_;
  std::size_t cpu_percent_ = 0;
};

// Appends what the instructions make to the values in sight. `Maker` has the operations.
template <class Maker>
void follow(const std::vector<Instruction>& instructions, std::vector<typename Maker::Value>& values, Maker& maker);

// The same in a body, which begins with `first` as its last value. Returns its last one, as long as `first`.
template <class Maker>
typename Maker::Value follow_body(const std::vector<Instruction>& body, std::vector<typename Maker::Value> values,
                                  typename Maker::Value first, Maker& maker) {
  const std::int64_t size = maker.size(first);
  values.push_back(std::move(first));
  follow(body, values, maker);
  return maker.fit(values.back(), size);
}

template <class Maker>
typename Maker::Value result_of(const Instruction& i, const std::vector<typename Maker::Value>& values, Maker& maker) {
  const auto value = [&](std::size_t back) { return values[values.size() - 1 - back % values.size()]; };
  const auto a = value(i.a);
  const std::int64_t ranks = maker.ranks(), size = maker.size(a);
  const auto divided = [&] { return maker.fit(a, (size + ranks - 1) / ranks * ranks); };
  switch (i.kind) {
    case Instruction::negate:
      return maker.negate(a, i.on_cpu);
    case Instruction::add:
    case Instruction::subtract:
    case Instruction::multiply:
    case Instruction::larger:
      return maker.binary(i.kind, a, maker.fit(value(i.b), size), i.on_cpu);
    case Instruction::all_reduced:
      return maker.all_reduced(a, i.reduction);
    case Instruction::all_gathered:
      return size * ranks > kMostElements ? a : maker.all_gathered(a);
    case Instruction::scattered:
      return maker.scattered(divided(), i.reduction == Reduction::max ? Reduction::sum : i.reduction);
    case Instruction::broadcasted:
      return maker.broadcasted(a, static_cast<int>(i.root % static_cast<std::size_t>(ranks)));
    case Instruction::exchanged:
      return maker.exchanged(divided());
    case Instruction::branch:
      return maker.branch(
          a, [&](int which) { return follow_body(i.bodies[static_cast<std::size_t>(which)], values, a, maker); });
    default:
      return maker.loop(
          a, [&](const typename Maker::Value& state) { return follow_body(i.bodies[0], values, state, maker); });
  }
}

template <class Maker>
void follow(const std::vector<Instruction>& instructions, std::vector<typename Maker::Value>& values, Maker& maker) {
  for (const Instruction& instruction : instructions) values.push_back(result_of(instruction, values, maker));
}

// The oracle: a value is what each of the ranks has.
class AllRanks {
 public:
  using Value = std::vector<std::vector<float>>;

  explicit AllRanks(std::size_t ranks) : ranks_(ranks) {}
  std::int64_t ranks() const { return static_cast<std::int64_t>(ranks_); }
  static std::int64_t size(const Value& x) { return static_cast<std::int64_t>(x[0].size()); }

  static Value fit(Value x, std::int64_t size) {
    for (auto& each : x) each.resize(static_cast<std::size_t>(size));
    return x;
  }
  static Value negate(Value x, bool) {
    for (auto& each : x)
      for (float& element : each) element = -element;
    return x;
  }
  static Value binary(Instruction::Kind kind, Value a, const Value& b, bool) {
    for (std::size_t rank = 0; rank < a.size(); ++rank)
      for (std::size_t i = 0; i < a[rank].size(); ++i) a[rank][i] = kept(binary(kind, a[rank][i], b[rank][i]));
    return a;
  }
  Value all_reduced(Value x, Reduction reduction) const {
    for (std::size_t i = 0; i < x[0].size(); ++i) {
      const float element = reduced(x, i, reduction);
      for (auto& each : x) each[i] = element;
    }
    return x;
  }
  static Value all_gathered(const Value& x) {
    std::vector<float> all;
    for (const auto& each : x) all.insert(all.end(), each.begin(), each.end());
    return Value(x.size(), all);
  }
  Value scattered(const Value& x, Reduction reduction) const {
    Value parts(ranks_);
    for (std::size_t i = 0; i < x[0].size(); ++i) parts[i / (x[0].size() / ranks_)].push_back(reduced(x, i, reduction));
    return parts;
  }
  static Value broadcasted(const Value& x, int root) { return Value(x.size(), x[static_cast<std::size_t>(root)]); }
  Value exchanged(const Value& x) const {
    Value result(ranks_);
    const std::size_t part = x[0].size() / ranks_;
    for (std::size_t rank = 0; rank < ranks_; ++rank)
      for (const auto& from : x)
        result[rank].insert(result[rank].end(), from.begin() + static_cast<std::ptrdiff_t>(rank * part),
                            from.begin() + static_cast<std::ptrdiff_t>((rank + 1) * part));
    return result;
  }
  template <class Body>
  static Value branch(const Value& x, const Body& body) {
    float largest = x[0][0];
    for (const auto& each : x) largest = std::max(largest, each[0]);
    return body(largest > 0 ? 0 : 1);
  }
  template <class Body>
  static Value loop(Value x, const Body& body) {
    const float limit = std::clamp(x[0][0], 0.0f, 3.0f);
    for (float n = 0; n < limit; ++n) x = body(x);
    return x;
  }

 private:
  static float kept(float x) { return std::clamp(x, -static_cast<float>(kLargest), static_cast<float>(kLargest)); }
  static float binary(Instruction::Kind kind, float a, float b) {
    if (kind == Instruction::add) return a + b;
    if (kind == Instruction::subtract) return a - b;
    return kind == Instruction::multiply ? a * b : std::max(a, b);
  }
  float reduced(const Value& x, std::size_t i, Reduction reduction) const {
    float result = x[0][i];
    for (std::size_t rank = 1; rank < ranks_; ++rank)
      result = reduction == Reduction::max ? std::max(result, x[rank][i]) : result + x[rank][i];
    return kept(reduction == Reduction::mean ? result / static_cast<float>(ranks_) : result);
  }

  std::size_t ranks_;
};

}  // namespace graphsink::testing
