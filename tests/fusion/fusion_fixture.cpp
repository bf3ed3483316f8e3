#include "fusion_fixture.h"

#include <cstring>

#include "api/plan_of.h"
#include "program_fixture.h"

namespace graphsink::testing {

namespace {

// Whether an element has the same bits. Of NaNs, x86-64 gives a sum the sign of the first operand, which may be either
// as compilers order them: there, any NaN is as good as another.
bool is_same_element(const Tensor& a, const Tensor& b, std::int64_t i) {
  const std::size_t bytes = size_of(a.dtype()), at = static_cast<std::size_t>(i) * bytes;
  if (std::memcmp(static_cast<const std::byte*>(a.data()) + at, static_cast<const std::byte*>(b.data()) + at, bytes) ==
      0)
    return true;
  const double x = a.at(i), y = b.at(i);
  return is_float(a.dtype()) && x != x && y != y;
}

}  // namespace

Plan expect_same_bits(const std::function<void(Graph&)>& make, DeviceId target) {
  Graph g, same;
  make(g);
  make(same);
  Program separate = compile(g, {.target = target, .tuning = {.fuse = false}}),
          fused = compile(same, {.target = target});
  for (Mode mode : kModes) {
    separate.run(mode);
    fused.run(mode);
    for (const PlanOutput& output : plan_of(fused).outputs) {
      Tensor a = separate.output(output.name), b = fused.output(output.name);
      EXPECT_EQ(a.type(), b.type());
      std::int64_t i = 0;
      while (i < a.type().shape.size() && is_same_element(a, b, i)) ++i;
      EXPECT_EQ(i, a.type().shape.size())
          << output.name << " " << to_string(mode) << ": the first element that differs";
    }
  }
  return plan_of(fused);
}

}  // namespace graphsink::testing
