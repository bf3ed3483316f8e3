// The ops around a step: begin_step loads its feeds, end_step counts and records it, check_host looks for failed host
// calls, check_device for failures on a further device, check_ranks for those on other ranks, mark_stop tells these
// whether the run stops, tell_step shows the host how the step stands.
#include <atomic>
#include <cstring>
#include <utility>

#include "base/at.h"
#include "device/host_memory.h"
#include "device/step_times.h"
#include "ir/step_state.h"
#include "ir/system_ops.h"
#include "kernels/runtime/fusion_rules.h"
#include "kernels/runtime/stack.h"
#include "kernels/runtime/system_parts.h"
#include "kernels/support/copy.h"
#include "kernels/support/dtype.h"

namespace graphsink {
namespace {

StepState* state_of(const BodyArgs& a) { return static_cast<StepState*>(a.step()); }

constexpr Extent kBlock{static_cast<unsigned>(kThreads)};

// --- begin_step

constexpr int kFeeds = 64;                      // feeds of one launch, at most
constexpr std::int64_t kChunk = kThreads * 64;  // bytes for a block
struct Feeds {
  void* out[kFeeds];
  std::int64_t bytes[kFeeds];
};

// Blocks (., y) load feed y. Nothing here may read `ok`, which the first thread sets meanwhile.
__global__ void load_feeds(const void* const* table, const std::int64_t* strides, Feeds feeds, int count,
                           StepState* step) {
  wait_for_inputs();
  if (blockIdx.x == 0 && blockIdx.y == 0 && threadIdx.x == 0) step->ok = step->error_node < 0 ? 1 : 0;
  auto y = static_cast<int>(blockIdx.y);
  if (y >= count) return;  // a launch without feeds
  const auto* slice = static_cast<const unsigned char*>(table[y]) + strides[y] * step->slice;
  copy_bytes(feeds.out[y], slice, feeds.bytes[y], thread_index(), all_threads());
}

void begin_cuda(CudaArgs& a) {
  for (int first = 0; first == 0 || first < a.outputs(); first += kFeeds) {
    Feeds feeds{};
    int count = std::min(a.outputs() - first, kFeeds);
    std::int64_t blocks = 1;
    for (int i = 0; i < count; ++i) {
      feeds.out[i] = a.out<void>(first + i);
      feeds.bytes[i] = static_cast<std::int64_t>(a.out_type(first + i).bytes());
      blocks = std::max(blocks, (feeds.bytes[i] + kChunk - 1) / kChunk);
    }
    Extent grid{static_cast<unsigned>(std::min(blocks, kMaxBlocks)), static_cast<unsigned>(std::max(count, 1))};
    a.launch(load_feeds, grid, kBlock, 0, a.in<const void*>(0) + first, a.in<std::int64_t>(1) + first, feeds, count,
             state_of(a));
  }
}

void begin_cpu(const CpuArgs& a) {
  StepState* step = state_of(a);
  step->ok = step->error_node < 0 ? 1 : 0;
  for (int i = 0; i < a.outputs(); ++i) {
    const auto* slice = a.in<const std::byte*>(0)[i] + a.in<std::int64_t>(1)[i] * step->slice;
    std::size_t bytes = a.out_type(i).bytes();
    if (bytes > 0) std::memcpy(a.out<void>(i), slice, bytes);
  }
}

const OpDef begin_op{.name = "begin_step",
                     .traits = {.kernels_wait = true},
                     .prepare = load_kernels<load_feeds>,
                     .bodies = {begin_cpu, begin_cuda}};

// --- end_step

constexpr int kRecords = 128;  // records of one launch, at most
struct Records {
  const void* value[kRecords];
  double* ring[kRecords];
  std::uint32_t capacity[kRecords];
  std::int32_t elements[kRecords];
  DType dtype[kRecords];
};

// The next step of the launch begins where this one ends.
HD void tell_time(StepState* step, std::uint32_t ok) {
  if (step->times == nullptr) return;
  std::int64_t now = device_now();
  StepTime& time = step->times->ring[step->timed % StepTimes::kCapacity];
  put(time.tag, step->tag);
  put(time.ns, now - step->began);
  put(time.ok, ok);
  tell_host(&step->times->count, ++step->timed);
  step->began = now;
}

HD void tell_failure(Progress* progress, const StepState* step) {
  put(progress->error_node, step->error_node);
  put(progress->error_step, step->error_step);
  put(progress->error, step->error);
  put(progress->error_index, step->error_index);
  put(progress->size_node, step->size_node);
  put(progress->size, step->size);
  put(progress->slice, step->slice);
  tell_host(&progress->failed, 1);
}

struct Stops {
  const bool* condition[kMaxStops];
  int count = 0;
};

// Ends a step, once its records are kept. One thread.
HD void end_of_step(StepState* step, const Stops& stops, Progress* progress) {
  const std::uint32_t ok = step->ok;
  int stop = 0;
  while (ok != 0 && stop < stops.count && !*stops.condition[stop]) ++stop;  // a failed step may not have computed them
  const bool stops_here = ok != 0 && stop < stops.count;
  if (stops_here) {
    step->error_node = kStopNode;
    step->error_step = step->step;
    step->error = StepError::stopped;
    step->error_index = stop;
  }
  if (ok != 0) {
    step->step = static_cast<std::int32_t>(static_cast<std::uint32_t>(step->step) + 1u);  // it may begin again
    tell_host(&progress->records, ++step->records);
  }
  ++step->slice;
  if (ok == 0 || stops_here) tell_failure(progress, step);
  step->more = ok != 0 && !stops_here && step->slice < step->end_slice;
  tell_time(step, ok);
}

// Keeps each value in its ring; the launch with the last of them ends the step. One block.
__global__ void keep_records(Records records, int count, bool is_last, Stops stops, StepState* step,
                             Progress* progress) {
  wait_for_inputs();
  std::uint32_t ok = step->ok, recorded = step->records;
  fence_for_host();  // who sees a value of this step sees that the steps before it have ended
  const auto thread = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
  for (int i = thread; ok != 0 && i < count; i += threads) {
    if (records.elements[i] == 1)
      records.ring[i][recorded % records.capacity[i]] = read_float(records.value[i], records.dtype[i]);
  }
  for (int i = 0; ok != 0 && i < count; ++i) {  // values of several elements take all threads
    const int elements = records.elements[i];
    if (elements == 1) continue;
    double* place = records.ring[i] + static_cast<std::int64_t>(recorded % records.capacity[i]) * elements;
    for (int k = thread; k < elements; k += threads) place[k] = read_float(records.value[i], records.dtype[i], k);
  }
  __syncthreads();  // all have read the step block
  if (is_last && threadIdx.x == 0) end_of_step(step, stops, progress);
}

// The inputs behind the records.
Stops stops_of(const BodyArgs& a, int records) {
  Stops stops{};
  for (int i = records; i < a.inputs(); ++i) stops.condition[stops.count++] = a.in<bool>(i);
  return stops;
}

void end_cuda(CudaArgs& a) {
  const auto& attrs = a.attrs<EndAttrs>();
  const auto all = static_cast<int>(attrs.capacities.size());
  const Stops stops = stops_of(a, all);
  auto* ring = a.out<double>(0);
  for (int first = 0; first == 0 || first < all; first += kRecords) {
    Records records{};
    int count = std::min(all - first, kRecords);
    for (int i = 0; i < count; ++i) {
      const std::int64_t capacity = attrs.capacities[at(first + i)], elements = a.in_type(first + i).shape.size();
      records.value[i] = a.in<void>(first + i);
      records.ring[i] = std::exchange(ring, ring + capacity * elements);
      records.elements[i] = static_cast<std::int32_t>(elements);
      records.capacity[i] = static_cast<std::uint32_t>(capacity);
      records.dtype[i] = a.in_type(first + i).dtype;
    }
    a.launch(keep_records, Extent{}, Extent{32}, 0, records, count, first + kRecords >= all, stops, state_of(a),
             attrs.progress);
  }
}

void end_cpu(const CpuArgs& a) {
  StepState* step = state_of(a);
  const auto& attrs = a.attrs<EndAttrs>();
  const auto records = static_cast<int>(attrs.capacities.size());
  if (step->ok != 0) {
    auto* ring = a.out<double>(0);
    for (int i = 0; i < records; ++i) {
      const std::int64_t capacity = attrs.capacities[at(i)], elements = a.in_type(i).shape.size();
      double* place = ring + step->records % capacity * elements;
      for (std::int64_t k = 0; k < elements; ++k)  // the host may read the old ones
        put(place[k], read_float(a.in<void>(i), a.in_type(i).dtype, k));
      ring += capacity * elements;
    }
  }
  end_of_step(step, stops_of(a, records), attrs.progress);
}

const OpDef end_op{.name = "end_step",
                   .traits = {.kernels_wait = true},
                   .prepare = load_kernels<keep_records>,
                   .bodies = {end_cpu, end_cuda}};

// --- check_host

__global__ void read_host_flag(const volatile std::uint32_t* failed, const volatile std::int32_t* node,
                               StepState* step) {
  wait_for_inputs();
  if (*failed != 0) fail_step(step, *node, StepError::unknown, 0);  // HostStatus has the message
}

void check_host_cuda(CudaArgs& a) {
  const auto& flag = a.attrs<HostFlagAttrs>();
  a.launch(read_host_flag, Extent{}, Extent{}, 0, flag.failed, flag.node, state_of(a));
}

const OpDef check_host_op{.name = "check_host",
                          .traits = {.host_effect = true, .kernels_wait = true},
                          .prepare = load_kernels<read_host_flag>,
                          .bodies = {check_host_cuda}};

// --- check_device

// A node that failed says which it is; without one the step had failed before it began.
__global__ void read_step_block(const StepState* theirs, StepState* step) {
  wait_for_inputs();
  if (theirs->ok != 0 || theirs->error_node < 0) return;
  if (theirs->size_node >= 0 && step->size_node < 0) {
    step->size = theirs->size;
    step->size_node = theirs->size_node;
  }
  fail_step(step, theirs->error_node, theirs->error, theirs->error_index);
}

void check_device_cuda(CudaArgs& a) {
  a.launch(read_step_block, Extent{}, Extent{}, 0, a.in<StepState>(0), state_of(a));
}

const OpDef check_device_op{.name = "check_device",
                            .traits = {.host_effect = true, .kernels_wait = true},  // part of the commit, as check_host
                            .prepare = load_kernels<read_step_block>,
                            .bodies = {check_device_cuda}};

// --- mark_stop

HD void mark_stop(StepState* step, const Stops& stops) {
  step->stops = false;
  for (int i = 0; i < stops.count && step->ok != 0; ++i)  // a failed step may not have computed them
    step->stops = step->stops || *stops.condition[i];
}

__global__ void mark_stop_kernel(Stops stops, StepState* step) {
  wait_for_inputs();
  mark_stop(step, stops);
}

void mark_stop_cpu(const CpuArgs& a) { mark_stop(state_of(a), stops_of(a, 0)); }

void mark_stop_cuda(CudaArgs& a) { a.launch(mark_stop_kernel, Extent{}, Extent{}, 0, stops_of(a, 0), state_of(a)); }

const OpDef mark_stop_op{.name = "mark_stop",
                         .traits = {.host_effect = true, .kernels_wait = true},
                         .prepare = load_kernels<mark_stop_kernel>,
                         .bodies = {mark_stop_cpu, mark_stop_cuda}};

// --- check_ranks

// A rank that failed in an earlier step has told of it then, and this one follows that step, too. A gather that was
// given up ends after the word was set, and may leave anything.
__global__ void read_step_blocks(const StepState* all, int ranks, int node, const volatile std::uint32_t* given_up,
                                 StepState* step) {
  wait_for_inputs();
  if (*given_up != 0) return fail_step(step, node, StepError::unknown, 0);  // the Error of the wait has the message
  for (int rank = 0; rank < ranks; ++rank) {
    const StepState& theirs = all[rank];
    if (theirs.ok != 0 || theirs.error_node < 0) continue;
    fail_step(step, node, StepError::other_rank, packed({rank, theirs.error, theirs.error_index}));
    return;
  }
  for (int rank = 0; rank < ranks && step->ok != 0; ++rank) {
    if (all[rank].ok == 0) continue;
    if (all[rank].step != step->step) {
      fail_step(step, node, StepError::other_step, step_of_rank(rank, all[rank].step));
    } else if (all[rank].stops != step->stops) {
      fail_step(step, node, StepError::other_stop, stop_of_rank(rank, step->stops));
    }
  }
}

void check_ranks_cuda(CudaArgs& a) {
  const auto ranks = static_cast<int>(a.in_type(0).bytes() / sizeof(StepState));
  const auto& flag = a.attrs<RankFlagAttrs>();
  a.launch(read_step_blocks, Extent{}, Extent{}, 0, a.in<StepState>(0), ranks, flag.id, flag.given_up, state_of(a));
}

__global__ void read_given_up(const volatile std::uint32_t* given_up, int node, StepState* step) {
  wait_for_inputs();
  if (*given_up != 0) fail_step(step, node, StepError::unknown, 0);
}

void fail_if_set(CudaArgs& a, const std::uint32_t* word, int node) {
  a.launch(read_given_up, Extent{}, Extent{}, 0, word, node, state_of(a));
}

const OpDef check_ranks_op{.name = "check_ranks",
                           .traits = {.host_effect = true, .kernels_wait = true},  // part of the commit, as check_host
                           .prepare = load_kernels<read_step_blocks, read_given_up>,
                           .bodies = {check_ranks_cuda}};

// --- tell_step

__global__ void copy_step_block(const StepState* step, StepState* to) {
  wait_for_inputs();
  *to = *step;
}

void tell_step_cuda(CudaArgs& a) { a.launch(copy_step_block, Extent{}, Extent{}, 0, state_of(a), a.out<StepState>(0)); }

const OpDef tell_step_op{.name = "tell_step",
                         .traits = {.kernels_wait = true},
                         .prepare = load_kernels<copy_step_block>,
                         .bodies = {tell_step_cuda}};

}  // namespace

// Visible in a shared library to graphsink::ranks.
GRAPHSINK_PUBLIC const SystemOps& system_ops() {
  static constexpr SystemOps kOps{&begin_op,        &end_op,       &store_op,       &check_op,   &check_host_op,
                                  &check_device_op, &mark_stop_op, &check_ranks_op, fail_if_set, &tell_step_op,
                                  &clear_op,        &store_at_op,  &slice_at_op,    fused_ops,   fused_kernel_ops,
                                  &lap_op,          kFusionRules};
  return kOps;
}

}  // namespace graphsink
