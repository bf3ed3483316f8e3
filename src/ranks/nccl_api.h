// The functions of NCCL that ranks use. The library is looked for when the program runs, because it is large and most
// programs do without it; so its types are declared here, and tests/ranks/nccl_header_test.cpp compares them with those
// of nccl.h.
#pragma once

#include <climits>
#include <cstddef>
#include <string>

#include "graphsink/stream.h"

namespace graphsink {

enum class NcclResult : int {
  success = 0,
  system_error = 2,
  invalid_argument = 4,
  invalid_usage = 5,
  remote_error = 6
};
enum class NcclType : int { u8 = 1, i32 = 2, i64 = 4, f16 = 6, f32 = 7, f64 = 8, bf16 = 9 };
enum class NcclReduction : int { sum = 0, max = 2, mean = 4 };

// By which the ranks of a communicator find each other.
struct NcclId {
  char bytes[128] = {};
};

struct NcclHandle;  // a communicator

// The options of a communicator, as of NCCL 2.32. NCCL chooses those that are not set. `size` and `version` say how
// many there are: those in front of graph_usage_mode are the ones of 2.28.
struct NcclConfig {
  static constexpr int kUnset = INT_MIN;
  static constexpr unsigned kVersion = 23203;

  std::size_t size = sizeof(NcclConfig);
  unsigned magic = 0xcafebeef;
  unsigned version = kVersion;
  int blocking = kUnset;
  int cga_cluster_size = kUnset;
  int min_ctas = kUnset;
  int max_ctas = kUnset;
  const char* net_name = nullptr;
  int split_share = kUnset;
  int traffic_class = kUnset;
  const char* comm_name = nullptr;
  int collnet_enable = kUnset;
  int cta_policy = kUnset;
  int shrink_share = kUnset;
  int nvls_ctas = kUnset;
  int channels_per_net_peer = kUnset;
  int nvlink_centric_sched = kUnset;
  int graph_usage_mode = kUnset;
  int rma_contexts = kUnset;
  int max_p2p_peers = kUnset;
  int graph_stream_ordering = kUnset;
  int launch_order_implicit = kUnset;
  int rma_signals = kUnset;
  int rma_eager_init = kUnset;
  int host_cft_mode = kUnset;
  int nvls_host_mode = kUnset;
};

struct NcclApi {
  int version = 0;  // 23203 stands for 2.32.3
  NcclResult (*get_version)(int* version) = nullptr;
  NcclResult (*get_unique_id)(NcclId* id) = nullptr;
  NcclResult (*init_rank)(NcclHandle** comm, int ranks, NcclId id, int rank, NcclConfig* config) = nullptr;
  NcclResult (*destroy)(NcclHandle* comm) = nullptr;
  NcclResult (*abort)(NcclHandle* comm) = nullptr;
  const char* (*error_string)(NcclResult result) = nullptr;
  const char* (*last_error)(NcclHandle* comm) = nullptr;
  NcclResult (*all_reduce)(const void* in, void* out, std::size_t count, NcclType type, NcclReduction reduction,
                           NcclHandle* comm, cudaStream_t stream) = nullptr;
  NcclResult (*all_gather)(const void* in, void* out, std::size_t count, NcclType type, NcclHandle* comm,
                           cudaStream_t stream) = nullptr;
  NcclResult (*reduce_scatter)(const void* in, void* out, std::size_t count, NcclType type, NcclReduction reduction,
                               NcclHandle* comm, cudaStream_t stream) = nullptr;
  NcclResult (*broadcast)(const void* in, void* out, std::size_t count, NcclType type, int root, NcclHandle* comm,
                          cudaStream_t stream) = nullptr;
  NcclResult (*send)(const void* data, std::size_t count, NcclType type, int peer, NcclHandle* comm,
                     cudaStream_t stream) = nullptr;
  NcclResult (*receive)(void* data, std::size_t count, NcclType type, int peer, NcclHandle* comm,
                        cudaStream_t stream) = nullptr;
  NcclResult (*group_start)() = nullptr;
  NcclResult (*group_end)() = nullptr;

  // Looks for libnccl.so.2 on the library path, or for the file that the environment variable GRAPHSINK_NCCL names, and
  // leaves it open for the life of the process. `problem` is empty, or says why no function can be called. May be
  // called by several threads.
  static const NcclApi& find(std::string& problem);
  // Looks for this library.
  static NcclApi open(const std::string& library, std::string& problem);
};

// The options of this version, at NCCL's defaults. By these it orders launches of graphs and calls outside of graphs
// among each other, which ranks need: a step for new shapes is issued op by op while a launch may be under way. The
// nodes of events that it adds for that may not be in bodies of conditional nodes.
NcclConfig config_of(const NcclApi& nccl);

// "ncclAllReduce returned unhandled system error (...)". The communicator may be null.
std::string nccl_problem(const NcclApi& nccl, const char* call, NcclResult result, NcclHandle* comm);

}  // namespace graphsink
