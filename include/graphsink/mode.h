// Mode: how a program gives its steps to the device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string_view>

#include "graphsink/version.h"

namespace GRAPHSINK_PUBLIC graphsink {

// All modes issue the same plan with the same op bodies and therefore give the same bits. Each run() may use another
// mode.
//
// In the interactive and split modes the host issues op by op; in those that sink, the step is captured and takes the
// fewest launches. The serial modes use one stream of the device; the others use several, and the threads of the CPU
// also share single ops. The split modes differ where ops run on the host and the device has a memory of its own. In
// the other modes such an op is enqueued like all others, or is a host node of the captured graph, with copies before
// and after it. In a split mode it runs on the thread that called run(), as soon as what it depends on is done: the
// graph is split into the fewest subgraphs of one device each. Where nothing is to be split, and in the bodies of loops
// and branches, a split mode does the same as the mode that is not split.
enum class Mode : std::uint8_t {
  sink,
  interactive_serial,
  interactive_parallel,
  split_serial,
  split_parallel,
  // Ops on the host run while the rest of the launch before them goes on. This saves the cost of host nodes and takes
  // more launches.
  split_sink,
  // Each step runs as sink, split_sink or interactive_serial, whichever takes the least time. The times are measured on
  // the steps of the run, without waiting for them. The program begins with sink, tries the other modes in at most 1 %
  // of the time, and changes to one that is faster with 95 % confidence. The choice is made separately for each set of
  // input shapes. Program::automatic_report() tells what was measured.
  automatic,
};
using enum Mode;  // gs::sink
inline constexpr Mode interactive = interactive_serial;

// For programs that try or test each of them.
inline constexpr Mode kAllModes[] = {
    interactive_serial, interactive_parallel, split_serial, split_parallel, sink, split_sink, automatic};

// The step is captured and launched. False for automatic, with which each step may differ.
constexpr bool is_sunk(Mode mode) { return mode == sink || mode == split_sink; }
// All work is issued to one stream.
constexpr bool is_serial(Mode mode) { return mode == interactive_serial || mode == split_serial; }
// Ops on the host run between launches or calls of the device.
constexpr bool is_split(Mode mode) { return mode == split_serial || mode == split_parallel || mode == split_sink; }

// "interactive-serial", "sink" and so on.
constexpr std::string_view to_string(Mode mode) {
  constexpr std::string_view kNames[] = {"sink",         "interactive-serial", "interactive-parallel",
                                         "split-serial", "split-parallel",     "split-sink",
                                         "automatic"};
  const auto number = static_cast<std::size_t>(mode);
  return number < std::size(kNames) ? kNames[number] : "?";
}

}  // namespace graphsink
