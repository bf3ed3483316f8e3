// Checks that an idle program costs little, so that many of them fit into one process.
#include <gtest/gtest.h>

#include <sys/resource.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <thread>
#include <vector>

#include "graphsink/graphsink.h"
#include "resident_bytes.h"

namespace graphsink::many_programs_test {
namespace {

using testing::kSanitized;
using testing::resident_bytes;

std::ptrdiff_t threads() {
  std::filesystem::directory_iterator all("/proc/self/task");
  return std::distance(begin(all), end(all));
}

TEST(ManyPrograms, NeedLittleMemoryAndNoThreadsWhileTheyDoNothing) {
  constexpr std::size_t kPrograms = 1000;
  constexpr std::ptrdiff_t kHandful = 8;
  std::ptrdiff_t threads_before = threads();
  std::size_t bytes_before = resident_bytes();
  std::vector<Program> programs;
  for (std::size_t i = 0; i < kPrograms; ++i) {
    Graph g;
    Value x = g.input("x", f32, {4});
    Variable n("n", Tensor::scalar(0.0f));
    assign(n, g.value(n) + sum(x));
    g.output("y", x + n);
    programs.push_back(compile(g));
    Program& p = programs.back();
    p.write(x, std::vector<float>(4, 1.0f));
    for (int k = 0; k < 3; ++k) p.run(sink);
    ASSERT_EQ(p.output("y").at(0), 13.0);
  }
  auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (threads() > threads_before + kHandful && std::chrono::steady_clock::now() < deadline)
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_LE(threads(), threads_before + kHandful);
  if (!kSanitized) {
    EXPECT_LE(resident_bytes() - bytes_before, 100u << 20);
  }
  for (Program& p : programs) {
    p.run(sink);
    ASSERT_EQ(p.output("y").at(0), 17.0);
  }
}

// Runs in a separate process, whose address space is limited as by `ulimit -v 20000000`.
TEST(ManyPrograms, FitIntoLimitedAddresses) {
  if (kSanitized) GTEST_SKIP() << "the sanitizer's shadow alone needs more addresses";
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        rlimit limit{};
        getrlimit(RLIMIT_AS, &limit);
        limit.rlim_cur = rlim_t{20000000} * 1024;
        setrlimit(RLIMIT_AS, &limit);
        std::vector<Program> programs;
        for (int i = 0; i < 50; ++i) {
          Graph g;
          Value x = g.input("x", f32, {open(4)});
          g.output("y", sum(x * x));
          programs.push_back(compile(g));
          for (std::size_t size : {4u, 400u, 400000u}) {  // the arenas of the program grow
            programs.back().write(x, std::vector<float>(size, 2.0f));
            programs.back().run(sink);
            if (programs.back().output("y").at(0) != 4.0 * static_cast<double>(size)) std::exit(1);
          }
        }
        std::exit(0);
      },
      ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace graphsink::many_programs_test
