// Two ops of arithmetic that one loop of a group computes: the bits of the separate ops, for all kinds and operands.
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "program_fixture.h"

namespace graphsink::fused_pairs_test {
namespace {

using testing::OnDevice;

using Op = Value (*)(Value, Value);
struct Kind {
  const char* name;
  Op op;
};
constexpr Kind kKinds[] = {{"add", [](Value a, Value b) { return a + b; }},
                           {"sub", [](Value a, Value b) { return a - b; }},
                           {"mul", [](Value a, Value b) { return a * b; }},
                           {"div", [](Value a, Value b) { return a / b; }}};  // which is not computed in pairs

Tensor numbers(std::int64_t size, unsigned seed, DType dtype) {
  Tensor tensor(f32, {size});
  auto data = tensor.as<float>();
  for (std::size_t i = 0; i < data.size(); ++i) {
    seed = seed * 1664525u + 1013904223u;
    data[i] = static_cast<float>(static_cast<std::int32_t>(seed)) * 0x1p-28f;
  }
  // Not a NaN that an operation returns for two NaNs with different bits, which is either.
  if (size > 6) {
    data[2] = std::numeric_limits<float>::infinity();
    data[4] = -0.0f;
    data[5] = 1e-30f;
    data[6] = 3e38f;
  }
  return tensor.to(dtype);
}

class FusedPairs : public OnDevice {
 protected:
  // Both ops with all combinations of operands of `size` elements and of one element.
  void check(const Kind& first, const Kind& second, std::int64_t size, DType dtype) {
    for (int which = 0; which < 16; ++which) {
      auto size_of_operand = [&](int bit) { return (which >> bit & 1) != 0 ? size : 1; };
      if (size_of_operand(0) == 1 && size_of_operand(1) == 1) continue;
      const bool result_is_first = (which & 8) != 0;
      SCOPED_TRACE(std::string(first.name) + " " + second.name + " " + std::to_string(which) + " " +
                   std::string(to_string(dtype)));
      Graph g;
      const Value a = g.input("a", dtype, {size_of_operand(0)}), b = g.input("b", dtype, {size_of_operand(1)});
      const Value c = g.input("c", dtype, {size_of_operand(2)});
      const Value inner = first.op(a, b);
      g.output("y", result_is_first ? second.op(inner, c) : second.op(c, inner));
      std::vector<Tensor> results;
      for (bool fuse : {true, false}) {
        Program p = compile(g, {.tuning = {.fuse = fuse}});
        p.write(a, numbers(size_of_operand(0), 1, dtype));
        p.write(b, numbers(size_of_operand(1), 2, dtype));
        p.write(c, numbers(size_of_operand(2), 3, dtype));
        p.run(interactive_serial);
        results.push_back(p.output("y"));
      }
      ASSERT_EQ(std::memcmp(results[0].data(), results[1].data(), results[0].bytes()), 0);
    }
  }
};
INSTANTIATE_TEST_SUITE_P(Devices, FusedPairs, ::testing::ValuesIn(testing::devices()), testing::device_name);

TEST_P(FusedPairs, HaveTheBitsOfSeparateOps) {
  for (const Kind& first : kKinds)
    for (const Kind& second : kKinds) {
      check(first, second, 133, f32);
      check(first, second, 1, f32);
    }
  check(kKinds[2], kKinds[0], 133, f64);
  check(kKinds[2], kKinds[1], 133, f16);
}

// The first result is used again, or it is an output, or the second op uses it twice: they are not computed as a pair.
TEST_P(FusedPairs, KeepAResultThatOthersUse) {
  for (int way = 0; way < 3; ++way) {
    Graph g;
    const Value x = g.input("x", f32, {300}), s = g.input("s", f32, {});
    const Value inner = x * s;
    if (way == 0) g.output("z", inner + s);
    if (way == 1) g.output("inner", inner);
    g.output("y", way == 2 ? inner - inner * inner : (inner - x) * inner);
    std::vector<std::vector<Tensor>> results;
    for (bool fuse : {true, false}) {
      Program p = compile(g, {.tuning = {.fuse = fuse}});
      p.write(x, numbers(300, 5, f32));
      p.write(s, Tensor::scalar(1.7f));
      p.run(interactive_serial);
      results.push_back({p.output("y")});
      if (way == 0) results.back().push_back(p.output("z"));
      if (way == 1) results.back().push_back(p.output("inner"));
    }
    for (std::size_t i = 0; i < results[0].size(); ++i)
      EXPECT_EQ(std::memcmp(results[0][i].data(), results[1][i].data(), results[0][i].bytes()), 0) << way << " " << i;
  }
}

}  // namespace
}  // namespace graphsink::fused_pairs_test
