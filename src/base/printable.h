// Names and other text of users and files, made fit for messages and reports.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace graphsink {

// The bytes of the UTF-8 character with which the text begins, 1 to 4; 0 if it is empty or begins with none.
std::size_t character_size(std::string_view text) noexcept;
// Whether the text is well-formed UTF-8 (Unicode 15, table 3-7): no overlong forms, no surrogates.
bool is_utf8(std::string_view text) noexcept;

// The text with its control characters, and bytes that are not UTF-8, as "\n", "\r", "\t" or "\x1b": it stays in its
// line, and tells a terminal nothing. Backslashes are not doubled, so that nothing is escaped twice.
std::string printable(std::string_view text);

// The text, or the beginning of a longer one: up to `most` bytes, whole characters of UTF-8, and "...".
std::string shortened(std::string_view text, std::size_t most = 60);

}  // namespace graphsink
