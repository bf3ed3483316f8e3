#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <span>
#include <string_view>
#include <utility>

#include "graphsink/source.h"
#include "loader/data_file.h"

namespace graphsink {
namespace {

constexpr std::uint64_t kHeaderBytes = 1024;  // header of llm.c: 256 i32
constexpr const char* kTokensAgain = "write the file again, or set TokenSourceOptions::type to that of its tokens";

struct HeaderFormat {
  std::uint32_t magic;
  std::uint32_t version;
  TokenType type;
};
constexpr std::array<HeaderFormat, 2> kHeaders = {{{20240520, 1, TokenType::uint16}, {20240801, 7, TokenType::uint32}}};

const char* name_of(TokenType type) {
  return type == TokenType::uint16 ? "uint16" : type == TokenType::uint32 ? "uint32" : "int32";
}
std::uint64_t bytes_of(TokenType type) { return type == TokenType::uint16 ? 2 : 4; }

std::uint32_t number_at(const std::byte* bytes, std::uint64_t size) {
  std::uint32_t value = 0;
  for (std::uint64_t i = 0; i < size; ++i) value |= std::to_integer<std::uint32_t>(bytes[i]) << (8 * i);
  return value;
}
std::uint32_t swapped(std::uint32_t x) { return x >> 24 | (x >> 8 & 0xff00) | (x << 8 & 0xff0000) | x << 24; }

// Where the tokens are in the file, and what they are.
struct Tokens {
  std::uint64_t begin = 0;  // bytes in front of them
  std::uint64_t count = 0;
  TokenType type = TokenType::uint16;
};

Tokens behind_header(const DataFile& file, const HeaderFormat& format, const std::optional<TokenType>& type) {
  const Origin& origin = file.origin();
  if (file.size() < kHeaderBytes) {
    origin.refuse("is truncated: expected the 1,024 bytes of the header of llm.c, seen " + std::to_string(file.size()),
                  kTokensAgain);
  }
  std::array<std::byte, 12> header{};
  file.read(0, header);
  const std::uint32_t version = number_at(header.data() + 4, 4), count = number_at(header.data() + 8, 4);
  if (version != format.version) {
    origin.refuse("expected version " + std::to_string(format.version) + " of the header of llm.c, seen " +
                      std::to_string(version),
                  kTokensAgain);
  }
  if (type && *type != format.type) {
    origin.refuse(std::string("its header says that tokens are ") + name_of(format.type) +
                      ", TokenSourceOptions::type " + name_of(*type),
                  "leave TokenSourceOptions::type out");
  }
  if (file.size() - kHeaderBytes != count * bytes_of(format.type)) {
    origin.refuse("its header says " + std::to_string(count) + " tokens of " + std::to_string(bytes_of(format.type)) +
                      " bytes; expected as many behind it, seen " + std::to_string(file.size() - kHeaderBytes) +
                      " bytes",
                  kTokensAgain);
  }
  return {kHeaderBytes, count, format.type};
}

// Files that hold tokens in another form. Those of NumPy begin as no sensible tokens do, whatever type is given.
void refuse_other_files(const DataFile& file, const std::optional<TokenType>& type) {
  std::array<char, 6> start{};
  file.read(0, std::as_writable_bytes(std::span(start).first(
                   static_cast<std::size_t>(std::min<std::uint64_t>(start.size(), file.size())))));
  const std::string_view bytes(start.data(), start.size());
  if (bytes == "\x93NUMPY")
    file.origin().refuse("is an array of NumPy, with a header in front of its elements",
                         "write the tokens alone, as array.tofile() does");
  if (!type && (bytes.starts_with("\x1f\x8b\x08") || bytes.starts_with("PK\x03\x04")))
    file.origin().refuse("begins as a file that is packed", "unpack it; or, if these are tokens, say their type");
}

Tokens find_tokens(const DataFile& file, const std::optional<TokenType>& type) {
  refuse_other_files(file, type);
  const Origin& origin = file.origin();
  std::array<std::byte, 4> start{};
  file.read(0, std::span(start).first(static_cast<std::size_t>(std::min<std::uint64_t>(start.size(), file.size()))));
  const std::uint32_t magic = number_at(start.data(), start.size());
  for (const HeaderFormat& format : kHeaders) {
    if (magic == format.magic) return behind_header(file, format, type);
    if (!type && magic == swapped(format.magic)) {
      origin.refuse("has the header of llm.c in big-endian order",
                    "write the file with little-endian numbers, or say the type of tokens without a header");
    }
  }
  Tokens tokens{0, 0, type.value_or(TokenType::uint16)};
  if (file.size() % bytes_of(tokens.type) != 0) {
    origin.refuse("expected whole tokens of " + std::to_string(bytes_of(tokens.type)) + " bytes (" +
                      name_of(tokens.type) + "), seen " + std::to_string(file.size()) + " bytes",
                  kTokensAgain);
  }
  tokens.count = file.size() / bytes_of(tokens.type);
  return tokens;
}

class TokenSource : public Source {
 public:
  TokenSource(std::int64_t size, std::vector<Field> fields, std::shared_ptr<const DataFile> file, const Tokens& tokens,
              std::int64_t stride, std::int64_t vocabulary, Where where)
      : Source(size, std::move(fields), where),
        file_(std::move(file)),
        tokens_(tokens),
        stride_(static_cast<std::uint64_t>(stride)),
        vocabulary_(vocabulary) {}

 private:
  // Token i of the window is element i of the input and element i - 1 of the target.
  void fill(std::int64_t index, SampleMemory to) const override {
    constexpr std::size_t kPiece = 1024;
    std::array<std::byte, 4 * kPiece> bytes;
    const std::uint64_t size = bytes_of(tokens_.type), first = static_cast<std::uint64_t>(index) * stride_;
    const std::size_t length = to[0].size() / sizeof(std::int32_t);
    for (std::size_t done = 0; done <= length;) {
      const std::size_t count = std::min(kPiece, length + 1 - done);
      file_->read(tokens_.begin + (first + done) * size, std::span(bytes).first(count * size));
      for (std::size_t i = 0; i < count; ++i, ++done) {
        const std::int32_t token = checked(number_at(bytes.data() + i * size, size), first + done);
        if (done < length) std::memcpy(to[0].data() + sizeof token * done, &token, sizeof token);
        if (done > 0) std::memcpy(to[1].data() + sizeof token * (done - 1), &token, sizeof token);
      }
    }
  }

  std::int32_t checked(std::uint32_t bits, std::uint64_t place) const {
    // The bits of a negative i32 are a number that no i32 holds, like a u32 that is too large.
    if (bits < vocabulary_) return static_cast<std::int32_t>(bits);
    const std::string token =
        tokens_.type == TokenType::int32 ? std::to_string(static_cast<std::int32_t>(bits)) : std::to_string(bits);
    file_->origin().refuse(
        "token " + std::to_string(place) + ": expected 0 to " + std::to_string(vocabulary_ - 1) + ", seen " + token,
        "set TokenSourceOptions::type to that of the tokens, and TokenSourceOptions::vocabulary to their number");
  }

  std::shared_ptr<const DataFile> file_;
  Tokens tokens_;
  std::uint64_t stride_;
  std::int64_t vocabulary_;  // tokens are below this
};

}  // namespace

std::shared_ptr<const Source> token_source(const std::filesystem::path& path, const TokenSourceOptions& options,
                                           Where where) {
  constexpr std::int64_t kMostTokens = std::int64_t{1} << 31;
  auto refuse = [&](const std::string& problem, const std::string& remedy) {
    throw Error("token_source", where, problem, remedy);
  };
  if (options.length < 1 || options.length >= kMostTokens) {
    refuse("expected windows of 1 to 2^31 - 1 tokens, seen " + std::to_string(options.length),
           "set TokenSourceOptions::length");
  }
  if (options.stride < 0 || options.vocabulary < 0 || options.vocabulary > kMostTokens) {
    refuse("expected a stride of at least 0 and a vocabulary of 0 to 2^31, seen " + std::to_string(options.stride) +
               " and " + std::to_string(options.vocabulary),
           "leave both 0, or set them to what the file holds");
  }
  const auto file = std::make_shared<DataFile>(path, where);
  const Tokens tokens = find_tokens(*file, options.type);
  const auto count = static_cast<std::int64_t>(tokens.count);
  if (count <= options.length) {
    file->origin().refuse("is too short: expected at least " + std::to_string(options.length + 1) +
                              " tokens, a window and the one behind it, seen " + std::to_string(count),
                          "give a longer file, or ask for shorter windows");
  }
  const std::int64_t stride = options.stride == 0 ? options.length : options.stride;
  const std::int64_t size = (count - 1 - options.length) / stride + 1;
  const TensorType type{i32, {options.length}};
  return std::make_shared<TokenSource>(size, std::vector<Field>{{options.input, type}, {options.target, type}}, file,
                                       tokens, stride, options.vocabulary == 0 ? kMostTokens : options.vocabulary,
                                       where);
}

}  // namespace graphsink
