// JsonWriter: JSON text, written from its beginning to its end.
#pragma once

#include <concepts>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace graphsink {

// Nothing but the text is kept, and every allocation that fails throws std::bad_alloc to the caller. (A tree of
// nlohmann::json allocates in its destructor, which ends the process if that fails.)
class JsonWriter {
 public:
  // Lines are indented by `indent` spaces for each level; without one, all is one line without spaces.
  explicit JsonWriter(int indent = -1) : indent_(indent) {}

  void begin_object() { begin('{'); }
  void end_object() { end('}'); }
  void begin_array() { begin('['); }
  void end_array() { end(']'); }
  void key(std::string_view name);

  void null() { put("null"); }
  void value(bool is) { put(is ? "true" : "false"); }
  template <std::integral T>
  void value(T number) {
    put(std::to_string(number));
  }
  // JSON has no infinities and NaNs, which become text.
  void value(double number);
  // Bytes that are not UTF-8 become U+FFFD.
  void value(std::string_view text);
  void value(const std::string& text) { value(std::string_view(text)); }
  void value(const char* text) { value(std::string_view(text)); }

  template <class T>
  void member(std::string_view name, const T& is) {
    key(name);
    value(is);
  }
  // The elements of a range of numbers.
  template <class Range>
  void array(const Range& range) {
    begin_array();
    for (const auto& element : range) value(element);
    end_array();
  }

  // The text so far, which is complete when everything that was begun has ended.
  std::string take() { return std::move(text_); }

 private:
  void begin(char bracket);
  void end(char bracket);
  void begin_value();  // a comma and a new line, where they are due
  void new_line();
  void put(std::string_view text);

  std::string text_;
  int indent_;
  std::vector<bool> has_elements_;  // by open object and array, the innermost last: whether it has elements
  bool is_after_key_ = false;
};

}  // namespace graphsink
