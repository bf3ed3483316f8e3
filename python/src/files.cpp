// Checkpoints: named tensors in safetensors files, and their way from and to Variables.
#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/map.h>

#include <map>

#include "bindings.h"
#include "garbage.h"
#include "log.h"

namespace graphsink::python {

namespace {

using Texts = std::map<std::string, std::string>;

template <class Map>
nb::dict dict_of(const Map& map) {
  nb::dict dict;
  for (const auto& [name, value] : map) dict[nb::str(name.data(), name.size())] = value;
  return dict;
}

void bind_checkpoint(nb::module_& m) {
  nb::class_<Checkpoint>(m, "Checkpoint",
                         "Named tensors, and texts that belong to them: what a safetensors file holds.")
      .def(
          "__init__",
          [](Checkpoint* self, nb::handle tensors, const Texts& metadata) {
            const Where where = here();
            Checkpoint made;
            for (auto [name, data] : nb::cast<nb::dict>(tensors))
              made.tensors.emplace(nb::cast<std::string>(name), to_tensor(data, f32, where));
            made.metadata.insert(metadata.begin(), metadata.end());
            new (self) Checkpoint(std::move(made));
          },
          nb::arg("tensors").sig("collections.abc.Mapping[str, graphsink._types.ArrayLike]"),
          nb::arg("metadata") = Texts{}, "Copies the arrays; numbers become f32.")
      .def_prop_ro(
          "tensors", [](const Checkpoint& self) { return dict_of(self.tensors); },
          nb::sig("def tensors(self) -> dict[str, Tensor]"), "Copies of the tensors, by name.")
      .def_prop_ro(
          "metadata", [](const Checkpoint& self) { return dict_of(self.metadata); },
          nb::sig("def metadata(self) -> dict[str, str]"))
      .def_prop_ro(
          "unsupported", [](const Checkpoint& self) { return dict_of(self.unsupported); },
          nb::sig("def unsupported(self) -> dict[str, str]"),
          "The dtypes, by name, of tensors that were not loaded because graphsink does not have these dtypes.")
      .def_prop_ro(
          "source", [](const Checkpoint& self) { return path_object(self.source); },
          "The file it was read from; may be empty.")
      .def(
          "number", [](const Checkpoint& self, const std::string& name) { return self.number(name, here()); },
          nb::arg("name"), "A whole number in the metadata. Raises Error if there is none.");
  nb::class_<Restored>(m, "Restored", "Names of what restore() has loaded, and has not.")
      .def_ro("loaded", &Restored::loaded)
      .def_ro("missing", &Restored::missing)
      .def_ro("unused", &Restored::unused)
      .def_ro("converted", &Restored::converted);
}

void bind_checkpoint_files(nb::module_& m) {
  m.def(
      "read_checkpoint",
      [](const FilePath& path) {
        const Where where = here();
        WithoutGil others_run;
        return read_checkpoint(path.path, where);
      },
      nb::arg("path"),
      "Reads a safetensors file, or the index of several. Raises Error with the path, the field and the reason for one "
      "that is not well-formed.");
  m.def(
      "read_checkpoint_metadata",
      [](const FilePath& path) {
        const Where where = here();
        WithoutGil others_run;
        return read_checkpoint_metadata(path.path, where);
      },
      nb::arg("path"), "The same without the tensors.");
  m.def(
      "write_checkpoint",
      [](const FilePath& path, const Checkpoint& checkpoint, std::size_t most_bytes_per_file) {
        const Where where = here();
        WithoutGil others_run;
        write_checkpoint(path.path, checkpoint, {.most_bytes_per_file = most_bytes_per_file}, where);
      },
      nb::arg("path"), nb::arg("checkpoint"), nb::kw_only(), nb::arg("most_bytes_per_file") = 0,
      "Writes a checkpoint so that after a crash at any moment `path` is either what it was before or all of the new "
      "one. With most_bytes_per_file, larger ones are written to several files and an index.");
  m.def(
      "remove_checkpoint",
      [](const FilePath& path) {
        const Where where = here();
        WithoutGil others_run;
        return remove_checkpoint(path.path, where);
      },
      nb::arg("path"), "Removes a checkpoint and its shards. Returns False if there is none.");
  m.def(
      "require_writable", [](const FilePath& path) { require_writable(path.path, here()); }, nb::arg("path"),
      "Raises the Error that write_checkpoint() would raise before it writes.");
  m.def(
      "newest_checkpoint", [](const FilePath& folder) { return newest_checkpoint(folder.path); }, nb::arg("folder"),
      "The newest file that train() has saved in a folder; an empty path if there is none.");
}

void bind_snapshots(nb::module_& m) {
  m.def(
      "snapshot_program",
      [](ProgramHandle& program) {
        const Where where = here();
        WithoutGil others_run;
        return snapshot(*program.program, where);
      },
      nb::arg("program"), "Copies the program's Variables, by their names, and the number of its next step.");
  m.def(
      "snapshot_variables",
      [](const std::vector<Variable>& variables) {
        const Where where = here();
        WithoutGil others_run;
        return snapshot(variables, where);
      },
      nb::arg("variables"));
  m.def(
      "restore_program",
      [](ProgramHandle& program, const Checkpoint& checkpoint, bool allow_missing, bool allow_unused, bool convert,
         bool without_step, nb::handle log) {
        const Where where = here();
        const RestoreOptions options{allow_missing, allow_unused, convert, without_step, log_function(log)};
        WithoutGil others_run;
        return restore(*program.program, checkpoint, options, where);
      },
      nb::arg("program"), nb::arg("checkpoint"), nb::kw_only(), nb::arg("allow_missing") = false,
      nb::arg("allow_unused") = false, nb::arg("convert") = false, nb::arg("without_step") = false,
      nb::arg("log").none() = nb::none(),
      "Writes each tensor to the program's Variable of the same name, and sets the program's step to the checkpoint's. "
      "Everything is checked before anything is written.");
  m.def(
      "restore_variables",
      [](const std::vector<Variable>& variables, const Checkpoint& checkpoint, bool allow_missing, bool allow_unused,
         bool convert, nb::handle log) {
        const Where where = here();
        const RestoreOptions options{allow_missing, allow_unused, convert, true, log_function(log)};
        WithoutGil others_run;
        return restore(variables, checkpoint, options, where);
      },
      nb::arg("variables"), nb::arg("checkpoint"), nb::kw_only(), nb::arg("allow_missing") = false,
      nb::arg("allow_unused") = false, nb::arg("convert") = false, nb::arg("log").none() = nb::none());
}

// A graph that was read, and the Graph of Python's, which one is made of when it is read: names that it gets later
// stay.
struct LoadedHandle {
  Ending<LoadedGraph> loaded = LoadedGraph();
  nb::object graph;

  template <class Visit>
  void visit_owned(Visit visit) {
    visit(graph);
  }
};

// A graph that was read, with the names by which Python reaches its inputs and records.
nb::object handle_of(const LoadedGraph& loaded) {
  GraphHandle handle{loaded.graph};
  handle.names->inputs.insert(loaded.inputs.begin(), loaded.inputs.end());
  handle.names->inputs.insert(loaded.feeds.begin(), loaded.feeds.end());
  handle.names->outputs.insert(loaded.outputs.begin(), loaded.outputs.end());
  for (const auto& [name, value] : loaded.records) {
    const Shape shape = value.shape();
    const std::span<const std::int64_t> sizes = shape.dims();
    handle.names->records[name].assign(sizes.begin(), sizes.end());
  }
  return nb::cast(std::move(handle));
}

// Ops of extension modules, see GraphFileOptions.
using FileOps = std::vector<FileOp>;

void bind_program_files(nb::module_& m) {
  nb::class_<FileOp>(
      m, "FileOp",
      "An op of a C++ library that files of graphs may have. Extension modules of users give theirs as a "
      "list of what graphsink::file_op() makes.")
      .def_prop_ro("name", [](const FileOp& self) { return std::string(self.name_in_file()); })
      .def_ro("version", &FileOp::version)
      .def("__repr__", [](const FileOp& self) {
        return "FileOp(\"" + std::string(self.name_in_file()) + "\", version " + std::to_string(self.version) + ")";
      });
  nb::class_<LoadedHandle>(m, "LoadedGraph", "A graph that was read from a file.",
                           nb::type_slots(OwnedObjects<LoadedHandle>::slots))
      .def_prop_ro(
          "graph", [](const LoadedHandle& self) { return self.graph; }, nb::sig("def graph(self) -> Graph"))
      .def_prop_ro(
          "inputs", [](const LoadedHandle& self) { return dict_of(self.loaded->inputs); },
          nb::sig("def inputs(self) -> dict[str, Value]"))
      .def_prop_ro(
          "feeds", [](const LoadedHandle& self) { return dict_of(self.loaded->feeds); },
          nb::sig("def feeds(self) -> dict[str, Value]"))
      .def_prop_ro(
          "records", [](const LoadedHandle& self) { return dict_of(self.loaded->records); },
          nb::sig("def records(self) -> dict[str, Value]"), "One value of each record, by name.")
      .def_prop_ro(
          "outputs", [](const LoadedHandle& self) { return dict_of(self.loaded->outputs); },
          nb::sig("def outputs(self) -> dict[str, Value]"))
      .def_prop_ro(
          "variables", [](const LoadedHandle& self) { return self.loaded->variables; },
          "All that the graph uses, in the order in which it first did.")
      .def_prop_ro(
          "step", [](const LoadedHandle& self) { return self.loaded->step; },
          "The step that training goes on with: give it to Program.set_steps().")
      .def_prop_ro(
          "metadata", [](const LoadedHandle& self) { return dict_of(self.loaded->metadata); },
          nb::sig("def metadata(self) -> dict[str, str]"));
  m.def(
      "write_graph",
      [](const FilePath& path, const GraphHandle& graph, std::int64_t step, const Texts& metadata, const FileOps& ops) {
        const Where where = here();
        WriteGraphOptions options;
        options.ops = ops;
        options.step = step;
        options.metadata.insert(metadata.begin(), metadata.end());
        const Graph written = graph.graph;
        WithoutGil others_run;
        write_graph(path.path, written, options, where);
      },
      nb::arg("path"), nb::arg("graph"), nb::kw_only(), nb::arg("step") = 0, nb::arg("metadata") = Texts{},
      nb::arg("ops") = nb::tuple(),
      "Writes the graph and the values that its Variables have now into one safetensors file, so that read_graph(), "
      "here or in C++, makes a graph of them whose programs compute the same bits in every mode. `ops` are those of "
      "extension modules that the graph has. Raises Error for a graph with other ops, and with functions of Python as "
      "ops.");
  m.def(
      "read_graph",
      [](const FilePath& path, const FileOps& ops) {
        const Where where = here();
        ReadGraphOptions options;
        options.ops = ops;
        LoadedHandle made;
        {
          WithoutGil others_run;
          made.loaded.object = read_graph(path.path, options, where);
        }
        made.graph = handle_of(made.loaded.object);
        // So that it owns the functions of ops that are added to it.
        const auto key = reinterpret_cast<std::uintptr_t>(made.loaded->graph.data().get());
        nb::module_::import_("graphsink._context").attr("graphs")[nb::int_(key)] = made.graph;
        return made;
      },
      nb::arg("path"), nb::kw_only(), nb::arg("ops") = nb::tuple(),
      "Reads what write_graph() has written. Its Variables are new ones, with the values in the file. The graph may be "
      "compiled, or built further first. `ops` are those of extension modules that it may have. Raises Error, which "
      "names the op, for another one, and for a file that is damaged.");
}

}  // namespace

void bind_files(nb::module_& m) {
  bind_checkpoint(m);
  bind_checkpoint_files(m);
  bind_snapshots(m);
  bind_program_files(m);
}

}  // namespace graphsink::python
