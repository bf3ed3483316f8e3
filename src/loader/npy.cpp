#include "loader/npy.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <string_view>

#include "base/printable.h"

namespace graphsink {
namespace {

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr std::uint64_t kMostHeader = 1 << 16;                 // bytes; NumPy itself refuses more than 10,000
constexpr std::int64_t kMostElements = std::int64_t{1} << 53;  // times 8 bytes: what a TensorType can have
constexpr const char* kNpyAgain = "copy the file again, or write it again with numpy.save()";

struct NpyHeader {
  std::string descr;
  bool is_fortran = false;
  Shape shape;
};

// Parses the header, a Python dictionary such as {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }.
class HeaderParser {
 public:
  HeaderParser(std::string_view text, const Origin& origin) : text_(text), all_(text), origin_(origin) {}

  NpyHeader parse() {
    NpyHeader header;
    bool has_descr = false, has_order = false, has_shape = false;
    expect('{');
    while (!accept('}')) {
      const std::string key = quoted();
      expect(':');
      if (key == "descr" && !has_descr) {
        has_descr = true;
        header.descr = descr();
      } else if (key == "fortran_order" && !has_order) {
        has_order = true;
        header.is_fortran = boolean_word();
      } else if (key == "shape" && !has_shape) {
        has_shape = true;
        header.shape = shape();
      } else {
        refuse("keys descr, fortran_order and shape, each once");
      }
      if (!accept(',')) {
        expect('}');
        break;
      }
    }
    if (!has_descr || !has_order || !has_shape) refuse("keys descr, fortran_order and shape, each once");
    skip_spaces();
    if (!text_.empty()) refuse("nothing behind the dictionary");
    return header;
  }

 private:
  [[noreturn]] void refuse(const std::string& expected) const {
    origin_.refuse("header: expected " + expected + ", seen " + shortened(all_, 200), kNpyAgain);
  }
  void skip_spaces() {
    while (!text_.empty() && (text_[0] == ' ' || text_[0] == '\n')) text_.remove_prefix(1);
  }
  bool accept(char c) {
    skip_spaces();
    if (text_.empty() || text_[0] != c) return false;
    text_.remove_prefix(1);
    return true;
  }
  void expect(char c) {
    if (!accept(c)) refuse("'" + std::string(1, c) + "' in a dictionary of Python");
  }
  std::string quoted() {
    skip_spaces();
    if (text_.empty() || (text_[0] != '\'' && text_[0] != '"')) refuse("a text in quotes");
    const std::size_t end = text_.find(text_[0], 1);
    if (end == std::string_view::npos) refuse("a text that ends with a quote");
    std::string word(text_.substr(1, end - 1));
    text_.remove_prefix(end + 1);
    return word;
  }
  std::string descr() {
    skip_spaces();
    if (!text_.empty() && text_[0] == '[') {
      origin_.refuse("is an array of records: descr is a list in " + shortened(all_, 200),
                     "save each field as an array of its own");
    }
    return quoted();
  }
  bool boolean_word() {
    skip_spaces();
    for (std::string_view word : {"True", "False"}) {
      if (text_.substr(0, word.size()) != word) continue;
      text_.remove_prefix(word.size());
      return word == "True";
    }
    refuse("True or False for fortran_order");
  }
  Shape shape() {
    Shape shape;
    expect('(');
    while (!accept(')')) {
      skip_spaces();
      std::int64_t dim = 0;
      const auto [end, code] = std::from_chars(text_.data(), text_.data() + text_.size(), dim);
      if (code != std::errc() || dim < 0) refuse("sizes from 0 to 2^63 - 1");
      if (shape.rank() == Shape::kMaxRank) {
        refuse("at most " + std::to_string(Shape::kMaxRank) + " dimensions");
      }
      shape.push_back(dim);
      text_.remove_prefix(static_cast<std::size_t>(end - text_.data()));
      if (!accept(',')) {
        expect(')');
        break;
      }
    }
    return shape;
  }

  std::string_view text_, all_;
  const Origin& origin_;
};

struct NumpyType {
  std::string_view descr;
  DType dtype;
};
constexpr std::array<NumpyType, 7> kTypes = {
    {{"<f2", f16}, {"<f4", f32}, {"<f8", f64}, {"<i4", i32}, {"<i8", i64}, {"|u1", u8}, {"|b1", boolean}}};

DType dtype_from(const std::string& descr, const Origin& origin) {
  for (const NumpyType& type : kTypes) {
    if (type.descr == descr) return type.dtype;
  }
  const bool is_big = !descr.empty() && descr[0] == '>';
  origin.refuse((is_big ? "is big-endian: " : "has another element type: ") +
                    std::string("expected descr <f2, <f4, <f8, <i4, <i8, |u1 or |b1, seen \"") + shortened(descr) +
                    "\"",
                "convert it with astype(), for example to numpy.float32 or numpy.int32, and save it again");
}

// Elements that fit a TensorType, at least one.
std::int64_t count_of(const Shape& shape, const Origin& origin) {
  if (shape.rank() == 0) {
    origin.refuse("expected a first dimension that counts the samples, seen a scalar", "save an array of samples");
  }
  const auto dims = shape.dims();
  if (std::find(dims.begin(), dims.end(), 0) != dims.end()) {
    origin.refuse("is empty: expected sizes of at least 1, seen " + to_string(shape), "save an array of samples");
  }
  std::int64_t elements = 1;
  for (std::int64_t dim : dims) {
    if (elements > (kMostElements - 1) / dim) {
      origin.refuse("expected fewer than 2^53 elements, seen " + to_string(shape), kNpyAgain);
    }
    elements *= dim;
  }
  return elements;
}

struct Preamble {
  std::uint64_t begin = 0;  // place of the header
  std::uint64_t size = 0;   // bytes of the header
};

// The magic number, the version and the size of the header, which is 2 bytes in version 1, otherwise 4.
Preamble read_preamble(const ByteRange& bytes) {
  std::array<char, 12> start{};
  const std::size_t there = static_cast<std::size_t>(std::min<std::uint64_t>(start.size(), bytes.size()));
  bytes.read(0, std::as_writable_bytes(std::span(start).first(there)));
  const Origin& origin = bytes.origin();
  if (std::string_view(start.data(), there).substr(0, kMagic.size()) != kMagic) {
    origin.refuse("is no .npy file: expected the magic number \\x93NUMPY, seen " + std::to_string(bytes.size()) +
                      " bytes that begin otherwise",
                  "give a file of numpy.save()");
  }
  const int version = there > 6 ? static_cast<unsigned char>(start[6]) : 0;
  const std::size_t digits = version == 1 ? 2 : 4;
  if (there < 8 + digits) origin.refuse("is truncated in its first 12 bytes", kNpyAgain);
  if (version < 1 || version > 3) {
    origin.refuse("expected version 1 to 3 of the format, seen " + std::to_string(version), kNpyAgain);
  }
  Preamble preamble{8 + digits, 0};
  for (std::size_t i = 0; i < digits; ++i) {
    preamble.size |= std::uint64_t{static_cast<unsigned char>(start[8 + i])} << (8 * i);
  }
  if (preamble.size > kMostHeader || preamble.size > bytes.size() - preamble.begin) {
    origin.refuse("expected a header of at most " +
                      std::to_string(std::min(kMostHeader, bytes.size() - preamble.begin)) + " bytes, seen " +
                      std::to_string(preamble.size),
                  kNpyAgain);
  }
  return preamble;
}

class ArraySource : public Source {
 public:
  ArraySource(std::int64_t size, std::vector<Field> fields, std::vector<NpyArray> arrays, Where where)
      : Source(size, std::move(fields), where), arrays_(std::move(arrays)) {}

 private:
  void fill(std::int64_t index, SampleMemory to) const override {
    for (std::size_t i = 0; i < to.size(); ++i) arrays_[i].read_row(index, to[i]);
  }

  std::vector<NpyArray> arrays_;
};

}  // namespace

NpyArray::NpyArray(ByteRange bytes) : bytes_(std::move(bytes)) {
  const Origin& origin = bytes_.origin();
  const Preamble preamble = read_preamble(bytes_);
  std::string text(static_cast<std::size_t>(preamble.size), '\0');
  bytes_.read(preamble.begin, std::as_writable_bytes(std::span(text)));
  const NpyHeader header = HeaderParser(text, origin).parse();
  type_ = {dtype_from(header.descr, origin), header.shape};
  const std::int64_t elements = count_of(header.shape, origin);
  if (header.is_fortran && header.shape.rank() > 1) {
    origin.refuse("is in Fortran order, " + to_string(type_), "save numpy.ascontiguousarray() of it");
  }
  data_ = preamble.begin + preamble.size;
  const std::uint64_t expected = static_cast<std::uint64_t>(elements) * size_of(type_.dtype);
  const std::uint64_t seen = bytes_.size() - data_;
  if (seen != expected) {
    origin.refuse(std::string(seen < expected ? "is truncated" : "is too long") + ": expected " +
                      std::to_string(expected) + " bytes of elements for " + to_string(type_) + ", seen " +
                      std::to_string(seen),
                  kNpyAgain);
  }
}

void NpyArray::read_row(std::int64_t row, std::span<std::byte> to) const {
  bytes_.read(data_ + static_cast<std::uint64_t>(row) * to.size(), to);
  if (type_.dtype != boolean) return;
  const auto bad = std::find_if(to.begin(), to.end(), [](std::byte b) { return b > std::byte{1}; });
  if (bad != to.end()) {
    origin().refuse("sample " + std::to_string(row) + ": expected bools of 0 or 1, seen " +
                        std::to_string(std::to_integer<int>(*bad)) + " at element " + std::to_string(bad - to.begin()),
                    "save the array as numpy.uint8, or repair it");
  }
}

std::shared_ptr<const Source> array_source(std::vector<std::pair<std::string, NpyArray>> arrays, Where where) {
  std::int64_t size = 0;
  std::vector<Field> fields;
  std::vector<NpyArray> rows;
  for (auto& [name, array] : arrays) {
    const Shape& shape = array.type().shape;
    if (fields.empty()) size = shape[0];
    if (shape[0] != size) {
      array.origin().refuse("expected " + std::to_string(size) + " samples as in \"" + shortened(fields[0].name) +
                                "\", seen " + to_string(array.type()),
                            "use arrays of one set");
    }
    fields.push_back({name, {array.type().dtype, Shape(shape.dims().subspan(1))}});
    rows.push_back(std::move(array));
  }
  return std::make_shared<ArraySource>(size, std::move(fields), std::move(rows), where);
}

std::shared_ptr<const Source> npy_source(const std::vector<std::pair<std::string, std::filesystem::path>>& files,
                                         Where where) {
  std::vector<std::pair<std::string, NpyArray>> arrays;
  for (const auto& [name, path] : files) {
    arrays.emplace_back(name, NpyArray(ByteRange(std::make_shared<DataFile>(path, where))));
  }
  return array_source(std::move(arrays), where);
}

}  // namespace graphsink
