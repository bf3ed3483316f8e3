// Sources of training samples: what they read, in any thread, and what they refuse.
#include "graphsink/source.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <fstream>
#include <numeric>
#include <thread>

#include "graphsink/loader.h"
#include "reader_samples.h"
#include "resident_bytes.h"
#include "samples/models/source_dir.h"

namespace graphsink::source_test {
namespace {

namespace fs = std::filesystem;
using namespace std::string_literals;

// A sample's fields, each in memory of its own that begins at an odd address.
std::vector<std::string> sample(const Source& source, std::int64_t index) {
  std::vector<std::string> memory;
  std::vector<std::span<std::byte>> to;
  for (const Field& field : source.fields()) memory.emplace_back(field.type.bytes() + 1, '\xee');
  for (std::string& field : memory) to.push_back(std::as_writable_bytes(std::span(field)).subspan(1));
  source.read(index, to);
  for (std::string& field : memory) field.erase(0, 1);
  return memory;
}

template <class T>
std::vector<T> numbers(const std::string& bytes) {
  std::vector<T> values(bytes.size() / sizeof(T));
  std::memcpy(values.data(), bytes.data(), values.size() * sizeof(T));
  return values;
}
using Ints = std::vector<std::int32_t>;
using Floats = std::vector<float>;

template <class Call>
std::string message_of(Call call, ErrorCode code = ErrorCode::io) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_FALSE(error.remedy().empty()) << error.what();
    EXPECT_EQ(error.code(), code) << error.what();
    EXPECT_NE(std::string(error.what()).find("source_test.cpp:"), std::string::npos) << error.what();
    return error.what();
  }
  return "no Error";
}
void expect_words(const std::string& message, const std::vector<std::string>& words) {
  for (const std::string& word : words) EXPECT_NE(message.find(word), std::string::npos) << word << " in: " << message;
}

class SourceTest : public ::testing::Test {
 protected:
  fs::path write(const std::string& name, const std::string& bytes) const {
    write_file(directory_ / name, bytes);
    return directory_ / name;
  }
  TemporaryDirectory directory_;
};

std::string gzip(const fs::path& path, const std::string& bytes) {
  gzFile file = gzopen(path.c_str(), "wb");
  EXPECT_EQ(gzwrite(file, bytes.data(), static_cast<unsigned>(bytes.size())), static_cast<int>(bytes.size()));
  EXPECT_EQ(gzclose(file), Z_OK);
  return path.string();
}

// --- in memory

TEST_F(SourceTest, TensorsGiveTheirRows) {
  const auto source = tensor_source({{"x", Tensor({3, 2}, std::vector<float>{0, 1, 2, 3, 4, 5})},
                                     {"y", Tensor({3}, std::vector<std::int32_t>{7, 8, 9})}});
  EXPECT_EQ(source->size(), 3);
  EXPECT_EQ(source->fields(), (std::vector<Field>{{"x", {f32, {2}}}, {"y", {i32, {}}}}));
  EXPECT_EQ(numbers<float>(sample(*source, 1)[0]), (Floats{2, 3}));
  EXPECT_EQ(numbers<std::int32_t>(sample(*source, 2)[1]), Ints{9});
}

TEST_F(SourceTest, TensorsThatAreNoSetOfSamplesAreRefused) {
  auto refusal = [&](std::vector<std::pair<std::string, Tensor>> tensors) {
    return message_of([&] { tensor_source(std::move(tensors)); }, ErrorCode::misuse);
  };
  const Tensor two(f32, {2, 1}), three(f32, {3});
  expect_words(refusal({{"x", two}, {"y", three}}), {"\"y\"", "expected 2 rows as in \"x\"", "seen [3]"});
  expect_words(refusal({{"x", Tensor::scalar(1.0f)}}), {"\"x\"", "seen a scalar"});
  expect_words(refusal({{"x", two}, {"x", two}}), {"two fields have the name \"x\""});
  expect_words(refusal({{"", two}}), {"field 0 has no name"});
  expect_words(refusal({{"x", Tensor(f32, {0, 4})}}), {"at least 1 sample, seen 0"});
  expect_words(refusal({}), {"at least 1 field, seen none"});
  expect_words(refusal({{"x", Tensor()}}), {"tensor_source"});
}

TEST_F(SourceTest, SamplesMayBeTheirNumbers) {
  const auto source = index_source(std::int64_t{1} << 31);
  EXPECT_EQ(source->size(), std::int64_t{1} << 31);
  EXPECT_EQ(source->fields(), (std::vector<Field>{{"index", {i32, {}}}}));
  for (std::int64_t index : {std::int64_t{0}, std::int64_t{77}, (std::int64_t{1} << 31) - 1})
    EXPECT_EQ(numbers<std::int32_t>(sample(*source, index)[0]), Ints{static_cast<std::int32_t>(index)});
  auto refusal = [](std::int64_t size) { return message_of([&] { index_source(size); }, ErrorCode::misuse); };
  expect_words(refusal(0), {"at least 1 sample, seen 0"});
  expect_words(refusal((std::int64_t{1} << 31) + 1), {"index_source", "at most 2147483648 samples, seen 2147483649"});
}

TEST_F(SourceTest, AFunctionMakesSamples) {
  const auto source = function_source(5, {{"square", {i32, {}}}}, [](std::int64_t index, SampleMemory to) {
    const auto square = static_cast<std::int32_t>(index * index);
    std::memcpy(to[0].data(), &square, sizeof square);
  });
  EXPECT_EQ(numbers<std::int32_t>(sample(*source, 4)[0]), Ints{16});
  auto refusal = [](auto call) { return message_of(call, ErrorCode::misuse); };
  expect_words(refusal([] { function_source(5, {{"x", {i32, {}}}}, {}); }), {"the function is empty"});
  auto nothing = [](std::int64_t, SampleMemory) {};
  expect_words(refusal([&] { function_source(0, {{"x", {i32, {}}}}, nothing); }), {"at least 1 sample, seen 0"});
  expect_words(refusal([&] { function_source(1, {}, nothing); }), {"at least 1 field"});
  Shape open{3, 2};
  open.mark_open(0);
  expect_words(refusal([&] { function_source(1, {{"x", {i32, open}}}, nothing); }), {"open dimension", "[open(3), 2]"});
}

TEST_F(SourceTest, WrongMemoryAndIndicesAreRefused) {
  const auto source = tensor_source({{"x", Tensor(f32, {3, 2})}, {"y", Tensor(i32, {3})}});
  std::array<std::byte, 8> x{};
  std::array<std::byte, 4> y{};
  auto refusal = [&](std::int64_t index, std::vector<std::span<std::byte>> to) {
    return message_of([&] { source->read(index, to); }, ErrorCode::misuse);
  };
  EXPECT_EQ(refusal(0, {x, y}), "no Error");
  expect_words(refusal(-1, {x, y}), {"from 0 to 3 (exclusive), seen -1"});
  expect_words(refusal(3, {x, y}), {"seen 3"});
  expect_words(refusal(0, {x}), {"memory for 2 fields, seen 1"});
  expect_words(refusal(0, {x, y, y}), {"seen 3"});
  expect_words(refusal(0, {y, y}), {"\"x\"", "expected 8 bytes for f32[2], seen 4"});
  expect_words(refusal(0, {x, x}), {"\"y\"", "expected 4 bytes for i32[], seen 8"});
}

// --- IDX

TEST_F(SourceTest, IdxPairsGiveImagesAndLabels) {
  const std::string images = idx_file({2, 1, 3}, "\x00\x33\xff\xff\x00\x01"s), labels = idx_file({2}, "\x09\x02");
  const fs::path plain = write("images", images), names = write("labels", labels);
  for (const fs::path& path : {plain, fs::path(gzip(directory_ / "images.gz", images))}) {
    SCOPED_TRACE(path);
    const auto source = idx_source(path, names);
    EXPECT_EQ(source->size(), 2);
    EXPECT_EQ(source->fields(), (std::vector<Field>{{"image", {f32, {3}}}, {"label", {i32, {}}}}));
    EXPECT_EQ(numbers<float>(sample(*source, 0)[0]), (Floats{0, 0x33 / 255.0f, 1}));
    EXPECT_EQ(numbers<float>(sample(*source, 1)[0]), (Floats{1, 0, 1 / 255.0f}));
    EXPECT_EQ(numbers<std::int32_t>(sample(*source, 0)[1]), Ints{9});
    const auto bytes =
        idx_source(path, names, {.is_scaled = false, .is_flat = false, .classes = 10, .image = "x", .label = "y"});
    EXPECT_EQ(bytes->fields(), (std::vector<Field>{{"x", {u8, {1, 3}}}, {"y", {i32, {}}}}));
    EXPECT_EQ(sample(*bytes, 1)[0], "\xff\x00\x01"s);
  }
}

// More pixels than are converted at once.
TEST_F(SourceTest, LargeImagesAreScaledInPieces) {
  std::string pixels;
  for (int i = 0; i < 2 * 10007; ++i) pixels += static_cast<char>(i * 7 % 251);
  const auto source = idx_source(write("images", idx_file({2, 10007}, pixels)), write("labels", idx_file({2}, "\1\2")));
  const Floats image = numbers<float>(sample(*source, 1)[0]);
  ASSERT_EQ(image.size(), 10007u);
  for (std::size_t i = 0; i < image.size(); ++i) {
    ASSERT_EQ(image[i], static_cast<float>(static_cast<unsigned char>(pixels[10007 + i])) / 255.0f) << i;
  }
}

TEST_F(SourceTest, IdxFilesThatDoNotFitTogetherAreRefused) {
  const fs::path images = write("images", idx_file({2, 1, 1}, "ab"));
  auto refusal = [&](const fs::path& first, const fs::path& second, IdxSourceOptions options = {}) {
    return message_of([&] { idx_source(first, second, options); });
  };
  expect_words(refusal(images, write("three", idx_file({3}, "\1\2\3"))), {"three", "expected 2 labels", "seen 3"});
  const fs::path labels = write("labels", idx_file({2}, "\1\x0a"));
  expect_words(refusal(images, labels), {"labels", "expected labels 0 to 9, seen 10 at 1"});
  EXPECT_EQ(idx_source(images, labels, {.classes = 11})->size(), 2);
  expect_words(message_of([&] { idx_source(images, labels, {.classes = 257}); }, ErrorCode::misuse), {"seen 257"});
  expect_words(message_of([&] { idx_source(images, labels, {.classes = 0}); }, ErrorCode::misuse), {"seen 0"});
  expect_words(refusal(labels, labels), {"expected images [n, ...], seen [2]"});
  expect_words(refusal(images, images), {"expected labels [n], seen [2, 1, 1]"});
  expect_words(refusal(images, directory_ / "absent"), {"absent", "cannot open"});
  expect_words(refusal(directory_ / "absent", labels), {"absent", "cannot open"});
  expect_words(refusal(directory_.path(), labels), {"not a regular file"});
  const fs::path pipe = directory_ / "pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  expect_words(refusal(pipe, labels), {"pipe", "not a regular file"});
}

TEST_F(SourceTest, TheTestDigitsOfMnistAreThoseOfReadDigits) {
  const char* set = std::getenv("GRAPHSINK_DATA");
  const fs::path data = set ? fs::path(set) : fs::path(source_dir()) / "../shared/data";
  if (!fs::exists(data / "t10k-images-idx3-ubyte.gz")) GTEST_SKIP() << "no MNIST in $GRAPHSINK_DATA or ../shared/data";
  const auto source = idx_source(data / "t10k-images-idx3-ubyte.gz", data / "t10k-labels-idx1-ubyte.gz");
  const Digits digits = read_digits(data);
  ASSERT_EQ(source->size(), 10000);
  for (std::int64_t i : {0, 77, 9999}) {
    const auto image = digits.images.as<float>().subspan(static_cast<std::size_t>(i) * 784, 784);
    EXPECT_EQ(numbers<float>(sample(*source, i)[0]), Floats(image.begin(), image.end()));
    EXPECT_EQ(numbers<std::int32_t>(sample(*source, i)[1])[0], digits.labels.at(i));
  }
}

// --- tokens

std::string tokens_of(int bytes, std::int64_t count) {
  std::string text;
  for (std::int64_t i = 0; i < count; ++i) text += little(static_cast<std::uint64_t>(i * 3 % 1000), bytes);
  return text;
}

TEST_F(SourceTest, WindowsOfTokensAndTheSameShiftedByOne) {
  std::string header_u32 = little(20240801, 4) + little(7, 4) + little(11, 4);
  header_u32.resize(1024);
  std::string header_u16 = little(20240520, 4) + little(1, 4) + little(11, 4);
  header_u16.resize(1024);
  struct Row {
    std::string name, bytes;
    std::optional<TokenType> type;
  };
  for (const Row& row :
       {Row{"nanogpt", tokens_of(2, 11), {}}, Row{"named", tokens_of(2, 11), TokenType::uint16},
        Row{"u32", tokens_of(4, 11), TokenType::uint32}, Row{"megatron", tokens_of(4, 11), TokenType::int32},
        Row{"llm.c", header_u16 + tokens_of(2, 11), {}}, Row{"llama", header_u32 + tokens_of(4, 11), {}},
        Row{"both", header_u32 + tokens_of(4, 11), TokenType::uint32}}) {
    SCOPED_TRACE(row.name);
    const fs::path path = write(row.name, row.bytes);
    const auto source = token_source(path, {.length = 3, .type = row.type});
    EXPECT_EQ(source->fields(), (std::vector<Field>{{"input", {i32, {3}}}, {"target", {i32, {3}}}}));
    EXPECT_EQ(source->size(), 3);  // tokens 0 to 3, 3 to 6, 6 to 9; token 10 is left out
    EXPECT_EQ(numbers<std::int32_t>(sample(*source, 2)[0]), (Ints{18, 21, 24}));
    EXPECT_EQ(numbers<std::int32_t>(sample(*source, 2)[1]), (Ints{21, 24, 27}));
    const auto dense = token_source(path, {.length = 3, .stride = 1, .type = row.type});
    EXPECT_EQ(dense->size(), 8);
    EXPECT_EQ(numbers<std::int32_t>(sample(*dense, 7)[1]), (Ints{24, 27, 30}));
    EXPECT_EQ(token_source(path, {.length = 10, .type = row.type})->size(), 1);
    EXPECT_EQ(token_source(path, {.length = 1, .stride = 20, .type = row.type})->size(), 1);
  }
}

TEST_F(SourceTest, FilesThatHoldTokensInAnotherFormAreRefused) {
  auto refusal = [&](const std::string& start, std::optional<TokenType> type) {
    return message_of([&] { token_source(write("tokens", start + tokens_of(2, 40)), {.length = 4, .type = type}); });
  };
  for (const std::optional<TokenType> type : {std::optional<TokenType>(), std::optional(TokenType::uint16)})
    expect_words(refusal("\x93NUMPY\x01\0"s, type), {"tokens", "is an array of NumPy", "tofile()"});
  for (const std::string& packed : {"\x1f\x8b\x08\0"s, "PK\x03\x04"s}) {
    expect_words(refusal(packed, {}), {"tokens", "begins as a file that is packed", "unpack it"});
    EXPECT_EQ(refusal(packed, TokenType::uint16), "no Error");
  }
}

// More tokens than are converted at once, and at the borders of these pieces.
TEST_F(SourceTest, LongWindowsAreReadInPieces) {
  const fs::path path = write("tokens", tokens_of(2, 5000));
  for (std::int64_t length : {1022, 1023, 1024, 1025, 2047, 2048, 4000}) {
    const auto source = token_source(path, {.length = length, .stride = 1});
    const auto fields = sample(*source, 17);
    const Ints input = numbers<std::int32_t>(fields[0]), target = numbers<std::int32_t>(fields[1]);
    for (std::int64_t i = 0; i < length; ++i) {
      ASSERT_EQ(input[static_cast<std::size_t>(i)], (17 + i) * 3 % 1000) << length << " " << i;
      ASSERT_EQ(target[static_cast<std::size_t>(i)], (18 + i) * 3 % 1000) << length << " " << i;
    }
  }
}

TEST_F(SourceTest, TokensOutsideOfTheVocabularyAreRefusedByPlace) {
  auto refusal = [&](const std::string& bytes, const TokenSourceOptions& options) {
    return message_of([&] { sample(*token_source(write("tokens", bytes), options), 1); });
  };
  const std::string small = tokens_of(2, 9);  // up to 24
  EXPECT_EQ(refusal(small, {.length = 4, .vocabulary = 25}), "no Error");
  expect_words(refusal(small, {.length = 4, .vocabulary = 24}), {"tokens", "token 8: expected 0 to 23, seen 24"});
  EXPECT_EQ(sample(*token_source(write("tokens", small), {.length = 4, .vocabulary = 24}), 0).size(), 2u);
  const std::string large = tokens_of(4, 8) + little(0x80000000, 4);
  expect_words(refusal(large, {.length = 4, .type = TokenType::uint32}),
               {"token 8: expected 0 to 2147483647", "seen 2147483648"});
  expect_words(refusal(large, {.length = 4, .type = TokenType::int32}), {"token 8", "seen -2147483648"});
}

TEST_F(SourceTest, WrongOptionsOfTokensAreRefused) {
  const fs::path path = write("tokens", tokens_of(2, 9));
  auto refusal = [&](const TokenSourceOptions& options) {
    return message_of([&] { token_source(path, options); }, ErrorCode::misuse);
  };
  expect_words(refusal({}), {"expected windows of 1 to 2^31 - 1 tokens, seen 0", "length"});
  expect_words(refusal({.length = -1}), {"seen -1"});
  expect_words(refusal({.length = std::int64_t{1} << 31}), {"seen 2147483648"});
  expect_words(refusal({.length = 2, .stride = -1}), {"stride", "seen -1 and 0"});
  expect_words(refusal({.length = 2, .vocabulary = -1}), {"vocabulary", "seen 0 and -1"});
  expect_words(refusal({.length = 2, .input = "x", .target = "x"}), {"two fields have the name \"x\""});
  const fs::path with_header = write("header", good_tokens());
  expect_words(message_of([&] { token_source(with_header, {.length = 2, .type = TokenType::int32}); }),
               {"header", "its header says that tokens are uint16, TokenSourceOptions::type int32"});
}

TEST_F(SourceTest, AFileLargerThanMemoryTakesOnlyWhatIsRead) {
  const fs::path path = directory_ / "sparse";
  write_file(path, "");
  constexpr std::int64_t kBytes = std::int64_t{8} << 30, kTokens = kBytes / 2, kLength = 1024;
  fs::resize_file(path, static_cast<std::uintmax_t>(kBytes));  // without a block on the disk
  {
    std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
    file.seekp(kBytes - 4);
    file << little(77, 2) << little(88, 2);
  }
  const std::size_t before = testing::resident_bytes("RssAnon:");
  const auto source = token_source(path, {.length = kLength, .stride = 1});
  ASSERT_EQ(source->size(), kTokens - kLength);
  Ints input(kLength), target(kLength);
  const std::array<std::span<std::byte>, 2> to{std::as_writable_bytes(std::span(input)),
                                               std::as_writable_bytes(std::span(target))};
  for (std::int64_t i = 0; i < 2000; ++i) source->read(i * (source->size() / 2000), to);
  source->read(source->size() - 1, to);
  EXPECT_EQ(input.back(), 77);
  EXPECT_EQ(target.back(), 88);
  if (!testing::kSanitized) {
    EXPECT_LT(testing::resident_bytes("RssAnon:"), before + (std::size_t{8} << 20));
  }
}

// --- .npy and .npz

TEST_F(SourceTest, NpyArraysOfEveryTypeAndVersion) {
  struct Row {
    std::string descr;
    DType dtype;
    std::size_t bytes;
  };
  int version = 0;
  for (const Row& row : {Row{"<f2", f16, 2}, Row{"<f4", f32, 4}, Row{"<f8", f64, 8}, Row{"<i4", i32, 4},
                         Row{"<i8", i64, 8}, Row{"|u1", u8, 1}, Row{"|b1", boolean, 1}}) {
    SCOPED_TRACE(row.descr);
    version = version % 3 + 1;
    std::string elements;
    for (std::size_t i = 0; i < 3 * 2 * row.bytes; ++i) elements += static_cast<char>(row.dtype == boolean ? i % 2 : i);
    const fs::path path = write("a.npy", npy_file(npy_header(row.descr, "(3, 2)"), elements, version));
    const auto source = npy_source({{"a", path}});
    EXPECT_EQ(source->size(), 3);
    EXPECT_EQ(source->fields(), (std::vector<Field>{{"a", {row.dtype, {2}}}}));
    EXPECT_EQ(sample(*source, 1)[0], elements.substr(2 * row.bytes, 2 * row.bytes));
  }
}

TEST_F(SourceTest, HeadersThatNumpyMayWrite) {
  for (const std::string& header : {"{'descr': '<i4', 'fortran_order': False, 'shape': (2, 1, 1)}"s,
                                    "{\"shape\":(2,1,1),\"fortran_order\":False,\"descr\":\"<i4\"}"s,
                                    "{ 'fortran_order' : False , 'shape' : ( 2 , 1 , 1 , ) , 'descr' : '<i4' , }  "s}) {
    const auto source = npy_source({{"a", write("a.npy", npy_file(header, little(5, 4) + little(6, 4)))}});
    EXPECT_EQ(source->fields()[0].type, (TensorType{i32, {1, 1}})) << header;
    EXPECT_EQ(numbers<std::int32_t>(sample(*source, 1)[0]), Ints{6}) << header;
  }
  // A vector in Fortran order is the same as in C order.
  const std::string vector = npy_file(npy_header("<i4", "(2,)", "True"), little(5, 4) + little(6, 4));
  EXPECT_EQ(npy_source({{"a", write("a.npy", vector)}})->size(), 2);
}

TEST_F(SourceTest, ArraysOfOneSetHaveEqualFirstDimensions) {
  const fs::path x = write("x.npy", good_npy()), y = write("y.npy", good_labels_npy());
  const auto source = npy_source({{"x", x}, {"y", y}});
  EXPECT_EQ(source->fields(), (std::vector<Field>{{"x", {f32, {3}}}, {"y", {boolean, {}}}}));
  EXPECT_EQ(numbers<float>(sample(*source, 1)[0]), (Floats{3, 4, 5}));
  EXPECT_EQ(sample(*source, 0)[1], "\1");
  const fs::path z = write("z.npy", npy_file(npy_header("|u1", "(3,)"), "abc"));
  expect_words(message_of([&] {
                 npy_source({{"x", x}, {"z", z}});
               }),
               {"z.npy", "expected 2 samples as in \"x\", seen u8[3]"});
  expect_words(message_of([&] { npy_source({}); }, ErrorCode::misuse), {"at least 1 field, seen none"});
}

TEST_F(SourceTest, BoolsOfOtherBytesAreRefused) {
  const auto source = npy_source({{"b", write("b.npy", npy_file(npy_header("|b1", "(2, 2)"), "\1\0\1\2"s))}});
  EXPECT_EQ(sample(*source, 0)[0], "\1\0"s);
  expect_words(message_of([&] { sample(*source, 1); }),
               {"b.npy", "sample 1: expected bools of 0 or 1, seen 2 at element 1"});
}

TEST_F(SourceTest, NpzArchivesGiveTheirArrays) {
  const std::vector<ZipPart> parts = {{.name = "x.npy", .bytes = good_npy(), .is_deflated = true},
                                      {.name = "y.npy", .bytes = good_labels_npy()}};
  const std::string comment = "PK\5\6 and more";
  std::string commented = zip_file(parts);
  commented.replace(commented.size() - 2, 2, little(comment.size(), 2));
  commented += comment;
  for (const std::string& bytes : {good_npz(), zip_file(parts, true), commented}) {
    const fs::path path = write("a.npz", bytes);
    const auto source = npz_source(path);
    EXPECT_EQ(source->fields(), (std::vector<Field>{{"x", {f32, {3}}}, {"y", {boolean, {}}}}));
    EXPECT_EQ(numbers<float>(sample(*source, 1)[0]), (Floats{3, 4, 5}));
    EXPECT_EQ(sample(*source, 0)[1], "\1");
    const auto chosen = npz_source(path, {.names = {"y"}});
    EXPECT_EQ(chosen->fields(), (std::vector<Field>{{"y", {boolean, {}}}}));
    EXPECT_EQ(sample(*chosen, 0)[0], "\1");
  }
}

TEST_F(SourceTest, CompressedArraysHaveABound) {
  const std::string zeros(1 << 20, '\0');
  const std::string array = npy_file(npy_header("|u1", "(1024, 1024)"), zeros);
  const fs::path path = write("bomb.npz", zip_file({{.name = "a.npy", .bytes = array, .is_deflated = true},
                                                    {.name = "b.npy", .bytes = array, .is_deflated = true}}));
  EXPECT_LT(fs::file_size(path), 10'000u);
  EXPECT_EQ(npz_source(path, {.most_unpacked = 2 * array.size()})->size(), 1024);
  expect_words(message_of([&] { npz_source(path, {.most_unpacked = 2 * array.size() - 1}); }),
               {"bomb.npz", "\"b.npy\"", "takes too much memory", "most " + std::to_string(array.size() - 1)});
  EXPECT_EQ(npz_source(path, {.names = {"b"}, .most_unpacked = array.size()})->size(), 1024);
}

TEST_F(SourceTest, NpzArraysAreNamed) {
  const fs::path path = write("a.npz", good_npz());
  expect_words(message_of([&] { npz_source(path, {.names = {"z"}}); }), {"a.npz", "no array \"z\"", "x.npy, y.npy"});
  expect_words(message_of([&] { npz_source(path, {.names = {"x", "x"}}); }, ErrorCode::misuse), {"two fields"});
  const fs::path other = write("b.npz", zip_file({{.name = "x.npy", .bytes = good_npy()}, {.name = "read.me"}}));
  expect_words(message_of([&] { npz_source(other); }), {"b.npz", "\"read.me\"", "is no .npy file"});
  EXPECT_EQ(npz_source(other, {.names = {"x"}})->size(), 2);
  expect_words(message_of([&] { npz_source(write("c.npz", zip_file({}))); }), {"c.npz", "is empty"});
  expect_words(message_of([&] {
                 npz_source(write("d.npz", zip_file({{.name = "x.npy", .bytes = good_npy().substr(0, 100)}})));
               }),
               {"d.npz", "array \"x.npy\"", "header"});
}

// --- files that change, and threads

TEST_F(SourceTest, AFileThatIsCutOffWhileItIsInUseIsAnError) {
  const fs::path path = write("x.npy", good_npy());
  const auto source = npy_source({{"x", path}});
  fs::resize_file(path, good_npy().size() - 1);
  expect_words(message_of([&] { sample(*source, 1); }), {"x.npy", "is truncated", "rename"});
  expect_words(message_of([&] { sample(*source, 0); }), {"x.npy", "was changed while it was in use", "rename"});
}

TEST_F(SourceTest, AFileThatIsWrittenToWhileItIsInUseIsAnError) {
  const fs::path path = write("x.npy", good_npy());
  const auto source = npy_source({{"x", path}});
  EXPECT_EQ(sample(*source, 0).size(), 1u);
  fs::last_write_time(path, fs::last_write_time(path) + std::chrono::seconds(1));
  expect_words(message_of([&] { sample(*source, 0); }), {"x.npy", "was changed while it was in use"});
  // A file system may keep coarse times: a longer file is another one, too, if its time is the same.
  const fs::path other = write("y.npy", good_npy());
  const auto longer = npy_source({{"y", other}});
  const auto time = fs::last_write_time(other);
  write("y.npy", good_npy() + "x");
  fs::last_write_time(other, time);
  expect_words(message_of([&] { sample(*longer, 0); }), {"y.npy", "was changed while it was in use", "seen"});
}

TEST_F(SourceTest, AFileWhoseNameIsTakenByAnotherIsReadOn) {
  const fs::path path = write("x.npy", good_npy());
  const auto source = npy_source({{"x", path}});
  fs::rename(write("new", "something else"), path);
  EXPECT_EQ(numbers<float>(sample(*source, 1)[0]), (Floats{3, 4, 5}));
  fs::remove(path);
  EXPECT_EQ(numbers<float>(sample(*source, 1)[0]), (Floats{3, 4, 5}));
}

TEST_F(SourceTest, ManyThreadsReadAtOnce) {
  std::string pixels, names;
  for (int i = 0; i < 100 * 50; ++i) pixels += static_cast<char>(i * 31 % 251);
  for (int i = 0; i < 100; ++i) names += static_cast<char>(i % 10);
  const std::string array = npy_file(npy_header("|u1", "(100, 50)"), pixels);
  const std::vector<std::shared_ptr<const Source>> sources = {
      idx_source(write("images", idx_file({100, 50}, pixels)), write("labels", idx_file({100}, names))),
      token_source(write("tokens", pixels), {.length = 20}), npy_source({{"x", write("x.npy", array)}}),
      npz_source(write("x.npz", zip_file({{.name = "x.npy", .bytes = array, .is_deflated = true},
                                          {.name = "y.npy", .bytes = array}}))),
      tensor_source({{"x", Tensor({100}, std::vector<float>(100, 3.0f))}})};
  std::vector<std::vector<std::vector<std::string>>> expected;
  for (const auto& source : sources) {
    expected.emplace_back();
    for (std::int64_t i = 0; i < source->size(); ++i) expected.back().push_back(sample(*source, i));
  }
  std::atomic<int> wrong = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (std::int64_t n = 0; n < 1000; ++n) {
        const auto s = static_cast<std::size_t>((n + t) % 5);
        const std::int64_t index = n * (2 * t + 7) % sources[s]->size();
        if (sample(*sources[s], index) != expected[s][static_cast<std::size_t>(index)]) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace graphsink::source_test
