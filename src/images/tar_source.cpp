#include <algorithm>
#include <charconv>
#include <cstring>
#include <limits>
#include <map>
#include <string>
#include <string_view>

#include "base/absolute_path.h"
#include "graphsink/images.h"
#include "images/image_reader.h"
#include "images/tar_index.h"

namespace graphsink {
namespace {

constexpr std::uint64_t kMostLabel = 32;  // bytes of a .cls file

struct Shard {
  std::filesystem::path path;
  FileStamp stamp;  // when it was indexed
};

struct TarSample {
  std::size_t shard = 0;
  TarEntry image;
  std::int32_t label = -1;  // none was seen yet
};

Origin entry_origin(const DataFile& shard, const std::string& name, const char* kind = "entry") {
  Origin origin = shard.origin();
  origin.member = name;
  origin.kind = kind;
  return origin;
}

class TarSource : public Source {
 public:
  TarSource(std::vector<Shard> shards, std::vector<TarSample> samples, ImageReader reader, Where where)
      : Source(static_cast<std::int64_t>(samples.size()), reader.fields(), where),
        shards_(std::move(shards)),
        samples_(std::move(samples)),
        reader_(std::move(reader)),
        where_(where) {}

 private:
  void fill(std::int64_t index, SampleMemory to) const override {
    const TarSample& sample = samples_[static_cast<std::size_t>(index)];
    const DataFile shard(shards_[sample.shard].path, shards_[sample.shard].stamp, where_);
    const Origin origin = entry_origin(shard, sample.image.name);
    reader_.read(read_image_file(shard, sample.image.begin, sample.image.size, origin), origin, to[0]);
    std::memcpy(to[1].data(), &sample.label, sizeof sample.label);
  }

  std::vector<Shard> shards_;
  std::vector<TarSample> samples_;
  ImageReader reader_;
  Where where_;
};

// Place of the dot that divides a name into key and extension; npos: there is none, or nothing in front of it.
std::size_t dividing_dot(std::string_view name) {
  const std::size_t slash = name.rfind('/'), begin = slash == std::string_view::npos ? 0 : slash + 1;
  const std::size_t dot = name.find('.', begin);
  return dot == begin ? std::string_view::npos : dot;
}

std::int32_t read_label(const DataFile& shard, const TarEntry& entry) {
  const Origin origin = entry_origin(shard, entry.name);
  std::string text(static_cast<std::size_t>(std::min(entry.size, kMostLabel)), '\0');
  shard.read(entry.begin, std::as_writable_bytes(std::span(text)));
  const std::size_t last = text.find_last_not_of(" \t\r\n");
  const char* end = text.data() + (last == std::string::npos ? 0 : last + 1);
  std::int32_t label = 0;
  const auto [seen, code] = std::from_chars(text.data(), end, label);
  if (entry.size > kMostLabel || code != std::errc() || seen != end || label < 0) {
    origin.refuse("expected the number of a class from 0 to " + std::to_string(std::numeric_limits<int>::max()) +
                      ", seen \"" + text + "\"",
                  "write it in decimal digits");
  }
  return label;
}

// Appends the samples of one shard.
void add_samples(const DataFile& shard, std::size_t number, std::vector<TarSample>& samples) {
  std::map<std::string, std::size_t> places;  // places of samples, by key
  for (TarEntry& entry : read_tar_index(shard)) {
    const std::size_t dot = dividing_dot(entry.name);
    if (dot == std::string::npos) continue;
    const std::string key = entry.name.substr(0, dot), extension = entry.name.substr(dot + 1);
    const bool is_image = is_image_extension(extension);
    if (!is_image && extension != "cls") continue;
    if (entry.is_link) {
      entry_origin(shard, entry.name).refuse("is a link", "write the tar file with --dereference --hard-dereference");
    }
    const auto [place, is_new] = places.emplace(key, samples.size());
    if (is_new) samples.push_back({.shard = number, .image = {}});
    TarSample& sample = samples[place->second];
    if (is_image ? !sample.image.name.empty() : sample.label >= 0) {
      entry_origin(shard, entry.name)
          .refuse("sample \"" + key + "\" has two " + (is_image ? "images" : "labels"),
                  "give each sample a name of its own in its shard");
    }
    if (is_image) {
      sample.image = std::move(entry);
    } else {
      sample.label = read_label(shard, entry);
    }
  }
  for (const auto& [key, place] : places) {
    const bool has_image = !samples[place].image.name.empty();
    if (has_image && samples[place].label >= 0) continue;
    entry_origin(shard, key, "sample")
        .refuse(has_image ? "has no label" : "has no image", "write KEY.png or KEY.jpg, and KEY.cls, for each sample");
  }
}

}  // namespace

std::shared_ptr<const Source> tar_source(const std::vector<std::filesystem::path>& paths, const ImageOptions& options,
                                         Where where) {
  ImageReader reader("tar_source", options, where);
  if (paths.empty()) {
    throw Error("tar_source", where, "expected at least 1 shard, seen none", "give the paths of tar files");
  }
  std::vector<Shard> shards;
  std::vector<TarSample> samples;
  for (const std::filesystem::path& path : paths) {
    const DataFile shard(path, where);
    const std::size_t before = samples.size();
    add_samples(shard, shards.size(), samples);
    if (samples.size() == before) {
      shard.origin().refuse("expected samples, seen none", "write KEY.png or KEY.jpg, and KEY.cls, for each sample");
    }
    shards.push_back({absolute_path(path), shard.stamp()});
  }
  if (reader.needs_first()) {
    const TarSample& first = samples[0];
    const DataFile shard(shards[0].path, shards[0].stamp, where);
    const Origin origin = entry_origin(shard, first.image.name);
    reader.set_first(read_image_file(shard, first.image.begin, first.image.size, origin), origin);
  }
  return std::make_shared<TarSource>(std::move(shards), std::move(samples), std::move(reader), where);
}

}  // namespace graphsink
