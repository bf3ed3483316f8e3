#include <ostream>

#include "base/at.h"
#include "base/at_line.h"
#include "device/device.h"
#include "graphsink/program.h"
#include "ir/agreement.h"
#include "ir/bound_node.h"
#include "ir/call_prepare.h"
#include "ir/graph_data.h"
#include "ir/step_state.h"

namespace graphsink {
namespace {

// Runs ops one by one on one stream of a device.
class EagerRunner {
 public:
  explicit EagerRunner(DeviceId id)
      : device_(open_device(id)), stream_(device_->make_stream()), block_(device_->allocate(sizeof(StepState))) {
    StepState block;
    device_->upload(*stream_, block_.get(), &block, sizeof block);
  }

  std::shared_ptr<EagerStorage> upload(const Tensor& tensor) {
    auto storage = allocate(tensor.type());
    device_->upload(*stream_, storage->memory.get(), tensor.data(), tensor.bytes());
    return storage;
  }

  Tensor download(const EagerStorage& storage) {
    Tensor tensor(storage.type);
    device_->copy(*stream_, tensor.data(), storage.memory.get(), tensor.bytes());
    device_->wait(*stream_);
    return tensor;
  }

  std::vector<Value> run(const std::shared_ptr<GraphData>& graph, const OpDef& op, const std::vector<Value>& inputs,
                         const Attrs& attrs, const Where& where) {
    std::vector<TensorType> types;
    std::vector<void*> pointers;
    for (const Value& value : inputs) {
      types.push_back(value.type());
      pointers.push_back(value.eager()->memory.get());
    }
    InferArgs infer(op.name, types, attrs, where);
    infer_outputs(op, infer);
    std::vector<Value> outputs;
    for (std::size_t j = 0; j < infer.outputs().size(); ++j) {
      const TensorType& type = infer.outputs()[j];
      auto storage = allocate(type, view_of(op, static_cast<int>(j), inputs));
      types.push_back(type);
      pointers.push_back(storage->memory.get());
      outputs.emplace_back(graph, -1, static_cast<int>(j), std::move(storage));
    }
    call(op, attrs, types, pointers, static_cast<int>(inputs.size()), where);
    return outputs;
  }

 private:
  static Memory view_of(const OpDef& op, int output, const std::vector<Value>& inputs) {
    for (Alias view : op.views)
      if (view.output == output) return inputs[at(view.input)].eager()->memory;
    return nullptr;
  }

  std::shared_ptr<EagerStorage> allocate(const TensorType& type, Memory memory = nullptr) {
    auto storage = std::make_shared<EagerStorage>();
    storage->type = type;
    storage->memory = memory ? std::move(memory) : device_->allocate(type.bytes());
    storage->device = device_;
    return storage;
  }

  void call(const OpDef& op, const Attrs& attrs, const std::vector<TensorType>& types, std::vector<void*>& pointers,
            int inputs, const Where& where) {
    const Target& target = device_->target();
    const bool on_cuda = !target.runs_cpu_bodies();
    if (body_for(op, target.id.kind, target.sm) == nullptr) {
      const char* const crosses = op.traits.agree ? ", because the values of its Comm cross the host" : "";
      throw Error(
          std::string(op.name), where, std::string("has no body for ") + to_string(target.id) + crosses,
          on_cuda ? "use an Eager on gs::cpu(), or a Graph, where it runs on the host" : "give its OpDef a CPU body");
    }
    const auto turn = turn_for(op, attrs, where);
    Prepared prepared;
    if (op.prepare)
      prepared = call_prepare(op, PrepareArgs{op.name, where, types, inputs, attrs, on_cuda, device_.get()});
    Memory workspace = prepared.workspace ? device_->allocate(prepared.workspace) : nullptr;
    BoundNode node;
    node.op = &op;
    node.attrs = &attrs;
    node.pointers = pointers.data();
    node.types = types.data();
    node.inputs = inputs;
    node.outputs = static_cast<int>(types.size()) - inputs;
    node.local = prepared.data.get();
    node.workspace = workspace.get();
    node.workspace_bytes = prepared.workspace;
    node.step = static_cast<StepState*>(block_.get());
    node.status = &status_;
    node.id = 0;
    node.where = where;
    device_->call(*stream_, node);
    check(op, where);
  }

  // The turn of a collective in its group of ranks, until it has ended; null for other ops.
  static std::shared_ptr<const void> turn_for(const OpDef& op, const Attrs& attrs, const Where& where) {
    if (op.traits.agree == nullptr) return nullptr;
    Agreement agreement;
    agreement.collectives.push_back({.op = &op, .attrs = attrs, .types = {}, .where = where});
    return static_cast<const AgreeOp*>(op.traits.agree)->turns(agreement, where)->hold(where);
  }

  void check(const OpDef& op, const Where& where) {
    StepState block;
    device_->copy(*stream_, &block, block_.get(), sizeof block);
    device_->wait(*stream_);
    if (block.ok) return;
    StepState clean;
    device_->upload(*stream_, block_.get(), &clean, sizeof clean);
    const HostStatus thrown = std::exchange(status_, {});
    if (thrown.failed) throw body_error(std::string(op.name), where, thrown.what);
    throw Error(std::string(op.name), where, to_string(block.error, block.error_index), "mend its input",
                ErrorCode::step_failed);
  }

  std::shared_ptr<Device> device_;
  std::unique_ptr<Stream> stream_;
  Memory block_;
  HostStatus status_;
};

}  // namespace

Eager::Eager(DeviceId device) : data_(std::make_shared<GraphData>()) {
  auto runner = std::make_shared<EagerRunner>(device);
  // A Value of this Eager keeps the graph alive, and the graph keeps the runner alive. The runner must therefore not
  // own the graph.
  std::weak_ptr<GraphData> graph = data_;
  data_->upload_now = [runner, graph](const Tensor& tensor) {
    return Value(graph.lock(), -1, 0, runner->upload(tensor));
  };
  data_->run_now = [runner, graph](const OpDef& op, const std::vector<Value>& inputs, const Attrs& attrs, Placement,
                                   Where where) {
    return at_line(where, [&] { return runner->run(graph.lock(), op, inputs, attrs, where); });
  };
  data_->download_now = [runner](const Value& value) { return runner->download(*value.eager()); };
}

Value Eager::tensor(const Tensor& tensor, Where where) {
  if (!data_) throw Error("Eager", where, "a moved-from Eager", "use the Eager that it was moved to");
  tensor.require_valid("Eager", where);
  return at_line(where, [&] { return data_->upload_now(tensor); });
}

Value Eager::tensor(std::initializer_list<double> values, Where where) {
  Tensor vector(f32, {static_cast<std::int64_t>(values.size())});
  std::copy(values.begin(), values.end(), vector.as<float>().begin());
  return tensor(vector, where);
}

Tensor Eager::read(const Value& value, Where where) {
  if (!value.eager()) {
    throw Error(
        "Eager::read", where,
        value.valid() ? "the Value belongs to a Graph" : "a default-constructed or moved-from Value",
        value.valid() ? "use Program::output() after a run" : "use a Value that an op on Values of an Eager returned");
  }
  return at_line(where, [&] { return value.graph()->download_now(value); });
}

std::ostream& operator<<(std::ostream& out, const Value& value) {
  if (!value.valid()) return out << "(no value)";
  if (value.eager()) return out << Eager::read(value);
  return out << to_string(value.type());
}

}  // namespace graphsink
