#include "checkpoint/shard_index.h"

#include <algorithm>
#include <climits>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/json_writer.h"
#include "base/printable.h"
#include "checkpoint/input_file.h"
#include "checkpoint/safetensors.h"

namespace graphsink {
namespace {

using nlohmann::json;

constexpr std::string_view kIndexMetadata = "metadata";
constexpr std::string_view kWeightMap = "weight_map";

// Reads an index value by value, as the header of a safetensors file is read.
class IndexReader final : public nlohmann::json_sax<json> {
 public:
  IndexReader(const std::string& file, Where where) : file_(file), where_(where) {}

  ShardIndex read(std::string_view text) {
    if (const std::size_t zero = text.find('\0'); zero != text.npos)
      refuse("index", "is not JSON: byte " + std::to_string(zero) + " is 0");
    json::sax_parse(text.begin(), text.end(), this);
    if (!has_weight_map_) refuse("index", "has no " + quoted(kWeightMap));
    return std::move(index_);
  }

  bool null() override { return take_unused("null"); }
  bool boolean(bool value) override { return take_unused(value ? "true" : "false"); }
  bool number_integer(std::int64_t value) override { return take_unused(std::to_string(value)); }
  bool number_unsigned(std::uint64_t value) override { return take_unused(std::to_string(value)); }
  bool number_float(double, const std::string& text) override { return take_unused(shortened(text)); }
  bool binary(json::binary_t&) override { refuse_value("binary data"); }  // never in a text
  bool string(std::string& text) override {
    if (place_ == Place::metadata) {
      index_.metadata[key_] = std::move(text);
    } else if (place_ == Place::weight_map) {
      add_tensor(text);
    } else {
      refuse_value("a string");
    }
    return true;
  }

  bool start_object(std::size_t) override {
    if (place_ == Place::document) {
      place_ = Place::index;
    } else if (place_ == Place::index) {
      place_ = key_ == kWeightMap ? Place::weight_map : Place::metadata;
    } else {
      refuse_value("an object");
    }
    return true;
  }
  bool end_object() override {
    keys_.clear();
    place_ = Place::index;
    return true;
  }
  bool start_array(std::size_t) override { refuse_value("a list"); }
  bool end_array() override { return true; }
  bool key(std::string& name) override {
    if (place_ == Place::index) {
      begin_field(name);
    } else if (!keys_.insert(name).second) {
      refuse_twice(name);
    }
    key_ = std::move(name);
    return true;
  }

  bool parse_error(std::size_t, const std::string&, const json::exception& e) override {
    refuse("index", "is not JSON: " + shortened(e.what(), 200));
  }

 private:
  enum class Place { document, index, metadata, weight_map };  // holder of the next value

  static std::string quoted(std::string_view text) { return "\"" + shortened(text) + "\""; }
  [[noreturn]] void refuse(const std::string& field, const std::string& reason) const {
    throw Error(file_, where_, field + ": " + reason, kWriteAgain, ErrorCode::io);
  }
  [[noreturn]] void refuse_twice(std::string_view name) const { refuse("index", quoted(name) + " occurs twice"); }
  [[noreturn]] void refuse_value(const std::string& seen) const {
    switch (place_) {
      case Place::document:
        refuse("index", "is not a JSON object");
      case Place::index:
        refuse(key_, "expected an object, seen " + seen);
      case Place::metadata:
        refuse("metadata " + quoted(key_), "expected a string or a number, seen " + seen);
      default:
        refuse("weight_map, " + tensor_text(key_), "expected the name of a file, seen " + seen);
    }
  }

  // A value that the format allows and a checkpoint has no use for.
  bool take_unused(const std::string& seen) const {
    if (place_ != Place::metadata) refuse_value(seen);
    return true;
  }

  void begin_field(const std::string& name) {
    bool& has_field = name == kWeightMap ? has_weight_map_ : has_metadata_;
    if (name != kWeightMap && name != kIndexMetadata)
      refuse("index", "expected the fields metadata and weight_map, seen " + quoted(name));
    if (std::exchange(has_field, true)) refuse_twice(name);
  }

  // An index may come from anywhere, and must not lead to files elsewhere.
  void add_tensor(const std::string& shard) {
    const bool is_name = !shard.empty() && shard.size() <= NAME_MAX && shard != "." && shard != ".." &&
                         shard.find_first_of(std::string_view("/\0", 2)) == shard.npos;
    if (!is_name)
      refuse("weight_map, " + tensor_text(key_),
             "expected the name of a file in the folder of the index, seen " + quoted(shard));
    index_.shards[shard].insert(key_);
  }

  const std::string& file_;
  const Where where_;
  ShardIndex index_;
  Place place_ = Place::document;
  bool has_metadata_ = false, has_weight_map_ = false;
  std::string key_;             // key of the next value
  std::set<std::string> keys_;  // keys so far of metadata or weight_map
};

}  // namespace

std::string ShardIndex::text(std::size_t total_bytes) const {
  std::map<std::string_view, std::string_view> shard_of;
  for (const auto& [shard, tensors] : shards)
    for (const std::string& tensor : tensors) shard_of.emplace(tensor, shard);
  JsonWriter json(2);
  json.begin_object();
  json.key(kIndexMetadata);
  json.begin_object();
  json.member(kTotalSize, total_bytes);
  for (const auto& [name, text] : metadata) json.member(name, text);
  json.end_object();
  json.key(kWeightMap);
  json.begin_object();
  for (const auto& [tensor, shard] : shard_of) json.member(tensor, shard);
  json.end_object();
  json.end_object();
  return json.take();
}

ShardIndex parse_index(std::string_view text, const std::string& file, Where where) {
  return IndexReader(file, where).read(text);
}

std::optional<std::string> index_text(InputFile& file) {
  std::string text(std::min<std::uint64_t>(file.size(), 8), '\0');
  file.read(text.data(), text.size());
  const bool is_index = text.starts_with('{') && text.find('\0') == text.npos;
  if (!is_index) {
    file.rewind();
    return {};
  }
  if (file.size() > kMaxHeader)
    file.refuse("index: " + std::to_string(file.size()) + " bytes, expected at most " + std::to_string(kMaxHeader),
                kWriteAgain);
  const std::size_t begun = text.size();
  text.resize(file.size());
  file.read(text.data() + begun, text.size() - begun);
  return text;
}

std::string shard_name(const std::string& index, const std::string& digits, std::size_t number, std::size_t count) {
  char place[64];
  std::snprintf(place, sizeof place, "-%05zu-of-%05zu.safetensors", number, count);
  return index + "." + digits + place;
}

std::optional<std::string> digits_of(const ShardIndex& index, const std::filesystem::path& path) {
  const std::string name = path.filename().string();
  const std::size_t count = index.shards.size();
  std::string digits;
  std::size_t number = 0;
  for (const auto& [shard, tensors] : index.shards) {  // in the order of their names, which is that of their numbers
    if (number == 0 && shard.size() > name.size() + 1) digits = shard.substr(name.size() + 1, kDigits);
    if (shard != shard_name(name, digits, ++number, count)) return {};
  }
  if (!are_digits(digits)) return {};
  return digits;
}

DigitsAt digits_at(const std::filesystem::path& path) {
  try {
    std::error_code code;
    if (!std::filesystem::exists(path, code) && !code) return {};
    InputFile file(path, {});
    const std::optional<std::string> text = index_text(file);
    if (!text) return {};
    return {.digits = digits_of(parse_index(*text, file.name(), {}), path)};
  } catch (const Error&) {
    return {.is_known = false};
  }
}

bool are_digits(std::string_view text) {
  return text.size() == kDigits && text.find_first_not_of("0123456789abcdef") == text.npos;
}

}  // namespace graphsink
