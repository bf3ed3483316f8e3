#include "exec/memory/callers_memory.h"

#include <cstdint>

#include "graphsink/memory.h"

namespace graphsink {
namespace {

[[noreturn]] void refuse(const Where& where, const std::string& problem, const std::string& remedy) {
  throw Error("bind_memory", where, problem, remedy);
}

void require_room(const std::string& name, const CallersMemory::Range& range, std::size_t needed, const Where& where) {
  if (range.bytes >= needed) return;
  refuse(where, name + " takes " + bytes_text(needed) + ", the memory has " + bytes_text(range.bytes),
         "pass memory that is large enough, and how many bytes it has");
}

}  // namespace

void CallersMemory::require(const std::string& name, const Range& range, std::size_t needed, Device& device,
                            const Where& where) const {
  if (range.begin == nullptr) refuse(where, "the address for " + name + " is null", "pass memory of the device");
  require_room(name, range, needed, where);
  const std::size_t alignment = device.target().alignment;
  if (const std::size_t rest = reinterpret_cast<std::uintptr_t>(range.begin) % alignment; rest != 0) {
    const std::string wanted = std::to_string(alignment);
    refuse(where,
           "the address for " + name + " is not a multiple of " + wanted + ", but " + std::to_string(rest) +
               " bytes behind one",
           "pass the beginning of an allocation, or an offset in it that is a multiple of " + wanted);
  }
  try {
    device.require_usable(range.begin, range.bytes);
  } catch (const Error& e) {
    throw Error("bind_memory", where, "the memory for " + name + ": " + e.problem(), e.remedy(), e.code());
  }
  for (const auto& [other, taken] : ranges_) {
    bool overlaps = range.begin < taken.begin + taken.bytes && taken.begin < range.begin + range.bytes;
    if (other == name || !overlaps || !(range.is_written || taken.is_written)) continue;
    refuse(where, "the memory for " + name + " overlaps that of " + other, "pass other memory for one of them");
  }
}

void CallersMemory::add_output(int node, int result, const std::string& name, const Range& range) {
  add(name, range);
  outputs_[{node, result}] = name;
}

void CallersMemory::place_outputs(const Plan& plan, Addresses& addresses, const Where& where) const {
  std::map<int, std::string> taken;  // the names bound so far, by buffer
  for (const PlanOutput& output : plan.outputs) {
    auto found = outputs_.find({output.node, output.output});
    if (found == outputs_.end()) continue;
    const std::string& name = found->second;
    const Range& range = ranges_.at(name);
    const Buffer& buffer = plan.buffers[at(output.buffer)];
    if (buffer.storage != Storage::arena)
      refuse(where, name + " is a constant, which no step writes", "read() it, or compute it from an input");
    auto [other, is_new] = taken.emplace(output.buffer, name);
    if (!is_new && other->second != name) {
      refuse(where, name + " and " + other->second + " are the same memory in this plan",
             "bind memory for one of them, or copy one: add 0");
    }
    require_room(name, range, buffer.bytes, where);
    addresses.outputs[output.buffer] = range.begin;
  }
}

}  // namespace graphsink
