// Images of all kinds: what is decoded, scaled and converted, and that damaged ones are refused.
#include <cstring>
#include <random>

#include "image_files.h"
#include "images/decode.h"
#include "resident_bytes.h"

namespace graphsink::decode_test {
namespace {

using namespace std::string_literals;
using testing::expect_words;
using testing::jpeg_file;
using testing::JpegScans;
using testing::png_file;
using testing::refusal_of;

class DecodeTest : public ::testing::Test {
 protected:
  // A source of one image of class 0, which is given what the options leave out.
  std::shared_ptr<const Source> source_of(const std::string& file, ImageOptions options = {.is_scaled = false}) {
    testing::write_bytes(directory_ / "class" / "image.png", file);
    return image_folder_source(directory_.path(), options);
  }
  // Its elements.
  std::string decoded(const std::string& file, ImageOptions options = {.is_scaled = false}) {
    return testing::sample_of(*source_of(file, options), 0)[0];
  }
  TensorType type_of(const std::string& file, ImageOptions options = {.is_scaled = false}) {
    return source_of(file, options)->fields()[0].type;
  }
  std::string refusal(const std::string& file, ImageOptions options = {}) {
    return refusal_of([&] { decoded(file, options); });
  }

  TemporaryDirectory directory_;
};

constexpr int kRgb = 2, kPalette = 3, kGreyAlpha = 4, kRgba = 6;

// --- PNG

TEST_F(DecodeTest, GreyIsOneChannel) {
  const std::string file = png_file({.height = 2, .width = 3, .rows = "\x00\x33\xff\x01\x02\x03"s});
  EXPECT_EQ(type_of(file), (TensorType{u8, {1, 2, 3}}));
  EXPECT_EQ(decoded(file), "\x00\x33\xff\x01\x02\x03"s);
  EXPECT_EQ(decoded(file, {.channels = 3, .is_scaled = false}),
            "\x00\x33\xff\x01\x02\x03\x00\x33\xff\x01\x02\x03\x00\x33\xff\x01\x02\x03"s);
  EXPECT_EQ(type_of(file, {}), (TensorType{f32, {1, 2, 3}}));
  const std::string scaled = decoded(file, {});
  float second = 0;
  std::memcpy(&second, scaled.data() + sizeof second, sizeof second);
  EXPECT_EQ(second, 0x33 / 255.0f);
}

TEST_F(DecodeTest, FewBitsAreSpreadAndManyAreRounded) {
  EXPECT_EQ(decoded(png_file({.height = 1, .width = 3, .bits = 1, .rows = "\xa0"})), "\xff\x00\xff"s);
  EXPECT_EQ(decoded(png_file({.height = 1, .width = 3, .bits = 2, .rows = "\x18"})), "\x00\x55\xaa"s);
  EXPECT_EQ(decoded(png_file({.height = 1, .width = 2, .bits = 4, .rows = "\x1f"})), "\x11\xff"s);
  EXPECT_EQ(decoded(png_file({.height = 1, .width = 3, .bits = 16, .rows = "\x00\x00\x80\x80\xff\xff"s})),
            "\x00\x80\xff"s);
}

TEST_F(DecodeTest, ColoursAreThreePlanes) {
  const std::string file = png_file({.height = 1, .width = 2, .colour = kRgb, .rows = "abcdef"});
  EXPECT_EQ(type_of(file), (TensorType{u8, {3, 1, 2}}));
  EXPECT_EQ(decoded(file), "adbecf");
  // 0.299 red + 0.587 green + 0.114 blue, rounded.
  const std::string colours =
      png_file({.height = 1, .width = 4, .colour = kRgb, .rows = "\xff\0\0\0\xff\0\0\0\xff\xff\xff\xff"s});
  EXPECT_EQ(decoded(colours, {.channels = 1, .is_scaled = false}), "\x4c\x96\x1d\xff"s);
}

TEST_F(DecodeTest, APaletteIsLookedUp) {
  const std::string file =
      png_file({.height = 1, .width = 4, .bits = 2, .colour = kPalette, .rows = "\x24", .palette = "abcdefghi"});
  EXPECT_EQ(decoded(file),
            "agda"
            "bheb"
            "cifc");
  const std::string with_alpha = png_file(
      {.height = 1, .width = 2, .colour = kPalette, .rows = "\1\0"s, .palette = "abcdef", .transparency = "\x80"});
  EXPECT_EQ(decoded(with_alpha),
            "da"
            "eb"
            "fc");
  EXPECT_EQ(decoded(with_alpha, {.channels = 4, .is_scaled = false}),
            "da"
            "eb"
            "fc"
            "\xff\x80"s);
  const std::string wrong = png_file({.height = 1, .width = 1, .colour = kPalette, .rows = "\1"});
  expect_words(refusal(wrong), {"image.png", "is damaged", "remedy"});
}

TEST_F(DecodeTest, AlphaIsDroppedOrKept) {
  const std::string file = png_file({.height = 1, .width = 2, .colour = kRgba, .rows = "abcdefgh"});
  EXPECT_EQ(type_of(file), (TensorType{u8, {3, 1, 2}}));
  EXPECT_EQ(decoded(file), "aebfcg");
  EXPECT_EQ(decoded(file, {.channels = 4, .is_scaled = false}), "aebfcgdh");
  const std::string grey = png_file({.height = 1, .width = 2, .colour = kGreyAlpha, .rows = "a\0c\xff"s});
  EXPECT_EQ(decoded(grey), "ac");
  EXPECT_EQ(decoded(grey, {.channels = 4, .is_scaled = false}), "acacac\0\xff"s);
  const std::string opaque = png_file({.height = 1, .width = 1, .colour = kRgb, .rows = "abc"});
  EXPECT_EQ(decoded(opaque, {.channels = 4, .is_scaled = false}), "abc\xff");
}

TEST_F(DecodeTest, AnotherGammaIsConvertedToThatOfSrgb) {
  std::string file = png_file({.height = 1, .width = 3, .rows = "\x00\x80\xff"s});
  file.insert(8 + 25, testing::png_chunk("gAMA", "\x00\x01\x86\xa0"s));  // behind the header; 1, times 100,000
  EXPECT_EQ(decoded(file), "\x00\xba\xff"s);
}

TEST_F(DecodeTest, InterlacedLinesComeToTheirPlaces) {
  // The first, sixth and seventh pass of Adam7 have pixels of 2 x 2.
  EXPECT_EQ(decoded(png_file({.height = 2, .width = 2, .interlaced = "\0a\0b\0cd"s})), "abcd");
}

TEST_F(DecodeTest, APngThatIsCutOffAnywhereIsRefused) {
  const std::string file = png_file({.height = 4, .width = 4, .colour = kRgb, .rows = std::string(48, 'x')});
  for (std::size_t size = 0; size < file.size(); ++size) {
    SCOPED_TRACE(size);
    const std::string message = refusal(file.substr(0, size));
    expect_words(message, {"image.png", size < 8 ? "expected a PNG or JPEG image, seen" : "is truncated"});
  }
}

TEST_F(DecodeTest, APngWithAWrongBitIsRefused) {
  const std::string file = png_file({.height = 4, .width = 4, .rows = std::string(16, 'x')});
  for (std::size_t at = 8; at < file.size(); ++at) {
    SCOPED_TRACE(at);
    std::string damaged = file;
    damaged[at] = static_cast<char>(damaged[at] ^ 4);
    EXPECT_NE(refusal(damaged), "no Error");
  }
}

TEST_F(DecodeTest, APngWithTooFewPixelsIsRefused) {
  std::string file = png_file({.height = 4, .width = 4, .rows = std::string(12, 'x')});
  expect_words(refusal(file), {"image.png", "is damaged: expected a PNG image, seen: "});
}

TEST_F(DecodeTest, TextsAndProfilesOfAPngAreNotUnpacked) {
  const std::string text = testing::packed(std::string(7'900'000, 'x'));  // the decoder takes up to 8,000,000 bytes
  std::string chunks;
  for (int i = 0; i < 8; ++i) {
    const std::string key = "key" + std::to_string(i);
    chunks += testing::png_chunk("zTXt", key + "\0\0"s + text);
    chunks += testing::png_chunk("iTXt", key + "\0\1\0\0\0"s + text);
  }
  chunks += testing::png_chunk("iCCP", "profile\0\0"s + text);
  std::string file = png_file({.height = 1, .width = 3, .rows = "\x00\x80\xff"s});
  file.insert(8 + 25, chunks);  // behind the header
  const std::size_t before = testing::resident_bytes();
  std::size_t behind_header = 0;
  decode_png(std::as_bytes(std::span(file)), {}, [&](auto...) { behind_header = testing::resident_bytes(); });
  EXPECT_GT(behind_header, 0u);
  EXPECT_LT(behind_header, before + (16u << 20));
  EXPECT_EQ(decoded(file), "\x00\x80\xff"s);
}

// --- JPEG

// A ramp, which JPEG keeps to within a few units.
std::string ramp(int height, int width, int components) {
  std::string rows;
  for (int y = 0; y < height; ++y)
    for (int x = 0; x < width; ++x)
      for (int c = 0; c < components; ++c) rows += static_cast<char>(40 + 8 * y + 4 * x + 20 * c);
  return rows;
}

TEST_F(DecodeTest, JpegOfGreyAndOfColours) {
  for (const JpegScans scans : {JpegScans::one, JpegScans::progressive, JpegScans::of_each_colour}) {
    for (const int components : {1, 3}) {
      SCOPED_TRACE(std::to_string(components) + ", scans " + std::to_string(static_cast<int>(scans)));
      const std::string rows = ramp(9, 13, components), file = jpeg_file(9, 13, components, rows, scans);
      EXPECT_EQ(type_of(file), (TensorType{u8, {components, 9, 13}}));
      const std::string pixels = decoded(file);
      for (std::size_t i = 0; i < 9 * 13; ++i) {
        for (std::size_t c = 0; c < static_cast<std::size_t>(components); ++c) {
          const int expected = static_cast<std::uint8_t>(rows[i * static_cast<std::size_t>(components) + c]);
          EXPECT_NEAR(static_cast<std::uint8_t>(pixels[c * 9 * 13 + i]), expected, 6) << i;
        }
      }
    }
  }
}

TEST_F(DecodeTest, AJpegThatIsCutOffAnywhereIsRefused) {
  for (const JpegScans scans : {JpegScans::one, JpegScans::progressive}) {
    const std::string file = jpeg_file(9, 13, 1, ramp(9, 13, 1), scans);
    for (std::size_t size = 3; size < file.size(); ++size) {
      SCOPED_TRACE(size);
      expect_words(refusal(file.substr(0, size)), {"image.png", "is damaged or truncated: expected a JPEG image"});
    }
  }
}

TEST_F(DecodeTest, AJpegThatIsCutOffBehindItsPixelsIsRefused) {
  std::string file = jpeg_file(8, 8, 1, ramp(8, 8, 1));
  file.insert(file.size() - 2, "\xff\xfe\0\x10 a comment    "s);
  EXPECT_EQ(decoded(file).size(), 64u);
  for (std::size_t cut = 1; cut < 19; ++cut) {
    SCOPED_TRACE(cut);
    expect_words(refusal(file.substr(0, file.size() - cut)), {"image.png", "is damaged or truncated"});
  }
}

TEST_F(DecodeTest, BytesBetweenThePartsOfAJpegAreDamageBehindItsHeader) {
  std::string file = jpeg_file(8, 8, 1, ramp(8, 8, 1));
  const std::string pixels = decoded(file);
  file.insert(file.rfind("\xff\xda"), "abc");
  EXPECT_EQ(decoded(file), pixels);
  file.insert(file.size() - 2, std::string(64, 'a'));  // more than the decoder reads ahead
  expect_words(refusal(file), {"image.png", "is damaged or truncated", "extraneous bytes before marker 0xd9"});
  std::string scans = jpeg_file(8, 8, 1, ramp(8, 8, 1), JpegScans::progressive);
  scans.insert(scans.rfind("\xff\xda"), "abc");
  expect_words(refusal(scans), {"image.png", "is damaged or truncated", "extraneous bytes before marker 0xda"});
}

TEST_F(DecodeTest, AJpegOfFourInksIsRefused) {
  expect_words(refusal(jpeg_file(8, 8, 4, ramp(8, 8, 4))), {"image.png", "seen 4 components", "convert it to RGB"});
}

TEST_F(DecodeTest, AJpegOfTooManyScansIsRefused) {
  const std::string file = jpeg_file(8, 8, 3, ramp(8, 8, 3), JpegScans::of_each_colour);
  const std::size_t last = file.rfind("\xff\xda"), end = file.size() - 2;
  // With the last scan once more, and again.
  auto with = [&](int more) {
    std::string many = file.substr(0, end);
    for (int i = 0; i < more; ++i) many += file.substr(last, end - last);
    return many + file.substr(end);
  };
  EXPECT_EQ(decoded(with(497)), decoded(file));
  expect_words(refusal(with(498)), {"image.png", "more than 500 scans"});
}

// --- sizes

TEST_F(DecodeTest, AnotherSizeIsRefusedOrScaled) {
  const std::string file = png_file({.height = 1, .width = 2, .rows = "\0\x65"s});
  expect_words(refusal(file, {.height = 1, .width = 4}),
               {"image.png", "expected an image of 1 rows of 4 pixels, seen 1 rows of 2 pixels", "is_resized"});
  EXPECT_EQ(decoded(file, {.height = 1, .width = 4, .is_resized = true, .is_scaled = false}), "\x00\x19\x4c\x65"s);
  EXPECT_EQ(decoded(file, {.height = 3, .width = 1, .is_resized = true, .is_scaled = false}), "\x33\x33\x33"s);
  expect_words(refusal(jpeg_file(9, 13, 1, ramp(9, 13, 1)), {.channels = 1, .height = 9, .width = 12}),
               {"image.png", "expected an image of 9 rows of 12 pixels, seen 9 rows of 13 pixels"});
}

TEST_F(DecodeTest, WhatShrinksIsFilteredSoThatAllPixelsCount) {
  // Weights 3, 3, 1 of the places 0, 1, 2 make the first half, and those mirrored the second.
  const std::string file = png_file({.height = 1, .width = 4, .rows = "\0\0\x46\x46"s});
  EXPECT_EQ(decoded(file, {.height = 1, .width = 2, .is_resized = true, .is_scaled = false}), "\x0a\x3c"s);
  // Colours stay apart, and lines as columns.
  const std::string colours = png_file({.height = 4,
                                        .width = 1,
                                        .colour = kRgb,
                                        .rows = "\0a\xff\0a\xff\x46"
                                                "a\xff\x46"
                                                "a\xff"s});
  EXPECT_EQ(decoded(colours, {.height = 2, .width = 1, .is_resized = true, .is_scaled = false}),
            "\x0a\x3c"
            "aa\xff\xff"s);
}

TEST_F(DecodeTest, AnImageThatIsTooLargeIsRefusedBeforeMemoryIsTaken) {
  // It claims 3.6 billion pixels and has none.
  const std::string file = png_file({.height = 60000, .width = 60000});
  expect_words(refusal(file), {"image.png", "at most 67108864 pixels, seen 60000 rows of 60000", "most_pixels"});
  expect_words(refusal(file, {.channels = 1, .height = 8, .width = 8}), {"at most 67108864 pixels"});
  const std::string small = png_file({.height = 3, .width = 3, .rows = "123456789"});
  expect_words(refusal(small, {.most_pixels = 8}), {"at most 8 pixels"});
  EXPECT_EQ(decoded(small, {.is_scaled = false, .most_pixels = 9}), "123456789");
}

TEST_F(DecodeTest, WhatIsNoImageIsRefused) {
  expect_words(refusal("GIF89a and more"), {"image.png", "expected a PNG or JPEG image, seen 15 bytes"});
  expect_words(refusal(""), {"seen 0 bytes"});
}

TEST_F(DecodeTest, OptionsOutOfTheirRangesAreRefused) {
  auto refused = [&](const ImageOptions& options) {
    return refusal_of([&] { image_folder_source(directory_.path(), options); }, ErrorCode::misuse);
  };
  expect_words(refused({.channels = 2}), {"image_folder_source", "ImageOptions::channels"});
  expect_words(refused({.channels = 5}), {"from 0 to 4, seen 5"});
  expect_words(refused({.height = -1}), {"ImageOptions::height"});
  expect_words(refused({.width = 65537}), {"ImageOptions::width"});
  expect_words(refused({.most_pixels = 0}), {"ImageOptions::most_pixels"});
}

// --- damage

// Each is decoded or refused; a sanitizer reports anything else.
void read_damaged(const std::filesystem::path& folder, const std::string& good, bool is_png) {
  std::mt19937_64 random(7);
  int read = 0;
  for (int i = 0; i < 500; ++i) {
    std::string bytes = good;
    for (std::uint64_t n = random() % 4 + 1; n > 0; --n) {
      const std::size_t at = random() % bytes.size();
      switch (random() % 3) {
        case 0:
          bytes[at] = static_cast<char>(random());
          break;
        case 1:
          bytes.erase(at, random() % 8 + 1);
          break;
        default:
          bytes.insert(at, bytes.substr(random() % bytes.size(), random() % 8));
      }
      if (bytes.empty()) bytes = "x";
    }
    if (is_png && i % 4 != 0) testing::mend_png(bytes);
    testing::write_bytes(folder / "class" / "image.jpg", bytes);
    try {
      testing::sample_of(*image_folder_source(folder, {.height = 5, .width = 5, .is_resized = true}), 0);
      ++read;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("image.jpg"), std::string::npos) << error.what();
    }
  }
  EXPECT_LT(read, 400);
}

TEST_F(DecodeTest, DamagedPngIsReadOrRefused) {
  const std::string rows = ramp(8, 8, 1);
  read_damaged(directory_.path(), png_file({.height = 8, .width = 8, .rows = rows}), true);
  read_damaged(
      directory_.path(),
      png_file(
          {.height = 8, .width = 8, .colour = kPalette, .rows = std::string(64, '\1'), .palette = rows.substr(0, 60)}),
      true);
}
TEST_F(DecodeTest, DamagedJpegIsReadOrRefused) {
  read_damaged(directory_.path(), jpeg_file(16, 16, 3, ramp(16, 16, 3)), false);
  read_damaged(directory_.path(), jpeg_file(16, 16, 1, ramp(16, 16, 1), JpegScans::progressive), false);
}

}  // namespace
}  // namespace graphsink::decode_test
