// Trains a small residual network on images in class folders, which it makes of handwritten digits where there are
// none, and tests it on others.
#include <png.h>
#include <stdlib.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <vector>

#include "graphsink/images.h"
#include "samples/cli.h"
#include "samples/models/data.h"
#include "samples/models/resnet.h"

namespace gs = graphsink;
namespace cli = graphsink::cli;
namespace fs = std::filesystem;
namespace models = graphsink::models;

namespace {

constexpr std::int64_t kBatch = 32, kSide = 28, kTested = 5;  // each fifth digit is for the test
constexpr const char* kPartial = ".train_images_partial";     // folder in which images are until all are written

struct Options : cli::TrainingOptions {
  std::string folder;
  std::string data;
  std::int64_t digits = 10000;
  std::int64_t width = 8;
};

class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string pattern = (fs::temp_directory_path() / "train_images_XXXXXX").string();
    if (mkdtemp(pattern.data()) == nullptr) {
      throw gs::Error(pattern, {}, "cannot make a temporary folder", "name one with --folder", gs::ErrorCode::io);
    }
    path_ = pattern;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

gs::Shape batch_of(const gs::Shape& image) { return {kBatch, image[0], image[1], image[2]}; }

void write_png(const fs::path& path, std::span<const float> pixels) {
  std::vector<std::uint8_t> bytes;
  for (float x : pixels) bytes.push_back(static_cast<std::uint8_t>(x * 255 + 0.5f));
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  image.height = image.width = kSide;
  image.format = PNG_FORMAT_GRAY;
  if (png_image_write_to_file(&image, path.c_str(), 0, bytes.data(), 0, nullptr) == 0) {
    throw gs::Error(path.string(), {}, std::string("cannot write: ") + image.message,
                    "make room, or name another folder", gs::ErrorCode::io);
  }
}

// Writes train/CLASS/NUMBER.png and test/CLASS/NUMBER.png. They get these names when all are there, the folder train as
// the last: what an interrupted run leaves is written anew by the next one.
void write_digits(const fs::path& folder, const Options& options) {
  const models::DigitData data = models::find_digits(options.data);
  if (data.digits->images.shape()[1] != kSide * kSide) {
    throw gs::Error(data.source.name, {}, "expected digits of 28 x 28 pixels", "give the files of MNIST");
  }
  const std::int64_t count = std::min(options.digits, data.digits->labels.shape()[0]);
  const fs::path partial = folder / kPartial;
  fs::remove_all(partial);
  fs::remove_all(folder / "test");
  for (std::int64_t i = 0; i < count; ++i) {
    const auto label = data.digits->labels.as<std::int32_t>()[static_cast<std::size_t>(i)];
    const fs::path of_class = partial / (i % kTested == 0 ? "test" : "train") / std::to_string(label);
    fs::create_directories(of_class);
    write_png(of_class / (std::to_string(i) + ".png"),
              data.digits->images.as<float>().subspan(static_cast<std::size_t>(i * kSide * kSide), kSide * kSide));
  }
  for (const char* name : {"test", "train"}) fs::rename(partial / name, folder / name);
  fs::remove(partial);
  std::printf("wrote %ld of %s to %s\n", long{count}, data.source.name.c_str(), folder.c_str());
}

// Whether the folder is empty, or has what an interrupted write_digits() left.
bool has_no_images(const fs::path& folder, std::error_code& code) {
  if (fs::exists(folder / kPartial, code)) return !fs::exists(folder / "train", code);
  return !code && fs::is_empty(folder, code);
}

// The folder of images that the options name, which are written if it has none.
fs::path find_images(const Options& options, std::optional<TemporaryFolder>& temporary) {
  const fs::path folder = options.folder.empty() ? temporary.emplace().path() : fs::path(options.folder);
  std::error_code code;
  fs::create_directories(folder, code);
  const bool is_empty = !code && has_no_images(folder, code);
  if (code) {
    throw gs::Error(folder.string(), {}, "cannot use the folder: " + code.message(), "name another with --folder",
                    gs::ErrorCode::io);
  }
  if (is_empty) {
    write_digits(folder, options);
  } else {
    std::printf("%s is not empty: nothing is written, its images are used\n", folder.c_str());
  }
  return folder;
}

// Images that the network does not see in training, and a program on the same Variables that finds out which share of
// them it classifies correctly.
class Test {
 public:
  Test(const models::Resnet& network, const std::shared_ptr<const gs::Source>& images, const Options& options)
      : x_(graph_.feed("image", gs::f32, batch_of(images->fields()[0].type.shape))),
        label_(graph_.feed("label", gs::i32, {kBatch})),
        is_real_(graph_.feed("is_real", gs::boolean, {kBatch})),
        program_(compile(network, options)),
        loader_(
            program_, images,
            gs::sample_order(images->size(), {.batch = kBatch, .last_batch = gs::LastBatch::pad, .is_shuffled = false}),
            {{"image", x_}, {"label", label_}}, {.workers = options.reading_threads(), .mask = is_real_}) {}

  gs::Metrics run() {
    const gs::Metric metrics[] = {{.record = "accuracy", .weight = "images"}};
    return gs::evaluate(program_, loader_, metrics);
  }

 private:
  gs::Program compile(const models::Resnet& network, const Options& options) {
    graph_.record("accuracy", gs::accuracy(network.logits(x_), label_, is_real_));
    graph_.record("images", gs::sum(gs::cast(is_real_, gs::f32)));
    return gs::compile(graph_, {.target = cli::device_of(options.device)});
  }

  gs::Graph graph_;
  gs::Value x_, label_, is_real_;
  gs::Program program_;
  gs::Loader loader_;
};

int train(const Options& options) {
  const gs::DeviceId device = cli::device_of(options.device);
  gs::TrainOptions train_options = cli::train_options(options);
  std::optional<TemporaryFolder> temporary;
  const fs::path folder = find_images(options, temporary);
  const auto images = gs::image_folder_source(folder / "train", {.is_resized = true});
  const gs::Shape& shape = images->fields()[0].type.shape;
  const auto others = gs::image_folder_source(
      folder / "test", {.channels = shape[0], .height = shape[1], .width = shape[2], .is_resized = true});
  if (others->classes() != images->classes()) {
    throw gs::Error((folder / "test").string(), {}, "expected the same classes as in the folder train",
                    "make a folder for each class in both");
  }
  const auto classes = static_cast<std::int64_t>(images->classes().size());

  models::Resnet network(shape[0], classes, options.seed, {.width = options.width});
  gs::Graph g;
  gs::Value x = g.feed("image", gs::f32, batch_of(shape)), t = g.feed("label", gs::i32, {kBatch});
  gs::Value loss = cross_entropy(network.logits(x), t);
  gs::adamw(loss, network.variables(), {.lr = 5e-3});
  g.record("loss", loss);
  gs::Program program = gs::compile(g, {.target = device});
  Test test(network, others, options);
  std::cout << program.explain() << std::flush;
  std::printf("training on %ld images of %ld classes, %s, %s\n", long{images->size()}, long{classes},
              options.mode.c_str(), to_string(device).c_str());
  gs::Loader loader(program, images, gs::sample_order(images->size(), {.batch = kBatch, .seed = options.seed}),
                    {{"image", x}, {"label", t}}, {.workers = options.reading_threads()});
  double last_loss = 0;
  train_options.on_step = [&](const gs::StepValues& step) { last_loss = step.values[0]; };
  train_options.evaluate = [&] { return test.run(); };
  const gs::TrainResult result = gs::train(program, loader, train_options);
  if (result.steps > result.first) std::printf("loss of the last step: %.9g\n", last_loss);
  std::printf("test accuracy: %.1f %%\n", 100 * result.evaluation.at("accuracy"));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  options.steps = 1000;
  CLI::App app("Trains a small residual network on images and prints its accuracy on others.");
  app.add_option("--folder", options.folder,
                 "folder with train/CLASS/*.png and test/CLASS/*.png (or .jpg); if it is empty, handwritten digits are "
                 "written there; without it they go to a temporary one");
  app.add_option("--data", options.data, "directory of the IDX files; else $GRAPHSINK_DATA, else ../shared/data");
  app.add_option("--digits", options.digits, "digits to write, a fifth of them for the test")
      ->check(cli::whole_number(200, 1000000))
      ->capture_default_str();
  app.add_option("--width", options.width, "channels of the first convolution")
      ->check(CLI::IsMember({4, 8, 16, 32, 64}))
      ->capture_default_str();
  cli::add_training_options(app, options);
  return cli::run_program(app, argc, argv, [&] { return train(options); });
}
