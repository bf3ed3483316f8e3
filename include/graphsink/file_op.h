// FileOp: an op that files of graphs may have (program_file.h), under which name, and how its attributes are read.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "graphsink/field_io.h"
#include "graphsink/op.h"
#include "graphsink/version.h"

namespace GRAPHSINK_PUBLIC graphsink {

// Files name an op by its name and its version. A change after which an op computes something else from the attributes
// of old files gives it a new version. Old files are read as long as the list has an entry of the old version, too: it
// may name another OpDef, or the same one with AttrsIo functions that make attributes of today out of the old ones.
// Files are written with the entry of the highest version.
struct FileOp {
  const OpDef* op = nullptr;   // the op, which must outlive the list, and graphs that are read with it
  AttrsIo attrs = {};          // no functions: nodes of the op have no attributes
  int version = 1;             // version; no two entries of a list have the same version and name_in_file()
  std::string_view name = {};  // if it is not op->name, which two ops may share

  // The name by which files refer to the op.
  std::string_view name_in_file() const { return name.empty() ? op->name : name; }
};

// An op without attributes.
constexpr FileOp file_op(const OpDef& op, int version = 1) { return {&op, {}, version}; }
// An op whose nodes have attributes of type T, which names its fields.
template <class T>
constexpr FileOp file_op(const OpDef& op, int version = 1) {
  return {&op, attrs_io<T>, version};
}
FileOp file_op(const OpDef&& op, int version = 1) = delete;
template <class T>
FileOp file_op(const OpDef&& op, int version = 1) = delete;

// All ops of this library that nodes of a graph may have, in the order of their source files. Ops that only plans have
// are not among them.
std::vector<FileOp> built_in_ops();

}  // namespace graphsink
