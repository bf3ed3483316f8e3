// The ranks that mpirun or start.py has started: every test runs on all of them, in the same order.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "graphsink/graphsink.h"
#include "graphsink/ranks.h"
#include "test_ops.h"

namespace graphsink::testing {

// A device, and whether NCCL moves values between ranks; else they cross the host, by MPI or over TCP.
struct RankWay {
  DeviceId device;
  bool nccl = false;
};

// On the software CUDA device a library of the tests stands in for NCCL, which lies beside the program. GPUs take part
// where the environment has GS_TEST_NCCL, and each rank sees another GPU as its first one.
inline std::vector<RankWay> rank_ways() {
  std::vector<RankWay> ways;
  for (const DeviceId& device : devices()) {
    ways.push_back({device});
#ifdef GRAPHSINK_EMULATED
    const bool has_nccl = true;
#else
    const bool has_nccl = std::getenv("GS_TEST_NCCL") != nullptr;
#endif
    if (device.kind == DeviceKind::cuda && has_nccl) ways.push_back({device, true});
  }
  return ways;
}
inline std::string rank_way_name(const ::testing::TestParamInfo<RankWay>& info) {
  return info.param.nccl ? "nccl" : info.param.device.kind == DeviceKind::cpu ? "cpu" : "cuda";
}

// By default the first test starts the ranks. The patience ends a test in which a rank is missing.
inline const Comm& world_of_host() {
  static const Comm comm = graphsink::world({.patience_s = 120});
  return comm;
}
inline void name_nccl_standin() {
#ifdef GRAPHSINK_EMULATED
  const auto folder = std::filesystem::read_symlink("/proc/self/exe").parent_path();
  setenv("GRAPHSINK_NCCL", (folder / "libnccl_standin.so").c_str(), 0);
#endif
}
inline const Comm& world_of_nccl() {
  static const Comm comm = [] {
    name_nccl_standin();
    return nccl_world({.patience_s = 120});
  }();
  return comm;
}

// Whether world() is that of NCCL, while a test of OnRanks says so.
inline bool& nccl_is_chosen() {
  static bool is_chosen = false;
  return is_chosen;
}
inline const Comm& world() { return nccl_is_chosen() ? world_of_nccl() : world_of_host(); }

// Op and problem of the Error that `call` throws; "" if it throws none.
template <class Call>
std::string problem_of(const Call& call) {
  try {
    call();
  } catch (const Error& e) {
    return e.op() + ": " + e.problem();
  }
  return "";
}
inline bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

// The fixture of tests that run on every device, and in every way in which its values can move between ranks.
class OnRanks : public ::testing::TestWithParam<RankWay> {
 protected:
  OnRanks() { nccl_is_chosen() = GetParam().nccl; }
  ~OnRanks() override { nccl_is_chosen() = false; }
  Program compile(const Graph& g, CompileOptions options = {}) {
    options.target = GetParam().device;
    return graphsink::compile(g, options);
  }
};

}  // namespace graphsink::testing
