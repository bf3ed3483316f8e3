// A process with a limit on its memory (ulimit -v) gets an Error where OpenBLAS would wait for memory forever.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <string>

#include "graphsink/graphsink.h"
#include "messages.h"
#include "resident_bytes.h"

namespace graphsink::testing::blas_memory_test {
namespace {

std::size_t mapped_bytes() {
  std::ifstream file("/proc/self/status");
  for (std::string name, rest; file >> name; std::getline(file, rest))
    if (std::size_t kib = 0; name == "VmSize:" && file >> kib) return kib * 1024;
  return 0;
}

void multiply() {
  Graph g;
  g.output("y", matmul(g.constant(Tensor::full(f32, {8, 8}, 1)), g.constant(Tensor::full(f32, {8, 8}, 2))));
  Program program = compile(g, {.target = cpu(), .tuning = {.threads = 2}});
  program.run(sink);
  program.sync();
}

// What multiply() says in a child process that may map `bytes` more than it has.
std::string message_with_room_for(std::size_t bytes) {
  int ends[2];
  EXPECT_EQ(pipe(ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);  // rather than wait forever
    rlimit limit;
    getrlimit(RLIMIT_AS, &limit);
    limit.rlim_cur = mapped_bytes() + bytes;
    setrlimit(RLIMIT_AS, &limit);
    const std::string message = message_of(multiply);
    _exit(write(ends[1], message.data(), message.size()) == static_cast<ssize_t>(message.size()) ? 0 : 1);
  }
  close(ends[1]);
  std::string message(1000, ' ');
  const ssize_t size = read(ends[0], message.data(), message.size());
  message.resize(static_cast<std::size_t>(std::max<ssize_t>(size, 0)));
  close(ends[0]);
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  return message;
}

TEST(BlasMemory, ThatALimitDoesNotLeaveIsAnError) {
  if (kSanitized) GTEST_SKIP() << "sanitizers map more than any limit";
  const std::string message = message_with_room_for(64 << 20);
  EXPECT_TRUE(contains(message, "cpu: OpenBLAS needs addresses for 128 MiB for each of ")) << message;
  EXPECT_TRUE(contains(message, "raise the limit")) << message;
}

TEST(BlasMemory, ThatALimitLeavesIsTaken) {
  if (kSanitized) GTEST_SKIP() << "sanitizers map more than any limit";
  EXPECT_EQ(message_with_room_for(std::size_t{64} << 30), "nothing was thrown");
}

}  // namespace
}  // namespace graphsink::testing::blas_memory_test
