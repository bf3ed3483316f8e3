// Failures that cannot be thrown are logged where the user wants. fault_test.cpp tests the messages that only a failing
// device causes.
#include "graphsink/log.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>
#include <stdexcept>

#include <spdlog/spdlog.h>

#include "base/log.h"
#include "test_ops.h"

namespace graphsink::testing::log_test {
namespace {

// Destroys a program whose step has failed.
void leave_a_failed_step(const LogFunction& log) {
  Graph g;
  Value x = g.feed("x", f32, {1});
  g.record("y", sum(emit(cpu_refuse_negative, {x})[0]));
  Program p = graphsink::compile(g, {.target = cpu(), .log = log});
  p.write(x, std::vector<float>{-1});
  p.run();
}

TEST(Logs, DestructorsTellTheUsersFunction) {
  std::vector<std::pair<LogLevel, std::string>> seen;
  ::testing::internal::CaptureStdout();
  leave_a_failed_step([&](LogLevel level, std::string_view message) { seen.emplace_back(level, message); });
  EXPECT_EQ(::testing::internal::GetCapturedStdout(), "");
  ASSERT_EQ(seen.size(), 1u);
  EXPECT_EQ(seen[0].first, LogLevel::warning);
  EXPECT_EQ(seen[0].second.find("a program ended with a failed step"), 0u) << seen[0].second;
  EXPECT_NE(seen[0].second.find("negative input"), std::string::npos) << seen[0].second;
}

TEST(Logs, AMessageIsOneLineWhateverIsInIt) {
  std::string seen;
  Log([&](LogLevel, std::string_view message) { seen = message; }).warn({"the name is \"a\x1b[2J\n", "b\xff\""});
  EXPECT_EQ(seen, "the name is \"a\\x1b[2J\\nb\\xff\"");
}

TEST(Logs, WithoutAFunctionSpdlogIsTold) {
  ::testing::internal::CaptureStdout();
  leave_a_failed_step({});
  std::string text = ::testing::internal::GetCapturedStdout();
  EXPECT_NE(text.find("graphsink: a program ended with a failed step"), std::string::npos) << text;
}

TEST(Logs, WhatTheFunctionThrowsIsDroppedAndSpdlogIsTold) {
  int calls = 0;
  ::testing::internal::CaptureStdout();
  leave_a_failed_step([&](LogLevel, std::string_view) {
    ++calls;
    throw std::runtime_error("the disk is full");
  });
  std::string text = ::testing::internal::GetCapturedStdout();
  EXPECT_EQ(calls, 1);
  EXPECT_NE(text.find("graphsink: a program ended with a failed step"), std::string::npos) << text;
}

// Ends behind spdlog, which is made later than this is.
struct LogsAtItsEnd {
  bool is_told = false;
  ~LogsAtItsEnd() {
    if (is_told) Log().warn({"at the end of the process"});
  }
} at_the_end;

TEST(Logs, AStaticObjectMayEndBehindSpdlog) {
  EXPECT_EXIT(
      {
        Log().warn({"early"});
        at_the_end.is_told = true;
        std::exit(0);
      },
      ::testing::ExitedWithCode(0), "graphsink: at the end of the process");
}

// What applications do with spdlog at their end, or to be rid of its default.
TEST(Logs, WhereTheApplicationLeftNoDefaultLoggerStandardErrorIsTold) {
  const std::function<void()> rows[] = {[] { spdlog::shutdown(); }, [] { spdlog::drop_all(); },
                                        [] { spdlog::set_default_logger(nullptr); }};
  for (const auto& end : rows) {
    for (bool is_early : {false, true}) {
      EXPECT_EXIT(
          {
            if (is_early) Log().warn({"early"});
            end();
            leave_a_failed_step({});
            std::exit(0);
          },
          ::testing::ExitedWithCode(0), "graphsink: a program ended with a failed step");
    }
  }
}

TEST(Logs, EachProgramHasItsOwn) {
  std::vector<std::string> first, second;
  leave_a_failed_step([&](LogLevel, std::string_view message) { first.emplace_back(message); });
  leave_a_failed_step([&](LogLevel, std::string_view message) { second.emplace_back(message); });
  EXPECT_EQ(first.size(), 1u);
  EXPECT_EQ(second.size(), 1u);
}

}  // namespace
}  // namespace graphsink::testing::log_test
