// Where checkpoints are written: what is refused, links, and several writers of one path.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <system_error>
#include <thread>

#include "checkpoint/file_writer.h"
#include "graphsink/checkpoint.h"
#include "temporary_directory.h"

namespace graphsink::checkpoint_path_test {
namespace {

namespace fs = std::filesystem;

Checkpoint checkpoint_of(int value) {
  Checkpoint checkpoint;
  checkpoint.tensors.emplace("x", Tensor::full(f32, {1000}, value));
  checkpoint.metadata["step"] = std::to_string(value);
  return checkpoint;
}

std::ptrdiff_t files_in(const fs::path& directory) { return std::distance(fs::directory_iterator(directory), {}); }

std::string refusal_of(const fs::path& path) {
  std::string said;
  try {
    require_writable(path);
  } catch (const Error& e) {
    said = e.what();
  }
  try {
    write_checkpoint(path, checkpoint_of(1));
  } catch (const Error& e) {
    EXPECT_EQ(said.substr(said.find(": ")), std::string(e.what()).substr(std::string(e.what()).find(": ")));
    EXPECT_EQ(e.op(), path.string());
    return e.problem();
  }
  return "written";
}

// In the language of the environment.
std::string reason(int code) { return std::generic_category().message(code); }

TEST(CheckpointPath, OfWhatIsNoFileIsRefusedBeforeAnythingIsWritten) {
  TemporaryDirectory directory;
  fs::create_directory(directory / "taken");
  ASSERT_EQ(mkfifo((directory / "pipe").c_str(), 0600), 0);
  EXPECT_EQ(refusal_of(directory / "taken"), "cannot be written: it is a directory");
  EXPECT_EQ(refusal_of((directory / "taken").string() + "/"), "cannot be written: it is a directory");
  EXPECT_EQ(refusal_of(""), "cannot be written: it is a directory");
  EXPECT_EQ(refusal_of(directory / "pipe"), "cannot be written: it is a pipe");
  EXPECT_EQ(refusal_of("/dev/null"), "cannot be written: it is a device");
  EXPECT_EQ(refusal_of(directory / "missing" / "file"), "cannot be written: open: " + reason(ENOENT));
  EXPECT_EQ(files_in(directory.path()), 2);
  EXPECT_TRUE(fs::is_character_file("/dev/null"));
}

TEST(CheckpointPath, ThatCanBeWrittenIsLeftAsItIs) {
  TemporaryDirectory directory;
  require_writable(directory / "new");
  EXPECT_EQ(files_in(directory.path()), 0);
  write_checkpoint(directory / "old", checkpoint_of(1));
  require_writable(directory / "old");
  EXPECT_EQ(files_in(directory.path()), 1);
  EXPECT_EQ(read_checkpoint(directory / "old").number("step"), 1);
}

TEST(CheckpointPath, ALinkStaysALink) {
  TemporaryDirectory directory;
  fs::create_directory(directory / "store");
  fs::create_symlink("store/latest", directory / "first");
  fs::create_symlink(directory / "first", directory / "second");
  for (int value : {1, 2}) {  // the target is made, then replaced
    write_checkpoint(directory / "second", checkpoint_of(value));
    EXPECT_TRUE(fs::is_symlink(directory / "first"));
    EXPECT_TRUE(fs::is_symlink(directory / "second"));
    EXPECT_TRUE(fs::is_regular_file(fs::symlink_status(directory / "store" / "latest")));
    EXPECT_EQ(read_checkpoint(directory / "second").number("step"), value);
  }
  EXPECT_EQ(files_in(directory / "store"), 1);
  fs::create_symlink("around", directory / "around");
  EXPECT_NE(refusal_of(directory / "around").find(reason(ELOOP)), std::string::npos)
      << refusal_of(directory / "around");
}

// The name that the temporary file had in earlier versions, led elsewhere.
TEST(CheckpointPath, ALinkInTheWayOfTheTemporaryFileIsNotFollowed) {
  TemporaryDirectory directory;
  write_checkpoint(directory / "victim", checkpoint_of(1));
  fs::create_symlink(directory / "victim", directory / "file.partial");
  write_checkpoint(directory / "file", checkpoint_of(2));
  EXPECT_EQ(read_checkpoint(directory / "victim").number("step"), 1);
  EXPECT_TRUE(fs::is_regular_file(fs::symlink_status(directory / "file")));
}

mode_t mode_of(const fs::path& path) {
  struct stat status;
  EXPECT_EQ(stat(path.c_str(), &status), 0);
  return status.st_mode & 07777;
}

TEST(CheckpointPath, AFileThatIsReplacedKeepsItsPermissions) {
  TemporaryDirectory directory;
  const fs::path path = directory / "file";
  const mode_t umask_before = umask(022);
  write_checkpoint(path, checkpoint_of(1));
  EXPECT_EQ(mode_of(path), 0644u);
  for (mode_t mode : {0600u, 0640u, 0666u, 0444u}) {
    ASSERT_EQ(chmod(path.c_str(), mode), 0);
    write_checkpoint(path, checkpoint_of(2));
    EXPECT_EQ(mode_of(path), mode);
  }
  umask(umask_before);
}

// Nor may anybody read the new one while it is being written.
TEST(CheckpointPath, AFileThatIsReplacedKeepsItsPermissionsFromTheBeginning) {
  TemporaryDirectory directory;
  const fs::path path = directory / "file";
  write_checkpoint(path, checkpoint_of(1));
  ASSERT_EQ(chmod(path.c_str(), 0600), 0);
  FileWriter writer(path, {});
  EXPECT_EQ(files_in(directory.path()), 2);
  for (const auto& entry : fs::directory_iterator(directory.path())) EXPECT_EQ(mode_of(entry.path()), 0600u);
}

TEST(CheckpointPath, AFileThatIsReplacedKeepsItsOwnerWhereAllowed) {
  if (geteuid() != 0) GTEST_SKIP() << "only root may give a file to others";
  TemporaryDirectory directory;
  const fs::path path = directory / "file";
  write_checkpoint(path, checkpoint_of(1));
  if (chown(path.c_str(), 12, 34) != 0) GTEST_SKIP() << "there is no such user here";
  write_checkpoint(path, checkpoint_of(2));
  struct stat status;
  ASSERT_EQ(stat(path.c_str(), &status), 0);
  EXPECT_EQ(status.st_uid, 12u);
  EXPECT_EQ(status.st_gid, 34u);
}

TEST(CheckpointPath, MayHaveALongName) {
  TemporaryDirectory directory;
  const std::string umlauts = [] {
    std::string text = "x";
    while (text.size() < 251) text += "\xc3\xa4";
    return text;
  }();
  for (const std::string& name : {std::string(230, 'a'), std::string(231, 'b'), std::string(255, 'c'), umlauts}) {
    require_writable(directory / name);
    write_checkpoint(directory / name, checkpoint_of(1));
    EXPECT_EQ(read_checkpoint(directory / name).number("step"), 1);
  }
  EXPECT_EQ(files_in(directory.path()), 4);
  EXPECT_EQ(refusal_of(directory / std::string(256, 'd')), "cannot be written: open: " + reason(ENAMETOOLONG));
}

void die_while_writing(const fs::path& path) {
  const pid_t child = fork();
  if (child == 0) {
    FileWriter writer(path, {});
    writer.write("half", 4);
    raise(SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
}

TEST(CheckpointPath, WhatDeadWritersLeftBehindIsRemoved) {
  TemporaryDirectory directory;
  for (const std::string& name : {std::string("file"), std::string(255, 'c')}) {
    const auto files = files_in(directory.path());
    die_while_writing(directory / name);
    EXPECT_EQ(files_in(directory.path()), files + 1);
    die_while_writing(directory / name);  // which has removed that of the first
    EXPECT_EQ(files_in(directory.path()), files + 1);
    write_checkpoint(directory / name, checkpoint_of(1));
    EXPECT_EQ(files_in(directory.path()), files + 1);
    EXPECT_EQ(read_checkpoint(directory / name).number("step"), 1);
    die_while_writing(directory / name);
    require_writable(directory / name);
    EXPECT_EQ(files_in(directory.path()), files + 1);
  }
}

TEST(CheckpointPath, WhatOthersWriteIsLeftAlone) {
  TemporaryDirectory directory;
  const std::string digits = ".partial.0123456789abcdef";
  for (const char* name : {"file.partial", "file.partial.best", "file.partial.0123456789ABCDEF", "fil"})
    write_checkpoint(directory / name, checkpoint_of(1));
  write_checkpoint(directory / ("other" + digits), checkpoint_of(1));
  fs::create_directory(directory / ("file" + digits));
  fs::create_symlink(directory / "fil", directory / "file.partial.0000000000000000");
  const auto files = files_in(directory.path());
  FileWriter writer(directory / "file", {});
  writer.write("the last", 8);
  write_checkpoint(directory / "file", checkpoint_of(1));
  EXPECT_EQ(files_in(directory.path()), files + 2);
  writer.commit();  // its file is still there
  EXPECT_EQ(fs::file_size(directory / "file"), 8u);
}

// Every save of each succeeds, and what is there is always one of them, whole.
TEST(CheckpointPath, SeveralWritersOfOneFileDoNotDisturbEachOther) {
  constexpr int kSaves = 50;
  TemporaryDirectory directory;
  fs::path path = directory / "file";
  write_checkpoint(path, checkpoint_of(0));
  auto save = [&](int first) {
    for (int i = 0; i < kSaves; ++i) write_checkpoint(path, checkpoint_of(first + i));
  };
  pid_t child = fork();
  if (child == 0) {
    try {
      save(1000);
    } catch (const Error&) {
      _exit(1);
    }
    _exit(0);
  }
  std::thread other([&] { EXPECT_NO_THROW(save(2000)); });
  EXPECT_NO_THROW(save(3000));
  for (int i = 0; i < kSaves; ++i) {
    Checkpoint read = read_checkpoint(path);
    EXPECT_EQ(read.tensors.at("x").at(999), static_cast<double>(read.number("step")));
  }
  other.join();
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0) << "a save of the other process failed";
  EXPECT_EQ(files_in(directory.path()), 1);
}

}  // namespace
}  // namespace graphsink::checkpoint_path_test
