// A process killed at any system call of a save leaves the old checkpoint or the new one, whole. The calls are
// interposed: this program's own write(), fsync() and rename() come before those of the C library.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "graphsink/checkpoint.h"
#include "temporary_directory.h"

namespace {

// Set in the child alone: which call dies, and whether before, in the middle of (write) or after its work.
enum class Moment { before, during, after };
int calls_until_death = -1;
Moment moment = Moment::before;

bool dies_here() { return calls_until_death >= 0 && calls_until_death-- == 0; }
void die() { raise(SIGKILL); }

template <class Call>
auto interposed(const Call& call) {
  bool dies = dies_here();
  if (dies && moment == Moment::before) die();
  auto result = call();
  if (dies) die();
  return result;
}

}  // namespace

extern "C" {
ssize_t write(int file, const void* data, size_t size) {
  return interposed([&] {
    bool is_half = calls_until_death == -1 && moment == Moment::during;
    return syscall(SYS_write, file, data, is_half ? size / 2 : size);
  });
}
int fsync(int file) {
  return interposed([&] { return static_cast<int>(syscall(SYS_fsync, file)); });
}
int rename(const char* from, const char* to) noexcept {
  return interposed([&] { return static_cast<int>(syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0)); });
}
}

namespace graphsink::checkpoint_crash_test {
namespace {

Checkpoint checkpoint_of(float value) {
  Checkpoint checkpoint;
  for (const char* name : {"a", "b", "c"}) checkpoint.tensors.emplace(name, Tensor::full(f32, {100}, value));
  checkpoint.metadata["step"] = std::to_string(static_cast<int>(value));
  return checkpoint;
}

// True if the child was killed, false if it finished its save.
bool save_is_killed_at(int call, Moment when, const std::filesystem::path& path) {
  pid_t child = fork();
  if (child == 0) {
    moment = when;
    calls_until_death = call;
    write_checkpoint(path, checkpoint_of(2));
    _exit(0);
  }
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(!WIFSIGNALED(status) || WTERMSIG(status) == SIGKILL);
  return WIFSIGNALED(status);
}

class CheckpointCrash : public testing::TestWithParam<bool> {};

TEST_P(CheckpointCrash, LeavesTheOldOrTheNewCheckpoint) {
  bool has_old = GetParam();
  for (Moment when : {Moment::before, Moment::during, Moment::after}) {
    int calls = 0, old = 0, renewed = 0;
    for (bool was_killed = true; was_killed; ++calls) {
      TemporaryDirectory directory;
      std::filesystem::path path = directory / "checkpoint";
      if (has_old) write_checkpoint(path, checkpoint_of(1));
      was_killed = save_is_killed_at(calls, when, path);
      if (!has_old && !std::filesystem::exists(path)) {
        ++old;
      } else {
        Checkpoint found = read_checkpoint(path);
        std::int64_t value = found.number("step");
        ASSERT_TRUE(value == 1 || value == 2);
        for (const auto& [name, tensor] : found.tensors) EXPECT_EQ(tensor.at(99), static_cast<double>(value));
        ++(value == 1 ? old : renewed);
      }
      write_checkpoint(path, checkpoint_of(3));  // what was left behind is in nobody's way
      EXPECT_EQ(read_checkpoint(path).number("step"), 3);
    }
    // The header, three tensors, fsync, rename, fsync of the directory; the last round is not killed.
    EXPECT_EQ(calls, 8);
    EXPECT_GE(old, 5);
    EXPECT_GE(renewed, 2);
  }
}
INSTANTIATE_TEST_SUITE_P(, CheckpointCrash, testing::Bool(),
                         [](const auto& p) { return p.param ? "OverAnOldOne" : "OfTheFirstOne"; });

}  // namespace
}  // namespace graphsink::checkpoint_crash_test
