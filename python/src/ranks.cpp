// The extension module graphsink._ranks: collectives between processes. graphsink/ranks.py gives its names to users. It
// is a module of its own, so that programs of one process load no MPI, and calls the library in graphsink._core.
#include "graphsink/ranks.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/function.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include <unistd.h>

#include "bindings.h"
#include "optimizers.h"

namespace graphsink::python {

void bind_collectives(nb::module_& m);  // made from ranks.h by make_ops.py

namespace {

// A process that fails must not finalise MPI, which would wait for the other ranks, as these wait for it: it ends with
// its status, and mpirun ends the others. This is called behind the end of Python, before what finalises MPI.
void end_at_once(int status, void*) {
  if (status == 0) return;
  (void)std::fflush(nullptr);
  _exit(status);
}

bool has_others = false;  // whether this process has made a group of several ranks

Comm noted(const Comm& comm) {
  if (comm.size() > 1 && !has_others) {
    has_others = true;
    on_exit(end_at_once, nullptr);
  }
  return comm;
}

// A function that makes a Comm of all processes, with their patience.
using World = Comm (*)(const WorldOptions&, Where);
void bind_world(nb::module_& m, const char* name, World world, const char* text) {
  m.def(
      name,
      [world](double patience_s) {
        const Where where = here();
        const auto made = [&] {
          const WithoutGil others_run;
          return world({.patience_s = patience_s}, where);
        };
        return noted(made());
      },
      nb::kw_only(), nb::arg("patience_s") = WorldOptions{}.patience_s, text);
}

void bind_worlds(nb::module_& m) {
  bind_world(
      m, "world", &world,
      "All processes that were started together: by mpirun, as torchrun's variables say (RANK, WORLD_SIZE, LOCAL_RANK, "
      "MASTER_ADDR, MASTER_PORT), or by srun; one rank if nothing of that was used (docs/ranks.md).\n\nAll of them "
      "must call it, each time with an equal patience: how many seconds a rank waits for the others before it raises "
      "Error, also in this call. Waits for all processes, without the GIL. Raises "
      "Error for variables that do not fit together.");
  bind_world(
      m, "mpi_world", &mpi_world,
      "All processes that mpirun, or whatever else starts MPI programs, has started together; one rank if it was "
      "not used.\n\nAll of them must call it, each time with an equal patience: how many seconds a rank waits for "
      "the others before it raises Error. MPI is initialised if nobody did so, and is then finalised when the "
      "process ends; a process that ends by an exception, or with another status than 0, does not wait for the "
      "others in that. Raises Error for an MPI that does not allow calls from several threads. Waits for all "
      "processes, without the GIL.");
  m.def(
      "nccl_world",
      [](double patience_s, int device) {
        const Where where = here();
        const auto made = [&] {
          const WithoutGil others_run;
          return nccl_world({.patience_s = patience_s, .device = device}, where);
        };
        return noted(made());
      },
      nb::kw_only(), nb::arg("patience_s") = NcclOptions{}.patience_s, nb::arg("device") = NcclOptions{}.device,
      "The same processes, each with a GPU of its own: the number of a CUDA device, or -1 for the rank's number on its "
      "machine, modulo the devices there. In programs that are compiled for gs.cuda(comm.device) NCCL moves the values "
      "of collectives from GPU to GPU, inside of launches.\n\nAll processes must call it, and it waits for all of "
      "them, "
      "without the GIL. One rank needs no NCCL. Raises Error (ErrorCode.unavailable) on all ranks if one of them has "
      "no "
      "NCCL, none that is new enough, or no such device, and in a build without CUDA.");
  m.def("one_rank", &one_rank,
        "A group of this process alone, without MPI. Collectives add no nodes to the graph then, so that its plan is "
        "that of a program without ranks.");
  m.def(
      "has_other_ranks", [] { return has_others; }, "Whether this process has made a group of several ranks.");
  m.def(
      "leave",
      [](nb::object object) {
        (void)object.release();
        nb::set_leak_warnings(false);
      },
      nb::arg("object"), "Keeps an object until the process ends, whose end would wait for other ranks.");
}

std::string described(const Comm& comm) {
  return "Comm(rank " + std::to_string(comm.rank()) + " of " + std::to_string(comm.size()) +
         (comm.device() < 0 ? "" : ", cuda:" + std::to_string(comm.device())) + ")";
}

void bind_comm(nb::module_& m) {
  nb::class_<Comm>(m, "Comm",
                   "A group of ranks, processes that run one program together, in which this process is one.")
      .def_prop_ro("rank", &Comm::rank, "The number of this process, counted from 0.")
      .def_prop_ro("size", &Comm::size, "The number of ranks, at least 1.")
      .def_prop_ro("device", &Comm::device,
                   "The number of the CUDA device for which nccl_world() was called on this rank; -1 for other groups.")
      .def(
          "barrier",
          [](const Comm& self) {
            const Where where = here();
            const WithoutGil others_run;
            self.barrier(where);
          },
          "Returns when all ranks have called it; other Python threads run meanwhile. Raises Error if one does not "
          "come.")
      .def(
          "split",
          [](const Comm& self, int color, int key) {
            const Where where = here();
            const WithoutGil others_run;
            return self.split(color, key, where);
          },
          nb::arg("color"), nb::arg("key") = 0,
          "Divides the ranks into groups: those that give the same colour, a number of at least 0, become one, ordered "
          "by `key` and, where that is equal, by their ranks here. All ranks call it, as often and in the same order; "
          "each gets the group that it is in. The group has the patience of this Comm. Waits for all ranks, without "
          "the "
          "GIL. Raises Error for a negative colour, and if a rank does not come.")
      .def("__repr__", &described);
  nb::enum_<Reduction>(m, "Reduction",
                       "How the elements of all ranks become one. Means are of floats; sums are not of u8, which would "
                       "overflow unseen.")
      .value("sum", Reduction::sum)
      .value("mean", Reduction::mean)
      .value("max", Reduction::max);
}

using Values = std::vector<Value>;

// Functions for graphsink/ranks.py, which takes trees apart.
void bind_of_trees(nb::module_& m) {
  m.def("average_values", [](const Values& values, const Comm& comm, std::size_t bucket_bytes, bool same_program) {
    const Where where = here();
    const WithoutGil others_run;
    return average(values, comm, {.bucket_bytes = bucket_bytes, .same_program = same_program}, where);
  });
  // `whole` holds the data of the tensor that is divided.
  m.def("divided_variable_of", [](const std::string& name, const Variable& whole, int axis, const Comm& comm) {
    const Where where = here();
    const WithoutGil others_run;
    return divided_variable(name, whole.read(where), axis, comm, whole.placement(where), where);
  });
  m.def("broadcast_variable_list", [](const std::vector<Variable>& variables, const Comm& comm, int root) {
    const Where where = here();
    const WithoutGil others_run;
    broadcast_variables(variables, comm, root, where);
  });
  m.def("reshard_variables", [](const std::vector<Checkpoint>& of_ranks, const std::vector<Variable>& variables) {
    const Where where = here();
    const WithoutGil others_run;
    return reshard(of_ranks, variables, where);
  });
  m.def("shard_folder_of", [](const FilePath& folder, const Comm& comm, const std::vector<Variable>& variables) {
    const Where where = here();
    const WithoutGil others_run;
    return shard_folder(folder.path, comm, variables, where);
  });
  m.def(
      "newest_sharded_checkpoint",
      [](const FilePath& folder) {
        const Where where = here();
        const WithoutGil others_run;
        return newest_sharded_checkpoint(folder.path, where);
      },
      nb::arg("folder"),
      "The files of the newest step that all ranks of a training have saved, in the order of the ranks, as they lie in "
      "the folder given to shard_folder(); empty if there is no file in it, or only those of a first save that a kill "
      "interrupted. Raises Error where there are other files, but none of a step that all ranks have.");
  m.def(
      "apply_sharded_sgd",
      [](nb::handle gradients, nb::handle groups, const Comm& comm, std::size_t bucket_bytes, bool same_program,
         nb::handle lr, double momentum, bool nesterov, nb::handle weight_decay, nb::handle clip_norm, int accumulate,
         const std::optional<LossScale>& loss_scale, const NormOfAll& norm_of_all) {
        const Where where = here();
        const SgdOptions options{.lr = Operand{lr}.arg(where),
                                 .momentum = momentum,
                                 .nesterov = nesterov,
                                 .weight_decay = Operand{weight_decay}.arg(where),
                                 .gradients = gradient_options(clip_norm, accumulate, loss_scale, norm_of_all, where)};
        const auto parameters = groups_of(groups, where);
        const auto values = nb::cast<Values>(gradients);
        const WithoutGil others_run;  // it waits for programs that use the parameters
        const AverageOptions buckets{.bucket_bytes = bucket_bytes, .same_program = same_program};
        return apply_sharded(options, parameters, values, comm, buckets, where);
      },
      nb::arg("gradients").sig("list[typing.Any]"), nb::arg("groups").sig("list[typing.Any]"), nb::arg("comm"),
      nb::arg("bucket_bytes"), nb::arg("same_program"), nb::arg("lr"), nb::arg("momentum"), nb::arg("nesterov"),
      nb::arg("weight_decay"), nb::arg("clip_norm"), nb::arg("accumulate"), nb::arg("loss_scale").none(),
      nb::arg("norm_of_all").none());
  m.def(
      "apply_sharded_adamw",
      [](nb::handle gradients, nb::handle groups, const Comm& comm, std::size_t bucket_bytes, bool same_program,
         nb::handle lr, double beta1, double beta2, double eps, nb::handle weight_decay, nb::handle clip_norm,
         int accumulate, const std::optional<LossScale>& loss_scale, const NormOfAll& norm_of_all) {
        const Where where = here();
        const AdamwOptions options{
            .lr = Operand{lr}.arg(where),
            .beta1 = beta1,
            .beta2 = beta2,
            .eps = eps,
            .weight_decay = Operand{weight_decay}.arg(where),
            .gradients = gradient_options(clip_norm, accumulate, loss_scale, norm_of_all, where)};
        const auto parameters = groups_of(groups, where);
        const auto values = nb::cast<Values>(gradients);
        const WithoutGil others_run;  // it waits for programs that use the parameters
        const AverageOptions buckets{.bucket_bytes = bucket_bytes, .same_program = same_program};
        return apply_sharded(options, parameters, values, comm, buckets, where);
      },
      nb::arg("gradients").sig("list[typing.Any]"), nb::arg("groups").sig("list[typing.Any]"), nb::arg("comm"),
      nb::arg("bucket_bytes"), nb::arg("same_program"), nb::arg("lr"), nb::arg("beta1"), nb::arg("beta2"),
      nb::arg("eps"), nb::arg("weight_decay"), nb::arg("clip_norm"), nb::arg("accumulate"),
      nb::arg("loss_scale").none(), nb::arg("norm_of_all").none());
}

}  // namespace
}  // namespace graphsink::python

NB_MODULE(_ranks, m) {
  namespace py = graphsink::python;
  m.doc() = "Bindings of the C++ library's ranks: use the module graphsink.ranks.";
  nb::module_::import_("graphsink._core");  // the types of arguments and results
  py::bind_comm(m);
  py::bind_worlds(m);
  py::bind_collectives(m);
  py::bind_of_trees(m);
}
