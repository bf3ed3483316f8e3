// CompileOptions, RunOptions, WriteOptions: what a program is told beside its graph and its data.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "graphsink/graph.h"
#include "graphsink/log.h"
#include "graphsink/stream.h"
#include "graphsink/target.h"
#include "graphsink/version.h"

namespace GRAPHSINK_PUBLIC graphsink {

// Checks that search for mistakes in ops and in this library. All are slow and off by default.
struct Guards {
  // Before each run, the memory of all values is filled with bytes 0xff, which are a NaN in every float type: the arena
  // and the memory of ops on the host. An op that reads what no op of the run wrote shows in its results.
  bool poison = false;
  // Every Nth sunk run is repeated: first op by op, then sunk from the same state, and the bits of Variables, outputs
  // and records are compared; of a run in which a step fails, what the steps before it have left. 0 means never;
  // compile() refuses a negative number. Such a run() waits, and throws Error naming what differs. Effects of ops on
  // the host happen twice.
  int replay_every = 0;
  // After each capture, the arguments of its kernels are read back. A warning is logged, once for each op, for an
  // address in memory that the program has freed or has not allocated yet, and for a scalar argument that differs from
  // the previous capture of the same op: a captured graph keeps the old value. Structs passed as arguments are not
  // examined, and numbers that a library passes are not compared (CudaArgs::count_kernel()). CUDA only: other devices
  // read the arguments in every step.
  bool arguments = false;
  // On the CPU, threads share all work that they can share, also where that takes longer than on one thread: a test of
  // what they share, with small shapes.
  bool share_all = false;
};

// How a program becomes fast. No result depends on it.
struct Tuning {
  // Computes a product together with the bias and the activation that follow it, and element-wise ops together that use
  // each other's results, or that are small and of one shape; attention reads and writes its operands where they lie,
  // without the ops that only move elements there and back. Fewer nodes and less memory, the same bits. With
  // check_finite element-wise ops stay separate, so that the Error can name each op. On the CPU they are computed block
  // by block. On a GPU they become one kernel, which NVRTC compiles at the first run for a set of input shapes; other
  // sizes need no other kernel. Where NVRTC is missing they stay separate, and explain() says so. Compiled kernels are
  // kept in the folder that the environment variable GRAPHSINK_KERNEL_CACHE names (nowhere if it is empty), by default
  // $XDG_CACHE_HOME/graphsink/kernels or
  // ~/.cache/graphsink/kernels: Counters::compiled_kernels and cached_kernels tell what was compiled and what was
  // found.
  bool fuse = true;
  // On GPUs of compute capability 9.0 and above, captured graphs launch kernels programmatically, which is to say that
  // the GPU may get a kernel ready while the one in front of it still ends. Each kernel first waits for that end, so
  // the results are the same. It takes one kernel in front, on the same stream, and OpTraits::kernels_wait of both ops:
  // behind copies, products and other work of libraries, ops on the host, branches and loops, and where streams join,
  // kernels are launched as usual. explain() says "pdl" of ops whose first kernel is launched so, and
  // CaptureInfo::programmatic_edges counts what was captured. It is off, because it saves time only between
  // tiny kernels: on an H100 a chain of 1,000 of them takes 0.72 of the time, but the steps of mlp, lstm and gpt take
  // as long as without it. A program for cpu() ignores it.
  bool programmatic_launch = false;
  // On a GPU, a loop with a known number of iterations, at most 1,024, such as that of scan(), runs several of them at
  // once: a run of its body is up to 8 iterations, one after the other, if their number has such a divisor, and the
  // body at most 256 ops then, before they are joined. A loop whose iterations are one run is left out altogether. It
  // saves the time that a WHILE node takes between two runs, which on an H200 is that of six small kernels, and copies
  // of the state. Captures take longer, and more memory. A body that has loops or branches inside stays as it is. A
  // program for cpu() ignores it.
  bool unroll_loops = true;
  // Number of threads that work on a step on the CPU device, the caller's not counted. In the modes that sink, which
  // thread computes which part of which op is decided when the step is captured. How much is shared follows the
  // machine: now and then a launch is measured that shares less or nothing, and what was faster is kept. In
  // interactive_parallel, threads that no stream needs help with the op that runs; in interactive_serial, one thread
  // computes all. 0: as many as the process may use cores. Results do not depend on it. compile() refuses a negative
  // number, and more than 1024. If the process has a limit on its memory (ulimit -v), compile() has OpenBLAS take 128
  // MiB of addresses for each thread, and throws Error if the limit leaves too little: OpenBLAS itself would wait for
  // them forever.
  int threads = 0;
  // After how many steps with the same input shapes the modes that sink capture the step. Only for graphs with open
  // dimensions; without any, the first step runs interactively and is then captured. 0: when it pays. Then what
  // captures take and what sunk steps save is measured, and shapes are captured once their steps so far would have
  // saved, sunk, what a capture takes; `sink` and `split_sink` capture after 8 steps at the latest. Programs differ in
  // that only by their speed, never by results. compile() refuses a negative number.
  std::int64_t capture_after = 0;
};

// Bounds of the memory and the patience that a program takes.
struct Limits {
  // A warning is logged when an op has been running on the host of a GPU for longer than this, and again each time that
  // duration doubles, because its step and everybody who waits for the step hang. For a program with while_ loops, on
  // any device, the same warning is logged when a call has been waiting for longer than this and no launch has ended
  // meanwhile. 0 means never; at most 100 years.
  std::chrono::milliseconds host_op_patience{10000};
  // For each set of input shapes that was bound, a program keeps the plan, workspaces and captured graphs, so that the
  // shapes can come back at no cost. When all sets together take more bytes than this, the least recently used ones are
  // dropped, with a warning the first time, and are made anew if their shapes come back. The shapes written last are
  // never dropped, and neither are shapes whose steps may still be running. Counters::cached_bytes tells what they
  // take.
  std::size_t shape_cache_bytes = std::size_t{1} << 30;
  // The same limit as a number of sets: if there are more, the least recently used ones are dropped. The captured
  // graphs of the set that was dropped last are kept, and the next capture changes them in place where the device can
  // do that (Counters::graph_updates), which is cheaper than a capture from nothing. Both limits are enforced when a
  // new set of shapes is bound, and when one is captured.
  std::size_t shape_cache_shapes = std::numeric_limits<std::size_t>::max();
  // Where the target exchanges values with other ranks (nccl_world()), a launch of several steps is unrolled: a graph
  // in which the nodes of a step stand once for each step. This bounds the nodes of such a graph, as explain() counts
  // those of a step, with copies, branches and loops; a step with more than half as many takes a launch of its own. A
  // program captures launches of 2, 4, 8 ... steps, as its runs need them, at most 1024; together they take twice the
  // memory of the longest one. Ranks with different plans take the least of their numbers. It changes no result.
  std::size_t unrolled_nodes = 8192;
};

// The argument of compile(): the device, and how the program is made for it.
struct CompileOptions {
  DeviceId target = cpu();  // device that runs the program
  // Further CUDA devices of a program whose target is one: the placement on_device(1) means the first of them. Values
  // are copied between devices, directly where the devices can reach each other's memory, else through the host. An op
  // without a placement runs where the fewest bytes have to be copied. Control flow, inputs and outputs stay on
  // `target`, and so do Variables that have no placement. A program for cpu() ignores these devices and all placements.
  // At most kMaxFurtherTargets.
  std::vector<DeviceId> further_devices{};
  // Checks every float result. A step that computes an infinity or a NaN fails, and the Error names the op that did so
  // first. For a function that is made of several ops, such as attention() with a mask, only the results are checked,
  // and for a gradient only what it hands on: inside, -inf may stand for what is masked. Slow.
  bool check_finite = false;
  // CPU bodies, on any thread and on the host of a GPU too, read denormal numbers as zeros and write zeros in place of
  // denormal results. Values of training that decay, such as the moments of an optimizer, would otherwise become
  // denormal, and x86-64 processors compute with those up to a hundred times slower. The results are the same in every
  // mode. The setting of the caller's thread changes nothing and stays what it is. Numbers of f16 that are denormal in
  // f16 are kept, because they are computed in f32. GPU kernels always compute with denormals. If this is false, CPU
  // bodies do so too. Only x86-64 processors are told; others compute with denormals.
  bool flush_denormals = true;
  // Where ops run for which the user asks for no placement: on_device puts each op on the device if it has a body for
  // it, and on_cpu puts each op on the host if it has a CPU body. By default the planner decides.
  Placement default_placement{};
  // compile() throws Error, with all reasons, unless the whole step is one launch.
  bool require_whole_graph = false;
  // Seed of the random ops, which draw the same numbers for the same seed, step and graph in every mode and order of
  // execution.
  std::uint32_t seed = 0;
  Tuning tuning{};  // choices of speed
  Limits limits{};  // bounds of memory and patience
  Guards guards{};  // searches for mistakes, all off by default
  // Receives what the program and its device log. Empty: spdlog's default logger.
  LogFunction log{};
};

// Options of Program::run().
struct RunOptions {
  // Steps to run. In sink mode all of them are one launch where the plan allows it.
  std::int64_t steps = 1;
  // A CUDA stream of the caller's; nullptr is the legacy default stream. The run begins when
  // everything that the stream was given so far is done, and what the stream is given after run() has returned waits
  // for the run. Empty: the run is ordered only with other runs. The stream must belong to the target of the program,
  // must not be capturing, and must exist until run() returns; the program does not keep it. If run() throws, nothing
  // on the stream waits for it. This makes five more CUDA calls for each run.
  std::optional<cudaStream_t> stream{};
};

// Options of Program::write().
struct WriteOptions {
  // A CUDA stream of the caller's, as in RunOptions: the copy begins when everything that the stream was given so far
  // is done, and what the stream is given after write() has returned waits for the copy. write() returns without
  // waiting for either. For launches of a graph that holds a step (Program::enqueue()). Empty: the copy is ordered with
  // runs; into memory of bind_memory(), and once a step was captured, write() waits for it, so all that follows sees
  // it.
  std::optional<cudaStream_t> stream{};
};

}  // namespace graphsink
