// Checkpoints: named tensors in a safetensors file (https://github.com/huggingface/safetensors, "Format"), and their
// way from and to Variables. Files are untrusted: every field is checked before memory is taken or anything changes.
#pragma once

#include <cstddef>
#include <cstdint>
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
#include "graphsink/version.h"

namespace GRAPHSINK_PUBLIC graphsink {

class Program;

// Contents of a checkpoint, in memory of the host.
struct Checkpoint {
  std::map<std::string, Tensor, std::less<>> tensors;        // by name
  std::map<std::string, std::string, std::less<>> metadata;  // whatever else belongs to it: a step, a model's name
  // By name: the dtypes, as the file names them ("I16"), of tensors that were not loaded, because this library does not
  // have these dtypes.
  std::map<std::string, std::string, std::less<>> unsupported{};
  std::string source;  // the file it was read from, for messages; may be empty

  // A number in the metadata. Throws Error if there is none, or not a whole number of at least 0.
  std::int64_t number(std::string_view name, Where where = Where::current()) const;
};

// Reads a whole checkpoint: a safetensors file, or the index of several, which write_checkpoint() and Hugging Face
// ("model.safetensors.index.json") write and which is recognized by its content. Tensors of dtypes that the format has
// and this library does not (U64, U32, I16, U16, I8, C64 and those below 16 bits of type F) are named in `unsupported`;
// the others are loaded. Throws Error with the path, the field and the reason for one that cannot be read or is not
// well-formed: a header larger than the file or 100 MB, doubled names, dtypes that the format does not have, more than
// Shape::kMaxRank dimensions, offsets that overlap, leave holes, or do not fit their shape or the file; and for an
// index with a shard that is not the name of a file in the same folder, that is missing, or that has other tensors than
// the index says. Metadata are those of the index. If a writer replaces the index meanwhile, the new checkpoint is
// read. Takes memory in proportion to the file, whatever is in it, and time in proportion to n log n. Messages show
// names shortened.
Checkpoint read_checkpoint(const std::filesystem::path& path, Where where = Where::current());

// The same without the tensors, of which nothing is read: `metadata` and `source` alone. It does not look at the
// shards.
Checkpoint read_checkpoint_metadata(const std::filesystem::path& path, Where where = Where::current());

// Options of write_checkpoint().
struct CheckpointOptions {
  // If all tensors together have more bytes than this, they are written to several files of at most this many each, in
  // the order of their names; a tensor that is larger has a file of its own. 0 means one file.
  std::size_t most_bytes_per_file = 0;
};

// Writes a checkpoint so that after a crash at any moment `path` is either what it was before or all of the new one:
// writes "<path>.partial.<16 hex digits>", with the name cut where the whole would be too long for the file system,
// syncs it, renames it and syncs the directory. A process that is killed meanwhile leaves that other file behind, which
// the next write to `path` removes. A file that is there keeps its permissions (not access control lists), and where
// the system allows it its owner and group. A symbolic link stays one: the file that it leads to is replaced. Several
// threads and processes may write one path; the last rename wins. One file has the same bytes for the same checkpoint.
// read_checkpoint() reads what was written. Throws Error naming the path and the system's reason; `path` is then as it
// was or, if the directory could not be synced behind the rename, the new one. Writers lock the directory (flock) for
// the rename; Error if another process keeps it locked for 10 seconds. Throws Error, too, for a path to a directory, a
// device, a pipe or a socket, for names or metadata that are not UTF-8, and for a checkpoint with tensors that were not
// loaded.
//
// If there are several files, `path` is their index, in JSON, with the metadata. The tensors are beside it in shards,
// which are synced before the index is: "<path>.<16 hex digits>-00001-of-00003.safetensors", with other digits in every
// write. The name of the file that `path` leads to must be UTF-8 then, and the index has at most 100 MB. The shards of
// an index that is replaced are removed, and so are those of a process that was killed; none are while the index cannot
// be read. A copy of the index alone refers to the same shards, which are removed when the original is written again or
// removed.
void write_checkpoint(const std::filesystem::path& path, const Checkpoint& checkpoint,
                      const CheckpointOptions& options = {}, Where where = Where::current());
// Removes the checkpoint at `path` and its shards. Returns false if there is none; what processes that were killed left
// behind of it is removed in any case. After a crash at any moment the checkpoint is whole or not there. A symbolic
// link stays one: the file that it leads to is removed. Throws Error naming the path and the reason; also for a
// directory that is locked, as write_checkpoint() does, and for an index that was not written by write_checkpoint() to
// this path, because its shards may belong to another one.
bool remove_checkpoint(const std::filesystem::path& path, Where where = Where::current());
// Throws the Error that write_checkpoint() would throw before it writes, for a directory that is missing or forbids it:
// to be called before a training that ends with a checkpoint. Leaves nothing behind.
void require_writable(const std::filesystem::path& path, Where where = Where::current());

// Copies the program's Variables, by their names, and the number of its next step, as metadata "step". Waits for all
// steps. Throws Error if two Variables have the same name, and for a failed step, as Program::sync() does. The seed is
// not included: compile the program that continues with the same seed.
Checkpoint snapshot(Program& program, Where where = Where::current());
// Copies Variables, by their names. Waits for the programs that use them; none of them runs a step meanwhile, so that
// all values are those that one step has left. Throws Error if two Variables have the same name, and for a failed step
// of a program that writes one of them.
Checkpoint snapshot(std::span<const Variable> variables, Where where = Where::current());

// Options of restore(): deviations that it accepts from a checkpoint of exactly these Variables.
struct RestoreOptions {
  bool allow_missing = false;  // Variables that are not in the checkpoint keep their values
  bool allow_unused = false;   // tensors without a Variable are ignored, whatever their dtype
  bool convert = false;        // elements are converted to the Variable's dtype, as by Tensor::to()
  bool without_step = false;   // the program keeps its step: for inference, or to begin another training
  LogFunction log{};           // receives warnings; empty: spdlog's default logger
};
// Names of Variables and tensors, by what restore() did with them.
struct Restored {
  std::vector<std::string> loaded;     // Variables that were written
  std::vector<std::string> missing;    // Variables that the checkpoint does not have: they keep their values
  std::vector<std::string> unused;     // tensors without a Variable
  std::vector<std::string> converted;  // those of `loaded` whose dtype was another one in the checkpoint
};
// Writes each tensor to the program's Variable of the same name, but for the constants of a program file, and sets the
// program's step to the checkpoint's, so that random numbers and schedules continue (Program::set_steps()). Everything
// is checked before anything is written. Waits for all steps; a failed step is logged, because its state is replaced
// anyway. Throws Error, naming what does not fit and the checkpoint's source.
Restored restore(Program& program, const Checkpoint& checkpoint, const RestoreOptions& options = {},
                 Where where = Where::current());
// Writes each tensor to the Variable of the same name. Programs are not changed: one that continues the training keeps
// its own step, on which random numbers and schedules depend. This is logged unless RestoreOptions::without_step is
// set. Everything is checked before anything is written. No step of a program, and no snapshot(), sees some of them
// written and others not, unless the device fails meanwhile. Throws Error, naming what does not fit and the
// checkpoint's source.
Restored restore(std::span<const Variable> variables, const Checkpoint& checkpoint, const RestoreOptions& options = {},
                 Where where = Where::current());

}  // namespace graphsink
