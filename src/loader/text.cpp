#include <algorithm>
#include <array>

#include "base/at.h"
#include "graphsink/loader.h"
#include "loader/file_reader.h"

namespace graphsink {

std::string Text::decode(const std::vector<std::int32_t>& indices) const {
  std::string text;
  text.reserve(indices.size());
  for (std::int32_t index : indices) {
    if (index < 0 || static_cast<std::size_t>(index) >= vocabulary.size()) {
      throw Error("decode", Where(),
                  "expected tokens from 0 to " + std::to_string(vocabulary.size()) + " (exclusive), seen " +
                      std::to_string(index),
                  "decode tokens of the same vocabulary");
    }
    text += vocabulary[at(index)];
  }
  return text;
}

Text read_text(const std::filesystem::path& path, std::size_t minimum, std::size_t maximum, Where where) {
  FileReader file(path, where);
  std::vector<std::uint8_t> bytes = file.read(maximum);
  if (!file.is_at_end()) {
    file.refuse("is too long: expected at most " + std::to_string(maximum) + " bytes of text, seen more",
                "give a shorter text, or a larger maximum");
  }
  if (bytes.size() < minimum) {
    file.refuse("is too short: expected at least " + std::to_string(minimum) + " bytes of text, seen " +
                    std::to_string(bytes.size()),
                "give a longer text");
  }

  std::array<std::int32_t, 256> token_of{};
  for (std::uint8_t byte : bytes) token_of[byte] = 1;
  Text text;
  for (std::size_t byte = 0; byte < token_of.size(); ++byte) {
    if (token_of[byte] == 0) continue;
    token_of[byte] = static_cast<std::int32_t>(text.vocabulary.size());
    text.vocabulary += static_cast<char>(byte);
  }
  text.tokens.resize(bytes.size());
  std::transform(bytes.begin(), bytes.end(), text.tokens.begin(), [&](std::uint8_t byte) { return token_of[byte]; });
  text.source = path.filename().string();
  return text;
}

}  // namespace graphsink
