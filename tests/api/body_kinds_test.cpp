// The table of body kinds. A body that a conditional node may hold is in a WHILE, IF or SWITCH node of the launch: a
// legal body that the host drives fails here. For the other kinds, explain() names the op and the rule.
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "api/plan_of.h"
#include "program_fixture.h"

namespace graphsink::body_kinds_test {
namespace {

using testing::cpu_plus_one;

struct Kind {
  const char* name;
  std::function<Value(Graph&, const Value&)> body;  // of x: f32 [4, 4], returns the same type
  std::string_view rule = {};                       // on a CUDA device, why no conditional node may hold it
};
void PrintTo(const Kind& kind, std::ostream* out) { *out << kind.name; }

Value weights(Graph& g) { return g.value(Variable("w", Tensor::kaiming({4, 4}, 3))); }

const Kind kKinds[] = {
    // Legal: kernels, copies within the device, nested conditional nodes.
    {"Nothing", [](Graph&, const Value& x) { return x; }},
    {"AConstant",
     [](Graph& g, const Value&) {
       return g.constant(Tensor::full(f32, {4, 4}, 0.5));
     }},
    {"AVariable", [](Graph& g, const Value&) { return weights(g); }},
    {"ElementWise", [](Graph&, const Value& x) { return tanh(x * 0.5) + 1.0; }},
    {"Casts", [](Graph&, const Value& x) { return cast(cast(x, f16), f32); }},
    {"Views",
     [](Graph&, const Value& x) {
       return reshape(reshape(x, {16}), {4, 4}) * 1.0;
     }},
    {"OnlyAView",
     [](Graph&, const Value& x) {
       return reshape(reshape(x, {16}), {4, 4});
     }},
    {"Movement",
     [](Graph&, const Value& x) {
       return concat({slice(transpose(x), {2}, {4}), slice(x, {0}, {2})}, 0);
     }},
    {"Reductions",
     [](Graph&, const Value& x) { return x - mean(x, {1}, {.keep_axes = true}) + cast(argmax(x, 0), f32); }},
    {"Products", [](Graph& g, const Value& x) { return relu(matmul(x, weights(g))); }},
    {"Softmax", [](Graph&, const Value& x) { return softmax(x, 1); }},
    {"Sorting", [](Graph&, const Value& x) { return sort(x, 1).values; }},
    {"Gather",
     [](Graph& g, const Value& x) {
       return gather(x, g.constant(Tensor({3, 2, 1, 0})), 0);
     }},
    {"CumulativeSums", [](Graph&, const Value& x) { return cumsum(x, 1); }},
    {"RandomNumbers", [](Graph&, const Value& x) { return random_uniform(x); }},
    {"AGradient", [](Graph&, const Value& x) { return grad(sum(tanh(x) * x), {x})[0]; }},
    {"ABranch",
     [](Graph&, const Value& x) {
       return if_(
           sum(x) > 1.0, [&] { return x * 2.0; }, [&] { return x; });
     }},
    {"AChoice",
     [](Graph&, const Value& x) {
       return switch_(cast(sum(x) > 1.0, i32), {[&] { return x * 2.0; }, [&] { return x + 1.0; }});
     }},
    {"ALoop",
     [](Graph&, const Value& x) {
       return while_(
           {x}, [](Value s) { return sum(s) < 50.0; }, [](Value s) { return s * 2.0 + 1.0; })[0];
     }},
    {"ALoopWithALimit",
     [](Graph&, const Value& x) {
       return while_(
           {x}, [](Value s) { return sum(s) < 50.0; }, [](Value s) { return s * 2.0 + 1.0; },
           {.max_iterations = 40})[0];
     }},
    {"AScan",
     [](Graph&, const Value& x) {
       return scan({sum(x, {0})}, {x},
                   [](const Values& s, const Values& in) {
                     return Scan{{s[0] * 0.5 + in[0]}, {s[0] + in[0]}};
                   })
           .outputs[0];
     }},
    {"TheGradientOfAScan",
     [](Graph&, const Value& x) {
       Scan r = scan({sum(x, {0})}, {x}, [](const Values& s, const Values& in) {
         return Scan{{tanh(s[0] * in[0])}, {s[0] + in[0]}};
       });
       return grad(sum(r.outputs[0]), {x})[0];
     }},
    // Illegal.
    {"AnOpOnTheHost", [](Graph&, const Value& x) { return emit(cpu_plus_one, {x})[0]; },
     "cpu_plus_one in its body runs on the host, and a conditional node may not hold host nodes"},
    {"AnOpThatIsPutOnTheHost", [](Graph&, const Value& x) { return tanh(x, on_cpu); },
     "tanh in its body runs on the host, and a conditional node may not hold host nodes"},
    {"ABranchAroundAnOpOnTheHost",
     [](Graph&, const Value& x) {
       return if_(
           sum(x) > 1.0, [&] { return emit(cpu_plus_one, {x})[0]; }, [&] { return x; });
     },
     "cpu_plus_one in its body runs on the host, and a conditional node may not hold host nodes"},
};

struct Control {
  const char* node;
  std::function<Value(Graph&, const Value&, const Kind&)> make;
};
void PrintTo(const Control& control, std::ostream* out) { *out << control.node; }

const Control kControls[] = {
    // The data decide how often: twice.
    {"WHILE",
     [](Graph& g, const Value& x, const Kind& kind) {
       Value bound = cast(sum(x * 0.0), i32) + 2;
       return while_(
           {x, g.constant(Tensor::scalar(0))}, [&](Value, Value i) { return i < bound; },
           [&](Value s, Value i) {
             return std::array{kind.body(g, s), i + 1};
           })[0];
     }},
    {"IF",
     [](Graph& g, const Value& x, const Kind& kind) {
       return if_(
           sum(x) > -1.0, [&] { return kind.body(g, x); }, [&] { return x - 1.0; });
     }},
    {"SWITCH",
     [](Graph& g, const Value& x, const Kind& kind) {
       return switch_(cast(sum(x) > -1.0, i32), {[&] { return x - 1.0; }, [&] { return kind.body(g, x); }});
     }},
};

class BodyKinds : public ::testing::TestWithParam<std::tuple<DeviceId, Control, Kind>> {
 protected:
  void SetUp() override {
    g.output("y", control().make(g, x, kind()));
    g.output("other", x + 1.0);
  }
  DeviceId device() const { return std::get<0>(GetParam()); }
  const Control& control() const { return std::get<1>(GetParam()); }
  const Kind& kind() const { return std::get<2>(GetParam()); }
  bool is_legal() const { return kind().rule.empty() || device().kind == DeviceKind::cpu; }

  Graph g;
  Value x = g.input("x", f32, {4, 4});
};
INSTANTIATE_TEST_SUITE_P(Table, BodyKinds,
                         ::testing::Combine(::testing::ValuesIn(testing::devices()), ::testing::ValuesIn(kControls),
                                            ::testing::ValuesIn(kKinds)),
                         [](const auto& info) {
                           return std::string(std::get<2>(info.param).name) + "_" + std::get<1>(info.param).node +
                                  (std::get<0>(info.param).kind == DeviceKind::cpu ? "_cpu" : "_cuda");
                         });

TEST_P(BodyKinds, AreNodesOfTheLaunchIfTheyMay) {
  Program p = compile(g, {.target = device(), .require_whole_graph = is_legal()});
  const Plan plan = plan_of(p);
  ASSERT_FALSE(plan.controls.empty());
  for (const PlanControl& of : plan.controls) EXPECT_EQ(of.reason < 0, is_legal()) << p.explain();
  std::vector<float> data(16);
  for (std::size_t i = 0; i < data.size(); ++i) data[i] = static_cast<float>(i % 5) * 0.25f - 0.25f;
  p.write(x, data);
  for (int i = 0; i < 3; ++i) p.run(sink);
  const Tensor sunk = p.output("y");
  EXPECT_EQ(p.counters().fallbacks, 0u);
  Program q = compile(g, {.target = device()});
  q.write(x, data);
  for (int i = 0; i < 3; ++i) q.run(interactive_serial);
  EXPECT_EQ(std::memcmp(sunk.data(), q.output("y").data(), sunk.bytes()), 0);
  if (is_legal()) {
    EXPECT_EQ(p.captured()->conditional_nodes, static_cast<int>(plan.controls.size())) << p.explain();
    EXPECT_NE(p.explain().find(std::string(control().node) + " node"), std::string::npos) << p.explain();
    return;
  }
  EXPECT_EQ(p.captured()->conditional_nodes, 0);
  EXPECT_NE(p.explain().find(kind().rule), std::string::npos) << p.explain();
  EXPECT_EQ(p.explain().find(std::string(control().node) + " node"), std::string::npos) << p.explain();
}

}  // namespace
}  // namespace graphsink::body_kinds_test
