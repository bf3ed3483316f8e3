// Gradients of graphs with branches and loops: through branches and loops with a limit, and where no path from the loss
// to what they are for leads through a loop without one. Those that are refused are rows of the table of misuses.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <map>
#include <numeric>
#include <random>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "ir/plan.h"
#include "ir/system_ops.h"
#include "program_fixture.h"

namespace graphsink::control_flow_gradient_test {
namespace {

class ControlFlowGradient : public testing::OnDevice {
 protected:
  // The first element of `value`, with x = {1, 2}.
  double run(const Value& value) {
    g.output("out", value);
    g.output("x", x);
    Program p = compile(g);
    p.write(x, std::vector<float>{1, 2});
    for (int i = 0; i < 2; ++i) p.run();
    return p.output("out").at(0);
  }

  Graph g;
  Value x = g.input("x", f32, {2});
  Variable w{"w", Tensor({3.0f, 4.0f})};
  Value v = g.value(w);
};
INSTANTIATE_TEST_SUITE_P(Devices, ControlFlowGradient, ::testing::ValuesIn(testing::devices()), testing::device_name);

TEST_P(ControlFlowGradient, APredicateHandsNoGradientOn) {
  Value y = if_(
      sum(x * v) > 0.0, [&] { return x * 5.0; }, [&] { return x * 7.0; });
  EXPECT_EQ(run(grad(sum(y * v), {w})[0]), 5.0);
}

TEST_P(ControlFlowGradient, AConditionOfALoopHandsNoGradientOn) {
  auto [y] = while_(
      {x}, [&](Value s) { return sum(s) < sum(v); }, [](Value s) { return s * 2.0; });
  EXPECT_EQ(run(grad(sum(y * v), {w})[0]), 4.0);
}

TEST_P(ControlFlowGradient, AStateThatDoesNotDependHandsNoGradientOn) {
  auto [y, z, n] = while_(
      {x, x, 0.0}, [](Value, Value, Value i) { return i < 3.0; },
      [&](Value s, Value t, Value i) {
        return std::array{s * 2.0, t * v, i + 1.0};
      });
  g.output("z", z);
  EXPECT_EQ(run(grad(sum(y * v), {w})[0]), 8.0);
}

TEST_P(ControlFlowGradient, ALoopMayTrainItsState) {
  auto [s, n] = while_(
      {x, 0.0}, [](Value, Value i) { return i < 4.0; },
      [&](Value p, Value i) {
        Value error = p - v;
        return std::array{p - grad(sum(error * error), {p})[0] * 0.25, i + 1.0};
      });
  g.output("n", n);
  EXPECT_EQ(run(s), 3.0 - 2.0 * std::pow(0.5, 4));
}

TEST_P(ControlFlowGradient, ALoopMayAddUpGradientsOfAParameter) {
  auto [total, n] = while_(
      {x * 0.0, 1.0}, [](Value, Value i) { return i < 4.0; },
      [&](Value a, Value i) {
        return std::array{a + grad(sum(v * v) * i, {w})[0], i + 1.0};
      });
  g.output("n", n);
  EXPECT_EQ(run(total), 2.0 * 3.0 * (1 + 2 + 3));
}

TEST_P(ControlFlowGradient, ABranchMayHaveGradientsOfItsOwn) {
  Value y = if_(
      sum(x) > 0.0, [&] { return grad(sum(v * v * x), {w})[0]; }, [&] { return x * 7.0; });
  EXPECT_EQ(run(y), 6.0);
}

// A loss of two f64 inputs and two f64 Variables, with branches.
struct Case {
  const char* name;
  // The loss, given a boolean scalar.
  std::function<Value(const Value& p, const Value& x, const Value& y, const Value& v, const Value& w)> loss;
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

const Case kCases[] = {
    {"BothCapture",
     [](const Value& p, const Value& x, const Value& y, const Value& v, const Value& w) {
       return sum(if_(
           p, [&] { return tanh(x * v) + w; }, [&] { return exp(y * 0.3) * v - w; }));
     }},
    {"OneHandsOnWhatIsOutside",
     [](const Value& p, const Value& x, const Value& y, const Value& v, const Value&) {
       Value u = x * v;
       return sum(if_(
                      p, [&] { return u; }, [&] { return y * y; }) *
                  u);
     }},
    {"OneDoesNotDepend",
     [](const Value& p, const Value& x, const Value&, const Value&, const Value& w) {
       return sum(if_(
           p, [&] { return w * 2.0; }, [&] { return broadcast_like(cast(p, f64) + 3.0, x); }));
     }},
    {"SeveralResultsOfWhichOneIsUnused",
     [](const Value& p, const Value& x, const Value& y, const Value& v, const Value& w) {
       Values r = if_(
           p,
           [&] {
             return Values{x * v, sin(y), w * w * x};
           },
           [&] {
             Value shared = cos(w * y);
             return Values{shared, shared * x, v};
           });
       return sum(r[0] * 0.5 + r[2] * r[0]);
     }},
    {"ABranchInABranch",
     [](const Value& p, const Value& x, const Value& y, const Value& v, const Value& w) {
       return sum(if_(
           p,
           [&] {
             Value u = x * w;
             return if_(
                        sum(y) > 0.5, [&] { return u * tanh(v); }, [&] { return exp(u * 0.1) + y; }) *
                    u;
           },
           [&] {
             return if_(
                 sum(y) > 0.5, [&] { return sin(w); }, [&] { return v * v * x; });
           }));
     }},
    {"BranchesBehindBranches",
     [](const Value& p, const Value& x, const Value& y, const Value& v, const Value& w) {
       Value a = if_(
           p, [&] { return x * v; }, [&] { return y - w; });
       Value b = if_(
           sum(a) > 0.0, [&] { return a * a; }, [&] { return a * v * 0.5; });
       return sum(a * b + b * w);
     }},
    {"ProductsAndRows",
     [](const Value& p, const Value& x, const Value& y, const Value& v, const Value& w) {
       Value m = reshape(x, {2, 3}), n = reshape(v, {3, 2});
       return sum(if_(
                      p, [&] { return softmax(matmul(m, n)); },
                      [&] {
                        return matmul(m * reshape(y, {2, 3}), n) * sum(w);
                      }) *
                  matmul(m, n));
     }},
    {"OneOfThree",
     [](const Value& p, const Value& x, const Value& y, const Value& v, const Value& w) {
       return sum(switch_(cast(p, i32) * 2,
                          {[&] { return tanh(x * v) + w; }, [&] { return y; }, [&] { return exp(y * 0.3) * v - w; }}) *
                  x);
     }},
    {"AChoiceInABranch",
     [](const Value& p, const Value& x, const Value& y, const Value& v, const Value& w) {
       return sum(if_(
           p,
           [&] {
             Value u = x * w;
             return switch_(cast(sum(y) > 0.5, i32), {[&] { return u * tanh(v); }, [&] { return sin(u) + y; }}) * u;
           },
           [&] { return w * v; }));
     }},
    // A loop that hands no gradient on, but a number that the branch needs.
    {"ALoopInABranch",
     [](const Value& p, const Value& x, const Value& y, const Value& v, const Value&) {
       return sum(if_(
           p,
           [&] {
             auto [n] = while_(
                 {cast(p, f64)}, [](Value i) { return i < 9.0; }, [](Value i) { return i * 2.0; });
             return x * v * n;
           },
           [&] { return x * y; }));
     }},
    // --- loops: p says how often
    {"ALoop",
     [](const Value& p, const Value& x, const Value& y, const Value& v, const Value& w) {
       auto [s, i] = while_(
           {x, cast(p, i32)}, [](Value, Value i) { return i < 4; },
           [&](Value s, Value i) {
             return std::array{tanh(s * v) + w * y, i + 1};
           },
           {.max_iterations = 7});
       return sum(s * y);
     }},
    {"ALoopThatMayNotRun",
     [](const Value& p, const Value& x, const Value&, const Value& v, const Value&) {
       auto [s, i] = while_(
           {x * x, cast(p, i32)}, [](Value, Value i) { return i < 1; },
           [&](Value s, Value i) {
             return std::array{s * v, i + 1};
           },
           {.max_iterations = 1});
       return sum(s);
     }},
    {"StatesThatChangePlaces",
     [](const Value& p, const Value& x, const Value& y, const Value& v, const Value& w) {
       auto [a, b, c, i] = while_(
           {x, y, w, cast(p, i32)}, [](Value, Value, Value, Value i) { return i < 5; },
           [&](Value a, Value b, Value c, Value i) {
             return std::array{b * v, a + c, c, i + 1};
           },
           {.max_iterations = 5});
       return sum(a * b) + sum(c * c);
     }},
    {"AStateThatBeginsAsAConstant",
     [](const Value& p, const Value& x, const Value& y, const Value& v, const Value&) {
       Value zero = broadcast_like(cast(p, f64) * 0.0, x);
       auto [s, i] = while_(
           {zero, cast(p, i32)}, [](Value, Value i) { return i < 3; },
           [&](Value s, Value i) {
             return std::array{s * y + x * v * cast(i, f64), i + 1};
           },
           {.max_iterations = 3});
       return sum(s * s);
     }},
    {"AConditionOnTheState",
     [](const Value& p, const Value& x, const Value& y, const Value& v, const Value&) {
       auto [s] = while_(
           {exp(x) + cast(p, f64) * 3.0}, [](Value s) { return sum(s) < 200.0; },
           [&](Value s) { return s * (exp(v * 0.1) + 0.5) + y * y; }, {.max_iterations = 40});
       return sum(log(s));
     }},
    {"ALoopInALoop",
     [](const Value& p, const Value& x, const Value& y, const Value& v, const Value& w) {
       auto [s, i] = while_(
           {x, cast(p, i32)}, [](Value, Value i) { return i < 3; },
           [&](Value s, Value i) {
             Value u = s * w;
             auto [t, k] = while_(
                 {s + y, i}, [](Value, Value k) { return k < 3; },
                 [&](Value t, Value k) {
                   return std::array{tanh(t * v) + u, k + 1};
                 },
                 {.max_iterations = 3});
             return std::array{t + s * 0.5, i + 1};
           },
           {.max_iterations = 3});
       return sum(s * s);
     }},
    {"ABranchInALoop",
     [](const Value& p, const Value& x, const Value& y, const Value& v, const Value& w) {
       auto [s, i] = while_(
           {x, cast(p, i32)}, [](Value, Value i) { return i < 4; },
           [&](Value s, Value i) {
             Value next = if_(
                 i < 2, [&] { return s * v + y; }, [&] { return sin(s) * w; });
             return std::array{next, i + 1};
           },
           {.max_iterations = 4});
       return sum(s * s);
     }},
    {"ALimitedLoopInABranch",
     [](const Value& p, const Value& x, const Value& y, const Value& v, const Value& w) {
       return sum(if_(
                      p,
                      [&] {
                        auto [s, i] = while_(
                            {x * w, cast(p, i32)}, [](Value, Value i) { return i < 4; },
                            [&](Value s, Value i) {
                              return std::array{s * v + y, i + 1};
                            },
                            {.max_iterations = 4});
                        return s;
                      },
                      [&] { return x * v; }) *
                  w);
     }},
    {"TheGradientOfTheGradientOfALoop",
     [](const Value& p, const Value& x, const Value& y, const Value& v, const Value& w) {
       auto [s, i] = while_(
           {x, cast(p, i32)}, [](Value, Value i) { return i < 3; },
           [&](Value s, Value i) {
             return std::array{s * s * v * 0.3 + w, i + 1};
           },
           {.max_iterations = 4});
       std::vector<Value> g = grad(sum(s * y), {v, x});
       return sum(g[0] * g[0]) + sum(g[1] * w);
     }},
    {"AScan",
     [](const Value& p, const Value& x, const Value& y, const Value& v, const Value& w) {
       Scan r = scan({reshape(slice(x, {0}, {2}), {2}) * cast(p, f64)}, {reshape(y, {3, 2}), reshape(v, {3, 2})},
                     [&](const Values& s, const Values& in) {
                       Value next = tanh(s[0] * in[0] + in[1]);
                       return Scan{{next}, {next * slice(w, {0}, {2}), in[1] * in[1]}};
                     });
       return sum(r.state[0]) + sum(r.outputs[0] * reshape(x, {3, 2})) + sum(r.outputs[1] * r.outputs[0]);
     }},
    {"AScanThatAlsoUsesAllOfItsInput",
     [](const Value& p, const Value& x, const Value& y, const Value& v, const Value&) {
       Value rows = reshape(y * v, {3, 2});
       Scan r = scan({sum(x) * cast(p, f64)}, {rows}, [&](const Values& s, const Values& in) {
         return Scan{{s[0] * 0.5 + sum(in[0] * in[0]) * sum(rows)}, {s[0] * in[0]}};
       });
       return sum(r.outputs[0]) * r.state[0];
     }},
    {"AScanWithoutInputs",
     [](const Value& p, const Value& x, const Value&, const Value& v, const Value&) {
       Scan r = scan(
           {x}, {},
           [&](const Values& s, const Values&) {
             return Scan{{s[0] * v + cast(p, f64)}, {sum(s[0])}};
           },
           {.iterations = 4});
       return sum(r.outputs[0] * r.outputs[0]);
     }},
    {"AScanWithoutAState",
     [](const Value& p, const Value& x, const Value& y, const Value& v, const Value&) {
       Scan r = scan({}, {reshape(x, {3, 2}), reshape(v, {3, 2})}, [&](const Values&, const Values& in) {
         return Scan{{}, {in[0] * in[1] * sum(y) + cast(p, f64)}};
       });
       return sum(r.outputs[0] * r.outputs[0]);
     }},
    {"AScanInAScan",
     [](const Value& p, const Value& x, const Value& y, const Value& v, const Value& w) {
       Scan r = scan({sum(w) * cast(p, f64)}, {reshape(x, {3, 2}), reshape(y, {3, 2})},
                     [&](const Values& s, const Values& in) {
                       Scan inner = scan({s[0]}, {in[0], in[1]}, [&](const Values& t, const Values& e) {
                         return Scan{{t[0] * e[0] + e[1]}, {e[0] * sum(v)}};
                       });
                       return Scan{inner.state, {inner.outputs[0] * s[0]}};
                     });
       return sum(r.outputs[0] * r.outputs[0]) + r.state[0];
     }},
    {"TheGradientOfTheGradientOfAScan",
     [](const Value& p, const Value& x, const Value& y, const Value& v, const Value& w) {
       Scan r = scan({slice(x, {0}, {2}) * (cast(p, f64) + 1.0)}, {reshape(y, {3, 2}), reshape(v, {3, 2})},
                     [&](const Values& s, const Values& in) {
                       Value next = s[0] * s[0] * in[0] + in[1];
                       return Scan{{next}, {next * in[0]}};
                     });
       std::vector<Value> g = grad(sum(r.outputs[0] * reshape(w, {3, 2})) + sum(r.state[0]), {y, x});
       return sum(g[0] * g[0]) + sum(g[1] * v);
     }},
    {"ProductsInALoop",
     [](const Value& p, const Value& x, const Value& y, const Value& v, const Value& w) {
       Value in = reshape(y, {3, 2}), out = reshape(w, {2, 3});
       auto [s, i] = while_(
           {reshape(x, {2, 3}), cast(p, i32)}, [](Value, Value i) { return i < 4; },
           [&](Value s, Value i) {
             return std::array{tanh(matmul(matmul(s, in), out)) + reshape(v, {2, 3}), i + 1};
           },
           {.max_iterations = 6});
       return sum(s * s);
     }},
    {"OneMatrixInTwoProducts",
     [](const Value& p, const Value& x, const Value&, const Value& v, const Value& w) {
       Value m = reshape(w, {2, 3});
       auto [s, i] = while_(
           {reshape(x, {1, 2, 3}), cast(p, i32)}, [](Value, Value i) { return i < 3; },
           [&](Value s, Value i) {
             Value inner = sin(matmul(s, m, {.transpose_b = true}));
             return std::array{matmul(inner, m) * reshape(v, {2, 3}), i + 1};
           },
           {.max_iterations = 3});
       return sum(s * s);
     }},
    {"AMatrixThatIsAlsoUsedOtherwise",
     [](const Value& p, const Value& x, const Value& y, const Value&, const Value& w) {
       Value m = reshape(w, {2, 3});
       auto [s, i] = while_(
           {reshape(x, {2, 3}), cast(p, i32)}, [](Value, Value i) { return i < 3; },
           [&](Value s, Value i) {
             return std::array{matmul(matmul(s, reshape(y, {3, 2})), m) + s * m, i + 1};
           },
           {.max_iterations = 4});
       return sum(s * s);
     }},
    {"AProductInABranchInALoop",
     [](const Value& p, const Value& x, const Value& y, const Value& v, const Value& w) {
       Value in = reshape(y, {3, 2}), out = reshape(w, {2, 3});
       auto [s, i] = while_(
           {reshape(x, {2, 3}), cast(p, i32)}, [](Value, Value i) { return i < 4; },
           [&](Value s, Value i) {
             Value small = matmul(s, in);
             Value next = if_(
                 i < 2, [&] { return matmul(small, out); }, [&] { return matmul(small * small, out) * 0.5; });
             return std::array{next + reshape(v, {2, 3}), i + 1};
           },
           {.max_iterations = 4});
       return sum(s * s);
     }},
    {"ProductsInALoopInALoop",
     [](const Value& p, const Value& x, const Value& y, const Value& v, const Value& w) {
       Value in = reshape(y, {3, 2}), out = reshape(w, {2, 3});
       auto [s, i] = while_(
           {reshape(x, {2, 3}), cast(p, i32)}, [](Value, Value i) { return i < 3; },
           [&](Value s, Value i) {
             Value first = matmul(tanh(s), in);
             auto [t, k] = while_(
                 {first, i}, [](Value, Value k) { return k < 3; },
                 [&](Value t, Value k) {
                   return std::array{sin(matmul(matmul(t, out), in)) + first, k + 1};
                 },
                 {.max_iterations = 3});
             return std::array{matmul(t, out) + reshape(v, {2, 3}), i + 1};
           },
           {.max_iterations = 3});
       return sum(s * s);
     }},
    {"TheGradientOfTheGradientOfProductsInALoop",
     [](const Value& p, const Value& x, const Value& y, const Value& v, const Value& w) {
       Value in = reshape(y, {3, 2}), out = reshape(w, {2, 3});
       auto [s, i] = while_(
           {reshape(x, {2, 3}), cast(p, i32)}, [](Value, Value i) { return i < 3; },
           [&](Value s, Value i) {
             Value u = matmul(s, in);
             return std::array{matmul(u * u, out) * 0.5, i + 1};
           },
           {.max_iterations = 3});
       std::vector<Value> g = grad(sum(s * reshape(v, {2, 3})), {y, x});
       return sum(g[0] * g[0]) + sum(g[1] * w);
     }},
    {"AScanOfProducts",
     [](const Value& p, const Value& x, const Value& y, const Value& v, const Value& w) {
       Value in = reshape(y, {2, 3}), again = reshape(w, {3, 2});
       Scan r = scan({reshape(slice(v, {0}, {3}), {1, 3}) * cast(p, f64)}, {reshape(x, {3, 1, 2})},
                     [&](const Values& s, const Values& now) {
                       Value next = tanh(matmul(now[0], in) + matmul(matmul(s[0], again), in));
                       return Scan{{next}, {next * next}};
                     });
       return sum(r.outputs[0]) + sum(r.state[0]);
     }},
    {"TheGradientOfAGradient",
     [](const Value& p, const Value& x, const Value& y, const Value& v, const Value& w) {
       Value inner = sum(if_(
           p, [&] { return x * x * v * w; }, [&] { return exp(y * v * 0.2) * x; }));
       Value g = grad(inner, {v})[0];
       return sum(g * g) + sum(g * w);
     }},
};

class BranchGradient : public ::testing::TestWithParam<std::tuple<DeviceId, Case, bool>> {
 protected:
  static constexpr std::int64_t kSize = 6;
  static Tensor random(std::mt19937& engine) {
    std::vector<double> values(kSize);
    for (double& value : values) value = std::uniform_real_distribution<double>(-1, 1)(engine);
    return Tensor({kSize}, values);
  }
};

INSTANTIATE_TEST_SUITE_P(All, BranchGradient,
                         ::testing::Combine(::testing::ValuesIn(testing::devices()), ::testing::ValuesIn(kCases),
                                            ::testing::Bool()),
                         [](const auto& info) {
                           return std::string(std::get<1>(info.param).name) +
                                  (std::get<2>(info.param) ? "_then_" : "_else_") +
                                  (std::get<0>(info.param).kind == DeviceKind::cpu ? "cpu" : "cuda");
                         });

// Along 20 directions the gradients are the slope of the loss, and they have the same bits in all modes.
TEST_P(BranchGradient, IsTheSlopeOfTheLossInAllModes) {
  const auto& [device, c, taken] = GetParam();
  std::mt19937 engine(5);
  const std::vector<Tensor> at{random(engine), random(engine), random(engine), random(engine)};
  Graph g;
  Value flag = g.input("flag", f32, {});
  std::vector<Value> inputs;
  for (const char* name : {"x", "y", "v", "w"}) inputs.push_back(g.input(name, f64, {kSize}));
  Value loss = c.loss(flag > 0.0, inputs[0], inputs[1], inputs[2], inputs[3]);
  g.output("loss", loss);
  std::vector<Value> gradients = grad(loss, {inputs[0], inputs[1], inputs[2], inputs[3]});
  for (std::size_t i = 0; i < inputs.size(); ++i) g.output("gradient " + std::to_string(i), gradients[i]);
  Program p = compile(g, {.target = device, .require_whole_graph = true});
  p.write(flag, Tensor::scalar(taken ? 1.0f : 0.0f));
  auto write = [&](double step, const std::vector<Tensor>& direction) {
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      Tensor moved = at[i];
      for (std::int64_t k = 0; k < kSize; ++k)
        moved.as<double>()[static_cast<std::size_t>(k)] += step * direction[i].at(k);
      p.write(inputs[i], moved);
    }
  };
  auto loss_at = [&](double step, const std::vector<Tensor>& direction) {
    write(step, direction);
    p.run(interactive_serial);
    return p.output("loss").at(0);
  };
  auto read_gradients = [&] {
    std::vector<double> read;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      const Tensor gradient = p.output("gradient " + std::to_string(i));
      for (std::int64_t k = 0; k < kSize; ++k) read.push_back(gradient.at(k));
    }
    return read;
  };
  write(0, at);
  p.run(interactive_serial);
  const std::vector<double> expected = read_gradients();
  for (Mode mode : testing::kModes) {
    for (int i = 0; i < 2; ++i) p.run(mode);
    EXPECT_EQ(read_gradients(), expected);
  }
  constexpr double kStep = 1e-4;
  for (int trial = 0; trial < 20; ++trial) {
    const std::vector<Tensor> direction{random(engine), random(engine), random(engine), random(engine)};
    double slope = 0;
    for (std::size_t i = 0; i < expected.size(); ++i)
      slope += expected[i] * direction[i / kSize].at(static_cast<std::int64_t>(i % kSize));
    auto difference = [&](double step) { return loss_at(step, direction) - loss_at(-step, direction); };
    // Of five points: what is left out is of the fourth power of the step.
    const double measured = (8 * difference(kStep) - difference(2 * kStep)) / (12 * kStep);
    EXPECT_NEAR(slope, measured, 1e-6 * std::max(1.0, std::abs(measured)));
  }
}

// The gradient of x * r, where r is random, is r.
TEST_P(ControlFlowGradient, RandomOpsOfABranchDrawTheSameNumbersAgain) {
  Value many = g.input("many", f32, {64});
  Value made = if_(
      sum(x) > 0.0, [&] { return dropout(many * random_uniform(many, 1, 2), 0.5); }, [&] { return many * 1.0; });
  g.output("made", made);
  g.output("gradient", grad(sum(made), {many})[0]);
  Program p = compile(g);
  p.write(x, std::vector<float>{1, 2});
  p.write(many, Tensor::full(f32, {64}, 1.0));
  double last = 0;
  for (Mode mode : {interactive_serial, sink, sink, sink}) {
    p.run(mode);
    const Tensor r = p.output("made"), gradient = p.output("gradient");
    double total = 0;
    for (std::int64_t i = 0; i < 64; ++i) {
      EXPECT_EQ(gradient.at(i), r.at(i));
      total += r.at(i);
    }
    EXPECT_NE(total, last) << "each step draws others";
    last = total;
  }
}

// Nothing needs the branch itself, so nothing of it is computed but the copies.
TEST_P(ControlFlowGradient, ALoopInABranchIsCopiedAsAWhole) {
  Value y = if_(
      sum(x) > 0.0,
      [&] {
        auto [n] = while_(
            {sum(x) * 0.0 + 1.0}, [](Value i) { return i < 9.0; }, [](Value i) { return i * 2.0; });
        return x * v * n;
      },
      [&] { return x * 1.0; });
  EXPECT_EQ(run(grad(sum(y), {w})[0]), 16.0);
}

int calls = 0;
const OpDef note_op{.name = "note",
                    .infer = [](InferArgs& a) { a.out(a.in(0).dtype, a.in(0).shape); },
                    .traits = {.host_effect = true},
                    .bodies = {[](const CpuArgs& a) {
                      ++calls;
                      a.out<float>(0)[0] = a.in<float>(0)[0];
                    }}};

TEST_P(ControlFlowGradient, EffectsOfABranchHappenOnce) {
  Value y = if_(
      sum(x) > 0.0,
      [&] {
        emit(note_op, {sum(x)});
        return x * v;
      },
      [&] { return x * 1.0; });
  g.output("y", y);
  calls = 0;
  EXPECT_EQ(run(grad(sum(y * v), {w})[0]), 2.0 * 1.0 * 3.0);
  EXPECT_EQ(calls, 2) << "once in each step";
}

TEST_P(ControlFlowGradient, RandomOpsOfALoopDrawTheSameNumbersAgain) {
  Value many = g.input("many", f32, {64});
  auto [s, product, n] = while_(
      {many, many, 0.0}, [](Value, Value, Value n) { return n < 3.0; },
      [&](Value s, Value product, Value n) {
        Value r = random_uniform(s);
        return std::array{s * r, product * r, n + 1.0};
      },
      {.max_iterations = 5});
  g.output("product", stop_gradient(product));
  g.output("gradient", grad(sum(s), {many})[0]);
  Program p = compile(g, {.target = GetParam()});
  p.write(many, Tensor::full(f32, {64}, 1.0));
  double last = 0;
  for (Mode mode : {interactive_serial, sink, sink, sink}) {
    p.run(mode);
    const Tensor made = p.output("product"), gradient = p.output("gradient");
    double total = 0;
    for (std::int64_t i = 0; i < 64; ++i) {
      EXPECT_NEAR(gradient.at(i), made.at(i), 1e-6);  // the factors are multiplied in the other order
      total += made.at(i);
    }
    EXPECT_NE(total, last) << "each step draws others";
    last = total;
  }
}

TEST_P(ControlFlowGradient, EffectsOfALoopHappenOnceInEachIteration) {
  auto [y, n] = while_(
      {x, 0.0}, [](Value, Value n) { return n < 3.0; },
      [&](Value s, Value n) {
        emit(note_op, {n});
        return std::array{s * v, n + 1.0};
      },
      {.max_iterations = 4});
  calls = 0;
  EXPECT_EQ(run(grad(sum(y), {w})[0]), 3.0 * 9.0);
  EXPECT_EQ(calls, 6) << "three in each step";
}

// x * v^3 by a limit that is not reached, then reached, then exceeded.
TEST_P(ControlFlowGradient, ALoopThatReachesItsLimitCommitsNothing) {
  Value times = g.input("times", f32, {});
  auto [y, n] = while_(
      {x, 0.0}, [&](Value, Value n) { return n < times; },
      [&](Value s, Value n) {
        return std::array{s * w, n + 1.0};
      },
      {.max_iterations = 3});
  sgd(sum(y), {w}, {.lr = 0.125});
  for (Mode mode : testing::kModes) {
    w.write(Tensor({2.0f, 3.0f}));
    Program p = compile(g, {.target = GetParam()});
    p.write(x, std::vector<float>{1, 1});
    double expected = 2.0;
    for (float iterations : {0.0f, 2.0f, 3.0f}) {
      p.write(times, std::vector<float>{iterations});
      p.run(mode);
      expected -= 0.125 * iterations * (iterations == 0 ? 0 : std::pow(expected, iterations - 1));
      EXPECT_NEAR(w.read().at(0), expected, 1e-5);
    }
    p.write(times, std::vector<float>{4.0f});
    p.run(mode);
    EXPECT_THROW(p.sync(), Error);
    EXPECT_NEAR(w.read().at(0), expected, 1e-5);
  }
}

// 16-bit sums of ones stay at 256 in bf16, and at 2048 in f16.
TEST_P(ControlFlowGradient, GradientsOf16BitsAreAddedUpInF32) {
  for (DType dtype : {bf16, f16}) {
    for (bool recompute : {false, true}) {
      SCOPED_TRACE(std::string(to_string(dtype)) + (recompute ? ", recompute" : ""));
      const std::int64_t iterations = dtype == bf16 ? 300 : 2100;
      Graph graph;
      Variable half("half", Tensor::full(dtype, {}, 0.5));
      Value zero = graph.constant(Tensor::scalar(0.0f)), weight = graph.value(half);
      auto body = [&](const Values& state, const Values&) { return Scan{{state[0] + cast(weight, f32)}, {}}; };
      Value sum = scan({zero}, {}, body, {.iterations = iterations, .recompute = recompute}).state[0];
      graph.output("gradient", grad(sum, {half})[0]);
      for (Mode mode : {interactive_serial, sink}) {
        Program p = compile(graph, {.target = GetParam()});
        p.run(mode);
        EXPECT_EQ(p.output("gradient").at(0), static_cast<double>(iterations));
      }
    }
  }
}

// The sum of 300 terms is 74.5, of which loops of few iterations add up -2048 and 2048: sums that f16 and bf16 round.
// A scan of that kind is two loops if it recomputes, and a third one for the iterations that are left.
TEST_P(ControlFlowGradient, LoopsInLoopsAreAddedUpInF32) {
  constexpr std::int64_t kTerms = 300;
  std::vector<float> terms(kTerms, 0.25f);
  terms.front() = -2048, terms.back() = 2048;
  const double expected = std::accumulate(terms.begin(), terms.end(), 0.0);
  for (DType dtype : {bf16, f16}) {
    Graph graph;
    Variable scalar("scalar", Tensor::full(dtype, {}, 0.5)), matrix("matrix", Tensor::full(dtype, {1, 1}, 0.5));
    Value zero = graph.constant(Tensor::scalar(0.0f)), u = graph.value(scalar), m = graph.value(matrix);
    Value x = graph.constant(Tensor(Shape{kTerms, 1, 1}, terms).to(dtype));
    auto times = [&](const Values& state, const Values& of) {
      return Scan{{state[0] + cast(sum(u * of[0]), f32)}, {}};
    };
    auto product = [&](const Values& state, const Values& of) {
      return Scan{{state[0] + cast(sum(matmul(of[0], m)), f32)}, {}};
    };
    auto loops = [&](const auto& body) {
      return [&](const Values& state, const Values& of) { return scan({state[0]}, {of[0]}, body); };
    };
    auto at = [&](const Value& i) { return gather(x, reshape(i, {1}), 0); };
    auto counted = [&](const WhileOptions& options) {
      Value first = graph.constant(Tensor::scalar(std::int32_t{0}));
      return while_(
          {first, zero}, [&](Value i, Value) { return i < static_cast<double>(kTerms); },
          [&](Value i, Value s) {
            return std::array{i + 1.0, s + cast(sum(u * at(i)), f32)};
          },
          options)[1];
    };
    const std::map<std::string, std::pair<Value, Variable>> gradients{
        {"scan", {scan({zero}, {x}, times).state[0], scalar}},
        {"recompute", {scan({zero}, {x}, times, {.recompute = true}).state[0], scalar}},
        {"nested", {scan({zero}, {reshape(x, {15, 20, 1, 1})}, loops(times)).state[0], scalar}},
        {"product", {scan({zero}, {x}, product).state[0], matrix}},
        {"product, recompute", {scan({zero}, {x}, product, {.recompute = true}).state[0], matrix}},
        {"product, nested", {scan({zero}, {reshape(x, {15, 20, 1, 1})}, loops(product)).state[0], matrix}},
        {"while", {counted({.max_iterations = kTerms}), scalar}},
        {"while, recompute", {counted({.max_iterations = kTerms, .recompute = true}), scalar}}};
    for (const auto& [name, of] : gradients) graph.output(name, grad(of.first, {of.second})[0]);
    for (Mode mode : {interactive_serial, sink}) {
      Program p = compile(graph, {.target = GetParam()});
      p.run(mode);
      for (const auto& [name, of] : gradients)
        EXPECT_EQ(p.output(name).at(0), expected) << name << ", " << to_string(dtype);
    }
  }
}

// A row for each value of an open axis, in the state and in what is kept of each iteration.
TEST_P(ControlFlowGradient, ALoopMayHaveAStateOfOpenSize) {
  Value rows = g.input("rows", f32, {open(3), 2});
  auto [y, n] = while_(
      {rows, 0.0}, [](Value, Value n) { return n < 2.0; },
      [&](Value s, Value n) {
        return std::array{s * v, n + 1.0};
      },
      {.max_iterations = 3});
  g.output("gradient", grad(sum(y), {w})[0]);
  Program p = compile(g, {.target = GetParam()});
  p.write(x, std::vector<float>{1, 1});
  for (std::int64_t size : {3, 1, 7, 3})
    for (Mode mode : testing::kModes) {
      p.write(rows, Tensor::full(f32, {size, 2}, 1.0));
      p.run(mode);
      EXPECT_EQ(p.output("gradient").at(0), 2.0 * 3.0 * static_cast<double>(size));
    }
}

// What the gradient needs of each iteration is kept, and nothing else.
TEST_P(ControlFlowGradient, OnlyStatesThatAreNeededAreKept) {
  auto [s, unused, n] = while_(
      {x, x, 0.0}, [](Value, Value, Value n) { return n < 3.0; },
      [&](Value s, Value t, Value n) {
        return std::array{s * v, t + 1.0, n + 1.0};
      },
      {.max_iterations = 100});
  g.output("s", s);
  auto kept = [&] {
    const Plan plan = make_plan(g, Target::host(), system_ops());
    return std::count_if(plan.nodes.begin(), plan.nodes.end(),
                         [](const PlanNode& node) { return node.op->name == "store_at"; });
  };
  EXPECT_EQ(kept(), 0);
  g.output("of x", grad(sum(s), {x})[0]);
  EXPECT_EQ(kept(), 0) << "v is the same in each iteration";
  g.output("of v", grad(sum(s), {w})[0]);
  EXPECT_EQ(kept(), 1) << "the gradient of v needs s";
  g.output("again", grad(mean(s), {w})[0]);
  EXPECT_EQ(kept(), 1) << "which is the same stack";
}

// Of the products of a loop, the gradient repeats none, and those that give the gradients of matrices from outside are
// one each, behind the loops.
TEST_P(ControlFlowGradient, ProductsOfALoopAreNotRepeated) {
  Variable m("m", Tensor::full(f32, {2, 2}, 0.5)), batch("batch", Tensor::full(f32, {3, 2}, 1.0));
  auto [s, n] = while_(
      {g.value(batch), 0.0}, [](Value, Value n) { return n < 3.0; },
      [&](Value s, Value n) {
        return std::array{tanh(matmul(s, m)), n + 1.0};
      },
      {.max_iterations = 5});
  g.output("gradient", grad(sum(s), {m})[0]);
  const Plan plan = make_plan(g, Target::host(), system_ops());
  int in_step = 0, in_bodies = 0;
  for (int i = 0; i < static_cast<int>(plan.sequences.size()); ++i)
    for (const Task& task : plan.tasks_of(i))
      if (task.kind == TaskKind::call && plan.nodes[static_cast<std::size_t>(task.node)].op->name.starts_with("matmul"))
        ++(i == 0 ? in_step : in_bodies);
  EXPECT_EQ(in_step, 1) << "the gradient of m";
  EXPECT_EQ(in_bodies, 2) << "s times m, and the gradient of that times m transposed";
}

// A product that is only a summand is not kept, but the sum is: then the gradient does not add again.
TEST_P(ControlFlowGradient, SumsOfProductsAreKept) {
  Variable m("m", Tensor::full(f32, {2, 2}, 0.5)), batch("batch", Tensor::full(f32, {3, 2}, 1.0));
  for (int other_uses : {0, 1, 2}) {  // of the product: none, behind the sum, or before it
    Graph graph;
    auto [s, n] = while_(
        {graph.value(batch), 0.0}, [](Value, Value n) { return n < 3.0; },
        [&](Value s, Value n) {
          const Value product = matmul(s, m), before = other_uses == 2 ? exp(product) : s;
          const Value next = tanh(product + s * 2.0) * before;
          return std::array{other_uses == 1 ? next * product : next, n + 1.0};
        },
        {.max_iterations = 5});
    graph.output("gradient", grad(sum(s), {m})[0]);
    const Plan plan = make_plan(graph, Target::host(), system_ops(), {}, {.fuse = false});
    ASSERT_EQ(plan.sequences.size(), 3u);
    int products = 0, times_two = 0;
    for (const Task& task : plan.tasks_of(2)) {
      if (task.kind != TaskKind::call) continue;
      const PlanNode& node = plan.nodes[static_cast<std::size_t>(task.node)];
      products += node.op->name == "matmul";
      times_two += node.op->name == "mul" && node.types[1].shape.rank() == 0;
    }
    EXPECT_EQ(products, 1) << "the gradient of s: " << plan.explain();
    EXPECT_EQ(times_two, other_uses == 0 ? 1 : 2) << "the gradient, and the other summand: " << plan.explain();
    auto stacks = [&] {
      std::size_t count = 0;
      for (const PlanNode& stored : make_plan(graph, Target::host(), system_ops()).nodes)
        if (stored.op->name == "store_at") count += stored.types.size() - static_cast<std::size_t>(stored.inputs);
      return count;
    };
    const std::size_t of_one_gradient = stacks();
    graph.output("again", grad(sum(s) * 2.0, {m})[0]);
    EXPECT_EQ(stacks(), of_one_gradient + 1) << "the gradients of the product in each iteration, and none of the loop";
  }
}

// The gradient of attention reads what attention returned, so that this is kept, and not the sum that it is part of.
TEST_P(ControlFlowGradient, AttentionInALoopIsNotRepeated) {
  Variable keys("keys", Tensor::uniform({1, 2, 3, 4}, 1)), begin("begin", Tensor::uniform({1, 2, 3, 4}, 2));
  auto [s, n] = while_(
      {g.value(begin), 0.0}, [](Value, Value n) { return n < 3.0; },
      [&](Value s, Value n) {
        return std::array{tanh(attention(s, keys, keys) + s * 2.0), n + 1.0};
      },
      {.max_iterations = 5});
  g.output("gradient", grad(sum(s), {keys})[0]);
  const Plan plan = make_plan(g, Target::host(), system_ops());
  ASSERT_EQ(plan.sequences.size(), 3u);
  for (const Task& task : plan.tasks_of(2))
    EXPECT_FALSE(task.kind == TaskKind::call && plan.nodes[static_cast<std::size_t>(task.node)].op->name == "attention")
        << plan.explain();
}

// Gradients of loops and branches are loops and branches, which have gradients if all that is in them has.
TEST_P(ControlFlowGradient, LoopsAndBranchesHaveSecondDerivatives) {
  Value z = g.input("z", f64, {3});
  auto [s, n] = while_(
      {z, 0.0}, [](Value, Value n) { return n < 3.0; },
      [&](Value s, Value n) {
        return std::array{tanh(s * z) + sigmoid(z), n + 1.0};
      },
      {.max_iterations = 5});
  Value t = if_(
      sum(z) > 0.0, [&] { return gelu(s * z); }, [&] { return softmax(s * z); });
  Value slopes = grad(sum(t * t), {z})[0];
  Value squares = sum(slopes * slopes);
  g.output("squares", squares);
  g.output("second", grad(squares, {z})[0]);
  Program p = compile(g);
  for (double sign : {1.0, -1.0}) {
    const std::vector<double> at{0.3 * sign, 0.8 * sign, 1.1 * sign};
    auto squares_at = [&](const std::vector<double>& numbers) {
      p.write(z, numbers);
      p.run(interactive);
      return p.output("squares").at(0);
    };
    squares_at(at);
    const Tensor second = p.output("second");
    for (std::size_t i = 0; i < at.size(); ++i) {
      constexpr double kStep = 1e-5;
      std::vector<double> up = at, down = at;
      up[i] += kStep;
      down[i] -= kStep;
      const double wanted = (squares_at(up) - squares_at(down)) / (2 * kStep);
      EXPECT_NEAR(second.at(static_cast<std::int64_t>(i)), wanted, 1e-7 * std::max(1.0, std::abs(wanted))) << i;
    }
  }
}

TEST_P(ControlFlowGradient, ABranchTrains) {
  Variable u("u", Tensor({0.5f, -0.5f}));
  Value y = if_(
      sum(x) > 0.0, [&] { return x * u; }, [&] { return x * w; });
  Value error = y - 1.0;
  sgd(sum(error * error), {u, w}, {.lr = 0.1});
  Program p = compile(g);
  for (int step = 0; step < 40; ++step) {
    p.write(x, step % 2 == 0 ? std::vector<float>{1, 2} : std::vector<float>{-1, -2});
    p.run();
  }
  p.sync();
  EXPECT_NEAR(u.read().at(0), 1.0, 0.1) << "where the first branch was taken";
  EXPECT_NEAR(u.read().at(1), 0.5, 0.1);
  EXPECT_NEAR(w.read().at(0), -1.0, 0.1) << "where the second one was";
  EXPECT_NEAR(w.read().at(1), -0.5, 0.1);
}

}  // namespace
}  // namespace graphsink::control_flow_gradient_test
