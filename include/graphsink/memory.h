// MemoryReport: what a program needs memory for, known before any of it is allocated.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "graphsink/error.h"
#include "graphsink/target.h"
#include "graphsink/type.h"
#include "graphsink/version.h"

namespace GRAPHSINK_PUBLIC graphsink {

// One value and its memory.
struct ValueMemory {
  std::string name;       // "matmul", "variable \"w1\"", "feed \"x\"", "constant"
  TensorType type;        // type of the value; for a feed, of one slice
  std::size_t bytes = 0;  // memory that it takes, rounded up as below; for a feed, that of all slices
  Where where;            // the user's line; line() is 0 for Variables
};

// The memory of a program on one of its further devices, in bytes.
struct FurtherMemory {
  DeviceId device;             // one of CompileOptions::further_devices
  std::size_t arena = 0;       // values that steps compute there
  std::size_t variables = 0;   // Variables that live there
  std::size_t constants = 0;   // data of constants
  std::size_t workspaces = 0;  // scratch memory of ops
  std::size_t copies = 0;      // cached copies of inputs and Variables of other devices that no step changes

  // Sum of all of them.
  std::size_t bytes() const { return arena + variables + constants + workspaces + copies; }
};

// Bytes by purpose. Every block is rounded up to 256. The first group is memory of the device, the second is pinned
// memory of the host. On the CPU both are memory of the host.
struct MemoryReport {
  DeviceId device;             // the program's target
  std::size_t arena = 0;       // one block for all values that a step computes; they share it over time
  std::size_t variables = 0;   // Variables that live there: parameters, states of optimizers and others
  std::size_t inputs = 0;      // data of inputs
  std::size_t feeds = 0;       // slices of feeds, as many as were written last; before any write, one of each feed
  std::size_t constants = 0;   // data of constants
  std::size_t workspaces = 0;  // scratch memory of ops: for each stream as much as its most demanding op needs
  std::size_t control = 0;     // the state of the running step and the table of the feeds
  std::size_t copies = 0;      // cached copies of Variables of further devices that no step changes

  std::size_t further = 0;                     // everything on further devices; not included in device_bytes()
  std::vector<FurtherMemory> further_devices;  // the same by device, in the order of CompileOptions::further_devices

  std::size_t records = 0;           // rings of recorded values that were not read yet, see RecordOptions
  std::size_t host_arena = 0;        // values and scratch memory of ops on the host, if the device has separate memory
  std::size_t invariant_copies = 0;  // cached copies, for these ops, of inputs and Variables that no step changes
  // Buffers through which data is copied to the device, and slices of Program::stage(); they grow with use.
  std::size_t staging = 0;
  std::size_t status = 0;  // memory for what steps report to the host

  // How well the arena is used.
  std::size_t values = 0;  // sum of all values that a step computes
  std::size_t live = 0;    // the largest sum of values that are needed at the same time
  std::size_t packed = 0;  // size of the values in the arena; `arena` is this, rounded up by the device

  // The ten largest values, the largest first; of equal ones, the one that is computed first.
  std::vector<ValueMemory> largest;

  // Sum of the memory of the device.
  std::size_t device_bytes() const {
    return arena + variables + inputs + feeds + constants + workspaces + control + copies;
  }
  // Sum of the memory of the host.
  std::size_t host_bytes() const { return records + host_arena + invariant_copies + staging + status; }
};

// Prints the report in several lines: the sums, then the largest values with their lines in the user's source.
std::string to_string(const MemoryReport& report);
// "1.5 MiB".
std::string bytes_text(std::size_t bytes);

}  // namespace graphsink
