// The ranks that mpirun has started: every test runs on all of them, in the same order.
#pragma once

#include "graphsink/ranks.h"

namespace graphsink::testing {

// MPI is initialised by the first test. The patience ends a test in which a rank is missing.
inline const Comm& world() {
  static const Comm comm = mpi_world({.patience_s = 120});
  return comm;
}

}  // namespace graphsink::testing
