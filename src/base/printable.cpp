#include "base/printable.h"

#include <algorithm>

namespace graphsink {
namespace {

constexpr bool is_between(unsigned char byte, unsigned first, unsigned last) { return first <= byte && byte <= last; }

// Whether the character is one of U+0000 to U+001F, or of U+007F to U+009F.
bool is_control(std::string_view character) {
  const auto first = static_cast<unsigned char>(character[0]);
  if (character.size() == 1) return first < 0x20 || first == 0x7f;
  return first == 0xc2 && static_cast<unsigned char>(character[1]) < 0xa0;
}

void escape(std::string_view bytes, std::string& to) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  for (char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '\n') {
      to += "\\n";
    } else if (c == '\r') {
      to += "\\r";
    } else if (c == '\t') {
      to += "\\t";
    } else {
      to += {'\\', 'x', kDigits[byte >> 4], kDigits[byte & 15]};
    }
  }
}

}  // namespace

std::size_t character_size(std::string_view text) noexcept {
  const auto byte = [&](std::size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u; };
  const auto follow = [&](std::size_t end) {
    for (std::size_t i = 2; i < end; ++i)
      if (!is_between(static_cast<unsigned char>(byte(i)), 0x80, 0xbf)) return std::size_t{0};
    return end;
  };
  const auto first = static_cast<unsigned char>(byte(0)), second = static_cast<unsigned char>(byte(1));
  if (first < 0x80) return text.empty() ? 0 : 1;
  if (is_between(first, 0xc2, 0xdf)) return is_between(second, 0x80, 0xbf) ? 2 : 0;
  if (is_between(first, 0xe0, 0xef))
    return is_between(second, first == 0xe0 ? 0xa0 : 0x80, first == 0xed ? 0x9f : 0xbf) ? follow(3) : 0;
  if (is_between(first, 0xf0, 0xf4))
    return is_between(second, first == 0xf0 ? 0x90 : 0x80, first == 0xf4 ? 0x8f : 0xbf) ? follow(4) : 0;
  return 0;
}

bool is_utf8(std::string_view text) noexcept {
  while (!text.empty()) {
    const std::size_t size = character_size(text);
    if (size == 0) return false;
    text.remove_prefix(size);
  }
  return true;
}

std::string printable(std::string_view text) {
  std::string result;
  result.reserve(text.size());
  while (!text.empty()) {
    const std::size_t size = character_size(text);
    const std::string_view character = text.substr(0, std::max<std::size_t>(size, 1));
    if (size == 0 || is_control(character)) {
      escape(character, result);
    } else {
      result += character;
    }
    text.remove_prefix(character.size());
  }
  return result;
}

std::string shortened(std::string_view text, std::size_t most) {
  if (text.size() <= most) return std::string(text);
  std::size_t end = most;
  while (end > 0 && is_between(static_cast<unsigned char>(text[end]), 0x80, 0xbf)) --end;
  return std::string(text.substr(0, end)) + "...";
}

}  // namespace graphsink
