// Indexes of checkpoints in several files that are made to do harm, and shards that do not fit them: each is refused
// with an Error that names the file and the field. Together with tests/loader/fuzz_readers.cpp.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>
#include <vector>

#include "graphsink/checkpoint.h"
#include "temporary_directory.h"

namespace graphsink::hostile_index_test {
namespace {

namespace fs = std::filesystem;

void write_bytes(const fs::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}
std::string repeated(const std::string& text, int count) {
  std::string all;
  for (int i = 0; i < count; ++i) all += text;
  return all;
}

// A folder with the shards "first" of the tensors a and b, and "second" of c.
struct HostileIndex : ::testing::Test {
  TemporaryDirectory directory;
  const fs::path index = directory / "index";

  HostileIndex() {
    Checkpoint first, second;
    first.tensors.emplace("a", Tensor({1.0f}));
    first.tensors.emplace("b", Tensor({2.0f}));
    second.tensors.emplace("c", Tensor({3.0f}));
    write_checkpoint(directory / "first", first);
    write_checkpoint(directory / "second", second);
  }

  // Reads an index of this text, which an Error for `file` refuses.
  void expect_refused(const std::string& name, const std::string& text, const std::string& file,
                      const std::string& says) {
    SCOPED_TRACE(name);
    write_bytes(index, text);
    try {
      read_checkpoint(index);
      ADD_FAILURE() << "it was read";
    } catch (const Error& e) {
      EXPECT_EQ(e.op(), (directory / file).string()) << e.what();
      EXPECT_NE(e.problem().find(says), std::string::npos) << e.what();
      EXPECT_FALSE(e.remedy().empty());
      EXPECT_EQ(e.code(), ErrorCode::io);
      EXPECT_NE(std::string(e.where().file_name()).find("hostile_index_test.cpp"), std::string::npos);
      EXPECT_LT(std::string(e.what()).size(), 1000u);
    }
  }
};

constexpr const char* kGood = R"({"metadata":{"total_size":12},"weight_map":{"a":"first","b":"first","c":"second"}})";

std::string index_of(const std::string& map) { return "{\"weight_map\":{" + map + "}}"; }

TEST_F(HostileIndex, IsRefusedByField) {
  write_bytes(index, kGood);
  ASSERT_EQ(read_checkpoint(index).tensors.size(), 3u);
  const std::string map = R"("weight_map":{"a":"first","b":"first","c":"second"})";
  const std::string name = "name of a file in the folder of the index";
  const struct {
    const char* name;
    std::string text;
    std::string says;
  } rows[] = {
      {"not JSON", "{hello", "index: is not JSON"},
      {"nothing but a bracket", "{", "index: is not JSON"},
      {"two documents", std::string(kGood) + "{}", "index: is not JSON"},
      {"not UTF-8", "{\"weight_map\":{\"\xff\":\"first\"}}", "index: is not JSON"},
      {"a zero byte", std::string(kGood) + std::string(1, '\0'), "byte 82 is 0"},
      {"empty", "{}", "index: has no \"weight_map\""},
      {"no weight_map", R"({"metadata":{}})", "index: has no \"weight_map\""},
      {"another field", "{" + map + R"(,"x":{}})", "expected the fields metadata and weight_map, seen \"x\""},
      {"weight_map twice", "{" + map + "," + map + "}", "\"weight_map\" occurs twice"},
      {"metadata twice", R"({"metadata":{},"metadata":{},)" + map + "}", "\"metadata\" occurs twice"},
      {"weight_map null", R"({"weight_map":null})", "weight_map: expected an object, seen null"},
      {"weight_map list", R"({"weight_map":["first"]})", "weight_map: expected an object, seen a list"},
      {"weight_map text", R"({"weight_map":"first"})", "weight_map: expected an object, seen a string"},
      {"metadata number", R"({"metadata":3,)" + map + "}", "metadata: expected an object, seen 3"},
      {"metadata list", R"({"metadata":{"x":[]},)" + map + "}", "metadata \"x\": expected a string or a number"},
      {"metadata object", R"({"metadata":{"x":{}},)" + map + "}", "metadata \"x\": expected a string or a number"},
      {"metadata key twice", R"({"metadata":{"x":"","x":1},)" + map + "}", "\"x\" occurs twice"},
      {"deep", R"({"weight_map":{"a":)" + repeated("[", 100'000), "tensor \"a\": expected the name of a file"},
      {"a tensor twice", index_of(R"("a":"first","b":"first","c":"second","a":"first")"), "\"a\" occurs twice"},
      {"a tensor in two shards", index_of(R"("a":"first","b":"first","a":"second")"), "\"a\" occurs twice"},
      {"shard null", index_of(R"("a":null)"), "tensor \"a\": expected the name of a file, seen null"},
      {"shard number", index_of(R"("a":1)"), "tensor \"a\": expected the name of a file, seen 1"},
      {"shard object", index_of(R"("a":{})"), "tensor \"a\": expected the name of a file, seen an object"},
      {"shard without a name", index_of(R"("a":"")"), name},
      {"the folder", index_of(R"("a":".")"), name},
      {"the folder above", index_of(R"("a":"..")"), name},
      {"a file above", index_of(R"("a":"../first")"), name},
      {"a file below", index_of(R"("a":"x/first")"), name},
      {"an absolute path", index_of(R"("a":"/etc/passwd")"), name},
      {"a name too long for a file", index_of("\"a\":\"" + std::string(1'000'000, 'b') + "\""), name},
      {"a name that ends", index_of(R"("a":"first\u0000")"), name},
      {"a name that clears the screen", index_of("\"\\u001b[2J\":\"..\""), "\"\\x1b[2J\""},
      {"long names", index_of("\"" + std::string(1'000'000, 'A') + "\":1"), "AAA..."},
  };
  for (const auto& row : rows) expect_refused(row.name, row.text, "index", row.says);
  for (std::size_t size = 1; size < std::string(kGood).size(); ++size)
    expect_refused("cut at " + std::to_string(size), std::string(kGood).substr(0, size), "index", "");
}

TEST_F(HostileIndex, WithShardsThatDoNotFitIsRefused) {
  write_bytes(directory / "broken", std::string("\4\0\0\0\0\0\0\0null", 12));
  ASSERT_EQ(mkfifo((directory / "pipe").c_str(), 0600), 0);
  fs::create_directory(directory / "folder");
  const struct {
    const char* name;
    std::string map;
    const char* file;
    const char* says;
  } rows[] = {
      {"missing shard", R"("a":"first","b":"first","c":"third")", "third", "cannot be opened"},
      {"missing tensor", R"("a":"first","b":"first","c":"second","d":"second")", "second", "tensor \"d\" is missing"},
      {"left-over tensor", R"("a":"first","c":"second")", "first", "tensor \"b\": the index does not say"},
      {"in another shard", R"("a":"first","b":"second","c":"second")", "first", "tensor \"b\": the index does not say"},
      {"not a safetensors file", R"("a":"broken")", "broken", "not a JSON object"},
      {"the index itself", R"("a":"index")", "index", "header size"},
      {"a pipe", R"("a":"pipe")", "pipe", "is not a regular file"},
      {"a folder", R"("a":"folder")", "folder", "is not a regular file"},
  };
  for (const auto& row : rows) expect_refused(row.name, index_of(row.map), row.file, row.says);
}

// A sparse file takes no disk.
TEST_F(HostileIndex, ThatIsTooLargeIsRefusedUnread) {
  write_bytes(index, kGood);
  fs::resize_file(index, std::uintmax_t{100'000'001});
  try {
    read_checkpoint(index);
    FAIL() << "it was read";
  } catch (const Error& e) {
    EXPECT_EQ(e.problem(), "index: 100000001 bytes, expected at most 100000000");
  }
}

TEST_F(HostileIndex, IsReplacedAndItsShardsStay) {
  const std::string own = R"("b":"index.0123456789abcdef-00001-of-00002.safetensors")";
  for (const std::string& text :
       {std::string("{hello"), std::string(kGood), index_of(R"("a":"../first")"), index_of(own + R"(,"c":"second")")}) {
    write_bytes(index, text);
    EXPECT_THROW(remove_checkpoint(index), Error) << text;
    write_checkpoint(index, Checkpoint());
    EXPECT_TRUE(fs::exists(directory / "first"));
    EXPECT_TRUE(fs::exists(directory / "second"));
  }
  EXPECT_TRUE(remove_checkpoint(index));
}

}  // namespace
}  // namespace graphsink::hostile_index_test
