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
#include "graphsink/log.h"
#include "graphsink/tensor.h"

namespace graphsink {

class Program;

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
// "<path>.partial.<16 hex digits>", syncs it, renames it and syncs the directory. A process that is killed meanwhile
// leaves that other file behind. A symbolic link stays one: the file that it leads to is replaced. Several threads and
// processes may write one path; the last rename wins. The same checkpoint gives the same bytes. Throws Error naming the
// path and the system's reason, `path` is then as it was; also for a path to a directory, a device, a pipe or a socket.
void write_checkpoint(const std::filesystem::path& path, const Checkpoint& checkpoint, Where where = Where::current());
// Throws the Error that write_checkpoint() would throw before it writes, for a directory that is missing or forbids it:
// to be called before a training that ends with a checkpoint. Leaves nothing behind.
void require_writable(const std::filesystem::path& path, Where where = Where::current());

// What the program's Variables hold, by their names, and the number of its next step as metadata "step". Waits. Throws
// Error for two Variables of one name, and for a failed step as Program::sync(). The seed is no part of it: compile the
// program that goes on with the same one.
Checkpoint snapshot(Program& program, Where where = Where::current());
// What the Variables hold, by their names. Waits for the programs that use them. Throws Error for two of one name, and
// for a failed step of a program that writes one of them.
Checkpoint snapshot(std::span<const Variable> variables, Where where = Where::current());

// What restore() accepts beyond a checkpoint of exactly these Variables.
struct RestoreOptions {
  bool allow_missing = false;  // Variables that the checkpoint lacks keep what they hold
  bool allow_unused = false;   // tensors without a Variable are ignored
  bool convert = false;        // elements are converted to the Variable's dtype, as Tensor::to() does
  bool without_step = false;   // programs keep their step: for inference, or to train something else from its step 0
  LogFunction log{};           // where warnings go; empty: spdlog's default logger
};
struct Restored {
  std::vector<std::string> loaded, missing, unused, converted;  // names; converted ones are loaded ones
};
// Writes tensors to the Variables of their names in the program, and sets its step to the checkpoint's, so that random
// numbers and schedules go on too (Program::set_steps()). All is checked before any of it is written. Waits; what a
// step failed of before is logged, as its state is replaced. Throws Error naming what does not fit and the checkpoint's
// source.
Restored restore(Program& program, const Checkpoint& checkpoint, const RestoreOptions& options = {},
                 Where where = Where::current());
// Writes tensors to the Variables of their names, which says nothing to programs: one that trains on from here goes on
// with the step it has, which random numbers and schedules follow. That is logged, unless `without_step` says that it
// is meant. All are checked before any is written. Throws Error naming what does not fit and the checkpoint's source.
Restored restore(std::span<const Variable> variables, const Checkpoint& checkpoint, const RestoreOptions& options = {},
                 Where where = Where::current());

}  // namespace graphsink
