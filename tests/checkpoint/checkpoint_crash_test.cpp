// A process killed at any system call of a save leaves the old checkpoint or the new one, whole. The calls are
// interposed: this program's own write(), fsync(), rename() and unlink() come before those of the C library, and so do
// its read() and usleep().
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <ctime>
#include <fstream>
#include <functional>

#include "graphsink/checkpoint.h"
#include "temporary_directory.h"

namespace {

// Set in the child alone: which call dies, and whether before, in the middle of (write) or after its work.
enum class Moment { before, during, after };
int calls_until_death = -1;
Moment moment = Moment::before;

// Set in the test itself: which call fails.
int calls_until_failure = -1;
bool reads_fail = false;

// Called by usleep() instead of any sleep, if there is one.
std::function<void()> on_sleep;

bool fails_here() { return calls_until_failure >= 0 && calls_until_failure-- == 0; }
bool dies_here() { return calls_until_death >= 0 && calls_until_death-- == 0; }
void die() { raise(SIGKILL); }

template <class Call>
auto interposed(const Call& call) {
  if (fails_here()) {
    errno = ENOSPC;
    return decltype(call())(-1);
  }
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
// It is the C++ library that calls this one, not code that is linked with it.
[[gnu::visibility("default")]] ssize_t read(int file, void* data, size_t size) {
  if (!reads_fail) return syscall(SYS_read, file, data, size);
  errno = EIO;
  return -1;
}
int usleep(useconds_t microseconds) {
  const timespec pause{0, static_cast<long>(microseconds) * 1000};
  if (!on_sleep) return nanosleep(&pause, nullptr);
  on_sleep();
  return 0;
}
int fsync(int file) {
  return interposed([&] { return static_cast<int>(syscall(SYS_fsync, file)); });
}
int rename(const char* from, const char* to) noexcept {
  return interposed([&] { return static_cast<int>(syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0)); });
}
int unlink(const char* path) noexcept {
  return interposed([&] { return static_cast<int>(syscall(SYS_unlinkat, AT_FDCWD, path, 0)); });
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

// True if the child was killed, false if it finished what it does.
template <class Act>
bool is_killed_at(int call, Moment when, const Act& act) {
  pid_t child = fork();
  if (child == 0) {
    moment = when;
    calls_until_death = call;
    act();
    _exit(0);
  }
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(!WIFSIGNALED(status) || WTERMSIG(status) == SIGKILL);
  return WIFSIGNALED(status);
}

// The number of the whole checkpoint that is at `path`; 0 if there is none.
std::int64_t value_at(const std::filesystem::path& path) {
  if (!std::filesystem::exists(path)) return 0;
  const Checkpoint found = read_checkpoint(path);
  const std::int64_t value = found.number("step");
  EXPECT_EQ(found.tensors.size(), 3u);
  for (const auto& [name, tensor] : found.tensors) EXPECT_EQ(tensor.at(99), static_cast<double>(value));
  return value;
}

class CheckpointCrash : public testing::TestWithParam<bool> {};

TEST_P(CheckpointCrash, LeavesTheOldOrTheNewCheckpoint) {
  const bool has_old = GetParam();
  for (Moment when : {Moment::before, Moment::during, Moment::after}) {
    int calls = 0, old = 0, renewed = 0;
    for (bool was_killed = true; was_killed; ++calls) {
      TemporaryDirectory directory;
      std::filesystem::path path = directory / "checkpoint";
      if (has_old) write_checkpoint(path, checkpoint_of(1));
      was_killed = is_killed_at(calls, when, [&] { write_checkpoint(path, checkpoint_of(2)); });
      const std::int64_t value = value_at(path);
      ASSERT_TRUE(value == 2 || value == (has_old ? 1 : 0));
      ++(value == 2 ? renewed : old);
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

constexpr CheckpointOptions kShards{.most_bytes_per_file = 500};  // a tensor of a checkpoint has 400

std::ptrdiff_t files_in(const TemporaryDirectory& directory) {
  return std::distance(std::filesystem::directory_iterator(directory.path()), {});
}

enum class Old { none, file, shards };
struct ShardedCrash : ::testing::TestWithParam<std::tuple<Old, Moment>> {
  const Old old = std::get<0>(GetParam());
  const Moment when = std::get<1>(GetParam());

  // What is there before.
  std::int64_t begin(const std::filesystem::path& path) const {
    if (old == Old::none) return 0;
    write_checkpoint(path, checkpoint_of(1), old == Old::shards ? kShards : CheckpointOptions());
    return 1;
  }
};

TEST_P(ShardedCrash, LeavesTheOldOrTheNewCheckpoint) {
  int calls = 0, unchanged = 0, renewed = 0;
  for (bool was_killed = true; was_killed; ++calls) {
    TemporaryDirectory directory;
    const std::filesystem::path path = directory / "checkpoint";
    const std::int64_t before = begin(path);
    was_killed = is_killed_at(calls, when, [&] { write_checkpoint(path, checkpoint_of(2), kShards); });
    const std::int64_t value = value_at(path);
    ASSERT_TRUE(value == before || value == 2) << calls;
    ++(value == 2 ? renewed : unchanged);
    require_writable(path);  // removes what was left behind, and nothing else
    EXPECT_EQ(value_at(path), value) << calls;
    EXPECT_EQ(files_in(directory), value == 2 || old == Old::shards ? 4 : value) << calls;
  }
  // For each of three shards a header, a tensor and fsync; fsync of the directory; the index and its fsync; rename;
  // fsync of the directory; unlink of three old shards and of their note. The last round is not killed.
  EXPECT_EQ(calls, old == Old::shards ? 19 : 15);
  EXPECT_GE(unchanged, 12);
  EXPECT_GE(renewed, old == Old::shards ? 6 : 2);
}

// A call that fails is an Error, behind which there is nothing but what was there before.
TEST_P(ShardedCrash, AFailingCallChangesNothing) {
  constexpr int kUpToRename = 13;
  for (int call = 0; call < kUpToRename; ++call) {
    TemporaryDirectory directory;
    const std::filesystem::path path = directory / "checkpoint";
    const std::int64_t before = begin(path);
    const std::ptrdiff_t files = files_in(directory);
    calls_until_failure = call;
    EXPECT_THROW(write_checkpoint(path, checkpoint_of(2), kShards), Error) << call;
    EXPECT_EQ(calls_until_failure, -1);
    EXPECT_EQ(value_at(path), before) << call;
    EXPECT_EQ(files_in(directory), files) << call;
  }
}

// The rename is done, then the directory cannot be synced: the next writer removes the old shards.
TEST_P(ShardedCrash, AFailingSyncBehindTheRenameLeavesTheNewCheckpoint) {
  constexpr int kSync = 13;
  TemporaryDirectory directory;
  const std::filesystem::path path = directory / "checkpoint";
  begin(path);
  calls_until_failure = kSync;
  EXPECT_THROW(write_checkpoint(path, checkpoint_of(2), kShards), Error);
  EXPECT_EQ(calls_until_failure, -1);
  EXPECT_EQ(value_at(path), 2);
  require_writable(path);
  EXPECT_EQ(value_at(path), 2);
  EXPECT_EQ(files_in(directory), 4);
}

TEST_P(ShardedCrash, AFailingCallOfARemovalLeavesNothingForEver) {
  for (int call = 0; call < 2 && old != Old::none; ++call) {  // unlink, and fsync of the directory
    TemporaryDirectory directory;
    const std::filesystem::path path = directory / "checkpoint";
    const std::int64_t before = begin(path);
    calls_until_failure = call;
    EXPECT_THROW(remove_checkpoint(path), Error);
    EXPECT_EQ(value_at(path), call == 0 ? before : 0);
    EXPECT_EQ(remove_checkpoint(path), call == 0);
    EXPECT_EQ(files_in(directory), 0) << call;
  }
}

// Only who can read the index knows which shards are in use.
TEST_P(ShardedCrash, AnIndexThatCannotBeReadForAMomentLosesNothing) {
  constexpr int kRename = 12;
  TemporaryDirectory directory;
  const std::filesystem::path path = directory / "checkpoint", aside = directory / "aside";
  const std::int64_t before = begin(path);
  EXPECT_TRUE(is_killed_at(kRename, Moment::before, [&] { write_checkpoint(path, checkpoint_of(2), kShards); }));
  if (old == Old::shards) {
    reads_fail = true;
    require_writable(path);
    reads_fail = false;
    EXPECT_EQ(value_at(path), before);
    std::filesystem::rename(path, aside);
    std::ofstream(path) << R"({"weight_map": {"a)";
    require_writable(path);
    std::filesystem::rename(aside, path);
    EXPECT_EQ(value_at(path), before);
  }
  require_writable(path);
  EXPECT_EQ(value_at(path), before);
  EXPECT_EQ(files_in(directory), old == Old::shards ? 4 : before);
}

struct LockedDirectory : ::testing::Test {
  TemporaryDirectory directory;
  const std::filesystem::path path = directory / "checkpoint";
  int lock = ::open(directory.path().c_str(), O_RDONLY | O_DIRECTORY);
  int sleeps = 0;

  LockedDirectory() {
    write_checkpoint(path, checkpoint_of(1), kShards);
    flock(lock, LOCK_EX);
  }
  ~LockedDirectory() override {
    on_sleep = nullptr;
    close(lock);
  }
};

TEST_F(LockedDirectory, IsAwaited) {
  on_sleep = [&] {
    if (++sleeps == 3) flock(lock, LOCK_UN);
  };
  write_checkpoint(path, checkpoint_of(2), kShards);
  EXPECT_EQ(sleeps, 3);
  EXPECT_EQ(value_at(path), 2);
}

TEST_F(LockedDirectory, IsNotAwaitedForEver) {
  on_sleep = [&] { ++sleeps; };
  const auto refusal_of = [&](const std::function<void()>& call) {
    try {
      call();
    } catch (const Error& e) {
      EXPECT_FALSE(e.remedy().empty());
      return e.problem();
    }
    return std::string("done");
  };
  const std::string why = "another process has locked the directory " + directory.path().string();
  EXPECT_EQ(refusal_of([&] { write_checkpoint(path, checkpoint_of(2), kShards); }), "cannot be written: " + why);
  EXPECT_GT(sleeps, 0);
  EXPECT_EQ(refusal_of([&] { remove_checkpoint(path); }), "cannot be removed: " + why);
  EXPECT_EQ(value_at(path), 1);
  EXPECT_EQ(files_in(directory), 4);
}

TEST_P(ShardedCrash, OfTheCleaningOfWhatAnotherLeftBehindLosesNothing) {
  for (int first : {5, 14}) {  // in the second shard, and behind the rename
    int calls = 0;
    for (bool was_killed = true; was_killed; ++calls) {
      TemporaryDirectory directory;
      const std::filesystem::path path = directory / "checkpoint";
      begin(path);
      is_killed_at(first, when, [&] { write_checkpoint(path, checkpoint_of(2), kShards); });
      const std::int64_t value = value_at(path);
      was_killed = is_killed_at(calls, when, [&] { require_writable(path); });
      EXPECT_EQ(value_at(path), value) << calls;
      require_writable(path);
      EXPECT_EQ(value_at(path), value) << calls;
      EXPECT_EQ(files_in(directory), value == 2 || old == Old::shards ? 4 : value) << calls;
    }
    EXPECT_GE(calls, 2);
  }
}

TEST_P(ShardedCrash, OfARemovalLeavesTheCheckpointOrNone) {
  int calls = 0;
  for (bool was_killed = true; was_killed; ++calls) {
    TemporaryDirectory directory;
    const std::filesystem::path path = directory / "checkpoint";
    const std::int64_t before = begin(path);
    was_killed = is_killed_at(calls, when, [&] { remove_checkpoint(path); });
    const std::int64_t value = value_at(path);
    ASSERT_TRUE(value == before || value == 0) << calls;
    EXPECT_EQ(remove_checkpoint(path), value != 0);
    EXPECT_EQ(files_in(directory), 0) << calls;
  }
  EXPECT_EQ(calls, old == Old::none ? 1 : old == Old::file ? 3 : 7);
}
std::string name_of(const testing::TestParamInfo<ShardedCrash::ParamType>& info) {
  const auto [old, when] = info.param;
  const std::string first = old == Old::none ? "First" : old == Old::file ? "OverAFile" : "OverShards";
  return first + (when == Moment::before ? "Before" : when == Moment::during ? "During" : "After");
}
INSTANTIATE_TEST_SUITE_P(, ShardedCrash,
                         testing::Combine(testing::Values(Old::none, Old::file, Old::shards),
                                          testing::Values(Moment::before, Moment::during, Moment::after)),
                         name_of);

}  // namespace
}  // namespace graphsink::checkpoint_crash_test
