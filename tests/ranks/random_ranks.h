// Random programs with collectives: a recipe drawn from a seed, and what the recipe means, which is said once for any
// kind of values: those of a graph, and those of all ranks at once, which an oracle computes without the library.
// Every recipe is a program on any number of ranks, and no rank waits in it for another one for ever. Values have one
// size on all ranks, also where groups have several.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "graphsink/ranks.h"

namespace graphsink::testing {

constexpr std::int64_t kMostElements = 64;  // of a value, all of which are vectors
constexpr double kLargest = 9;              // numbers are kept within [-kLargest, kLargest]

// What exchanges values: all ranks, all in the reversed order, pairs of neighbours, and those of even and odd ranks.
// The last two have groups of different sizes where the number of ranks is odd.
enum class Grouping : std::uint8_t { all, reversed, rows, columns };

// The ranks of each group, in its order.
inline std::vector<std::vector<std::size_t>> groups(Grouping grouping, std::size_t ranks) {
  std::vector<std::vector<std::size_t>> result;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    const std::size_t group = grouping == Grouping::rows ? rank / 2 : grouping == Grouping::columns ? rank % 2 : 0;
    if (group == result.size()) result.emplace_back();
    result[group].push_back(rank);
  }
  if (grouping == Grouping::reversed) std::reverse(result[0].begin(), result[0].end());
  return result;
}
// A number that every group of this kind can divide by its size.
inline std::int64_t multiple_of_sizes(Grouping grouping, std::int64_t ranks) {
  std::size_t result = 1;
  for (const auto& group : groups(grouping, static_cast<std::size_t>(ranks))) result = std::lcm(result, group.size());
  return static_cast<std::int64_t>(result);
}
inline bool has_equal_sizes(Grouping grouping, std::int64_t ranks) {
  const auto all = groups(grouping, static_cast<std::size_t>(ranks));
  return all.front().size() == all.back().size();
}

// For send_receive() among so many ranks: some get nothing, the others from a rank of their own.
inline std::vector<int> sources(std::uint64_t bits, std::size_t ranks) {
  std::mt19937_64 random(bits);
  std::vector<int> result(ranks);
  std::iota(result.begin(), result.end(), 0);
  for (std::size_t i = ranks; i > 1; --i) std::swap(result[i - 1], result[random() % i]);
  for (int& source : result)
    if (random() % 4 == 0) source = -1;
  return result;
}

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
    sent,
    averaged,
    branch,
    loop,
    kinds,
  };
  Kind kind = negate;
  std::size_t a = 0, b = 0;  // the operands, counted from the last value in sight; modulo the number of values
  Reduction reduction = Reduction::sum;
  Grouping grouping = Grouping::all;
  std::size_t root = 0;    // modulo the number of ranks of the group
  std::uint64_t bits = 0;  // of sources(); whether averages are of two values, and of one exchange
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
    has_groups_ = below(2) == 0;
    keeps_equal = below(2) == 0;
    instructions = list(6 + below(18), 0);
  }

  std::vector<Instruction> instructions;
  bool fails = false;  // on one rank, in one step
  std::size_t failing_step = 0, failing_rank = 0;
  bool keeps_equal = false;  // the Variable has one value on all ranks, first and after each step

  // Whether average() may compare the programs of the ranks. In a group of one rank there is no collective, so programs
  // differ where only some groups are so small.
  bool is_one_program(std::size_t ranks) const { return keeps_equal && (!has_groups_ || ranks % 2 == 0); }

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
    made.bits = random_();
    if (has_groups_) made.grouping = static_cast<Grouping>(below(4));
    made.on_cpu = below(100) < cpu_percent_;
    if (made.kind == Instruction::branch) made.bodies = {list(below(4), depth + 1), list(below(4), depth + 1)};
    if (made.kind == Instruction::loop) made.bodies[0] = list(1 + below(3), depth + 1);
    return made;
  }

  std::mt19937_64 random_;
  std::size_t cpu_percent_ = 0;
  bool has_groups_ = false;
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

inline Reduction sum_or_mean(Reduction reduction) { return reduction == Reduction::max ? Reduction::sum : reduction; }

// The mean of `a`, or its difference from that of `b`.
template <class Maker>
typename Maker::Value averaged(const Instruction& i, const typename Maker::Value& a, const typename Maker::Value& b,
                               Maker& maker) {
  const bool in_one_exchange = i.bits / 2 % 2 == 0;
  if (i.bits % 2 == 0) return maker.averaged({a}, i.grouping, in_one_exchange)[0];
  const auto means = maker.averaged({a, b}, i.grouping, in_one_exchange);
  return maker.binary(Instruction::subtract, means[0], maker.fit(means[1], maker.size(a)), i.on_cpu);
}

template <class Maker>
typename Maker::Value result_of(const Instruction& i, const std::vector<typename Maker::Value>& values, Maker& maker) {
  const auto value = [&](std::size_t back) { return values[values.size() - 1 - back % values.size()]; };
  const auto a = value(i.a);
  const std::int64_t size = maker.size(a), whole = multiple_of_sizes(i.grouping, maker.ranks());
  const bool has_one_size = has_equal_sizes(i.grouping, maker.ranks());
  const auto divided = [&] { return maker.fit(a, (size + whole - 1) / whole * whole); };
  switch (i.kind) {
    case Instruction::negate:
      return maker.negate(a, i.on_cpu);
    case Instruction::add:
    case Instruction::subtract:
    case Instruction::multiply:
    case Instruction::larger:
      return maker.binary(i.kind, a, maker.fit(value(i.b), size), i.on_cpu);
    case Instruction::all_reduced:
      return maker.all_reduced(a, i.grouping, i.reduction);
    case Instruction::all_gathered:
      return !has_one_size || size * whole > kMostElements ? a : maker.all_gathered(a, i.grouping);
    case Instruction::scattered:
      return !has_one_size ? a : maker.scattered(divided(), i.grouping, sum_or_mean(i.reduction));
    case Instruction::broadcasted:
      return maker.broadcasted(a, i.grouping, i.root);
    case Instruction::exchanged:
      return maker.exchanged(divided(), i.grouping);
    case Instruction::sent:
      return maker.sent(a, i.grouping, i.bits);
    case Instruction::averaged:
      return averaged(i, a, value(i.b), maker);
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

// What the Variable becomes, given the last value: their mean where all ranks keep it equal, as those do that train one
// model.
template <class Maker>
typename Maker::Value updated(const RecipeOfRanks& recipe, const typename Maker::Value& last, Maker& maker) {
  return recipe.keeps_equal ? maker.averaged({last}, Grouping::all, true)[0] : last;
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
  Value all_reduced(const Value& x, Grouping grouping, Reduction reduction) const {
    return in_groups(x, grouping, [&](Value part) {
      for (std::size_t i = 0; i < part[0].size(); ++i) {
        const float element = reduced(part, i, reduction);
        for (auto& each : part) each[i] = element;
      }
      return part;
    });
  }
  Value all_gathered(const Value& x, Grouping grouping) const {
    return in_groups(x, grouping, [](const Value& part) {
      std::vector<float> all;
      for (const auto& each : part) all.insert(all.end(), each.begin(), each.end());
      return Value(part.size(), all);
    });
  }
  Value scattered(const Value& x, Grouping grouping, Reduction reduction) const {
    return in_groups(x, grouping, [&](const Value& part) {
      Value result(part.size());
      const std::size_t size = part[0].size() / part.size();
      for (std::size_t i = 0; i < part[0].size(); ++i) result[i / size].push_back(reduced(part, i, reduction));
      return result;
    });
  }
  Value broadcasted(const Value& x, Grouping grouping, std::size_t root) const {
    return in_groups(x, grouping, [&](const Value& part) { return Value(part.size(), part[root % part.size()]); });
  }
  Value exchanged(const Value& x, Grouping grouping) const {
    return in_groups(x, grouping, [](const Value& part) {
      Value result(part.size());
      const std::size_t size = part[0].size() / part.size();
      for (std::size_t rank = 0; rank < part.size(); ++rank)
        for (const auto& from : part)
          result[rank].insert(result[rank].end(), from.begin() + static_cast<std::ptrdiff_t>(rank * size),
                              from.begin() + static_cast<std::ptrdiff_t>((rank + 1) * size));
      return result;
    });
  }
  Value sent(const Value& x, Grouping grouping, std::uint64_t bits) const {
    return in_groups(x, grouping, [&](const Value& part) {
      Value result;
      for (const int source : sources(bits, part.size()))
        result.push_back(source < 0 ? std::vector<float>(part[0].size()) : part[static_cast<std::size_t>(source)]);
      return result;
    });
  }
  std::vector<Value> averaged(std::vector<Value> values, Grouping grouping, bool) const {
    for (Value& value : values) value = all_reduced(value, grouping, Reduction::mean);
    return values;
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
  static float reduced(const Value& x, std::size_t i, Reduction reduction) {
    float result = x[0][i];
    for (std::size_t rank = 1; rank < x.size(); ++rank)
      result = reduction == Reduction::max ? std::max(result, x[rank][i]) : result + x[rank][i];
    return kept(reduction == Reduction::mean ? result / static_cast<float>(x.size()) : result);
  }
  // What each group makes of what its ranks have.
  template <class Op>
  Value in_groups(const Value& x, Grouping grouping, const Op& op) const {
    Value result(ranks_);
    for (const std::vector<std::size_t>& group : groups(grouping, ranks_)) {
      Value part;
      for (const std::size_t rank : group) part.push_back(x[rank]);
      part = op(std::move(part));
      for (std::size_t i = 0; i < group.size(); ++i) result[group[i]] = part[i];
    }
    return result;
  }

  std::size_t ranks_;
};

}  // namespace graphsink::testing
