#include "graphsink/checkpoint.h"

#include <charconv>
#include <limits>
#include <system_error>

#include "api/program_access.h"
#include "base/log.h"
#include "base/printable.h"
#include "checkpoint/graph_names.h"
#include "checkpoint/safetensors.h"
#include "graphsink/program.h"
#include "ir/graph_data.h"
#include "ir/held_variables.h"

namespace graphsink {
namespace {

constexpr const char* kStep = "step";  // metadata: the number of a program's next step

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

Checkpoint snapshot(std::span<const Variable> variables, Where where) {
  Checkpoint checkpoint;
  const std::map<std::string_view, const Variable*> named = names_of(variables, "snapshot", where);
  const HeldVariables held(variables, "read", where);
  for (const auto& [name, variable] : named) checkpoint.tensors.emplace(name, held.read(*variable, where));
  return checkpoint;
}

namespace {

Restored write_variables(std::span<const Variable> variables, const Checkpoint& checkpoint,
                         const RestoreOptions& options, const Where& where) {
  std::map<std::string_view, const Variable*> by_name = names_of(variables, "restore", where);
  std::string source = name_of(checkpoint);
  Restored result;
  const bool has_graph = checkpoint.metadata.contains(kGraphKey);
  const auto note_unused = [&](const std::string& name) {
    if (by_name.contains(name) || (has_graph && name.starts_with(kConstantPrefix))) return;
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
  const HeldVariables held(variables, "write", where);
  for (const auto& [variable, tensor] : writes) held.write(variable, tensor, where);
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
  const Held of_program = ProgramAccess::hold(program, where);
  program.sync(where);
  Checkpoint checkpoint = snapshot(program.variables(), where);
  checkpoint.metadata[kStep] = std::to_string(program.steps());
  return checkpoint;
}

Restored restore(Program& program, const Checkpoint& checkpoint, const RestoreOptions& options, Where where) {
  const Held of_program = ProgramAccess::hold(program, where);
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
