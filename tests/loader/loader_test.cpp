#include "graphsink/loader.h"

#include <gtest/gtest.h>
#include <zlib.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <set>

#include "samples/models/source_dir.h"
#include "temporary_directory.h"

namespace graphsink::loader_test {
namespace {

namespace fs = std::filesystem;
using namespace std::string_literals;

std::string idx_header(int rank, const std::vector<std::uint32_t>& sizes, int type = 8) {
  std::string bytes{'\0', '\0', static_cast<char>(type), static_cast<char>(rank)};
  for (std::uint32_t size : sizes) {
    for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>(size >> shift & 255);
  }
  return bytes;
}

std::string gzipped(const std::string& bytes) {
  z_stream stream{};
  constexpr int kGzip = 15 + 16;
  EXPECT_EQ(deflateInit2(&stream, Z_DEFAULT_COMPRESSION, Z_DEFLATED, kGzip, 8, Z_DEFAULT_STRATEGY), Z_OK);
  std::string packed(deflateBound(&stream, bytes.size()), '\0');
  std::string input = bytes;
  stream.next_in = reinterpret_cast<Bytef*>(input.data());
  stream.avail_in = static_cast<uInt>(input.size());
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = static_cast<uInt>(packed.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  packed.resize(stream.total_out);
  deflateEnd(&stream);
  return packed;
}

std::string flipped(std::string bytes, std::size_t from_end) {
  bytes[bytes.size() - from_end] ^= 0x55;
  return bytes;
}

std::string without_last(std::string bytes, std::size_t count) {
  bytes.resize(bytes.size() - count);
  return bytes;
}

// Everything that must go wrong, as text; the test names what it must contain.
template <class Call>
std::string message_of(Call call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_FALSE(error.remedy().empty()) << error.what();
    EXPECT_EQ(error.code(), ErrorCode::io) << error.what();
    EXPECT_NE(std::string(error.what()).find("loader_test.cpp:"), std::string::npos) << error.what();
    return error.what();
  }
  return "no Error";
}

void expect_words(const std::string& message, const std::vector<std::string>& words) {
  for (const std::string& word : words) EXPECT_NE(message.find(word), std::string::npos) << word << " in: " << message;
}

class LoaderTest : public ::testing::Test {
 protected:
  fs::path write(const std::string& name, const std::string& bytes) const {
    std::ofstream(directory_ / name, std::ios::binary) << bytes;
    return directory_ / name;
  }

  TemporaryDirectory directory_;
};

// The real files, or an empty path.
fs::path real_data() {
  const char* set = std::getenv("GRAPHSINK_DATA");
  fs::path directory = set ? fs::path(set) : fs::path(source_dir()) / "../shared/data";
  return fs::exists(directory / "t10k-images-idx3-ubyte.gz") ? directory : fs::path();
}

TEST_F(LoaderTest, BadIdxFilesAreRefusedByNameWithWhatWasExpectedAndSeen) {
  std::string good = idx_header(2, {2, 3}) + "abcdef";
  struct Row {
    std::string name;
    std::string bytes;
    std::vector<std::string> words;
  };
  const std::vector<Row> rows = {
      {"empty", "", {"truncated", "magic number of 4 bytes, seen 0"}},
      {"short_magic", "\0\0\x08"s, {"truncated", "seen 3"}},
      {"text", "To be, or not to be", {"not an IDX file", "expected magic number 0x000008RR, seen 0x546f2062"}},
      {"floats", idx_header(1, {1}, 0x0d) + "abcd", {"another element type", "seen 0x00000d01", "unsigned bytes"}},
      {"rank_0", idx_header(0, {}), {"expected 1 to 8 dimensions, seen 0"}},
      {"rank_9", idx_header(9, std::vector<std::uint32_t>(9, 1)) + "a", {"expected 1 to 8 dimensions, seen 9"}},
      {"rank_255", idx_header(255, {1, 1}), {"seen 255"}},
      {"short_sizes",
       without_last(idx_header(3, {1, 1, 1}), 1),
       {"truncated", "expected 12 bytes of sizes", "seen 11"}},
      {"zero", idx_header(3, {5, 0, 28}), {"is empty", "at least 1", "[5, 0, 28]"}},
      {"overflow",
       idx_header(3, {0xffffffff, 0xffffffff, 0xffffffff}) + "abc",
       {"fewer than 2^53 elements, seen [4294967295, 4294967295, 4294967295]"}},
      {"overflow_to_small", idx_header(3, {0x80000000, 0x80000000, 4}) + "abc", {"fewer than 2^53 elements"}},
      {"too_huge", idx_header(2, {0x7fffffff, 0xffffffff}) + "abc", {"fewer than 2^53 elements"}},
      {"huge", idx_header(2, {0x7fffffff, 0x000fffff}) + "abc", {"truncated", "[2147483647, 1048575]", "seen 3"}},
      {"huge.gz", gzipped(idx_header(1, {0xffffffff}) + "abc"), {"truncated", "expected 4294967295", "seen 3"}},
      {"short_data", without_last(good, 1), {"truncated", "expected 6 elements for [2, 3], seen 5"}},
      {"long_data", good + "g", {"too long", "expected 6 elements for [2, 3], seen more"}},
      {"long_data.gz", gzipped(good + "g"), {"too long", "[2, 3]"}},
      {"two_members.gz", gzipped(good) + gzipped(good), {"too long", "[2, 3]"}},
      {"cut_in_data.gz", without_last(gzipped(good), 12), {"truncated", "end of its gzip stream"}},
      {"cut_in_check.gz", without_last(gzipped(good), 5), {"truncated", "end of its gzip stream"}},
      {"cut_in_header.gz", gzipped(good).substr(0, 6), {"truncated", "end of its gzip stream"}},
      {"wrong_check.gz", flipped(gzipped(good), 7), {"damaged", "valid gzip stream", "incorrect data check"}},
      {"wrong_length.gz", flipped(gzipped(good), 3), {"damaged", "incorrect length check"}},
      {"other_behind.gz", gzipped(good) + "g", {"damaged", "behind one", "other bytes"}},
      {"cut_to_a_byte.gz", gzipped(good) + gzipped(good).substr(0, 1), {"damaged", "behind one"}},
      {"wrong_second.gz", gzipped(good) + "\0\x8b"s + gzipped(good).substr(2), {"damaged", "behind one"}},
      {"wrong_method.gz", "\x1f\x8b\x07"s + gzipped(good).substr(3), {"damaged", "unknown compression method"}},
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(row.name);
    fs::path path = write(row.name, row.bytes);
    std::string message = message_of([&] { read_idx(path); });
    expect_words(message, row.words);
    expect_words(message, {path.string(), "remedy: "});
  }
}

TEST_F(LoaderTest, WhatCannotBeOpenedIsRefusedByName) {
  expect_words(message_of([&] { read_idx(directory_ / "absent"); }), {"absent", "cannot open"});
  expect_words(message_of([&] { read_idx(directory_.path()); }), {directory_.path().string(), "not a regular file"});
  expect_words(message_of([&] { read_text("/dev/zero"); }), {"/dev/zero", "not a regular file"});
  fs::path secret = write("secret", "abc");
  fs::permissions(secret, fs::perms::none);
  if (geteuid() != 0)
    expect_words(message_of([&] { read_idx(secret); }), {"secret", "cannot open", "ermission denied"});
}

TEST_F(LoaderTest, IdxRoundTripsPlainAndGzipped) {
  std::string data;
  for (int i = 0; i < 2 * 3 * 700'000; ++i) data += static_cast<char>(i * 7 % 251);
  struct Row {
    std::string name;
    std::vector<std::uint32_t> sizes;
  };
  for (const Row& row : {Row{"vector", {6}}, Row{"cube", {1, 2, 3}}, Row{"rank_8", {1, 1, 1, 1, 1, 1, 3, 2}},
                         Row{"several_pieces", {2, 3, 700'000}}}) {
    std::uint32_t size = 1;
    for (std::uint32_t dim : row.sizes) size *= dim;
    std::string bytes = idx_header(static_cast<int>(row.sizes.size()), row.sizes) + data.substr(0, size);
    for (const fs::path& path : {write(row.name, bytes), write(row.name + ".gz", gzipped(bytes))}) {
      SCOPED_TRACE(path);
      IdxFile idx = read_idx(path);
      EXPECT_EQ(idx.shape, Shape(std::vector<std::int64_t>(row.sizes.begin(), row.sizes.end())));
      EXPECT_TRUE(std::equal(idx.bytes.begin(), idx.bytes.end(), data.begin(), data.begin() + size,
                             [](std::uint8_t a, char b) { return a == static_cast<std::uint8_t>(b); }));
    }
  }
}

TEST_F(LoaderTest, DigitsAreScaledImagesAndTheirLabels) {
  write("t10k-images-idx3-ubyte.gz", gzipped(idx_header(3, {2, 1, 3}) + "\x00\x33\xff\xff\x00\x01"s));
  write("t10k-labels-idx1-ubyte", idx_header(1, {2}) + "\x09\x00"s);
  Digits digits = read_digits(directory_.path());
  EXPECT_EQ(digits.images.type(), (TensorType{f32, {2, 3}}));
  EXPECT_EQ(digits.labels.type(), (TensorType{i32, {2}}));
  EXPECT_EQ(digits.images.at(0), 0.0);
  EXPECT_FLOAT_EQ(digits.images.as<float>()[1], 0.2f);
  EXPECT_EQ(digits.images.at(2), 1.0);
  EXPECT_EQ(digits.labels.at(0), 9);
  EXPECT_EQ(digits.labels.at(1), 0);
  EXPECT_EQ(digits.source, "t10k-images-idx3-ubyte.gz");
}

TEST_F(LoaderTest, DigitsThatDoNotFitTogetherAreRefused) {
  auto refusal = [&] { return message_of([&] { read_digits(directory_.path()); }); };
  expect_words(refusal(), {"t10k-images-idx3-ubyte", "no such file", "mnist", "seeded_digits()"});
  write("t10k-images-idx3-ubyte", idx_header(3, {2, 1, 1}) + "ab");
  expect_words(refusal(), {"t10k-labels-idx1-ubyte", "no such file"});
  write("t10k-labels-idx1-ubyte", idx_header(1, {3}) + "\x01\x02\x03");
  expect_words(refusal(), {"t10k-labels-idx1-ubyte", "expected 2 labels", "seen 3"});
  write("t10k-labels-idx1-ubyte", idx_header(1, {2}) + "\x01\x0a");
  expect_words(refusal(), {"expected labels 0 to 9, seen 10 at 1"});
  write("t10k-labels-idx1-ubyte", idx_header(2, {2, 1}) + "\x01\x02");
  expect_words(refusal(), {"expected labels [n], seen [2, 1]"});
  write("t10k-images-idx3-ubyte", idx_header(1, {2}) + "ab");
  expect_words(refusal(), {"t10k-images-idx3-ubyte", "expected images [n, rows, columns], seen [2]"});
}

TEST_F(LoaderTest, TextIsTokensOfItsOwnVocabulary) {
  std::string bytes = "banana\n\xff\0b"s;
  for (const fs::path& path : {write("fruit.txt", bytes), write("fruit.txt.gz", gzipped(bytes))}) {
    Text text = read_text(path, 1);
    EXPECT_EQ(text.vocabulary, "\0\nabn\xff"s);
    EXPECT_EQ(text.tokens, (std::vector<std::int32_t>{3, 2, 4, 2, 4, 2, 1, 5, 0, 3}));
    EXPECT_EQ(text.decode(text.tokens), bytes);
    EXPECT_EQ(text.source, path.filename().string());
    EXPECT_THROW(text.decode({6}), Error);
    EXPECT_THROW(text.decode({-1}), Error);
  }
  fs::path path = directory_ / "fruit.txt";
  expect_words(message_of([&] { read_text(path); }), {"fruit.txt", "at least 256 bytes", "seen 10", "longer text"});
  expect_words(message_of([&] { read_text(write("cut.gz", without_last(gzipped(bytes), 4)), 1); }), {"truncated"});
}

// A gzip stream of `size` bytes, which has a name of as many bytes as it takes.
std::string gzipped_to_size(const std::string& bytes, std::size_t size) {
  constexpr char kHasName = 8;  // in the flags, byte 3 of a header of 10
  std::string packed = gzipped(bytes);
  EXPECT_LT(packed.size() + 1, size);
  packed[3] = kHasName;
  return packed.insert(10, std::string(size - packed.size() - 1, 'n') + '\0');
}

// As `cat a.gz b.gz` and programs that pack in parallel write them. Where the second begins in its piece of the file
// does not matter, nor do zeros behind the last.
TEST_F(LoaderTest, AGzippedFileMayHaveSeveralParts) {
  constexpr std::size_t kPiece = 1 << 16;  // bytes that are read from a file at once
  for (const std::size_t size : {kPiece - 1, kPiece, kPiece + 1}) {
    const std::string bytes = gzipped_to_size("the first, ", size) + gzipped("the second") + std::string(100'000, '\0');
    const Text read = read_text(write("parts.gz", bytes), 1);
    EXPECT_EQ(read.decode(read.tokens), "the first, the second");
    const std::string cut = gzipped_to_size("the first, ", size) + gzipped("the second").substr(0, 1);
    expect_words(message_of([&] { read_text(write("cut.gz", cut), 1); }), {"damaged", "behind one"});
  }
}

// A gzipped file may hold a thousand times its size.
TEST_F(LoaderTest, WhatIsUnpackedHasABound) {
  const fs::path text = write("long.gz", gzipped(std::string(100'000, 'a')));
  EXPECT_EQ(read_text(text, 1, 100'000).tokens.size(), 100'000u);
  expect_words(message_of([&] { read_text(text, 1, 99'999); }),
               {"long.gz", "is too long", "at most 99999 bytes", "larger maximum"});
  const fs::path idx = write("idx.gz", gzipped(idx_header(2, {100, 1000}) + std::string(100'000, 'a')));
  EXPECT_EQ(read_idx(idx, 100'000).bytes.size(), 100'000u);
  expect_words(message_of([&] { read_idx(idx, 99'999); }),
               {"idx.gz", "is too long", "at most 99999 elements", "[100, 1000]", "larger maximum"});
}

TEST_F(LoaderTest, ATextBombIsRefusedByDefault) {
  const std::string zeros(1 << 20, '\0');
  gzFile file = gzopen((directory_ / "bomb.gz").c_str(), "wb");
  for (std::size_t bytes = 0; bytes <= kMostTextBytes; bytes += zeros.size())
    ASSERT_EQ(gzwrite(file, zeros.data(), static_cast<unsigned>(zeros.size())), static_cast<int>(zeros.size()));
  ASSERT_EQ(gzclose(file), Z_OK);
  EXPECT_LT(fs::file_size(directory_ / "bomb.gz"), 1u << 20);
  expect_words(message_of([&] { read_text(directory_ / "bomb.gz"); }), {"bomb.gz", "is too long"});
}

TEST(SeededDigitsTest, TheSameSeedGivesTheSameBitsOnEveryMachine) {
  Digits digits = seeded_digits(100, 7);
  EXPECT_EQ(digits.images.type(), (TensorType{f32, {100, 784}}));
  EXPECT_EQ(digits.labels.type(), (TensorType{i32, {100}}));
  EXPECT_EQ(digits.source, "seeded digits");
  EXPECT_EQ(checksum(digits.images.data(), digits.images.bytes()), "4b26e03f");
  EXPECT_EQ(checksum(digits.labels.data(), digits.labels.bytes()), "59fea13a");

  Digits more = seeded_digits(150, 7);
  EXPECT_TRUE(std::equal(digits.images.data(), digits.images.data() + digits.images.bytes(), more.images.data()));
  Digits other = seeded_digits(100, 8);
  EXPECT_FALSE(std::equal(digits.images.data(), digits.images.data() + digits.images.bytes(), other.images.data()));

  EXPECT_THROW(seeded_digits(0, 1), Error);
  EXPECT_THROW(seeded_digits(-1, 1), Error);
  EXPECT_THROW(seeded_digits(std::int64_t{1} << 40, 1), Error);
}

// A layer of 16 rectified units and a softmax, trained one example at a time: no part of the library but the data.
class TinyNetwork {
 public:
  int predict(std::span<const float> image) {
    hidden_.assign(kHidden, 0.0f);
    for (std::size_t i = 0; i < image.size(); ++i) {
      for (std::size_t j = 0; j < kHidden; ++j) hidden_[j] += image[i] * in_[i * kHidden + j];
    }
    scores_.assign(10, 0.0f);
    for (std::size_t j = 0; j < kHidden; ++j) {
      hidden_[j] = std::max(hidden_[j], 0.0f);
      for (std::size_t k = 0; k < 10; ++k) scores_[k] += hidden_[j] * out_[j * 10 + k];
    }
    return static_cast<int>(std::max_element(scores_.begin(), scores_.end()) - scores_.begin());
  }

  void train(std::span<const float> image, std::int32_t label, float rate) {
    predict(image);
    float highest = *std::max_element(scores_.begin(), scores_.end()), total = 0.0f;
    for (float& score : scores_) total += score = std::exp(score - highest);
    for (float& score : scores_) score /= total;
    scores_[static_cast<std::size_t>(label)] -= 1.0f;
    for (std::size_t j = 0; j < kHidden; ++j) {
      float slope = 0.0f, activation = hidden_[j];
      for (std::size_t k = 0; k < 10; ++k) {
        slope += scores_[k] * out_[j * 10 + k];
        out_[j * 10 + k] -= rate * activation * scores_[k];
      }
      hidden_[j] = activation > 0.0f ? rate * slope : 0.0f;
    }
    for (std::size_t i = 0; i < image.size(); ++i) {
      for (std::size_t j = 0; j < kHidden; ++j) in_[i * kHidden + j] -= image[i] * hidden_[j];
    }
  }

 private:
  static constexpr std::size_t kHidden = 16;
  Tensor in_tensor_ = Tensor::kaiming({784, kHidden}, 1), out_tensor_ = Tensor::kaiming({kHidden, 10}, 2);
  std::span<float> in_ = in_tensor_.as<float>(), out_ = out_tensor_.as<float>();
  std::vector<float> hidden_, scores_;
};

TEST(SeededDigitsTest, ASmallNetworkLearnsThem) {
  constexpr std::size_t kTrain = 2000, kTest = 500, kPixels = 784;
  Digits digits = seeded_digits(kTrain + kTest, 1);
  std::span<const float> images = digits.images.as<float>();
  std::span<const std::int32_t> labels = digits.labels.as<std::int32_t>();
  EXPECT_EQ(std::set<std::int32_t>(labels.begin(), labels.end()).size(), 10u);

  TinyNetwork network;
  for (int epoch = 0; epoch < 5; ++epoch) {
    for (std::size_t i = 0; i < kTrain; ++i) network.train(images.subspan(i * kPixels, kPixels), labels[i], 0.01f);
  }
  int right = 0;
  for (std::size_t i = kTrain; i < kTrain + kTest; ++i) {
    right += network.predict(images.subspan(i * kPixels, kPixels)) == labels[i];
  }
  EXPECT_GT(right, 0.95 * kTest);
}

// The check value of CRC-32, no bytes at all, and more of them than fit the buffers of an implementation.
TEST(ChecksumTest, KnownVectors) {
  auto of = [](const std::string& text) { return checksum(text.data(), text.size()); };
  EXPECT_EQ(checksum(nullptr, 0), "00000000");
  EXPECT_EQ(of("123456789"), "cbf43926");
  EXPECT_EQ(of("abc"), "352441c2");
  EXPECT_EQ(of(std::string(1'000'000, 'a')), "dc25bfbc");
}

TEST(RealDataTest, TheTestDigitsOfMnist) {
  fs::path directory = real_data();
  if (directory.empty()) GTEST_SKIP() << "no t10k-images-idx3-ubyte.gz in $GRAPHSINK_DATA or ../shared/data";
  Digits digits = read_digits(directory);
  EXPECT_EQ(digits.images.type(), (TensorType{f32, {10000, 784}}));
  EXPECT_EQ(digits.source, "t10k-images-idx3-ubyte.gz");
  std::span<const std::int32_t> labels = digits.labels.as<std::int32_t>();
  EXPECT_EQ(std::vector<std::int32_t>(labels.begin(), labels.begin() + 5), (std::vector<std::int32_t>{7, 2, 1, 0, 4}));
  EXPECT_EQ(std::count(labels.begin(), labels.end(), 0), 980);
}

TEST(RealDataTest, Shakespeare) {
  fs::path path = real_data() / "tinyshakespeare.txt";
  if (!fs::exists(path)) GTEST_SKIP() << "no tinyshakespeare.txt in $GRAPHSINK_DATA or ../shared/data";
  Text text = read_text(path);
  EXPECT_EQ(text.vocabulary.size(), 65u);
  EXPECT_EQ(text.decode({text.tokens.begin(), text.tokens.begin() + 14}), "First Citizen:");
}

TEST(RealDataTest, TheLicenseIsTextEnoughWhereThereIsNoOther) {
  Text text = read_text(fs::path(source_dir()) / "LICENSE");
  EXPECT_GT(text.tokens.size(), 10'000u);
}

}  // namespace
}  // namespace graphsink::loader_test
