// What src/ranks/nccl_api.h declares is what nccl.h declares. Compiled where there is an nccl.h.
#if defined(GRAPHSINK_CUDA) && __has_include(<nccl.h>)

#include <nccl.h>

#include <cstddef>
#include <type_traits>

#include "ranks/nccl_api.h"

namespace graphsink::nccl_header_test {
namespace {

// Whether a caller passes the one as it passes the other.
template <class Ours, class Theirs>
constexpr bool kPassesAlike =
    sizeof(Ours) == sizeof(Theirs) && alignof(Ours) == alignof(Theirs) &&
    std::is_pointer_v<Ours> == std::is_pointer_v<Theirs>&& std::is_class_v<Ours> ==
        std::is_class_v<Theirs>&& std::is_floating_point_v<Ours> == std::is_floating_point_v<Theirs>;

template <class Ours, class Theirs>
constexpr bool kCallsAlike = false;
template <class R, class... P, class S, class... Q>
requires(sizeof...(P) == sizeof...(Q)) constexpr bool kCallsAlike<R (*)(P...), S (*)(Q...)> = kPassesAlike<R, S> &&
                                                                                              (kPassesAlike<P, Q> &&
                                                                                               ...);

#define GRAPHSINK_CALLS_ALIKE(member, function) \
  static_assert(kCallsAlike<decltype(NcclApi::member), decltype(&function)>)
GRAPHSINK_CALLS_ALIKE(get_version, ncclGetVersion);
GRAPHSINK_CALLS_ALIKE(get_unique_id, ncclGetUniqueId);
GRAPHSINK_CALLS_ALIKE(init_rank, ncclCommInitRankConfig);
GRAPHSINK_CALLS_ALIKE(destroy, ncclCommDestroy);
GRAPHSINK_CALLS_ALIKE(abort, ncclCommAbort);
GRAPHSINK_CALLS_ALIKE(error_string, ncclGetErrorString);
GRAPHSINK_CALLS_ALIKE(last_error, ncclGetLastError);
GRAPHSINK_CALLS_ALIKE(all_reduce, ncclAllReduce);
GRAPHSINK_CALLS_ALIKE(all_gather, ncclAllGather);
GRAPHSINK_CALLS_ALIKE(reduce_scatter, ncclReduceScatter);
GRAPHSINK_CALLS_ALIKE(broadcast, ncclBroadcast);
GRAPHSINK_CALLS_ALIKE(send, ncclSend);
GRAPHSINK_CALLS_ALIKE(receive, ncclRecv);
GRAPHSINK_CALLS_ALIKE(group_start, ncclGroupStart);
GRAPHSINK_CALLS_ALIKE(group_end, ncclGroupEnd);
#undef GRAPHSINK_CALLS_ALIKE

template <class Ours, class Theirs>
constexpr bool equal(Ours ours, Theirs theirs) {
  return static_cast<int>(ours) == static_cast<int>(theirs);
}
static_assert(equal(NcclResult::success, ncclSuccess) && equal(NcclResult::system_error, ncclSystemError));
static_assert(equal(NcclResult::invalid_argument, ncclInvalidArgument));
static_assert(equal(NcclResult::invalid_usage, ncclInvalidUsage) && equal(NcclResult::remote_error, ncclRemoteError));
static_assert(equal(NcclType::u8, ncclUint8) && equal(NcclType::i32, ncclInt32) && equal(NcclType::i64, ncclInt64));
static_assert(equal(NcclType::f16, ncclFloat16) && equal(NcclType::f32, ncclFloat32));
static_assert(equal(NcclType::f64, ncclFloat64) && equal(NcclType::bf16, ncclBfloat16));
static_assert(equal(NcclReduction::sum, ncclSum) && equal(NcclReduction::max, ncclMax));
static_assert(equal(NcclReduction::mean, ncclAvg));
static_assert(sizeof(NcclId) == sizeof(ncclUniqueId));

// A later header may have more options, behind these.
static_assert(NCCL_VERSION_CODE < NcclConfig::kVersion || sizeof(NcclConfig) <= sizeof(ncclConfig_t));
static_assert(NcclConfig::kUnset == NCCL_CONFIG_UNDEF_INT);
static_assert(offsetof(NcclConfig, version) == offsetof(ncclConfig_t, version));
static_assert(offsetof(NcclConfig, net_name) == offsetof(ncclConfig_t, netName));
static_assert(offsetof(NcclConfig, comm_name) == offsetof(ncclConfig_t, commName));
static_assert(offsetof(NcclConfig, nvls_ctas) == offsetof(ncclConfig_t, nvlsCTAs));
#if NCCL_VERSION_CODE >= 22800 && NCCL_VERSION_CODE < 22900
static_assert(offsetof(NcclConfig, graph_usage_mode) == sizeof(ncclConfig_t));
#endif
#if NCCL_VERSION_CODE >= 23000
static_assert(offsetof(NcclConfig, graph_usage_mode) == offsetof(ncclConfig_t, graphUsageMode));
#endif
#if NCCL_VERSION_CODE >= 23203
static_assert(offsetof(NcclConfig, nvls_host_mode) == offsetof(ncclConfig_t, nvlsHostMode));
#endif
#ifdef NCCL_API_MAGIC
static_assert(NcclConfig{}.magic == NCCL_API_MAGIC);
#endif

}  // namespace
}  // namespace graphsink::nccl_header_test

#endif
