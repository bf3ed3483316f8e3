// The form of a graph in a program file: what writer and reader share.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "checkpoint/graph_names.h"
#include "graphsink/file_op.h"
#include "ir/graph_data.h"

namespace graphsink {

// Version of the form that is written. Older ones are read.
constexpr std::int64_t kGraphFormat = 1;
// Metadata of the file, beside kGraphKey.
constexpr std::string_view kStepKey = "step";

// Attributes of source ops.
struct DimForm {
  std::int64_t size = 0;
  bool is_open = false;
  Bucket bucket{};
  static auto fields(auto& s) { return std::tie("size", s.size, "open", s.is_open, "bucket", s.bucket); }
};
struct InputForm {
  std::string name;
  DType dtype = DType::f32;
  std::vector<DimForm> dims;
  int size_of = -1;
  int axis = 0;
  bool is_result_size = false;
  static auto fields(auto& s) {
    return std::tie("name", s.name, "dtype", s.dtype, "dims", s.dims, "size_of", s.size_of, "axis", s.axis,
                    "is_result_size", s.is_result_size);
  }
};
struct ConstantForm {
  std::string tensor;  // its name in the file
  static auto fields(auto& s) { return std::tie("tensor", s.tensor); }
};
struct VariableForm {
  int number = 0;  // in the list of Variables
  static auto fields(auto& s) { return std::tie("number", s.number); }
};
struct ParameterForm {
  int node = -1, output = 0;  // the value in the first iteration
  static auto fields(auto& s) { return std::tie("node", s.node, "output", s.output); }
};

// Ops by their names in files.
class OpNames {
 public:
  // The built-in ops, and those of the user. Throws Error, naming `call`, for two of one name and version.
  OpNames(std::span<const FileOp> users, const char* call, const Where& where);

  // The entry of the op's highest version; nullptr if there is none.
  const FileOp* find(const OpDef& op) const;
  // nullptr if there is none.
  const FileOp* find(std::string_view name, std::int64_t version) const;
  // The highest version of the name; 0 if there is none.
  std::int64_t newest(std::string_view name) const;

 private:
  std::vector<FileOp> ops_;
  std::map<std::pair<std::string_view, std::int64_t>, std::size_t> by_name_;
  std::map<const OpDef*, std::size_t> by_op_;
};

}  // namespace graphsink
