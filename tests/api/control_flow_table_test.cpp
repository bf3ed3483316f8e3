// A table of loops and branches: in every mode each gives what the host computes, and sunk it is one launch with the
// conditional nodes that it was written with.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "program_fixture.h"

namespace graphsink::control_flow_table_test {
namespace {

using Numbers = std::vector<double>;
constexpr double kInf = std::numeric_limits<double>::infinity(), kNan = std::numeric_limits<double>::quiet_NaN();

struct Row {
  const char* name;
  int conditionals;                              // nodes in the captured step
  std::function<Value(Graph&, const Value&)> y;  // of x: f32 [4]
  std::function<Numbers(const Numbers&)> expected;
};
void PrintTo(const Row& row, std::ostream* out) { *out << row.name; }

Value integer(Graph& g, std::int32_t i) { return g.constant(Tensor::scalar(i)); }

// `times` iterations of body(state, number of the iteration).
template <class Body>
Value repeat(Graph& g, const Value& first, const Arg& times, const Body& body) {
  auto [last, n] = while_(
      {first, integer(g, 0)}, [&](Value, Value i) { return less(i, times); },
      [&](Value s, Value i) {
        return std::array{Value(body(s, i)), i + 1};
      });
  return last;
}

Numbers each(const Numbers& x, const std::function<double(double)>& f) {
  Numbers y;
  std::transform(x.begin(), x.end(), std::back_inserter(y), f);
  return y;
}
double total(const Numbers& x) { return std::accumulate(x.begin(), x.end(), 0.0); }
double doubled_until(double s, double bound) {
  while (s < bound) s *= 2;
  return s;
}

const Row kLoops[] = {
    {"NoIteration", 1, [](Graph& g, const Value& x) { return repeat(g, x, 0, [](Value s, Value) { return s * 2.0; }); },
     [](const Numbers& x) { return x; }},
    {"OneIteration", 1,
     [](Graph& g, const Value& x) { return repeat(g, x, 1, [](Value s, Value) { return s * 2.0; }); },
     [](const Numbers& x) { return each(x, [](double v) { return v * 2; }); }},
    {"ManyIterations", 1,
     [](Graph& g, const Value& x) { return repeat(g, x, 100, [](Value s, Value) { return s + 1.0; }); },
     [](const Numbers& x) { return each(x, [](double v) { return v + 100; }); }},
    {"ANegativeNumberOfIterations", 1,
     [](Graph& g, const Value& x) { return repeat(g, x, -5, [](Value s, Value) { return s + 1.0; }); },
     [](const Numbers& x) { return x; }},
    {"TheDataSayHowOften", 1,
     [](Graph& g, const Value& x) {
       return repeat(g, x, cast(sum(abs(x)), i32), [](Value s, Value) { return s + 1.0; });
     },
     [](const Numbers& x) {
       const double n = std::trunc(total(each(x, [](double v) { return std::abs(v); })));
       return each(x, [&](double v) { return v + n; });
     }},
    {"TheStateDecides", 1,
     [](Graph&, const Value& x) {
       return while_(
           {exp(x)}, [](Value s) { return sum(s) < 1000.0; }, [](Value s) { return s * 2.0; })[0];
     },
     [](const Numbers& x) {
       const Numbers e = each(x, [](double v) { return std::exp(v); });
       const double factor = doubled_until(total(e), 1000) / total(e);
       return each(e, [&](double v) { return v * factor; });
     }},
    {"ABooleanInTheStateDecides", 1,
     [](Graph& g, const Value& x) {
       auto [s, more, n] = while_(
           {x, g.constant(Tensor::scalar(true)), integer(g, 0)}, [](Value, Value m, Value) { return m; },
           [](Value s, Value, Value i) {
             return std::array{s + 1.0, i + 1 < 5, i + 1};
           });
       return s;
     },
     [](const Numbers& x) { return each(x, [](double v) { return v + 5; }); }},
    {"ANumberOutsideDecides", 1,
     [](Graph& g, const Value& x) {
       Value bound = max(x) + 2.0;
       auto [s, n] = while_(
           {x, g.constant(Tensor::scalar(0.0f))}, [&](Value, Value i) { return i < bound; },
           [](Value s, Value i) {
             return std::array{s * 0.5, i + 1.0};
           });
       return s;
     },
     [](const Numbers& x) {
       int n = 0;
       while (n < *std::max_element(x.begin(), x.end()) + 2) ++n;
       return each(x, [&](double v) { return v * std::pow(0.5, n); });
     }},
    {"ANanEndsALoop", 1,
     [](Graph&, const Value& x) {
       return while_(
           {x * kNan}, [](Value s) { return sum(s) < 10.0; }, [](Value s) { return s + 1.0; })[0];
     },
     [](const Numbers& x) { return each(x, [](double) { return kNan; }); }},
    {"ANanOnTheWayEndsALoop", 1,
     [](Graph&, const Value& x) {
       // The state grows to infinity; then infinity - infinity is no number.
       return while_(
           {abs(x) + 2.0}, [](Value s) { return sum(s) < kInf; }, [](Value s) { return s * s; })[0];
     },
     [](const Numbers& x) {
       Numbers s = each(x, [](double v) { return std::abs(v) + 2; });
       while (total(s) < kInf) {
         for (double& v : s) v = static_cast<float>(v * v);
       }
       return s;
     }},
    {"TheStateIsAnInteger", 1,
     [](Graph& g, const Value& x) {
       Value gcd = while_(
           {integer(g, 84), integer(g, 36)}, [](Value, Value b) { return b > 0; },
           [](Value a, Value b) {
             Value smaller = minimum(a, b), larger = maximum(a, b);
             return std::array{smaller, larger - smaller};
           })[0];
       return x + cast(gcd, f32);
     },
     [](const Numbers& x) { return each(x, [](double v) { return v + 12; }); }},
    {"TheStateIsOfManyTypes", 1,
     [](Graph& g, const Value& x) {
       auto [d, l, h, b, n] = while_(
           {cast(x, f64), cast(x, i64), cast(x, f16), x > 0.0, integer(g, 0)},
           [](Value, Value, Value, Value, Value i) { return i < 3; },
           [](Value d, Value l, Value h, Value b, Value i) {
             return std::array{d * 2.0, l + 1, h * 0.5, logical_not(b), i + 1};
           });
       return cast(d, f32) + cast(l, f32) + cast(h, f32) + cast(b, f32);
     },
     [](const Numbers& x) {
       return each(x, [](double v) { return v * 8 + std::trunc(v) + 3 + v / 8 + (v > 0 ? 0 : 1); });
     }},
    {"ThreeStatesRotate", 1,
     [](Graph& g, const Value& x) {
       auto [a, b, c, n] = while_(
           {x, x * 10.0, x * 100.0, integer(g, 0)}, [](Value, Value, Value, Value i) { return i < 4; },
           [](Value a, Value b, Value c, Value i) {
             return std::array{b, c, a, i + 1};
           });
       return a + b * 2.0 + c * 3.0;
     },
     [](const Numbers& x) { return each(x, [](double v) { return v * 10 + v * 200 + v * 3; }); }},
    {"AStateThatStays", 1,
     [](Graph& g, const Value& x) {
       auto [a, b, n] = while_(
           {x, x * 3.0, integer(g, 0)}, [](Value, Value, Value i) { return i < 4; },
           [](Value a, Value b, Value i) {
             return std::array{a + b, b, i + 1};
           });
       return a - b;
     },
     [](const Numbers& x) { return each(x, [](double v) { return v + 12 * v - 3 * v; }); }},
    {"AStateThatBecomesWhatIsOutside", 1,
     [](Graph& g, const Value& x) {
       Value outside = x * 7.0;
       return repeat(g, x, 2, [&](Value, Value) { return outside; }) + outside;
     },
     [](const Numbers& x) { return each(x, [](double v) { return v * 14; }); }},
    {"AVariableInALoop", 1,
     [](Graph& g, const Value& x) {
       Variable w("w", Tensor({1.0f, 2.0f, 3.0f, 4.0f}));
       return repeat(g, x, 3, [&](Value s, Value) { return s * 0.5 + w; });
     },
     [](const Numbers& x) {
       Numbers s = x;
       for (int i = 0; i < 3; ++i)
         for (std::size_t k = 0; k < 4; ++k) s[k] = s[k] * 0.5 + static_cast<double>(k + 1);
       return s;
     }},
    {"TheNumberOfTheIterationSelects", 1,
     [](Graph& g, const Value& x) {
       return repeat(g, x * 0.0, 4, [&](Value s, Value i) { return s * 10.0 + gather(x, i); });
     },
     [](const Numbers& x) {
       double s = 0;
       for (double v : x) s = s * 10 + v;
       return Numbers(4, s);
     }},
    {"ALoopOfProducts", 1,
     [](Graph& g, const Value& x) {
       Value m = g.constant(Tensor(Shape{4, 4}, std::vector<float>{0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 1, 0, 0, 0}));
       return reshape(repeat(g, reshape(x, {1, 4}), 3, [&](Value s, Value) { return matmul(s, m); }), {4});
     },
     [](const Numbers& x) {
       return Numbers{x[1], x[2], x[3], x[0]};
     }},
    {"NewtonsRoot", 1,
     [](Graph&, const Value& x) {
       Value square = x * x + 1.0;
       return while_(
           {square}, [&](Value s) { return max(abs(s * s - square)) > 2e-5; },
           [&](Value s) { return (s + square / s) * 0.5; })[0];
     },
     [](const Numbers& x) { return each(x, [](double v) { return std::sqrt(v * v + 1); }); }},
    {"LoopsInALoop", 2,
     [](Graph& g, const Value& x) {
       return repeat(g, x, 3,
                     [&](Value s, Value i) { return repeat(g, s, i, [](Value t, Value) { return t + 1.0; }); });
     },
     [](const Numbers& x) { return each(x, [](double v) { return v + 0 + 1 + 2; }); }},
    {"LoopsThreeDeep", 3,
     [](Graph& g, const Value& x) {
       return repeat(g, x, 2, [&](Value s, Value) {
         return repeat(g, s, 3, [&](Value t, Value j) {
           return repeat(g, t, j, [&](Value u, Value k) { return u + cast(k, f32) + 1.0; });
         });
       });
     },
     [](const Numbers& x) { return each(x, [](double v) { return v + 2 * (1 + (1 + 2)); }); }},
    {"ALoopBehindALoop", 2,
     [](Graph& g, const Value& x) {
       Value s = repeat(g, x, 3, [](Value t, Value) { return t * 2.0; });
       return repeat(g, s, 2, [&](Value t, Value) { return t + s; });
     },
     [](const Numbers& x) { return each(x, [](double v) { return v * 24; }); }},
    {"LoopsSideBySide", 2,
     [](Graph& g, const Value& x) {
       Value a = repeat(g, x, 3, [](Value t, Value) { return t * 2.0; });
       Value b = repeat(g, x, 5, [](Value t, Value) { return t + 1.0; });
       return a + b;
     },
     [](const Numbers& x) { return each(x, [](double v) { return v * 8 + v + 5; }); }},
    {"OneStateIsUsed", 1,
     [](Graph& g, const Value& x) {
       auto [a, b, n] = while_(
           {x, x, integer(g, 0)}, [](Value, Value, Value i) { return i < 3; },
           [](Value a, Value b, Value i) {
             return std::array{a + b, b * 2.0, i + 1};
           });
       return b;
     },
     [](const Numbers& x) { return each(x, [](double v) { return v * 8; }); }},
    {"AVectorOfStates", 1,
     [](Graph& g, const Value& x) {
       Values state(6, x);
       state.push_back(integer(g, 0));
       const Values last = while_(
           state, [](const Values& s) { return s.back() < 3; },
           [](const Values& s) {
             Values next;
             for (std::size_t i = 0; i + 1 < s.size(); ++i) next.push_back(s[i] + static_cast<double>(i));
             next.push_back(s.back() + 1);
             return next;
           });
       Value total = last[0];
       for (std::size_t i = 1; i < 6; ++i) total = total + last[i];
       return total;
     },
     [](const Numbers& x) { return each(x, [](double v) { return 6 * v + 3 * 15; }); }},
    {"ALimitThatIsReached", 1,
     [](Graph& g, const Value& x) {
       auto [s, n] = while_(
           {x, integer(g, 0)}, [](Value, Value i) { return i < 7; },
           [](Value s, Value i) {
             return std::array{s + 1.0, i + 1};
           },
           {.max_iterations = 7});
       return s;
     },
     [](const Numbers& x) { return each(x, [](double v) { return v + 7; }); }},
    {"AnEmptyState", 1,
     [](Graph& g, const Value& x) {
       Value none = slice(x, {2}, {2});
       return x + sum(repeat(g, none, 3, [](Value s, Value) { return s + 1.0; }));
     },
     [](const Numbers& x) { return x; }},
    {"ALargeState", 1,
     [](Graph& g, const Value& x) {
       Value wide = broadcast_like(reshape(x, {4, 1}), g.constant(Tensor(f32, {4, 5000})));
       return mean(repeat(g, wide, 4, [](Value s, Value) { return s + 0.25; }), {1});
     },
     [](const Numbers& x) { return each(x, [](double v) { return v + 1; }); }},
    {"Fibonacci", 1,
     [](Graph& g, const Value& x) {
       auto [a, b, n] = while_(
           {integer(g, 0), integer(g, 1), integer(g, 0)}, [](Value, Value, Value i) { return i < 30; },
           [](Value a, Value b, Value i) {
             return std::array{b, a + b, i + 1};
           });
       return x + cast(a, f32);
     },
     [](const Numbers& x) { return each(x, [](double v) { return v + 832040; }); }},
};

const Row kBranches[] = {
    {"EachWay", 1,
     [](Graph&, const Value& x) {
       return if_(
           sum(x) > 0.0, [&] { return x * 2.0; }, [&] { return x - 1.0; });
     },
     [](const Numbers& x) { return each(x, [&](double v) { return total(x) > 0 ? v * 2 : v - 1; }); }},
    {"ANanIsNotGreater", 1,
     [](Graph&, const Value& x) {
       return if_(
           sum(x) * kNan > 0.0, [&] { return x * 2.0; }, [&] { return x - 1.0; });
     },
     [](const Numbers& x) { return each(x, [](double v) { return v - 1; }); }},
    {"ANanAsABooleanIsTrue", 1,
     [](Graph&, const Value& x) {
       return if_(
           cast(sum(x) * kNan, boolean), [&] { return x * 2.0; }, [&] { return x - 1.0; });
     },
     [](const Numbers& x) { return each(x, [](double v) { return v * 2; }); }},
    {"AConstantPredicate", 1,
     [](Graph& g, const Value& x) {
       return if_(
           g.constant(Tensor::scalar(false)), [&] { return x * 2.0; }, [&] { return x - 1.0; });
     },
     [](const Numbers& x) { return each(x, [](double v) { return v - 1; }); }},
    {"APredicateOfOneElement", 1,
     [](Graph&, const Value& x) {
       return if_(
           slice(x, {1}, {2}) > 1.0, [&] { return x * 2.0; }, [&] { return x - 1.0; });
     },
     [](const Numbers& x) { return each(x, [&](double v) { return x[1] > 1 ? v * 2 : v - 1; }); }},
    {"ResultsFromOutside", 1,
     [](Graph&, const Value& x) {
       Value a = x * 3.0, b = x * 5.0;
       return if_(
                  sum(x) > 0.0, [&] { return a; }, [&] { return b; }) +
              a + b;
     },
     [](const Numbers& x) { return each(x, [&](double v) { return v * (total(x) > 0 ? 11 : 13); }); }},
    {"TheInputIsAResult", 1,
     [](Graph&, const Value& x) {
       return if_(
           sum(x) > 0.0, [&] { return x; }, [&] { return neg(x); });
     },
     [](const Numbers& x) { return each(x, [&](double v) { return total(x) > 0 ? v : -v; }); }},
    {"AVariableIsAResult", 1,
     [](Graph& g, const Value& x) {
       Value w = g.value(Variable("w", Tensor({4.0f, 3.0f, 2.0f, 1.0f})));
       return if_(
           sum(x) > 0.0, [&] { return w; }, [&] { return x; });
     },
     [](const Numbers& x) {
       return total(x) > 0 ? Numbers{4, 3, 2, 1} : x;
     }},
    {"AConstantIsAResult", 1,
     [](Graph& g, const Value& x) {
       return if_(
           sum(x) > 0.0,
           [&] {
             return g.constant(Tensor({4.0f, 3.0f, 2.0f, 1.0f}));
           },
           [&] { return x; });
     },
     [](const Numbers& x) {
       return total(x) > 0 ? Numbers{4, 3, 2, 1} : x;
     }},
    {"OneValueTwice", 1,
     [](Graph&, const Value& x) {
       const Values r = if_(
           sum(x) > 0.0,
           [&] {
             Value y = x * 2.0;
             return Values{y, y};
           },
           [&] {
             return Values{x, x};
           });
       return r[0] + r[1];
     },
     [](const Numbers& x) { return each(x, [&](double v) { return total(x) > 0 ? v * 4 : v * 2; }); }},
    {"SwappedResults", 1,
     [](Graph&, const Value& x) {
       Value a = x + 1.0, b = x * 3.0;
       const Values r = if_(
           sum(x) > 0.0,
           [&] {
             return Values{a, b};
           },
           [&] {
             return Values{b, a};
           });
       return r[0] - r[1] * 2.0;
     },
     [](const Numbers& x) {
       return each(x, [&](double v) {
         const double a = v + 1, b = v * 3;
         return total(x) > 0 ? a - 2 * b : b - 2 * a;
       });
     }},
    {"ResultsOfManyTypes", 1,
     [](Graph&, const Value& x) {
       const Values r = if_(
           sum(x) > 0.0,
           [&] {
             return Values{cast(x, f64), cast(x, i32), x > 0.0, cast(x, f16)};
           },
           [&] {
             return Values{cast(x * 2.0, f64), cast(x * 2.0, i32), x < 0.0, cast(x * 2.0, f16)};
           });
       return cast(r[0], f32) + cast(r[1], f32) + cast(r[2], f32) + cast(r[3], f32);
     },
     [](const Numbers& x) {
       const double f = total(x) > 0 ? 1 : 2;
       return each(x,
                   [&](double v) { return 2 * f * v + std::trunc(f * v) + ((total(x) > 0 ? v > 0 : v < 0) ? 1 : 0); });
     }},
    {"OneResultIsUsed", 1,
     [](Graph&, const Value& x) {
       return if_(
           sum(x) > 0.0,
           [&] {
             return Values{exp(x), x * 2.0};
           },
           [&] {
             return Values{tanh(x), x * 3.0};
           })[1];
     },
     [](const Numbers& x) { return each(x, [&](double v) { return v * (total(x) > 0 ? 2 : 3); }); }},
    {"ABranchInABranch", 2,
     [](Graph&, const Value& x) {
       return if_(
           sum(x) > 0.0,
           [&] {
             return if_(
                 max(x) > 3.0, [&] { return x * 2.0; }, [&] { return x * 3.0; });
           },
           [&] { return x * 5.0; });
     },
     [](const Numbers& x) {
       const bool is_large = *std::max_element(x.begin(), x.end()) > 3;
       return each(x, [&](double v) { return v * (total(x) > 0 ? is_large ? 2 : 3 : 5); });
     }},
    {"BranchesInBothBranches", 3,
     [](Graph&, const Value& x) {
       auto inner = [&](double a, double b) {
         return if_(
             min(x) > 0.0, [&] { return x * a; }, [&] { return x * b; });
       };
       return if_(
           sum(x) > 0.0, [&] { return inner(2, 3); }, [&] { return inner(5, 7); });
     },
     [](const Numbers& x) {
       const bool is_positive = *std::min_element(x.begin(), x.end()) > 0;
       return each(x, [&](double v) { return v * (total(x) > 0 ? is_positive ? 2 : 3 : is_positive ? 5 : 7); });
     }},
    {"ABranchBehindABranch", 2,
     [](Graph&, const Value& x) {
       Value a = if_(
           sum(x) > 0.0, [&] { return x - 10.0; }, [&] { return x + 10.0; });
       return if_(
           sum(a) > 0.0, [&] { return a * 2.0; }, [&] { return a * 3.0; });
     },
     [](const Numbers& x) {
       return each(x, [&](double v) {
         return total(x) > 0 ? (v - 10) * (total(x) > 40 ? 2 : 3) : (v + 10) * (total(x) > -40 ? 2 : 3);
       });
     }},
    {"BranchesSideBySide", 2,
     [](Graph&, const Value& x) {
       auto one = [&](const Value& p, double a, double b) {
         return if_(
             p, [&] { return x * a; }, [&] { return x + b; });
       };
       return one(sum(x) > 0.0, 2, 3) - one(max(x) > 3.0, 5, 7);
     },
     [](const Numbers& x) {
       const bool is_large = *std::max_element(x.begin(), x.end()) > 3;
       return each(x, [&](double v) { return (total(x) > 0 ? v * 2 : v + 3) - (is_large ? v * 5 : v + 7); });
     }},
    {"OnePredicateForTwo", 2,
     [](Graph&, const Value& x) {
       Value p = sum(x) > 0.0;
       Value a = if_(
           p, [&] { return x * 2.0; }, [&] { return x * 3.0; });
       return if_(
           p, [&] { return a + 1.0; }, [&] { return a - 1.0; });
     },
     [](const Numbers& x) { return each(x, [&](double v) { return total(x) > 0 ? v * 2 + 1 : v * 3 - 1; }); }},
    {"TheResultDecides", 2,
     [](Graph&, const Value& x) {
       Value p = if_(
           sum(x) > 0.0, [&] { return max(x) > 3.0; }, [&] { return min(x) > -2.0; });
       return if_(
           p, [&] { return x * 2.0; }, [&] { return x * 3.0; });
     },
     [](const Numbers& x) {
       const bool p =
           total(x) > 0 ? *std::max_element(x.begin(), x.end()) > 3 : *std::min_element(x.begin(), x.end()) > -2;
       return each(x, [&](double v) { return v * (p ? 2 : 3); });
     }},
    {"AnEmptyResult", 1,
     [](Graph&, const Value& x) {
       Value none = if_(
           sum(x) > 0.0, [&] { return slice(x, {1}, {1}); }, [&] { return slice(x, {3}, {3}); });
       return x + sum(none);
     },
     [](const Numbers& x) { return x; }},
    {"RowsAndProducts", 1,
     [](Graph&, const Value& x) {
       Value m = reshape(x, {2, 2});
       return reshape(if_(
                          sum(x) > 0.0, [&] { return matmul(m, m); }, [&] { return softmax(m); }),
                      {4});
     },
     [](const Numbers& x) {
       if (total(x) > 0) {
         return Numbers{x[0] * x[0] + x[1] * x[2], x[0] * x[1] + x[1] * x[3], x[2] * x[0] + x[3] * x[2],
                        x[2] * x[1] + x[3] * x[3]};
       }
       Numbers y = each(x, [](double v) { return std::exp(v); });
       const double a = y[0] + y[1], b = y[2] + y[3];
       return Numbers{y[0] / a, y[1] / a, y[2] / b, y[3] / b};
     }},
};

// The place of the largest element: 0 to 3.
Value largest(const Value& x) { return argmax(x, 0); }
std::size_t largest(const Numbers& x) {
  return static_cast<std::size_t>(std::max_element(x.begin(), x.end()) - x.begin());
}

const Row kChoices[] = {
    {"OneOfFour", 1,
     [](Graph&, const Value& x) {
       return switch_(largest(x), {[&] { return x * 2.0; }, [&] { return x + 1.0; }, [&] { return x - 3.0; },
                                   [&] { return x * x; }});
     },
     [](const Numbers& x) {
       const std::size_t i = largest(x);
       return each(x, [&](double v) { return i == 0 ? v * 2 : i == 1 ? v + 1 : i == 2 ? v - 3 : v * v; });
     }},
    {"TheOnlyOne", 1, [](Graph& g, const Value& x) { return switch_(integer(g, 0), {[&] { return x * 2.0; }}); },
     [](const Numbers& x) { return each(x, [](double v) { return v * 2; }); }},
    {"OneThatDoesNothing", 1,
     [](Graph&, const Value& x) {
       return switch_(largest(x), {[&] { return x; }, [&] { return x; }, [&] { return -x; }, [&] { return x; }});
     },
     [](const Numbers& x) { return each(x, [&](double v) { return largest(x) == 2 ? -v : v; }); }},
    {"SeveralResults", 1,
     [](Graph&, const Value& x) {
       Values r = switch_(maximum(largest(x) - 1, 0), {[&] {
                                                         return Values{x, x * 2.0};
                                                       },
                                                       [&] {
                                                         return Values{x * 3.0, x};
                                                       },
                                                       [&] {
                                                         return Values{x + 1.0, x + 2.0};
                                                       }});
       return r[0] - r[1];
     },
     [](const Numbers& x) {
       const std::size_t i = std::max<std::size_t>(largest(x), 1) - 1;
       return each(x, [&](double v) { return i == 0 ? -v : i == 1 ? 2 * v : -1; });
     }},
    {"AChoiceInAChoice", 3,
     [](Graph&, const Value& x) {
       auto inner = [&](double factor) {
         return switch_(cast(sum(x) > 0.0, i32), {[&] { return x * factor; }, [&] { return x + factor; }});
       };
       return switch_(largest(x),
                      {[&] { return x; }, [&] { return inner(2); }, [&] { return x; }, [&] { return inner(5); }});
     },
     [](const Numbers& x) {
       const std::size_t i = largest(x);
       const double factor = i == 1 ? 2 : 5;
       if (i == 0 || i == 2) return x;
       return each(x, [&](double v) { return total(x) > 0 ? v + factor : v * factor; });
     }},
    {"AChoiceInALoop", 2,
     [](Graph& g, const Value& x) {
       return repeat(g, x, 6, [&](Value s, Value i) {
         Value third = where(i < 3, i, i - 3);
         return switch_(third, {[&] { return s + 1.0; }, [&] { return s * 2.0; }, [&] { return s - 0.5; }});
       });
     },
     [](const Numbers& x) {
       return each(x, [](double v) {
         for (int i = 0; i < 6; ++i) v = i % 3 == 0 ? v + 1 : i % 3 == 1 ? v * 2 : v - 0.5;
         return v;
       });
     }},
    {"ALoopInAChoice", 3,
     [](Graph& g, const Value& x) {
       auto doubled = [&](int times) { return repeat(g, x, times, [](Value s, Value) { return s * 2.0; }); };
       return switch_(largest(x), {[&] { return x; }, [&] { return doubled(3); }, [&] { return doubled(1); },
                                   [&] { return x - 1.0; }});
     },
     [](const Numbers& x) {
       const std::size_t i = largest(x);
       return each(x, [&](double v) { return i == 0 ? v : i == 1 ? v * 8 : i == 2 ? v * 2 : v - 1; });
     }},
    {"ABodyPerBranch", 3,
     [](Graph&, const Value& x) {
       return switch_(largest(x), {[&] {
                                     return if_(
                                         sum(x) > 1.0, [&] { return x; }, [&] { return x + 9.0; });
                                   },
                                   [&] { return x * 2.0; }, [&] { return x * 3.0; },
                                   [&] {
                                     return if_(
                                         sum(x) > 1.0, [&] { return x * 4.0; }, [&] { return -x; });
                                   }});
     },
     [](const Numbers& x) {
       const std::size_t i = largest(x);
       const bool p = total(x) > 1;
       return each(x, [&](double v) {
         return i == 0 ? (p ? v : v + 9) : i == 1 ? v * 2 : i == 2 ? v * 3 : p ? v * 4 : -v;
       });
     }},
    {"ManyBodies", 1,
     [](Graph& g, const Value& x) {
       std::vector<std::function<Value()>> bodies;
       for (int i = 0; i < 20; ++i) bodies.emplace_back([&x, i] { return x * static_cast<double>(i); });
       return switch_(largest(x) + 16, bodies) + g.constant(Tensor::scalar(1.0f));
     },
     [](const Numbers& x) {
       return each(x, [&](double v) { return v * (16.0 + static_cast<double>(largest(x))) + 1; });
     }},
};

const Row kScans[] = {
    {"RunningSums", 1,
     [](Graph& g, const Value& x) {
       return scan({g.constant(Tensor::scalar(0.0f))}, {x},
                   [](const Values& s, const Values& in) {
                     return Scan{{s[0] + in[0]}, {s[0] + in[0]}};
                   })
           .outputs[0];
     },
     [](const Numbers& x) {
       Numbers y(x.size());
       std::partial_sum(x.begin(), x.end(), y.begin());
       return y;
     }},
    {"TheLastState", 1,
     [](Graph&, const Value& x) {
       Scan r = scan({x, sum(x)}, {x, x * 2.0}, [](const Values& s, const Values& in) {
         return Scan{{s[0] * 0.5 + in[0], s[1] - in[1]}, {}};
       });
       return r.state[0] + r.state[1];
     },
     [](const Numbers& x) {
       Numbers y = x;
       double t = total(x);
       for (double in : x) {
         for (double& v : y) v = v * 0.5 + in;
         t -= 2 * in;
       }
       return each(y, [&](double v) { return v + t; });
     }},
    {"AScanOfOneIteration", 1,
     [](Graph&, const Value& x) {
       Scan r = scan({x}, {reshape(x, {1, 4})}, [](const Values& s, const Values& in) {
         return Scan{{s[0] + in[0]}, {s[0] * in[0]}};
       });
       return r.state[0] + reshape(r.outputs[0], {4});
     },
     [](const Numbers& x) { return each(x, [](double v) { return 2 * v + v * v; }); }},
    {"AScanOfManyIterations", 1,
     [](Graph& g, const Value& x) {
       Scan r = scan({x, integer(g, 0)}, {},
                     [](const Values& s, const Values&) {
                       return Scan{{s[0], s[1] + 1}, {sum(s[0]) + cast(s[1], f32)}};
                     },
                     {.iterations = 100});
       return x + sum(r.outputs[0]);
     },
     [](const Numbers& x) { return each(x, [&](double v) { return v + 100 * total(x) + 4950; }); }},
    {"SeveralTypesAndSizes", 1,
     [](Graph& g, const Value& x) {
       Value halves = cast(x, f16), flags = x > 0.0, wide = reshape(concat({x, x, x}, 0), {4, 3});
       Scan r = scan({integer(g, 0)}, {halves, flags, wide}, [](const Values& s, const Values& in) {
         return Scan{{s[0] + cast(in[1], i32)}, {in[0], logical_not(in[1]), in[2], s[0], cast(in[2], u8)}};
       });
       return cast(r.outputs[0], f32) + cast(r.outputs[1], f32) + sum(r.outputs[2], {1}) + cast(r.outputs[3], f32) +
              cast(sum(cast(r.outputs[4], i32), {1}) * 0, f32);
     },
     [](const Numbers& x) {
       Numbers y;
       int positive = 0;
       for (std::size_t i = 0; i < x.size(); ++i) {
         double row = 0;
         for (std::size_t j = 0; j < 3; ++j) row += x[(i * 3 + j) % 4];
         y.push_back(x[i] + (x[i] > 0 ? 0 : 1) + row + positive);
         positive += x[i] > 0;
       }
       return y;
     }},
    {"AnInputFromOutsideIsKept", 1,
     [](Graph&, const Value& x) {
       Value y = x * 3.0;
       return sum(scan({}, {x}, [&](const Values&, const Values&) { return Scan{{}, {y}}; }).outputs[0], {0});
     },
     [](const Numbers& x) { return each(x, [](double v) { return 12 * v; }); }},
    {"AScanInAScan", 2,
     [](Graph&, const Value& x) {
       Value m = reshape(x, {2, 2});
       Scan r = scan({sum(x)}, {m}, [](const Values& s, const Values& row) {
         Scan inner = scan({s[0]}, {row[0]}, [](const Values& t, const Values& in) {
           return Scan{{t[0] * 0.5 + in[0]}, {t[0]}};
         });
         return Scan{inner.state, inner.outputs};
       });
       return reshape(r.outputs[0], {4}) + r.state[0];
     },
     [](const Numbers& x) {
       Numbers y;
       double s = total(x);
       for (double in : x) {
         y.push_back(s);
         s = s * 0.5 + in;
       }
       return each(y, [&](double v) { return v + s; });
     }},
    {"AScanInALoop", 2,
     [](Graph& g, const Value& x) {
       return repeat(g, x, 3, [](Value s, Value) {
         return scan({sum(s) * 0.0}, {s},
                     [](const Values& t, const Values& in) {
                       return Scan{{t[0] + in[0]}, {t[0]}};
                     })
             .outputs[0];
       });
     },
     [](const Numbers& x) {
       Numbers y = x;
       for (int i = 0; i < 3; ++i) std::exclusive_scan(y.begin(), y.end(), y.begin(), 0.0);
       return y;
     }},
    {"ALoopInAScan", 2,
     [](Graph& g, const Value& x) {
       return scan({integer(g, 0)}, {x},
                   [&](const Values& s, const Values& in) {
                     return Scan{{s[0] + 1}, {repeat(g, in[0], s[0], [](Value t, Value) { return t * 2.0; })}};
                   })
           .outputs[0];
     },
     [](const Numbers& x) {
       return Numbers{x[0], 2 * x[1], 4 * x[2], 8 * x[3]};
     }},
    {"ABranchInAScan", 2,
     [](Graph&, const Value& x) {
       return scan({}, {x},
                   [&](const Values&, const Values& in) {
                     return Scan{{},
                                 {if_(
                                     in[0] > 0.0, [&] { return in[0] * 2.0; }, [&] { return in[0] - 1.0; })}};
                   })
           .outputs[0];
     },
     [](const Numbers& x) { return each(x, [](double v) { return v > 0 ? 2 * v : v - 1; }); }},
    {"AScanInABranch", 2,
     [](Graph&, const Value& x) {
       return if_(
           sum(x) > 0.0,
           [&] {
             return scan({}, {x}, [](const Values&, const Values& in) { return Scan{{}, {in[0] * in[0]}}; }).outputs[0];
           },
           [&] { return x; });
     },
     [](const Numbers& x) { return each(x, [&](double v) { return total(x) > 0 ? v * v : v; }); }},
};

const Row kBoth[] = {
    {"ABranchInALoop", 2,
     [](Graph& g, const Value& x) {
       return repeat(g, x, 6, [&](Value s, Value i) {
         return if_(
             i < 2, [&] { return s + 1.0; }, [&] { return s * 2.0; });
       });
     },
     [](const Numbers& x) { return each(x, [](double v) { return (v + 2) * 16; }); }},
    {"ALoopInABranch", 2,
     [](Graph& g, const Value& x) {
       return if_(
           sum(x) > 0.0, [&] { return repeat(g, x, 3, [](Value s, Value) { return s * 2.0; }); },
           [&] { return x + 1.0; });
     },
     [](const Numbers& x) { return each(x, [&](double v) { return total(x) > 0 ? v * 8 : v + 1; }); }},
    {"LoopsInBothBranches", 3,
     [](Graph& g, const Value& x) {
       return if_(
           sum(x) > 0.0, [&] { return repeat(g, x, 3, [](Value s, Value) { return s * 2.0; }); },
           [&] { return repeat(g, x, 5, [](Value s, Value) { return s + 1.0; }); });
     },
     [](const Numbers& x) { return each(x, [&](double v) { return total(x) > 0 ? v * 8 : v + 5; }); }},
    {"TheBranchSaysHowOften", 2,
     [](Graph& g, const Value& x) {
       Value times = if_(
           sum(x) > 0.0, [&] { return integer(g, 2); }, [&] { return integer(g, 0); });
       return repeat(g, x, times, [](Value s, Value) { return s + 1.0; });
     },
     [](const Numbers& x) { return each(x, [&](double v) { return total(x) > 0 ? v + 2 : v; }); }},
    {"TheLoopDecidesABranch", 2,
     [](Graph& g, const Value& x) {
       Value s = repeat(g, sum(x), 3, [](Value t, Value) { return t - 2.0; });
       return if_(
           s > 0.0, [&] { return x * s; }, [&] { return x + s; });
     },
     [](const Numbers& x) {
       const double s = total(x) - 6;
       return each(x, [&](double v) { return s > 0 ? v * s : v + s; });
     }},
    {"ABranchOfALoopOfABranch", 4,
     [](Graph& g, const Value& x) {
       return if_(
           sum(x) > 0.0,
           [&] {
             return repeat(g, x, 4, [&](Value s, Value i) {
               return if_(
                   i < 2, [&] { return repeat(g, s, i, [](Value t, Value) { return t + 10.0; }); },
                   [&] { return s * 2.0; });
             });
           },
           [&] { return x * 1.5; });
     },
     [](const Numbers& x) { return each(x, [&](double v) { return total(x) > 0 ? (v + 10) * 4 : v * 1.5; }); }},
    {"Bisection", 2,
     [](Graph& g, const Value& x) {
       // The root of t^3 = 2.
       auto [low, high, n] = while_(
           {g.constant(Tensor::scalar(0.0f)), g.constant(Tensor::scalar(2.0f)), integer(g, 0)},
           [](Value, Value, Value i) { return i < 22; },
           [](Value low, Value high, Value i) {
             Value middle = (low + high) * 0.5;
             const Values next = if_(
                 middle * middle * middle < 2.0,
                 [&] {
                   return Values{middle, high};
                 },
                 [&] {
                   return Values{low, middle};
                 });
             return std::array{next[0], next[1], i + 1};
           });
       return x + low;
     },
     [](const Numbers& x) { return each(x, [](double v) { return v + std::cbrt(2.0); }); }},
};

std::vector<Row> all_rows() {
  std::vector<Row> rows(std::begin(kLoops), std::end(kLoops));
  rows.insert(rows.end(), std::begin(kBranches), std::end(kBranches));
  rows.insert(rows.end(), std::begin(kChoices), std::end(kChoices));
  rows.insert(rows.end(), std::begin(kScans), std::end(kScans));
  rows.insert(rows.end(), std::begin(kBoth), std::end(kBoth));
  return rows;
}

class ControlFlow : public ::testing::TestWithParam<std::tuple<DeviceId, Row>> {};

std::string name_of(const ::testing::TestParamInfo<std::tuple<DeviceId, Row>>& info) {
  return std::string(std::get<1>(info.param).name) +
         (std::get<0>(info.param).kind == DeviceKind::cpu ? "_cpu" : "_cuda");
}
INSTANTIATE_TEST_SUITE_P(Table, ControlFlow,
                         ::testing::Combine(::testing::ValuesIn(testing::devices()), ::testing::ValuesIn(all_rows())),
                         name_of);

void expect_near(const Numbers& y, const Numbers& expected) {
  ASSERT_EQ(y.size(), expected.size());
  for (std::size_t i = 0; i < y.size(); ++i) {
    SCOPED_TRACE("element " + std::to_string(i));
    if (std::isnan(expected[i])) {
      EXPECT_TRUE(std::isnan(y[i])) << y[i];
    } else if (std::isinf(expected[i])) {
      EXPECT_EQ(y[i], expected[i]);
    } else {
      EXPECT_NEAR(y[i], expected[i], 1e-5 * std::max(1.0, std::abs(expected[i])));
    }
  }
}

// Every mode, with and without Tuning::unroll_loops.
std::vector<std::pair<Mode, bool>> all_ways() {
  std::vector<std::pair<Mode, bool>> ways;
  for (Mode mode : testing::kModes)
    for (bool unroll_loops : {false, true}) ways.emplace_back(mode, unroll_loops);
  return ways;
}

// One program takes both ways, and another number of iterations each time.
TEST_P(ControlFlow, GivesWhatTheHostComputesInEveryMode) {
  const auto& [device, row] = GetParam();
  Graph g;
  Value x = g.input("x", f32, {4});
  g.output("y", row.y(g, x));
  for (const auto& [mode, unroll_loops] : all_ways()) {
    SCOPED_TRACE(std::string(to_string(mode)) + (unroll_loops ? "" : ", not unrolled"));
    Program p = compile(g, {.target = device, .require_whole_graph = true, .tuning = {.unroll_loops = unroll_loops}});
    for (const Numbers& input : {Numbers{1, 2, 3, 4}, {-1, 0.5, 2, -3}, {0.25, 1, 1.5, 0.5}, {0, 0, 0, 0}}) {
      p.write(x, std::vector<float>(input.begin(), input.end()));
      p.run(mode);
      const Tensor read = p.output("y");
      Numbers y;
      for (std::int64_t i = 0; i < read.shape().size(); ++i) y.push_back(read.at(i));
      expect_near(y, row.expected(input));
    }
    if (mode != sink) continue;
    const int conditionals = p.captured()->conditional_nodes;
    EXPECT_TRUE(unroll_loops ? conditionals <= row.conditionals : conditionals == row.conditionals) << conditionals;
    EXPECT_EQ(p.counters().fallbacks, 0u);
    EXPECT_EQ(p.counters().graph_launches, 3u) << "each step after the first is one";
  }
}

}  // namespace
}  // namespace graphsink::control_flow_table_test
