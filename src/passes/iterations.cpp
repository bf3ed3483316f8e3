// Counts the iterations of loops that depend on nothing but constants, such as those of scan(), by computing their
// counters and conditions. Values computed here have the same bits on every device: sums, differences and products that
// are exact or correctly rounded, and comparisons. Denormal numbers are not known here, because devices differ: CPU
// bodies may read and write them as zeros, and kernels compute with them.
#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <string>

#include "base/at.h"
#include "base/flush_denormals.h"
#include "passes/planner_ir.h"

namespace graphsink {
namespace {

// A known value of one element: a number of its dtype, or 0 and 1 for a boolean. Integers are below 2^53.
using Number = std::optional<double>;

// A loop that runs more often than this counts as unknown, and so does one for which more values must be computed.
constexpr int kMostIterations = 1024;
constexpr int kMostValues = 1 << 16;
// The computation of a value recurses into its operands; long chains count as unknown.
constexpr int kMostDepth = 200;

// Returns the number if it has the same bits on a device that writes zeros in place of denormals. The smallest normal
// number does not count as such: a smaller result may have been rounded up to it, and x86-64 decides before that
// rounding.
template <class T>
Number unless_denormal(T value) {
  const bool is_known = value == 0 || !(std::abs(value) <= std::numeric_limits<T>::min());
  return is_known ? Number(value) : std::nullopt;
}

// Returns the number as it is stored in the dtype, or nothing if the dtype does not hold it or is not known here.
Number stored(DType dtype, double value) {
  constexpr double kLargestI32 = 0x7fffffff, kLargestI64 = 0x1p53;
  switch (dtype) {
    case DType::i32:
      return -kLargestI32 <= value && value <= kLargestI32 ? Number(value) : std::nullopt;
    case DType::i64:
      return -kLargestI64 < value && value < kLargestI64 ? Number(value) : std::nullopt;
    case DType::f32:
      return unless_denormal(static_cast<float>(value));
    case DType::f64:
      return unless_denormal(value);
    case DType::boolean:
      return value;
    default:
      return {};
  }
}

// Result of an op on two numbers. Nothing if the op is none of those known here, or if stored() returns nothing.
Number computed(Scalar scalar, DType result, double a, double b) {
  switch (scalar) {
    case Scalar::less:
      return a < b;
    case Scalar::less_equal:
      return a <= b;
    case Scalar::greater:
      return a > b;
    case Scalar::greater_equal:
      return a >= b;
    case Scalar::equal:
      return a == b;
    case Scalar::not_equal:
      return a != b;
    case Scalar::logical_and:
      return a != 0 && b != 0;
    case Scalar::logical_or:
      return a != 0 || b != 0;
    case Scalar::add:
      return stored(result, a + b);
    case Scalar::subtract:
      return stored(result, a - b);
    case Scalar::multiply:
      return stored(result, a * b);
    default:
      return {};
  }
}

class Counting {
 public:
  explicit Counting(PlannerIr& ir) : ir_(ir) {}

  void run() {
    Scope step{0, {}, nullptr};
    visit(0, step);
  }

 private:
  // The known values of one region: of the step, or of one iteration or branch.
  struct Scope {
    int region;
    std::map<std::pair<int, int>, Number> values;  // by node and output
    Scope* outer;
  };
  // A loop from its beginning to its end.
  struct Course {
    int iterations = 0;
    std::vector<Number> state;                  // at the end
    std::vector<std::vector<Number>> places{};  // by stack and iteration: the place that is written
  };

  void visit(int region, Scope& scope) {
    for (int id : ir_.regions[at(region)].nodes) {
      const IrNode& node = ir_.nodes[at(id)];
      if (!node.is_live) continue;
      if (node.op == &while_op) {
        values_left_ = kMostValues;
        if (std::optional<Course> course = follow(node, scope)) note(id, *course);
      }
      for (int body : node.bodies) {
        Scope inside{body, {}, &scope};  // with an unknown state
        visit(body, inside);
      }
    }
  }

  void note(int id, const Course& course) {
    const IrNode& loop = ir_.nodes[at(id)];
    IrRegion& body = ir_.regions[at(loop.bodies[0])];
    body.iterations = course.iterations;
    for (std::size_t k = 0; k < body.stacked.size(); ++k) {
      const std::int64_t size = loop.outputs[at(body.stacked[k].output)].shape[0];
      if (size > course.iterations) continue;  // there are fewer than places
      std::vector<bool> is_written(static_cast<std::size_t>(size));
      for (Number place : course.places[k])
        if (place && 0 <= *place && *place < static_cast<double>(size))
          is_written[static_cast<std::size_t>(*place)] = true;
      body.stacked[k].is_filled = std::find(is_written.begin(), is_written.end(), false) == is_written.end();
    }
  }

  std::optional<Course> follow(const IrNode& loop, Scope& outer) {
    const int region = loop.bodies[0];
    const IrRegion& body = ir_.regions[at(region)];
    Course course;
    for (std::size_t i = 0; i + 1 < loop.inputs.size(); ++i) course.state.push_back(value(loop.inputs[i], outer));
    course.places.resize(body.stacked.size());
    Number goes_on = value(loop.inputs.back(), outer);
    while (goes_on && *goes_on != 0) {
      if (course.iterations++ == kMostIterations) return {};
      Scope iteration{region, {}, &outer};
      for (std::size_t i = 0; i < body.parameters.size(); ++i)
        iteration.values[{body.parameters[i].node, 0}] = course.state[i];
      for (std::size_t k = 0; k < body.stacked.size(); ++k)
        course.places[k].push_back(value(body.stacked[k].place, iteration));
      for (std::size_t i = 0; i < course.state.size(); ++i) course.state[i] = value(body.results[i], iteration);
      goes_on = value(body.results.back(), iteration);
    }
    if (!goes_on) return {};
    return course;
  }

  Number value(ValueRef v, Scope& scope) {
    Scope* home = &scope;
    while (home && home->region != ir_.node(v).region) home = home->outer;
    if (home == nullptr) return {};
    const std::pair<int, int> key{v.node, v.output};
    if (auto known = home->values.find(key); known != home->values.end()) return known->second;
    if (depth_ == kMostDepth || values_left_ == 0) return {};
    --values_left_;
    ++depth_;
    const Number result = compute(v, *home);
    --depth_;
    return home->values[key] = result;
  }

  Number compute(ValueRef v, Scope& scope) {
    const IrNode& node = ir_.node(v);
    const TensorType& type = ir_.type(v);
    if (type.shape.size() != 1) return {};
    if (node.op == &constant_op) return stored(type.dtype, node.attrs.as<ConstantAttrs>().tensor->at(0));
    if (node.op == &while_op) {
      const std::optional<Course> course = follow(node, scope);
      return course && at(v.output) < course->state.size() ? course->state[at(v.output)] : std::nullopt;
    }
    const Scalar scalar = node.op->elements.scalar;
    if (node.inputs.size() != 2 || scalar == Scalar::other) return {};
    const Number a = value(node.inputs[0], scope), b = value(node.inputs[1], scope);
    return a && b ? computed(scalar, type.dtype, *a, *b) : std::nullopt;
  }

  PlannerIr& ir_;
  int depth_ = 0;
  int values_left_ = 0;
};

}  // namespace

void count_iterations(PlannerIr& ir) {
  const FlushDenormals exact(false);  // whatever the thread that compiles a program has set
  Counting(ir).run();
}

}  // namespace graphsink
