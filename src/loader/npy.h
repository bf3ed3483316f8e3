// Arrays in the .npy format of NumPy ("A Simple File Format for NumPy Arrays", numpy.lib.format).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "graphsink/source.h"
#include "loader/data_file.h"

namespace graphsink {

// An array whose rows, along its first dimension, are samples.
class NpyArray {
 public:
  // Throws Error for an array that this library cannot hold, or whose bytes are not as many as its shape says.
  explicit NpyArray(ByteRange bytes);

  const TensorType& type() const noexcept { return type_; }
  const Origin& origin() const noexcept { return bytes_.origin(); }
  // Copies a row that the array has. Throws Error for a bool that is neither 0 nor 1, and as DataFile::read().
  void read_row(std::int64_t row, std::span<std::byte> to) const;

 private:
  ByteRange bytes_;
  std::uint64_t data_ = 0;  // where the elements begin
  TensorType type_;
};

// A source of arrays with the names of their fields. Throws Error for arrays of different first dimensions.
std::shared_ptr<const Source> array_source(std::vector<std::pair<std::string, NpyArray>> arrays, Where where);

}  // namespace graphsink
