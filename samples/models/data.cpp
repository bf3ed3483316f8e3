#include "samples/models/data.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <vector>

#include "samples/models/source_dir.h"

namespace graphsink::models {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kSeededDigits = 10000;
constexpr std::uint64_t kDigitSeed = 7;

// The directory that the user named, by option or environment.
std::optional<fs::path> named(const std::string& directory) {
  const char* environment = std::getenv("GRAPHSINK_DATA");
  if (directory.empty() && (environment == nullptr || *environment == '\0')) return std::nullopt;
  fs::path path = directory.empty() ? environment : directory;
  if (!fs::is_directory(path)) {
    throw Error(path.string(), Where(), "expected a directory with data, seen none",
                directory.empty() ? "mend or unset GRAPHSINK_DATA" : "name an existing directory");
  }
  return path;
}

fs::path shared() { return fs::path(source_dir()).parent_path() / "shared" / "data"; }

Source file_source(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::vector<char> bytes{std::istreambuf_iterator<char>(in), {}};
  return {path.filename().string(), checksum(bytes.data(), bytes.size())};
}

}  // namespace

DigitData find_digits(const std::string& directory) {
  std::optional<fs::path> path = named(directory);
  bool is_there = fs::exists(shared() / "t10k-images-idx3-ubyte.gz") || fs::exists(shared() / "t10k-images-idx3-ubyte");
  if (!path && is_there) path = shared();
  DigitData data;
  if (path) {
    data.digits = std::make_shared<const Digits>(read_digits(*path));
    data.source = file_source(*path / data.digits->source);
    return data;
  }
  data.is_real = false;
  data.digits = std::make_shared<const Digits>(seeded_digits(kSeededDigits, kDigitSeed));
  data.source = {data.digits->source, checksum(data.digits->images.data(), data.digits->images.bytes())};
  return data;
}

TextData find_text(const std::string& directory, const std::string& file) {
  fs::path path = file;
  if (file.empty()) {
    fs::path folder = named(directory).value_or(shared());
    path = folder / "tinyshakespeare.txt";
    if (!fs::exists(path)) {
      path.clear();
      if (fs::is_directory(folder)) {
        for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
          bool is_text = entry.path().extension() == ".txt";
          if (is_text && (path.empty() || entry.path() < path)) path = entry.path();
        }
      }
    }
    if (path.empty()) path = fs::path(source_dir()) / "LICENSE";
  }
  TextData data;
  data.text = std::make_shared<const Text>(read_text(path));
  data.source = file_source(path);
  return data;
}

}  // namespace graphsink::models
