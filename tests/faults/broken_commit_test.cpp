// A commit that breaks off half-way is said until its Variables are written.
#include <gtest/gtest.h>

#include <thread>

#include "fault_fixture.h"
#include "test_ops.h"

namespace graphsink::broken_commit_test {
namespace {

using testing::contains;
using testing::Fault;
using testing::message_of;
using testing::TwoKernelCommit;

class BrokenCommit : public Fault, public ::testing::WithParamInterface<int> {};
INSTANTIATE_TEST_SUITE_P(Kernel, BrokenCommit, ::testing::Values(1, 0),
                         [](const auto& info) { return info.param == 0 ? "end_of_the_step" : "second_of_the_commit"; });

TEST_P(BrokenCommit, IsSaidAtEveryCallUntilTheVariablesAreWritten) {
  TwoKernelCommit model;
  int kernels = model.kernels();
  Tensor scale = model.scale.read(), total = model.total.read();
  emu::fail("cudaLaunchKernelExC", kernels - GetParam(), cudaErrorLaunchOutOfResources);
  std::string thrown = message_of([&] { model.p.run(interactive); });
  EXPECT_TRUE(contains(thrown, "broke off while it committed: cudaLaunchKernelEx returned")) << thrown;
  for (const std::string& message :
       {message_of([&] { model.p.run(interactive); }), message_of([&] { model.p.run(sink); }),
        message_of([&] { model.p.sync(); }), message_of([&] { (void)model.p.records("loss"); }),
        message_of([&] { (void)model.scale.read(); }), message_of([&] { (void)model.total.read(); })}) {
    EXPECT_TRUE(contains(message, "broke off while it committed: cudaLaunchKernelEx returned")) << message;
    EXPECT_TRUE(contains(message, "remedy: write their values from before the step")) << message;
  }
  model.scale.write(scale);  // one of two is not enough for the program
  EXPECT_EQ(model.scale.read().at(0), scale.at(0));
  EXPECT_TRUE(contains(message_of([&] { model.p.run(interactive); }), "broke off"));
  EXPECT_EQ(model.p.steps(), 1);
  model.total.write(total);
  model.p.run(interactive);
  model.p.sync();
  EXPECT_EQ(model.p.steps(), 2);
  EXPECT_EQ(model.p.records("loss"), (std::vector<float>{2, 1.5}));
  EXPECT_EQ(model.scale.read().at(0), 1.0);
  EXPECT_EQ(model.total.read().at(0), 3.5);
}

TEST_F(Fault, BeforeTheFirstKernelOfTheCommitNothingIsBroken) {
  TwoKernelCommit model;
  int kernels = model.kernels();
  for (int nth = 1; nth <= kernels - (TwoKernelCommit::kLastKernels - 1); ++nth) {
    emu::fail("cudaLaunchKernelExC", nth, cudaErrorLaunchOutOfResources);
    EXPECT_TRUE(contains(message_of([&] { model.p.run(interactive); }), "cudaLaunchKernelEx returned"));
    model.p.sync();
    EXPECT_EQ(model.p.steps(), 1);
    EXPECT_EQ(model.scale.read().at(0), 1.5);
    EXPECT_EQ(model.total.read().at(0), 2.0);
  }
}

// Another program that uses the Variables must not go on with them either.
TEST_F(Fault, ABrokenCommitIsSaidByTheOtherProgramsOfItsVariables) {
  TwoKernelCommit model;
  int kernels = model.kernels();
  Graph g;
  g.record("scale", sum(g.value(model.scale)));
  Program other = compile(g, {.target = cuda(0)});
  other.run(interactive);
  emu::fail("cudaLaunchKernelExC", kernels, cudaErrorLaunchOutOfResources);
  EXPECT_THROW(model.p.run(interactive), Error);
  EXPECT_TRUE(contains(message_of([&] { other.run(interactive); }), "broke off while it committed"));
}

// A reader that waits for the end of the run must not take a half of the step for the Variable's value.
TEST_F(Fault, ABrokenCommitIsSaidToAThreadThatWaitedToReadTheVariable) {
  struct Hook {
    std::function<void()>* call;
  };
  // Runs on the thread of run() in a split mode, before the commit.
  static const OpDef hook_op{.name = "hook", .infer = testing::infer_like_first, .bodies = {[](const CpuArgs& a) {
                                                                                   (*a.attrs<Hook>().call)();
                                                                                   *a.out<float>(0) = *a.in<float>(0);
                                                                                 }}};
  std::function<void()> call = [] {};
  Variable first("first", Tensor({0.0f})), second("second", Tensor({0.0f}));
  Graph g;
  Value one = emit(hook_op, {g.value(first) * 0.0 + 1.0}, Hook{&call})[0];
  assign(first, g.value(first) + one);
  assign(second, g.value(second) + one);
  Program p = compile(g, {.target = cuda(0)});
  p.run(split_serial);
  p.sync();
  emu::reset_calls();
  p.run(split_serial);
  p.sync();
  auto kernels = static_cast<int>(emu::calls("cudaLaunchKernelExC"));
  std::string said;
  std::thread reader;
  call = [&] {
    reader = std::thread([&] { said = message_of([&] { (void)first.read(); }); });
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  };
  emu::fail("cudaLaunchKernelExC", kernels, cudaErrorLaunchOutOfResources);
  EXPECT_THROW(p.run(split_serial), Error);
  reader.join();
  EXPECT_TRUE(contains(said, "broke off while it committed")) << said;
}

}  // namespace
}  // namespace graphsink::broken_commit_test
