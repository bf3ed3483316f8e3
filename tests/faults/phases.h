// The parts of a program's life, as a table: what tests go through that disturb each of them.
#pragma once

#include <optional>
#include <string_view>

#include "fault_workloads.h"

namespace graphsink::testing {

// A part of a program's life, and how to come to it.
struct Phase {
  std::string_view name;
  void (*reach)(Session& session);
  void (*act)(std::optional<Session>& session);
  bool (*is_in)(const Workload& work) = [](const Workload&) { return true; };
};

inline void reach_first_run(Session& s) {
  s.compile();
  s.feed(0);
}
inline void reach_capture(Session& s) {
  reach_first_run(s);
  s.run(interactive);
  s.feed(1);
}

inline constexpr std::string_view kCapture = "capture", kDestroy = "destroy";
inline const Phase kPhases[] = {
    {"compile", [](Session&) {}, [](std::optional<Session>& s) { s->compile(); }},
    {"bind memory",
     [](Session& s) {
       s.compile();
       s.allocate_callers();
     },
     [](std::optional<Session>& s) {
       const Variable& first = s->work.variables[0];
       s->program->bind_memory(first, s->callers.get(), first.type().bytes());
     },
     [](const Workload& w) { return w.devices == 1; }},
    {"write", [](Session& s) { s.compile(); }, [](std::optional<Session>& s) { s->feed(0); },
     [](const Workload& w) { return !w.inputs.empty(); }},
    {"first run", reach_first_run, [](std::optional<Session>& s) { s->run(interactive); }},
    {"parallel run", reach_first_run, [](std::optional<Session>& s) { s->run(interactive_parallel); },
     [](const Workload& w) { return w.has_streams; }},
    {"split run", reach_first_run, [](std::optional<Session>& s) { s->run(split_parallel); },
     [](const Workload& w) { return w.has_host_op; }},
    {kCapture, reach_capture, [](std::optional<Session>& s) { s->run(sink); }},
    {"launch",
     [](Session& s) {
       reach_capture(s);
       s.run(sink);
       s.feed(2);
     },
     [](std::optional<Session>& s) { s->run(sink); }},
    {"launch on a caller's stream",
     [](Session& s) {
       reach_capture(s);
       s.run(sink);
     },
     [](std::optional<Session>& s) {
       s->program->run(sink, {.stream = nullptr});  // the legacy stream
       s->program->sync();
     },
     [](const Workload& w) { return w.inputs.empty(); }},
    {"capture and launch of parts", reach_capture, [](std::optional<Session>& s) { s->run(split_sink); },
     [](const Workload& w) { return w.has_host_op; }},
    {"capture of 3 steps",
     [](Session& s) {
       reach_first_run(s);
       s.run(interactive);
       s.feed_three(1);
     },
     [](std::optional<Session>& s) { s->run(sink, 3); }},
    // The program keeps one shape, so this capture changes the executable graph of the first shape in place. Only what
    // is known to be done is dropped: hence sync(), without which the sequence of calls would depend on time.
    {"second shape",
     [](Session& s) {
       reach_first_run(s);
       s.run(interactive);
       s.feed_three(1);
       s.run(sink, 3);
     },
     [](std::optional<Session>& s) {
       s->feed(kSecondShape);
       s->program->sync();
       s->run(sink);
     },
     [](const Workload& w) { return w.has_open_shape; }},
    {"read", reach_capture,
     [](std::optional<Session>& s) {
       s->read_losses();
       (void)s->program->output("y");
       (void)s->read_variables();
     }},
    {"poll",
     [](Session& s) {
       reach_capture(s);
       s.program->run(sink);
     },
     [](std::optional<Session>& s) { (void)s->program->poll(); }},
    {"write variables",
     [](Session& s) {
       reach_capture(s);
       s.saved = s.read_variables();
     },
     [](std::optional<Session>& s) { s->write_variables(s->saved); }},
    {kDestroy,
     [](Session& s) {
       reach_capture(s);
       s.run(sink);
       s.feed(2);
       s.program->run(sink);  // still outstanding
     },
     [](std::optional<Session>& s) { s.reset(); }},
};

struct NamedWorkload {
  const char* name;
  Workload (*make)();
};
inline const NamedWorkload kWorkloads[] = {
    {"Chain", chain_workload},
    {"Mlp", mlp_workload},
    {"HostOp", host_op_workload},
    {"Control", control_workload},
    {"ChildGraph", child_graph_workload},
    {"TwoDevices", two_devices_workload},
    {"FurtherDevice", further_device_workload},
    {"HostLoop", host_loop_workload},
};

}  // namespace graphsink::testing
