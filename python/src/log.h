// A Python function that takes the warnings of a program.
#pragma once

#include <nanobind/nanobind.h>

#include "graphsink/log.h"

namespace graphsink::python {

// Empty for None. The function is called with the GIL, on whichever thread meets the failure; what it raises is
// printed, and the message goes to spdlog. After the interpreter has begun to end, messages go to spdlog.
LogFunction log_function(nanobind::handle function);

}  // namespace graphsink::python
