#include "simt.h"
#include "simt_state.h"

namespace emu {
namespace {

// Addresses that stand for barriers of even and odd number, so that a fast thread at the next barrier is not ordered
// before a slow one that is still leaving this one.
char barrier_token[2];

void finish_barrier() {
  int count = 0;
  for (int i = 0; i < engine.thread_count; ++i) count += engine.threads[i].predicate != 0;
  engine.barrier_result = count;
  engine.waiting_at_barrier = 0;
  ++engine.barrier_number;
  for (int i = 0; i < engine.thread_count; ++i) {
    const int thread = engine.order[i];
    if (engine.threads[thread].state == ThreadState::kAtBarrier) make_ready(thread);
  }
}

int expected_at_barrier() { return engine.strict ? engine.thread_count : engine.thread_count - engine.ended; }

unsigned expected_lanes(const Warp& warp, unsigned mask) {
  const unsigned lanes = mask & warp.existing;
  return engine.strict ? lanes : lanes & ~warp.ended;
}

unsigned long long result_of(const WarpRecord& record, int lane, int source) {
  switch (record.kind) {
    case Collective::kSyncWarp:
      return 0;
    case Collective::kShuffle:
      // Reading a lane outside the mask is undefined: give bytes that show.
      if (source == lane) return record.values[lane];
      return (record.arrived >> source & 1u) != 0 ? record.values[source] : ~0ull;
    default:
      break;
  }
  unsigned set = 0;
  for (int i = 0; i < kWarp; ++i) {
    if ((record.arrived >> i & 1u) != 0 && record.values[i] != 0) set |= 1u << i;
  }
  return set;
}

WarpRecord& find_record(Warp& warp, Collective kind, unsigned mask, const char* file, int line) {
  WarpRecord* unused = nullptr;
  for (int i = 0; i < warp.record_count; ++i) {
    WarpRecord& record = warp.records[i];
    if (!record.active) {
      if (unused == nullptr) unused = &record;
    } else if (record.mask == mask && record.arrived != expected_lanes(warp, mask)) {
      if (record.kind != kind) fail_kernel_at(file, line, "lanes of one mask are in different warp operations");
      return record;
    }
  }
  // Each record in use has a lane that has not left it, so there are enough.
  if (unused == nullptr) unused = &warp.records[warp.record_count++];
  unused->active = true;
  unused->kind = kind;
  unused->mask = mask;
  unused->arrived = unused->left = 0;
  return *unused;
}

void release_record(Warp& warp, WarpRecord& record, int skip) {
  const int first = static_cast<int>(&warp - engine.warps) * kWarp;
  for (int lane = 0; lane < kWarp; ++lane) {
    if ((record.arrived >> lane & 1u) == 0 || first + lane == skip) continue;
    Thread& thread = engine.threads[first + lane];
    if (thread.state == ThreadState::kInWarp && thread.record == &record) make_ready(first + lane);
  }
}

}  // namespace

int block_barrier_count(int predicate, const char* file, int line) {
  Thread& self = engine.threads[engine.current];
  for (int i = 0; i < engine.thread_count && engine.waiting_at_barrier > 0; ++i) {
    const Thread& other = engine.threads[i];
    if (other.state != ThreadState::kAtBarrier) continue;
    if (other.wait_line != line) fail_kernel_at(file, line, "threads of one block are at different __syncthreads");
    break;
  }
  self.predicate = predicate;
  const char* token = &barrier_token[engine.barrier_number % 2];
  race_release(token);
  if (++engine.waiting_at_barrier == expected_at_barrier()) {
    // The last to come waits its turn like the others, so that who continues first does not depend on who came last.
    self.state = ThreadState::kAtBarrier;
    finish_barrier();
  }
  if (self.state == ThreadState::kReady) {
    suspend_current(ThreadState::kReady, file, line);
  } else {
    suspend_current(ThreadState::kAtBarrier, file, line);
  }
  race_acquire(token);
  return engine.barrier_result;
}

void block_barrier(const char* file, int line) { block_barrier_count(0, file, line); }

unsigned long long warp_collective(Collective kind, unsigned mask, unsigned long long value, int source,
                                   const char* file, int line) {
  const int current = engine.current, lane = current % kWarp;
  Warp& warp = engine.warps[current / kWarp];
  if ((mask >> lane & 1u) == 0) fail_kernel_at(file, line, "the calling lane is not in the mask");
  WarpRecord& record = find_record(warp, kind, mask, file, line);
  record.arrived |= 1u << lane;
  record.values[lane] = value;
  engine.threads[current].record = &record;
  if (kind == Collective::kSyncWarp) race_release(&record);
  if (record.arrived == expected_lanes(warp, mask)) {
    release_record(warp, record, current);
  } else {
    suspend_current(ThreadState::kInWarp, file, line);
  }
  if (kind == Collective::kSyncWarp) race_acquire(&record);
  const unsigned long long result = result_of(record, lane, source);
  record.left |= 1u << lane;
  if (record.left == record.arrived) record.active = false;
  return result;
}

void release_waiters_of(int thread) {
  if (engine.strict) return;
  if (engine.waiting_at_barrier > 0 && engine.waiting_at_barrier == expected_at_barrier()) finish_barrier();
  Warp& warp = engine.warps[thread / kWarp];
  for (int i = 0; i < warp.record_count; ++i) {
    WarpRecord& record = warp.records[i];
    if (record.active && record.left == 0 && record.arrived == expected_lanes(warp, record.mask)) {
      release_record(warp, record, -1);
    }
  }
}

}  // namespace emu
