// Python objects that threads of the library hold, and may let go of when they do not have the GIL.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>

#include "graphsink/error.h"

namespace graphsink::python {

// Whether Python code can still run in this process: the interpreter has not begun to end.
bool is_running() noexcept;

// Throws Error unless is_running(): for functions of Python that threads of the library call.
void require_running(const char* op, const Where& where);

// Called once, when it begins to end.
void end_python() noexcept;

// Another reference to the object, which may be dropped by any thread. An object that is dropped after the interpreter
// has begun to end is not freed.
std::shared_ptr<nanobind::object> keep(nanobind::handle object);

}  // namespace graphsink::python
