// Mode: how a program issues its steps.
#pragma once

#include <cstdint>
#include <string_view>

namespace graphsink {

// All modes issue the same plan with the same op bodies and therefore give the same bits. Each run() may use another
// mode.
enum class Mode : std::uint8_t {
  // The host issues op by op, on one stream (serial) or on several (parallel). The whole graph is one DAG ("merged"):
  // ops
  // on the host are enqueued on the streams like all others, with copies before and after them.
  interactive_serial,
  interactive_parallel,
  // The graph is split into the fewest subgraphs of one device each. Ops on the host run on the thread that called
  // run(),
  // as soon as what they depend on is done. Serial: one subgraph after the other. Parallel: independent work of the
  // device goes on meanwhile. Differs from interactive only if host and device have separate memory.
  split_serial,
  split_parallel,
  // The step is captured and takes the fewest launches. Ops on the host are host nodes of the captured graph.
  sink,
  // Captured, too, but split: ops on the host run between launches, on the thread that called run(), while the rest of
  // the launch before them goes on. This saves the cost of host nodes and takes more launches.
  split_sink,
  // Each step runs as sink, split_sink or interactive_serial, whichever takes the least time. The times are measured on
  // the steps of the run, without waiting for them. The program begins with sink, tries the other modes in at most 2 %
  // of
  // the time, and changes to one that is faster with 95 % confidence. The choice is made separately for each set of
  // input
  // shapes. Program::automatic_report() tells what was measured.
  automatic,
};
inline constexpr Mode interactive = Mode::interactive_serial;
inline constexpr Mode interactive_serial = Mode::interactive_serial;
inline constexpr Mode interactive_parallel = Mode::interactive_parallel;
inline constexpr Mode merged_serial = Mode::interactive_serial;
inline constexpr Mode merged_parallel = Mode::interactive_parallel;
inline constexpr Mode split_serial = Mode::split_serial;
inline constexpr Mode split_parallel = Mode::split_parallel;
inline constexpr Mode sink = Mode::sink;
inline constexpr Mode split_sink = Mode::split_sink;
inline constexpr Mode automatic = Mode::automatic;
inline constexpr Mode kAllModes[] = {
    interactive_serial, interactive_parallel, split_serial, split_parallel, sink, split_sink, automatic};

constexpr bool is_split(Mode mode) { return mode == split_serial || mode == split_parallel || mode == split_sink; }
constexpr bool is_serial(Mode mode) { return mode == interactive_serial || mode == split_serial; }
constexpr bool is_sunk(Mode mode) { return mode == sink || mode == split_sink; }

constexpr std::string_view to_string(Mode mode) {
  switch (mode) {
    case Mode::interactive_serial:
      return "interactive-serial";
    case Mode::interactive_parallel:
      return "interactive-parallel";
    case Mode::split_serial:
      return "split-serial";
    case Mode::split_parallel:
      return "split-parallel";
    case Mode::sink:
      return "sink";
    case Mode::split_sink:
      return "split-sink";
    case Mode::automatic:
      return "automatic";
  }
  return "?";
}

}  // namespace graphsink
