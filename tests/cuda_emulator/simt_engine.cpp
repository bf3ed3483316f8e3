#include "simt_engine.h"

#include <cstdio>
#include <cstdlib>

#include "sanitizers.h"
#include "simt.h"
#include "simt_state.h"

uint3 threadIdx;
uint3 blockIdx;
dim3 blockDim;
dim3 gridDim;

void cudaGridDependencySynchronize() { emu::engine.threads[emu::engine.current].has_waited = true; }

namespace emu {

Engine engine;
constinit thread_local bool is_in_kernel = false;

namespace {

alignas(1024) unsigned char shared_memory[kMaxSharedBytes];

std::uint64_t next_random(std::uint64_t& state) {
  state += 0x9E3779B97F4A7C15u;
  std::uint64_t z = state;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

void set_thread_index(int thread) {
  const dim3& block = engine.grid->block;
  const unsigned t = static_cast<unsigned>(thread);
  threadIdx.x = t % block.x;
  threadIdx.y = t / block.x % block.y;
  threadIdx.z = t / block.x / block.y;
}

void carrier();

Fiber* take_fiber() {
  if (engine.free_count == 0) {
    Fiber* fiber = &engine.fibers[engine.fiber_count++];
    fiber_create(*fiber);
    engine.free_fibers[engine.free_count++] = fiber;
  }
  Fiber* fiber = engine.free_fibers[--engine.free_count];
  fiber_reset(*fiber, carrier);
  engine.entering = fiber;
  return fiber;
}

// Where to go when the current thread cannot: a ready thread, a carrier for new threads, or the end of the block.
Fiber* pick_next() {
  const bool may_start = engine.started < engine.thread_count && !engine.failed;
  if (engine.ready_count > 0 && !engine.failed && (engine.resume_first || !may_start)) {
    const int thread = engine.ready[engine.ready_head];
    engine.ready_head = (engine.ready_head + 1) % static_cast<int>(kMaxThreadsPerBlock);
    --engine.ready_count;
    engine.current = thread;
    race_resume(thread);
    return engine.threads[thread].fiber;
  }
  if (may_start) return take_fiber();
  race_resume_main();
  return engine.main;
}

void run_thread(int thread) {
  engine.current = thread;
  engine.threads[thread].state = ThreadState::kRunning;
  set_thread_index(thread);
  race_thread_begin(thread);
  engine.grid->invoke(engine.grid->function, engine.grid->arguments);
  if (engine.grid->must_wait && !engine.threads[thread].has_waited) {
    fail_kernel("a kernel that is launched programmatically has not called cudaGridDependencySynchronize()");
  }
  race_thread_end();
  engine.threads[thread].state = ThreadState::kEnded;
  engine.warps[thread / kWarp].ended |= 1u << (thread % kWarp);
  ++engine.ended;
  release_waiters_of(thread);
}

void carrier() {
  fiber_entered(*engine.switched_from);
  Fiber* self = engine.entering;
  while (engine.started < engine.thread_count) {
    const int thread = engine.order[engine.started++];
    engine.threads[thread].fiber = self;
    run_thread(thread);
    // Stack memory used by two threads would look like a race between them.
    if (race_enabled() || (engine.resume_first && engine.ready_count > 0)) break;
  }
  Fiber* next = pick_next();
  if (!race_enabled()) engine.free_fibers[engine.free_count++] = self;
  engine.switched_from = self;
  fiber_leave(*self, *next);
  std::abort();
}

void describe_deadlock() {
  int first = -1;
  for (int i = 0; i < engine.thread_count && first < 0; ++i) {
    const ThreadState state = engine.threads[i].state;
    if (state == ThreadState::kAtBarrier || state == ThreadState::kInWarp) first = i;
  }
  if (first < 0) return;
  const Thread& thread = engine.threads[first];
  std::snprintf(engine.message, sizeof engine.message,
                "%s:%d: thread %d waits for ever: %d of %d threads are at a barrier, %d have ended (divergent %s)",
                thread.wait_file, thread.wait_line, first, engine.waiting_at_barrier, engine.thread_count, engine.ended,
                thread.state == ThreadState::kAtBarrier ? "__syncthreads" : "warp operation");
  engine.failed = true;
}

void prepare_block(const Grid& grid, std::uint64_t& random) {
  const int count = engine.thread_count;
  engine.started = engine.ended = engine.waiting_at_barrier = 0;
  engine.ready_head = engine.ready_count = 0;
  engine.barrier_number = 0;
  engine.free_count = 0;
  for (int i = 0; i < engine.fiber_count; ++i) engine.free_fibers[engine.free_count++] = &engine.fibers[i];
  for (int i = 0; i < count; ++i) {
    engine.threads[i] = Thread{};
    engine.order[i] = grid.seed % 3 == 1 ? count - 1 - i : i;
  }
  engine.resume_first = grid.seed != 0 && next_random(random) % 2 == 0;
  if (grid.seed > 1) {
    for (int i = count - 1; i > 0; --i) {
      const int j = static_cast<int>(next_random(random) % static_cast<unsigned>(i + 1));
      const int swapped = engine.order[i];
      engine.order[i] = engine.order[j];
      engine.order[j] = swapped;
    }
  }
  for (int first = 0; first < count; first += kWarp) {
    Warp& warp = engine.warps[first / kWarp];
    const int lanes = count - first < kWarp ? count - first : kWarp;
    warp.existing = lanes == kWarp ? 0xffffffffu : (1u << lanes) - 1;
    warp.ended = 0;
    warp.record_count = 0;
  }
  __builtin_memset(shared_memory, 0xFF, grid.shared_bytes);
}

void abandon_block() {
  for (int i = 0; i < engine.fiber_count; ++i) engine.fibers[i].abandoned = true;
  race_forget_threads();
}

void run_block(const Grid& grid, std::uint64_t& random) {
  prepare_block(grid, random);
  race_block_begin(engine.thread_count);
  Fiber main;
  engine.main = &main;
  Fiber* first = take_fiber();
  engine.switched_from = &main;
  fiber_switch(main, *first);
  race_block_end();
  if (!engine.failed && engine.ended < engine.thread_count) describe_deadlock();
  if (engine.failed) abandon_block();
}

}  // namespace

void* dynamic_shared() { return shared_memory; }
int lane_id() { return engine.current % kWarp; }
unsigned existing_lanes() { return engine.warps[engine.current / kWarp].existing; }

std::uint64_t global_thread_id() {
  const dim3& g = engine.grid->grid;
  const std::uint64_t block = (static_cast<std::uint64_t>(blockIdx.z) * g.y + blockIdx.y) * g.x + blockIdx.x;
  return block * static_cast<unsigned>(engine.thread_count) + static_cast<unsigned>(engine.current);
}

void make_ready(int thread) {
  engine.threads[thread].state = ThreadState::kReady;
  const int slot = (engine.ready_head + engine.ready_count++) % static_cast<int>(kMaxThreadsPerBlock);
  engine.ready[slot] = thread;
}

void suspend_current(ThreadState state, const char* file, int line) {
  const int self = engine.current;
  Thread& thread = engine.threads[self];
  thread.state = state;
  thread.wait_file = file;
  thread.wait_line = line;
  Fiber* next = pick_next();
  if (next != thread.fiber) {
    engine.switched_from = thread.fiber;
    fiber_switch(*thread.fiber, *next);
  }
  engine.current = self;
  thread.state = ThreadState::kRunning;
  set_thread_index(self);
}

void fail_kernel(const char* message) {
  if (message != engine.message) std::snprintf(engine.message, sizeof engine.message, "%s", message);
  engine.failed = true;
  race_resume_main();
  Fiber* self = engine.threads[engine.current].fiber;
  engine.switched_from = self;
  fiber_leave(*self, *engine.main);
  std::abort();
}

void fail_kernel_at(const char* file, int line, const char* what) {
  std::snprintf(engine.message, sizeof engine.message, "%s:%d: %s (block %u,%u,%u thread %u,%u,%u)", file, line, what,
                blockIdx.x, blockIdx.y, blockIdx.z, threadIdx.x, threadIdx.y, threadIdx.z);
  fail_kernel(engine.message);
}

const char* run_grid(const Grid& grid) {
  struct InKernel {
    InKernel() { is_in_kernel = true; }
    ~InKernel() { is_in_kernel = false; }
  } in_kernel;
  const char* strict = std::getenv("GS_EMU_STRICT");
  engine.strict = strict == nullptr || strict[0] != '0';
  engine.grid = &grid;
  engine.failed = false;
  engine.thread_count = static_cast<int>(grid.block.x * grid.block.y * grid.block.z);
  blockDim = grid.block;
  gridDim = grid.grid;
  ASAN_UNPOISON_MEMORY_REGION(shared_memory, grid.shared_bytes);
  ASAN_POISON_MEMORY_REGION(shared_memory + grid.shared_bytes, kMaxSharedBytes - grid.shared_bytes);
  race_grid_begin();
  std::uint64_t random = grid.seed;
  const std::uint64_t blocks = static_cast<std::uint64_t>(grid.grid.x) * grid.grid.y * grid.grid.z;
  const std::uint64_t start = grid.seed == 0 ? 0 : next_random(random) % blocks;
  const bool backwards = grid.seed % 2 == 1;
  for (std::uint64_t i = 0; i < blocks && !engine.failed; ++i) {
    const std::uint64_t b = (backwards ? start + blocks - i : start + i) % blocks;
    blockIdx.x = static_cast<unsigned>(b % grid.grid.x);
    blockIdx.y = static_cast<unsigned>(b / grid.grid.x % grid.grid.y);
    blockIdx.z = static_cast<unsigned>(b / grid.grid.x / grid.grid.y);
    run_block(grid, random);
  }
  return engine.failed ? engine.message : nullptr;
}

}  // namespace emu

unsigned __clusterDimIsSpecified() { return emu::engine.grid->cluster.x != 0; }

dim3 __clusterDim() { return __clusterDimIsSpecified() != 0 ? emu::engine.grid->cluster : dim3(1); }

dim3 __clusterIdx() {
  const dim3 size = __clusterDim();
  return {blockIdx.x / size.x, blockIdx.y / size.y, blockIdx.z / size.z};
}

dim3 __clusterGridDimInClusters() {
  const dim3 size = __clusterDim();
  return {gridDim.x / size.x, gridDim.y / size.y, gridDim.z / size.z};
}

dim3 __clusterRelativeBlockIdx() {
  const dim3 size = __clusterDim();
  return {blockIdx.x % size.x, blockIdx.y % size.y, blockIdx.z % size.z};
}

unsigned __clusterRelativeBlockRank() {
  const dim3 size = __clusterDim(), block = __clusterRelativeBlockIdx();
  return (block.z * size.y + block.y) * size.x + block.x;
}

unsigned __clusterSizeInBlocks() {
  const dim3 size = __clusterDim();
  return size.x * size.y * size.z;
}
