// Calls of a Loader for the other functions of this layer.
#pragma once

#include "base/one_thread.h"
#include "graphsink/data_loader.h"

namespace graphsink {

class LoaderAccess {
 public:
  // As ProgramAccess::hold(), for functions that call the loader several times.
  static Held hold(const Loader& loader, const Where& where);
};

}  // namespace graphsink
