#include "ranks/nccl_api.h"

#include <dlfcn.h>

#include <cstdlib>
#include <utility>

namespace graphsink {
namespace {

constexpr const char* kLibrary = "libnccl.so.2";
constexpr int kLeastVersion = 22800;
// The first version of which it is known that NcclConfig::graph_usage_mode is one of its options.
constexpr int kHasGraphUsageMode = 23000;

std::string version_text(int version) {
  return std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
         std::to_string(version % 100);
}

}  // namespace

NcclApi NcclApi::open(const std::string& name, std::string& problem) {
  NcclApi nccl;
  problem.clear();
  void* library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    const char* why = dlerror();
    problem = name.find('/') == name.npos ? name + " is not found on the library path" : why ? why : name;
    return nccl;
  }
  const auto set = [&]<class F>(F& function, const char* symbol) {
    function = reinterpret_cast<F>(dlsym(library, symbol));
    if (!function && problem.empty()) problem = name + " has no function " + symbol;
  };
  set(nccl.get_version, "ncclGetVersion");
  set(nccl.get_unique_id, "ncclGetUniqueId");
  set(nccl.init_rank, "ncclCommInitRankConfig");
  set(nccl.destroy, "ncclCommDestroy");
  set(nccl.abort, "ncclCommAbort");
  set(nccl.error_string, "ncclGetErrorString");
  set(nccl.last_error, "ncclGetLastError");
  set(nccl.all_reduce, "ncclAllReduce");
  set(nccl.all_gather, "ncclAllGather");
  set(nccl.reduce_scatter, "ncclReduceScatter");
  set(nccl.broadcast, "ncclBroadcast");
  set(nccl.send, "ncclSend");
  set(nccl.receive, "ncclRecv");
  set(nccl.group_start, "ncclGroupStart");
  set(nccl.group_end, "ncclGroupEnd");
  if (!problem.empty()) return nccl;
  if (const NcclResult result = nccl.get_version(&nccl.version); result != NcclResult::success) {
    problem = nccl_problem(nccl, "ncclGetVersion", result, nullptr);
  } else if (nccl.version < kLeastVersion) {
    problem = name + " is NCCL " + version_text(nccl.version) + ", and the oldest one that is known to do is " +
              version_text(kLeastVersion);
  }
  return nccl;
}

const NcclApi& NcclApi::find(std::string& problem) {
  static const std::pair<NcclApi, std::string> found = [] {
    const char* named = std::getenv("GRAPHSINK_NCCL");
    std::pair<NcclApi, std::string> result;
    if (named && *named == '\0') {
      result.second = "the environment variable GRAPHSINK_NCCL is empty";
    } else {
      result.first = open(named ? named : kLibrary, result.second);
    }
    return result;
  }();
  problem = found.second;
  return found.first;
}

// NCCL's default of graph_usage_mode lets graphs and calls outside of graphs overlap on a communicator, and is left as
// it is. The other values forbid a call while a launch that uses the communicator is under way, even on the same
// stream. The host does not wait between them: the first steps for a set of input shapes are issued op by op behind the
// launches of another one, and so are steps of interactive modes. The steps of enqueue() are not ordered with those of
// run() either. The default adds nodes that wait for events, which only the bodies of conditional nodes may not hold,
// and collectives do not stand there anyway.
NcclConfig config_of(const NcclApi& nccl) {
  NcclConfig config;
  config.blocking = 1;
  if (nccl.version < kHasGraphUsageMode) {
    config.size = offsetof(NcclConfig, graph_usage_mode);
    config.version = kLeastVersion;
  }
  return config;
}

std::string nccl_problem(const NcclApi& nccl, const char* call, NcclResult result, NcclHandle* comm) {
  std::string problem = std::string(call) + " returned " + nccl.error_string(result);
  const char* detail = nccl.last_error(comm);
  if (detail && *detail != '\0') problem += std::string(" (") + detail + ")";
  return problem;
}

}  // namespace graphsink
