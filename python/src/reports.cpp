// What a Program tells about itself.
#include "bindings.h"

namespace graphsink::python {

namespace {

// "Counters(kernels=3, copies=1)".
template <class T>
void print_fields(nb::class_<T>& type, std::initializer_list<const char*> fields) {
  type.def("__repr__", [names = std::vector<const char*>(fields)](nb::handle self) {
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

#define GS_FIELD(Type, name) type.def_ro(#name, &Type::name);

void bind_counters(nb::module_& m) {
  nb::class_<Counters> type(m, "Counters", "Counts of what a program gave to its device so far.");
  GS_FIELD(Counters, api_calls)
  GS_FIELD(Counters, graph_launches)
  GS_FIELD(Counters, kernels)
  GS_FIELD(Counters, copies)
  GS_FIELD(Counters, host_copied_bytes)
  GS_FIELD(Counters, shared)
  GS_FIELD(Counters, host_nodes)
  GS_FIELD(Counters, captures)
  GS_FIELD(Counters, compiled_kernels)
  GS_FIELD(Counters, cached_kernels)
  GS_FIELD(Counters, graph_updates)
  GS_FIELD(Counters, graph_update_refusals)
  GS_FIELD(Counters, fallbacks)
  GS_FIELD(Counters, device_bytes)
  GS_FIELD(Counters, host_bytes)
  GS_FIELD(Counters, cached_shapes)
  GS_FIELD(Counters, cached_bytes)
  GS_FIELD(Counters, evicted_shapes)
  print_fields(type, {"api_calls", "graph_launches", "kernels", "copies", "host_copied_bytes", "shared", "host_nodes",
                      "captures", "compiled_kernels", "cached_kernels", "graph_updates", "graph_update_refusals",
                      "fallbacks", "device_bytes", "host_bytes", "cached_shapes", "cached_bytes", "evicted_shapes"});
}

void bind_capture_info(nb::module_& m) {
  nb::enum_<LaunchOf>(m, "LaunchOf", "Which of a program's captured graphs.")
      .value("one_step", LaunchOf::one_step)
      .value("several_steps", LaunchOf::several_steps);
  nb::class_<CaptureInfo> type(m, "CaptureInfo", "Contents of one captured graph.");
  GS_FIELD(CaptureInfo, kernels)
  GS_FIELD(CaptureInfo, copies)
  GS_FIELD(CaptureInfo, host_nodes)
  GS_FIELD(CaptureInfo, conditional_nodes)
  GS_FIELD(CaptureInfo, empty_nodes)
  GS_FIELD(CaptureInfo, allocations)
  GS_FIELD(CaptureInfo, frees)
  GS_FIELD(CaptureInfo, edges)
  GS_FIELD(CaptureInfo, programmatic_edges)
  GS_FIELD(CaptureInfo, shared)
  GS_FIELD(CaptureInfo, bytes)
  print_fields(type, {"kernels", "copies", "host_nodes", "conditional_nodes", "empty_nodes", "allocations", "frees",
                      "edges", "programmatic_edges", "shared", "bytes"});
}

void bind_plan(nb::module_& m) {
  {
    nb::class_<Reason> type(m, "Reason", "Explains a decision of the planner, or of a device, that costs time.");
    GS_FIELD(Reason, what)
    GS_FIELD(Reason, where)
    GS_FIELD(Reason, why)
    GS_FIELD(Reason, cost)
    GS_FIELD(Reason, remedy)
    GS_FIELD(Reason, node)
    print_fields(type, {"what", "where", "why", "cost", "remedy"});
  }
  nb::class_<PlanSummary> type(m, "PlanSummary", "What the planner decided for a program, in numbers.");
  GS_FIELD(PlanSummary, sinks_whole)
  GS_FIELD(PlanSummary, loop_over_steps)
  GS_FIELD(PlanSummary, launches_per_step)
  GS_FIELD(PlanSummary, islands)
  GS_FIELD(PlanSummary, nodes)
  GS_FIELD(PlanSummary, host_nodes)
  GS_FIELD(PlanSummary, streams)
  GS_FIELD(PlanSummary, arena_bytes)
  GS_FIELD(PlanSummary, live_bytes)
  GS_FIELD(PlanSummary, reasons)
  print_fields(type, {"sinks_whole", "loop_over_steps", "launches_per_step", "islands", "nodes", "host_nodes",
                      "streams", "arena_bytes", "live_bytes", "reasons"});
}

void bind_memory(nb::module_& m) {
  {
    nb::class_<ValueMemory> type(m, "ValueMemory", "One value and its memory.");
    GS_FIELD(ValueMemory, name)
    type.def_prop_ro("dtype", [](const ValueMemory& self) { return self.type.dtype; });
    type.def_prop_ro("shape", [](const ValueMemory& self) { return self.type.shape; });
    GS_FIELD(ValueMemory, bytes)
    GS_FIELD(ValueMemory, where)
    print_fields(type, {"name", "dtype", "shape", "bytes", "where"});
  }
  nb::class_<MemoryReport> type(m, "MemoryReport", "What a program needs memory for, in bytes; str() prints it.");
  GS_FIELD(MemoryReport, device)
  GS_FIELD(MemoryReport, arena)
  GS_FIELD(MemoryReport, variables)
  GS_FIELD(MemoryReport, inputs)
  GS_FIELD(MemoryReport, feeds)
  GS_FIELD(MemoryReport, constants)
  GS_FIELD(MemoryReport, workspaces)
  GS_FIELD(MemoryReport, control)
  GS_FIELD(MemoryReport, further)
  GS_FIELD(MemoryReport, records)
  GS_FIELD(MemoryReport, host_arena)
  GS_FIELD(MemoryReport, invariant_copies)
  GS_FIELD(MemoryReport, staging)
  GS_FIELD(MemoryReport, status)
  GS_FIELD(MemoryReport, values)
  GS_FIELD(MemoryReport, live)
  GS_FIELD(MemoryReport, packed)
  GS_FIELD(MemoryReport, largest)
  type.def_prop_ro("device_bytes", &MemoryReport::device_bytes)
      .def_prop_ro("host_bytes", &MemoryReport::host_bytes)
      .def("__str__", [](const MemoryReport& self) { return to_string(self); });
}

void bind_times(nb::module_& m) {
  {
    nb::class_<OpTime> type(m, "OpTime", "The time that an op of a program takes.");
    GS_FIELD(OpTime, op)
    GS_FIELD(OpTime, where)
    GS_FIELD(OpTime, runs)
    GS_FIELD(OpTime, us)
    GS_FIELD(OpTime, bytes)
    GS_FIELD(OpTime, flops)
    const char* types = "(self) -> list[tuple[graphsink._types.DType, tuple[int | Dim, ...]]]";
    type.def_prop_ro(
            "inputs", [](const OpTime& self) { return types_object(self.inputs); },
            nb::sig(interned(std::string("def inputs") + types)), "Dtypes and shapes of the inputs; none for a copy.")
        .def_prop_ro(
            "outputs", [](const OpTime& self) { return types_object(self.outputs); },
            nb::sig(interned(std::string("def outputs") + types)), "Those of the outputs.");
    print_fields(type, {"op", "where", "runs", "us", "bytes", "flops"});
  }
  {
    using Candidate = AutomaticReport::Candidate;
    nb::class_<Candidate> type(m, "AutomaticCandidate", "A mode that run(automatic) may choose.");
    GS_FIELD(Candidate, mode)
    GS_FIELD(Candidate, steps)
    GS_FIELD(Candidate, ratio)
    GS_FIELD(Candidate, low)
    GS_FIELD(Candidate, high)
    print_fields(type, {"mode", "steps", "ratio", "low", "high"});
  }
  nb::class_<AutomaticReport> type(
      m, "AutomaticReport", "The measurements and the choice of the mode `automatic`; str() says them in a sentence.");
  GS_FIELD(AutomaticReport, chosen)
  GS_FIELD(AutomaticReport, candidates)
  GS_FIELD(AutomaticReport, switches)
  GS_FIELD(AutomaticReport, comparisons)
  GS_FIELD(AutomaticReport, seconds)
  GS_FIELD(AutomaticReport, trial_seconds)
  type.def("__str__", [](const AutomaticReport& self) { return to_string(self); });
}

void bind_target(nb::module_& m) {
  nb::class_<Target> type(m, "Target", "Capabilities of a device, which determine what one launch on it may hold.");
  GS_FIELD(Target, id)
  GS_FIELD(Target, name)
  GS_FIELD(Target, sm)
  GS_FIELD(Target, separate_memory)
  GS_FIELD(Target, conditional_nodes)
  GS_FIELD(Target, compiles_kernels)
  GS_FIELD(Target, fusion_obstacle)
  GS_FIELD(Target, launches_programmatically)
  GS_FIELD(Target, max_streams)
  GS_FIELD(Target, alignment)
  GS_FIELD(Target, peers)
  print_fields(type,
               {"id", "name", "sm", "separate_memory", "conditional_nodes", "compiles_kernels", "fusion_obstacle"});
}

#undef GS_FIELD

}  // namespace

void bind_reports(nb::module_& m) {
  bind_target(m);
  bind_counters(m);
  bind_capture_info(m);
  bind_plan(m);
  bind_memory(m);
  bind_times(m);
}

}  // namespace graphsink::python
