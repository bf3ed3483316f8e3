// Numbers in messages and reports, the same in every locale: std::to_string and printf follow the process's.
#pragma once

#include <array>
#include <charconv>
#include <string>

namespace graphsink {

// With `digits` digits after the decimal point: "3.50".
inline std::string fixed_text(double value, int digits) {
  std::array<char, 400> text;  // the longest double has 309 digits before the point
  auto end = std::to_chars(text.data(), text.data() + text.size(), value, std::chars_format::fixed, digits).ptr;
  return {text.data(), end};
}

// The shortest text that converts back to this number: "0.1", "1e-09".
inline std::string number_text(double value) {
  std::array<char, 32> text;
  auto end = std::to_chars(text.data(), text.data() + text.size(), value).ptr;
  return {text.data(), end};
}

}  // namespace graphsink
