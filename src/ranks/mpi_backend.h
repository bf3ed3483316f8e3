// The RankBackend that moves bytes by MPI.
#pragma once

#include <memory>

#include "graphsink/error.h"
#include "ranks/rank_backend.h"

namespace graphsink {

// For all processes of MPI_COMM_WORLD, which are waited for so long. Errors name the `call`. See mpi_world().
std::unique_ptr<RankBackend> open_mpi(const char* call, double patience_s, const Where& where);
// How many ranks MPI knows of; 0: neither this process nor a library in it has initialised MPI, or it is finalised.
int mpi_ranks();

}  // namespace graphsink
