// A child of fork() does not have the threads that run a program.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <future>
#include <thread>

#include "api/program_access.h"
#include "program_fixture.h"

namespace graphsink::fork_test {
namespace {

using testing::OnDevice;

// Returns the exit code of a child process that makes the call. It is 0 if the call throws an Error that mentions
// fork(). The alarm ends a child that hangs.
template <class Call>
int in_child(const Call& call) {
  pid_t child = fork();
  if (child == 0) {
    alarm(30);
    int code = 1;
    try {
      call();
    } catch (const Error& e) {
      code = e.problem().find("fork()") != std::string::npos ? 0 : 2;
    }
    _exit(code);
  }
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status)) << "ended by signal " << WTERMSIG(status);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST_P(OnDevice, AChildThatUsesTheParentsProgramGetsAnError) {
  Graph g;
  Value x = g.input("x", f32, {1});
  Variable w("w", Tensor({1.0f}));
  assign(w, g.value(w) + x);
  g.output("x", x * 2.0);
  g.record("sum", sum(x));
  Program p = compile(g);
  p.write(x, std::vector<float>{1});
  for (Mode mode : testing::kModes) p.run(mode);
  EXPECT_EQ(in_child([&] { p.write(x, std::vector<float>{1}); }), 0);
  EXPECT_EQ(in_child([&] { p.run(); }), 0);
  EXPECT_EQ(in_child([&] { p.run(interactive); }), 0);
  EXPECT_EQ(in_child([&] { p.sync(); }), 0);
  EXPECT_EQ(in_child([&] { (void)p.poll(); }), 0);
  EXPECT_EQ(in_child([&] { (void)p.records("sum"); }), 0);
  EXPECT_EQ(in_child([&] { (void)p.output("x"); }), 0);
  EXPECT_EQ(in_child([&] { (void)p.steps(); }), 0);
  EXPECT_EQ(in_child([&] { p.set_steps(0); }), 0);
  EXPECT_EQ(in_child([&] { (void)w.read(); }), 0);
  EXPECT_EQ(in_child([&] { w.write(Tensor({1.0f})); }), 0);
#ifndef __SANITIZE_THREAD__  // the sanitizer takes the threads of the parent for those of the child
  EXPECT_EQ(in_child([&] {
              Graph graph = std::move(g);
              Variable variable = std::move(w);
              Program gone = std::move(p);  // destroys all of it, without waiting
            }),
            1);
#endif
  std::promise<void> is_held, is_over;
  std::thread other([&] {
    const Held call = ProgramAccess::hold(p, Where::current());
    is_held.set_value();
    is_over.get_future().wait();
  });
  is_held.get_future().wait();
  EXPECT_EQ(in_child([&] { (void)p.steps(); }), 0) << "while another thread of the parent is in a call";
  is_over.set_value();
  other.join();
  p.run();
  EXPECT_EQ(w.read().at(0), 5.0) << "the parent goes on";
}

// The child does not have the thread whose step it would wait for.
TEST(AChild, DoesNotWaitForAStepOfTheParentWhenItCopiesVariables) {
#ifndef __SANITIZE_THREAD__  // the sanitizer takes the threads of the parent for those of the child
  std::promise<void> begins, may_end;
  Variable w("w", Tensor({1.0f}));
  Graph g;
  ExternalOp op{.name = "waits", .outputs = {{f32, {1}}}};
  op.cpu = [&](const CpuArgs& a) {
    begins.set_value();
    may_end.get_future().wait();
    a.out<float>(0)[0] = a.in<float>(0)[0];
  };
  assign(w, external_op(op, {g.value(w)})[0]);
  Program p = compile(g, {.target = cpu()});
  std::thread steps([&] { p.run(); });
  begins.get_future().wait();
  EXPECT_EQ(in_child([&] { (void)snapshot({{w}}); }), 0);
  Checkpoint other;
  other.tensors["w"] = Tensor({2.0f});
  EXPECT_EQ(in_child([&] { (void)restore({{w}}, other, {.without_step = true}); }), 0);
  may_end.set_value();
  steps.join();
#endif
}

// A program that the child itself has compiled, over a Variable of the parent's, and what the Error says to do.
TEST_P(OnDevice, AChildCannotUseAVariableOfTheParentsProgramAndIsToldWhatToDo) {
  if (GetParam().kind != DeviceKind::cpu) GTEST_SKIP() << "a child of fork() has no CUDA";
  auto adding = [](const Variable& w) {
    Graph g;
    assign(w, g.value(w) + 1.0);
    return g;
  };
  Variable w("w", Tensor({1.0f}));
  Program p = compile(adding(w));
  p.run();
  const Tensor before = w.read();
#ifndef __SANITIZE_THREAD__
  for (const bool is_told : {true, false}) {
    EXPECT_EQ(in_child([&] {
                const Variable own("w", before);
                Program mine = compile(adding(is_told ? w : own));
                try {
                  mine.run();
                } catch (const Error& e) {
                  const std::string text = e.what();
                  for (const char* part :
                       {"fork_test.cpp:", "Variable \"w\": a program was run with it in a child of fork()",
                        "read() it in the parent before fork(), and make another Variable of that value in the child"})
                    if (text.find(part) == std::string::npos) _exit(3);
                  throw;
                }
                if (own.read().at(0) != 3.0) _exit(4);
              }),
              is_told ? 0 : 1);
  }
#endif
  EXPECT_EQ(w.read().at(0), 2.0);
}

}  // namespace
}  // namespace graphsink::fork_test
