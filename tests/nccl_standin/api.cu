// The functions of nccl.h that ranks use, on the software CUDA device: each call is one kernel.
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "objects.h"
#include "standin.h"

using graphsink::NcclConfig;
using graphsink::NcclHandle;
using graphsink::NcclId;
using graphsink::NcclReduction;
using graphsink::NcclResult;
using graphsink::NcclType;

namespace nccl_standin {
namespace {

// All communicators: the device may still be at work for one that was destroyed.
struct Known {
  std::mutex mutex;
  std::vector<std::unique_ptr<Rank>> ranks;
};
Known& known() {
  static Known* all = new Known;  // the device may still be at work when the process ends
  return *all;
}

Rank& rank_of(NcclHandle* comm) { return *reinterpret_cast<Rank*>(comm); }

NcclResult refuse(NcclHandle* comm, NcclResult result, const std::string& why) {
  if (comm != nullptr) rank_of(comm).last_error = why;
  return result;
}

// Whether the environment asks for the call to fail.
bool must_fail(const char* function) {
  const char* named = std::getenv("GS_NCCL_FAIL");
  return named != nullptr && std::strcmp(named, function) == 0;
}

// Counts the graph until it is gone, with all that was instantiated from it.
bool note_graph(Rank& rank, cudaGraph_t graph) {
  cudaUserObject_t object = nullptr;
  const auto release = [](void* memory) { --static_cast<Rank*>(memory)->graphs; };
  if (cudaUserObjectCreate(&object, &rank, release, 1, cudaUserObjectNoDestructorSync) != cudaSuccess) return false;
  ++rank.graphs;
  return cudaGraphRetainUserObject(graph, object, 1, cudaGraphUserObjectMove) == cudaSuccess;
}

// Whether a call for this stream would go into another capture than those before, which has not ended.
bool is_in_another_capture(Rank& rank, cudaStream_t stream) {
  const auto before = rank.capture.lock();
  if (before && before != stream->capture && !before->ended) return true;
  rank.capture = stream->capture;
  return false;
}

void wait_for_graphs(const Rank& rank) {
  while (rank.graphs > 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

NcclResult launch(NcclHandle* comm, cudaStream_t stream, Call call, const Operands& operands) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  cudaGraph_t graph = nullptr;
  if (cudaStreamGetCaptureInfo(stream, &status, nullptr, &graph, nullptr, nullptr, nullptr) != cudaSuccess)
    return refuse(comm, NcclResult::invalid_argument, "no stream");
  call.is_captured = status == cudaStreamCaptureStatusActive ? 1 : 0;
  if (graph != nullptr && graph->owner != nullptr && graph->owner->type == cudaGraphNodeTypeConditional)
    return refuse(comm, NcclResult::invalid_usage, "the body of a conditional node may not hold a collective");
  if (graph != nullptr && is_in_another_capture(rank_of(comm), stream))
    return refuse(comm, NcclResult::invalid_usage,
                  "another capture that has not ended holds calls of the communicator");
  if (graph != nullptr && !note_graph(rank_of(comm), graph))
    return refuse(comm, NcclResult::system_error, "no user object for the graph");
  std::vector<const void*> addresses(std::begin(operands.in), std::end(operands.in));
  addresses.insert(addresses.end(), std::begin(operands.out), std::end(operands.out));
  const auto body = [&rank = rank_of(comm), call, operands] {
    carry_out(rank, call, operands);
    return cudaSuccess;
  };
  const cudaError_t code = emu::launch_library_kernel(name_of(call.kind), stream, body, addresses);
  if (code == cudaSuccess) return NcclResult::success;
  return refuse(comm, NcclResult::system_error, cudaGetErrorString(code));
}

NcclResult start(const char* function, NcclHandle* comm, cudaStream_t stream, const Call& call, const void* in,
                 void* out) {
  if (must_fail(function)) return refuse(comm, NcclResult::system_error, "asked for by GS_NCCL_FAIL");
  Operands operands;
  operands.in[0] = in;
  operands.out[0] = out;
  return launch(comm, stream, call, operands);
}

// The calls of an open group of this thread.
struct Group {
  int depth = 0;
  NcclHandle* comm = nullptr;
  cudaStream_t stream = nullptr;
  Call call{.kind = Kind::exchange};
  Operands operands;
};
thread_local Group group;

NcclResult add(const char* function, NcclHandle* comm, cudaStream_t stream, std::size_t count, NcclType type) {
  if (must_fail(function)) return refuse(comm, NcclResult::system_error, "asked for by GS_NCCL_FAIL");
  const bool is_first = group.comm == nullptr;
  const bool fits = is_first || (group.comm == comm && group.stream == stream && group.call.count == count &&
                                 group.call.type == type);
  if (group.depth == 0 || !fits) return refuse(comm, NcclResult::invalid_usage, "the stand-in has equal parts only");
  group.comm = comm;
  group.stream = stream;
  group.call.count = count;
  group.call.type = type;
  return NcclResult::success;
}

}  // namespace
}  // namespace nccl_standin

using nccl_standin::Kind;

#define GRAPHSINK_NCCL extern "C" __attribute__((visibility("default")))

GRAPHSINK_NCCL NcclResult ncclGetVersion(int* version) {
  const char* named = std::getenv("GS_NCCL_VERSION");
  *version = named != nullptr ? std::atoi(named) : static_cast<int>(NcclConfig::kVersion);
  return NcclResult::success;
}

GRAPHSINK_NCCL NcclResult ncclGetUniqueId(NcclId* id) {
  std::string name;
  if (nccl_standin::must_fail("ncclGetUniqueId") || !nccl_standin::create(name)) return NcclResult::system_error;
  *id = NcclId();
  std::memcpy(id->bytes, name.data(), name.size());
  return NcclResult::success;
}

GRAPHSINK_NCCL NcclResult ncclCommInitRankConfig(NcclHandle** comm, int ranks, NcclId id, int rank,
                                                 NcclConfig* config) {
  if (nccl_standin::must_fail("ncclCommInitRankConfig")) return NcclResult::system_error;
  const bool is_new = config->size == sizeof(NcclConfig) && config->graph_usage_mode == NcclConfig::kUnset;
  const bool is_old = config->size == offsetof(NcclConfig, graph_usage_mode);
  const bool is_config = config->magic == NcclConfig().magic && (std::getenv("GS_NCCL_VERSION") ? is_old : is_new);
  if (!is_config || ranks < 1 || ranks > nccl_standin::kMostRanks) return NcclResult::invalid_argument;
  auto made = nccl_standin::join(id.bytes, ranks, rank);
  if (!made) return NcclResult::system_error;
  *comm = reinterpret_cast<NcclHandle*>(made.get());
  const std::lock_guard lock(nccl_standin::known().mutex);
  nccl_standin::known().ranks.push_back(std::move(made));
  return NcclResult::success;
}

GRAPHSINK_NCCL NcclResult ncclCommDestroy(NcclHandle* comm) {
  nccl_standin::wait_for_graphs(nccl_standin::rank_of(comm));
  nccl_standin::leave(nccl_standin::rank_of(comm));
  return NcclResult::success;
}

// Its memory stays, because a kernel may still look at it.
GRAPHSINK_NCCL NcclResult ncclCommAbort(NcclHandle* comm) {
  nccl_standin::rank_of(comm).is_aborted = true;
  nccl_standin::wait_for_graphs(nccl_standin::rank_of(comm));
  return NcclResult::success;
}

GRAPHSINK_NCCL const char* ncclGetErrorString(NcclResult result) {
  switch (result) {
    case NcclResult::success:
      return "no error";
    case NcclResult::system_error:
      return "unhandled system error";
    case NcclResult::invalid_argument:
      return "invalid argument";
    case NcclResult::invalid_usage:
      return "invalid usage";
    case NcclResult::remote_error:
      break;
  }
  return "remote process exited or there was a network error";
}

GRAPHSINK_NCCL const char* ncclGetLastError(NcclHandle* comm) {
  return comm == nullptr ? "" : nccl_standin::rank_of(comm).last_error.c_str();
}

GRAPHSINK_NCCL NcclResult ncclAllReduce(const void* in, void* out, std::size_t count, NcclType type,
                                        NcclReduction reduction, NcclHandle* comm, cudaStream_t stream) {
  return nccl_standin::start("ncclAllReduce", comm, stream,
                             {.kind = Kind::all_reduce, .type = type, .reduction = reduction, .count = count}, in, out);
}

GRAPHSINK_NCCL NcclResult ncclAllGather(const void* in, void* out, std::size_t count, NcclType type, NcclHandle* comm,
                                        cudaStream_t stream) {
  return nccl_standin::start("ncclAllGather", comm, stream, {.kind = Kind::all_gather, .type = type, .count = count},
                             in, out);
}

GRAPHSINK_NCCL NcclResult ncclReduceScatter(const void* in, void* out, std::size_t count, NcclType type,
                                            NcclReduction reduction, NcclHandle* comm, cudaStream_t stream) {
  return nccl_standin::start("ncclReduceScatter", comm, stream,
                             {.kind = Kind::reduce_scatter, .type = type, .reduction = reduction, .count = count}, in,
                             out);
}

GRAPHSINK_NCCL NcclResult ncclBroadcast(const void* in, void* out, std::size_t count, NcclType type, int root,
                                        NcclHandle* comm, cudaStream_t stream) {
  return nccl_standin::start("ncclBroadcast", comm, stream,
                             {.kind = Kind::broadcast, .type = type, .root = root, .count = count}, in, out);
}

GRAPHSINK_NCCL NcclResult ncclSend(const void* data, std::size_t count, NcclType type, int peer, NcclHandle* comm,
                                   cudaStream_t stream) {
  nccl_standin::group.operands.in[peer] = data;
  return nccl_standin::add("ncclSend", comm, stream, count, type);
}

GRAPHSINK_NCCL NcclResult ncclRecv(void* data, std::size_t count, NcclType type, int peer, NcclHandle* comm,
                                   cudaStream_t stream) {
  nccl_standin::group.operands.out[peer] = data;
  return nccl_standin::add("ncclRecv", comm, stream, count, type);
}

GRAPHSINK_NCCL NcclResult ncclGroupStart() {
  ++nccl_standin::group.depth;
  return NcclResult::success;
}

GRAPHSINK_NCCL NcclResult ncclGroupEnd() {
  nccl_standin::Group& group = nccl_standin::group;
  if (group.depth == 0) return NcclResult::invalid_usage;
  if (--group.depth > 0) return NcclResult::success;
  const nccl_standin::Group all = std::exchange(group, nccl_standin::Group());
  if (all.comm == nullptr) return NcclResult::success;
  return nccl_standin::launch(all.comm, all.stream, all.call, all.operands);
}
