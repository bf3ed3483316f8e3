// Processes that end well, badly and not at all; scripts stand in for the program.
#include "conformance/child.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

namespace conformance::child_test::child_test {
namespace {

class ChildTest : public ::testing::Test {
 protected:
  ~ChildTest() override { std::remove(path_.c_str()); }
  // Writes one answer, then does `end`.
  Outcome run(const std::string& end, std::chrono::milliseconds limit = std::chrono::seconds(20)) {
    std::ofstream(path_) << "#!/bin/sh\necho '# device: none; driver 1'\necho \"$2, cudaFree, cudaSuccess(0), none\"\n"
                         << end << '\n';
    chmod(path_.c_str(), 0700);
    return run_in_child(path_, "a.case", limit);
  }

 private:
  std::string path_ = ::testing::TempDir() + "conformance_child_" + std::to_string(::getpid());
};

TEST_F(ChildTest, GivesDeviceAndAnswers) {
  const Outcome outcome = run("exit 0");
  EXPECT_EQ("", outcome.problem);
  EXPECT_EQ("none; driver 1", outcome.device);
  ASSERT_EQ(1u, outcome.lines.size());
  EXPECT_EQ("cudaFree", outcome.lines[0].call);
}

TEST_F(ChildTest, KeepsTheAnswersBeforeABadEnd) {
  const Outcome code = run("exit 3");
  EXPECT_EQ("ended with code 3", code.problem);
  EXPECT_EQ(1u, code.lines.size());
  const Outcome killed = run("kill -9 $$");
  EXPECT_EQ("ended by signal 9", killed.problem);
  EXPECT_EQ(1u, killed.lines.size());
}

TEST_F(ChildTest, EndsAProcessThatHangs) {
  const Outcome outcome = run("exec sleep 600", std::chrono::seconds(1));
  EXPECT_EQ("did not end in time", outcome.problem);
  EXPECT_EQ(1u, outcome.lines.size());
}

TEST_F(ChildTest, SaysWhenThereIsNoProgram) { EXPECT_EQ("did not start", run_in_child("/nowhere", "a.case").problem); }

}  // namespace
}  // namespace conformance::child_test::child_test
