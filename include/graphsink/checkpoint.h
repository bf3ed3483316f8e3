// Checkpoints: named tensors in a safetensors file (https://github.com/huggingface/safetensors, "Format"), and their
// way from and to Variables. Files are untrusted: every field is checked before memory is taken or anything changes.
#pragma once

#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "graphsink/error.h"
#include "graphsink/graph.h"
#include "graphsink/tensor.h"

namespace graphsink {

struct Checkpoint {
  std::map<std::string, Tensor, std::less<>> tensors;        // by name
  std::map<std::string, std::string, std::less<>> metadata;  // whatever else belongs to it: a step, a model's name
  std::string source;                                        // the file it was read from, for messages; may be empty

  // A number in the metadata. Throws Error if there is none, or not a whole number of at least 0.
  std::int64_t number(std::string_view name, Where where = Where::current()) const;
};

// Reads a whole file. Throws Error with the path, the field and the reason for one that cannot be read or is not
// well-formed: a header larger than the file or 100 MB, doubled names, unknown dtypes, more than Shape::kMaxRank
// dimensions, offsets that overlap, leave holes, or do not fit their shape or the file.
Checkpoint read_checkpoint(const std::filesystem::path& path, Where where = Where::current());

// Writes a file so that after a crash at any moment `path` is either what it was before or all of the new one: writes
// "<path>.partial", syncs it, renames it and syncs the directory. The same checkpoint gives the same bytes. Throws
// Error naming the path and the system's reason; `path` is then as it was.
void write_checkpoint(const std::filesystem::path& path, const Checkpoint& checkpoint, Where where = Where::current());

// What the Variables hold, by their names. Waits for the programs that use them. Throws Error for two of one name.
Checkpoint snapshot(std::span<const Variable> variables, Where where = Where::current());

// What restore() accepts beyond a checkpoint of exactly these Variables.
struct RestoreOptions {
  bool allow_missing = false;  // Variables that the checkpoint lacks keep what they hold
  bool allow_unused = false;   // tensors without a Variable are ignored
  bool convert = false;        // elements are converted to the Variable's dtype, as Tensor::to() does
};
struct Restored {
  std::vector<std::string> loaded, missing, unused, converted;  // names; converted ones are loaded ones
};
// Writes tensors to the Variables of their names. All are checked before any is written. Throws Error naming what does
// not fit and the checkpoint's source.
Restored restore(std::span<const Variable> variables, const Checkpoint& checkpoint, const RestoreOptions& options = {},
                 Where where = Where::current());

}  // namespace graphsink
