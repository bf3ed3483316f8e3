// The cache of compiled kernels on disk: what is found again, and what is not trusted.
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <iterator>

#include "device/cuda/kernel_cache.h"
#include "fusion_fixture.h"

namespace graphsink::testing::cuda_kernel_cache_test {
namespace {

namespace files = std::filesystem;

std::string content_of(const files::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}
void write(const files::path& path, const std::string& bytes) { std::ofstream(path, std::ios::binary) << bytes; }

class KernelCacheTest : public ::testing::Test {
 protected:
  void SetUp() override { setenv("GRAPHSINK_KERNEL_CACHE", (folder_ / "kernels").c_str(), 1); }
  void TearDown() override { unsetenv("GRAPHSINK_KERNEL_CACHE"); }

  std::vector<files::path> stored() const {
    std::vector<files::path> paths;
    for (const auto& entry : files::directory_iterator(folder_ / "kernels")) paths.push_back(entry.path());
    return paths;
  }
  // Adds a kernel to the empty cache, and returns its file.
  files::path add_one() {
    KernelCache(Log()).add("key", "code");
    return stored().at(0);
  }
  static std::optional<std::string> found() { return KernelCache(Log()).find("key"); }

  TemporaryDirectory folder_;
};

TEST_F(KernelCacheTest, FindsWhatWasAdded) {
  EXPECT_FALSE(found());
  add_one();
  EXPECT_EQ(found(), "code");
  EXPECT_FALSE(KernelCache(Log()).find("another key"));
  EXPECT_EQ(stored().size(), 1u) << "no temporary file is left";
  std::string bytes(100000, '\0');
  KernelCache(Log()).add(bytes, bytes + "1");
  EXPECT_EQ(KernelCache(Log()).find(bytes), bytes + "1");
}

TEST_F(KernelCacheTest, AFileOfWhichAnyByteIsWrongIsNotFound) {
  const files::path file = add_one();
  const std::string good = content_of(file);
  for (std::size_t i = 0; i < good.size(); ++i) {
    std::string bad = good;
    bad[i] = static_cast<char>(bad[i] ^ 1);
    write(file, bad);
    EXPECT_FALSE(found()) << i;
  }
  for (std::size_t size = 0; size < good.size(); ++size) {
    write(file, good.substr(0, size));
    EXPECT_FALSE(found()) << size;
  }
  write(file, good + "x");
  EXPECT_FALSE(found());
  KernelCache(Log()).add("key", "code");
  EXPECT_EQ(found(), "code") << "a bad file is replaced";
}

// Its size fits its head, but no memory is taken for that.
TEST_F(KernelCacheTest, ASparseFileOfManyTerabytesIsNotFound) {
  const files::path file = add_one();
  const std::uint64_t code_bytes = std::uint64_t{1} << 42;
  std::string head = content_of(file).substr(0, 32);  // magic, sizes of the key and of the code, checksum
  std::memcpy(head.data() + 16, &code_bytes, sizeof code_bytes);
  write(file, head + "key");
  std::error_code code;
  files::resize_file(file, head.size() + 3 + code_bytes, code);
  if (code) GTEST_SKIP() << "no such file can be made here: " << code.message();
  EXPECT_FALSE(found());
}

TEST_F(KernelCacheTest, AFileThatOthersMayWriteIsNotTrusted) {
  const files::path file = add_one();
  for (mode_t mode : {0666, 0620, 0602}) {
    ::chmod(file.c_str(), mode);
    EXPECT_FALSE(found()) << mode;
  }
  ::chmod(file.c_str(), 0644);
  EXPECT_TRUE(found());
}

TEST_F(KernelCacheTest, AKeyWithTheHashOfAnotherIsToldApart) {
  const files::path file = add_one();
  KernelCache(Log()).add("other", "other code");
  for (const files::path& path : stored())
    if (path != file) files::copy_file(path, file, files::copy_options::overwrite_existing);
  EXPECT_FALSE(found());
}

TEST_F(KernelCacheTest, WhatIsNoFileIsNotFound) {
  const files::path file = add_one();
  files::remove(file);
  files::create_directory(file);
  EXPECT_FALSE(found());
  files::remove(file);
  ASSERT_EQ(::mkfifo(file.c_str(), 0600), 0);
  EXPECT_FALSE(found());
}

TEST_F(KernelCacheTest, AFolderThatCannotBeWrittenIsLoggedOnce) {
  write(folder_ / "kernels", "no folder");
  std::vector<std::string> messages;
  KernelCache cache(Log([&](LogLevel, std::string_view message) { messages.emplace_back(message); }));
  cache.add("key", "code");
  cache.add("key", "code");
  EXPECT_FALSE(cache.find("key"));
  ASSERT_EQ(messages.size(), 1u);
  EXPECT_NE(messages[0].find((folder_ / "kernels").string()), std::string::npos) << messages[0];
}

TEST_F(KernelCacheTest, AnEmptyNameTurnsItOff) {
  setenv("GRAPHSINK_KERNEL_CACHE", "", 1);
  KernelCache cache{Log()};
  cache.add("key", "code");
  EXPECT_FALSE(cache.find("key"));
}

TEST_F(KernelCacheTest, FollowsTheUsualVariables) {
  unsetenv("GRAPHSINK_KERNEL_CACHE");
  const char* home = std::getenv("HOME");
  const std::string before = home ? home : "";
  const char* cache = std::getenv("XDG_CACHE_HOME");
  const std::string cache_before = cache ? cache : "";
  setenv("XDG_CACHE_HOME", (folder_ / "xdg").c_str(), 1);
  KernelCache(Log()).add("key", "code");
  EXPECT_TRUE(files::is_directory(folder_ / "xdg" / "graphsink" / "kernels"));
  unsetenv("XDG_CACHE_HOME");
  setenv("HOME", (folder_ / "home").c_str(), 1);
  KernelCache(Log()).add("key", "code");
  EXPECT_TRUE(files::is_directory(folder_ / "home" / ".cache" / "graphsink" / "kernels"));
  home ? setenv("HOME", before.c_str(), 1) : unsetenv("HOME");
  if (cache) setenv("XDG_CACHE_HOME", cache_before.c_str(), 1);
}

// --- programs

class CachedFusion : public Fusion {
 protected:
  static Graph make() {
    Graph g;
    Value x = g.value(Variable("x", Tensor::uniform({1000}, 1)));
    g.output("z", tanh(x * 2.0 + 1.0));
    return g;
  }
  // Compiles and runs the program, and expects so many kernels to be compiled, and the others to be found.
  static void expect_compiled(std::uint64_t compiled) {
    const Graph g = make();
    Program program = compile(g, {.target = cuda(0)});
    program.run();
    program.sync();
    EXPECT_EQ(program.counters().compiled_kernels, compiled);
    EXPECT_EQ(program.counters().cached_kernels, 1 - compiled);
    Program separate = compile(g, {.target = cuda(0), .tuning = {.fuse = false}});
    separate.run();
    EXPECT_EQ(std::memcmp(program.output("z").data(), separate.output("z").data(), 4000), 0);
  }
  files::path only_file() const {
    const files::directory_iterator entries(folder_.path());
    EXPECT_EQ(std::distance(begin(entries), end(entries)), 1);
    return files::directory_iterator(folder_.path())->path();
  }
};

TEST_F(CachedFusion, TheNextProgramFindsTheKernel) {
  expect_compiled(1);
  expect_compiled(0);
}

TEST_F(CachedFusion, ABadFileIsReplaced) {
  expect_compiled(1);
  const files::path file = only_file();
  const std::string good = content_of(file);
  write(file, "garbage");
  expect_compiled(1);
  expect_compiled(0);
  write(file, good.substr(0, good.size() / 2));
  expect_compiled(1);
  expect_compiled(0);
}

// A file with another version in its key, as another version of graphsink or of the compiler would write it.
TEST_F(CachedFusion, AKernelOfAnotherVersionIsNotUsed) {
  expect_compiled(1);
  const files::path file = only_file();
  std::string other = content_of(file);
  const std::size_t at = other.find("NVRTC 13.");
  ASSERT_NE(at, std::string::npos);
  other[at + 6] = '2';
  write(file, other);
  expect_compiled(1);
}

// A complete file whose code the device does not take: it was made by another compiler, or for another device.
TEST_F(CachedFusion, CodeThatDoesNotLoadIsCompiledAgain) {
  expect_compiled(1);
  const std::string file = content_of(only_file());
  std::uint64_t key_bytes = 0;
  std::memcpy(&key_bytes, file.data() + 8, sizeof key_bytes);
  KernelCache(Log()).add(file.substr(32, key_bytes), "no code at all, but with a right checksum");
  expect_compiled(1);
  expect_compiled(0);
}

TEST_F(CachedFusion, AFolderThatCannotBeWrittenChangesNothing) {
  const std::string folder = folder_ / "file" / "kernels";
  write(folder_ / "file", "no folder");
  setenv("GRAPHSINK_KERNEL_CACHE", folder.c_str(), 1);
  expect_compiled(1);
  expect_compiled(1);
}

}  // namespace
}  // namespace graphsink::testing::cuda_kernel_cache_test
