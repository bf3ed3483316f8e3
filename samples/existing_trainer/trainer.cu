// Trains a small transformer on the characters of a text: a CUDA program as they are usually written, with kernels of
// its own, cuBLAS, and one stream. It knows nothing of graphs.
#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <exception>

#include "model.cuh"
#include "text.cuh"

#ifndef DEFAULT_TEXT
#define DEFAULT_TEXT "LICENSE"
#endif

namespace {

// Something is wrong with the arguments.
struct UsageError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct Options {
  std::string text = DEFAULT_TEXT;
  std::string losses;
  int steps = 200;
  Shape shape;
  float learning_rate = 3e-3f;
  std::uint64_t seed = 1;
  bool help = false;
};

constexpr const char* kUsage = R"(usage: existing_trainer [OPTION VALUE]...
  --text FILE     text to learn from
  --steps N       training steps (200)
  --batch B       pieces of text in a step (8)
  --context T     characters in a piece (64)
  --layers L      layers of the model (2)
  --width D       width of the model (64)
  --heads H       heads of the attention; the width is a multiple of it (4)
  --lr X          highest learning rate (0.003)
  --seed S        of the initial parameters and of the choice of text (1)
  --losses FILE   writes the bits of each step's loss as eight hexadecimal digits a line
  --help          prints this
)";

template <class T>
T number(const std::string& name, const std::string& text, T low, T high) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !(value >= low && value <= high)) {
    char range[80];
    std::snprintf(range, sizeof range, "%g to %g", static_cast<double>(low), static_cast<double>(high));
    throw UsageError(name + " is \"" + text + "\": give a number from " + range);
  }
  return value;
}

Options parse(int argc, char** argv) {
  Options options;
  Shape& shape = options.shape;
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    if (name == "--help") {
      options.help = true;
      return options;
    }
    const auto value = [&] {
      if (++i == argc) throw UsageError(name + " has no value: give one after it");
      return std::string(argv[i]);
    };
    const auto whole = [&](int high) { return number<int>(name, value(), 1, high); };
    if (name == "--text") {
      options.text = value();
    } else if (name == "--losses") {
      options.losses = value();
    } else if (name == "--steps") {
      options.steps = whole(100000000);
    } else if (name == "--batch") {
      shape.batch = whole(1024);
    } else if (name == "--context") {
      shape.context = whole(1024);
    } else if (name == "--layers") {
      shape.layers = whole(64);
    } else if (name == "--width") {
      shape.width = whole(4096);
    } else if (name == "--heads") {
      shape.heads = whole(64);
    } else if (name == "--lr") {
      options.learning_rate = number<float>(name, value(), 1e-9f, 10.0f);
    } else if (name == "--seed") {
      options.seed = number<std::uint64_t>(name, value(), 0, ~std::uint64_t{0});
    } else {
      throw UsageError("no option " + name + ": --help lists them");
    }
  }
  if (shape.width % shape.heads != 0) {
    throw UsageError("--width " + std::to_string(shape.width) + " is no multiple of --heads " +
                     std::to_string(shape.heads) + ": change one of them");
  }
  // Kernels count elements in int; the largest arrays are the hidden ones and the weights of the attention.
  const long elements =
      long{shape.batch} * shape.context * std::max({4 * shape.width, shape.heads * shape.context, 256});
  if (elements > 0x7fffffff) {
    throw UsageError("the batch has arrays of " + std::to_string(elements) +
                     " elements, and 2147483647 are possible: give a smaller --batch, --context or --width");
  }
  return options;
}

class Stream {
 public:
  Stream() { CHECK(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking)); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  ~Stream() {
    cudaStreamSynchronize(stream_);
    cudaStreamDestroy(stream_);
  }
  operator cudaStream_t() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

// The losses of steps [first, first + count), after waiting for them.
std::vector<float> read_losses(const Model& model, int first, int count, cudaStream_t stream) {
  std::vector<float> losses(static_cast<std::size_t>(count));
  CHECK(cudaMemcpyAsync(losses.data(), model.losses() + first, losses.size() * sizeof(float), cudaMemcpyDeviceToHost,
                        stream));
  CHECK(cudaStreamSynchronize(stream));
  return losses;
}

void write_losses(const std::string& path, const std::vector<float>& losses) {
  std::FILE* file = std::fopen(path.c_str(), "w");
  bool is_written = file != nullptr;
  for (std::size_t i = 0; is_written && i < losses.size(); ++i) {
    std::uint32_t bits = 0;
    std::memcpy(&bits, &losses[i], sizeof bits);
    is_written = std::fprintf(file, "%08x\n", bits) > 0;
  }
  if (file != nullptr) is_written = std::fclose(file) == 0 && is_written;
  if (!is_written) throw std::runtime_error("cannot write " + path + ": name another file with --losses");
}

void train(const Options& options) {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    throw std::runtime_error("no CUDA device answers: see whether nvidia-smi lists one and its driver is new enough");
  }
  const Text text = read_text(options.text, options.shape.context);
  Shape shape = options.shape;
  shape.vocabulary = text.vocabulary;
  AdamW optimizer;
  optimizer.learning_rate = options.learning_rate;
  optimizer.total_steps = options.steps;
  optimizer.warmup_steps = std::max(1, std::min(100, options.steps / 10));

  Stream stream;
  Model model(shape, optimizer, options.steps, options.seed, stream);
  Batches batches(text, shape, options.seed);
  std::printf("%s: %zu characters, %d different ones; %ld parameters, %.1f MiB on the device\n", options.text.c_str(),
              text.tokens.size(), text.vocabulary, model.layout().count,
              static_cast<double>(model.device_bytes()) / (1 << 20));

  const int read_every = std::max(1, options.steps / 10);
  std::vector<float> losses;
  const auto start = std::chrono::steady_clock::now();
  for (int step = 0; step < options.steps; ++step) {
    batches.copy_next(model.tokens(), stream);
    model.train_step(stream);
    if ((step + 1) % read_every != 0 && step + 1 != options.steps) continue;
    const int read = static_cast<int>(losses.size());
    const std::vector<float> more = read_losses(model, read, step + 1 - read, stream);
    losses.insert(losses.end(), more.begin(), more.end());
    std::printf("step %d/%d  loss %.4f\n", step + 1, options.steps, losses.back());
    std::fflush(stdout);
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  std::printf("%.2f steps per second\n", options.steps / took.count());
  if (!options.losses.empty()) write_losses(options.losses, losses);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const Options options = parse(argc, argv);
    if (options.help) {
      std::fputs(kUsage, stdout);
    } else {
      train(options);
    }
    return 0;
  } catch (const UsageError& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 2;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 1;
  }
}
