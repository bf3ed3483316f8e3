// The RankBackend that moves bytes by MPI.
#pragma once

#include <memory>

#include "graphsink/error.h"
#include "ranks/rank_backend.h"

namespace graphsink {

// For all processes of MPI_COMM_WORLD. See mpi_world().
std::unique_ptr<RankBackend> open_mpi(const Where& where);
// Whether this process or a library in it has initialised MPI.
bool mpi_is_initialized();

}  // namespace graphsink
