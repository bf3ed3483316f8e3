// slice_at: slices of the stacks of loops. What loops store is tested with their gradients (tests/build).
#include "kernels/runtime/stack.h"

#include "ir/system_ops.h"
#include "program_fixture.h"

namespace graphsink::stack_test {
namespace {

using testing::device_name;
using testing::OnDevice;

INSTANTIATE_TEST_SUITE_P(Devices, OnDevice, ::testing::ValuesIn(testing::devices()), device_name);

Tensor counting(const Shape& shape) {
  std::vector<float> values(static_cast<std::size_t>(shape.size()));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  return {shape, values};
}

// Of sizes below, of, and above what a block of the kernel copies.
const std::int64_t kSizes[] = {1, 3, 1024, 2500};

TEST_P(OnDevice, SlicesOfSeveralStacks) {
  Graph g;
  Value place = g.input("place", i32, {});
  std::vector<Arg> operands;
  for (std::int64_t size : kSizes) operands.emplace_back(g.constant(counting({4, size})));
  operands.emplace_back(place);
  const std::vector<Value> slices = emit(slice_at_op, operands);
  for (std::size_t k = 0; k < slices.size(); ++k) g.output(std::to_string(k), slices[k]);
  Program p = compile(g);
  for (Mode mode : testing::kModes) {
    for (std::int32_t at : {0, 3}) {
      p.write(place, std::vector{at});
      p.run(mode);
      for (std::size_t k = 0; k < slices.size(); ++k) {
        const Tensor slice = p.output(std::to_string(k));
        ASSERT_EQ(slice.shape(), Shape{kSizes[k]});
        for (std::int64_t i = 0; i < kSizes[k]; ++i)
          ASSERT_EQ(slice.at(i), static_cast<double>(at * kSizes[k] + i)) << k << " " << i;
      }
    }
  }
}

TEST_P(OnDevice, SlicesOfAPlaceThatDoesNotExistFailTheStep) {
  for (std::int32_t at : {-1, 4}) {
    Graph g;
    Value place = g.input("place", i32, {});
    g.output("slice", emit(slice_at_op, {g.constant(counting({4, 2})), g.constant(counting({4, 3})), place})[1]);
    Program p = compile(g);
    p.write(place, std::vector{at});
    p.run(sink);
    try {
      p.sync();
      FAIL() << at;
    } catch (const Error& e) {
      EXPECT_EQ(e.op(), "slice_at");
      EXPECT_NE(e.problem().find("index " + std::to_string(at) + " lies outside the axis"), std::string::npos)
          << e.problem();
    }
  }
}

TEST(Stack, RefusesWhatHasNoSlices) {
  Graph g;
  Value place = g.input("place", i32, {}), stack = g.input("stack", f32, {4, 2});
  auto problem = [&](const std::vector<Arg>& operands) {
    try {
      emit(slice_at_op, operands);
    } catch (const Error& e) {
      return e.problem();
    }
    return std::string();
  };
  EXPECT_EQ(problem({stack, place}), "");
  EXPECT_NE(problem({place}).find("there is no stack"), std::string::npos);
  EXPECT_NE(problem({stack, stack}).find("the place is not one i32"), std::string::npos);
  EXPECT_NE(problem({stack, place, place}).find("takes slices of i32[]"), std::string::npos);
  EXPECT_NE(problem({stack, g.input("other", f32, {5, 2}), place}).find("different numbers of slices"),
            std::string::npos);
}

}  // namespace
}  // namespace graphsink::stack_test
