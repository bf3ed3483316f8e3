// Files made to do harm: each is refused with an Error that names it. Together with tests/fuzz_readers.cpp.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>

#include "graphsink/loader.h"
#include "reader_samples.h"
#include "resident_bytes.h"

namespace graphsink::hostile_files_test {
namespace {

struct Hostile {
  std::string name;
  std::string bytes;
  std::string says;  // part of the message
};

// One tensor, with the text of its entry.
std::string one(const std::string& entry, const std::string& data = "abcdefgh") {
  return safetensors_file("{\"w\":" + entry + "}", data);
}
std::string with(const std::string& dtype, const std::string& shape, const std::string& offsets) {
  return one("{\"dtype\":" + dtype + ",\"shape\":" + shape + ",\"data_offsets\":" + offsets + "}");
}
std::string sized(std::uint64_t size) {
  std::string file = good_safetensors();
  for (std::size_t i = 0; i < 8; ++i) file[i] = static_cast<char>(size >> (8 * i) & 255);
  return file;
}
std::string repeated(const std::string& text, int count) {
  std::string all;
  for (int i = 0; i < count; ++i) all += text;
  return all;
}

void add_truncated(std::vector<Hostile>& files, const std::string& good) {
  for (std::size_t size = 0; size < good.size(); ++size)
    files.push_back({"cut at " + std::to_string(size), good.substr(0, size), ""});
}

std::vector<Hostile> hostile_safetensors() {
  const std::string entry = R"({"dtype":"F32","shape":[2],"data_offsets":[0,8]})";
  std::vector<Hostile> files = {
      {"one byte too many", good_safetensors() + "x", "12 bytes of data"},
      {"no data", safetensors_file("{}", "x"), "the tensors end at 0"},
      {"json array", safetensors_file("[]", ""), "not a JSON object"},
      {"json null", safetensors_file("null", ""), "not a JSON object"},
      {"json string", safetensors_file("\"w\"", ""), "not a JSON object"},
      {"not json", safetensors_file("hello", ""), "not JSON"},
      {"empty json", safetensors_file("", ""), "not JSON"},
      {"two documents", safetensors_file("{}{}", ""), "not JSON"},
      {"a comment", safetensors_file("{}/**/", ""), "not JSON"},
      {"not utf-8", safetensors_file("{\"\xff\":1}", ""), "not JSON"},
      {"a lone surrogate", safetensors_file("{\"\\ud800\":1}", ""), "not JSON"},
      {"zero bytes", safetensors_file(std::string(64, '\0'), ""), "not JSON"},
      {"a byte order mark", safetensors_file("\xef\xbb\xbf{}", ""), "not JSON"},
      {"padded with zero bytes", safetensors_file(std::string("{}\0\0\0\0\0\0", 8), ""), "not JSON"},
      {"a zero byte in a name", safetensors_file(std::string("{\"\0\":1}", 7), ""), "not JSON"},
      {"deep", safetensors_file(repeated("[", 100000), ""), "not a JSON object"},
      {"deep objects", safetensors_file(repeated("{\"a\":", 100000), ""), "fields"},
      {"deep and closed", safetensors_file("{\"w\":" + repeated("[", 50000) + repeated("]", 50000) + "}", ""),
       "fields"},
      {"a name twice", safetensors_file("{\"w\":" + entry + ",\"w\":" + entry + "}", "abcdefgh"), "occurs twice"},
      {"a field twice", one(R"({"dtype":"F32","dtype":"F32","shape":[2],"data_offsets":[0,8]})"), "occurs twice"},
      {"metadata twice", safetensors_file(R"({"__metadata__":{},"__metadata__":{}})", ""), "occurs twice"},
      {"metadata key twice", safetensors_file(R"({"__metadata__":{"a":"b","a":"c"}})", ""), "occurs twice"},
      {"metadata false", safetensors_file(R"({"__metadata__":false})", ""), "__metadata__"},
      {"metadata null twice", safetensors_file(R"({"__metadata__":null,"__metadata__":null})", ""), "occurs twice"},
      {"metadata text", safetensors_file(R"({"__metadata__":"step"})", ""), "__metadata__"},
      {"metadata of a null", safetensors_file(R"({"__metadata__":{"step":null}})", ""), "is not a string"},
      {"metadata array", safetensors_file(R"({"__metadata__":[]})", ""), "__metadata__"},
      {"metadata number", safetensors_file(R"({"__metadata__":{"step":3}})", ""), "is not a string"},
      {"metadata object", safetensors_file(R"({"__metadata__":{"step":{}}})", ""), "is not a string"},
      {"entry null", one("null"), "fields"},
      {"entry number", one("1"), "fields"},
      {"entry array", one("[1,2,3]"), "fields"},
      {"entry empty", one("{}"), "fields"},
      {"no dtype", one(R"({"shape":[2],"data_offsets":[0,8]})"), "fields"},
      {"no shape", one(R"({"dtype":"F32","data_offsets":[0,8]})"), "fields"},
      {"no offsets", one(R"({"dtype":"F32","shape":[2]})"), "fields"},
      {"a fourth field", one(R"({"dtype":"F32","shape":[2],"data_offsets":[0,8],"x":1})"), "fields"},
      {"another field", one(R"({"dtype":"F32","shape":[2],"offsets":[0,8]})"), "fields"},
  };
  for (const char* dtype : {"null", "1", "\"\"", "\"f32\"", "\"F33\"", "\"F32 \"", "\"FLOAT\"", "[]", "{}", "true"})
    files.push_back({std::string("dtype ") + dtype, with(dtype, "[2]", "[0,8]"), "dtype: expected one of"});
  for (const char* shape :
       {"null", "2", "\"2\"", "{}", "[-2]", "[2.0]", "[\"2\"]", "[[2]]", "[null]", "[1e3]", "[true]",
        "[1,1,1,1,1,1,1,1,2]", "[18446744073709551615]", "[18446744073709551616]", "[9223372036854775808]",
        "[4294967296,4294967296]", "[2147483648,2147483648,4]", "[1152921504606846976]", "[0,18446744073709551615]"})
    files.push_back({std::string("shape ") + shape, with("\"F32\"", shape, "[0,8]"), "shape: "});
  for (const char* shape : {"[]", "[1]", "[3]", "[0]", "[2,0]", "[2,2]", "[9007199254740991]"})
    files.push_back({std::string("shape of other bytes ") + shape, with("\"F32\"", shape, "[0,8]"), "bytes for f32"});
  for (const char* offsets :
       {"null", "8", "{}", "[]", "[0]", "[0,4,8]", "[\"0\",\"8\"]", "[0.0,8]", "[-8,0]", "[0,-8]", "[null,8]",
        "[0,18446744073709551616]", "[8,0]", "[0,9]", "[1,9]", "[8,16]", "[0,18446744073709551615]",
        "[18446744073709551608,18446744073709551615]", "[18446744073709551608,0]"})
    files.push_back({std::string("offsets ") + offsets, with("\"F32\"", "[2]", offsets), "data_offsets"});
  auto two = [&](const char* a, const char* b) {
    std::string json = R"({"a":{"dtype":"BOOL","shape":[4],"data_offsets":)" + std::string(a) +
                       R"(},"b":{"dtype":"BOOL","shape":[4],"data_offsets":)" + b + "}}";
    return safetensors_file(json, std::string(8, '\1'));
  };
  files.push_back({"overlap", two("[0,4]", "[2,6]"), "begins at 2"});
  files.push_back({"the same bytes", two("[0,4]", "[0,4]"), "begins at 0"});
  files.push_back({"overlap at the end", two("[4,8]", "[3,7]"), "begins at 3"});
  files.push_back({"a hole at the beginning", two("[4,8]", "[4,8]"), "begins at 4"});
  files.push_back({"a boolean of 2", with("\"BOOL\"", "[8]", "[0,8]"), "neither 0 nor 1"});
  for (std::uint64_t size : {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{1} << 20, std::uint64_t{100'000'001},
                             std::uint64_t{1} << 32, std::uint64_t{1} << 63, ~std::uint64_t{0}, ~std::uint64_t{7}})
    files.push_back({"header of " + std::to_string(size), sized(size), ""});
  for (const std::string& nested :
       {repeated("[", 100000) + repeated("]", 100000), repeated("{\"a\":", 100000) + "1" + repeated("}", 100000)}) {
    files.push_back({"nested dtype", with(nested, "[2]", "[0,8]"), "dtype: expected one of"});
    files.push_back({"nested shape", with("\"F32\"", nested, "[0,8]"), "shape: "});
    files.push_back({"nested size", with("\"F32\"", "[" + nested + "]", "[0,8]"), "shape: "});
    files.push_back({"nested offsets", with("\"F32\"", "[2]", nested), "data_offsets"});
    files.push_back({"nested offset", with("\"F32\"", "[2]", "[0," + nested + "]"), "data_offsets"});
    files.push_back({"nested metadata", safetensors_file("{\"__metadata__\":{\"a\":" + nested + "}}", ""), "string"});
  }
  const std::string name(5'000'000, 'A');
  files.push_back({"long name", safetensors_file("{\"" + name + "\":" + entry + "}", ""), "AAA..."});
  files.push_back({"long name, cut", safetensors_file("{\"" + name, ""), "not JSON"});
  files.push_back({"long dtype", with("\"" + name + "\"", "[2]", "[0,8]"), "dtype: expected one of"});
  files.push_back({"long size", with("\"F32\"", "[" + std::string(1'000'000, '9') + "]", "[0,8]"), "number overflow"});
  files.push_back({"long metadata", safetensors_file("{\"__metadata__\":{\"" + name + "\":1}}", ""), "string"});
  files.push_back(
      {"a name that clears the screen", safetensors_file(R"({"\u001b[2J\u000a":1})", ""), "\"\\x1b[2J\\n\""});
  files.push_back({"half a byte", with("\"F4\"", "[3]", "[0,1]"), "12 bits for F4[3]"});
  files.push_back({"other bytes of another dtype", with("\"I16\"", "[2]", "[0,8]"), "4 bytes for I16[2]"});
  add_truncated(files, good_safetensors());
  return files;
}

std::vector<Hostile> hostile_idx() {
  std::vector<Hostile> files = {{"one byte too many", good_idx() + "x", "too long"},
                                {"text", "To be, or not to be", ""}};
  for (int type = 0; type < 256; type += 5)
    if (type != 8) files.push_back({"type " + std::to_string(type), idx_file({2, 3}, "abcdef", type), "element type"});
  for (int rank : {0, 9, 16, 127, 128, 255}) {
    std::string file = good_idx();
    file[3] = static_cast<char>(rank);
    files.push_back({"rank " + std::to_string(rank), file, "dimensions"});
  }
  for (std::size_t byte : {0u, 1u})
    for (char value : {'\1', '\x1f', '\x7f', '\xff'}) {
      std::string file = good_idx();
      file[byte] = value;
      files.push_back({"magic byte " + std::to_string(byte) + " is " + std::to_string(int{value}), file, ""});
    }
  using Sizes = std::vector<std::uint32_t>;
  for (const Sizes& sizes :
       {Sizes{0}, Sizes{0, 3}, Sizes{3, 0}, Sizes{7}, Sizes{1, 7}, Sizes{0xffffffff}, Sizes{0x80000000},
        Sizes{0x7fffffff, 2}, Sizes{0xffffffff, 0xffffffff}, Sizes{0x80000000, 0x80000000, 4}, Sizes{65536, 65536},
        Sizes{0xffffffff, 0xffffffff, 0xffffffff}, Sizes{1, 1, 1, 1, 1, 1, 1, 7}, Sizes(8, 0xffffffff), Sizes(8, 256),
        Sizes{0, 0xffffffff, 0xffffffff, 0xffffffff}, Sizes(8, 0x01000000)})
    files.push_back({"sizes for 6 elements " + std::to_string(files.size()), idx_file(sizes, "abcdef"), ""});
  for (std::size_t byte = 4; byte < 12; ++byte)
    for (unsigned bit = 0; bit < 8; bit += 3) {
      std::string file = good_idx();
      file[byte] = static_cast<char>(file[byte] ^ (1u << bit));
      files.push_back({"bit " + std::to_string(bit) + " of byte " + std::to_string(byte), file, ""});
    }
  add_truncated(files, good_idx());
  return files;
}

// Each file is another one, and each is refused by name.
template <class Read>
void expect_all_refused(const std::vector<Hostile>& files, const Read& read) {
  TemporaryDirectory directory;
  std::filesystem::path path = directory / "hostile";
  std::vector<std::string> all;
  for (const Hostile& file : files) {
    write_file(path, file.bytes);
    all.push_back(file.bytes);
    try {
      read(path);
      ADD_FAILURE() << file.name << " was read";
    } catch (const Error& e) {
      EXPECT_EQ(e.op(), path.string()) << file.name;
      EXPECT_NE(e.problem().find(file.says), std::string::npos) << file.name << ": " << e.what();
      EXPECT_FALSE(e.remedy().empty()) << file.name;
      EXPECT_EQ(e.code(), ErrorCode::io) << file.name;
      EXPECT_LT(std::string(e.what()).size(), 1000u) << file.name;
    }
  }
  std::sort(all.begin(), all.end());
  EXPECT_EQ(std::adjacent_find(all.begin(), all.end()), all.end()) << "a file occurs twice";
  EXPECT_GE(files.size(), 100u);
}

TEST(HostileFiles, CheckpointsAreRefused) {
  TemporaryDirectory directory;
  write_file(directory / "good", good_safetensors());
  EXPECT_EQ(read_checkpoint(directory / "good").tensors.size(), 2u);
  expect_all_refused(hostile_safetensors(), [](const auto& path) { read_checkpoint(path); });
}

// What a child process takes beyond the file to refuse it.
std::size_t memory_of_refusal(const std::filesystem::path& path) {
  const auto peak_kib = [] {
    rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_maxrss;
  };
  int ends[2];
  EXPECT_EQ(pipe(ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    const long before = peak_kib();
    long used = -1;
    try {
      read_checkpoint(path);
    } catch (const Error&) {
      used = peak_kib() - before;
    }
    _exit(write(ends[1], &used, sizeof used) == sizeof used ? 0 : 1);
  }
  long used = -1;
  EXPECT_EQ(read(ends[0], &used, sizeof used), static_cast<ssize_t>(sizeof used));
  EXPECT_GE(used, 0) << "it was not refused";
  close(ends[0]);
  close(ends[1]);
  EXPECT_EQ(waitpid(child, nullptr, 0), child);
  return static_cast<std::size_t>(used) * 1024;
}

TEST(HostileFiles, RefusalTakesTheMemoryOfTheHeader) {
  if (testing::kSanitized) GTEST_SKIP() << "the sanitizer's own memory would be counted, too";
  constexpr int kMany = 20'000'000;
  TemporaryDirectory directory;
  const std::filesystem::path path = directory / "hostile";
  for (const std::string& json : {std::string(kMany, '['), "{\"__metadata__\":[" + repeated("0,", kMany / 2) + "0]}",
                                  "{\"w\":{\"shape\":[" + repeated("1,", kMany / 2) + "1]}}"}) {
    write_file(path, safetensors_file(json, ""));
    EXPECT_LT(memory_of_refusal(path), json.size() + 50'000'000) << json.substr(0, 20);
  }
}

// In quadratic time this would take many minutes.
TEST(HostileFiles, ManyTensorsAreReadAndWrittenInGoodTime) {
  constexpr int kMany = 300'000;
  std::string json;
  for (int i = 0; i < kMany; ++i) {
    json += (json.empty() ? "{" : ",") + ("\"layer." + std::to_string(i)) +
            R"(":{"dtype":"U8","shape":[1],"data_offsets":[)" + std::to_string(i) + "," + std::to_string(i + 1) + "]}";
  }
  TemporaryDirectory directory;
  write_file(directory / "many", safetensors_file(json + "}", std::string(kMany, '\7')));
  const Checkpoint checkpoint = read_checkpoint(directory / "many");
  EXPECT_EQ(checkpoint.tensors.size(), std::size_t{kMany});
  write_checkpoint(directory / "again", checkpoint);
  EXPECT_EQ(read_checkpoint(directory / "again").tensors.at("layer.299999").at(0), 7);
}

TEST(HostileFiles, IdxFilesAreRefused) {
  TemporaryDirectory directory;
  write_file(directory / "good", good_idx());
  EXPECT_EQ(read_idx(directory / "good").bytes.size(), 6u);
  expect_all_refused(hostile_idx(), [](const auto& path) { read_idx(path); });
}

}  // namespace
}  // namespace graphsink::hostile_files_test
