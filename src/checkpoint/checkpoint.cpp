#include "graphsink/checkpoint.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <fstream>
#include <limits>
#include <system_error>

#include "base/log.h"
#include "base/printable.h"
#include "checkpoint/file_writer.h"
#include "checkpoint/safetensors.h"
#include "graphsink/program.h"
#include "ir/graph_data.h"

namespace graphsink {
namespace {

constexpr const char* kStep = "step";  // metadata: the number of a program's next step

// A regular file and its size; memory is never taken for more than that.
class InputFile {
 public:
  InputFile(const std::filesystem::path& path, Where where) : name_(path.string()), where_(where) {
    std::error_code code;
    std::filesystem::file_status status = std::filesystem::status(path, code);
    if (!std::filesystem::exists(status))
      refuse("cannot be opened: " + (code ? code.message() : "no such file"), "check the path");
    if (!std::filesystem::is_regular_file(status)) refuse("is not a regular file", "give the path of a checkpoint");
    size_ = std::filesystem::file_size(path, code);
    errno = 0;
    stream_.open(path, std::ios::binary);
    if (code || !stream_) {
      refuse("cannot be opened: " + std::generic_category().message(errno != 0 ? errno : EIO),
             "check the path and its permissions");
    }
  }

  std::uint64_t size() const { return size_; }
  void read(void* to, std::uint64_t bytes) {
    stream_.read(static_cast<char*>(to), static_cast<std::streamsize>(bytes));
    if (!stream_) refuse("is truncated: it shrank while it was read", kWriteAgain);
  }
  void skip(std::uint64_t bytes) { stream_.seekg(static_cast<std::streamoff>(bytes), std::ios::cur); }
  [[noreturn]] void refuse(const std::string& problem, const std::string& remedy) const {
    throw Error(name_, where_, problem, remedy, ErrorCode::io);
  }

 private:
  std::string name_;
  Where where_;
  std::ifstream stream_;
  std::uint64_t size_ = 0;
};

std::uint64_t read_header_size(InputFile& file) {
  unsigned char bytes[8];
  if (file.size() < sizeof bytes) {
    file.refuse("header size: expected 8 bytes, the file has " + std::to_string(file.size()), kWriteAgain);
  }
  file.read(bytes, sizeof bytes);
  std::uint64_t size = 0;
  for (int i = 7; i >= 0; --i) size = size << 8 | bytes[i];
  if (size > kMaxHeader || size > file.size() - sizeof bytes) {
    file.refuse("header size: " + std::to_string(size) + " bytes, the file has " + std::to_string(file.size()) +
                    " and headers at most " + std::to_string(kMaxHeader),
                kWriteAgain);
  }
  return size;
}

std::string name_of(const Checkpoint& checkpoint) {
  return checkpoint.source.empty() ? "the checkpoint" : checkpoint.source;
}

// Throws Error for two Variables of one name; one of them twice is no harm.
std::map<std::string_view, const Variable*> names_of(std::span<const Variable> variables, const char* call,
                                                     const Where& where) {
  std::map<std::string_view, const Variable*> names;
  for (const Variable& variable : variables) {
    require_valid(variable, call, where);
    auto [at, is_new] = names.emplace(variable.name(), &variable);
    if (!is_new && !(*at->second == variable))
      throw Error(call, where, "two Variables are named \"" + shortened(variable.name()) + "\"",
                  "give each a name of its own, or make each in a Scope of its own");
  }
  return names;
}

// The tensor as `variable` takes it.
Tensor fit(const Tensor& tensor, const Variable& variable, const RestoreOptions& options, const std::string& source,
           const Where& where) {
  const TensorType& wanted = variable.type();
  std::string field = tensor_text(variable.name()) + ", ";
  if (!tensor.valid()) {
    throw Error(source, where, field + "is default-constructed or moved from, and has no data",
                "give a checkpoint that read_checkpoint() or snapshot() returned");
  }
  std::string seen = ": expected " + to_string(wanted) + ", seen " + to_string(tensor.type());
  if (tensor.shape() != wanted.shape)
    throw Error(source, where, field + "shape" + seen, "give a checkpoint of a model of the same sizes", ErrorCode::io);
  if (tensor.dtype() == wanted.dtype) return tensor;
  if (!options.convert)
    throw Error(source, where, field + "dtype" + seen, "set convert to have it converted", ErrorCode::io);
  return tensor.to(wanted.dtype);
}

}  // namespace

std::int64_t Checkpoint::number(std::string_view name, Where where) const {
  auto found = metadata.find(name);
  std::int64_t number = -1;
  if (found != metadata.end()) {
    const std::string& text = found->second;
    auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (code != std::errc() || end != text.data() + text.size()) number = -1;
  }
  if (number < 0) {
    throw Error(name_of(*this), where,
                "metadata \"" + shortened(name) + "\": " +
                    (found == metadata.end() ? "is missing"
                                             : "expected a whole number, seen \"" + shortened(found->second) + "\""),
                "give a checkpoint that this program wrote", ErrorCode::io);
  }
  return number;
}

Checkpoint read_checkpoint(const std::filesystem::path& path, Where where) {
  InputFile file(path, where);
  std::string json(read_header_size(file), '\0');
  file.read(json.data(), json.size());
  SafetensorsHeader header = parse_header(json, file.size() - 8 - json.size(), path.string(), where);
  Checkpoint checkpoint;
  checkpoint.source = path.string();
  checkpoint.metadata = std::move(header.metadata);
  for (TensorEntry& entry : header.entries) {
    if (!entry.dtype->dtype) {
      file.skip(entry.end - entry.begin);
      checkpoint.unsupported.emplace(std::move(entry.name), entry.dtype->name);
      continue;
    }
    Tensor tensor(*entry.dtype->dtype, entry.shape, where);
    file.read(tensor.data(), tensor.bytes());
    if (const auto bad = find_bad_boolean(tensor)) {
      file.refuse(tensor_text(entry.name) + ": element " + std::to_string(*bad) + " is neither 0 nor 1", kWriteAgain);
    }
    checkpoint.tensors.emplace(std::move(entry.name), std::move(tensor));
  }
  return checkpoint;
}

void require_writable(const std::filesystem::path& path, Where where) { FileWriter(path, where); }

void write_checkpoint(const std::filesystem::path& path, const Checkpoint& checkpoint, Where where) {
  FileLayout layout = lay_out(checkpoint, path.string(), where);
  FileWriter file(path, where);
  file.write(layout.header.data(), layout.header.size());
  for (const Tensor* tensor : layout.tensors) file.write(tensor->data(), tensor->bytes());
  file.commit();
}

Checkpoint snapshot(std::span<const Variable> variables, Where where) {
  Checkpoint checkpoint;
  for (const auto& [name, variable] : names_of(variables, "snapshot", where))
    checkpoint.tensors.emplace(name, variable->read());
  return checkpoint;
}

namespace {

Restored write_variables(std::span<const Variable> variables, const Checkpoint& checkpoint,
                         const RestoreOptions& options, const Where& where) {
  std::map<std::string_view, const Variable*> by_name = names_of(variables, "restore", where);
  std::string source = name_of(checkpoint);
  Restored result;
  const auto note_unused = [&](const std::string& name) {
    if (by_name.contains(name)) return;
    if (!options.allow_unused) {
      throw Error(source, where, tensor_text(name) + " belongs to no Variable",
                  "give a checkpoint of this model, or set allow_unused", ErrorCode::io);
    }
    result.unused.push_back(name);
  };
  for (const auto& [name, tensor] : checkpoint.tensors) note_unused(name);
  for (const auto& [name, dtype] : checkpoint.unsupported) note_unused(name);
  std::vector<std::pair<Variable, Tensor>> writes;
  for (const Variable& variable : variables) {
    const std::string& name = variable.name();
    auto found = checkpoint.tensors.find(name);
    if (found == checkpoint.tensors.end()) {
      if (const auto foreign = checkpoint.unsupported.find(name); foreign != checkpoint.unsupported.end()) {
        throw Error(source, where,
                    tensor_text(name) + ", dtype: expected " + to_string(variable.type()) + ", seen " +
                        shortened(foreign->second) + ", which this library does not have",
                    "convert the tensor to a dtype that read_checkpoint() loads", ErrorCode::io);
      }
      if (!options.allow_missing) {
        throw Error(source, where, "has no " + tensor_text(name),
                    "give a checkpoint of this model, or set allow_missing", ErrorCode::io);
      }
      result.missing.push_back(name);
      continue;
    }
    writes.emplace_back(variable, fit(found->second, variable, options, source, where));
    result.loaded.push_back(name);
    if (found->second.dtype() != variable.type().dtype) result.converted.push_back(name);
  }
  for (auto& [variable, tensor] : writes) variable.write(tensor);
  return result;
}

}  // namespace

Restored restore(std::span<const Variable> variables, const Checkpoint& checkpoint, const RestoreOptions& options,
                 Where where) {
  Restored result = write_variables(variables, checkpoint, options, where);
  if (options.without_step) return result;
  auto step = checkpoint.metadata.find(kStep);
  Log(options.log)
      .warn({to_string(where), ": restore() of Variables alone: programs keep the step that they have, ",
             step == checkpoint.metadata.end() ? "and the checkpoint has none" : "the checkpoint has step ",
             step == checkpoint.metadata.end() ? "" : shortened(step->second),
             "; call snapshot() and restore() with the program, or set without_step"});
  return result;
}

Checkpoint snapshot(Program& program, Where where) {
  program.sync(where);
  Checkpoint checkpoint = snapshot(program.variables(), where);
  checkpoint.metadata[kStep] = std::to_string(program.steps());
  return checkpoint;
}

Restored restore(Program& program, const Checkpoint& checkpoint, const RestoreOptions& options, Where where) {
  std::int64_t step = options.without_step ? 0 : checkpoint.number(kStep, where);
  if (step > std::numeric_limits<std::int32_t>::max()) {
    throw Error(name_of(checkpoint), where, "metadata \"step\": " + std::to_string(step) + " is not below 2^31",
                "give a checkpoint that this program wrote", ErrorCode::io);
  }
  try {
    program.sync(where);
  } catch (const Error& e) {
    Log(options.log).warn({to_string(where), ": restore() replaces the state behind a failed step: ", e.what()});
  }
  Restored result = write_variables(program.variables(), checkpoint, options, where);
  if (!options.without_step) program.set_steps(step, where);
  return result;
}

}  // namespace graphsink
