// Reads randomly damaged files until CPU time or iterations are over: each is read or refused with an Error, and what
// was read survives being written and read again. Meant for a build with sanitizers.
#include <algorithm>
#include <cstring>
#include <ctime>
#include <functional>
#include <map>
#include <random>

#include "damaged_graphs.h"
#include "graphsink/loader.h"
#include "graphsink/source.h"
#include "reader_samples.h"
#include "samples/cli.h"

#ifdef GRAPHSINK_IMAGES
#include "tests/images/image_files.h"
#endif

namespace gs = graphsink;

namespace {

struct Options {
  std::string reader;
  std::int64_t iterations = 20000;
  double seconds = 0;
  std::uint64_t seed = 1;
};

using Random = std::mt19937_64;

std::size_t below(Random& random, std::size_t n) { return n == 0 ? 0 : random() % n; }

// Pieces that parsers care about.
const std::vector<std::string> kTokens = {"{",
                                          "}",
                                          "[",
                                          "]",
                                          ",",
                                          ":",
                                          "\"",
                                          "\\u0000",
                                          "-1",
                                          "0",
                                          "1e9",
                                          "null",
                                          "18446744073709551615",
                                          "9223372036854775807",
                                          "4294967296",
                                          "\"F32\"",
                                          "\"F64\"",
                                          "\"BOOL\"",
                                          "\"shape\"",
                                          "\"data_offsets\"",
                                          "__metadata__",
                                          "weight_map",
                                          "\"first\"",
                                          "../",
                                          "'<i8'",
                                          "'|b1'",
                                          "'shape': (1, 6), ",
                                          "True",
                                          "PK\1\2",
                                          "PK\3\4",
                                          "PK\6\7",
                                          std::string(8, '\xff'),
                                          std::string(4, '\0'),
                                          "\x1f\x8b\x08"};

void damage(std::string& bytes, Random& random) {
  std::size_t at = below(random, bytes.size() + 1);
  std::size_t count = std::min(below(random, 16) + 1, bytes.size() - at);
  switch (random() % 6) {
    case 0:
      if (at < bytes.size()) bytes[at] = static_cast<char>(bytes[at] ^ (1 << random() % 8));
      break;
    case 1:
      if (at < bytes.size()) bytes[at] = static_cast<char>(random());
      break;
    case 2:
      bytes.erase(at, count);
      break;
    case 3:
      bytes.insert(at, bytes.substr(at, count));
      break;
    case 4:
      bytes.insert(at, kTokens[below(random, kTokens.size())]);
      break;
    default: {
      const std::string& token = kTokens[below(random, kTokens.size())];
      bytes.replace(at, std::min(token.size(), bytes.size() - at), token);
    }
  }
}

// The right size of the header, or nothing behind it would ever be reached.
void mend_checkpoint(std::string& bytes) {
  if (std::size_t end = bytes.rfind('}'); bytes.size() >= 8 && end != std::string::npos && end >= 8) {
    std::uint64_t size = end - 7;
    std::memcpy(bytes.data(), &size, sizeof size);
  }
}
void mend_npy(std::string& bytes) {
  if (std::size_t end = bytes.rfind('\n'); end != std::string::npos && end >= 10) {
    bytes.replace(8, 2, gs::little(end - 9, 2));
  }
}
// The place and the size of the directory.
void mend_npz(std::string& bytes) {
  const std::size_t begin = bytes.find("PK\1\2"), end = bytes.rfind("PK\5\6");
  if (begin == std::string::npos || end == std::string::npos || begin > end || end + 22 > bytes.size()) return;
  bytes.replace(end + 12, 8, gs::little(end - begin, 4) + gs::little(begin, 4));
}

[[noreturn]] void fail(const std::string& what, const std::filesystem::path& path) {
  std::fprintf(stderr, "%s: see %s\n", what.c_str(), path.c_str());
  std::abort();
}

// True if the file was read.
bool read_checkpoint(const std::filesystem::path& path) {
  try {
    gs::Checkpoint first = gs::read_checkpoint(path);
    std::filesystem::path copy = path.string() + ".copy";
    gs::write_checkpoint(copy, first);
    gs::Checkpoint second = gs::read_checkpoint(copy);
    if (first.metadata != second.metadata || first.tensors.size() != second.tensors.size()) fail("not the same", path);
    for (const auto& [name, tensor] : first.tensors) {
      const gs::Tensor& other = second.tensors.at(name);
      bool is_same =
          tensor.type() == other.type() && std::equal(tensor.data(), tensor.data() + tensor.bytes(), other.data());
      if (!is_same) fail("not the same tensor", path);
    }
    return true;
  } catch (const gs::Error&) {
    return false;
  }
}

// The shards are whole; what is damaged is the index.
bool read_index(const std::filesystem::path& path) {
  for (const auto& [name, bytes] : gs::good_shards())
    if (!std::filesystem::exists(path.parent_path() / name)) gs::write_file(path.parent_path() / name, bytes);
  return read_checkpoint(path);
}

bool read_idx(const std::filesystem::path& path) {
  try {
    gs::IdxFile file = gs::read_idx(path);
    if (static_cast<std::uint64_t>(file.shape.size()) != file.bytes.size()) fail("not as many as it says", path);
    return true;
  } catch (const gs::Error&) {
    return false;
  }
}

// All samples of what `make` makes. Some may be refused although the file is not: tokens and bools are looked at when
// they are read.
template <class Make>
bool read_source(const Make& make) {
  try {
    const auto source = make();
    std::vector<std::vector<std::byte>> memory;
    for (const gs::Field& field : source->fields()) memory.emplace_back(field.type.bytes());
    const std::vector<std::span<std::byte>> to(memory.begin(), memory.end());
    for (std::int64_t i = 0; i < source->size(); ++i) source->read(i, to);
    return true;
  } catch (const gs::Error&) {
    return false;
  }
}

#ifdef GRAPHSINK_IMAGES
// The file becomes that of a folder of images.
bool read_image(const std::filesystem::path& path) {
  const std::filesystem::path folder = path.string() + ".folder";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder / "class");
  std::filesystem::rename(path, folder / "class" / "image.png");
  return read_source([&] { return gs::image_folder_source(folder, {.height = 3, .width = 3, .is_resized = true}); });
}
#endif

void damage_graph(const gs::testing::GoodGraphs& graphs, std::string& bytes, Random& random) {
  gs::testing::DamagedGraph graph = graphs.choose(random);
  for (std::size_t n = below(random, 3) + 1; n > 0; --n) graph.damage(random);
  bytes = graph.bytes();
  if (random() % 16 == 0) damage(bytes, random);
}

struct Reader {
  std::string good;                                                  // a file that can be read, unless `damage` has one
  std::function<bool(const std::filesystem::path& path)> read;       // true if it was read
  std::function<void(std::string& bytes, Random& random)> damage{};  // where that of any bytes would not get far
  std::function<void(std::string& bytes)> mend{};  // sets sizes right, so that what is behind them is reached
};

std::map<std::string, Reader> readers() {
  using Path = std::filesystem::path;
  std::map<std::string, Reader> readers = {
      {"checkpoint", {gs::good_safetensors(), read_checkpoint, {}, mend_checkpoint}},
      {"graph",
       {{},
        gs::testing::read_damaged_graph,
        [graphs = std::make_shared<const gs::testing::GoodGraphs>()](std::string& bytes, Random& random) {
          damage_graph(*graphs, bytes, random);
        }}},
      {"idx", {gs::good_idx(), read_idx}},
      {"index", {gs::good_index(), read_index}},
      {"images",
       {gs::good_idx(),
        [](const Path& path) {
          const Path labels = path.string() + ".labels";
          if (!std::filesystem::exists(labels)) gs::write_file(labels, gs::idx_file({2}, "\1\2"));
          return read_source([&] { return gs::idx_source(path, labels); });
        }}},
      {"npy",
       {gs::good_npy(),
        [](const Path& path) { return read_source([&] {
                                 return gs::npy_source({{"x", path}});
                               }); },
        {},
        mend_npy}},
      {"npz",
       {gs::good_npz(),
        [](const Path& path) { return read_source([&] { return gs::npz_source(path); }); },
        {},
        mend_npz}},
      {"tokens",
       {gs::good_tokens(),
        [](const Path& path) {
          return read_source([&] { return gs::token_source(path, {.length = 2, .vocabulary = 1000}); });
        }}},
  };
#ifdef GRAPHSINK_IMAGES
  const std::string pixels = "abcdefghijklmnopqrstuvwxyz0123456789";
  const std::string png = gs::testing::png_file({.height = 4, .width = 3, .colour = 2, .rows = pixels});
  readers["jpeg"] = {gs::testing::jpeg_file(4, 3, 3, pixels), read_image};
  readers["png"] = {png, read_image, {}, gs::testing::mend_png};
  readers["tar"] = {gs::testing::tar_file({{"a.png", png}, {"a.cls", "1"}}, "pax"),
                    [](const Path& path) { return read_source([&] { return gs::tar_source({path}); }); }};
#endif
  return readers;
}

int fuzz(const Options& options) {
  const Reader reader = readers().at(options.reader);
  gs::TemporaryDirectory directory;
  std::filesystem::path path = directory / options.reader;
  Random random(options.seed);
  auto elapsed = [] { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; };
  std::int64_t files = 0, read = 0;
  double next_report = 60;
  while (options.seconds > 0 ? elapsed() < options.seconds : files < options.iterations) {
    std::string bytes = reader.good;
    if (reader.damage) {
      reader.damage(bytes, random);
    } else {
      for (std::size_t n = below(random, 4) + 1; n > 0; --n) damage(bytes, random);
    }
    if (reader.mend && random() % 4 != 0) reader.mend(bytes);
    std::filesystem::remove(path);  // a file system may wait for the disk when a file is overwritten
    gs::write_file(path, bytes);
    read += reader.read(path) ? 1 : 0;
    ++files;
    if (elapsed() > next_report) {
      std::printf("%.0f CPU seconds: %ld files\n", elapsed(), long{files});
      std::fflush(stdout);
      next_report += 60;
    }
  }
  std::printf("%s: %ld damaged files in %.0f CPU seconds, %ld of them still readable, seed %lu: no crash\n",
              options.reader.c_str(), long{files}, elapsed(), long{read}, static_cast<unsigned long>(options.seed));
  if (read == 0 || read == files) fail("damage is too strong or too weak to test anything", path);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("Reads randomly damaged files; a crash or a sanitizer's report is a bug.");
  std::vector<std::string> names;
  for (const auto& [name, reader] : readers()) names.push_back(name);
  app.add_option("--reader", options.reader, "kind of file")->required()->check(CLI::IsMember(names));
  app.add_option("--iterations", options.iterations, "files to read")->capture_default_str();
  app.add_option("--seconds", options.seconds, "instead: CPU time to go on for");
  app.add_option("--seed", options.seed, "of the damage")
      ->check(gs::cli::whole_number(0, gs::cli::kMostSeed))
      ->capture_default_str();
  return gs::cli::run_program(app, argc, argv, [&] { return fuzz(options); });
}
