// Loops that a launch on a CUDA device cannot hold, and that are unrolled there. The CPU device runs them as loops, and
// in every mode all devices compute the same bits.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "api/plan_of.h"
#include "program_fixture.h"

namespace graphsink::unroll_run_test {
namespace {

using testing::cpu_plus_one;
using testing::OnDevice;

Value on_host(const Value& v) { return emit(cpu_plus_one, {v})[0]; }

struct Row {
  const char* name;
  int host_nodes;                                   // in one step
  std::function<void(Graph&, const Value&)> build;  // of x: f32 [4, 3]; adds outputs
  bool has_sums = false;                            // whose order differs between the devices
};
void PrintTo(const Row& row, std::ostream* out) { *out << row.name; }

Scan scan_of(const std::vector<Arg>& init, const Value& x, const std::function<Scan(const Values&, const Value&)>& body,
             const ScanOptions& options = {}) {
  return scan(
      init, {x}, [&](const Values& state, const Values& slices) { return body(state, slices[0]); }, options);
}

void trained(Graph& g, const Value& x, bool recompute) {
  Variable w("w", Tensor({0.5f, -0.25f, 2.0f}));
  Scan r = scan_of({sum(x, {0})}, x,
                   [&](const Values& s, const Value& row) {
                     Value next = s[0] * w + row;
                     // The gradient does not pass through the op on the host.
                     return Scan{{next * 0.5}, {next + stop_gradient(on_host(stop_gradient(next)))}};
                   },
                   {.recompute = recompute});
  Value loss = sum(r.outputs[0]) + sum(r.state[0]);
  g.output("gradient", grad(loss, {w})[0]);
  g.record("loss", loss);
  sgd(loss, {w}, {.lr = 0.0625});
}

const Row kRows[] = {
    {"StateAndOutputs", 4,
     [](Graph& g, const Value& x) {
       Scan r = scan_of({sum(x, {0})}, x, [](const Values& s, const Value& row) {
         Value next = on_host(s[0] * 0.5) + row;
         return Scan{{next}, {next * 2.0, row, s[0]}};
       });
       g.output("state", r.state[0]);
       for (std::size_t i = 0; i < 3; ++i) g.output("kept " + std::to_string(i), r.outputs[i]);
     }},
    {"StatesThatSwap", 3,
     [](Graph& g, const Value& x) {
       Value a = sum(x, {0}), b = max(x, {0});
       Scan r = scan({a, b}, {},
                     [](const Values& s, const Values&) {
                       return Scan{{s[1], on_host(s[0])}, {}};
                     },
                     {.iterations = 3});
       g.output("a", r.state[0]);
       g.output("b", r.state[1]);
     }},
    {"AStateThatStays", 2,
     [](Graph& g, const Value& x) {
       Scan r = scan({x, x}, {},
                     [](const Values& s, const Values&) {
                       return Scan{{s[0], on_host(s[1])}, {}};
                     },
                     {.iterations = 2});
       g.output("a", r.state[0]);
       g.output("b", r.state[1]);
     }},
    {"TheConditionIsOfTheCounter", 3,
     [](Graph& g, const Value& x) {
       auto r = while_(
           {x, g.constant(Tensor::scalar(2))}, [](Value, Value i) { return i < 8; },
           [](Value s, Value i) {
             return std::array{on_host(s) * cast(i, f32), i + 2};
           },
           {.max_iterations = 10});
       g.output("x", r[0]);
       g.output("i", r[1]);
     }},
    {"RandomNumbers", 4,
     [](Graph& g, const Value& x) {
       Scan r = scan_of({sum(x, {0})}, x, [](const Values& s, const Value& row) {
         Value drawn = random_uniform(row), whole = randint(row, 0, 1000, i32);
         return Scan{{dropout(on_host(s[0]) + drawn, 0.5)}, {drawn, whole}};
       });
       g.output("state", r.state[0]);
       g.output("drawn", r.outputs[0]);
       g.output("whole", r.outputs[1]);
       g.output("behind", random_uniform(x));
     }},
    {"VariablesThatBodiesAssign", 4,
     [](Graph& g, const Value& x) {
       Variable w("w", Tensor({1.0f, 2.0f, 3.0f})), n("n", Tensor::scalar(0.0f));
       Scan r = scan_of({}, x, [&](const Values&, const Value& row) {
         Value before = add(row, w);
         assign(w, on_host(before) * 0.5);
         assign(n, add(sum(row) * 0.125, n));
         return Scan{{}, {before}};
       });
       g.output("kept", r.outputs[0]);
       g.output("w", g.value(w) + 0.0);
       g.output("n", g.value(n) + 0.0);
     }},
    {"LoopsInLoops", 8,
     [](Graph& g, const Value& x) {
       Scan r = scan_of({sum(x)}, x, [](const Values& s, const Value& row) {
         Scan inner = scan_of({s[0]}, slice(row, {0}, {2}), [](const Values& t, const Value& in) {
           return Scan{{on_host(t[0]) * 0.5 + in}, {t[0]}};
         });
         Value legal = while_(
             {row}, [](Value u) { return sum(u) < 40.0; }, [](Value u) { return u * 2.0 + 1.0; })[0];
         return Scan{{inner.state[0]}, {inner.outputs[0], legal}};
       });
       g.output("state", r.state[0]);
       g.output("inner", r.outputs[0]);
       g.output("legal", r.outputs[1]);
     }},
    {"ABranchBeside", 4,
     [](Graph& g, const Value& x) {
       Scan r = scan_of({sum(x, {0})}, x, [](const Values& s, const Value& row) {
         Value chosen = if_(
             sum(row) > 0.0, [&] { return s[0] * 2.0; }, [&] { return row - 1.0; });
         return Scan{{on_host(chosen)}, {chosen}};
       });
       g.output("state", r.state[0]);
       g.output("chosen", r.outputs[0]);
     }},
    {"Gradients", 4, [](Graph& g, const Value& x) { trained(g, x, false); }, true},
    {"GradientsThatComputeAgain", 4, [](Graph& g, const Value& x) { trained(g, x, true); }, true},
    // The gradient keeps states at places that its own iterations count, up to a limit that is not reached.
    {"AGradientBelowTheLimit", 3,
     [](Graph& g, const Value& x) {
       Variable w("w", Tensor({0.5f, -0.25f, 2.0f}));
       auto r = while_(
           {sum(x, {0}), g.constant(Tensor::scalar(0))}, [](Value, Value i) { return i < 3; },
           [&](Value s, Value i) {
             return std::array{s * w + stop_gradient(on_host(stop_gradient(s))), i + 1};
           },
           {.max_iterations = 5});
       g.output("gradient", grad(sum(r[0]), {w})[0]);
     }},
};

class Unrolled : public ::testing::TestWithParam<std::tuple<DeviceId, Row>> {};
INSTANTIATE_TEST_SUITE_P(Rows, Unrolled,
                         ::testing::Combine(::testing::ValuesIn(testing::devices()), ::testing::ValuesIn(kRows)),
                         [](const auto& info) {
                           return std::string(std::get<1>(info.param).name) + "_" +
                                  (std::get<0>(info.param).kind == DeviceKind::cpu ? "cpu" : "cuda");
                         });

// What four steps leave: all outputs of each, and all records.
std::vector<Tensor> run(const Row& row, DeviceId device, Mode mode) {
  Graph g;
  Value x = g.input("x", f32, {4, 3});
  row.build(g, x);
  Program p = compile(g, {.target = device, .seed = 5, .guards = {.poison = true}});
  std::vector<Tensor> results;
  for (int step = 0; step < 4; ++step) {
    std::vector<float> data;
    for (int i = 0; i < 12; ++i) data.push_back(static_cast<float>((i * 5 + step * 3) % 7) * 0.5f - 1.0f);
    p.write(x, data);
    p.run(mode);
    for (const PlanOutput& output : plan_of(p).outputs) results.push_back(p.output(output.name));
  }
  for (const PlanRecord& record : plan_of(p).records) {
    const std::vector<double> values = p.records<double>(record.name);
    results.emplace_back(Shape{static_cast<std::int64_t>(values.size())}, values);
  }
  return results;
}

bool same_bits(const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const Tensor& x, const Tensor& y) {
    return x.type() == y.type() && std::memcmp(x.data(), y.data(), x.bytes()) == 0;
  });
}

// The differential test (random_graph/) compares unrolled loops with loops on one device, bit by bit.
TEST_P(Unrolled, ComputesWhatTheLoopDoesInEveryMode) {
  const auto& [device, row] = GetParam();
  const std::vector<Tensor> loop = run(row, cpu(), interactive_serial), first = run(row, device, interactive_serial);
  ASSERT_EQ(first.size(), loop.size());
  for (std::size_t k = 0; k < loop.size(); ++k) {
    ASSERT_EQ(first[k].type(), loop[k].type());
    for (std::int64_t i = 0; i < loop[k].shape().size(); ++i) {
      const double tolerance = row.has_sums ? 1e-5 * std::abs(loop[k].at(i)) : 0;
      ASSERT_NEAR(first[k].at(i), loop[k].at(i), tolerance) << "result " << k << ", element " << i;
    }
  }
  for (Mode mode : kAllModes) EXPECT_TRUE(same_bits(run(row, device, mode), first)) << to_string(mode);
}

TEST_P(Unrolled, IsOneLaunch) {
  const auto& [device, row] = GetParam();
  Graph g;
  Value x = g.input("x", f32, {4, 3});
  row.build(g, x);
  Program p = compile(g, {.target = device, .require_whole_graph = true});
  p.write(x, std::vector<float>(12, 0.5f));
  for (int i = 0; i < 3; ++i) p.run(sink);
  p.sync();
  EXPECT_EQ(p.counters().fallbacks, 0u);
  EXPECT_EQ(p.counters().graph_launches, 2u) << p.explain();
  if (device.kind == DeviceKind::cuda) {
    EXPECT_EQ(p.captured()->host_nodes, row.host_nodes) << p.explain();
  }
}

class UnrolledSteps : public OnDevice {};
INSTANTIATE_TEST_SUITE_P(Devices, UnrolledSteps, ::testing::ValuesIn(testing::devices()), testing::device_name);

void note(const CpuArgs& a) {
  a.attrs<std::shared_ptr<std::vector<float>>>()->push_back(*a.in<float>(0));
  *a.out<float>(0) = *a.in<float>(0) * 2;
}
const OpDef notes{
    .name = "notes", .infer = testing::infer_like_first, .traits = {.host_effect = true}, .bodies = {note}};

TEST_P(UnrolledSteps, EffectsHappenInTheOrderOfTheIterations) {
  for (Mode mode : kAllModes) {
    auto seen = std::make_shared<std::vector<float>>();
    Graph g;
    Value x = g.input("x", f32, {});
    emit(notes, {x - 1.0}, seen);
    Scan r = scan({x}, {},
                  [&](const Values& s, const Values&) {
                    return Scan{{emit(notes, {s[0]}, seen)[0]}, {}};
                  },
                  {.iterations = 4});
    emit(notes, {r.state[0] + 0.5}, seen);
    Program p = compile(g);
    p.write(x, std::vector<float>{1});
    for (int i = 0; i < 2; ++i) p.run(mode);
    p.sync();
    EXPECT_EQ(*seen, (std::vector<float>{0, 1, 2, 4, 8, 16.5, 0, 1, 2, 4, 8, 16.5})) << to_string(mode);
  }
}

TEST_P(UnrolledSteps, AnIterationThatFailsCommitsNothing) {
  for (Mode mode : kAllModes) {
    Graph g;
    Value x = g.input("x", f32, {4});
    Variable w("w", Tensor::scalar(0.0f));
    Scan r = scan({w}, {x}, [](const Values& s, const Values& in) {
      return Scan{{s[0] + emit(testing::cpu_refuse_negative, {in[0]})[0]}, {}};
    });
    assign(w, r.state[0]);
    Program p = compile(g);
    for (float third : {1.0f, 1.0f, -1.0f, 1.0f}) {
      p.write(x, std::vector<float>{1, 1, third, 1});
      p.run(mode);
      if (third < 0) {
        EXPECT_THROW(p.sync(), Error);
      }
    }
    EXPECT_EQ(w.read().at(0), 12.0) << to_string(mode);
  }
}

}  // namespace
}  // namespace graphsink::unroll_run_test
