#include "exec/memory/program_memory.h"

#include <string>

#include "base/at.h"
#include "passes/plan_queries.h"

namespace graphsink {

void ProgramMemory::allocate_control() {
  Device& target = session_.device();
  for (Device* each : session_.devices())
    devices_.push_back({each->reserve(), each == &target ? nullptr : each->allocate(sizeof(StepState))});
  control_ = target.allocate(sizeof(Control));
}

void ProgramMemory::upload_constants(const Plan& plan, Allocator& allocator, const Where& where) {
  for (const Buffer& buffer : plan.buffers) {
    std::pair key(buffer.device, buffer.index);
    if (buffer.storage != Storage::constant || constants_.contains(key)) continue;
    const Tensor& tensor = *graph_.nodes[at(buffer.index)].attrs.as<ConstantAttrs>().tensor;
    Device& device = session_.device(buffer.device);
    Memory memory = allocator.allocate("a constant (" + bytes_text(tensor.bytes()) + ")", "make it smaller", where,
                                       [&] { return device.allocate(tensor.bytes()); });
    device.upload(session_.stream(buffer.device), memory.get(), tensor.data(), tensor.bytes());
    constants_[key] = memory;
  }
}

Memory ProgramMemory::invariant_copies(const PlanDevice& needs, int number, Allocator& allocator, const Where& where) {
  if (needs.invariant_bytes == 0) return nullptr;
  return allocator.allocate("copies on " + to_string(needs.target.id) + " of what no step changes (" +
                                bytes_text(needs.invariant_bytes) + ")",
                            "place fewer ops there", where,
                            [&] { return session_.device(number).allocate(needs.invariant_bytes); });
}

DeviceAddresses ProgramMemory::further_addresses(const PlanDevice& needs, int number, Allocator& allocator,
                                                 const Where& where) {
  const OnDevice& memory = devices_[at(number)];
  std::string name = to_string(needs.target.id);
  DeviceAddresses a;
  allocator.allocate("the arena of " + name + " (" + bytes_text(needs.arena_bytes) + ")",
                     "use smaller batches, place fewer ops there", where,
                     [&] { memory.arena->grow(needs.arena_bytes); });
  a.arena = memory.arena->base();
  a.block = static_cast<StepState*>(memory.block.get());
  a.invariant = invariant_copies(needs, number, allocator, where);
  return a;
}

Addresses ProgramMemory::addresses(const Plan& plan, const PlanFacts& facts, Allocator& allocator, const Where& where) {
  Arena& arena = *devices_[0].arena;
  const std::size_t arena_bytes = plan.devices[0].arena_bytes;
  Addresses a;
  allocator.allocate("the arena (" + bytes_text(arena_bytes) + ")",
                     "use smaller batches, f16 or bf16 for the largest values", where,
                     [&] { arena.grow(arena_bytes); });
  a.devices.push_back({arena.base(), &control()->block, invariant_copies(plan.devices[0], 0, allocator, where)});
  for (int number = 1; number < session_.count(); ++number)
    a.devices.push_back(further_addresses(plan.devices[at(number)], number, allocator, where));
  DeviceMemory& target = session_.device();
  if (std::size_t bytes = host_arena_bytes(plan, facts); bytes > 0) {
    a.host_arena = allocator.allocate("the values and workspaces of ops on the host (" + bytes_text(bytes) + ")",
                                      "use smaller batches, give these ops a CUDA body", where,
                                      [&] { return target.allocate_host(bytes); });
  }
  if (std::size_t invariant = plan.host_invariant_bytes; invariant > 0) {
    a.host_invariant = allocator.allocate("copies on the host of what no step changes (" + bytes_text(invariant) + ")",
                                          "give the ops that read them a CUDA body", where,
                                          [&] { return target.allocate_host(invariant); });
  }
  a.feed_table = control()->feeds.rings;
  a.feed_strides = control()->feeds.strides;
  upload_constants(plan, allocator, where);
  a.host_constants.assign(graph_.nodes.size(), nullptr);
  for (const Buffer& buffer : plan.buffers) {
    auto index = at(buffer.index);
    if (buffer.storage == Storage::constant)
      a.constants[{buffer.device, buffer.index}] = constants_.at({buffer.device, buffer.index}).get();
    if (buffer.storage == Storage::host_constant) {
      // CPU bodies only read the constant, so they can use the graph's own copy.
      const Tensor& tensor = *graph_.nodes[index].attrs.as<ConstantAttrs>().tensor;
      a.host_constants[index] = const_cast<std::byte*>(tensor.data());
    }
  }
  return a;
}

}  // namespace graphsink
