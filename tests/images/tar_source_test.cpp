// Tar files as WebDataset writes them: samples and their order, and shards that are damaged or change.
#include <gtest/gtest.h>
#include <zlib.h>

#include <chrono>
#include <random>

#include "image_files.h"
#include "images/tar_index.h"
#include "working_directory.h"

namespace graphsink::tar_source_test {
namespace {

namespace fs = std::filesystem;
using testing::expect_words;
using testing::label_of;
using testing::png_file;
using testing::refusal_of;
using testing::sample_of;
using testing::tar_file;
using testing::TarFiles;

std::string image(char pixel) { return png_file({.height = 2, .width = 2, .rows = std::string(4, pixel)}); }

const TarFiles kTwo = {{"000.png", image('a')}, {"000.cls", "7"}, {"001.png", image('b')}, {"001.cls", "0\n"}};

class TarSourceTest : public ::testing::Test {
 protected:
  fs::path write(const std::string& name, const std::string& bytes) const {
    testing::write_bytes(directory_ / name, bytes);
    return directory_ / name;
  }
  std::string refusal(const std::string& bytes) const {
    const fs::path path = write("x.tar", bytes);
    return refusal_of([&] { tar_source({path}); });
  }
  // The first pixel and the label of each sample.
  static std::string summary(const Source& source) {
    std::string text;
    for (std::int64_t i = 0; i < source.size(); ++i) {
      text += sample_of(source, i)[0].substr(0, 1) + std::to_string(label_of(source, i)) + " ";
    }
    return text;
  }
  std::string summary_of(const std::string& bytes) const {
    return summary(*tar_source({write("x.tar", bytes)}, {.is_scaled = false}));
  }

  TemporaryDirectory directory_;
};

TEST_F(TarSourceTest, SamplesOfAllShardsInTheirOrder) {
  const fs::path second = write("1.tar", tar_file(kTwo)),
                 first = write("0.tar", tar_file({{"000.cls", "3"}, {"000.jpg", image('c')}}));
  const auto source = tar_source({first, second}, {.is_scaled = false, .image = "x", .label = "t"});
  EXPECT_EQ(source->fields(), (std::vector<Field>{{"x", {u8, {1, 2, 2}}}, {"t", {i32, {}}}}));
  EXPECT_EQ(summary(*source), "c3 a7 b0 ");
}

TEST_F(TarSourceTest, NamesOfEveryFormat) {
  const std::string folder = std::string(90, 'd') + "/" + std::string(90, 'e') + "/" + std::string(90, 'f') + "/";
  const TarFiles files = {
      {"d/", ""},         {folder + "1.png", image('a')}, {folder + "1.cls", "1"}, {"d.1/2.png", image('b')},
      {"d.1/2.cls", "2"}, {"\xc3\xa4.png", image('c')},   {"\xc3\xa4.cls", "3"},   {"d/2.png", image('d')},
      {"d/2.cls", "4"}};
  for (const char* format : {"gnutar", "pax"}) {
    SCOPED_TRACE(format);
    EXPECT_EQ(summary_of(tar_file(files, format)), "a1 b2 c3 d4 ");
  }
}

TEST_F(TarSourceTest, FilesOfASampleNeedNotBeNeighboursAndOthersArePassedOver) {
  const TarFiles files = {{"b.png", image('b')}, {"a.json", "{}"},      {"a.cls", "1"},     {"README", "hello"},
                          {".png", "no image"},  {"a.PNG", image('a')}, {"a.seg.png", "x"}, {"b.cls", " 2"}};
  expect_words(refusal(tar_file(files)), {"entry \"b.cls\"", "seen \" 2\""});
  TarFiles good = files;
  good.back().second = "2 \r\n";
  EXPECT_EQ(summary_of(tar_file(good)), "b2 a1 ");
}

TEST_F(TarSourceTest, SamplesThatAreNotWholeAreRefused) {
  auto with = [](const TarFiles& more) {
    TarFiles files = kTwo;
    files.insert(files.end(), more.begin(), more.end());
    return tar_file(files);
  };
  expect_words(refusal(with({{"k/2.png", image('c')}})), {"x.tar", "sample \"k/2\": has no label", "KEY.cls"});
  expect_words(refusal(with({{"2.cls", "1"}})), {"x.tar", "sample \"2\": has no image"});
  expect_words(refusal(with({{"001.jpg", image('c')}})), {"entry \"001.jpg\"", "sample \"001\" has two images"});
  expect_words(refusal(with({{"001.cls", "5"}})), {"entry \"001.cls\"", "sample \"001\" has two labels"});
  for (const char* label :
       {"", "one", "-1", "1.5", "2147483648", "1 2", "0x1", "00000000000000000000000000000000001"}) {
    SCOPED_TRACE(label);
    expect_words(refusal(with({{"2.png", image('c')}, {"2.cls", label}})), {"entry \"2.cls\"", "number of a class"});
  }
  expect_words(refusal(tar_file({{"README", "hello"}})), {"x.tar", "expected samples, seen none"});
  expect_words(refusal_of([] { tar_source({}); }, ErrorCode::misuse), {"tar_source", "at least 1 shard"});
}

TEST_F(TarSourceTest, AnImageThatIsRefusedIsNamed) {
  const fs::path path =
      write("x.tar", tar_file({{"0.png", image('a')}, {"0.cls", "0"}, {"1.png", "?"}, {"1.cls", "0"}}));
  const auto source = tar_source({path});
  expect_words(refusal_of([&] { sample_of(*source, 1); }),
               {"x.tar", "entry \"1.png\"", "expected a PNG or JPEG image"});
}

TEST_F(TarSourceTest, AShardThatIsCutOffAnywhereIsRefused) {
  const std::string good = tar_file(kTwo);
  ASSERT_EQ(good.size(), 4u * 1024 + 1024);
  for (std::size_t size = 0; size < good.size() - 512; size += size % 512 == 0 || size % 512 == 511 ? 1 : 85) {
    SCOPED_TRACE(size);
    const std::string message = refusal(good.substr(0, size));
    expect_words(message, {"x.tar", "remedy"});
  }
  // One of the two empty blocks at the end is enough.
  EXPECT_EQ(summary_of(good.substr(0, good.size() - 512)), "a7 b0 ");
  expect_words(refusal(good.substr(0, 4 * 1024)), {"is truncated: expected an empty block", "at byte 4096"});
  expect_words(refusal(good.substr(0, 512 + 20)), {"entry \"000.png\"", "is truncated"});
}

TEST_F(TarSourceTest, WhatIsNoTarFileIsRefused) {
  expect_words(refusal(std::string(2048, 'x')), {"x.tar", "is no tar file, or is damaged"});
  expect_words(refusal(""), {"x.tar"});
  const fs::path packed = directory_ / "x.tar.gz";
  const std::string bytes = tar_file(kTwo);
  gzFile file = gzopen(packed.c_str(), "wb");
  gzwrite(file, bytes.data(), static_cast<unsigned>(bytes.size()));
  gzclose(file);
  expect_words(refusal_of([&] { tar_source({packed}); }), {"x.tar.gz", "is no tar file", "gunzip"});
  expect_words(refusal_of([&] { tar_source({directory_ / "nowhere.tar"}); }), {"nowhere.tar", "cannot open"});
  expect_words(refusal_of([&] { tar_source({directory_.path()}); }), {"is not a regular file"});
}

// Sets the checksum of the header at a byte, which counts blanks in its own place.
void mend_header(std::string& bytes, std::size_t at) {
  unsigned sum = 0;
  for (std::size_t i = 0; i < 512; ++i) sum += i >= 148 && i < 156 ? ' ' : static_cast<std::uint8_t>(bytes[at + i]);
  for (std::size_t digit = 0; digit < 6; ++digit) {
    bytes[at + 148 + digit] = static_cast<char>('0' + (sum >> (15 - 3 * digit) & 7));
  }
}

TEST_F(TarSourceTest, AnEntryThatClaimsMoreThanThereIsIsRefused) {
  std::string bytes = tar_file(kTwo);
  bytes.replace(124, 11, "77777777777");  // octal digits of the size
  mend_header(bytes, 0);
  expect_words(refusal(bytes), {"x.tar", "entry \"000.png\"", "is truncated: expected 8589934591 bytes from byte 512"});
}

TEST_F(TarSourceTest, LinksInThePlaceOfASampleAreRefused) {
  for (const char type : {'1', '2'}) {  // hard, symbolic
    for (const char* name : {"2.png", "2.JPG", "2.jpeg", "2.cls", "README", "2.json"}) {
      SCOPED_TRACE(std::string(name) + ", type " + type);
      TarFiles files = {{name, ""}};
      files.insert(files.end(), kTwo.begin(), kTwo.end());
      std::string bytes = tar_file(files);
      bytes[156] = type;
      bytes.replace(157, 7, "000.png");
      mend_header(bytes, 0);
      if (name[0] == 'R' || name[3] == 's') {
        EXPECT_EQ(summary_of(bytes), "a7 b0 ");
      } else {
        expect_words(refusal(bytes),
                     {"x.tar", "entry \"" + std::string(name) + "\": is a link", "--dereference --hard-dereference"});
      }
    }
  }
}

TEST_F(TarSourceTest, FilesWithHolesAreRefused) {
  const TarFiles with_hole = {{"3.png", std::string(2000, 'x')}, {"3.cls", "1"}};
  expect_words(refusal(tar_file(with_hole, "pax", "3.png")), {"entry \"3.png\"", "is stored with holes", "--sparse"});
}

TEST_F(TarSourceTest, TheIndexIsOfTheFileThatIsOpen) {
  const std::string large(100'000, 'x');  // longer than what is read at a time
  const fs::path path = write("x.tar", tar_file({{"0.json", large}, {"1.json", "{}"}}));
  const DataFile file(path, {});
  fs::rename(write("y.tar", tar_file(kTwo)), path);
  const std::vector<TarEntry> entries = read_tar_index(file);
  ASSERT_EQ(entries.size(), 2u);
  EXPECT_EQ(entries[0].name, "0.json");
  EXPECT_EQ(entries[1].name, "1.json");
  EXPECT_EQ(entries[1].begin, 512u + 100'352 + 512);
}

TEST_F(TarSourceTest, AShardThatChangesWhileItIsIndexedIsAnError) {
  const fs::path path = write("x.tar", tar_file(kTwo));
  const DataFile file(path, {});
  fs::resize_file(path, 512);
  try {
    read_tar_index(file);
    FAIL() << "no Error";
  } catch (const Error& error) {
    expect_words(error.what(), {"x.tar", "is truncated: expected", "remedy"});
  }
}

TEST_F(TarSourceTest, TheProcessMayGoToAnotherFolder) {
  const fs::path shard = write("x.tar", tar_file(kTwo));
  const WorkingDirectory before(shard.parent_path());
  const auto source = tar_source({"x.tar"}, {.is_scaled = false});
  fs::current_path("/");
  EXPECT_EQ(summary(*source), "a7 b0 ");
}

TEST_F(TarSourceTest, AShardThatWasChangedOrHasGoneIsAnError) {
  const fs::path path = write("x.tar", tar_file(kTwo));
  const auto source = tar_source({path});
  fs::last_write_time(path, fs::last_write_time(path) + std::chrono::seconds(1));
  expect_words(refusal_of([&] { sample_of(*source, 0); }), {"x.tar", "was changed", "rename"});
  fs::remove(path);
  expect_words(refusal_of([&] { sample_of(*source, 1); }), {"x.tar", "cannot open"});
}

TEST_F(TarSourceTest, DamagedShardsAreReadOrRefused) {
  std::mt19937_64 random(11);
  int read = 0;
  for (const char* format : {"pax", "gnutar"}) {
    const std::string good =
        tar_file({{std::string(150, 'k') + ".png", image('a')}, {std::string(150, 'k') + ".cls", "1"}}, format);
    for (int i = 0; i < 250; ++i) {
      std::string bytes = good;
      for (std::uint64_t n = random() % 3 + 1; n > 0; --n) bytes[random() % bytes.size()] = static_cast<char>(random());
      const fs::path path = write("x.tar", bytes);
      try {
        sample_of(*tar_source({path}), 0);
        ++read;
      } catch (const Error& error) {
        EXPECT_NE(std::string(error.what()).find("x.tar"), std::string::npos) << error.what();
      }
    }
  }
  EXPECT_GT(read, 0);
  EXPECT_LT(read, 400);
}

}  // namespace
}  // namespace graphsink::tar_source_test
