// Variables that are assigned in the bodies of loops and branches: what a sequential program would do, committed once.
#include <array>
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "ir/graph_data.h"
#include "messages.h"
#include "program_fixture.h"

namespace graphsink::assign_in_body_test {
namespace {

using testing::contains;
using testing::message_of;

// The state of a step: two Variables.
struct State {
  double v = 2, w = -1;
};
struct Row {
  const char* name;
  std::function<Value(Graph&, const Value& x, const Variable& v, const Variable& w)> y;  // all f64 scalars
  std::function<double(double x, State&)> expected;
};
void PrintTo(const Row& row, std::ostream* out) { *out << row.name; }

Value zero(const Value& x) { return x * 0.0; }
// while (i < x), with the Value that the body returns as its state.
Value repeat(const Value& x, const std::function<Value(Value s, Value i)>& body) {
  auto [s, n] = while_(
      {Arg(zero(x)), Arg(zero(x))}, [&](Value, Value i) { return i < x; },
      [&](Value state, Value i) {
        return std::array<Value, 2>{body(state, i), i + 1.0};
      });
  (void)n;
  return s;
}

// The condition assigns w, the body v, and each reads what the other has assigned.
Row condition_that_assigns(const char* name, const WhileOptions& options) {
  return {name,
          [options](Graph& g, const Value& x, const Variable& v, const Variable& w) {
            auto [n] = while_(
                {zero(x)},
                [&](Value i) {
                  assign(w, g.value(w) * 0.5 + g.value(v));
                  return i < x;
                },
                [&](Value i) {
                  assign(v, g.value(v) + g.value(w) * 0.25);
                  return i + 1.0;
                },
                options);
            return n + g.value(w) * 2.0 + g.value(v);
          },
          [](double x, State& s) {
            double n = 0;
            while (true) {
              s.w = s.w * 0.5 + s.v;
              if (!(n < x)) break;
              s.v += s.w * 0.25;
              ++n;
            }
            return n + s.w * 2 + s.v;
          }};
}

// As long as the Variable that the condition counts in is below x.
Value count_in_condition(Graph& g, const Value& x, const Variable& v, const WhileOptions& options) {
  auto [n] = while_(
      {zero(x)},
      [&](Value) {
        assign(v, g.value(v) + 1.0);
        return g.value(v) < x;
      },
      [](Value i) { return i + 1.0; }, options);
  return n;
}
double counted_in_condition(double x, double& v) {
  double n = 0;
  for (++v; v < x; ++v) ++n;
  return n;
}

const Row kRows[] = {
    condition_that_assigns("TheConditionAssigns", {}),
    condition_that_assigns("TheConditionOfALoopWithALimitAssigns", {.max_iterations = 30}),
    condition_that_assigns("TheConditionOfALoopThatIsRecomputedAssigns", {.max_iterations = 30, .recompute = true}),
    {"OnlyTheConditionAssigns",
     [](Graph& g, const Value& x, const Variable& v, const Variable&) {
       g.assign(v, 0.5);
       Value n = count_in_condition(g, x, v, {});
       return n + g.value(v);
     },
     [](double x, State& s) {
       s.v = 0.5;
       const double n = counted_in_condition(x, s.v);
       return n + s.v;
     }},
    {"TheConditionOfALoopInABranchAssigns",
     [](Graph& g, const Value& x, const Variable& v, const Variable&) {
       return if_(
           x < 2.0, [&] { return g.value(v); },
           [&] {
             assign(v, g.value(v) - 3.0);
             return count_in_condition(g, x, v, {.max_iterations = 90});
           });
     },
     [](double x, State& s) {
       if (x < 2) return s.v;
       s.v -= 3;
       return counted_in_condition(x, s.v);
     }},
    {"TheConditionOfALoopInALoopAssigns",
     [](Graph& g, const Value& x, const Variable& v, const Variable& w) {
       return repeat(x, [&](Value s, Value i) {
         assign(w, g.value(w) + g.value(v));
         g.assign(v, -1);
         Value n = count_in_condition(g, i, v, {.max_iterations = 9, .recompute = true});
         return s + n;
       });
     },
     [](double x, State& s) {
       double y = 0;
       for (double i = 0; i < x; ++i) {
         s.w += s.v;
         s.v = -1;
         y += counted_in_condition(i, s.v);
       }
       return y;
     }},
    {"BothBranches",
     [](Graph& g, const Value& x, const Variable& v, const Variable&) {
       Value y = if_(
           x < 2.0,
           [&] {
             assign(v, g.value(v) + x);
             return g.value(v) * 2.0;
           },
           [&] {
             assign(v, g.value(v) * 0.5);
             return g.value(v) + 1.0;
           });
       return y + g.value(v);
     },
     [](double x, State& s) {
       s.v = x < 2 ? s.v + x : s.v * 0.5;
       return (x < 2 ? s.v * 2 : s.v + 1) + s.v;
     }},
    {"OneBranch",
     [](Graph& g, const Value& x, const Variable& v, const Variable&) {
       Value y = if_(
           x < 2.0,
           [&] {
             g.assign(v, 7.0);
             return x;
           },
           [&] { return g.value(v); });
       return y * 10.0 + g.value(v);
     },
     [](double x, State& s) {
       if (x < 2) s.v = 7;
       return (x < 2 ? x : s.v) * 10 + s.v;
     }},
    {"OneBranchBehindAnAssignment",
     [](Graph& g, const Value& x, const Variable& v, const Variable&) {
       assign(v, g.value(v) + 1.0);
       Value y = if_(
           x < 2.0, [&] { return g.value(v); },
           [&] {
             assign(v, g.value(v) - x);
             return g.value(v) * 3.0;
           });
       assign(v, g.value(v) + y);
       return y;
     },
     [](double x, State& s) {
       s.v += 1;
       if (!(x < 2)) s.v -= x;
       const double y = x < 2 ? s.v : s.v * 3;
       s.v += y;
       return y;
     }},
    {"EachBranchItsOwn",
     [](Graph& g, const Value& x, const Variable& v, const Variable& w) {
       return if_(
           x < 2.0,
           [&] {
             assign(v, g.value(w) + 1.0);
             return x;
           },
           [&] {
             assign(w, g.value(v) - 1.0);
             return g.value(w);
           });
     },
     [](double x, State& s) {
       if (x < 2) return s.v = s.w + 1, x;
       return s.w = s.v - 1;
     }},
    {"Choice",
     [](Graph& g, const Value& x, const Variable& v, const Variable& w) {
       return switch_(cast(minimum(x, 2.0), i32), {[&] { return g.value(v); },
                                                   [&] {
                                                     assign(v, g.value(v) + 4.0);
                                                     return x;
                                                   },
                                                   [&] {
                                                     assign(v, g.value(w));
                                                     assign(w, x);
                                                     return g.value(v);
                                                   }});
     },
     [](double x, State& s) {
       if (x < 1) return s.v;
       if (x < 2) return s.v += 4, x;
       s.v = s.w;
       s.w = x;
       return s.v;
     }},
    {"Loop",
     [](Graph& g, const Value& x, const Variable& v, const Variable&) {
       Value y = repeat(x, [&](Value s, Value i) {
         Value before = g.value(v);
         assign(v, before * 0.5 + i);
         return s + before - g.value(v);
       });
       return y + g.value(v);
     },
     [](double x, State& s) {
       double y = 0;
       for (double i = 0; i < x; ++i) {
         const double before = s.v;
         s.v = before * 0.5 + i;
         y += before - s.v;
       }
       return y + s.v;
     }},
    {"TwoThatAreExchanged",
     [](Graph& g, const Value& x, const Variable& v, const Variable& w) {
       return repeat(x, [&](Value s, Value) {
         Value a = g.value(v), b = g.value(w);
         assign(v, b);
         assign(w, a + 1.0);
         return s + g.value(v) * 2.0;
       });
     },
     [](double x, State& s) {
       double y = 0;
       for (double i = 0; i < x; ++i) {
         const double a = s.v;
         s.v = s.w;
         s.w = a + 1;
         y += s.v * 2;
       }
       return y;
     }},
    {"TheConditionReads",
     [](Graph& g, const Value& x, const Variable& v, const Variable& w) {
       assign(v, zero(x));
       auto [n] = while_(
           {zero(x)}, [&](Value) { return g.value(v) < x; },
           [&](Value i) {
             assign(v, g.value(v) + 0.75);
             assign(w, g.value(w) + g.value(v));
             return i + 1.0;
           });
       return n + g.value(w);
     },
     [](double x, State& s) {
       double n = 0;
       for (s.v = 0; s.v < x; ++n) {
         s.v += 0.75;
         s.w += s.v;
       }
       return n + s.w;
     }},
    {"BranchInALoop",
     [](Graph& g, const Value& x, const Variable& v, const Variable& w) {
       return repeat(x, [&](Value s, Value i) {
         Value y = if_(
             g.value(v) < 3.0,
             [&] {
               assign(v, g.value(v) + 2.0);
               return s;
             },
             [&] {
               assign(v, g.value(v) - 3.0);
               assign(w, i);
               return s + 1.0;
             });
         return y + g.value(v) * 0.25;
       });
     },
     [](double x, State& s) {
       double y = 0;
       for (double i = 0; i < x; ++i) {
         if (s.v < 3) {
           s.v += 2;
         } else {
           s.v -= 3;
           s.w = i;
           y += 1;
         }
         y += s.v * 0.25;
       }
       return y;
     }},
    {"LoopInABranch",
     [](Graph& g, const Value& x, const Variable& v, const Variable&) {
       return if_(
           x < 2.0, [&] { return x; },
           [&] {
             return repeat(x, [&](Value s, Value) {
               assign(v, g.value(v) + 1.0);
               return s + g.value(v);
             });
           });
     },
     [](double x, State& s) {
       if (x < 2) return x;
       double y = 0;
       for (double i = 0; i < x; ++i) y += ++s.v;
       return y;
     }},
    {"LoopInALoop",
     [](Graph& g, const Value& x, const Variable& v, const Variable& w) {
       return repeat(x, [&](Value s, Value i) {
         assign(w, g.value(w) + i);
         Value inner = repeat(x - i, [&](Value t, Value) {
           assign(v, g.value(v) * 0.5 + g.value(w));
           return t + g.value(v);
         });
         return s + inner * 0.125;
       });
     },
     [](double x, State& s) {
       double y = 0;
       for (double i = 0; i < x; ++i) {
         s.w += i;
         double t = 0;
         for (double k = 0; k < x - i; ++k) {
           s.v = s.v * 0.5 + s.w;
           t += s.v;
         }
         y += t * 0.125;
       }
       return y;
     }},
    {"Scan",
     [](Graph& g, const Value& x, const Variable& v, const Variable&) {
       Value slices = arange(g, f64, 0, 4) + x;
       Scan scanned = scan({Arg(zero(x))}, {Arg(slices)}, [&](const Values& state, const Values& slice) {
         assign(v, g.value(v) * 0.5 + slice[0]);
         return Scan{{state[0] + g.value(v)}, {g.value(v) * state[0]}};
       });
       return scanned.state[0] + sum(scanned.outputs[0]) + g.value(v);
     },
     [](double x, State& s) {
       double y = 0, kept = 0;
       for (int i = 0; i < 4; ++i) {
         s.v = s.v * 0.5 + i + x;
         kept += s.v * y;
         y += s.v;
       }
       return y + kept + s.v;
     }},
    {"LoopWithALimitThatIsRecomputed",
     [](Graph& g, const Value& x, const Variable& v, const Variable&) {
       auto [n] = while_(
           {zero(x)}, [&](Value i) { return i < x; },
           [&](Value i) {
             assign(v, g.value(v) + i);
             return i + 1.0;
           },
           {.max_iterations = 30, .recompute = true});
       return n + g.value(v);
     },
     [](double x, State& s) {
       double n = 0;
       for (; n < x; ++n) s.v += n;
       return n + s.v;
     }},
    {"RandomNumbersBeside",
     [](Graph& g, const Value& x, const Variable& v, const Variable&) {
       return repeat(x, [&](Value s, Value) {
         assign(v, g.value(v) + floor(random_uniform(s)) + 1.0);
         return s + floor(random_uniform(s));
       });
     },
     [](double x, State& s) {
       for (double i = 0; i < x; ++i) s.v += 1;
       return 0.0;
     }},
};

class AssignInBody : public ::testing::TestWithParam<std::tuple<Row, DeviceId>> {};
INSTANTIATE_TEST_SUITE_P(Table, AssignInBody,
                         ::testing::Combine(::testing::ValuesIn(kRows), ::testing::ValuesIn(testing::devices())),
                         [](const auto& info) {
                           return std::string(std::get<0>(info.param).name) +
                                  (std::get<1>(info.param).kind == DeviceKind::cpu ? "_cpu" : "_cuda");
                         });

TEST_P(AssignInBody, DoesWhatASequentialProgramDoes) {
  const auto& [row, device] = GetParam();
  for (Mode mode : {interactive_serial, interactive_parallel, sink, automatic}) {
    SCOPED_TRACE(to_string(mode));
    Graph g;
    Variable v("v", Tensor::scalar(2.0)), w("w", Tensor::scalar(-1.0));
    Value x = g.feed("x", f64, {});
    g.record("y", row.y(g, x, v, w));
    Program p = compile(g, {.target = device});
    State state;
    std::vector<double> wanted, given{3, 0, 1, 5, 2, 1.5, 0, 4};
    for (double next : given) wanted.push_back(row.expected(next, state));
    for (std::size_t i = 0; i < 4; ++i) {
      p.write(x, std::vector<double>{given[i]});
      p.run(mode);
    }
    p.write(x, std::vector<double>(given.begin() + 4, given.end()));
    p.run(mode, {.steps = 4});
    EXPECT_EQ(p.records<double>("y"), wanted);
    EXPECT_EQ(v.read().at(0), state.v);
    EXPECT_EQ(w.read().at(0), state.w);
  }
}

class AssignInBodies : public testing::OnDevice {};
INSTANTIATE_TEST_SUITE_P(Devices, AssignInBodies, ::testing::ValuesIn(testing::devices()), testing::device_name);

TEST_P(AssignInBodies, AFailedStepCommitsNothing) {
  for (Mode mode : testing::kModes) {
    Graph g;
    Variable v("v", Tensor::scalar(2.0));
    Value x = g.input("x", f64, {});
    while_(
        {zero(x)}, [&](Value i) { return i < x; },
        [&](Value i) {
          assign(v, g.value(v) + 1.0);
          return i + 1.0;
        },
        {.max_iterations = 5});
    Program p = compile(g);
    p.write(x, std::vector<double>{4});
    p.run(mode);
    EXPECT_EQ(v.read().at(0), 6);
    p.write(x, std::vector<double>{6});
    p.run(mode);
    EXPECT_TRUE(contains(message_of([&] { p.sync(); }), "after 5 iterations"));
    EXPECT_EQ(v.read().at(0), 6);
  }
}

TEST_P(AssignInBodies, GradientsFlowThroughThem) {
  // v becomes v * w^3, and y is its square.
  Graph g;
  Variable v("v", Tensor::scalar(2.0)), w("w", Tensor::scalar(1.5));
  Value before = g.value(v);
  Value x = g.input("x", f64, {});
  while_(
      {zero(x)}, [&](Value i) { return i < 3.0; },
      [&](Value i) {
        assign(v, g.value(v) * w);
        return i + 1.0;
      },
      {.max_iterations = 4});
  if_(
      x > 0.0,
      [&] {
        assign(v, g.value(v) * x);
        return x;
      },
      [&] { return x; });
  Value y = g.value(v) * g.value(v);
  const std::vector<Value> gradients = grad(y, {before, g.value(w), x});
  for (std::size_t i = 0; i < 3; ++i) g.output("slope" + std::to_string(i), gradients[i]);
  Program p = compile(g);
  p.write(x, std::vector<double>{0.5});
  p.run(sink);
  const double last = 2 * std::pow(1.5, 3) * 0.5;
  EXPECT_DOUBLE_EQ(p.output("slope0").at(0), 2 * last * last / 2);
  EXPECT_DOUBLE_EQ(p.output("slope1").at(0), 2 * last * 3 * last / 1.5);
  EXPECT_DOUBLE_EQ(p.output("slope2").at(0), 2 * last * last / 0.5);
  EXPECT_EQ(v.read().at(0), last);
}

// The condition multiplies v by w + i once more than there are iterations.
TEST_P(AssignInBodies, GradientsFlowThroughConditionsThatAssign) {
  for (bool recompute : {false, true}) {
    Graph g;
    Variable v("v", Tensor::scalar(2.0)), w("w", Tensor::scalar(0.5));
    Value before = g.value(v), of_w = g.value(w), x = g.input("x", f64, {});
    while_(
        {zero(x)},
        [&](Value i) {
          assign(v, g.value(v) * (of_w + i));
          return i < x;
        },
        [](Value i) { return i + 1.0; }, {.max_iterations = 9, .recompute = recompute});
    const std::vector<Value> gradients = grad(g.value(v), {before, of_w});
    for (std::size_t i = 0; i < 2; ++i) g.output("slope" + std::to_string(i), gradients[i]);
    Program p = compile(g);
    double start = 2;
    for (int iterations : {0, 1, 3, 9}) {
      p.write(x, std::vector<double>{static_cast<double>(iterations)});
      p.run(sink);
      double factor = 1, of_factor = 0;
      for (int i = 0; i <= iterations; ++i) {
        of_factor = of_factor * (0.5 + i) + factor;
        factor *= 0.5 + i;
      }
      EXPECT_DOUBLE_EQ(p.output("slope0").at(0), factor);
      EXPECT_DOUBLE_EQ(p.output("slope1").at(0), start * of_factor);
      start *= factor;
      EXPECT_DOUBLE_EQ(v.read().at(0), start);
    }
  }
}

// What control.h says.
TEST(FunctionsOfALoop, AreCalledSoOften) {
  for (const WhileOptions& options : {WhileOptions{},
                                      {.max_iterations = 9},
                                      {.max_iterations = 9, .recompute = true},
                                      {.max_iterations = 3, .recompute = true}})
    for (const std::string& assigning :
         {std::string(), std::string("condition"), std::string("body"), std::string("both")}) {
      SCOPED_TRACE(std::to_string(options.max_iterations) + (options.recompute ? ", recompute, " : ", ") + assigning);
      Graph g;
      Variable v("v", Tensor::scalar(2.0));
      std::string calls;
      auto call = [&](char name, bool assigns) {
        calls += name;
        if (assigns) assign(v, g.value(v) + 1.0);
      };
      while_(
          {g.input("x", f64, {})},
          [&](Value s) {
            call('c', assigning == "condition" || assigning == "both");
            return s < 8.0;
          },
          [&](Value s) {
            call('b', assigning == "body" || assigning == "both");
            return s + 1.0;
          },
          options);
      const bool is_recomputed = options.recompute && options.max_iterations > 3;
      EXPECT_EQ(calls, assigning.empty() ? "cbc" : is_recomputed ? "cbcbcbcbc" : "cbcbc");
    }
}

TEST_P(AssignInBodies, ABodyThatIsBuiltAgainLeavesNothing) {
  auto nodes = [](bool assigns) {
    Graph g;
    Variable v("v", Tensor::scalar(2.0));
    Value x = g.input("x", f64, {});
    auto [s, t] = while_(
        {Arg(zero(x)), Arg(g.value(v))}, [&](Value i, Value) { return i < 3.0; },
        [&](Value i, Value now) {
          Value read = assigns ? g.value(v) : now;
          Value next = read + random_uniform(i) * 17.0;
          if (assigns) assign(v, next);
          return std::array<Value, 2>{i + 1.0, next};
        });
    if (!assigns) assign(v, t);
    g.output("s", s);
    return g.data()->nodes.size();
  };
  EXPECT_EQ(nodes(true), nodes(false) + 1) << "one state more: v and now";
}

TEST_P(AssignInBodies, ALoopInALoopMayTakeGradients) {
  // The inner body is built twice, and with it the check of its gradient, which the loop around makes at its end.
  Graph g;
  Variable v("v", Tensor::scalar(2.0)), w("w", Tensor::scalar(1.5));
  Value x = g.input("x", f64, {}), of_w = g.value(w);
  auto [s] = while_(
      {zero(x)}, [](Value i) { return i < 2.0; },
      [&](Value i) {
        auto [n] = while_(
            {zero(x)}, [](Value k) { return k < 3.0; },
            [&](Value k) {
              Value loss = of_w * of_w * (k + 1.0);
              assign(v, g.value(v) + grad(loss, {w})[0]);
              return k + 1.0;
            });
        return i + n / 3.0;
      });
  g.output("s", s);
  EXPECT_EQ(g.data()->regions[1].checks.size(), 0u);
  Program p = compile(g);
  p.write(x, std::vector<double>{0});
  p.run(sink);
  EXPECT_EQ(v.read().at(0), 2 + 2 * (3.0 * (1 + 2 + 3)));
}

TEST_P(AssignInBodies, ChecksOfADiscardedBodyAreForgotten) {
  Graph g;
  Variable v("v", Tensor::scalar(2.0)), w("w", Tensor::scalar(1.5));
  Value x = g.input("x", f64, {}), of_w = g.value(w);
  std::size_t checks = 0;
  while_(
      {zero(x)}, [](Value i) { return i < 2.0; },
      [&](Value i) {
        auto [n] = while_(
            {zero(x)}, [](Value k) { return k < 3.0; },
            [&](Value k) {
              assign(v, g.value(v) + grad(of_w * of_w, {w})[0]);
              return k + 1.0;
            });
        checks = g.data()->regions[static_cast<std::size_t>(g.data()->current_region)].checks.size();
        return i + n;
      });
  EXPECT_EQ(checks, 1u) << "of the inner body as it is";
}

}  // namespace
}  // namespace graphsink::assign_in_body_test
