// Mode: how a program gives its steps to the device.
#pragma once

#include <compare>
#include <cstdint>
#include <string_view>

#include "graphsink/version.h"

namespace GRAPHSINK_PUBLIC graphsink {

// All modes issue the same plan with the same op bodies and therefore give the same bits. Each run() may use another
// mode. The constants below are all the modes there are; run() throws Error for any other combination.
struct Mode {
  enum class Execution : std::uint8_t {
    interactive,  // the host issues op by op
    sunk,         // the step is captured and takes the fewest launches
    automatic,    // each step takes one of several modes, see below
  };
  // The streams of the device that an interactive step is issued on. With several, the threads of the CPU also share
  // single ops. A sunk step always takes several: its captured graph has a branch for each.
  enum class Width : std::uint8_t { one_stream, several_streams };
  // Where ops on the host run, if host and device have separate memory. In the stream, they are enqueued like all other
  // ops, or are host nodes of the captured graph, with copies before and after them. Between, they run on the thread
  // that called run(), as soon as what they depend on is done: the graph is split into the fewest subgraphs of one
  // device each. Where nothing is to be split, both are the same; and so they are in the bodies of loops and branches.
  enum class HostOps : std::uint8_t { in_stream, between };

  Execution execution = Execution::sunk;
  Width width = Width::several_streams;
  HostOps host_ops = HostOps::in_stream;

  friend constexpr bool operator==(const Mode&, const Mode&) = default;
  // An order without meaning, for containers.
  friend constexpr auto operator<=>(const Mode&, const Mode&) = default;
};

inline constexpr Mode interactive_serial{Mode::Execution::interactive, Mode::Width::one_stream};
inline constexpr Mode interactive_parallel{Mode::Execution::interactive, Mode::Width::several_streams};
inline constexpr Mode split_serial{Mode::Execution::interactive, Mode::Width::one_stream, Mode::HostOps::between};
inline constexpr Mode split_parallel{Mode::Execution::interactive, Mode::Width::several_streams,
                                     Mode::HostOps::between};
inline constexpr Mode sink{};
// Ops on the host run while the rest of the launch before them goes on. This saves the cost of host nodes and takes
// more launches.
inline constexpr Mode split_sink{Mode::Execution::sunk, Mode::Width::several_streams, Mode::HostOps::between};
// Each step runs as sink, split_sink or interactive_serial, whichever takes the least time. The times are measured on
// the steps of the run, without waiting for them. The program begins with sink, tries the other modes in at most 1 % of
// the time, and changes to one that is faster with 95 % confidence. The choice is made separately for each set of input
// shapes. Program::automatic_report() tells what was measured.
inline constexpr Mode automatic{Mode::Execution::automatic};

inline constexpr Mode interactive = interactive_serial;
inline constexpr Mode merged_serial = interactive_serial;
inline constexpr Mode merged_parallel = interactive_parallel;

inline constexpr Mode kAllModes[] = {
    interactive_serial, interactive_parallel, split_serial, split_parallel, sink, split_sink, automatic};

// "interactive-serial", "sink" and so on; "?" for a combination that is no mode.
constexpr std::string_view to_string(Mode mode) {
  constexpr std::string_view kNames[] = {
      "interactive-serial", "interactive-parallel", "split-serial", "split-parallel", "sink", "split-sink",
      "automatic"};
  for (int i = 0; const Mode& known : kAllModes) {
    if (mode == known) return kNames[i];
    ++i;
  }
  return "?";
}

}  // namespace graphsink
