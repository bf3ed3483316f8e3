#include "interpret.h"

#include <algorithm>
#include <cstring>

#include "base/at.h"
#include "base/flush_denormals.h"
#include "device/device.h"
#include "ir/fused.h"
#include "ir/graph_data.h"
#include "kernels/movement/nonzero.h"

namespace graphsink::testing {
namespace {

// Runs single nodes on tensors of the host.
class Bodies {
 public:
  explicit Bodies(DeviceId id) : device_(open_device(id)), stream_(device_->make_stream()) {}

  bool has_own_memory() const { return device_->target().separate_memory; }

  // Operands: inputs, then outputs. A null input is one of which only the type is looked at.
  // `id`: what the body finds as the number of its node.
  void run(const Node& node, int number, int id, bool on_host, const std::vector<TensorType>& types,
           const std::vector<Tensor*>& operands, StepBlock block) {
    bool on_cuda = has_own_memory() && !on_host;
    auto inputs = static_cast<int>(node.inputs.size());
    auto& [prepared, prepared_for] = prepared_[number];
    if (node.op->prepare && prepared_for != types) {
      prepared_for = types;
      prepared = node.op->prepare({node.op->name, node.where, types, inputs, node.attrs, on_cuda, device_.get()});
    }
    BoundNode bound;
    bound.op = node.op;
    bound.attrs = &node.attrs;
    bound.types = types.data();
    bound.inputs = inputs;
    bound.outputs = static_cast<int>(operands.size()) - inputs;
    bound.local = prepared.data.get();
    bound.workspace_bytes = prepared.workspace;
    bound.id = id;
    bound.where = node.where;
    on_cuda ? run_on_device(bound, operands, block) : run_on_host(bound, operands, block);
  }

 private:
  // The input that an output shares its memory with, or -1.
  static int viewed(const BoundNode& node, int operand) {
    for (Alias view : node.op->views)
      if (node.inputs + view.output == operand) return view.input;
    return -1;
  }

  static void run_on_host(BoundNode& node, const std::vector<Tensor*>& operands, StepBlock& block) {
    std::vector<void*> pointers;
    for (std::size_t i = 0; i < operands.size(); ++i) {
      int view = viewed(node, static_cast<int>(i));
      pointers.push_back(view >= 0 ? pointers[at(view)] : operands[i] ? operands[i]->data() : nullptr);
    }
    std::vector<std::byte> workspace(node.workspace_bytes);
    node.pointers = pointers.data();
    node.workspace = workspace.data();
    node.step = &block;
    const FlushDenormals denormals(CompileOptions().flush_denormals);  // as in a program
    body_for(*node.op, DeviceKind::cpu)->cpu(CpuArgs(node));
    for (std::size_t i = 0; i < operands.size(); ++i)
      if (viewed(node, static_cast<int>(i)) >= 0) std::memcpy(operands[i]->data(), pointers[i], operands[i]->bytes());
  }

  void run_on_device(BoundNode& node, const std::vector<Tensor*>& operands, const StepBlock& block) {
    std::size_t used = 0;
    std::vector<std::size_t> offsets;
    auto take = [&](std::size_t bytes) {
      offsets.push_back(used);
      used += (bytes + 255) / 256 * 256;
    };
    for (const Tensor* operand : operands) take(operand ? operand->bytes() : 0);
    take(node.workspace_bytes);
    take(sizeof block);
    if (used > bytes_) memory_ = device_->allocate(bytes_ = 2 * used);
    auto* base = static_cast<std::byte*>(memory_.get());
    std::vector<void*> pointers;
    for (std::size_t i = 0; i < operands.size(); ++i) {
      int view = viewed(node, static_cast<int>(i));
      pointers.push_back(view >= 0 ? pointers[at(view)] : operands[i] ? base + offsets[i] : nullptr);
      bool is_input = static_cast<int>(i) < node.inputs;
      if (is_input && operands[i]) device_->upload(*stream_, pointers[i], operands[i]->data(), operands[i]->bytes());
    }
    node.pointers = pointers.data();
    node.workspace = base + offsets[operands.size()];
    node.step = reinterpret_cast<StepBlock*>(base + offsets.back());
    device_->upload(*stream_, node.step, &block, sizeof block);
    device_->call(*stream_, node);
    for (std::size_t i = 0; i < operands.size(); ++i) {
      bool is_written = static_cast<int>(i) >= node.inputs ||
                        access_of(*node.op, i, static_cast<std::size_t>(node.inputs)) == Access::write;
      if (is_written) device_->copy(*stream_, operands[i]->data(), pointers[i], operands[i]->bytes());
    }
    device_->wait(*stream_);
  }

  std::shared_ptr<Device> device_;
  std::unique_ptr<Stream> stream_;
  Memory memory_;
  std::size_t bytes_ = 0;
  std::map<int, std::pair<Prepared, std::vector<TensorType>>> prepared_;  // by node, and for which types
};

class Interpreter {
 public:
  using Plans = std::function<const Plan&(int step)>;
  Interpreter(Building& building, const Plans& plan, std::uint32_t seed)
      : building_(building),
        graph_(*building.graph.data()),
        plan_(plan),
        bodies_(plan(0).target().id),
        values_(graph_.nodes.size()) {
    block_.seed = seed;
    for (const Building::State& state : building.states) variables_[state.variable.data().get()] = state.initial;
    for (std::size_t id = 0; id < graph_.nodes.size(); ++id) {
      for (const TensorType& type : graph_.nodes[id].outputs)
        values_[id].emplace_back(TensorType{type.dtype, type.shape.examples()});
      if (graph_.nodes[id].op == &constant_op) values_[id][0] = *graph_.nodes[id].attrs.as<ConstantAttrs>().tensor;
    }
  }

  Trace run(int steps) {
    building_.effects->entries.clear();
    Trace trace;
    trace.records.resize(graph_.records.size());
    for (int step = 0; step < steps; ++step) {
      block_.step = step;
      if (step == 0 || step == kRewrittenAt || building_.finds_sizes()) choose_places(plan_(step));
      set_sources();
      run_region(0);
      for (const NamedValue& output : graph_.outputs) trace.outputs[step + 1].push_back(value(output.value));
      for (std::size_t i = 0; i < graph_.records.size(); ++i)
        trace.records[i].push_back(value(graph_.records[i].value).at(0));
      commit();
    }
    for (const Building::State& state : building_.states)
      trace.variables.push_back(variables_.at(state.variable.data().get()));
    trace.steps = steps;
    trace.effects = building_.effects->entries;
    return trace;
  }

 private:
  // Nodes that compute the same as an earlier one are not in the plan: that one is.
  void choose_places_of_same_nodes(std::vector<bool>& is_known) {
    std::vector<int> first(graph_.nodes.size());
    auto operand = [&](ValueRef v) { return ValueRef{first[at(v.node)], v.output}; };
    for (std::size_t id = 0; id < graph_.nodes.size(); ++id) {
      const Node& node = graph_.nodes[id];
      auto is_same = [&](int other_id) {
        const Node& other = graph_.nodes[at(other_id)];
        bool is_equal = other.op == node.op && other.region == node.region && other.placement == node.placement &&
                        other.attrs == node.attrs && other.inputs.size() == node.inputs.size();
        for (std::size_t i = 0; is_equal && i < node.inputs.size(); ++i) {
          bool is_only_type = access_of(*node.op, i, node.inputs.size()) == Access::shape_only;
          is_equal = operand(other.inputs[i]) == operand(node.inputs[i]) ||
                     (is_only_type && value(other.inputs[i]).type() == value(node.inputs[i]).type());
        }
        return is_equal;
      };
      first[id] = 0;
      while (first[id] < static_cast<int>(id) && (is_known[id] || !is_known[at(first[id])] || !is_same(first[id])))
        ++first[id];
      on_host_[id] = on_host_[at(first[id])];
      is_known[id] = is_known[at(first[id])];
    }
  }

  // Another node that is not in the plan became part of the first one that uses it.
  void choose_places(const Plan& plan) {
    on_host_.assign(graph_.nodes.size(), false);
    std::vector<bool> is_known(graph_.nodes.size(), false);
    auto runs = [&](int id, bool on_host) {
      if (id < 0) return;
      on_host_[at(id)] = on_host;
      is_known[at(id)] = true;
    };
    for (const PlanNode& node : plan.nodes) {
      runs(node.graph_node, node.on_host);
      if (const auto* group = node.attrs.get_if<FusedAttrs>())
        for (const FusedOp& member : group->ops) runs(member.graph_node, node.on_host);
    }
    choose_places_of_same_nodes(is_known);
    for (std::size_t user = graph_.nodes.size(); user-- > 0;)
      for (ValueRef v : graph_.nodes[user].inputs)
        if (!is_known[at(v.node)]) on_host_[at(v.node)] = on_host_[user];
    for (std::size_t id = 0; id < graph_.nodes.size(); ++id)
      if (!body_for(*graph_.nodes[id].op, DeviceKind::cuda)) on_host_[id] = true;
  }

  Tensor& value(ValueRef v) { return values_[at(v.node)][at(v.output)]; }

  void set_sources() {
    for (const Building::State& state : building_.states) {
      if (block_.step == kRewrittenAt && state.is_frozen())
        variables_.at(state.variable.data().get()) = state.rewritten();
    }
    for (const Building::Fed& fed : building_.fed) value({fed.value.node(), 0}) = padded(fed);
    for (const VariableUse& use : graph_.variables) value(use.read) = variables_.at(use.variable.data().get());
    for (std::size_t id = 0; id < graph_.nodes.size(); ++id) {
      if (graph_.nodes[id].op == &step_op) values_[id][0] = Tensor::scalar(block_.step);
      if (graph_.nodes[id].op == &input_op) set_true_size(id);
    }
    if (graph_.random_state.node >= 0)
      value(graph_.random_state) = Tensor({block_.step, static_cast<std::int32_t>(block_.seed)});
  }

  // What is given, with rows of zeros up to the size of its bucket.
  Tensor padded(const Building::Fed& fed) const {
    Tensor given = fed.at(block_.step);
    if (!fed.is_open) return given;
    Shape shape = given.shape();
    shape[0] = graph_.nodes[at(fed.value.node())].attrs.as<InputAttrs>().dims[0].bucket.round_up(shape[0]);
    Tensor rows(given.dtype(), shape);
    std::memcpy(rows.data(), given.data(), given.bytes());
    return rows;
  }
  void set_true_size(std::size_t id) {
    const auto& attrs = graph_.nodes[id].attrs.as<InputAttrs>();
    for (const Building::Fed& fed : building_.fed)
      if (fed.value.node() == attrs.size_of)
        values_[id][0] = Tensor::scalar(static_cast<std::int32_t>(fed.at(block_.step).shape()[attrs.axis]));
  }

  void run_region(int region) {
    for (int id : graph_.regions[at(region)].nodes) {
      const Node& node = graph_.nodes[at(id)];
      if (is_source(*node.op) || writes_variables(*node.op, node.inputs.size())) continue;
      if (node.op == &while_op) {
        run_loop(id);
      } else if (is_branch(*node.op)) {
        run_branch(id);
      } else {
        run_node(id);
      }
    }
  }

  bool holds(ValueRef predicate) { return value(predicate).as<bool>()[0]; }

  void run_loop(int id) {
    const Node& node = graph_.nodes[at(id)];
    const Region& body = graph_.regions[at(node.bodies[0])];
    const std::size_t states = body.parameters.size();
    for (std::size_t i = 0; i < states; ++i) values_[at(id)][i] = value(node.inputs[i]);
    for (std::size_t k = states; k < node.outputs.size(); ++k) values_[at(id)][k] = Tensor(node.outputs[k]);
    for (bool goes_on = holds(node.inputs.back()); goes_on; goes_on = holds(body.results.back())) {
      for (std::size_t i = 0; i < states; ++i) value(body.parameters[i]) = values_[at(id)][i];
      run_region(node.bodies[0]);
      for (std::size_t k = 0; k < body.stacked.size(); ++k) {
        const Tensor& slice = value(body.stacked[k].value);
        const auto place = at(value(body.stacked[k].place).as<std::int32_t>()[0]);
        std::memcpy(values_[at(id)][states + k].data() + place * slice.bytes(), slice.data(), slice.bytes());
      }
      for (std::size_t i = 0; i < states; ++i) values_[at(id)][i] = value(body.results[i]);
    }
  }

  void run_branch(int id) {
    const Node& node = graph_.nodes[at(id)];
    const std::size_t which = node.op == &switch_op   ? at(value(node.inputs[0]).as<std::int32_t>()[0])
                              : holds(node.inputs[0]) ? 0
                                                      : 1;
    int body = node.bodies[which];
    run_region(body);
    for (std::size_t i = 0; i < node.outputs.size(); ++i)
      values_[at(id)][i] = value(graph_.regions[at(body)].results[i]);
  }

  // The rows that the result has, whose number is the size of a hidden input.
  void set_result_size(const Node& node) {
    const Tensor& x = value(node.inputs[0]);
    std::int64_t count = 0;
    for (std::int64_t i = 0; i < x.shape().size(); ++i) count += x.at(i) != 0;
    const auto& attrs = graph_.nodes[at(node.inputs[1].node)].attrs.as<InputAttrs>();
    value(node.inputs[1]) = Tensor(u8, {attrs.dims[0].bucket.round_up(count)});
  }

  // `written` takes the place of the operands that the node writes.
  void run_node(int id, std::map<std::size_t, Tensor>* written = nullptr) {
    const Node& node = graph_.nodes[at(id)];
    std::vector<TensorType> types;
    std::vector<Tensor*> operands;
    if (node.op == &nonzero_op && node.inputs.size() == 2) set_result_size(node);
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      Access access = access_of(*node.op, i, node.inputs.size());
      types.push_back(value(node.inputs[i]).type());
      operands.push_back(access == Access::shape_only ? nullptr
                         : access == Access::write    ? &written->at(i)
                                                      : &value(node.inputs[i]));
    }
    if (std::ranges::any_of(node.outputs, [](const TensorType& type) { return type.shape.has_open(); })) {
      InferArgs infer(node.op->name, types, node.attrs, node.where);
      infer_outputs(*node.op, infer);
      for (std::size_t i = 0; i < node.outputs.size(); ++i) values_[at(id)][i] = Tensor(infer.outputs()[i]);
    }
    for (Tensor& output : values_[at(id)]) {
      types.push_back(output.type());
      operands.push_back(&output);
    }
    bodies_.run(node, id, graph_.origin_of(id), on_host_[at(id)], types, operands, block_);
  }

  // All that is read here is of before the commit.
  void commit() {
    std::map<VariableData*, Tensor> next;
    for (int id : graph_.regions[0].nodes) {
      const Node& node = graph_.nodes[at(id)];
      if (!writes_variables(*node.op, node.inputs.size())) continue;
      std::map<std::size_t, Tensor> written;
      for (std::size_t i = 0; i < node.inputs.size(); ++i)
        if (access_of(*node.op, i, node.inputs.size()) == Access::write) written[i] = value(node.inputs[i]);
      run_node(id, &written);
      for (auto& [operand, tensor] : written) {
        const Node& variable = graph_.nodes[at(node.inputs[operand].node)];
        next[variable.attrs.as<VariableAttrs>().variable.data().get()] = std::move(tensor);
      }
    }
    for (const VariableUse& use : graph_.variables)
      if (use.assigned.node >= 0) next[use.variable.data().get()] = value(use.assigned);
    for (auto& [variable, tensor] : next) variables_[variable] = std::move(tensor);
  }

  Building& building_;
  const GraphData& graph_;
  const Plans& plan_;
  Bodies bodies_;
  StepBlock block_;
  std::vector<std::vector<Tensor>> values_;  // per node and output
  std::vector<bool> on_host_;                // per node
  std::map<VariableData*, Tensor> variables_;
};

}  // namespace

Trace interpret(Building& building, const std::function<const Plan&(int step)>& plan, std::uint32_t seed, int steps) {
  return Interpreter(building, plan, seed).run(steps);
}

}  // namespace graphsink::testing
