// Images in class folders: their order and labels, what is passed over, and files that change.
#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <system_error>
#include <thread>

#include "image_files.h"
#include "working_directory.h"

namespace graphsink::folder_source_test {
namespace {

namespace fs = std::filesystem;
using testing::expect_words;
using testing::label_of;
using testing::png_file;
using testing::refusal_of;
using testing::sample_of;

// The system's words, which are those of the process's language.
std::string reason(int code) { return std::generic_category().message(code); }

// A grey image of 2 x 2 pixels.
std::string image(char pixel) { return png_file({.height = 2, .width = 2, .rows = std::string(4, pixel)}); }

class FolderSourceTest : public ::testing::Test {
 protected:
  fs::path write(const std::string& name, const std::string& bytes) const {
    testing::write_bytes(directory_ / name, bytes);
    return directory_ / name;
  }
  std::shared_ptr<const ImageFolderSource> source(const ImageOptions& options = {.is_scaled = false}) const {
    return image_folder_source(directory_.path(), options);
  }
  std::string refusal() const {
    return refusal_of([&] { source(); });
  }

  TemporaryDirectory directory_;
};

TEST_F(FolderSourceTest, ClassesAndFilesAreSortedByName) {
  write("dog/b.png", image('b'));
  write("dog/A.PNG", image('A'));
  write("dog/a.Jpg", image('a'));
  write("cat/z.jpeg", image('z'));
  write("Ant/1.png", image('1'));
  const auto images = source({.is_scaled = false, .image = "x", .label = "t"});
  EXPECT_EQ(images->classes(), (std::vector<std::string>{"Ant", "cat", "dog"}));
  EXPECT_EQ(images->fields(), (std::vector<Field>{{"x", {u8, {1, 2, 2}}}, {"t", {i32, {}}}}));
  std::string pixels;
  std::vector<int> labels;
  for (std::int64_t i = 0; i < images->size(); ++i) {
    pixels += sample_of(*images, i)[0].substr(0, 1);
    labels.push_back(label_of(*images, i));
  }
  EXPECT_EQ(pixels, "1zAab");
  EXPECT_EQ(labels, (std::vector<int>{0, 1, 2, 2, 2}));
}

TEST_F(FolderSourceTest, OtherFilesArePassedOver) {
  for (const char* name : {"notes.txt", ".hidden/a.png", "dog/.a.png", "dog/list.txt", "dog/png", "dog/a.png.bak",
                           "dog/more/a.png", "dog/x.png/inside.txt"}) {
    write(name, "no image");
  }
  write("dog/a.png", image('a'));
  fs::create_directory(directory_ / "empty");
  EXPECT_EQ(source()->classes(), (std::vector<std::string>{"dog", "empty"}));
  EXPECT_EQ(source()->size(), 1);
}

TEST_F(FolderSourceTest, TheFirstImageSaysWhatOptionsLeaveOut) {
  write("a/1.png", png_file({.height = 2, .width = 3, .colour = 2, .rows = std::string(18, 'x')}));
  write("a/2.png", image('y'));
  const auto images = source();
  EXPECT_EQ(images->fields()[0].type, (TensorType{u8, {3, 2, 3}}));
  expect_words(refusal_of([&] { sample_of(*images, 1); }),
               {"a/2.png", "expected an image of 2 rows of 3 pixels, seen 2 rows of 2 pixels"});
  const auto squares = source({.channels = 1, .width = 2, .is_resized = true, .is_scaled = false});
  EXPECT_EQ(squares->fields()[0].type, (TensorType{u8, {1, 2, 2}}));
  EXPECT_EQ(sample_of(*squares, 0)[0], "xxxx");
  EXPECT_EQ(sample_of(*squares, 1)[0], "yyyy");
}

TEST_F(FolderSourceTest, FoldersWithoutImagesAreRefused) {
  expect_words(refusal(), {directory_.path(), "expected a folder for each class, seen none", "FOLDER/CLASS"});
  write("a.png", image('a'));
  expect_words(refusal(), {"expected a folder for each class"});
  fs::create_directory(directory_ / "dog");
  expect_words(refusal(), {"expected images in its 1 folders, seen none"});
  expect_words(refusal_of([&] { image_folder_source(directory_ / "nowhere"); }),
               {"nowhere", "cannot read the folder: " + reason(ENOENT)});
  expect_words(refusal_of([&] { image_folder_source(directory_ / "a.png"); }), {"a.png", reason(ENOTDIR)});
  fs::create_symlink("gone", directory_ / "dog" / "link.png");
  expect_words(refusal(), {"link.png", "cannot open"});
}

TEST_F(FolderSourceTest, AFileThatIsTooLargeForAnImageIsRefused) {
  fs::resize_file(write("dog/a.png", image('a')), (std::uintmax_t{1} << 28) + 1);
  const auto images = source({.channels = 1, .height = 2, .width = 2});
  expect_words(refusal_of([&] { sample_of(*images, 0); }),
               {"dog/a.png", "expected an image of at most 268435456 bytes, seen 268435457"});
}

TEST_F(FolderSourceTest, AFileThatWasChangedOrHasGoneIsAnError) {
  const fs::path a = write("dog/a.png", image('a')), b = write("dog/b.png", image('b'));
  const auto images = source();
  write("dog/c.png", image('c'));
  EXPECT_EQ(images->size(), 2);
  fs::last_write_time(a, fs::last_write_time(a) + std::chrono::seconds(1));
  expect_words(refusal_of([&] { sample_of(*images, 0); }), {"dog/a.png", "was changed", "rename"});
  const auto time = fs::last_write_time(b);
  write("dog/b.png", image('b') + "x");
  fs::last_write_time(b, time);
  expect_words(refusal_of([&] { sample_of(*images, 1); }), {"dog/b.png", "was changed"});
  fs::remove(b);
  expect_words(refusal_of([&] { sample_of(*images, 1); }), {"dog/b.png", "cannot open: " + reason(ENOENT)});
  fs::remove_all(directory_ / "dog");
  expect_words(refusal_of([&] { sample_of(*images, 0); }), {"dog/a.png", "cannot open"});
}

TEST_F(FolderSourceTest, TheProcessMayGoToAnotherFolder) {
  write("data/0/a.png", image('a'));
  const WorkingDirectory before(directory_.path());
  const auto images = image_folder_source("data", {.is_scaled = false});
  fs::current_path("data");
  EXPECT_EQ(sample_of(*images, 0)[0], "aaaa");
}

TEST_F(FolderSourceTest, AnyThreadReadsAnySample) {
  testing::TarFiles files;
  for (int i = 0; i < 16; ++i) {
    const std::string key = std::to_string(100 + i);
    const std::string bytes = i % 2 == 0 ? image(static_cast<char>(i))
                                         : testing::jpeg_file(2, 2, 1, std::string(4, static_cast<char>(8 * i)));
    write("class" + std::to_string(i % 3) + "/" + key + ".png", bytes);
    files.insert(files.end(), {{key + ".png", bytes}, {key + ".cls", std::to_string(i)}});
  }
  const fs::path shard = write("shard.tar", testing::tar_file(files));
  const std::vector<std::shared_ptr<const Source>> sources = {source(), tar_source({shard}, {.is_scaled = false})};
  std::vector<std::vector<std::vector<std::string>>> expected(2);
  for (std::size_t s = 0; s < 2; ++s) {
    for (std::int64_t i = 0; i < 16; ++i) expected[s].push_back(sample_of(*sources[s], i));
  }
  std::atomic<int> wrong = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (std::int64_t n = 0; n < 200; ++n) {
        const auto s = static_cast<std::size_t>((n + t) % 2);
        const std::int64_t index = n * (2 * t + 7) % 16;
        if (sample_of(*sources[s], index) != expected[s][static_cast<std::size_t>(index)]) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace graphsink::folder_source_test
