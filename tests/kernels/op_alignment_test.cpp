// Every op on operands and results that are no better aligned than Target::alignment demands of memory of the caller's.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tests/op_table/op_case.h"
#include "tests/op_table/op_table.h"

namespace graphsink::op_alignment_test {
namespace {

using testing::Case;
using testing::OpRow;

// Memory that begins at a multiple of `alignment` and at none of twice as much.
class Memory {
 public:
  Memory(std::size_t bytes, std::size_t alignment) : all_(bytes + 4 * alignment), bytes_(bytes) {
    begin_ = all_.data();
    while (reinterpret_cast<std::uintptr_t>(begin_) % (2 * alignment) != alignment) ++begin_;
  }
  std::byte* begin() const { return begin_; }
  std::size_t bytes() const { return bytes_; }

 private:
  std::vector<std::byte> all_;
  std::byte* begin_ = nullptr;
  std::size_t bytes_;
};

// The op of a case, with its operands as inputs.
class AlignedCase {
 public:
  AlignedCase(const OpRow& row, const Case& operands, DType dtype) {
    const testing::OpCase made(row, operands, dtype, false);
    for (std::size_t i = 0; i < operands.size(); ++i) {
      data_.push_back(testing::to_tensor(made.arrays[i], made.dtypes[i]));
      inputs_.push_back(graph_.input("x" + std::to_string(i), data_[i].dtype(), data_[i].shape()));
    }
    output_ = row.apply(inputs_);
    graph_.output("y", output_);
  }

  Tensor written() const {
    Program program = compile(graph_);
    for (std::size_t i = 0; i < inputs_.size(); ++i) program.write(inputs_[i], data_[i]);
    program.run(interactive);
    return program.output("y");
  }

  Tensor bound() const {
    Program program = compile(graph_);
    const std::size_t alignment = program.target().alignment;
    for (std::size_t i = 0; i < inputs_.size(); ++i) {
      auto memory = std::make_shared<Memory>(data_[i].bytes(), alignment);
      if (data_[i].bytes() > 0) std::memcpy(memory->begin(), data_[i].data(), data_[i].bytes());
      program.bind_memory(inputs_[i], memory->begin(), memory->bytes(), memory);
    }
    auto result = std::make_shared<Memory>(output_.type().bytes(), alignment);
    program.bind_memory(output_, result->begin(), result->bytes(), result);
    program.run(interactive);
    return program.output("y");
  }

 private:
  Graph graph_;
  std::vector<Tensor> data_;
  std::vector<Value> inputs_;
  Value output_;
};

// Under a sanitizer compiling the plans takes most of the time.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr std::size_t kCases = 1;
#else
constexpr std::size_t kCases = 100;
#endif

TEST(OpAlignment, NoOpOfTheCpuNeedsMore) {
  for (const OpRow& row : testing::op_table()) {
    for (DType dtype : row.dtypes) {
      for (const Case& operands : std::span(row.cases).first(std::min(kCases, row.cases.size()))) {
        SCOPED_TRACE(row.name + " " + std::string(to_string(dtype)) + " " + to_string(operands[0].shape));
        const AlignedCase made(row, operands, dtype);
        const Tensor written = made.written(), bound = made.bound();
        ASSERT_EQ(written.type(), bound.type());
        if (written.bytes() == 0) continue;
        ASSERT_EQ(std::memcmp(written.data(), bound.data(), written.bytes()), 0);
      }
    }
  }
}

}  // namespace
}  // namespace graphsink::op_alignment_test
