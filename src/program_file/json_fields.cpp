#include "program_file/json_fields.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>

#include "base/number_text.h"
#include "base/printable.h"
#include "ir/graph_data.h"

namespace graphsink {
namespace {

constexpr std::string_view kBits = "0x";
constexpr const char* kWriteGraphAgain = "copy the file again, or write it again with write_graph()";
// Lists and objects around a value: bodies are no deeper than other nodes, so that only attributes decide.
constexpr int kMostNested = 32;

// Whether the text of the number is read as the same one. JSON readers take "-0" for an integer.
bool has_text(double number) { return std::isfinite(number) && !(number == 0 && std::signbit(number)); }

std::string bits_text(double number) {
  char digits[16];
  const auto bits = std::bit_cast<std::uint64_t>(number);
  const auto end = std::to_chars(std::begin(digits), std::end(digits), bits, 16).ptr;
  return std::string(kBits).append(digits, end);
}

// How deep brackets are nested. The parser could tell, too, but a parser with a callback takes time in proportion to
// the square of the length of a list.
int depth_of(std::string_view text) {
  int depth = 0, most = 0;
  bool is_text = false;
  for (std::size_t i = 0; i < text.size() && depth >= 0; ++i) {
    const char c = text[i];
    if (c == '"') is_text = !is_text;
    if (is_text && c == '\\') ++i;
    if (is_text) continue;
    if (c == '{' || c == '[') most = std::max(most, ++depth);
    if (c == '}' || c == ']') --depth;
  }
  return most;
}

std::string kind_of(const nlohmann::json& json) {
  if (json.is_string()) return in_quotes(json.get_ref<const std::string&>());
  if (json.is_number() || json.is_boolean()) return shortened(json.dump());
  return json.is_null() ? "null" : json.is_array() ? "a list" : "an object";
}

}  // namespace

std::size_t JsonFieldWriter::begin_list(std::size_t size) {
  json_.begin_array();
  return size;
}

bool JsonFieldWriter::has_value(bool has) {
  if (!has) json_.null();
  return has;
}

void JsonFieldWriter::real(double& number) { has_text(number) ? json_.value(number) : json_.value(bits_text(number)); }

void JsonFieldWriter::text(std::string& text) {
  if (!is_utf8(text)) refuse("the text " + in_quotes(text) + " is not UTF-8");
  json_.value(text);
}

void JsonFieldWriter::refuse(const std::string& problem) const {
  throw Error("write_graph", Where(), problem, "use values that JSON can hold, and that the op accepts");
}

void JsonField::refuse(const std::string& problem) const { refuse(problem, kWriteGraphAgain); }

void JsonField::refuse(const std::string& problem, const std::string& remedy) const {
  throw Error(*file_, *where_, place() + ": " + problem, remedy, ErrorCode::io);
}

void JsonField::refuse_kind(const char* expected) const {
  refuse("expected " + std::string(expected) + ", seen " + kind_of(*json_));
}

std::string JsonField::place() const {
  std::string text = "graph";
  for (int i = 0; i < depth_; ++i) {
    const auto& [name, number] = steps_[i];
    text += name.empty() ? "[" + std::to_string(number) + "]" : (i > 0 ? "." : ", ") + shortened(name);
  }
  return text;
}

JsonField JsonField::inner(const Json& json, Step step) const {
  JsonField field = *this;
  field.json_ = &json;
  if (field.depth_ < kMostSteps) field.steps_[field.depth_++] = step;
  return field;
}

JsonField JsonField::member(std::string_view name) const {
  std::optional<JsonField> found = find(name);
  if (!found) refuse("has no \"" + std::string(name) + "\"");
  return *found;
}

std::optional<JsonField> JsonField::find(std::string_view name) const {
  expect_object();
  const auto found = json_->find(name);
  if (found == json_->end()) return {};
  return inner(*found, {std::string_view(found.key()), 0});
}

void JsonField::expect_object() const {
  if (!json_->is_object()) refuse_kind("an object");
}

void JsonField::expect_members(const std::set<std::string, std::less<>>& names) const {
  expect_object();
  for (const auto& item : json_->items())
    if (!names.contains(item.key())) refuse("has an unknown member " + in_quotes(item.key()));
}

std::size_t JsonField::size() const {
  if (!json_->is_array()) refuse_kind("a list");
  return json_->size();
}

JsonField JsonField::operator[](std::size_t i) const { return inner((*json_)[i], {{}, i}); }

bool JsonField::flag() const {
  if (!json_->is_boolean()) refuse_kind("true or false");
  return json_->get<bool>();
}

std::int64_t JsonField::integer(std::int64_t least, std::int64_t most) const {
  if (!json_->is_number_integer()) refuse_kind("a whole number");
  const bool is_large = json_->is_number_unsigned() && json_->get<std::uint64_t>() > std::uint64_t{INT64_MAX};
  const std::int64_t number = is_large ? INT64_MAX : json_->get<std::int64_t>();
  if (is_large || number < least || number > most)
    refuse("expected a number from " + std::to_string(least) + " to " + std::to_string(most) + ", seen " +
           json_->dump());
  return number;
}

int JsonField::index(std::size_t end) const {
  if (end == 0) refuse("there is nothing that it could refer to");
  return static_cast<int>(integer(0, static_cast<std::int64_t>(end) - 1));
}

std::uint64_t JsonField::natural(std::uint64_t most) const {
  if (!json_->is_number_integer()) refuse_kind("a whole number");
  if (!json_->is_number_unsigned() || json_->get<std::uint64_t>() > most)
    refuse("expected a number from 0 to " + std::to_string(most) + ", seen " + json_->dump());
  return json_->get<std::uint64_t>();
}

double JsonField::real() const {
  if (json_->is_number()) return json_->get<double>();
  if (!json_->is_string()) refuse_kind("a number");
  const std::string& text = json_->get_ref<const std::string&>();
  std::uint64_t bits = 0;
  const char* end = text.data() + text.size();
  constexpr std::size_t kMostDigits = 16;
  const bool has_bits =
      text.starts_with(kBits) && text.size() > kBits.size() && text.size() <= kBits.size() + kMostDigits;
  if (!has_bits || std::from_chars(text.data() + kBits.size(), end, bits, 16).ptr != end)
    refuse("expected a number, or \"0x\" and its bits, seen " + in_quotes(text));
  return std::bit_cast<double>(bits);
}

const std::string& JsonField::text() const {
  if (!json_->is_string()) refuse_kind("a text");
  return json_->get_ref<const std::string&>();
}

JsonField JsonFieldReader::take() {
  if (next_) {
    last_ = *next_;
    next_.reset();
    return *last_;
  }
  Open& list = open_.back();
  last_ = list.field[list.elements++];
  return *last_;
}

void JsonFieldReader::begin_struct() {
  JsonField field = take();
  field.expect_object();
  open_.push_back({field});
}

void JsonFieldReader::name(std::string_view name) {
  open_.back().names.emplace(name);
  next_ = open_.back().field.member(name);
}

void JsonFieldReader::end_struct() {
  const Open& done = open_.back();
  done.field.expect_members(done.names);
  last_ = done.field;
  open_.pop_back();
}

std::size_t JsonFieldReader::begin_list(std::size_t) {
  JsonField field = take();
  const std::size_t size = field.size();
  open_.push_back({field});
  return size;
}

void JsonFieldReader::end_list() {
  last_ = open_.back().field;
  open_.pop_back();
}

bool JsonFieldReader::has_value(bool) {
  JsonField field = take();
  if (field.is_null()) return false;
  next_ = field;
  return true;
}

void JsonFieldReader::flag(bool& is) { is = take().flag(); }
void JsonFieldReader::integer(std::int64_t& number, std::int64_t least, std::int64_t most) {
  number = take().integer(least, most);
}
void JsonFieldReader::natural(std::uint64_t& number, std::uint64_t most) { number = take().natural(most); }
void JsonFieldReader::real(double& number) { number = take().real(); }
void JsonFieldReader::text(std::string& text) { text = take().text(); }

void JsonFieldReader::refuse(const std::string& problem) const { last_->refuse(problem); }

nlohmann::json parse_graph(const std::string& text, const std::string& file, const Where& where) {
  using nlohmann::json;
  const auto refuse = [&](const std::string& problem) {
    throw Error(file, where, "graph: " + problem, kWriteGraphAgain, ErrorCode::io);
  };
  if (depth_of(text) > kMostNested) refuse("is nested more than " + std::to_string(kMostNested) + " deep");
  try {
    return json::parse(text);
  } catch (const json::exception& e) {
    refuse("is not JSON: " + shortened(e.what(), 200));
  }
  return {};
}

}  // namespace graphsink
