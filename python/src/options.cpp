// The arguments of compile() beside the graph.
#include <nanobind/stl/function.h>

#include <chrono>

#include "bindings.h"
#include "garbage.h"
#include "log.h"

namespace graphsink::python {

namespace {

// A ProgramHandle, as the object of Python's that it is.
struct MadeProgram {
  nb::object object;
};

}  // namespace

}  // namespace graphsink::python

namespace nanobind::detail {

template <>
struct type_caster<graphsink::python::MadeProgram> {
  NB_TYPE_CASTER(graphsink::python::MadeProgram, const_name("graphsink.Program"))
  static handle from_cpp(graphsink::python::MadeProgram&& made, rv_policy, cleanup_list*) noexcept {
    return made.object.release();
  }
};

}  // namespace nanobind::detail

namespace graphsink::python {

void bind_options(nb::module_& m) {
  nb::enum_<LogLevel>(m, "LogLevel", "How serious a message is that a log function takes.")
      .value("warning", LogLevel::warning)
      .value("error", LogLevel::error);
  nb::class_<Tuning>(m, "Tuning", "How a program becomes fast. No result depends on it.")
      .def(
          "__init__",
          [](Tuning* self, bool fuse, bool programmatic_launch, bool unroll_loops, int threads,
             std::int64_t capture_after) {
            new (self) Tuning{fuse, programmatic_launch, unroll_loops, threads, capture_after};
          },
          nb::kw_only(), nb::arg("fuse") = Tuning{}.fuse, nb::arg("programmatic_launch") = Tuning{}.programmatic_launch,
          nb::arg("unroll_loops") = Tuning{}.unroll_loops, nb::arg("threads") = Tuning{}.threads,
          nb::arg("capture_after") = Tuning{}.capture_after,
          "fuse: computes products together with what follows them, and element-wise ops together. "
          "programmatic_launch: kernels of captured graphs launch before the one in front has ended (GPUs of compute "
          "capability 9.0). unroll_loops: loops with a known number of iterations run up to 8 at once on a GPU. "
          "threads: threads that work on a step on the CPU, 0 for as many as there are cores. "
          "capture_after: steps with the same shapes before the step is captured, 0 for when it pays.")
      .def_ro("fuse", &Tuning::fuse)
      .def_ro("programmatic_launch", &Tuning::programmatic_launch)
      .def_ro("unroll_loops", &Tuning::unroll_loops)
      .def_ro("threads", &Tuning::threads)
      .def_ro("capture_after", &Tuning::capture_after);
  nb::class_<Limits>(m, "Limits", "Bounds of the memory and the patience that a program takes.")
      .def(
          "__init__",
          [](Limits* self, std::int64_t host_op_patience, std::size_t shape_cache_bytes, std::size_t shape_cache_shapes,
             std::size_t unrolled_nodes) {
            new (self) Limits{std::chrono::milliseconds(host_op_patience), shape_cache_bytes, shape_cache_shapes,
                              unrolled_nodes};
          },
          nb::kw_only(), nb::arg("host_op_patience") = Limits{}.host_op_patience.count(),
          nb::arg("shape_cache_bytes") = Limits{}.shape_cache_bytes,
          nb::arg("shape_cache_shapes") = Limits{}.shape_cache_shapes,
          nb::arg("unrolled_nodes") = Limits{}.unrolled_nodes,
          "host_op_patience: milliseconds after which a warning is logged about an op that runs on the host, 0 for "
          "never. shape_cache_bytes, shape_cache_shapes: what the plans and captured graphs of input shapes may take. "
          "unrolled_nodes: nodes of a launch of several steps whose collectives NCCL moves.")
      .def_prop_ro("host_op_patience", [](const Limits& l) { return l.host_op_patience.count(); })
      .def_ro("shape_cache_bytes", &Limits::shape_cache_bytes)
      .def_ro("shape_cache_shapes", &Limits::shape_cache_shapes)
      .def_ro("unrolled_nodes", &Limits::unrolled_nodes);
  nb::class_<Guards>(m, "Guards", "Checks that search for mistakes in ops and in this library. All are slow.")
      .def(
          "__init__",
          [](Guards* self, bool poison, int replay_every, bool arguments, bool share_all) {
            new (self) Guards{poison, replay_every, arguments, share_all};
          },
          nb::kw_only(), nb::arg("poison") = false, nb::arg("replay_every") = 0, nb::arg("arguments") = false,
          nb::arg("share_all") = false,
          "poison: fills the memory of all values with NaNs before each run. replay_every: repeats every Nth sunk run "
          "op by op and compares the bits. arguments: reads back what captured kernels were given. share_all: threads "
          "share small ops, too.")
      .def_ro("poison", &Guards::poison)
      .def_ro("replay_every", &Guards::replay_every)
      .def_ro("arguments", &Guards::arguments)
      .def_ro("share_all", &Guards::share_all);
  nb::class_<LogOwner>(m, "LogOwner", "The log function of a Program.",
                       nb::type_slots(OwnedObjects<LogOwner>::slots_without_clear));
  m.def(
      "compile",
      [](const GraphHandle& graph, DeviceId target, const std::vector<DeviceId>& further_devices, bool check_finite,
         bool flush_denormals, Placement default_placement, bool require_whole_graph, std::uint32_t seed,
         const Tuning& tuning, const Limits& limits, const Guards& guards, nb::handle log) {
        const Where where = here();
        const nb::object log_owner =
            log.is_none() ? nb::none() : nb::cast(new LogOwner(log), nb::rv_policy::take_ownership);
        CompileOptions options{.target = target,
                               .further_devices = further_devices,
                               .check_finite = check_finite,
                               .flush_denormals = flush_denormals,
                               .default_placement = default_placement,
                               .require_whole_graph = require_whole_graph,
                               .seed = seed,
                               .tuning = tuning,
                               .limits = limits,
                               .guards = guards,
                               .log = log.is_none() ? LogFunction() : nb::inst_ptr<LogOwner>(log_owner)->log()};
        const Graph of = graph.graph;
        end_late_objects();
        std::optional<Program> made;
        {
          WithoutGil others_run;
          made = compile(of, options, where);
        }
        nb::object program = nb::cast(ProgramHandle(std::move(*made), std::make_shared<Names>(*graph.names),
                                                    nb::make_tuple(graph.callables, log_owner)));
        nb::module_::import_("graphsink._context").attr("programs").attr("add")(program);
        return MadeProgram{program};
      },
      nb::arg("graph"), nb::arg("target") = cpu(), nb::kw_only(), nb::arg("further_devices") = std::vector<DeviceId>{},
      nb::arg("check_finite") = false, nb::arg("flush_denormals") = true, nb::arg("default_placement") = Placement{},
      nb::arg("require_whole_graph") = false, nb::arg("seed") = 0, nb::arg("tuning") = Tuning{},
      nb::arg("limits") = Limits{}, nb::arg("guards") = Guards{}, nb::arg("log").none().sig("None") = nb::none(),
      "Opens the device and plans the graph for it. Raises Error if there is no such device, or the graph cannot run "
      "there.\n\ncheck_finite: a step that computes an infinity or a NaN fails, naming the op. default_placement: "
      "where ops run for which no placement is asked. require_whole_graph: raises Error, with all reasons, unless the "
      "whole step is one launch. seed: of random ops. log: a function of a LogLevel and a message that takes the "
      "program's warnings, on any thread; by default they go to spdlog's logger.");
}

}  // namespace graphsink::python
