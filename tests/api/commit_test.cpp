// Checks which ops may write Variables, and that no work of the host comes after the commit has begun.
#include <gtest/gtest.h>

#include <functional>
#include <stdexcept>

#include "program_fixture.h"

namespace graphsink {
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

}  // namespace
}  // namespace graphsink
