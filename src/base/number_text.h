// Numbers in messages and reports, the same in every locale: std::to_string and printf follow the process's.
#pragma once

#include <array>
#include <charconv>
#include <cstdint>
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

// Text of an address: "0x7f3c00000000".
inline std::string address_text(std::uintptr_t address) {
  std::array<char, 16> digits;
  auto end = std::to_chars(digits.data(), digits.data() + digits.size(), address, 16).ptr;
  return "0x" + std::string(digits.data(), end);
}
inline std::string address_text(const void* address) { return address_text(reinterpret_cast<std::uintptr_t>(address)); }

}  // namespace graphsink
