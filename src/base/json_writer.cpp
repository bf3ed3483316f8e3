#include "base/json_writer.h"

#include <cmath>
#include <cstdio>

#include "base/number_text.h"
#include "base/printable.h"

namespace graphsink {
namespace {

void add_escaped(char c, std::string& text) {
  constexpr std::string_view kShort = "\"\"\\\\\bb\ff\nn\rr\tt";  // each character, and its letter
  for (std::size_t i = 0; i < kShort.size(); i += 2)
    if (kShort[i] == c) return void((text += '\\') += kShort[i + 1]);
  if (static_cast<unsigned char>(c) >= 0x20) return void(text += c);
  char code[8];
  std::snprintf(code, sizeof code, "\\u%04x", static_cast<unsigned>(c));
  text += code;
}

}  // namespace

void JsonWriter::new_line() {
  if (indent_ < 0) return;
  text_ += '\n';
  text_.append(has_elements_.size() * static_cast<std::size_t>(indent_), ' ');
}

void JsonWriter::begin_value() {
  if (std::exchange(is_after_key_, false) || has_elements_.empty()) return;
  if (has_elements_.back()) text_ += ',';
  has_elements_.back() = true;
  new_line();
}

void JsonWriter::begin(char bracket) {
  begin_value();
  text_ += bracket;
  has_elements_.push_back(false);
}

void JsonWriter::end(char bracket) {
  const bool has_elements = has_elements_.back();
  has_elements_.pop_back();
  if (has_elements) new_line();
  text_ += bracket;
}

void JsonWriter::put(std::string_view text) {
  begin_value();
  text_ += text;
}

void JsonWriter::key(std::string_view name) {
  value(name);
  text_ += indent_ < 0 ? ":" : ": ";
  is_after_key_ = true;
}

void JsonWriter::value(double number) {
  const std::string text = number_text(number);
  std::isfinite(number) ? put(text) : value(text);
}

void JsonWriter::value(std::string_view text) {
  put("\"");
  while (!text.empty()) {
    const std::size_t size = character_size(text);
    if (size == 0) {
      text_ += "\xef\xbf\xbd";
    } else if (size == 1) {
      add_escaped(text[0], text_);
    } else {
      text_ += text.substr(0, size);
    }
    text.remove_prefix(size == 0 ? 1 : size);
  }
  text_ += '"';
}

}  // namespace graphsink
