// How a process learns with whom it was started: a table of environment variables. And a start by such variables that
// wrong_starts.py makes go wrong.
#include "ranks/rank_start.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <iostream>
#include <map>
#include <string>

#include "graphsink/graphsink.h"
#include "graphsink/ranks.h"
#include "rank_world.h"

namespace graphsink::testing {
namespace rank_start_test {

using Set = std::map<std::string, std::string>;

RankStart start(const Set& set, int mpi_ranks = 0) {
  return rank_start_of(
      [&](const char* name) {
        const auto found = set.find(name);
        return found == set.end() ? nullptr : found->second.c_str();
      },
      mpi_ranks, Where());
}

// "rank 1 of 4, local 1, at node7:29501", "mpi, 2", "mpi" or "alone".
std::string described(const RankStart& start) {
  if (start.kind == RankStart::Kind::alone) return "alone";
  if (start.kind == RankStart::Kind::mpi) return start.size > 1 ? "mpi, " + std::to_string(start.size) : "mpi";
  return "rank " + std::to_string(start.rank) + " of " + std::to_string(start.size) + ", local " +
         std::to_string(start.local_rank) + ", at " + start.host + ":" + std::to_string(start.port);
}

const Set kTorchrun{
    {"RANK", "1"}, {"WORLD_SIZE", "4"}, {"LOCAL_RANK", "1"}, {"MASTER_ADDR", "node7"}, {"MASTER_PORT", "29500"}};
const Set kSlurm{{"SLURM_PROCID", "2"},
                 {"SLURM_NTASKS", "3"},
                 {"SLURM_LOCALID", "0"},
                 {"MASTER_ADDR", "node7"},
                 {"MASTER_PORT", "29500"}};

Set with(Set set, const Set& further) {
  for (const auto& [name, value] : further) set[name] = value;
  return set;
}

TEST(RankStart, IsFoundInTheVariables) {
  struct Row {
    const char* what;
    Set set;
    std::string expected;
  };
  const Row rows[] = {
      {"nothing", {}, "alone"},
      {"torchrun", kTorchrun, "rank 1 of 4, local 1, at node7:29501"},
      {"another port", with(kTorchrun, {{"GRAPHSINK_PORT", "7"}}), "rank 1 of 4, local 1, at node7:7"},
      {"a port without torchrun's", with(kTorchrun, {{"MASTER_PORT", ""}, {"GRAPHSINK_PORT", "65535"}}),
       "rank 1 of 4, local 1, at node7:65535"},
      {"no local rank", with(kTorchrun, {{"LOCAL_RANK", ""}}), "rank 1 of 4, local -1, at node7:29501"},
      {"one process", {{"RANK", "0"}, {"WORLD_SIZE", "1"}}, "alone"},
      {"srun", kSlurm, "rank 2 of 3, local 0, at node7:29501"},
      {"one process by srun", {{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "1"}}, "alone"},
      {"a shell of Slurm", {{"SLURM_NTASKS", "4"}}, "alone"},
      {"torchrun by srun", with(with(kSlurm, kTorchrun), {{"PMIX_RANK", "0"}}), "rank 1 of 4, local 1, at node7:29501"},
      {"mpirun", {{"OMPI_COMM_WORLD_SIZE", "2"}}, "mpi, 2"},
      {"mpirun in the script of sbatch", with(kSlurm, {{"OMPI_COMM_WORLD_SIZE", "2"}}), "mpi, 2"},
      {"torchrun by mpirun", with(kTorchrun, {{"OMPI_COMM_WORLD_SIZE", "2"}, {"TORCHELASTIC_RUN_ID", "none"}}),
       "rank 1 of 4, local 1, at node7:29501"},
      {"mpiexec of MPICH", {{"PMI_SIZE", "2"}, {"PMI_RANK", "0"}}, "mpi, 2"},
      {"srun of programs with MPI", {{"SLURM_PROCID", "2"}, {"SLURM_NTASKS", "3"}, {"PMIX_RANK", "2"}}, "mpi"},
      {"srun with an address", with(kSlurm, {{"PMIX_RANK", "2"}}), "rank 2 of 3, local 0, at node7:29501"},
  };
  for (const Row& row : rows) EXPECT_EQ(described(start(row.set)), row.expected) << row.what;
}

// An import may initialise MPI in a process that mpirun has not started: MPI knows of one rank then.
TEST(RankStart, IsThatOfMpiWhereItRunsAndKnowsTheRanks) {
  struct Row {
    const char* what;
    Set set;
    std::string of_one, of_several;
  };
  const Row rows[] = {
      {"nothing", {}, "mpi", "mpi"},
      {"torchrun", kTorchrun, described(start(kTorchrun)), "mpi"},
      {"srun", kSlurm, described(start(kSlurm)), "mpi"},
      {"one process", {{"RANK", "0"}, {"WORLD_SIZE", "1"}}, "mpi", "mpi"},
      {"mpirun of another MPI", {{"PMI_SIZE", "2"}}, "mpi, 2", "mpi"},
  };
  for (const Row& row : rows) {
    EXPECT_EQ(described(start(row.set, 1)), row.of_one) << row.what;
    EXPECT_EQ(described(start(row.set, 4)), row.of_several) << row.what;
  }
}

TEST(RankStart, KnowsTheJob) {
  const auto job = [](const Set& set) { return start(with(kTorchrun, set)).job; };
  EXPECT_EQ(job({}), "");
  EXPECT_EQ(job({{"TORCHELASTIC_RUN_ID", "none"}}), "");
  EXPECT_EQ(job({{"SLURM_JOB_ID", "7"}}), "SLURM_JOB_ID 7");
  EXPECT_EQ(job({{"TORCHELASTIC_RUN_ID", "none"}, {"SLURM_JOB_ID", "7"}}), "SLURM_JOB_ID 7");
  EXPECT_EQ(job({{"TORCHELASTIC_RUN_ID", "a"}, {"SLURM_JOB_ID", "7"}}), "TORCHELASTIC_RUN_ID a");
}

TEST(RankStart, RefusesWhatContradictsItself) {
  struct Row {
    Set set;
    const char* problem;
    const char* remedy;
  };
  const Row rows[] = {
      {with(kTorchrun, {{"RANK", "one"}}), "RANK is \"one\"", "a number, 0 or more"},
      {with(kTorchrun, {{"RANK", "-1"}}), "RANK is \"-1\"", "a number, 0 or more"},
      {with(kTorchrun, {{"RANK", "4"}}), "RANK is 4, and WORLD_SIZE is 4", "from 0"},
      {with(kTorchrun, {{"WORLD_SIZE", "0"}}), "WORLD_SIZE is \"0\"", "a number, 1 or more"},
      {with(kTorchrun, {{"WORLD_SIZE", "4 "}}), "WORLD_SIZE is \"4 \"", "a number, 1 or more"},
      {with(kTorchrun, {{"WORLD_SIZE", "9999999999"}}), "WORLD_SIZE is \"9999999999\"", "a number, 1 or more"},
      {with(kTorchrun, {{"WORLD_SIZE", ""}}), "RANK is set, and WORLD_SIZE is not", "both"},
      {with(kTorchrun, {{"RANK", ""}}), "WORLD_SIZE is set, and RANK is not", "both"},
      {with(kTorchrun, {{"LOCAL_RANK", "x"}}), "LOCAL_RANK is \"x\"", "a number, 0 or more"},
      {with(kTorchrun, {{"MASTER_ADDR", ""}}), "MASTER_ADDR is not set", "start all ranks by torchrun"},
      {with(kTorchrun, {{"MASTER_PORT", ""}}), "MASTER_PORT is not set", "a free port on it, such as 29500"},
      {with(kTorchrun, {{"MASTER_PORT", "65535"}}), "MASTER_PORT is \"65535\"", "1 to 65534"},
      {with(kTorchrun, {{"GRAPHSINK_PORT", "http"}}), "GRAPHSINK_PORT is \"http\"", "1 to 65535"},
      {with(kSlurm, {{"MASTER_ADDR", ""}}), "SLURM_NTASKS is 3, and the environment variable MASTER_ADDR is not set",
       "in the script of sbatch: export MASTER_ADDR=$(scontrol show hostnames | head -1) MASTER_PORT=29500; for one "
       "process alone, unset SLURM_NTASKS"},
      {with(kSlurm, {{"SLURM_PROCID", "3"}}), "SLURM_PROCID is 3, and SLURM_NTASKS is 3", "from 0"},
  };
  for (const Row& row : rows) {
    try {
      ADD_FAILURE() << row.problem << ": taken as " << described(start(row.set));
    } catch (const Error& e) {
      EXPECT_NE(e.problem().find(row.problem), std::string::npos) << e.what();
      EXPECT_NE(e.remedy().find(row.remedy), std::string::npos) << e.what();
      EXPECT_EQ(e.op(), "world");
    }
  }
}

// Run alone, by wrong_starts.py. Prints what world() throws, or the sum of 1 over all ranks, or the device of
// nccl_world().
TEST(Start, DISABLED_SaysWhatItThrows) {
  try {
    const char* patience = std::getenv("GS_PATIENCE");
    const double patience_s = patience == nullptr ? 100.0 : std::stod(patience);
    if (std::getenv("GS_NCCL") != nullptr) {
      name_nccl_standin();
      const Comm comm = nccl_world({.patience_s = patience_s});
      std::cout << "<rank " + std::to_string(comm.rank()) + ": device " + std::to_string(comm.device()) + ">\n"
                << std::flush;
      return;
    }
    const Comm comm = graphsink::world({.patience_s = patience_s});
    Eager eager;
    const Value sum = all_reduce(eager.tensor(Tensor::scalar(1.0f)), comm);
    std::cout << "<rank " + std::to_string(comm.rank()) + ": sum " +
                     std::to_string(static_cast<int>(Eager::read(sum).at(0))) + ">\n"
              << std::flush;
  } catch (const Error& e) {
    const char* rank = std::getenv("RANK");
    std::cout << "<rank " + std::string(rank == nullptr ? "" : rank) + ": " + std::string(to_string(e.code())) + ": " +
                     e.what() + ">\n"
              << std::flush;
  }
}

}  // namespace rank_start_test
}  // namespace graphsink::testing
