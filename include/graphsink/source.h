// Source: numbered training samples, of files that may be larger than memory, of tensors, or of a function. Any number
// of threads may read one at once. Files are untrusted: every size in them is checked before memory is taken or read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "graphsink/error.h"
#include "graphsink/tensor.h"
#include "graphsink/type.h"
#include "graphsink/version.h"

namespace GRAPHSINK_PUBLIC graphsink {

// One part of each sample, for one feed: "image" f32[784], "label" i32[].
struct Field {
  std::string name;  // not empty, and not that of another field of the Source
  TensorType type;   // one sample's, without a dimension for the batch
  friend bool operator==(const Field&, const Field&) = default;  // whether names and types are equal
};

// The memory of a sample: one span for each Field, in their order, of TensorType::bytes() bytes, row-major and at any
// alignment.
using SampleMemory = std::span<const std::span<std::byte>>;

// Random access to samples 0 to size() - 1. Those who have data of their own call function_source() or derive a class
// that overrides fill(). A Source does not change after it was made, so that all calls may come from any number of
// threads at once.
class Source {
 public:
  virtual ~Source();
  Source(const Source&) = delete;
  Source& operator=(const Source&) = delete;

  std::int64_t size() const noexcept { return size_; }                   // samples, at least 1
  const std::vector<Field>& fields() const noexcept { return fields_; }  // at least 1; valid while *this lives
  // Writes sample `index` straight into `to`, which is borrowed for the call. Throws Error for an index outside of
  // [0, size()), for another number of spans than fields or a span of another size than its field; and what fill()
  // throws: for the sources of this header, an Error that names the file and the line that made the source. After an
  // Error the memory may hold a part of the sample.
  void read(std::int64_t index, SampleMemory to, Where where = Where::current()) const;

 protected:
  // Throws Error for a size below 1, no fields, a name that is empty or occurs twice, or an open dimension.
  Source(std::int64_t size, std::vector<Field> fields, Where where = Where::current());

 private:
  // Called by read() after its checks, by several threads at once. Writes all of the memory or throws.
  virtual void fill(std::int64_t index, SampleMemory to) const = 0;

  std::int64_t size_;
  std::vector<Field> fields_;
};

// The rows of tensors of equal first dimensions: a tensor "image" f32[60000, 784] gives a field "image" f32[784].
// Throws Error for a tensor without data or dimensions, or with another number of rows than the first, and for what the
// constructor of Source refuses.
std::shared_ptr<const Source> tensor_source(std::vector<std::pair<std::string, Tensor>> tensors,
                                            Where where = Where::current());

// Samples that are their own number: one field "index" i32[], which is the index of the sample. For data that live on
// the device and are gathered inside the step, so that a launch moves four bytes a sample:
//
//   Value index = g.feed("index", i32, {batch});
//   Value x = gather(images, index), t = gather(labels, index);  // constants with one row for each sample
//   ...
//   Loader loader(program, index_source(samples), order, {{"index", index}});
//
// Throws Error for a size below 1, or above the 2^31 numbers that i32 holds.
std::shared_ptr<const Source> index_source(std::int64_t size, Where where = Where::current());

// Options of idx_source().
struct IdxSourceOptions {
  bool is_scaled = true;        // images are f32 in [0, 1], each byte divided by 255; otherwise they stay u8
  bool is_flat = true;          // an image is one dimension [rows * columns]; otherwise it is [rows, columns]
  std::int64_t classes = 10;    // labels are 0 to classes - 1; at most 256
  std::string image = "image";  // name of the field of images
  std::string label = "label";  // name of the field of labels
};
// Images u8 [n, ...] and labels u8 [n] in two IDX files (loader.h), as MNIST has them; labels become i32[]. A plain
// file of images is read sample by sample, a gzipped one is unpacked into memory once, at most kMostIdxBytes, and so
// are the labels. Throws Error naming the file for what read_idx() refuses, for counts that differ, and for a label
// that is not below `classes`.
std::shared_ptr<const Source> idx_source(const std::filesystem::path& images, const std::filesystem::path& labels,
                                         const IdxSourceOptions& options = {}, Where where = Where::current());

// Elements of a file of tokens.
enum class TokenType : std::uint8_t { uint16, uint32, int32 };
// Options of token_source().
struct TokenSourceOptions {
  std::int64_t length = 0;  // tokens in a window, at least 1
  std::int64_t stride = 0;  // tokens from the beginning of a window to that of the next; 0: as many as `length`
  // Elements of the file, little-endian; none: what its header says, or uint16 without one.
  std::optional<TokenType> type{};
  std::int64_t vocabulary = 0;    // tokens are 0 to vocabulary - 1; 0: all that i32 can hold
  std::string input = "input";    // name of the field of the window
  std::string target = "target";  // name of the field of the window one token later
};
// Windows of a file of tokens: a stream of numbers without a header, as nanoGPT and Megatron (.bin) write it, or behind
// the header of llm.c (256 i32: the magic number 20240520 for u16 tokens or 20240801 for u32 tokens, a version, the
// count). A sample is i32[length] from token index * stride on, and the same shifted by one as i32[length]; the tokens
// that fill no last window are left out. A stride of 1 in shuffled order gives windows at random places. Only what is
// asked for is read, so the file may be larger than memory. Throws Error naming the file if it is not whole tokens, is
// too short for one window, or has a header that does not fit its size or `type`; read() throws Error naming the file
// and the place for a token outside of the vocabulary.
std::shared_ptr<const Source> token_source(const std::filesystem::path& path, const TokenSourceOptions& options,
                                           Where where = Where::current());

// Arrays in .npy files of NumPy, format 1 to 3, each with the name of its field; the first dimensions are equal and
// count the samples. Takes little-endian arrays in C order of float16, float32, float64, int32, int64, uint8 and bool,
// which become f16, f32, f64, i32, i64, u8 and boolean: nothing is converted. Samples are read when they are asked for,
// so the files may be larger than memory. Throws Error naming the file for any other array, one without elements or
// with more than Shape::kMaxRank dimensions, and a file that is shorter or longer than its shape says; read() throws
// Error for a bool that is neither 0 nor 1.
std::shared_ptr<const Source> npy_source(const std::vector<std::pair<std::string, std::filesystem::path>>& files,
                                         Where where = Where::current());

// Options of npz_source().
struct NpzSourceOptions {
  std::vector<std::string> names{};                  // arrays to read, in the order of the fields; empty: all
  std::size_t most_unpacked = std::size_t{1} << 30;  // bytes that compressed arrays may take together
};
// The arrays of an .npz file (numpy.savez, numpy.savez_compressed), each a field of its name, otherwise as
// npy_source(). Stored arrays are read when samples are asked for, and their checksums are not looked at; compressed
// ones (deflate) are unpacked once and their checksums compared. Throws Error naming the file and the array, too, for a
// file that is no zip archive, whose directory does not fit it, or that is encrypted, divided or compressed in another
// way.
std::shared_ptr<const Source> npz_source(const std::filesystem::path& path, const NpzSourceOptions& options = {},
                                         Where where = Where::current());

// Samples that a function makes. It is called by several threads at once, with an index in [0, size) and memory of the
// right sizes, which it fills; what it throws, read() throws. The same index must give the same sample whenever it is
// asked for, or a run cannot be repeated or resumed. Throws Error for an empty function, and for what the constructor
// of Source refuses.
std::shared_ptr<const Source> function_source(std::int64_t size, std::vector<Field> fields,
                                              std::function<void(std::int64_t index, SampleMemory to)> function,
                                              Where where = Where::current());

}  // namespace graphsink
