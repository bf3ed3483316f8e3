// MemoryReport: where a program's memory goes, known before any of it is allocated.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "graphsink/plan.h"

namespace graphsink {

// One value and its memory.
struct ValueMemory {
  std::string name;  // "matmul", "variable \"w1\"", "feed \"x\"", "constant"
  TensorType type;   // of a feed: of one slice
  std::size_t bytes = 0;
  Where where;  // the user's line; line() is 0 for Variables
};

// Bytes, by what they are for; every block is rounded up to 256. The first group is memory of the device, the second
// is memory of the host that copies may use (on the CPU both are the host's).
struct MemoryReport {
  DeviceId device;
  std::size_t arena = 0;      // one block for all values a step makes, which hand it on to each other
  std::size_t variables = 0;  // parameters, the optimizer's state, and all others
  std::size_t inputs = 0;     // what write() gives: inputs and
  std::size_t feeds = 0;      // the slices of feeds, as many as were written last (before that, one of each)
  std::size_t constants = 0;
  std::size_t workspaces = 0;  // scratch memory of ops, for each stream that of the op which needs most
  std::size_t control = 0;     // where a step finds its number and its slices

  std::size_t further = 0;  // values and hoisted copies on further devices, no part of device_bytes()

  std::size_t records = 0;     // rings of the values that wait to be read, see RecordOptions
  std::size_t host_arena = 0;  // values and scratch memory of ops on the host of a device with separate memory
  std::size_t hoisted = 0;     // copies there of inputs and Variables that no step changes
  std::size_t staging = 0;     // through which data goes to the device; grows with the first writes
  std::size_t status = 0;      // what steps report to the host

  // What the arena is made for.
  std::size_t values = 0;  // sum of all values a step makes
  std::size_t live = 0;    // live_bytes(): the most of them at once, operand and result of an op both
  std::size_t packed = 0;  // what the values take in the arena; `arena` is this, rounded up by the device

  // At most ten, the largest first; of equal ones that which the step makes first.
  std::vector<ValueMemory> largest;

  std::size_t device_bytes() const { return arena + variables + inputs + feeds + constants + workspaces + control; }
  std::size_t host_bytes() const { return records + host_arena + hoisted + staging + status; }
};

// What the plan needs, as far as the plan and the facts tell: the device may round the arena up. Needs no device.
// Program::memory() knows the rest.
MemoryReport memory_report(const Plan& plan, const PlanFacts& facts = {});

// Some lines for a person: the sums above, then the largest values with their lines.
std::string to_string(const MemoryReport& report);
// "1.5 MiB".
std::string bytes_text(std::size_t bytes);

}  // namespace graphsink
