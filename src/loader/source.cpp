#include "graphsink/source.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "base/at.h"
#include "base/printable.h"

namespace graphsink {
namespace {

class TensorSource : public Source {
 public:
  TensorSource(std::int64_t size, std::vector<Field> fields, std::vector<Tensor> tensors, Where where)
      : Source(size, std::move(fields), where), tensors_(std::move(tensors)) {}

 private:
  void fill(std::int64_t index, SampleMemory to) const override {
    for (std::size_t i = 0; i < to.size(); ++i) {
      if (!to[i].empty())
        std::memcpy(to[i].data(), tensors_[i].data() + to[i].size() * static_cast<std::size_t>(index), to[i].size());
    }
  }

  std::vector<Tensor> tensors_;
};

class IndexSource : public Source {
 public:
  IndexSource(std::int64_t size, Where where) : Source(size, {{"index", {i32, {}}}}, where) {}

 private:
  void fill(std::int64_t index, SampleMemory to) const override {
    const auto number = static_cast<std::int32_t>(index);
    std::memcpy(to[0].data(), &number, sizeof number);
  }
};

class FunctionSource : public Source {
 public:
  FunctionSource(std::int64_t size, std::vector<Field> fields, std::function<void(std::int64_t, SampleMemory)> function,
                 Where where)
      : Source(size, std::move(fields), where), function_(std::move(function)) {}

 private:
  void fill(std::int64_t index, SampleMemory to) const override { function_(index, to); }

  std::function<void(std::int64_t, SampleMemory)> function_;
};

}  // namespace

Source::Source(std::int64_t size, std::vector<Field> fields, Where where) : size_(size), fields_(std::move(fields)) {
  auto refuse = [&](const std::string& problem, const std::string& remedy) {
    throw Error("Source", where, problem, remedy);
  };
  if (fields_.empty()) refuse("expected at least 1 field, seen none", "name what a sample consists of");
  if (size < 1) refuse("expected at least 1 sample, seen " + std::to_string(size), "give it samples");
  for (std::size_t i = 0; i < fields_.size(); ++i) {
    const std::string& name = fields_[i].name;
    if (name.empty()) refuse("field " + std::to_string(i) + " has no name", "name it like the feed that takes it");
    auto is_same = [&](const Field& other) { return other.name == name; };
    if (std::find_if(fields_.begin(), fields_.begin() + static_cast<std::ptrdiff_t>(i), is_same) !=
        fields_.begin() + static_cast<std::ptrdiff_t>(i)) {
      refuse("two fields have the name \"" + shortened(name) + "\"", "give each field a name of its own");
    }
    if (fields_[i].type.shape.has_open()) {
      refuse("field \"" + shortened(name) + "\" has an open dimension: " + to_string(fields_[i].type),
             "pad all samples to one shape");
    }
    fields_[i].type.bytes(where);  // throws for one that is too large
  }
}

Source::~Source() = default;

void Source::read(std::int64_t index, SampleMemory to, Where where) const {
  auto refuse = [&](const std::string& problem, const std::string& remedy) {
    throw Error("Source::read", where, problem, remedy);
  };
  if (index < 0 || index >= size_) {
    refuse("expected a sample from 0 to " + std::to_string(size_) + " (exclusive), seen " + std::to_string(index),
           "make the order of samples for the size of this source");
  }
  if (to.size() != fields_.size()) {
    refuse("expected memory for " + std::to_string(fields_.size()) + " fields, seen " + std::to_string(to.size()),
           "give one span for each of fields()");
  }
  for (std::size_t i = 0; i < to.size(); ++i) {
    if (to[i].size() == fields_[i].type.bytes()) continue;
    refuse("field \"" + shortened(fields_[i].name) + "\": expected " + std::to_string(fields_[i].type.bytes()) +
               " bytes for " + to_string(fields_[i].type) + ", seen " + std::to_string(to[i].size()),
           "give memory of the size of one sample");
  }
  fill(index, to);
}

std::shared_ptr<const Source> tensor_source(std::vector<std::pair<std::string, Tensor>> tensors, Where where) {
  auto refuse = [&](const std::string& name, const std::string& problem) {
    throw Error("tensor_source", where, "\"" + shortened(name) + "\": " + problem,
                "give tensors with one row for each sample");
  };
  std::int64_t size = 0;
  std::vector<Field> fields;
  std::vector<Tensor> rows;
  for (auto& [name, tensor] : tensors) {
    tensor.require_valid("tensor_source", where);
    const Shape& shape = tensor.shape();
    if (shape.rank() == 0) refuse(name, "expected a first dimension that counts the samples, seen a scalar");
    if (fields.empty()) size = shape[0];
    if (shape[0] != size) {
      refuse(name, "expected " + std::to_string(size) + " rows as in \"" + shortened(fields[0].name) + "\", seen " +
                       to_string(shape));
    }
    fields.push_back({name, {tensor.dtype(), Shape(shape.dims().subspan(1))}});
    rows.push_back(std::move(tensor));
  }
  return std::make_shared<TensorSource>(size, std::move(fields), std::move(rows), where);
}

std::shared_ptr<const Source> index_source(std::int64_t size, Where where) {
  constexpr std::int64_t kMost = std::int64_t{std::numeric_limits<std::int32_t>::max()} + 1;
  if (size > kMost) {
    throw Error("index_source", where,
                "expected at most " + std::to_string(kMost) + " samples, seen " + std::to_string(size),
                "divide the data, because indices are i32");
  }
  return std::make_shared<IndexSource>(size, where);
}

std::shared_ptr<const Source> function_source(std::int64_t size, std::vector<Field> fields,
                                              std::function<void(std::int64_t index, SampleMemory to)> function,
                                              Where where) {
  if (!function) throw Error("function_source", where, "the function is empty", "give one that fills a sample");
  return std::make_shared<FunctionSource>(size, std::move(fields), std::move(function), where);
}

}  // namespace graphsink
