// State of the block that is running. Plain arrays: see fiber.h on why no containers.
#pragma once

#include "fiber.h"
#include "simt_engine.h"

namespace emu {

inline constexpr int kWarp = 32;

// One warp operation in progress. Lanes find it by their mask; it is free again when all lanes have left.
struct WarpRecord {
  bool active;
  Collective kind;
  unsigned mask;
  unsigned arrived;
  unsigned left;
  unsigned long long values[kWarp];
};

enum class ThreadState : unsigned char { kNew, kRunning, kReady, kAtBarrier, kInWarp, kEnded };

struct Thread {
  ThreadState state;
  bool has_waited;  // for the grids before this one
  int predicate;
  int wait_line;
  const char* wait_file;
  Fiber* fiber;
  WarpRecord* record;
};

struct Warp {
  unsigned existing;
  unsigned ended;
  int record_count;  // those after have not been used in this block
  WarpRecord records[kWarp];
};

struct Engine {
  const Grid* grid;
  int thread_count;
  int started;
  int ended;
  int waiting_at_barrier;
  int barrier_result;
  unsigned barrier_number;
  int current;
  bool failed;
  bool strict;
  bool resume_first;  // prefer threads that may go on over threads that have not begun
  Fiber* main;
  Fiber* switched_from;
  Fiber* entering;
  int ready_head;
  int ready_count;
  int free_count;
  int fiber_count;
  int order[kMaxThreadsPerBlock];
  int ready[kMaxThreadsPerBlock];
  Thread threads[kMaxThreadsPerBlock];
  Warp warps[kMaxThreadsPerBlock / kWarp];
  Fiber* free_fibers[kMaxThreadsPerBlock + 1];
  Fiber fibers[kMaxThreadsPerBlock + 1];
  char message[512];
};

extern Engine engine;

// Lets other threads run until this one is made ready.
void suspend_current(ThreadState state, const char* file, int line);
void make_ready(int thread);
[[noreturn]] void fail_kernel_at(const char* file, int line, const char* what);
// A thread has ended while others may wait for it; only acts when GS_EMU_STRICT=0.
void release_waiters_of(int thread);

// Thread sanitizer as a race checker: each CUDA thread has its own context and only barriers order them. All do nothing
// in a program without thread sanitizer.
bool race_enabled();
void race_grid_begin();
void race_block_begin(int threads);
void race_block_end();
void race_thread_begin(int thread);
void race_thread_end();
void race_resume(int thread);
void race_resume_main();
void race_release(const void* address);
void race_acquire(const void* address);
void race_forget_threads();

}  // namespace emu
