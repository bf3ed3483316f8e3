#include "exec/issue/bound_plan.h"

#include <algorithm>
#include <array>
#include <optional>

#include "base/at.h"
#include "base/trace.h"
#include "ir/agreement.h"
#include "ir/call_prepare.h"
#include "ir/graph_data.h"
#include "ir/system_ops.h"
#include "passes/plan_queries.h"

namespace graphsink {
namespace {

// "matmul", or "matmul in layer3".
TraceName trace_name(const PlanNode& node) {
  if (node.where.scope().empty()) return TraceName(node.op->name.data());
  return TraceName(std::string(node.op->name).append(" in ").append(node.where.scope()).c_str());
}

void* address_of(const Buffer& buffer, const Addresses& a) {
  switch (buffer.storage) {
    case Storage::arena:
      return a.devices[at(buffer.device)].arena + buffer.offset;
    case Storage::host_arena:
      return static_cast<std::byte*>(a.host_arena.get()) + buffer.offset;
    case Storage::invariant:
      return static_cast<std::byte*>(a.host_invariant.get()) + buffer.offset;
    case Storage::invariant_there:
      return static_cast<std::byte*>(a.devices[at(buffer.device)].invariant.get()) + buffer.offset;
    case Storage::input:
      return a.sources[at(buffer.index)];
    case Storage::constant:
      return a.constants.at({buffer.device, buffer.index});
    case Storage::host_constant:
      return a.host_constants[at(buffer.index)];
    case Storage::variable:
      return a.variables[at(buffer.index)];
    case Storage::step:
      return &a.devices[at(buffer.device)].block->step;
    case Storage::step_block:
      return a.devices[at(buffer.device)].block;
    case Storage::feed_table:
      return a.feed_table;
    case Storage::feed_strides:
      return a.feed_strides;
    case Storage::record_ring:
      return a.record_ring;
  }
  return nullptr;
}

int first_store(const Plan& plan) {
  for (int id : plan.sequences[0].tasks) {
    const Task& task = plan.tasks[at(id)];
    if (task.kind != TaskKind::call) continue;
    const PlanNode& node = plan.nodes[at(task.node)];
    if (writes_variables(*node.op, at(node.inputs))) return id;
  }
  return -1;
}

// Estimates the host memory of a plan and its BoundNodes, in bytes.
std::size_t plan_bytes(const Plan& plan) {
  std::size_t sum = sizeof plan + plan.buffers.size() * (sizeof(Buffer) + sizeof(void*));
  for (const PlanNode& node : plan.nodes) {
    sum += sizeof node + sizeof(Prepared) + sizeof(BoundNode);
    sum += node.operands.size() * (sizeof(int) + sizeof(TensorType) + sizeof(void*));
  }
  return sum + plan.tasks.size() * sizeof(Task);
}

}  // namespace

PreparedNodes prepare(const Plan& plan, Devices devices) {
  std::vector<bool> is_in_body(plan.nodes.size(), false);
  for (std::size_t i = 1; i < plan.sequences.size(); ++i)
    for (const Task& task : plan.tasks_of(static_cast<int>(i)))
      if (task.node >= 0) is_in_body[at(task.node)] = true;
  PreparedNodes prepared(plan.nodes.size());
  for (std::size_t i = 0; i < plan.nodes.size(); ++i) {
    const PlanNode& node = plan.nodes[i];
    if (!node.op->prepare) continue;
    bool runs_cuda = !plan.target().runs_cpu_bodies() && !node.on_host;
    prepared[i] = call_prepare(*node.op, PrepareArgs{node.op->name, node.where, node.types, node.inputs, node.attrs,
                                                     runs_cuda, devices[at(node.device)], is_in_body[i]});
  }
  return prepared;
}

PlanFacts facts_of(const PreparedNodes& nodes) {
  PlanFacts facts;
  facts.workspaces.reserve(nodes.size());
  for (const Prepared& node : nodes) facts.workspaces.push_back(node.workspace);
  return facts;
}

BoundPlan::BoundPlan(std::shared_ptr<const Plan> plan, std::shared_ptr<const PreparedNodes> nodes,
                     const Addresses& addresses, Devices devices)
    : plan_(std::move(plan)),
      prepared_(std::move(nodes)),
      check_host_(HostFlagAttrs{&addresses.host_status->failed, &addresses.host_status->node}),
      host_arena_(addresses.host_arena),
      invariant_{addresses.host_invariant},
      versions_(plan_->invariant_copies.size(), 0),
      first_store_(first_store(*plan_)) {
  bytes_ = plan_bytes(*plan_) + host_arena_bytes(*plan_, facts()) + plan_->host_invariant_bytes;
  for (const PlanDevice& device : plan_->devices) bytes_ += device.invariant_bytes;
  for (const DeviceAddresses& device : addresses.devices) invariant_.push_back(device.invariant);
  addresses_.reserve(plan_->buffers.size());
  for (const Buffer& buffer : plan_->buffers) addresses_.push_back(address_of(buffer, addresses));
  for (const auto& [buffer, address] : addresses.outputs) addresses_[at(buffer)] = address;
  bind_nodes(addresses, devices);
}

void BoundPlan::bind_nodes(const Addresses& addresses, Devices devices) {
  std::size_t operands = 0;
  for (const PlanNode& node : plan_->nodes) operands += node.operands.size();
  pointers_.reserve(operands);
  nodes_.reserve(plan_->nodes.size());
  names_.reserve(plan_->nodes.size());
  for (std::size_t i = 0; i < plan_->nodes.size(); ++i) {
    const PlanNode& node = plan_->nodes[i];
    BoundNode bound;
    bound.op = node.op;
    bound.attrs = &node.attrs;
    if (node.op == system_ops().check_host) bound.attrs = &check_host_;
    if (node.op == system_ops().check_ranks) {
      check_ranks_ = RankFlagAttrs{node.attrs.as<NodeAttrs>().id, rank_wait()->given_up()};
      bound.attrs = &check_ranks_;
    }
    if (node.op == system_ops().end_step) {
      end_step_ = EndAttrs{node.attrs.as<EndAttrs>().capacities, addresses.progress};
      bound.attrs = &end_step_;
    }
    bound.pointers = pointers_.data() + pointers_.size();
    bound.types = node.types.data();
    bound.inputs = node.inputs;
    bound.outputs = static_cast<int>(node.operands.size()) - node.inputs;
    bound.local = (*prepared_)[i].data.get();
    bound.workspace_bytes = (*prepared_)[i].workspace;
    bound.step = node.on_host ? nullptr : addresses.devices[at(node.device)].block;
    bound.status = addresses.host_status;
    bound.id = node.id;
    bound.on_host = node.on_host;
    bound.programmatic = node.programmatic;
    bound.where = node.where;
    for (int buffer : node.operands) pointers_.push_back(buffer < 0 ? nullptr : addresses_[at(buffer)]);
    nodes_.push_back(bound);
    names_.push_back(trace_name(node));
  }
  bind_workspaces(devices);
}

void BoundPlan::bind_workspaces(Devices devices) {
  Workspaces bytes = workspaces(*plan_, facts());
  auto* host = static_cast<std::byte*>(host_arena_.get()) + plan_->host_arena_bytes;
  std::vector<std::byte*> on_host;  // the address of the host workspace, per stream
  for (std::size_t i = 0; i < bytes.device.size(); ++i) {
    DeviceMemory& device = *devices[at(plan_->stream_devices[i])];
    bytes_ += bytes.device[i];
    workspaces_.push_back(bytes.device[i] ? device.allocate(bytes.device[i]) : nullptr);
    on_host.push_back(host);
    if (bytes.host[i] > 0) host += rounded_block(bytes.host[i]);
  }
  std::vector<int> stream_of = node_streams(*plan_);
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    if (nodes_[i].workspace_bytes == 0) continue;
    std::size_t stream = at(stream_of[i]);
    nodes_[i].workspace = plan_->nodes[i].on_host ? on_host[stream] : workspaces_[stream].get();
  }
}

void BoundPlan::refresh(std::size_t index, std::uint64_t version, DeviceQueue& device, Stream& stream) {
  const InvariantCopy& copy = plan_->invariant_copies[index];
  device.copy(stream, address(copy.destination), address(copy.source), plan_->buffers[at(copy.source)].bytes);
  versions_[index] = version;
}

std::shared_ptr<const RankWait> BoundPlan::rank_wait() const {
  if (!plan_->target().separate_memory) return nullptr;  // the ranks agree on the host
  const OpDef* agree = nullptr;
  for (const PlanNode& node : plan_->nodes) agree = node.op->traits.agree ? node.op->traits.agree : agree;
  for (std::size_t i = 0; agree != nullptr && i < plan_->nodes.size(); ++i)
    if (plan_->nodes[i].op == agree && !plan_->nodes[i].on_host)
      return std::static_pointer_cast<const RankWait>((*prepared_)[i].data);
  return nullptr;
}

void BoundPlan::issue_task(int id, Devices devices, Streams streams, const Issuing& how) const {
  const Task& task = plan_->tasks[at(id)];
  Stream& stream = *streams[at(task.stream)];
  Device& device = *devices[at(plan_->stream_devices[at(task.stream)])];
  switch (task.kind) {
    case TaskKind::call: {
      const BoundNode& node = nodes_[at(task.node)];
      const TraceRange range(TraceCategory::op, names_[at(task.node)]);
      device.call(stream, node);
      break;
    }
    case TaskKind::copy: {
      GRAPHSINK_TRACE(copy, "copy");
      device.copy(stream, address(task.destination), address(task.source), plan_->buffers[at(task.source)].bytes);
      break;
    }
    case TaskKind::branch:
    case TaskKind::choice:
    case TaskKind::loop: {
      auto bodies = [&](std::size_t which, Streams inner) { issue_body(task.bodies[which], devices, inner, how); };
      device.control(streams.subspan(at(task.stream), 1), task.kind, address(task.source), task.bodies.size(), bodies);
      if (how.clock) how.clock->restart(stream);
      return;
    }
  }
  if (how.clock) how.clock->end_task(stream, id);
}

void BoundPlan::issue_body(int sequence, Devices devices, Streams streams, const Issuing& how) const {
  if (how.clock) how.clock->restart(*streams[0]);
  const Sequence& body = plan_->sequences[at(sequence)];
  auto issue_tasks = [&](const std::vector<int>& tasks) {
    for (int id : tasks) issue_task(id, devices, streams, how);
  };
  if (!how.launch_in_body || body.islands.empty()) return issue_tasks(body.tasks);
  for (std::size_t i = 0; i < body.islands.size(); ++i) {
    if (body.islands[i].sunk) {
      (*how.launch_in_body)(sequence, i, *streams[0]);
    } else {
      issue_tasks(body.islands[i].tasks);
    }
  }
}

void BoundPlan::run_on_host(const Task& task, DeviceNodes& device) const {
  const BoundNode& node = nodes_[at(task.node)];
  const TraceRange range(TraceCategory::op, names_[at(task.node)]);
  device.call_now(node);
}

void BoundPlan::issue(std::span<const int> tasks, Devices devices, Streams streams, const Issuing& how) const {
  Device& device = *devices[0];
  auto issued_kernels = [&] {
    std::uint64_t sum = 0;
    for (const Device* each : devices) sum += each->counters().kernels;
    return sum;
  };
  std::array<bool, kMaxStreams> is_open{};  // streams with work for which streams[0] has not waited
  std::array<bool, kMaxStreams> is_forked{};
  auto make_wait = [&](int later, int earlier) {
    // Its work belongs to an earlier island, which has already waited for it.
    if (earlier != 0 && !is_forked[at(earlier)]) return;
    if (later == 0) is_open[at(earlier)] = false;
    if (earlier == 0) is_forked[at(later)] = true;
    if (streams[at(later)] == streams[at(earlier)]) return;
    devices[at(plan_->stream_devices[at(later)])]->make_wait(*streams[at(later)], *streams[at(earlier)]);
  };
  const Stream* waited_for = nullptr;  // set if no work was given to any stream since the host waited for this one
  auto enter = [&](int stream) {       // returns true if the stream had no part in this island until now
    if (stream == 0 || is_forked[at(stream)]) return false;
    make_wait(stream, 0);
    return true;
  };
  auto issue_one = [&](int id) {
    const Task& task = plan_->tasks[at(id)];
    // The forked task may be in another island, which begins after this one. Then only other tasks on its stream rely
    // on the wait.
    auto relies_on = [&](const Fork& fork) {
      return fork.task <= tasks.back() || std::any_of(tasks.begin(), tasks.end(), [&](int other) {
               return other >= id && plan_->tasks[at(other)].stream == fork.stream;
             });
    };
    for (const Fork& fork : task.forks) {
      if (!relies_on(fork)) continue;
      if (!enter(fork.stream) || fork.source != 0) make_wait(fork.stream, fork.source);
    }
    bool enters = enter(task.stream);
    for (int earlier : task.after)
      if (earlier != 0 || !enters) make_wait(task.stream, earlier);
    if (how.is_split && is_on_host(*plan_, task)) {
      Stream* stream = streams[at(task.stream)];
      if (waited_for != stream || !task.after.empty()) device.wait(*stream);
      waited_for = stream;
      run_on_host(task, device);
    } else {
      issue_task(id, devices, streams, how);
      waited_for = nullptr;
    }
    is_open[at(task.stream)] = task.stream != 0;
  };
  std::optional<std::uint64_t> before_commit;  // number of kernels issued live; a capture does not increase it
  for (int id : tasks) {
    if (id == first_store_) before_commit = issued_kernels();
    try {
      issue_one(id);
    } catch (const Error& e) {
      if (!before_commit || issued_kernels() == *before_commit) throw;
      throw BrokenCommit(e.op(), e.where(), "the step broke off while it committed: " + e.problem(), e.remedy(),
                         e.code());
    }
  }
  for (int s = 1; s < plan_->streams; ++s)
    if (is_open[at(s)]) make_wait(0, s);
}

void BoundPlan::issue_all(Devices devices, Streams streams, const Issuing& how) const {
  if (how.clock) how.clock->begin_step(*streams[0]);
  issue(plan_->sequences[0].tasks, devices, streams, how);
}

}  // namespace graphsink
