#include <mutex>

#include "base/at_line.h"
#include "base/in_body.h"
#include "base/in_capture.h"
#include "base/printable.h"
#include "ir/graph_data.h"
#include "ir/held_variables.h"

namespace graphsink {
namespace {

// The body would wait for the end of the step that it is part of, and launches would repeat nothing of the call.
void require_outside(const Variable& variable, const std::string& call, const Where& where) {
  const std::string op = "Variable \"" + variable.name() + "\"";
  if (InBody::here()) {
    throw Error(op, where, call + "() was called by the body of an op",
                "give the op the Variable's value as an operand, and assign() what it returns");
  }
  if (InCapture::here()) {
    throw Error(op, where,
                call +
                    "() was called in a function that a SinkCache captures: it would be done now, and be missing "
                    "from every launch",
                "call it before or after SinkCache::run()");
  }
}

void require_fits(const Variable& variable, const Tensor& tensor, const Where& where) {
  const std::string op = "Variable \"" + variable.name() + "\"";
  tensor.require_valid(op, where);
  if (tensor.type() == variable.type()) return;
  throw Error(op, where, "is " + to_string(variable.type()) + ", was given " + to_string(tensor.type()),
              "write a tensor of its type");
}

Tensor read_locked(const VariableData& data, const Where& where) {
  Tensor value = data.storage ? at_line(where, [&] { return data.storage->read(); }) : data.value;
  for (const auto& known : data.writers)
    if (auto writer = known.lock()) writer->report_failed_step();
  return value;
}

void write_locked(VariableData& data, const Tensor& tensor, const Where& where) {
  if (data.storage) {
    at_line(where, [&] { data.storage->write(tensor); });
  } else {
    data.value = tensor;
  }
}

}  // namespace

void require_valid(const Variable& variable, std::string_view op, const Where& where) {
  if (variable.valid()) return;
  throw Error(std::string(op), where,
              "a Variable refers to nothing: it is default-constructed, moved from, or the lr of an optimizer whose "
              "learning rate is a schedule or is given elsewhere",
              "give it a name and an initial Tensor, or the optimizer a number as its learning rate");
}

Variable::Variable(std::string name, Tensor initial, Where where)
    : Variable(std::move(name), std::move(initial), Placement(), where) {}

Variable::Variable(std::string name, Tensor initial, Placement on, Where where)
    : data_(std::make_shared<VariableData>()) {
  if (!where.scope().empty()) name.insert(0, "/").insert(0, where.scope());
  initial.require_valid("Variable \"" + name + "\"", where);
  if (!is_utf8(name)) {
    throw Error("Variable \"" + name + "\"", where, "its name is not UTF-8, so no checkpoint can hold it",
                "give a name in UTF-8");
  }
  if (on.kind == Placement::Kind::cpu || on.device < 0) {
    const bool is_cpu = on.kind == Placement::Kind::cpu;
    throw Error("Variable \"" + name + "\"", where,
                is_cpu ? "has the placement on_cpu, but Variables live on devices"
                       : "its placement is on_device(" + std::to_string(on.device) + ")",
                "give it on_device, on_device(1) and so on, or no placement");
  }
  data_->placement = on;
  data_->name = std::move(name);
  data_->type = initial.type();
  data_->value = std::move(initial);
}

const std::string& Variable::name(Where where) const {
  require_valid(*this, "Variable", where);
  return data_->name;
}

const TensorType& Variable::type(Where where) const {
  require_valid(*this, "Variable", where);
  return data_->type;
}

const Placement& Variable::placement(Where where) const {
  require_valid(*this, "Variable", where);
  return data_->placement;
}

Tensor Variable::read(Where where) const {
  require_valid(*this, "Variable", where);
  require_outside(*this, "read", where);
  std::lock_guard lock(data_->lock);
  return read_locked(*data_, where);
}

void Variable::write(const Tensor& tensor, Where where) {
  require_valid(*this, "Variable", where);
  require_fits(*this, tensor, where);
  require_outside(*this, "write", where);
  std::lock_guard lock(data_->lock);
  write_locked(*data_, tensor, where);
}

HeldVariables::HeldVariables(std::span<const Variable> variables, const char* call, const Where& where) {
  for (const Variable& variable : variables) {
    require_valid(variable, "Variable", where);
    require_outside(variable, call, where);
    locks_.try_emplace(variable.data().get());
  }
  for (auto& [data, lock] : locks_) {
    lock = std::unique_lock(data->lock);
    if (data->storage) programs_.push_back(at_line(where, [&] { return data->storage->hold_users(call); }));
  }
}

Tensor HeldVariables::read(const Variable& variable, const Where& where) const {
  return read_locked(*variable.data(), where);
}

void HeldVariables::write(const Variable& variable, const Tensor& tensor, const Where& where) const {
  require_fits(variable, tensor, where);
  write_locked(*variable.data(), tensor, where);
}

}  // namespace graphsink
