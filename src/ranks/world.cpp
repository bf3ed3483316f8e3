// The start of ranks, however they were started.
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <string>
#include <utility>

#include "graphsink/ranks.h"
#include "ranks/rank_group.h"
#include "ranks/rank_start.h"

#ifdef GRAPHSINK_MPI
#include "ranks/mpi_backend.h"
#endif
#ifdef GRAPHSINK_ZEROMQ
#include "ranks/tcp_backend.h"
#endif

namespace graphsink {
namespace {

void expect_patience(const char* call, double patience_s, const Where& where) {
  if (patience_s > 0 && std::isfinite(patience_s)) return;
  throw Error(call, where, "a patience of " + std::to_string(patience_s) + " seconds", "give a finite number above 0");
}

// All ranks make as many, so that a world has one number on all of them. A start that failed has none.
[[maybe_unused]] std::shared_ptr<RankGroup> world_group(std::unique_ptr<RankBackend> backend, double patience_s) {
  static std::atomic<int> worlds = 0;
  return std::make_shared<RankGroup>(std::move(backend), patience_s, GroupOrigin{nullptr, worlds++});
}

RankStart start_of_process(const Where& where) {
#ifdef GRAPHSINK_MPI
  const int ranks = mpi_ranks();
#else
  const int ranks = 0;
#endif
  return rank_start_of([](const char* name) { return std::getenv(name); }, ranks, where);
}

// Errors name the `call`.
Comm mpi_comm(const char* call, [[maybe_unused]] const WorldOptions& options, const Where& where) {
#ifdef GRAPHSINK_MPI
  std::unique_ptr<RankBackend> backend = open_mpi(call, options.patience_s, where);
  return Comm(world_group(std::move(backend), options.patience_s));
#else
  throw Error(
      call, where, "graphsink::ranks was built without MPI",
      "start the ranks by torchrun, or by srun with MASTER_ADDR and MASTER_PORT set, and call world(); or build with "
      "MPI, on Debian: apt-get install libopenmpi-dev openmpi-bin",
      ErrorCode::unavailable);
#endif
}

}  // namespace

Comm mpi_world(const WorldOptions& options, Where where) {
  expect_patience("mpi_world", options.patience_s, where);
  return mpi_comm("mpi_world", options, where);
}

Comm world(const WorldOptions& options, Where where) {
  expect_patience("world", options.patience_s, where);
  const RankStart start = start_of_process(where);
  if (start.kind == RankStart::Kind::mpi) {
    const Comm comm = mpi_comm("world", options, where);
    // An MPI that does not know who has started the processes makes a world of each, which would train alone.
    if (start.size > 1 && comm.size() == 1)
      throw Error(
          "world", where,
          "the environment variables name " + std::to_string(start.size) + " ranks, and MPI knows of this one alone",
          "start the ranks by the mpirun of the MPI that graphsink::ranks was built with; or, by srun, set "
          "MASTER_ADDR and MASTER_PORT",
          ErrorCode::unavailable);
    return comm;
  }
  if (start.kind == RankStart::Kind::alone) return one_rank();
#ifdef GRAPHSINK_ZEROMQ
  std::unique_ptr<RankBackend> backend = open_tcp(start, options.patience_s, where);
  Comm comm(world_group(std::move(backend), options.patience_s));
  comm.group()->all_texts("", {"world", where});  // nobody begins before all can be reached
  return comm;
#else
  throw Error("world", where,
              "the environment variables name " + std::to_string(start.size) +
                  " ranks, and graphsink::ranks was built without ZeroMQ, by which such ranks exchange values",
              "start them by mpirun; or build with ZeroMQ, on Debian: apt-get install libzmq3-dev cppzmq-dev",
              ErrorCode::unavailable);
#endif
}

}  // namespace graphsink
