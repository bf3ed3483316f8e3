#include "ranks/rank_start.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <optional>

namespace graphsink {
namespace {

constexpr int kMostPorts = 65535;
constexpr int kMost = std::numeric_limits<int>::max();

// The names of the variables by which ranks are counted.
struct Names {
  const char *rank, *size, *local_rank;
  const char* address;  // the remedy where MASTER_ADDR or MASTER_PORT is not set
};
constexpr Names kTorchrun{"RANK", "WORLD_SIZE", "LOCAL_RANK",
                          "start all ranks by torchrun, which sets both, or set MASTER_ADDR to the host of rank 0 and "
                          "MASTER_PORT to a free port on it, such as 29500, for every process"};
constexpr Names kSlurm{
    "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID",
    "in the script of sbatch: export MASTER_ADDR=$(scontrol show hostnames | head -1) MASTER_PORT=29500"};

class Reader {
 public:
  Reader(const Environment& get, const Where& where) : get_(get), where_(where) {}

  bool has(const char* name) const { return !text(name).empty(); }
  std::string text(const char* name) const {
    const char* value = get_(name);
    return value == nullptr ? "" : value;
  }
  std::optional<int> number(const char* name, int least, int most) const {
    const std::string value = text(name);
    if (value.empty()) return std::nullopt;
    int number = 0;
    const auto [end, code] = std::from_chars(value.data(), value.data() + value.size(), number);
    if (code == std::errc() && end == value.data() + value.size() && number >= least && number <= most) return number;
    const std::string bound = most == kMost ? " or more" : " to " + std::to_string(most);
    refuse(std::string("the environment variable ") + name + " is \"" + value + "\"",
           "set it to a number, " + std::to_string(least) + bound);
  }
  [[noreturn]] void refuse(const std::string& problem, const std::string& remedy) const {
    throw Error("world", where_, problem, remedy);
  }

 private:
  const Environment& get_;
  const Where& where_;
};

// torchrun has "none" where nobody names the job.
std::string job_of(const Reader& reader) {
  for (const char* name : {"TORCHELASTIC_RUN_ID", "SLURM_JOB_ID"}) {
    std::string id = reader.text(name);
    std::replace(id.begin(), id.end(), '\n', ' ');  // the ranks send it as a line
    if (!id.empty() && id != "none") return std::string(name) + " " + id;
  }
  return "";
}

// torchrun itself listens at MASTER_PORT.
int port_of(const Reader& reader) {
  if (const std::optional<int> port = reader.number("GRAPHSINK_PORT", 1, kMostPorts)) return *port;
  return reader.number("MASTER_PORT", 1, kMostPorts - 1).value_or(0) + 1;
}

RankStart numbered(const Reader& reader, const Names& names) {
  const std::optional<int> size = reader.number(names.size, 1, kMost);
  const std::optional<int> rank = reader.number(names.rank, 0, kMost);
  const std::string set = std::string("the environment variable ") + (rank ? names.rank : names.size) + " is set, and ";
  if (!size || !rank)
    reader.refuse(set + (rank ? names.size : names.rank) + " is not",
                  "set both for every process, as torchrun does, or neither for a process alone");
  if (*rank >= *size)
    reader.refuse(std::string(names.rank) + " is " + std::to_string(*rank) + ", and " + names.size + " is " +
                      std::to_string(*size),
                  "number the ranks from 0");
  if (*size == 1) return {};
  RankStart start{.kind = RankStart::Kind::variables, .size = *size, .rank = *rank};
  start.local_rank = reader.number(names.local_rank, 0, kMost).value_or(-1);
  start.host = reader.text("MASTER_ADDR");
  const bool has_port = reader.has("GRAPHSINK_PORT") || reader.has("MASTER_PORT");
  if (start.host.empty() || !has_port)
    reader.refuse(std::string(names.size) + " is " + std::to_string(*size) + ", and the environment variable " +
                      (start.host.empty() ? "MASTER_ADDR" : "MASTER_PORT") + " is not set",
                  std::string(names.address) + "; for one process alone, unset " + names.size);
  start.port = port_of(reader);
  start.job = job_of(reader);
  return start;
}

RankStart start_by_variables(const Reader& reader) {
  const bool torchrun = reader.has("TORCHELASTIC_RUN_ID");
  const auto by_mpi = [&](const char* size) {
    return RankStart{.kind = RankStart::Kind::mpi, .size = reader.number(size, 1, kMost).value_or(1)};
  };
  if (!torchrun && reader.has("OMPI_COMM_WORLD_SIZE")) return by_mpi("OMPI_COMM_WORLD_SIZE");
  if (torchrun || reader.has(kTorchrun.rank) || reader.has(kTorchrun.size)) return numbered(reader, kTorchrun);
  const bool slurm = reader.has(kSlurm.rank) && reader.has(kSlurm.size);
  // srun sets those of PMI for programs without MPI, too.
  const bool by_address = slurm && reader.has("MASTER_ADDR");
  if (!by_address && (reader.has("PMI_SIZE") || reader.has("PMIX_RANK"))) return by_mpi("PMI_SIZE");
  return slurm ? numbered(reader, kSlurm) : RankStart{};
}

}  // namespace

RankStart rank_start_of(const Environment& get, int mpi_ranks, const Where& where) {
  if (mpi_ranks > 1) return {.kind = RankStart::Kind::mpi};
  RankStart start = start_by_variables(Reader(get, where));
  if (mpi_ranks == 1 && start.kind == RankStart::Kind::alone) start.kind = RankStart::Kind::mpi;
  return start;
}

}  // namespace graphsink
