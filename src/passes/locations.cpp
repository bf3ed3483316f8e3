#include "passes/locations.h"

#include <algorithm>

#include "base/at.h"
#include "passes/passes.h"

namespace graphsink {

Locations::Locations(const PlannerIr& ir, Plan& plan) : ir_(ir), plan_(plan) {
  int values = 0;
  first_output_.reserve(ir.nodes.size());
  for (const IrNode& node : ir.nodes) {
    first_output_.push_back(values);
    values += static_cast<int>(node.outputs.size());
  }
  host_.assign(at(values), -1);
  devices_.assign(plan.devices.size(), host_);
}

int Locations::add_buffer(Storage storage, std::size_t bytes, int index, int device) {
  plan_.buffers.push_back({storage, bytes, 0, index, device});
  return static_cast<int>(plan_.buffers.size()) - 1;
}

void Locations::add_copy(int sequence, int source, int destination) {
  Task task;
  task.kind = TaskKind::copy;
  task.source = source;
  task.destination = destination;
  add_task(plan_, sequence, std::move(task));
}

void Locations::add_copy_between(int source, int destination) {
  const Buffer from = plan_.buffers[at(source)];
  if (!are_linked(from.device, plan_.buffers[at(destination)].device)) {
    int staged = add_buffer(Storage::host_arena, from.bytes);
    add_copy(0, source, staged);
    source = staged;
  }
  add_copy(0, source, destination);
}

int& Locations::slot(int place, ValueRef v) {
  Table& table = place == kHost ? host_ : devices_[at(place)];
  return table[at(first_output_[at(v.node)] + v.output)];
}

void Locations::put(ValueRef v, int place, int buffer) { slot(place, v) = buffer; }

int Locations::source_buffer(ValueRef v) {
  const IrNode& node = ir_.node(v);
  if (node.op == &constant_op) return add_buffer(Storage::constant, bytes_of(v), ir_.number(v.node));
  if (node.op == &input_op) {
    plan_.inputs.push_back(ir_.number(v.node));
    return add_buffer(Storage::input, bytes_of(v), ir_.number(v.node));
  }
  if (node.op == &step_op || node.op == &random_state_op) return add_buffer(Storage::step, bytes_of(v));
  const Variable& variable = node.attrs.as<VariableAttrs>().variable;
  plan_.variables.push_back(variable);
  int use = ir_.variable_index.at(variable.data().get());
  plan_.variable_written.push_back(ir_.variables[at(use)].is_written());
  plan_.variable_devices.push_back(node.device);
  return add_buffer(Storage::variable, bytes_of(v), static_cast<int>(plan_.variables.size()) - 1, node.device);
}

// Tells whether no step changes what the buffer holds. Its owner or another program may still change it between runs.
bool Locations::is_steady(int buffer) const {
  const Buffer& b = plan_.buffers[at(buffer)];
  return b.storage == Storage::input || (b.storage == Storage::variable && !plan_.variable_written[at(b.index)]);
}

// Returns the buffer of the invariant copy of `origin` at `place`. The first call creates it.
int Locations::invariant_buffer(int origin, int place) {
  for (const InvariantCopy& copy : plan_.invariant_copies) {
    const Buffer& destination = plan_.buffers[at(copy.destination)];
    const Storage storage = place == kHost ? Storage::invariant : Storage::invariant_there;
    bool is_there = destination.storage == storage && (place == kHost || destination.device == place);
    if (copy.origin == origin && is_there) return copy.destination;
  }
  const int home = plan_.buffers[at(origin)].device;
  int source = place == kHost || are_linked(home, place) ? origin : invariant_buffer(origin, kHost);
  std::size_t bytes = plan_.buffers[at(origin)].bytes;
  int destination =
      place == kHost ? add_buffer(Storage::invariant, bytes) : add_buffer(Storage::invariant_there, bytes, -1, place);
  plan_.invariant_copies.push_back({source, destination, origin});
  return destination;
}

int Locations::on_device(int sequence, ValueRef v, int device) {
  int& buffer = slot(device, v);
  if (buffer >= 0) return buffer;
  const OpDef& op = *ir_.node(v).op;
  if (is_source(op) && device == home_of(v)) return buffer = source_buffer(v);
  if (&op == &constant_op) return buffer = add_buffer(Storage::constant, bytes_of(v), ir_.number(v.node), device);
  if (&op == &step_op || &op == &random_state_op) return buffer = add_buffer(Storage::step, bytes_of(v), -1, device);
  int from = home_of(v);
  if (from == kHost && slot(kHost, v) >= 0) {
    // A view of a constant, which is on the device, too.
    const Buffer host = plan_.buffers[at(slot(kHost, v))];
    if (host.storage == Storage::host_constant)
      return buffer = add_buffer(Storage::constant, host.bytes, host.index, device);
  }
  if (int origin = from != kHost ? on_device(sequence, v, from) : -1; origin >= 0 && is_steady(origin))
    return buffer = invariant_buffer(origin, device);
  int source = from == kHost || !are_linked(from, device) ? on_host(sequence, v) : on_device(sequence, v, from);
  buffer = add_buffer(Storage::arena, bytes_of(v), -1, device);
  add_copy(sequence, source, buffer);
  if (device != 0) copies_.push_back({sequence, v, device});
  return buffer;
}

int Locations::on_host(int sequence, ValueRef v) {
  int& buffer = slot(kHost, v);
  if (buffer >= 0) return buffer;
  if (ir_.node(v).op == &constant_op)
    return buffer = add_buffer(Storage::host_constant, bytes_of(v), ir_.number(v.node));
  int source = on_device(sequence, v, home_of(v));
  if (is_steady(source)) return buffer = invariant_buffer(source, kHost);
  buffer = add_buffer(Storage::host_arena, bytes_of(v));
  add_copy(sequence, source, buffer);
  copies_.push_back({sequence, v, kHost});
  return buffer;
}

int Locations::home_of(ValueRef v) {
  if (is_source(*ir_.node(v).op)) return ir_.node(v).device;  // 0 but for Variables
  for (int device = 0; device < static_cast<int>(devices_.size()); ++device)
    if (slot(device, v) >= 0) return device;
  return kHost;
}

bool Locations::is_there(ValueRef v) {
  if (ir_.node(v).op == &parameter_op) return slot(0, v) >= 0;
  return home_of(v) != kHost || slot(kHost, v) >= 0;
}

void Locations::forget_copies(int sequence) {
  std::erase_if(copies_, [&](const Copy& copy) {
    if (copy.sequence == sequence) slot(copy.place, copy.value) = -1;
    return copy.sequence == sequence;
  });
}

int Locations::copy_of(int buffer) {
  const Buffer b = plan_.buffers[at(buffer)];
  int copy = add_buffer(Storage::arena, b.bytes, -1, b.device);
  add_copy(0, buffer, copy);
  return copy;
}

int Locations::kept(int buffer) {
  const Buffer& b = plan_.buffers[at(buffer)];
  bool is_overwritten =
      b.storage == Storage::step || (b.storage == Storage::variable && plan_.variable_written[at(b.index)]);
  return is_overwritten ? copy_of(buffer) : buffer;
}

int Locations::kept_until_next_run(int buffer) {
  Storage storage = plan_.buffers[at(buffer)].storage;
  return storage == Storage::arena || storage == Storage::constant ? buffer : copy_of(buffer);
}

// Tells whether a copy can go directly from one device to the other.
bool Locations::are_linked(int a, int b) const {
  const std::vector<int>& peers = plan_.devices[at(a)].target.peers;
  return a == b || std::find(peers.begin(), peers.end(), plan_.devices[at(b)].target.id.index) != peers.end();
}

}  // namespace graphsink
