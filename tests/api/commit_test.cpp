// Checks which ops may write Variables, that no work of the host comes after the commit has begun, and that what the
// commit reads is the value at the start of the step.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

#include "program_fixture.h"

namespace graphsink::commit_test {
namespace {

using testing::OnDevice;

// Adds operand 1 to the Variable.
Access write_first(int operand, int) { return operand == 0 ? Access::write : Access::read; }
void infer_nothing(InferArgs& a) { a.expect_inputs(2); }
void infer_sum(InferArgs& a) {
  a.expect_inputs(2);
  a.out(a.in(0).dtype, a.in(0).shape);
}
void add_once(const CpuArgs& a) {
  if (a.step()->ok == 0) return;
  if (*a.in<float>(1) < 0) throw std::runtime_error("negative operand");
  *a.in_out<float>(0) += *a.in<float>(1);
}
const OpDef add_op{.name = "add_once", .infer = infer_nothing, .access = write_first, .bodies = {add_once}};
const OpDef add_with_output{.name = "add_out", .infer = infer_sum, .access = write_first, .bodies = {add_once}};
const OpDef add_with_effect{.name = "add_effect",
                            .infer = infer_nothing,
                            .access = write_first,
                            .traits = {.host_effect = true},
                            .bodies = {add_once}};

std::string problem_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& e) {
    return e.problem();
  }
  return "";
}

TEST(Commit, IsNothingThatAnotherOpCouldComeBehind) {
  Graph g;
  Variable w("w", Tensor({1.0f}));
  Value x = g.input("x", f32, {1});
  EXPECT_EQ(problem_of([&] {
              emit(add_with_output, {w, x});
            }),
            "commits a Variable and has outputs, which nobody could read before the step is over: f32[1], f32[1]");
  EXPECT_EQ(problem_of([&] {
              emit(add_with_effect, {w, x});
            }),
            "commits a Variable and has a host effect, which no failed step can undo: f32[1], f32[1]");
  EXPECT_EQ(problem_of([&] { emit(add_op, {w, x}); }), "") << "neither refusal has made it a committed one";
  EXPECT_EQ(problem_of([&] { g.value(w); }).find("read after the optimizer"), 0u);
}

// An effect reads a Variable that was assigned earlier in the program. It runs before the value is stored.
TEST_P(OnDevice, AnEffectBehindAnAssignThatThrowsCommitsNothing) {
  static const OpDef refuse{.name = "refuse",
                            .infer = testing::infer_like_first,
                            .traits = {.host_effect = true},
                            .bodies = {testing::refuse_negative}};
  for (Mode mode : kAllModes) {
    SCOPED_TRACE(to_string(mode));
    Graph g;
    Value x = g.input("x", f32, {1});
    Variable a("a", Tensor({1.0f})), b("b", Tensor({1.0f}));
    assign(a, g.value(a) + x);
    emit(refuse, {g.value(a)});
    assign(b, g.value(b) + 1.0);
    Program p = compile(g);
    p.write(x, std::vector<float>{1});
    for (int i = 0; i < 3; ++i) p.run(mode);
    p.sync();
    p.write(x, std::vector<float>{-9});
    p.run(mode);
    EXPECT_NE(problem_of([&] { p.sync(); }).find("negative input"), std::string::npos);
    EXPECT_EQ(a.read().at(0), 4.0);
    EXPECT_EQ(b.read().at(0), 4.0);
  }
}

// An op that commits must not throw. If it does, what was stored before it stays, and the program reports that the step
// broke off.
TEST(Commit, AnOpThatThrowsInItBreaksTheVariables) {
  for (Mode mode : testing::kModes) {
    SCOPED_TRACE(to_string(mode));
    Graph g;
    Value x = g.input("x", f32, {1});
    Variable a("a", Tensor({1.0f})), b("b", Tensor({1.0f})), c("c", Tensor({1.0f}));
    emit(add_op, {a, x * x});
    emit(add_op, {b, x});
    assign(c, g.value(c) + 1.0);
    Program p = compile(g);
    p.write(x, std::vector<float>{1});
    for (int i = 0; i < 3; ++i) p.run(mode);
    p.sync();
    p.write(x, std::vector<float>{-1});
    p.run(mode);
    std::string said = problem_of([&] { p.sync(); });
    EXPECT_NE(said.find("the step broke off while it committed: "), std::string::npos) << said;
    EXPECT_NE(said.find("negative operand"), std::string::npos) << said;
    EXPECT_EQ(p.steps(), 3);
    for (Variable* v : {&a, &b, &c}) EXPECT_EQ(problem_of([&] { v->read(); }), said);
    EXPECT_EQ(problem_of([&] { p.run(mode); }), said);
    p.write(x, std::vector<float>{2});
    for (Variable* v : {&a, &b, &c}) v->write(Tensor({10.0f}));
    p.run(mode);
    p.sync();
    EXPECT_EQ(a.read().at(0), 14.0);
    EXPECT_EQ(b.read().at(0), 12.0);
    EXPECT_EQ(c.read().at(0), 11.0);
    EXPECT_EQ(p.steps(), 4);
  }
}

// Stores twice operand 1 in the Variable, in two stores, as a body may that reads the operand late.
void store_twice(const CpuArgs& a) {
  if (a.step()->ok == 0) return;
  *a.in_out<double>(0) = 0;
  *a.in_out<double>(0) += 2 * *a.in<double>(1);
}
const OpDef store_twice_op{
    .name = "store_twice", .infer = infer_nothing, .access = write_first, .bodies = {store_twice}};

// Both are scalars, w of f64. `rate` was read before anything wrote it.
struct StartRow {
  const char* name;
  std::function<void(const Variable& w, const Variable& rate_variable, const Value& rate)> commit;
  std::function<double(double w, double rate)> next;  // w behind the step
  bool has_cuda_body = true;
};
void PrintTo(const StartRow& row, std::ostream* out) { *out << row.name; }

Value half_square(const Value& x) { return x * x * 0.5; }
Value half_square(const Variable& x, const Value& of_the_graph) { return half_square(of_the_graph * 0.0 + x); }
double descended(double w, double rate) { return w - rate * w; }

const StartRow kStartRows[] = {
    {"AnOptimizerBefore",
     [](const Variable& w, const Variable& r, const Value& rate) {
       const Value loss = half_square(w, rate);
       sgd(half_square(rate), {r}, {.lr = 0.1});
       sgd(loss, {w}, {.lr = rate});
     },
     descended},
    {"AnOptimizerBehind",
     [](const Variable& w, const Variable& r, const Value& rate) {
       sgd(half_square(w, rate), {w}, {.lr = rate});
       sgd(half_square(rate), {r}, {.lr = 0.1});
     },
     descended},
    {"AdamwBefore",
     [](const Variable& w, const Variable& r, const Value& rate) {
       const Value loss = half_square(w, rate);
       adamw(half_square(rate), {r}, {.lr = 0.05});
       sgd(loss, {w}, {.lr = rate});
     },
     descended},
    {"AdamwBehindMomentum",
     [](const Variable& w, const Variable& r, const Value& rate) {
       const Value loss = half_square(w, rate);
       sgd(half_square(rate), {r}, {.lr = 0.1, .momentum = 0.5});
       adamw(loss, {w}, {.lr = rate, .beta1 = 0, .beta2 = 0, .eps = 0, .weight_decay = 0});
     },
     [](double w, double rate) { return w > 0 ? w - rate : w + rate; }},
    {"AParameterGroupBefore",
     [](const Variable& w, const Variable& r, const Value& rate) {
       const Value loss = half_square(w, rate) + half_square(rate);
       sgd(loss, {{.parameters = {r}, .lr = 0.1}, {.parameters = {w}, .lr = rate}});
     },
     descended},
    {"TheSameParameterGroup",
     [](const Variable& w, const Variable& r, const Value& rate) {
       sgd(half_square(w, rate) + half_square(rate), {r, w}, {.lr = rate});
     },
     descended},
    {"AViewOfIt",
     [](const Variable& w, const Variable& r, const Value& rate) {
       const Value loss = half_square(w, rate);
       sgd(half_square(rate), {r}, {.lr = 0.1});
       sgd(loss, {w}, {.lr = reshape(reshape(rate, {1}), NewShape({}))});
     },
     descended},
    {"AUsersOpBefore",
     [](const Variable& w, const Variable& r, const Value& rate) {
       const Value loss = half_square(w, rate);
       emit(store_twice_op, {r, rate * 0.45});
       sgd(loss, {w}, {.lr = rate});
     },
     descended, false},
    {"AUsersOpBehind",
     [](const Variable& w, const Variable& r, const Value& rate) {
       sgd(half_square(rate), {r}, {.lr = 0.1});
       emit(store_twice_op, {w, rate});
     },
     [](double, double rate) { return 2 * rate; }, false},
    {"AViewOfItForAUsersOp",
     [](const Variable& w, const Variable& r, const Value& rate) {
       sgd(half_square(rate), {r}, {.lr = 0.1});
       emit(store_twice_op, {w, reshape(rate, {1})});
     },
     [](double, double rate) { return 2 * rate; }, false},
    {"AUsersOpThatWritesIt",
     [](const Variable& w, const Variable& r, const Value& rate) {
       emit(store_twice_op, {w, Graph(rate.graph()).value(w)});
       sgd(half_square(rate), {r}, {.lr = 0.1});
     },
     [](double w, double) { return 2 * w; }, false},
    {"ExchangedByUsersOps",
     [](const Variable& w, const Variable& r, const Value& rate) {
       const Value before = Graph(rate.graph()).value(w);
       emit(store_twice_op, {r, before});
       emit(store_twice_op, {w, rate});
     },
     [](double, double rate) { return 2 * rate; }, false},
};

using StartCase = std::tuple<StartRow, DeviceId>;
// Ops of the commit run on the device, for which an op of this file may have no body.
std::vector<StartCase> start_cases() {
  std::vector<StartCase> cases;
  for (const StartRow& row : kStartRows)
    for (DeviceId device : testing::devices())
      if (row.has_cuda_body || device.kind == DeviceKind::cpu) cases.emplace_back(row, device);
  return cases;
}

class StartOfTheStep : public ::testing::TestWithParam<StartCase> {};
INSTANTIATE_TEST_SUITE_P(Table, StartOfTheStep, ::testing::ValuesIn(start_cases()), [](const auto& info) {
  return std::string(std::get<0>(info.param).name) +
         (std::get<1>(info.param).kind == DeviceKind::cpu ? "_cpu" : "_cuda");
});

TEST_P(StartOfTheStep, IsWhatTheCommitReads) {
  const auto& [row, device] = GetParam();
  for (Mode mode : kAllModes) {
    SCOPED_TRACE(to_string(mode));
    Graph g;
    Variable w("w", Tensor::scalar(2.0)), rate("rate", Tensor::scalar(0.5));
    const Value at_start = g.value(rate);
    g.record("w", g.value(w));
    g.record("rate", at_start);
    row.commit(w, rate, at_start);
    Program p = compile(g, {.target = device});
    for (int i = 0; i < 2; ++i) p.run(mode);
    p.run(mode, {.steps = 3});
    std::vector<double> seen = p.records<double>("w"), rates = p.records<double>("rate");
    ASSERT_EQ(rates.size(), 5u);
    seen.push_back(w.read().at(0));
    for (std::size_t i = 0; i < rates.size(); ++i)
      EXPECT_NEAR(seen[i + 1], row.next(seen[i], rates[i]), 1e-6) << "step " << i;
    EXPECT_GT(std::abs(rates[1] - rates[0]), 0.01) << "the step writes what it reads";
  }
}

}  // namespace
}  // namespace graphsink::commit_test
