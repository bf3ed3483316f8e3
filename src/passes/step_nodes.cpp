#include "passes/step_nodes.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "base/at.h"
#include "passes/passes.h"

namespace graphsink {
namespace {

// Returns the capacity of each record ring when rings for values of `elements` together share the default memory.
std::int64_t shared_capacity(std::int64_t elements) {
  constexpr std::int64_t kShared = std::int64_t{1} << 20;  // values of 8 bytes
  auto share = static_cast<std::uint64_t>(kShared / std::max<std::int64_t>(elements, 1));
  return std::clamp<std::int64_t>(static_cast<std::int64_t>(std::bit_floor(share)), 16, kRecordCapacity);
}

}  // namespace

PlanNode system_node(const OpDef* op, Attrs attrs, const Where& where) {
  PlanNode node;
  node.op = op;
  node.attrs = std::move(attrs);
  node.where = where;
  return node;
}

void add_operand(PlanNode& node, int buffer, const TensorType& type) {
  node.operands.push_back(buffer);
  node.types.push_back(type);
}

PlanNode store_node(const PlannerIr& ir, const SystemOps& system, int device, Locations& values) {
  PlanNode store = system_node(system.store, {}, Where());
  store.device = static_cast<std::int16_t>(device);
  for (const VariableUse& use : ir.variables) {
    if (!use.is_assigned() || ir.node(use.read).device != device) continue;
    store.where = use.assigned_where;
    add_operand(store, values.on_device(0, use.read, device), ir.type(use.read));
    add_operand(store, values.kept(values.on_device(0, use.assigned, device)), ir.type(use.assigned));
  }
  store.inputs = static_cast<int>(store.operands.size());
  return store;
}

PlanNode mark_stop_node(const PlannerIr& ir, const SystemOps& system, Locations& values) {
  PlanNode mark = system_node(system.mark_stop, {}, Where());
  for (const NamedValue& stop : ir.stops) add_operand(mark, values.on_device(0, stop.value), ir.type(stop.value));
  mark.inputs = static_cast<int>(mark.operands.size());
  return mark;
}

PlanNode end_node(const PlannerIr& ir, const SystemOps& system, Locations& values, Plan& plan) {
  const auto& records = ir.records;
  std::int64_t sharing = 0;
  for (const NamedValue& record : records)
    if (record.capacity == 0) sharing += ir.type(record.value).shape.size();
  EndAttrs attrs;
  PlanNode end = system_node(system.end_step, {}, Where());
  for (const NamedValue& record : records) {
    std::int64_t capacity = record.capacity > 0 ? record.capacity : shared_capacity(sharing);
    int buffer = values.kept(values.on_device(0, record.value));
    plan.records.push_back({record.name, buffer, ir.type(record.value), capacity});
    attrs.capacities.push_back(capacity);
    add_operand(end, buffer, ir.type(record.value));
  }
  for (const NamedValue& stop : ir.stops)
    add_operand(end, values.kept(values.on_device(0, stop.value)), ir.type(stop.value));
  end.attrs = std::move(attrs);
  end.inputs = static_cast<int>(end.operands.size());
  TensorType ring{DType::f64, {static_cast<std::int64_t>(ring_bytes(plan) / sizeof(double))}};
  add_operand(end, values.add_buffer(Storage::record_ring, ring.bytes()), ring);
  return end;
}

}  // namespace graphsink
