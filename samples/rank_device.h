// The devices of ranks, for programs that several processes run together.
#pragma once

#include <unistd.h>

#include <functional>
#include <string>

#include "graphsink/ranks.h"
#include "samples/cli.h"

namespace graphsink::cli {

// The device of this rank. nccl_world() has chosen a GPU. With world(), "auto" means the GPU that has the rank's number
// among the ranks of its machine, modulo the GPUs there, or the CPU if there are none. All ranks call it.
inline DeviceId device_of_rank(const std::string& name, const Comm& comm) {
  if (comm.device() >= 0) return cuda(comm.device());
  if (name != "auto") return device_of(name);
  char machine[256] = "";
  gethostname(machine, sizeof machine - 1);
  const auto color = static_cast<int>(std::hash<std::string>()(machine) % (1U << 30));
  const int local_rank = comm.split(color).rank(), gpus = cuda_device_count();
  return gpus > 0 ? cuda(local_rank % gpus) : cpu();
}

}  // namespace graphsink::cli
