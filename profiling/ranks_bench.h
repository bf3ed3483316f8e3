// Data-parallel steps of several processes, beside the same steps without their collectives.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "samples/models/workloads.h"

namespace graphsink::bench {

struct RanksOptions {
  std::vector<std::string> workloads;  // names of those that models::can_be_shared()
  std::string mode = "sink";
  std::string device = "auto";
  bool nccl = false;  // nccl_world(), else world()
  std::int64_t steps = 100;
  std::int64_t steps_per_launch = 1;
  int threads = 0;  // Tuning::threads; 0: the cores of the machine are divided among the ranks
  std::size_t bucket_bytes = std::size_t{4} << 20;  // AverageOptions::bucket_bytes
  bool untimed = false;
  std::string json_file;
  models::WorkloadOptions workload;
};

// Measures on all ranks. Rank 0 prints a table, with the times of each rank, and writes the report. Throws Error where
// the ranks have other Variables after the same steps.
void bench_ranks(const RanksOptions& options);

}  // namespace graphsink::bench
