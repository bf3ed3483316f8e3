#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "base/at.h"
#include "ir/agreement.h"
#include "ir/step_state.h"
#include "passes/locations.h"
#include "passes/passes.h"
#include "passes/stack_stores.h"
#include "passes/step_nodes.h"

namespace graphsink {
namespace {

class Lowering {
 public:
  Lowering(const PlannerIr& ir, const SystemOps& system, const PlanOptions& options, Plan& plan)
      : ir_(ir), system_(system), options_(options), plan_(plan), values_(ir, plan) {}

  void run() {
    plan_.sequences.resize(1);
    plan_.nodes.reserve(ir_.nodes.size());
    plan_.buffers.reserve(ir_.nodes.size());
    plan_.tasks.reserve(ir_.nodes.size());
    plan_.sequences[0].tasks.reserve(ir_.regions[0].nodes.size());
    begin();
    begin_further_devices();
    for (int id : ir_.regions[0].nodes) lower_node(0, id);
    finish();
  }

 private:
  const TensorType& type(ValueRef v) const { return ir_.type(v); }

  // --- tasks

  int add_call(int sequence, PlanNode node) {
    plan_.nodes.push_back(std::move(node));
    Task task;
    task.node = static_cast<int>(plan_.nodes.size()) - 1;
    int index = task.node;
    add_task(plan_, sequence, std::move(task));
    return index;
  }

  void begin() {
    std::vector<int> feeds;
    for (std::size_t id = 0; id < ir_.nodes.size(); ++id)
      if (ir_.nodes[id].is_live && ir_.nodes[id].op == &feed_op) feeds.push_back(static_cast<int>(id));
    auto count = static_cast<std::int64_t>(feeds.size());
    PlanNode node = system_node(system_.begin_step, {}, Where());
    TensorType table{DType::f64, {count}};  // 8 bytes per element: an address or a stride
    add_operand(node, values_.add_buffer(Storage::feed_table, table.bytes()), table);
    add_operand(node, values_.add_buffer(Storage::feed_strides, table.bytes()), table);
    node.inputs = 2;
    for (int id : feeds) {
      const TensorType& slice = type({id, 0});
      int buffer = values_.add_buffer(Storage::arena, slice.bytes());
      values_.put({id, 0}, 0, buffer);
      plan_.feeds.push_back({ir_.number(id), buffer});
      add_operand(node, buffer, slice);
    }
    add_call(0, std::move(node));
  }

  // Gives each further device in use a step block, in which its ops report failures. The block begins as a copy of the
  // target's block, and is checked before the commit.
  void begin_further_devices() {
    for (const IrNode& node : ir_.nodes) {
      int device = node.device;
      if (device == 0 || !node.is_live || plan_.devices[at(device)].step_block >= 0) continue;
      int block = values_.add_buffer(Storage::step_block, sizeof(StepState), -1, device);
      if (step_block_ < 0) step_block_ = values_.add_buffer(Storage::step_block, sizeof(StepState));
      values_.add_copy_between(step_block_, block);
      plan_.devices[at(device)].step_block = block;
    }
  }

  // Adds the checks for failed steps as the last tasks before the first store.
  void check_before_commit() {
    check_further_devices();
    if (agreement_.collectives.empty()) return;
    if (!ir_.stops.empty()) add_call(0, mark_stop_node(ir_, system_, values_));
    agree_with_ranks();
  }

  // The ranks agree on the step after all else that may fail it. Where the target has memory of its own, they do so on
  // the host, with a copy of the step block, unless all collectives run on the device.
  void agree_with_ranks() {
    if (host_collective_ >= 0 && device_collective_ >= 0) refuse_two_ways();
    if (plan_.target().separate_memory && host_collective_ < 0) return agree_on_device();
    PlanNode agree = agree_node();
    if (plan_.target().separate_memory) {
      const TensorType bytes{DType::u8, {static_cast<std::int64_t>(sizeof(StepState))}};
      PlanNode tell = system_node(system_.tell_step, {}, Where());
      tell.is_last_of_all = true;
      const int told = values_.add_buffer(Storage::arena, sizeof(StepState));
      const int seen = values_.add_buffer(Storage::host_arena, sizeof(StepState));
      add_operand(tell, told, bytes);
      add_call(0, std::move(tell));
      values_.add_copy(0, told, seen);
      add_operand(agree, seen, bytes);
      agree.inputs = 1;
      agree.on_host = host_work_ = true;
    }
    agree.attrs = std::move(agreement_);
    add_call(0, std::move(agree));
  }

  // Steps behind a failed one exchange values on the device, and none on the host, so that ranks could not go on.
  [[noreturn]] void refuse_two_ways() const {
    const CollectiveUse& there = agreement_.collectives[at(device_collective_)];
    const CollectiveUse& here = agreement_.collectives[at(host_collective_)];
    const std::string place = to_string(there.where);
    throw Error(std::string(here.op->name), here.where,
                "it exchanges values on the host, and " + std::string(there.op->name) +
                    (place.empty() ? "" : " (" + place + ")") + " of the same step does so on the device",
                "make all Comms of a program by nccl_world(), or all by world(), and place no collective");
  }

  PlanNode agree_node() const {
    const CollectiveUse& first = agreement_.collectives.front();
    PlanNode agree = system_node(first.op->traits.agree, {}, first.where);
    agree.id = first.id;
    agree.is_last_of_all = true;
    return agree;
  }

  // Launches of graphs with work on several GPUs of one process may block, so that the collectives of NCCL wait for
  // each other for ever (NCCL user guide, "Using NCCL with CUDA Graphs").
  void expect_one_gpu() const {
    const CollectiveUse& first = agreement_.collectives.front();
    for (const PlanDevice& device : plan_.devices) {
      if (device.step_block < 0) continue;
      throw Error(std::string(first.op->name), first.where,
                  "its Comm exchanges values by NCCL, and the step has work on " + to_string(device.target.id) +
                      " beside " + to_string(plan_.target().id) +
                      ": NCCL does not support graphs on several GPUs of one process, which may wait for each other "
                      "for ever",
                  "give each rank one GPU, without further_devices and Variables on them, and start more ranks; or "
                  "make the Comm by world(), whose values cross the host");
    }
  }

  // The step blocks of all ranks come together on the device. That of this rank tells by then what has failed on the
  // host.
  void agree_on_device() {
    expect_one_gpu();
    if (std::exchange(host_work_, false)) {
      PlanNode check = system_node(system_.check_host, {}, Where());
      check.is_last_of_all = true;
      add_call(0, std::move(check));
    }
    PlanNode agree = agree_node();
    agree.attrs = std::move(agreement_);
    InferArgs infer(agree.op->name, {}, agree.attrs, agree.where);
    agree.op->infer(infer);
    const TensorType all = infer.outputs().at(0);
    const int blocks = values_.add_buffer(Storage::arena, all.bytes());
    add_operand(agree, blocks, all);
    PlanNode check = system_node(system_.check_ranks, NodeAttrs{agree.id}, agree.where);
    add_operand(check, blocks, all);
    check.inputs = 1;
    add_call(0, std::move(agree));
    add_call(0, std::move(check));
  }

  void check_further_devices() {
    TensorType bytes{DType::u8, {static_cast<std::int64_t>(sizeof(StepState))}};
    std::vector<PlanNode> checks;
    for (const PlanDevice& device : plan_.devices) {
      if (device.step_block < 0) continue;
      int seen = values_.add_buffer(Storage::arena, sizeof(StepState));
      values_.add_copy_between(device.step_block, seen);
      checks.push_back(system_node(system_.check_device, {}, Where()));
      add_operand(checks.back(), seen, bytes);
      checks.back().inputs = 1;
    }
    for (PlanNode& check : checks) add_call(0, std::move(check));
  }

  void lower_node(int sequence, int id) {
    const IrNode& node = ir_.nodes[at(id)];
    if (!node.is_live || is_source(*node.op)) return;
    if (node.op == &while_op) return lower_while(sequence, id);
    if (is_branch(*node.op)) return lower_branch(sequence, id);
    if (node.op == system_.clear || node.op == system_.store_at) return lower_stack_op(sequence, id);
    if (sequence == 0 && writes_variables(*node.op, node.inputs.size())) {
      commits_.push_back({id, {}});
      return;
    }
    lower_op(sequence, id);
  }

  // `operands`: the buffers of the inputs, if these are not those of their values.
  void lower_op(int sequence, int id, const std::vector<int>& operands = {}) {
    const IrNode& node = ir_.nodes[at(id)];
    PlanNode lowered;
    lowered.op = node.op;
    lowered.attrs = node.attrs;
    lowered.where = node.where;
    lowered.id = node.origin;
    lowered.graph_node = ir_.number(id);
    lowered.on_host = node.is_on_host;
    lowered.device = static_cast<std::int16_t>(node.device);
    const std::int16_t device = lowered.device;
    lowered.inputs = static_cast<int>(node.inputs.size());
    int place = lowered.on_host ? Locations::kHost : device;
    lowered.operands.reserve(node.inputs.size() + node.outputs.size());
    lowered.types.reserve(node.inputs.size() + node.outputs.size());
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      ValueRef v = node.inputs[i];
      int buffer = operands.empty() ? -1 : operands[i];
      if (operands.empty() && node.reads(i))
        buffer = lowered.on_host ? values_.on_host(sequence, v) : values_.on_device(sequence, v, device);
      add_operand(lowered, buffer, type(v));
    }
    std::vector<std::pair<int, TensorType>> checked;
    for (std::size_t j = 0; j < node.outputs.size(); ++j) {
      ValueRef v{id, static_cast<int>(j)};
      int buffer = -1;
      for (Alias view : node.op->views)
        if (view.output == static_cast<int>(j)) buffer = lowered.operands[at(view.input)];
      if (buffer < 0)
        buffer =
            values_.add_buffer(lowered.on_host ? Storage::host_arena : Storage::arena, type(v).bytes(), -1, device);
      values_.put(v, place, buffer);
      add_operand(lowered, buffer, type(v));
      const bool is_checked = options_.check_finite && !lowered.on_host && !node.is_inside;
      if (is_checked && is_float(type(v).dtype)) checked.emplace_back(buffer, type(v));
    }
    if (node.op->traits.only_views) return;
    host_work_ = host_work_ || lowered.on_host;
    if (node.op->traits.agree != nullptr) {
      agreement_.collectives.push_back({node.op, node.attrs, lowered.types, node.where, node.origin, sequence != 0});
      const bool is_here = lowered.on_host || !plan_.target().separate_memory;
      (is_here ? host_collective_ : device_collective_) = static_cast<int>(agreement_.collectives.size()) - 1;
    }
    add_call(sequence, std::move(lowered));
    for (const auto& [buffer, checked_type] : checked) {
      PlanNode check = system_node(system_.check, NodeAttrs{node.origin}, node.where);
      check.device = device;
      add_operand(check, buffer, checked_type);
      check.inputs = 1;
      add_call(sequence, std::move(check));
    }
  }

  // --- control flow

  // `loop`: the loop whose body the region is, if it is one.
  int lower_region(int region_index, int loop = -1) {
    int sequence = static_cast<int>(plan_.sequences.size());
    plan_.sequences.emplace_back();
    const std::vector<StackStore> stores = loop < 0 ? std::vector<StackStore>() : stores_of(ir_, loop);
    const std::vector<int>& nodes = ir_.regions[at(region_index)].nodes;
    for (int position = -1; position < static_cast<int>(nodes.size()); ++position) {
      if (position >= 0) lower_node(sequence, nodes[at(position)]);
      for (const StackStore& store : stores) {
        if (store.position != position) continue;
        std::vector<ValueRef> inputs = store.values;
        inputs.push_back(store.place);
        add_stack_op(sequence, system_.store_at, ir_.nodes[at(loop)], inputs, store.stacks);
      }
    }
    return sequence;
  }

  Task control_task(TaskKind kind, const IrNode& node) {
    Task task;
    task.kind = kind;
    task.control = static_cast<int>(plan_.controls.size());
    plan_.controls.push_back({.where = node.where});
    return task;
  }

  void lower_branch(int sequence, int id) {
    const IrNode& node = ir_.nodes[at(id)];
    Task task = control_task(node.op == &if_op ? TaskKind::branch : TaskKind::choice, node);
    task.source = values_.on_device(sequence, node.inputs[0]);
    bring_inside(sequence, node, false);
    std::vector<int> outputs;
    for (std::size_t j = 0; j < node.outputs.size(); ++j) {
      outputs.push_back(values_.add_buffer(Storage::arena, type({id, static_cast<int>(j)}).bytes()));
      values_.put({id, static_cast<int>(j)}, 0, outputs.back());
    }
    for (int body : node.bodies) {
      int lowered = lower_region(body);
      const auto& results = ir_.regions[at(body)].results;
      for (std::size_t j = 0; j < results.size(); ++j)
        values_.add_copy(lowered, values_.on_device(lowered, results[j]), outputs[j]);
      values_.forget_copies(lowered);
      task.bodies.push_back(lowered);
    }
    add_task(plan_, sequence, std::move(task));
  }

  void lower_while(int sequence, int id) {
    const IrNode& node = ir_.nodes[at(id)];
    const IrRegion& region = ir_.regions[at(node.bodies[0])];
    bring_inside(sequence, node, true);
    std::vector<int> state;  // the buffers of the state, then that of the predicate
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      int initial = values_.on_device(sequence, node.inputs[i]);
      state.push_back(values_.add_buffer(Storage::arena, type(node.inputs[i]).bytes()));
      values_.add_copy(sequence, initial, state.back());
      if (i < region.parameters.size()) {
        values_.put(region.parameters[i], 0, state.back());
        values_.put({id, static_cast<int>(i)}, 0, state.back());
      }
    }
    Task task = control_task(TaskKind::loop, node);
    task.source = state.back();
    plan_.controls[at(task.control)].iterations = region.iterations;
    plan_.controls[at(task.control)].iterations_in_body = region.iterations_in_body;
    std::set<int> stacks;
    for (const IrStacked& stacked : region.stacked) {
      if (!stacks.insert(stacked.output).second) continue;  // another copy of the body writes it, too
      const ValueRef stack{id, stacked.output};
      values_.put(stack, 0, values_.add_buffer(Storage::arena, type(stack).bytes()));
      if (stacked.is_filled) {
        plan_.controls[at(task.control)].filled.push_back(values_.on_device(sequence, stack));
      } else {
        add_stack_op(sequence, system_.clear, node, {}, {stack});
      }
    }
    int body = lower_region(node.bodies[0], id);
    advance_state(body, region.results, state);
    values_.forget_copies(body);
    task.bodies.push_back(body);
    add_task(plan_, sequence, std::move(task));
  }

  // A stack that unroll() writes: the op changes the memory of the stack that it takes as its last operand, if any.
  void lower_stack_op(int sequence, int id) {
    const IrNode& node = ir_.nodes[at(id)];
    const bool is_first = node.inputs.size() < 3;
    std::vector<ValueRef> inputs = node.inputs;
    values_.put({id, 0}, 0,
                is_first ? values_.add_buffer(Storage::arena, type({id, 0}).bytes())
                         : values_.on_device(sequence, inputs.back()));
    if (!is_first) inputs.pop_back();
    add_stack_op(sequence, node.op, node, inputs, {{id, 0}});
  }

  // `node` is the loop, or what unroll() made of it.
  void add_stack_op(int sequence, const OpDef* op, const IrNode& node, const std::vector<ValueRef>& inputs,
                    const std::vector<ValueRef>& stacks) {
    PlanNode call = system_node(op, op == system_.store_at ? Attrs(NodeAttrs{node.origin}) : Attrs(), node.where);
    for (ValueRef v : inputs) add_operand(call, values_.on_device(sequence, v), type(v));
    call.inputs = static_cast<int>(inputs.size());
    for (ValueRef stack : stacks) add_operand(call, values_.on_device(sequence, stack), type(stack));
    add_call(sequence, std::move(call));
  }

  // Assigns the results to the state as if all results were read before any state is written.
  void advance_state(int body, const std::vector<ValueRef>& results, const std::vector<int>& state) {
    std::vector<int> next;
    for (std::size_t i = 0; i < results.size(); ++i) {
      int buffer = values_.on_device(body, results[i]);
      bool is_other_state = buffer != state[i] && std::find(state.begin(), state.end(), buffer) != state.end();
      if (is_other_state) {
        int copy = values_.add_buffer(Storage::arena, plan_.buffers[at(buffer)].bytes);
        values_.add_copy(body, buffer, copy);
        buffer = copy;
      }
      next.push_back(buffer);
    }
    for (std::size_t i = 0; i < next.size(); ++i)
      if (next[i] != state[i]) values_.add_copy(body, next[i], state[i]);
  }

  // Copies values from outside to where the bodies read them, before the control node instead of in each iteration.
  // Copies to the host are made only for a loop, because the body of a branch may not run.
  void bring_inside(int sequence, const IrNode& node, bool is_loop) {
    for (int body : node.bodies) {
      for (int inner : ir_.regions[at(body)].nodes) {
        const IrNode& user = ir_.nodes[at(inner)];
        if (!user.is_live) continue;
        for (std::size_t i = 0; i < user.inputs.size(); ++i) {
          ValueRef v = user.inputs[i];
          if (ir_.node(v).region == body || !values_.is_there(v)) continue;
          if (!user.reads(i)) continue;
          if (!user.is_on_host) values_.on_device(sequence, v);
          bool is_elsewhere = values_.home_of(v) > 0;  // a body does not access further devices
          if (user.is_on_host && (is_loop || is_elsewhere)) values_.on_host(sequence, v);
        }
        bring_inside(sequence, user, is_loop);
      }
      auto bring_result = [&](ValueRef v) {
        if (ir_.node(v).region != body && values_.is_there(v)) values_.on_device(sequence, v);
      };
      for (ValueRef v : ir_.regions[at(body)].results) bring_result(v);
      for (const IrStacked& stacked : ir_.regions[at(body)].stacked)
        bring_result(stacked.value), bring_result(stacked.place);
    }
  }
  // --- effects: the commit
  //
  // The commit is the end of the schedule. Except for the checks that come first, it contains neither work of the host
  // nor effects: an op that writes Variables has no effect, has no outputs that another op could wait for, and runs on
  // the device (emit() and place() refuse others). A read of a Variable after its assign reads the assigned value. So
  // everything that can throw runs before the first store.

  void finish() {
    prepare_commits();
    std::vector<PlanNode> stores;  // by device
    for (std::size_t device = 0; device < plan_.devices.size(); ++device)
      stores.push_back(store_node(ir_, system_, static_cast<int>(device), values_));
    PlanNode end = end_node(ir_, system_, values_, plan_);
    for (const IrOutput& output : ir_.outputs) {
      plan_.outputs.push_back({output.name, output.origin.node, output.origin.output,
                               values_.kept_until_next_run(values_.on_device(0, output.value)), type(output.value)});
    }
    check_before_commit();
    tell_further_devices(stores);
    if (host_work_) add_call(0, system_node(system_.check_host, {}, Where()));
    // No commit of one device reads what another one writes, so their order matters to no value.
    for (int device = static_cast<int>(stores.size()) - 1; device >= 0; --device) {
      for (const Commit& commit : commits_)
        if (ir_.nodes[at(commit.node)].device == device) lower_op(0, commit.node, commit.operands);
      if (stores[at(device)].inputs > 0) add_call(0, std::move(stores[at(device)]));
    }
    add_call(0, std::move(end));
  }

  // Further devices that commit get the step block as it is when all checks are done: a step that failed anywhere
  // commits nothing there.
  void tell_further_devices(const std::vector<PlanNode>& stores) {
    std::set<int> told;
    for (const Commit& commit : commits_) told.insert(ir_.nodes[at(commit.node)].device);
    for (const PlanNode& store : stores)
      if (store.inputs > 0) told.insert(store.device);
    told.erase(0);
    if (told.empty()) return;
    if (std::exchange(host_work_, false)) {
      PlanNode check = system_node(system_.check_host, {}, Where());
      check.is_last_of_all = true;
      add_call(0, std::move(check));
    }
    const TensorType bytes{DType::u8, {static_cast<std::int64_t>(sizeof(StepState))}};
    PlanNode tell = system_node(system_.tell_step, {}, Where());
    tell.is_last_of_all = true;
    const int state = values_.add_buffer(Storage::arena, sizeof(StepState));
    add_operand(tell, state, bytes);
    add_call(0, std::move(tell));
    for (int device : told) values_.add_copy_between(state, plan_.devices[at(device)].step_block);
  }

  // Brings what the commit reads to its device before it begins: if there were a copy within the commit, the tasks
  // before that copy would not count as part of the commit. An op of the commit reads the value that a Variable has at
  // the start of the step, so a Variable that the commit has overwritten by then is copied, too. An op may read a
  // Variable again that it writes itself, and is given the copy.
  void prepare_commits() {
    std::set<int> overwritten;
    std::map<int, int> copies;
    for (Commit& commit : commits_) {
      const IrNode& node = ir_.nodes[at(commit.node)];
      for (std::size_t i = 0; i < node.inputs.size(); ++i) {
        commit.operands.push_back(node.reads(i) ? values_.on_device(0, node.inputs[i], node.device) : -1);
        if (node.access(i) == Access::write) overwritten.insert(commit.operands[i]);
      }
      for (std::size_t i = 0; i < node.inputs.size(); ++i) {
        int& operand = commit.operands[i];
        if (node.access(i) != Access::read || overwritten.count(operand) == 0) continue;
        auto [copy, is_new] = copies.try_emplace(operand);
        if (is_new) copy->second = values_.kept(operand);
        operand = copy->second;
      }
    }
  }

  // An op that writes Variables, and the buffers of its inputs.
  struct Commit {
    int node;
    std::vector<int> operands;
  };

  const PlannerIr& ir_;
  const SystemOps& system_;
  const PlanOptions& options_;
  Plan& plan_;
  Locations values_;
  int step_block_ = -1;
  std::vector<Commit> commits_;
  bool host_work_ = false;
  Agreement agreement_;
  int host_collective_ = -1, device_collective_ = -1;  // one of each, in agreement_; -1: there is none
};

}  // namespace

void lower(const PlannerIr& ir, const SystemOps& system, const PlanOptions& options, Plan& plan) {
  Lowering(ir, system, options, plan).run();
}

}  // namespace graphsink
