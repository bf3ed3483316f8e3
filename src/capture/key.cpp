#include "graphsink/key.h"

#include <algorithm>
#include <cstring>

#include "base/number_text.h"
#include "base/printable.h"

namespace graphsink {
namespace {

constexpr std::size_t kWord = sizeof(std::uint64_t);

}  // namespace

std::strong_ordering operator<=>(const Key& a, const Key& b) {
  if (a.count_ != b.count_) return a.count_ <=> b.count_;
  const std::size_t in_place = std::min(a.count_, Key::kInPlace);
  const int first = std::memcmp(a.first_.data(), b.first_.data(), in_place * kWord);
  if (first != 0) return first <=> 0;
  return a.rest_ <=> b.rest_;
}

void Key::add_string(std::string_view text) {
  push(Kind::string, text.size());
  for (std::size_t begin = 0; begin < text.size(); begin += kWord) {
    std::uint64_t word = 0;
    std::memcpy(&word, text.data() + begin, std::min(kWord, text.size() - begin));
    push(word);
  }
}

void Key::add_key(const Key& key) {
  const std::size_t count = key.count_;
  push(Kind::key, count);
  for (std::size_t i = 0; i < count; ++i) push(key.word(i));
}

std::string Key::text_of(std::size_t& at) const {
  const auto kind = static_cast<Kind>(word(at));
  const std::uint64_t value = word(at + 1);
  at += 2;
  auto parts_until = [&](auto is_end) {
    std::string text;
    while (!is_end()) text += (text.empty() ? "" : ", ") + text_of(at);
    return text;
  };
  switch (kind) {
    case Kind::integer:
      return std::to_string(static_cast<std::int64_t>(value));
    case Kind::large:
      return std::to_string(value);
    case Kind::pointer:
      return address_text(static_cast<std::uintptr_t>(value));
    case Kind::string: {
      std::string text(value, '\0');
      for (std::size_t begin = 0; begin < text.size(); begin += kWord) {
        const std::uint64_t next = word(at++);
        std::memcpy(text.data() + begin, &next, std::min(kWord, text.size() - begin));
      }
      return '"' + printable(text) + '"';
    }
    case Kind::list:
      return "[" + parts_until([left = value]() mutable { return left-- == 0; }) + "]";
    case Kind::key:
      break;
  }
  const std::size_t end = at + value;
  return "{" + parts_until([&] { return at == end; }) + "}";
}

std::string to_string(const Key& key) {
  std::string text;
  for (std::size_t at = 0; at < key.count_;) text += (text.empty() ? "" : ", ") + key.text_of(at);
  return "{" + text + "}";
}

}  // namespace graphsink
