#include "handles.h"

#include <mutex>
#include <utility>
#include <vector>

#include "host_op.h"

namespace graphsink::python {

namespace {

struct Ended {
  std::unique_ptr<Program> program;
  nb::object callables;  // which its steps call until it has ended
};

// Programs that somebody has dropped in the function of a host op. Never freed, because it may be used last.
struct Late {
  std::mutex mutex;
  std::vector<Ended> programs;
};
Late& late() {
  static auto* all = new Late;
  return *all;
}

// Without the GIL, which the functions of the program's ops need while it waits for them.
void end(std::unique_ptr<Program> program) noexcept {
  nb::gil_scoped_release others_run;
  program.reset();
}

template <class T>
int traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  if (nb::inst_ready(self)) Py_VISIT(nb::inst_ptr<T>(self)->callables.ptr());
  return 0;
}

int clear_graph(PyObject* self) {
  const nb::object dropped = std::move(nb::inst_ptr<GraphHandle>(self)->callables);
  return 0;
}

int clear_program(PyObject* self) {
  auto* handle = nb::inst_ptr<ProgramHandle>(self);
  handle->close();
  const nb::object dropped = std::move(handle->callables);
  return 0;
}

PyType_Slot of_graph[] = {{Py_tp_traverse, reinterpret_cast<void*>(traverse<GraphHandle>)},
                          {Py_tp_clear, reinterpret_cast<void*>(clear_graph)},
                          {0, nullptr}};
PyType_Slot of_program[] = {{Py_tp_traverse, reinterpret_cast<void*>(traverse<ProgramHandle>)},
                            {Py_tp_clear, reinterpret_cast<void*>(clear_program)},
                            {0, nullptr}};

}  // namespace

PyType_Slot* graph_slots() { return of_graph; }
PyType_Slot* program_slots() { return of_program; }

void ProgramHandle::close() noexcept {
  if (program == nullptr) return;
  // What it moved from stays, so that calls throw Error.
  auto ended = std::make_unique<Program>(std::move(*program));
  if (!is_in_host_op()) return end(std::move(ended));
  const std::lock_guard lock(late().mutex);
  late().programs.push_back({std::move(ended), callables});
}

void close_late_programs() noexcept {
  if (is_in_host_op()) return;
  std::vector<Ended> all;
  {
    const std::lock_guard lock(late().mutex);
    all.swap(late().programs);
  }
  for (Ended& each : all) end(std::move(each.program));
}

}  // namespace graphsink::python
