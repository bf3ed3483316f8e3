// How a step is issued.
#pragma once

#include <cstdint>
#include <string_view>

namespace graphsink {

// All modes issue the same plan with the same op bodies, hence give the same bits; each run may have another.
enum class Mode : std::uint8_t {
  // The host issues op by op, on one stream or on several. Ops that run on the host are enqueued like all others, with
  // copies before and behind them: the whole graph is one DAG ("merged").
  interactive_serial,
  interactive_parallel,
  // The graph is split into the fewest subgraphs of one device: what runs on the host does so in run(), on the caller's
  // thread, once what it depends on is done. Serial: one subgraph after the other. Parallel: work of the device that
  // does not depend on it goes on meanwhile. Differs from interactive only where host and device have separate memory.
  split_serial,
  split_parallel,
  // The fewest launches: ops on the host are nodes of them.
  sink,
  // Likewise split: ops on the host run between launches, on the caller's thread as above, while the rest of the launch
  // before them goes on. Saves what a host node costs, and takes more launches.
  split_sink,
  // Each step runs as sink, as split_sink (where that is something else) or as interactive_serial, whichever takes the
  // least time. That is measured on steps that run anyhow, without waiting for any: sink at first, the others are tried
  // in at most 2 % of the time, and one takes over when it is faster with 95 % confidence. Each set of shapes chooses.
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
