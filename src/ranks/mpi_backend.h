// The RankBackend that moves bytes by MPI.
#pragma once

#include <memory>

#include "graphsink/error.h"
#include "ranks/rank_backend.h"

namespace graphsink {

// For all processes of MPI_COMM_WORLD, which are waited for so long. See mpi_world().
std::unique_ptr<RankBackend> open_mpi(double patience_s, const Where& where);
// Whether this process or a library in it has initialised MPI.
bool mpi_is_initialized();

}  // namespace graphsink
