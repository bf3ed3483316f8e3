// Reports of a Program about itself.
#include <array>
#include <cstddef>
#include <string>

#include "bindings.h"

namespace graphsink::python {

namespace {

// Makes attributes of members, of which repr() prints all: "Counters(kernels=3, copies=1)".
template <class T, class... Members>
void bind_fields(nb::class_<T>& type, const std::array<const char*, sizeof...(Members)>& names,
                 Members T::*... members) {
  std::size_t i = 0;
  (type.def_ro(names[i++], members), ...);
  type.def("__repr__", [names](nb::handle self) {
    std::string text;
    for (const char* name : names) {
      text.append(text.empty() ? "" : ", ").append(name).append("=");
      text += nb::cast<std::string>(nb::repr(self.attr(name)));
    }
    return nb::cast<std::string>(self.type().attr("__name__")) + "(" + text + ")";
  });
}

// Pairs of dtypes and shapes.
nb::list types_object(const std::vector<TensorType>& types) {
  nb::list all;
  for (const TensorType& type : types) all.append(nb::make_tuple(dtype_object(type.dtype), shape_object(type.shape)));
  return all;
}

void bind_counters(nb::module_& m) {
  nb::class_<Counters> type(m, "Counters", "Counts of what a program gave to its device so far.");
  bind_fields(type,
              {"api_calls", "graph_launches", "kernels", "copies", "host_copied_bytes", "shared", "host_nodes",
               "captures", "compiled_kernels", "cached_kernels", "graph_updates", "graph_update_refusals", "fallbacks",
               "device_bytes", "host_bytes", "cached_shapes", "cached_bytes", "evicted_shapes"},
              &Counters::api_calls, &Counters::graph_launches, &Counters::kernels, &Counters::copies,
              &Counters::host_copied_bytes, &Counters::shared, &Counters::host_nodes, &Counters::captures,
              &Counters::compiled_kernels, &Counters::cached_kernels, &Counters::graph_updates,
              &Counters::graph_update_refusals, &Counters::fallbacks, &Counters::device_bytes, &Counters::host_bytes,
              &Counters::cached_shapes, &Counters::cached_bytes, &Counters::evicted_shapes);
}

void bind_capture_info(nb::module_& m) {
  nb::enum_<LaunchOf>(m, "LaunchOf", "Which of a program's captured graphs.")
      .value("one_step", LaunchOf::one_step)
      .value("several_steps", LaunchOf::several_steps);
  nb::class_<CaptureInfo> type(m, "CaptureInfo", "Contents of one captured graph.");
  bind_fields(type,
              {"kernels", "copies", "host_nodes", "conditional_nodes", "empty_nodes", "allocations", "frees", "edges",
               "programmatic_edges", "shared", "bytes"},
              &CaptureInfo::kernels, &CaptureInfo::copies, &CaptureInfo::host_nodes, &CaptureInfo::conditional_nodes,
              &CaptureInfo::empty_nodes, &CaptureInfo::allocations, &CaptureInfo::frees, &CaptureInfo::edges,
              &CaptureInfo::programmatic_edges, &CaptureInfo::shared, &CaptureInfo::bytes);
}

void bind_plan(nb::module_& m) {
  {
    nb::class_<Reason> type(m, "Reason", "Explains a decision of the planner, or of a device, that costs time.");
    bind_fields(type, {"what", "where", "why", "cost", "remedy", "node"}, &Reason::what, &Reason::where, &Reason::why,
                &Reason::cost, &Reason::remedy, &Reason::node);
  }
  nb::class_<PlanSummary> type(m, "PlanSummary", "What the planner decided for a program, in numbers.");
  bind_fields(type,
              {"sinks_whole", "loop_over_steps", "unrolled_steps", "has_collectives", "launches_per_step", "islands",
               "nodes", "host_nodes", "streams", "arena_bytes", "live_bytes", "reasons"},
              &PlanSummary::sinks_whole, &PlanSummary::loop_over_steps, &PlanSummary::unrolled_steps,
              &PlanSummary::has_collectives, &PlanSummary::launches_per_step, &PlanSummary::islands,
              &PlanSummary::nodes, &PlanSummary::host_nodes, &PlanSummary::streams, &PlanSummary::arena_bytes,
              &PlanSummary::live_bytes, &PlanSummary::reasons);
}

void bind_memory(nb::module_& m) {
  {
    nb::class_<ValueMemory> type(m, "ValueMemory", "One value and its memory.");
    bind_fields(type, {"name", "bytes", "where"}, &ValueMemory::name, &ValueMemory::bytes, &ValueMemory::where);
    type.def_prop_ro("dtype", [](const ValueMemory& self) { return self.type.dtype; });
    type.def_prop_ro("shape", [](const ValueMemory& self) { return self.type.shape; });
  }
  {
    nb::class_<FurtherMemory> type(m, "FurtherMemory", "What a program holds on one of its further devices, in bytes.");
    bind_fields(type, {"device", "arena", "variables", "constants", "workspaces", "copies"}, &FurtherMemory::device,
                &FurtherMemory::arena, &FurtherMemory::variables, &FurtherMemory::constants, &FurtherMemory::workspaces,
                &FurtherMemory::copies);
    type.def_prop_ro("bytes", &FurtherMemory::bytes);
  }
  nb::class_<MemoryReport> type(m, "MemoryReport", "What a program needs memory for, in bytes; str() prints it.");
  bind_fields(type, {"device",          "arena",      "variables",  "inputs",           "feeds",
                     "constants",       "workspaces", "control",    "copies",           "further",
                     "further_devices", "records",    "host_arena", "invariant_copies", "staging",
                     "status",          "values",     "live",       "packed",           "largest"},
              &MemoryReport::device, &MemoryReport::arena, &MemoryReport::variables, &MemoryReport::inputs,
              &MemoryReport::feeds, &MemoryReport::constants, &MemoryReport::workspaces, &MemoryReport::control,
              &MemoryReport::copies, &MemoryReport::further, &MemoryReport::further_devices, &MemoryReport::records,
              &MemoryReport::host_arena, &MemoryReport::invariant_copies, &MemoryReport::staging, &MemoryReport::status,
              &MemoryReport::values, &MemoryReport::live, &MemoryReport::packed, &MemoryReport::largest);
  type.def_prop_ro("device_bytes", &MemoryReport::device_bytes)
      .def_prop_ro("host_bytes", &MemoryReport::host_bytes)
      .def("__str__", [](const MemoryReport& self) { return to_string(self); });
}

void bind_times(nb::module_& m) {
  {
    nb::class_<OpTime> type(m, "OpTime", "The time that an op of a program takes.");
    bind_fields(type, {"op", "where", "runs", "us", "bytes", "flops"}, &OpTime::op, &OpTime::where, &OpTime::runs,
                &OpTime::us, &OpTime::bytes, &OpTime::flops);
    const char* types = "(self) -> list[tuple[graphsink._types.DType, tuple[int | Dim, ...]]]";
    type.def_prop_ro(
            "inputs", [](const OpTime& self) { return types_object(self.inputs); },
            nb::sig(interned(std::string("def inputs") + types)), "Dtypes and shapes of the inputs; none for a copy.")
        .def_prop_ro(
            "outputs", [](const OpTime& self) { return types_object(self.outputs); },
            nb::sig(interned(std::string("def outputs") + types)), "Those of the outputs.");
  }
  {
    using Candidate = AutomaticReport::Candidate;
    nb::class_<Candidate> type(m, "AutomaticCandidate", "A mode that run(automatic) may choose.");
    bind_fields(type, {"mode", "steps", "ratio", "low", "high"}, &Candidate::mode, &Candidate::steps, &Candidate::ratio,
                &Candidate::low, &Candidate::high);
  }
  nb::class_<AutomaticReport> type(
      m, "AutomaticReport", "The measurements and the choice of the mode `automatic`; str() says them in a sentence.");
  bind_fields(type, {"chosen", "candidates", "switches", "comparisons", "seconds", "trial_seconds"},
              &AutomaticReport::chosen, &AutomaticReport::candidates, &AutomaticReport::switches,
              &AutomaticReport::comparisons, &AutomaticReport::seconds, &AutomaticReport::trial_seconds);
  type.def("__str__", [](const AutomaticReport& self) { return to_string(self); });
}

void bind_target(nb::module_& m) {
  nb::class_<Target> type(m, "Target", "Capabilities of a device, which determine what one launch on it may hold.");
  bind_fields(type,
              {"id", "name", "sm", "separate_memory", "conditional_nodes", "compiles_kernels", "fusion_obstacle",
               "launches_programmatically", "max_streams", "alignment", "peers"},
              &Target::id, &Target::name, &Target::sm, &Target::separate_memory, &Target::conditional_nodes,
              &Target::compiles_kernels, &Target::fusion_obstacle, &Target::launches_programmatically,
              &Target::max_streams, &Target::alignment, &Target::peers);
}

void bind_sink_report(nb::module_& m) {
  {
    nb::class_<SinkFailure> type(
        m, "SinkFailure", "A reason why work of a SinkCache was not captured or launched, or why captures do not pay.");
    bind_fields(type, {"key", "problem", "remedy", "count"}, &SinkFailure::key, &SinkFailure::problem,
                &SinkFailure::remedy, &SinkFailure::count);
  }
  nb::class_<SinkReport> type(m, "SinkReport", "Counts of the work of a SinkCache so far; str() prints it as a table.");
  bind_fields(type,
              {"calls",
               "steps",
               "warm",
               "as_is",
               "inside",
               "launches",
               "loops",
               "captures",
               "checks",
               "watches_legacy_stream",
               "instantiations",
               "updates",
               "update_refusals",
               "evictions",
               "keys",
               "captured",
               "refused",
               "bytes",
               "max_bytes",
               "failures",
               "other_failures"},
              &SinkReport::calls, &SinkReport::steps, &SinkReport::warm, &SinkReport::as_is, &SinkReport::inside,
              &SinkReport::launches, &SinkReport::loops, &SinkReport::captures, &SinkReport::checks,
              &SinkReport::watches_legacy_stream, &SinkReport::instantiations, &SinkReport::updates,
              &SinkReport::update_refusals, &SinkReport::evictions, &SinkReport::keys, &SinkReport::captured,
              &SinkReport::refused, &SinkReport::bytes, &SinkReport::max_bytes, &SinkReport::failures,
              &SinkReport::other_failures);
  type.def("__str__", [](const SinkReport& self) { return python_names(to_string(self)); });
}

}  // namespace

void bind_reports(nb::module_& m) {
  bind_target(m);
  bind_counters(m);
  bind_capture_info(m);
  bind_plan(m);
  bind_memory(m);
  bind_times(m);
  bind_sink_report(m);
}

}  // namespace graphsink::python
