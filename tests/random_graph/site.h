// What the entries of a recipe are made with: the kinds there are, and what the maker of a kind sees.
#pragma once

#include <span>
#include <string_view>

#include "random_graph.h"

namespace graphsink::testing {

enum class Family : std::uint8_t {
  source,
  unary,
  binary,
  choice,  // comparisons, booleans, where
  cast,
  product,
  reduction,
  order,  // argmax, top_k, sort, cumsum
  softmax,
  gather,
  movement,
  view,
  random,
  window,
  cpu_only,
  state,
  optimizer,
  control,
  result,
};
std::string_view to_string(Family family);

class Site;
struct Kind {
  std::string_view name;
  Family family;
  int picks;   // operands
  int weight;  // how often it is drawn; 0: only where it has its place
  Values (*make)(Site&);
};
// All of them, each file of this folder its own.
std::span<const Kind> kinds();
std::span<const Kind> arithmetic_kinds();
std::span<const Kind> movement_kinds();
std::span<const Kind> cpu_kinds();
std::span<const Kind> state_kinds();
std::span<const Kind> size_kinds();
int kind_of(std::string_view name);  // throws Error for a name that is not there

// What a maker sees of its entry.
class Site {
 public:
  Site(Building& building, const Entry& entry)
      : building(building),
        entry(entry),
        placement(entry.on_cpu ? on_cpu : Placement{}),
        random(entry.bits),
        wide(entry.wide) {}

  // Operand i as it is, or as numbers (no booleans, no u8), floats, or f32 or f64: cast to f32 if need be.
  Value any(int i) const;
  Value number(int i) const;
  Value floating(int i) const;
  Value real(int i) const;
  // Operand i as an operand of an element-wise op with `other`: of its dtype, and of a shape that broadcasts with its.
  Value beside(int i, const Value& other);
  // Operand i as matrices, and as indices into an axis of size n.
  Value matrices(int i) const;
  Value indices(int i, std::int64_t n, const Shape& shape) const;
  // A vector of n elements of this dtype.
  Value vector(int i, DType dtype, std::int64_t n) const { return fit(as(any(i), dtype), Shape{n}); }
  int axis(const Value& v) { return v.shape().rank() == 0 ? 0 : random.below(v.shape().rank()); }
  // Of a source.
  DType dtype();
  Shape shape();
  // The Variable that operand i stands for, or nullptr.
  Building::State* state(int i) const;
  // Its place in Building::states, or -1.
  int state_number(int i) const;

  // A call that is more than an op; what comes behind it is a stretch of the entry's again.
  template <class F>
  auto call(const F& made) {
    return building.calls->within(Calls::kCall, [&] { return made(*building.calls); });
  }

  // A function made of ops, of which not all need to compute finite numbers.
  template <class F>
  auto hidden(const F& made) {
    return building.calls->within(Calls::kHidden, made);
  }

  // Values stay small whatever is done to them: floats below 9, integers below 101.
  Value tame(const Value& v);
  // Casts, and takes as many elements as the shape needs, in a view if there are as many.
  static Value as(const Value& v, DType dtype);
  static Value with_axes(const Value& v);  // at least one
  static Value fit(const Value& v, const Shape& shape);

  Building& building;
  const Entry& entry;
  Placement placement;
  Random random;
  Random wide;  // what an entry of a widened recipe draws besides
};

}  // namespace graphsink::testing
