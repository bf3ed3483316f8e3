// Checkpoints in several files: what is written, what comes back, what is removed and what is not.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstring>
#include <fstream>
#include <iterator>
#include <regex>
#include <set>
#include <thread>

#include "checkpoint/file_writer.h"
#include "graphsink/checkpoint.h"
#include "temporary_directory.h"

namespace graphsink::sharded_checkpoint_test {
namespace {

namespace fs = std::filesystem;

std::string bytes_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}
void write_bytes(const fs::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

std::set<std::string> names_in(const fs::path& directory) {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(directory)) names.insert(entry.path().filename());
  return names;
}

bool same(const Checkpoint& a, const Checkpoint& b) {
  return a.metadata == b.metadata &&
         std::equal(
             a.tensors.begin(), a.tensors.end(), b.tensors.begin(), b.tensors.end(), [](const auto& x, const auto& y) {
               return x.first == y.first && x.second.type() == y.second.type() &&
                      (x.second.bytes() == 0 || std::memcmp(x.second.data(), y.second.data(), x.second.bytes()) == 0);
             });
}

// 40 bytes each for a and b, 80 for c, none for d, 3 for e.
Checkpoint checkpoint_of(int value) {
  Checkpoint checkpoint;
  checkpoint.tensors.emplace("a", Tensor::uniform({10}, static_cast<std::uint64_t>(value)));
  checkpoint.tensors.emplace("b", Tensor::full(i32, {10}, value));
  checkpoint.tensors.emplace("c", Tensor::full(f64, {10}, value));
  checkpoint.tensors.emplace("d", Tensor(f32, {0, 3}));
  checkpoint.tensors.emplace("e", Tensor({true, false, true}));
  checkpoint.metadata["step"] = std::to_string(value);
  checkpoint.metadata["model"] = "a \"small\" one";
  return checkpoint;
}

constexpr CheckpointOptions kThree{.most_bytes_per_file = 60};  // a, b, then c, which is larger, with d; e is alone
constexpr CheckpointOptions kFour{.most_bytes_per_file = 40};

struct ShardedCheckpoint : ::testing::Test {
  TemporaryDirectory directory;
  const fs::path path = directory / "model.index.json";

  std::size_t files() const { return names_in(directory.path()).size(); }
};

TEST_F(ShardedCheckpoint, ComesBackBitForBitFromAnyNumberOfFiles) {
  const Checkpoint written = checkpoint_of(3);
  for (const auto& [most_bytes, expected] :
       std::map<std::size_t, std::size_t>{{0, 1}, {163, 1}, {162, 3}, {120, 3}, {80, 4}, {60, 5}, {1, 5}}) {
    TemporaryDirectory folder;
    write_checkpoint(folder / "c", written, {.most_bytes_per_file = most_bytes});
    EXPECT_EQ(names_in(folder.path()).size(), expected) << most_bytes;
    const Checkpoint read = read_checkpoint(folder / "c");
    EXPECT_TRUE(same(read, written)) << most_bytes;
    EXPECT_EQ(read.source, (folder / "c").string());
  }
}

// By hand, from an index of Hugging Face.
TEST_F(ShardedCheckpoint, HasTheIndexOfTheFormat) {
  write_checkpoint(path, checkpoint_of(3), {.most_bytes_per_file = 80});
  const std::string text = bytes_of(path);
  std::smatch digits;
  ASSERT_TRUE(std::regex_search(text, digits, std::regex("json\\.([0-9a-f]{16})-00001")));
  const std::string prefix = "model.index.json." + digits[1].str() + "-0000";
  EXPECT_EQ(text, R"({
  "metadata": {
    "total_size": 163,
    "model": "a \"small\" one",
    "step": "3"
  },
  "weight_map": {
    "a": ")" + prefix +
                      R"(1-of-00003.safetensors",
    "b": ")" + prefix +
                      R"(1-of-00003.safetensors",
    "c": ")" + prefix +
                      R"(2-of-00003.safetensors",
    "d": ")" + prefix +
                      R"(2-of-00003.safetensors",
    "e": ")" + prefix +
                      R"(3-of-00003.safetensors"
  }
})");
  // Each shard is a safetensors file.
  const Checkpoint second = read_checkpoint(directory / (prefix + "2-of-00003.safetensors"));
  EXPECT_EQ(second.tensors.size(), 2u);
  EXPECT_EQ(second.tensors.at("c").at(9), 3);
  EXPECT_TRUE(second.metadata.empty());
}

TEST_F(ShardedCheckpoint, OfHuggingFaceIsRead) {
  Checkpoint first, second;
  first.tensors.emplace("model.embed.weight", Tensor({1.0f, 2.0f}));
  first.metadata["format"] = "pt";
  second.tensors.emplace("lm_head.weight", Tensor({3.0f}));
  second.metadata["format"] = "pt";
  write_checkpoint(directory / "model-00001-of-00002.safetensors", first);
  write_checkpoint(directory / "model-00002-of-00002.safetensors", second);
  write_bytes(path, R"({
  "metadata": {"total_parameters": 3, "total_size": 12.0, "tied": false},
  "weight_map": {
    "lm_head.weight": "model-00002-of-00002.safetensors",
    "model.embed.weight": "model-00001-of-00002.safetensors"
  }
})");
  const Checkpoint read = read_checkpoint(path);
  EXPECT_EQ(read.tensors.at("model.embed.weight").at(1), 2);
  EXPECT_EQ(read.tensors.at("lm_head.weight").at(0), 3);
  EXPECT_TRUE(read.metadata.empty());

  // In its cache, index and shards are links beside each other, to files elsewhere.
  fs::create_directory(directory / "blobs");
  fs::rename(path, directory / "blobs" / "1234");
  fs::create_symlink("blobs/1234", path);
  EXPECT_EQ(read_checkpoint(path).tensors.size(), 2u);

  // Its shards may be shared, so they stay.
  EXPECT_THROW(remove_checkpoint(path), Error);
  EXPECT_EQ(files(), 4u);
  write_checkpoint(path, checkpoint_of(1), kFour);
  EXPECT_TRUE(fs::exists(directory / "model-00001-of-00002.safetensors"));
  EXPECT_TRUE(same(read_checkpoint(path), checkpoint_of(1)));
}

TEST_F(ShardedCheckpoint, ThatIsReplacedLosesItsShards) {
  write_checkpoint(directory / "model.index.json.other", checkpoint_of(7), kFour);
  const std::set<std::string> others = names_in(directory.path());
  for (const CheckpointOptions& options : {kThree, kFour, CheckpointOptions(), kThree}) {
    write_checkpoint(path, checkpoint_of(2), options);
    TemporaryDirectory alone;
    write_checkpoint(alone / "model.index.json", checkpoint_of(2), options);
    EXPECT_EQ(files(), others.size() + names_in(alone.path()).size());
    EXPECT_TRUE(same(read_checkpoint(path), checkpoint_of(2)));
  }
  EXPECT_TRUE(remove_checkpoint(path));
  EXPECT_FALSE(remove_checkpoint(path));
  EXPECT_EQ(names_in(directory.path()), others);
  EXPECT_TRUE(same(read_checkpoint(directory / "model.index.json.other"), checkpoint_of(7)));
}

// A renamed index has the same shards, which belong to nobody but it.
TEST_F(ShardedCheckpoint, ThatWasRenamedKeepsItsShards) {
  write_checkpoint(path, checkpoint_of(1), kThree);
  fs::rename(path, directory / "best");
  write_checkpoint(path, checkpoint_of(2), kThree);
  write_checkpoint(path, checkpoint_of(3), kThree);
  EXPECT_TRUE(same(read_checkpoint(directory / "best"), checkpoint_of(1)));
  EXPECT_THROW(remove_checkpoint(directory / "best"), Error);
  EXPECT_TRUE(same(read_checkpoint(directory / "best"), checkpoint_of(1)));
}

TEST_F(ShardedCheckpoint, BehindALinkIsBesideTheFileThatTheLinkLeadsTo) {
  fs::create_directory(directory / "store");
  fs::create_symlink("store/latest", path);
  for (int value : {1, 2}) {
    write_checkpoint(path, checkpoint_of(value), kFour);
    EXPECT_TRUE(fs::is_symlink(path));
    EXPECT_TRUE(same(read_checkpoint(path), checkpoint_of(value)));
    EXPECT_TRUE(same(read_checkpoint(directory / "store" / "latest"), checkpoint_of(value)));
    EXPECT_EQ(names_in(directory / "store").size(), 5u);
  }
  EXPECT_TRUE(remove_checkpoint(path));
  EXPECT_TRUE(names_in(directory / "store").empty());
  EXPECT_TRUE(fs::is_symlink(path));
}

TEST_F(ShardedCheckpoint, ThatReplacesAnotherKeepsItsPermissions) {
  write_checkpoint(path, checkpoint_of(1));
  ASSERT_EQ(chmod(path.c_str(), 0640), 0);
  write_checkpoint(path, checkpoint_of(2), kFour);
  for (const auto& entry : fs::directory_iterator(directory.path())) {
    struct stat status;
    ASSERT_EQ(stat(entry.path().c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 07777, 0640u) << entry.path();
  }
}

TEST_F(ShardedCheckpoint, ThatCannotBeWrittenLeavesNothingBehind) {
  Checkpoint taken = checkpoint_of(1);
  taken.metadata["total_size"] = "large";
  EXPECT_THROW(write_checkpoint(path, taken, kFour), Error);
  write_checkpoint(directory / "file", taken);  // a single file has no such field
  fs::remove(directory / "file");
  EXPECT_THROW(write_checkpoint(directory / std::string(212, 'x'), checkpoint_of(1), kFour), Error);
  EXPECT_EQ(files(), 0u);
  write_checkpoint(directory / std::string(210, 'x'), checkpoint_of(1), kFour);
  EXPECT_TRUE(same(read_checkpoint(directory / std::string(210, 'x')), checkpoint_of(1)));
}

// The index, which is JSON, could not name the shards.
TEST_F(ShardedCheckpoint, NeedsAFileNameInUtf8) {
  const fs::path latin = directory / "mod\xe8le.ckpt";
  fs::create_symlink("mod\xe8le.ckpt", path);
  for (const fs::path& refused : {latin, path}) {
    try {
      write_checkpoint(refused, checkpoint_of(1), kFour);
      ADD_FAILURE() << "written";
    } catch (const Error& e) {
      EXPECT_NE(e.problem().find("is not UTF-8"), std::string::npos) << e.what();
      EXPECT_NE(e.remedy().find("one file"), std::string::npos) << e.what();
    }
    EXPECT_EQ(names_in(directory.path()), std::set<std::string>{"model.index.json"});
  }
  write_checkpoint(path, checkpoint_of(2));
  EXPECT_TRUE(same(read_checkpoint(latin), checkpoint_of(2)));
}

TEST_F(ShardedCheckpoint, IsNotReplacedByOneWhoseIndexWouldBeTooLarge) {
  write_checkpoint(path, checkpoint_of(1), kFour);
  const std::set<std::string> before = names_in(directory.path());
  Checkpoint large = checkpoint_of(2);
  large.metadata["text"] = std::string(100'000'000, 'x');
  EXPECT_THROW(write_checkpoint(path, large, kFour), Error);
  EXPECT_EQ(names_in(directory.path()), before);
  EXPECT_TRUE(same(read_checkpoint(path), checkpoint_of(1)));
}

TEST_F(ShardedCheckpoint, MayHaveMoreFilesThanAProcessMayOpen) {
  constexpr int kFiles = 60;
  Checkpoint written;
  for (int i = 0; i < kFiles; ++i) written.tensors.emplace(std::to_string(i), Tensor::full(f32, {2}, i));
  write_checkpoint(path, written, {.most_bytes_per_file = 8});
  ASSERT_EQ(files(), kFiles + 1u);
  const pid_t child = fork();
  if (child == 0) {
    const rlimit few{kFiles / 2, kFiles / 2};
    setrlimit(RLIMIT_NOFILE, &few);
    try {
      _exit(same(read_checkpoint(path), written) ? 0 : 1);
    } catch (const Error&) {
      _exit(2);
    }
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST_F(ShardedCheckpoint, OfALivingWriterIsLeftAlone) {
  FileWriter writer(path, {});
  const FileWriter::Bytes none;
  writer.write_shard(1, 1, {&none, 1});
  const auto before = files();
  write_checkpoint(path, checkpoint_of(1));
  remove_checkpoint(path);
  EXPECT_EQ(files(), before);
}

// Every save of each succeeds, and what is there is always one of them, whole, also while it is read.
TEST_F(ShardedCheckpoint, SeveralWritersOfOnePathDoNotDisturbEachOther) {
  constexpr int kSaves = 25;
  write_checkpoint(path, checkpoint_of(0), kFour);
  const auto save = [&](int first) {
    for (int i = 0; i < kSaves; ++i)
      write_checkpoint(path, checkpoint_of(first + i), i % 5 == 0 ? CheckpointOptions() : kFour);
  };
  const pid_t child = fork();
  if (child == 0) {
    try {
      save(1000);
    } catch (const Error&) {
      _exit(1);
    }
    _exit(0);
  }
  std::atomic<bool> is_done = false;
  std::thread reader([&] {
    while (!is_done) {
      EXPECT_NO_THROW({
        const Checkpoint read = read_checkpoint(path);
        EXPECT_TRUE(same(read, checkpoint_of(static_cast<int>(read.number("step")))));
      });
    }
  });
  std::thread other([&] { EXPECT_NO_THROW(save(2000)); });
  EXPECT_NO_THROW(save(3000));
  other.join();
  is_done = true;
  reader.join();
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0) << "a save of the other process failed";
  write_checkpoint(path, checkpoint_of(1), kFour);
  EXPECT_EQ(files(), 5u);
}

}  // namespace
}  // namespace graphsink::sharded_checkpoint_test
