#include "checkpoint/safetensors.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/json_writer.h"
#include "base/printable.h"

namespace graphsink {
namespace {

using nlohmann::json;

constexpr std::string_view kMetadata = "__metadata__";

constexpr FileDType kDTypes[] = {{"F64", 64, DType::f64},
                                 {"F32", 32, DType::f32},
                                 {"F16", 16, DType::f16},
                                 {"BF16", 16, DType::bf16},
                                 {"I64", 64, DType::i64},
                                 {"I32", 32, DType::i32},
                                 {"U8", 8, DType::u8},
                                 {"BOOL", 8, DType::boolean},
                                 {"U64", 64, std::nullopt},
                                 {"U32", 32, std::nullopt},
                                 {"I16", 16, std::nullopt},
                                 {"U16", 16, std::nullopt},
                                 {"I8", 8, std::nullopt},
                                 {"C64", 64, std::nullopt},
                                 {"F8_E4M3", 8, std::nullopt},
                                 {"F8_E5M2", 8, std::nullopt},
                                 {"F4", 4, std::nullopt},
                                 {"F8_E8M0", 8, std::nullopt},
                                 {"F6_E2M3", 6, std::nullopt},
                                 {"F6_E3M2", 6, std::nullopt},
                                 {"F8_E4M3FNUZ", 8, std::nullopt},
                                 {"F8_E5M2FNUZ", 8, std::nullopt}};

std::string_view name_of(DType dtype) {
  return std::find_if(std::begin(kDTypes), std::end(kDTypes), [&](const FileDType& n) { return n.dtype == dtype; })
      ->name;
}

std::string in_quotes(std::string_view text) { return "\"" + shortened(text) + "\""; }

// Reads one header, value by value. The first one that does not belong where it is ends that, so that nothing is kept
// but what a checkpoint may hold, and nothing is nested deeper than it.
class HeaderReader final : public nlohmann::json_sax<json> {
 public:
  HeaderReader(std::uint64_t data_bytes, const std::string& file, Where where)
      : data_bytes_(data_bytes), file_(file), where_(where) {}

  SafetensorsHeader read(std::string_view text) {
    // The JSON library skips the one, and takes the other for the end.
    if (text.starts_with("\xef\xbb\xbf")) refuse("header", "is not JSON: it begins with a byte order mark");
    if (const std::size_t zero = text.find('\0'); zero != text.npos)
      refuse("header", "is not JSON: byte " + std::to_string(zero) + " is 0");
    json::sax_parse(text.begin(), text.end(), this);
    check_names();
    check_cover();
    return std::move(header_);
  }

  bool null() override {
    if (place_ != Place::metadata_value) refuse_value("null");
    place_ = Place::header;  // other writers say so that there is none
    return true;
  }
  bool boolean(bool value) override { refuse_value(value ? "true" : "false"); }
  bool number_integer(std::int64_t value) override { refuse_value(std::to_string(value)); }
  bool number_unsigned(std::uint64_t value) override {
    if (place_ == Place::size) {
      add_size(value);
    } else if (place_ == Place::offset) {
      add_offset(value);
    } else {
      refuse_value(std::to_string(value));
    }
    return true;
  }
  bool number_float(double, const std::string& text) override { refuse_value(shortened(text)); }
  bool string(std::string& text) override {
    if (place_ == Place::metadata_text) {
      header_.metadata[std::move(key_)] = std::move(text);
      place_ = Place::metadata;
    } else if (place_ == Place::dtype) {
      read_dtype(text);
      place_ = Place::entry;
    } else {
      refuse_value(in_quotes(text));
    }
    return true;
  }
  bool binary(json::binary_t&) override { refuse_value("binary data"); }  // never in a text

  bool start_object(std::size_t) override {
    if (place_ == Place::document) {
      place_ = Place::header;
    } else if (place_ == Place::metadata_value) {
      place_ = Place::metadata;
    } else if (place_ == Place::entry_value) {
      place_ = Place::entry;
    } else {
      refuse_value("an object");
    }
    return true;
  }
  bool end_object() override {
    if (place_ == Place::entry) end_entry();
    place_ = place_ == Place::header ? Place::end : Place::header;
    return true;
  }
  bool start_array(std::size_t) override {
    if (place_ == Place::shape) {
      place_ = Place::size;
    } else if (place_ == Place::offsets) {
      place_ = Place::offset;
    } else {
      refuse_value("a list");
    }
    return true;
  }
  bool end_array() override {
    place_ == Place::size ? end_shape() : end_offsets();
    place_ = Place::entry;
    return true;
  }
  bool key(std::string& name) override {
    if (place_ == Place::header) {
      begin_value(name);
    } else if (place_ == Place::metadata) {
      key_ = std::move(name);
      if (header_.metadata.contains(key_)) refuse_twice(key_);
      place_ = Place::metadata_text;
    } else {
      begin_field(name);
    }
    return true;
  }

  bool parse_error(std::size_t, const std::string&, const json::exception& e) override {
    refuse("header", "is not JSON: " + shortened(e.what(), 200));
  }

 private:
  // Role of the next value, or the object whose key is next.
  enum class Place {
    document,
    header,
    metadata_value,
    metadata,
    metadata_text,
    entry_value,
    entry,
    dtype,
    shape,
    size,
    offsets,
    offset,
    end
  };

  [[noreturn]] void refuse(const std::string& field, const std::string& reason) const {
    throw Error(file_, where_, field + ": " + reason, kWriteAgain, ErrorCode::io);
  }
  [[noreturn]] void refuse_twice(std::string_view key) const { refuse("header", in_quotes(key) + " occurs twice"); }
  [[noreturn]] void refuse_field(const char* field, const std::string& reason) const {
    refuse(tensor_text(entry().name) + ", " + field, reason);
  }
  [[noreturn]] void refuse_fields() const {
    refuse(tensor_text(entry().name), "expected the fields dtype, shape and data_offsets, and no others");
  }
  // Refuses a value that cannot be in its place.
  [[noreturn]] void refuse_value(const std::string& seen) const {
    switch (place_) {
      case Place::metadata_value:
        refuse(std::string(kMetadata), "is not an object");
      case Place::metadata_text:
        refuse(std::string(kMetadata) + " " + in_quotes(key_), "is not a string");
      case Place::entry_value:
        refuse_fields();
      case Place::dtype:
        refuse_dtype(seen);
      case Place::shape:
        refuse_field("shape", "expected a list of sizes, seen " + seen);
      case Place::size:
        refuse_field("shape", "expected whole numbers, seen " + seen);
      case Place::offsets:
      case Place::offset:
        refuse_field("data_offsets", "expected two whole numbers, seen " + seen);
      default:
        refuse("header", "is not a JSON object");
    }
  }
  [[noreturn]] void refuse_dtype(const std::string& seen) const {
    std::string known;
    for (const FileDType& dtype : kDTypes) (known += known.empty() ? "" : ", ") += dtype.name;
    refuse_field("dtype", "expected one of " + known + ", seen " + seen);
  }

  TensorEntry& entry() { return header_.entries.back(); }
  const TensorEntry& entry() const { return header_.entries.back(); }

  void begin_value(std::string& name) {
    if (name == kMetadata) {
      if (std::exchange(has_metadata_, true)) refuse_twice(kMetadata);
      place_ = Place::metadata_value;
      return;
    }
    header_.entries.emplace_back().name = std::move(name);
    has_shape_ = false;
    elements_ = 1;
    offsets_ = -1;
    place_ = Place::entry_value;
  }

  void begin_field(const std::string& name) {
    bool is_twice = false;
    if (name == "dtype") {
      is_twice = entry().dtype != nullptr;
      place_ = Place::dtype;
    } else if (name == "shape") {
      is_twice = std::exchange(has_shape_, true);
      place_ = Place::shape;
    } else if (name == "data_offsets") {
      is_twice = std::exchange(offsets_, 0) >= 0;
      place_ = Place::offsets;
    } else {
      refuse_fields();
    }
    if (is_twice) refuse_twice(name);
  }

  void read_dtype(std::string_view text) {
    const auto* dtype = std::find_if(std::begin(kDTypes), std::end(kDTypes),
                                     [&](const FileDType& known) { return known.name == text; });
    if (dtype == std::end(kDTypes)) refuse_dtype(in_quotes(text));
    entry().dtype = dtype;
  }

  // The same bounds as those of Shape and TensorType.
  void add_size(std::uint64_t size) {
    if (entry().shape.rank() == Shape::kMaxRank)
      refuse_field("shape", "expected at most " + std::to_string(Shape::kMaxRank) + " dimensions, seen more");
    if (size > 0 && __builtin_mul_overflow(elements_, size, &elements_)) elements_ = kMaxStrides + 1;
    if (elements_ > kMaxStrides) refuse_field("shape", "expected sizes whose product is below 2^63, seen more");
    entry().shape.push_back(static_cast<std::int64_t>(size));
  }

  void end_shape() const {
    if (entry().shape.size() > kMaxElements)
      refuse_field("shape", "expected fewer than 2^53 elements, seen " + std::to_string(entry().shape.size()));
  }

  void add_offset(std::uint64_t offset) {
    if (offsets_ == 2) refuse_field("data_offsets", "expected two whole numbers, seen more");
    (offsets_ == 0 ? entry().begin : entry().end) = offset;
    ++offsets_;
  }

  void end_offsets() const {
    if (offsets_ != 2) refuse_field("data_offsets", "expected two whole numbers, seen " + std::to_string(offsets_));
  }

  void end_entry() const {
    const TensorEntry& entry = this->entry();
    if (entry.dtype == nullptr || !has_shape_ || offsets_ < 0) refuse_fields();
    const std::string seen = "[" + std::to_string(entry.begin) + ", " + std::to_string(entry.end) + "]";
    if (entry.begin > entry.end || entry.end > data_bytes_) {
      refuse_field("data_offsets",
                   seen + " is not within the " + std::to_string(data_bytes_) + " bytes of data that the file has");
    }
    const std::uint64_t bits = static_cast<std::uint64_t>(entry.shape.size()) * entry.dtype->bits;
    if (bits % 8 != 0)
      refuse_field("shape", "expected whole bytes, seen " + std::to_string(bits) + " bits for " + type_text(entry));
    if (entry.end - entry.begin != bits / 8) {
      refuse_field("data_offsets",
                   "expected " + std::to_string(bits / 8) + " bytes for " + type_text(entry) + ", seen " + seen);
    }
  }

  static std::string type_text(const TensorEntry& entry) {
    const FileDType& dtype = *entry.dtype;
    return std::string(dtype.dtype ? to_string(*dtype.dtype) : dtype.name) + to_string(entry.shape);
  }

  void check_names() const {
    std::vector<std::string_view> names;
    for (const TensorEntry& entry : header_.entries) names.push_back(entry.name);
    std::sort(names.begin(), names.end());
    const auto twice = std::adjacent_find(names.begin(), names.end());
    if (twice != names.end()) refuse_twice(*twice);
  }

  // Tensors follow one another from the first byte to the last.
  void check_cover() {
    std::sort(header_.entries.begin(), header_.entries.end(), [](const TensorEntry& a, const TensorEntry& b) {
      return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
    });
    std::uint64_t covered = 0;
    for (const TensorEntry& entry : header_.entries) {
      if (entry.begin != covered) {
        refuse(tensor_text(entry.name) + ", data_offsets", "begins at " + std::to_string(entry.begin) +
                                                               ", but the tensor before it ends at " +
                                                               std::to_string(covered));
      }
      covered = entry.end;
    }
    if (covered != data_bytes_) {
      refuse("data", "the tensors end at " + std::to_string(covered) + ", the file has " + std::to_string(data_bytes_) +
                         " bytes of data");
    }
  }

  static constexpr std::uint64_t kMaxStrides = (std::uint64_t{1} << 63) - 1;
  static constexpr std::int64_t kMaxElements = (std::int64_t{1} << 53) - 1;

  const std::uint64_t data_bytes_;
  const std::string& file_;
  const Where where_;
  SafetensorsHeader header_;
  Place place_ = Place::document;
  bool has_metadata_ = false;
  std::string key_;  // current key of the metadata
  // State of the entry that is being read.
  bool has_shape_ = false;
  std::uint64_t elements_ = 1;  // without dimensions of 0
  int offsets_ = -1;            // how many were read; -1: the field has not been met
};

class Layout {
 public:
  Layout(const NamedTensors& tensors, const Metadata& metadata, const std::string& file, Where where)
      : tensors_(tensors), metadata_(metadata), file_(file), where_(where) {}

  FileLayout make() {
    place_tensors();
    std::string text = header_text();
    text.resize((text.size() + 7) / 8 * 8, ' ');  // the data are aligned
    if (text.size() > kMaxHeader) {
      throw Error(file_, where_,
                  "its header has " + std::to_string(text.size()) + " bytes; files take " + std::to_string(kMaxHeader),
                  "set CheckpointOptions::most_bytes_per_file, so that several files are written");
    }
    for (int byte = 0; byte < 8; ++byte) layout_.header += static_cast<char>(text.size() >> (8 * byte) & 0xff);
    layout_.header += text;
    return std::move(layout_);
  }

 private:
  void place_tensors() {
    for (const auto& [name, tensor] : tensors_) layout_.tensors.push_back(tensor);
    std::stable_sort(layout_.tensors.begin(), layout_.tensors.end(),
                     [](const Tensor* a, const Tensor* b) { return size_of(a->dtype()) > size_of(b->dtype()); });
    std::size_t end = 0;
    for (const Tensor* tensor : layout_.tensors) begins_[tensor] = std::exchange(end, end + tensor->bytes());
  }

  // The keys are sorted, so that the same checkpoint gives the same bytes.
  std::string header_text() const {
    JsonWriter json;
    bool needs_metadata = !metadata_.empty();
    json.begin_object();
    for (const auto& [name, tensor] : tensors_) {
      if (needs_metadata && name > kMetadata) {
        add_metadata(json);
        needs_metadata = false;
      }
      add_entry(json, name, *tensor);
    }
    if (needs_metadata) add_metadata(json);
    json.end_object();
    return json.take();
  }

  void add_metadata(JsonWriter& json) const {
    json.key(kMetadata);
    json.begin_object();
    for (const auto& [name, text] : metadata_) json.member(name, text);
    json.end_object();
  }

  void add_entry(JsonWriter& json, std::string_view name, const Tensor& tensor) const {
    const std::size_t begin = begins_.at(&tensor);
    json.key(name);
    json.begin_object();
    json.key("data_offsets");
    json.array(std::array{begin, begin + tensor.bytes()});
    json.member("dtype", name_of(tensor.dtype()));
    json.key("shape");
    json.array(tensor.shape().dims());
    json.end_object();
  }

  const NamedTensors& tensors_;
  const Metadata& metadata_;
  const std::string& file_;
  const Where where_;
  FileLayout layout_;
  std::map<const Tensor*, std::size_t> begins_;  // in the data
};

}  // namespace

SafetensorsHeader parse_header(std::string_view text, std::uint64_t data_bytes, const std::string& file, Where where) {
  return HeaderReader(data_bytes, file, where).read(text);
}

void check_writable(const Checkpoint& checkpoint, const std::string& file, Where where) {
  const auto refuse = [&](const std::string& problem, const std::string& remedy) {
    throw Error(file, where, problem, remedy);
  };
  for (const auto& [name, text] : checkpoint.metadata)
    if (!is_utf8(name) || !is_utf8(text)) refuse("metadata " + in_quotes(name) + " is not UTF-8", "use UTF-8");
  if (!checkpoint.unsupported.empty()) {
    const auto& [name, dtype] = *checkpoint.unsupported.begin();
    refuse(tensor_text(name) + " was not loaded, because its dtype is " + shortened(dtype),
           "clear `unsupported` to write the checkpoint without it");
  }
  for (const auto& [name, tensor] : checkpoint.tensors) {
    if (!is_utf8(name)) refuse(tensor_text(name) + ": the name is not UTF-8", "use UTF-8");
    if (name == kMetadata) refuse("a tensor is named " + name, "give it another name");
    if (!tensor.valid()) {
      refuse(tensor_text(name) + " is default-constructed or moved from, and has no data",
             "give it a type and values, or leave it out");
    }
    if (const auto bad = find_bad_boolean(tensor)) {
      refuse(tensor_text(name) + ": element " + std::to_string(*bad) + " is neither 0 nor 1",
             "write true or false to it");
    }
  }
}

FileLayout lay_out(const NamedTensors& tensors, const Metadata& metadata, const std::string& file, Where where) {
  return Layout(tensors, metadata, file, where).make();
}

std::optional<std::size_t> find_bad_boolean(const Tensor& tensor) {
  if (tensor.dtype() != DType::boolean) return {};
  const std::span<const std::byte> bytes(tensor.data(), tensor.bytes());
  const auto bad = std::find_if(bytes.begin(), bytes.end(), [](std::byte b) { return b > std::byte{1}; });
  if (bad == bytes.end()) return {};
  return static_cast<std::size_t>(bad - bytes.begin());
}

std::string tensor_text(std::string_view name) { return "tensor " + in_quotes(name); }

}  // namespace graphsink
