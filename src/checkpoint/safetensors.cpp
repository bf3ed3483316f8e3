#include "checkpoint/safetensors.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

namespace graphsink {
namespace {

using nlohmann::json;

constexpr const char* kMetadata = "__metadata__";
constexpr const char* kAgain = "copy the file again, or write it again with write_checkpoint()";

struct DTypeName {
  DType dtype;
  std::string_view name;
};
constexpr DTypeName kDTypes[] = {{DType::f64, "F64"},   {DType::f32, "F32"},     {DType::f16, "F16"},
                                 {DType::bf16, "BF16"}, {DType::i64, "I64"},     {DType::i32, "I32"},
                                 {DType::u8, "U8"},     {DType::boolean, "BOOL"}};

std::string_view name_of(DType dtype) {
  return std::find_if(std::begin(kDTypes), std::end(kDTypes), [&](const DTypeName& n) { return n.dtype == dtype; })
      ->name;
}

// Reads one header.
class Parser {
 public:
  Parser(std::uint64_t data_bytes, const std::string& file, Where where)
      : data_bytes_(data_bytes), file_(file), where_(where) {}

  SafetensorsHeader parse(std::string_view text) {
    json document = parse_json(text);
    if (!document.is_object()) refuse("header", "is not a JSON object");
    SafetensorsHeader header;
    for (const auto& [name, value] : document.items()) {
      if (name == kMetadata) {
        header.metadata = parse_metadata(value);
      } else {
        header.entries.push_back(parse_entry(name, value));
      }
    }
    check_cover(header.entries);
    return header;
  }

 private:
  [[noreturn]] void refuse(const std::string& field, const std::string& reason) const {
    throw Error(file_, where_, field + ": " + reason, kAgain);
  }

  // Refuses doubled keys, of which the library would keep the last one.
  json parse_json(std::string_view text) const {
    std::vector<std::set<std::string>> keys;
    auto check = [&](int, json::parse_event_t event, json& value) {
      if (event == json::parse_event_t::object_start) keys.emplace_back();
      if (event == json::parse_event_t::object_end) keys.pop_back();
      if (event == json::parse_event_t::key && !keys.back().insert(value.get<std::string>()).second)
        refuse("header", "\"" + value.get<std::string>() + "\" occurs twice");
      return true;
    };
    try {
      return json::parse(text.begin(), text.end(), check);
    } catch (const json::exception& e) {
      refuse("header", std::string("is not JSON: ") + e.what());
    }
  }

  std::map<std::string, std::string, std::less<>> parse_metadata(const json& value) const {
    if (!value.is_object()) refuse(kMetadata, "is not an object");
    std::map<std::string, std::string, std::less<>> metadata;
    for (const auto& [name, text] : value.items()) {
      if (!text.is_string()) refuse(std::string(kMetadata) + " \"" + name + "\"", "is not a string");
      metadata[name] = text.get<std::string>();
    }
    return metadata;
  }

  TensorEntry parse_entry(const std::string& name, const json& value) const {
    std::string tensor = "tensor \"" + name + "\"";
    if (!value.is_object() || value.size() != 3 || !value.contains("dtype") || !value.contains("shape") ||
        !value.contains("data_offsets")) {
      refuse(tensor, "expected the fields dtype, shape and data_offsets, and no others");
    }
    TensorEntry entry{name, {parse_dtype(value["dtype"], tensor), parse_shape(value["shape"], tensor)}, 0};
    const json& offsets = value["data_offsets"];
    if (!offsets.is_array() || offsets.size() != 2 || !offsets[0].is_number_unsigned() ||
        !offsets[1].is_number_unsigned())
      refuse(tensor + ", data_offsets", "expected two whole numbers, seen " + shorten(offsets));
    entry.begin = offsets[0].get<std::uint64_t>();
    auto end = offsets[1].get<std::uint64_t>();
    if (entry.begin > end || end > data_bytes_) {
      refuse(tensor + ", data_offsets", shorten(offsets) + " is not within the " + std::to_string(data_bytes_) +
                                            " bytes of data that the file has");
    }
    if (end - entry.begin != entry.type.bytes()) {
      refuse(tensor + ", data_offsets", "expected " + std::to_string(entry.type.bytes()) + " bytes for " +
                                            to_string(entry.type) + ", seen " + shorten(offsets));
    }
    return entry;
  }

  DType parse_dtype(const json& value, const std::string& tensor) const {
    for (const auto& [dtype, name] : kDTypes)
      if (value == name) return dtype;
    std::string known;
    for (const auto& [dtype, name] : kDTypes) known += (known.empty() ? "" : ", ") + std::string(name);
    refuse(tensor + ", dtype", "expected one of " + known + ", seen " + shorten(value));
  }

  // Keeps elements times 8 bytes below 2^56, as TensorType does.
  Shape parse_shape(const json& value, const std::string& tensor) const {
    if (!value.is_array()) refuse(tensor + ", shape", "expected a list of sizes, seen " + shorten(value));
    if (value.size() > Shape::kMaxRank) {
      refuse(tensor + ", shape", "expected at most " + std::to_string(Shape::kMaxRank) + " dimensions, seen " +
                                     std::to_string(value.size()));
    }
    constexpr std::uint64_t kMaxElements = ((std::uint64_t{1} << 56) - 1) / 8;
    Shape shape;
    std::uint64_t elements = 1;
    for (const json& size : value) {
      if (!size.is_number_unsigned()) refuse(tensor + ", shape", "expected whole numbers, seen " + shorten(value));
      auto dim = size.get<std::uint64_t>();
      // Sizes are bounded even beside a zero, so that no product of some of them overflows later.
      if (dim > kMaxElements || (dim > 0 && elements > kMaxElements / dim))
        refuse(tensor + ", shape", "expected fewer than 2^53 elements, seen " + shorten(value));
      elements *= std::max<std::uint64_t>(dim, 1);
      shape.push_back(static_cast<std::int64_t>(dim));
    }
    return shape;
  }

  // Tensors follow one another from the first byte to the last.
  void check_cover(std::vector<TensorEntry>& entries) const {
    auto end_of = [](const TensorEntry& entry) { return entry.begin + entry.type.bytes(); };
    std::sort(entries.begin(), entries.end(), [&](const TensorEntry& a, const TensorEntry& b) {
      return std::pair(a.begin, end_of(a)) < std::pair(b.begin, end_of(b));
    });
    std::uint64_t covered = 0;
    for (const TensorEntry& entry : entries) {
      if (entry.begin != covered) {
        refuse("tensor \"" + entry.name + "\", data_offsets", "begins at " + std::to_string(entry.begin) +
                                                                  ", but the tensor before it ends at " +
                                                                  std::to_string(covered));
      }
      covered = end_of(entry);
    }
    if (covered != data_bytes_) {
      refuse("data", "the tensors end at " + std::to_string(covered) + ", the file has " + std::to_string(data_bytes_) +
                         " bytes of data");
    }
  }

  static std::string shorten(const json& value) {
    std::string text = value.dump(-1, ' ', true, json::error_handler_t::replace);
    return text.size() <= 60 ? text : text.substr(0, 60) + "...";
  }

  std::uint64_t data_bytes_;
  const std::string& file_;
  Where where_;
};

}  // namespace

SafetensorsHeader parse_header(std::string_view text, std::uint64_t data_bytes, const std::string& file, Where where) {
  return Parser(data_bytes, file, where).parse(text);
}

FileLayout lay_out(const Checkpoint& checkpoint, const std::string& file, Where where) {
  std::vector<std::pair<std::string_view, const Tensor*>> order;
  for (const auto& [name, tensor] : checkpoint.tensors) {
    if (name == kMetadata) throw Error(file, where, "a tensor is named " + name, "give it another name");
    if (!tensor.valid()) {
      throw Error(file, where, "tensor \"" + name + "\" is default-constructed or moved from, and has no data",
                  "give it a type and values, or leave it out");
    }
    order.emplace_back(name, &tensor);
  }
  std::stable_sort(order.begin(), order.end(), [](const auto& a, const auto& b) {
    return size_of(a.second->dtype()) > size_of(b.second->dtype());
  });
  FileLayout layout;
  json header = json::object();
  if (!checkpoint.metadata.empty()) header[kMetadata] = checkpoint.metadata;
  std::size_t end = 0;
  for (const auto& [name, tensor] : order) {
    std::size_t begin = std::exchange(end, end + tensor->bytes());
    header[std::string(name)] = {{"dtype", name_of(tensor->dtype())},
                                 {"shape", std::vector(tensor->shape().dims().begin(), tensor->shape().dims().end())},
                                 {"data_offsets", {begin, end}}};
    layout.tensors.push_back(tensor);
  }
  std::string text;
  try {
    text = header.dump();
  } catch (const json::exception& e) {
    throw Error(file, where, std::string("a name or the metadata is not UTF-8: ") + e.what(), "use UTF-8");
  }
  text.resize((text.size() + 7) / 8 * 8, ' ');  // the data are aligned
  if (text.size() > kMaxHeader)
    throw Error(file, where,
                "its header has " + std::to_string(text.size()) + " bytes; files take " + std::to_string(kMaxHeader),
                "write several files");
  for (int byte = 0; byte < 8; ++byte) layout.header += static_cast<char>(text.size() >> (8 * byte) & 0xff);
  layout.header += text;
  return layout;
}

}  // namespace graphsink
