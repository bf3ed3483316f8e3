// Preparing samples on the host.
#include "graphsink/preprocess.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "refusal.h"

namespace graphsink::preprocess_test {
namespace {

using Floats = std::vector<float>;

// Memory at an odd address.
class Memory {
 public:
  explicit Memory(std::size_t bytes) : bytes_(bytes + 1, std::byte{0xee}) {}
  template <class T>
  explicit Memory(const std::vector<T>& values) : Memory(values.size() * sizeof(T)) {
    std::memcpy(span().data(), values.data(), values.size() * sizeof(T));
  }
  std::span<std::byte> span() { return std::span(bytes_).subspan(1); }
  operator std::span<std::byte>() { return span(); }
  operator std::span<const std::byte>() { return span(); }
  template <class T>
  std::vector<T> as() {
    std::vector<T> values(span().size() / sizeof(T));
    std::memcpy(values.data(), span().data(), values.size() * sizeof(T));
    return values;
  }

 private:
  std::vector<std::byte> bytes_;
};

using testing::expect_refused;

template <class T>
std::vector<T> counted(std::size_t count) {
  std::vector<T> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<T>(i + 1);
  return values;
}

TEST(PreprocessTest, BytesAreScaledTo1) {
  std::vector<std::uint8_t> bytes(256);
  std::iota(bytes.begin(), bytes.end(), std::uint8_t{0});
  Memory from(bytes), to(1024);
  u8_to_f32(from, to);
  const Floats scaled = to.as<float>();
  for (std::size_t i = 0; i < 256; ++i) EXPECT_EQ(scaled[i], static_cast<float>(i) / 255.0f);
  Memory small(1020);
  expect_refused([&] { u8_to_f32(from, small); }, {"u8_to_f32", "expected 1024 bytes for f32[256], seen 1020"});
}

TEST(PreprocessTest, ChannelsAreNormalized) {
  const TensorType type{f32, {2, 1, 2}};
  Memory image(Floats{1, 2, 30, 40});
  normalize(image, type, Floats{1, 20}, Floats{2, 10});
  EXPECT_EQ(image.as<float>(), (Floats{0, 0.5f, 1, 2}));
  Memory one(Floats{1, 2, 3, 5});
  normalize(one, type, Floats{1}, Floats{2});
  EXPECT_EQ(one.as<float>(), (Floats{0, 0.5f, 1, 2}));
  expect_refused([&] { normalize(image, type, Floats{1, 2, 3}, Floats{1}); }, {"1 or 2 means", "seen 3 and 1"});
  expect_refused([&] { normalize(image, type, Floats{1}, {}); }, {"seen 1 and 0"});
  expect_refused([&] { normalize(image, type, Floats{1}, Floats{0}); }, {"deviations above 0"});
  expect_refused([&] { normalize(image, type, Floats{1}, Floats{1, -1}); }, {"deviations above 0"});
  expect_refused([&] { normalize(image, type, Floats{std::nanf("")}, Floats{1}); }, {"finite"});
  expect_refused([&] { normalize(image, type, Floats{1}, Floats{HUGE_VALF}); }, {"deviations above 0"});
  expect_refused(
      [&] {
        normalize(image, {f32, {2, 2, 2}}, Floats{1}, Floats{1});
      },
      {"32 bytes for f32[2, 2, 2], seen 16"});
  expect_refused(
      [&] {
        normalize(image, {i32, {2, 1, 2}}, Floats{1}, Floats{1});
      },
      {"f32[channels, ...]", "i32[2, 1, 2]"});
  Memory scalar(4);
  expect_refused([&] { normalize(scalar, {f32, {}}, Floats{1}, Floats{1}); }, {"f32[channels, ...]"});
}

TEST(PreprocessTest, LabelsBecomeOneHot) {
  Memory to(16);
  one_hot(2, to);
  EXPECT_EQ(to.as<float>(), (Floats{0, 0, 1, 0}));
  expect_refused([&] { one_hot(4, to); }, {"from 0 to 4 (exclusive), seen 4"});
  expect_refused([&] { one_hot(-1, to); }, {"seen -1"});
  Memory odd(15);
  expect_refused([&] { one_hot(0, odd); }, {"12 bytes for f32[3], seen 15"});
}

TEST(PreprocessTest, LinesAreMirrored) {
  Memory image(counted<float>(12));
  flip_horizontal(image, {f32, {2, 2, 3}});
  EXPECT_EQ(image.as<float>(), (Floats{3, 2, 1, 6, 5, 4, 9, 8, 7, 12, 11, 10}));
  Memory bytes(counted<std::uint8_t>(8));
  flip_horizontal(bytes, {u8, {2, 4}});
  EXPECT_EQ(bytes.as<std::uint8_t>(), (std::vector<std::uint8_t>{4, 3, 2, 1, 8, 7, 6, 5}));
  expect_refused([&] { flip_horizontal(bytes, {u8, {8}}); }, {"[channels, height, width]", "u8[8]"});
  expect_refused([&] { flip_horizontal(bytes, {u8, {1, 1, 2, 4}}); }, {"[channels, height, width]"});
  expect_refused([&] { flip_horizontal(bytes, {u8, {3, 3}}); }, {"9 bytes for u8[3, 3], seen 8"});
}

TEST(PreprocessTest, APartMayLieOutside) {
  // 1 2 3
  // 4 5 6, in a second channel 7 to 12
  Memory image(counted<std::int64_t>(12));
  const TensorType type{i64, {2, 2, 3}}, part{i64, {2, 2, 2}};
  struct Row {
    std::int64_t top, left;
    std::vector<std::int64_t> expected;
  };
  constexpr std::int64_t kFar = std::int64_t{1} << 62;
  for (const Row& row :
       {Row{0, 0, {1, 2, 4, 5, 7, 8, 10, 11}}, Row{0, 1, {2, 3, 5, 6, 8, 9, 11, 12}},
        Row{-1, -1, {0, 0, 0, 1, 0, 0, 0, 7}}, Row{1, 2, {6, 0, 0, 0, 12, 0, 0, 0}},
        Row{-1, 1, {0, 0, 2, 3, 0, 0, 8, 9}}, Row{2, 0, {0, 0, 0, 0, 0, 0, 0, 0}}, Row{0, 3, {0, 0, 0, 0, 0, 0, 0, 0}},
        Row{-2, 0, {0, 0, 0, 0, 0, 0, 0, 0}}, Row{0, -2, {0, 0, 0, 0, 0, 0, 0, 0}},
        Row{kFar, -kFar * 2, {0, 0, 0, 0, 0, 0, 0, 0}}, Row{-kFar * 2, kFar, {0, 0, 0, 0, 0, 0, 0, 0}}}) {
    Memory to(64);
    crop(image, type, to, part, row.top, row.left);
    EXPECT_EQ(to.as<std::int64_t>(), row.expected) << row.top << ", " << row.left;
  }
  Memory larger(8 * 2 * 4 * 4);
  crop(image, type, larger, {i64, {2, 4, 4}}, -1, -1);
  EXPECT_EQ(larger.as<std::int64_t>(), (std::vector<std::int64_t>{0, 0, 0, 0, 0, 1, 2, 3, 0, 4,  5,  6,  0, 0, 0, 0,
                                                                  0, 0, 0, 0, 0, 7, 8, 9, 0, 10, 11, 12, 0, 0, 0, 0}));
  Memory to(64);
  expect_refused([&] { crop(image, type, to, {f64, {2, 2, 2}}, 0, 0); }, {"same dtype and channels", "f64[2, 2, 2]"});
  expect_refused([&] { crop(image, type, to, {i64, {1, 4, 2}}, 0, 0); }, {"same dtype and channels", "i64[1, 4, 2]"});
  expect_refused([&] { crop(image, type, to, {i64, {2, 2, 3}}, 0, 0); }, {"96 bytes", "seen 64"});
  expect_refused([&] { crop(to, type, to, part, 0, 0); }, {"96 bytes", "seen 64"});
}

TEST(PreprocessTest, HalfOfTheImagesAreMirrored) {
  const TensorType type{u8, {1, 2}};
  int mirrored = 0;
  for (std::int64_t sample = 0; sample < 10'000; ++sample) {
    Memory image(counted<std::uint8_t>(2));
    const bool is_mirrored = random_flip(image, type, {.seed = 3, .epoch = 1, .sample = sample});
    ASSERT_EQ(image.as<std::uint8_t>()[0], is_mirrored ? 2 : 1);
    mirrored += is_mirrored ? 1 : 0;
  }
  EXPECT_NEAR(mirrored, 5000, 200);  // 4 standard deviations
}

TEST(PreprocessTest, AllPlacesAreDrawnEquallyOften) {
  // The part of 2 x 1 shows where it was: lines 1 to 3 of an image with a border of 1, and its columns.
  const TensorType type{u8, {3, 2}}, part{u8, {2, 1}};
  std::map<std::vector<std::uint8_t>, int> counts;
  for (std::int64_t sample = 0; sample < 8000; ++sample) {
    Memory image(counted<std::uint8_t>(6)), to(2);
    random_crop(image, type, to, part, 1, {.seed = 3, .epoch = 1, .sample = sample});
    ++counts[to.as<std::uint8_t>()];
  }
  // 4 lines by 4 columns: the outer two columns are zeros, the others have 4 contents each.
  ASSERT_EQ(counts.size(), 9u);
  for (const auto& [seen, count] : counts) {
    const bool is_outside = seen == std::vector<std::uint8_t>{0, 0};
    EXPECT_NEAR(count, is_outside ? 4000 : 500, is_outside ? 179 : 87) << int{seen[0]} << " " << int{seen[1]};
  }
}

TEST(PreprocessTest, ChoicesDependOnTheKeyAlone) {
  const TensorType type{u8, {8, 8}}, part{u8, {2, 2}};
  auto choices = [&](const SampleKey& first) {
    std::vector<std::uint8_t> all;
    SampleKey key = first;
    for (int i = 0; i < 50; ++i, ++key.sample) {
      Memory image(counted<std::uint8_t>(64)), to(4);
      random_crop(image, type, to, part, 0, key);
      all.push_back(to.as<std::uint8_t>()[0]);
      all.push_back(random_flip(image, type, key));
    }
    return all;
  };
  const auto seen = choices({1, 2, 3});
  EXPECT_EQ(seen, choices({1, 2, 3}));
  EXPECT_NE(seen, choices({2, 2, 3}));
  EXPECT_NE(seen, choices({1, 3, 3}));
  EXPECT_NE(seen, choices({1, 2, 4}));
  // The same on every machine.
  EXPECT_EQ(std::vector<std::uint8_t>(seen.begin(), seen.begin() + 8),
            (std::vector<std::uint8_t>{28, 0, 7, 1, 46, 1, 13, 1}));
}

TEST(PreprocessTest, WrongRandomPartsAreRefused) {
  const TensorType type{u8, {3, 2}}, part{u8, {2, 3}};
  Memory image(6), to(6);
  random_crop(image, type, to, part, 1, {});
  expect_refused([&] { random_crop(image, type, to, part, 0, {}); },
                 {"fits into u8[3, 2] with a border of 0", "u8[2, 3]"});
  expect_refused([&] { random_crop(image, type, to, part, -1, {}); }, {"padding from 0 to 2^31, seen -1"});
  expect_refused([&] { random_crop(image, type, to, part, std::int64_t{1} << 62, {}); }, {"padding from 0"});
  expect_refused([&] { random_crop(image, type, to, part, 1, {.epoch = -1}); }, {"at least 0, seen -1 and 0"});
  expect_refused([&] { random_flip(image, type, {.sample = -2}); }, {"seen 0 and -2"});
  expect_refused([&] { random_flip(image, {u8, {6}}, {}); }, {"random_flip", "[height, width]"});
}

}  // namespace
}  // namespace graphsink::preprocess_test
