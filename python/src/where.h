// The line of Python that a binding is called from.
#pragma once

#include <string_view>

#include "graphsink/error.h"

namespace graphsink::python {

// The line of the innermost Python frame that is not of this package, in the scope of the calling thread; no place if
// there is no such frame. Needs the GIL. The other module of the package, graphsink._ranks, calls it, too.
GRAPHSINK_PUBLIC Where here();

// Files whose names begin with `folder` belong to this package. Called once, when the package is imported.
void set_package_folder(std::string_view folder);

// The same text as a C string that is valid until the process ends, because every Where and Error points to it.
const char* interned(std::string_view text);

}  // namespace graphsink::python
