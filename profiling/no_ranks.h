// The Error of programs that were built without ranks, and are asked for them.
#pragma once

#include "graphsink/error.h"

namespace graphsink::bench {

[[noreturn]] inline void refuse_ranks() {
  throw Error("--ranks", Where(), "this build has no ranks",
              "install MPI or ZeroMQ (docs/ranks.md), and configure with -DGRAPHSINK_RANKS=ON");
}

}  // namespace graphsink::bench
