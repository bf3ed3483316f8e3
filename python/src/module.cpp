// The extension module graphsink._core. graphsink/__init__.py gives its names to users.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include "bindings.h"
#include "interpreter.h"

NB_MODULE(_core, m) {
  namespace py = graphsink::python;
  m.doc() = "Bindings of the C++ library: use the package graphsink.";
  m.def("set_package_folder", [](const std::string& folder) { py::set_package_folder(folder); });
  m.def("version", &graphsink::version, "The version of the library that the package runs with.");
  m.def("here", &py::here, "The line of Python that calls, outside of the package.");
  m.def("begin_end", py::begin_end,
        "Called when the interpreter begins to end, before end_python(): daemon threads may meet what is done then.");
  m.def(
      "end_python",
      [](bool has_daemons) {
        py::end_late_objects();
        py::end_python();
        // Objects that their calls use are never freed.
        if (has_daemons) nanobind::set_leak_warnings(false);
      },
      nanobind::arg("has_daemons"),
      "Called when the interpreter begins to end: host ops fail from then on. has_daemons: there are daemon threads.");
  py::bind_errors(m);
  py::bind_types(m);
  py::bind_graph(m);
  py::bind_scope(m);
  py::bind_ops(m);
  py::bind_host_ops(m);
  py::bind_control(m);
  py::bind_optimizers(m);
  py::bind_reports(m);
  py::bind_options(m);
  py::bind_program(m);
  py::bind_files(m);
  py::bind_data(m);
  py::bind_images(m);
  py::bind_train(m);
  py::bind_sink_cache(m);
  py::bind_stream_loader(m);
}
