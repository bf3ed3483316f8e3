// compile(), Program, Eager: the front door.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iosfwd>
#include <memory>
#include <optional>
#include <ranges>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "graphsink/automatic.h"
#include "graphsink/counters.h"
#include "graphsink/graph.h"
#include "graphsink/memory.h"
#include "graphsink/mode.h"
#include "graphsink/op_time.h"
#include "graphsink/options.h"
#include "graphsink/plan_summary.h"
#include "graphsink/stream.h"
#include "graphsink/version.h"

namespace GRAPHSINK_PUBLIC graphsink {

// Slices of a feed, in memory of Program::stage(). Their elements are not initialised. Different threads may write
// different slices. It may outlive the program, which has no use for it then.
class StagedSlices {
 public:
  StagedSlices();
  StagedSlices(StagedSlices&&) noexcept;             // leaves none in the other
  StagedSlices& operator=(StagedSlices&&) noexcept;  // likewise; those that were here are given back
  ~StagedSlices();

  std::int64_t size() const { return slices_; }     // how many; 0 after write()
  const TensorType& type() const { return type_; }  // type of one slice
  // The elements of slice `i`, from 0 to size() - 1. Throws Error for another number, and for a T that is not the
  // dtype.
  template <class T>
  std::span<T> slice(std::int64_t i, Where where = Where::current()) const {
    return {static_cast<T*>(address(i, dtype_of<T>(), where)), static_cast<std::size_t>(type_.shape.size())};
  }
  // The same as bytes.
  std::span<std::byte> bytes(std::int64_t i, Where where = Where::current()) const {
    return {static_cast<std::byte*>(address(i, type_.dtype, where)), type_.bytes()};
  }
  // Takes the first n slices out of these, for a run of fewer steps than were staged. The others stay, in the same
  // memory, and are numbered from 0 again. Throws Error unless n is from 1 to size().
  StagedSlices take(std::int64_t n, Where where = Where::current());

 private:
  friend class Program;
  void* address(std::int64_t i, DType dtype, const Where& where) const;

  struct Staged;
  std::unique_ptr<Staged> staged_;
  TensorType type_;
  std::int64_t slices_ = 0, stride_ = 0;
  std::byte* memory_ = nullptr;
};

// A compiled graph on a device.
//
// Threads: a Program is used by one thread at a time: a call throws Error while another thread is in one. Different
// Programs may be used by different threads. Programs that share a Variable take turns in the order of their calls of
// run(), and each run sees the Variables as a whole run of another program, or a write(), has left them.
//
// Lifetime: a Program shares ownership of its graph and Variables. Its destructor waits for its work and logs a failed
// step that no call has reported (CompileOptions::log). If it cannot wait, it logs that and does not free the memory,
// which the device may still be using.
//
// Errors: every call on a Program that was moved from throws Error. So does a call that runs, waits, reads or writes
// inside the body of one of the program's own ops, because it would wait for itself. When a CUDA call fails, Error
// names the call and nothing is lost: steps() returns how many steps were committed, and the next run() goes on from
// there. There are two exceptions. If issuing op by op fails in the middle of a commit, or an op that writes Variables
// throws, the Variables of that commit hold values of two steps: run(), sync(), records(), output() and
// Variable::read() throw until each of them was written. After an error that ends the CUDA context, every call that
// needs the device throws that error.
class Program {
 public:
  Program(Program&&) noexcept;  // every later call on the other throws Error
  // Likewise, after the program that was here has ended as by its destructor.
  Program& operator=(Program&&) noexcept;
  ~Program();

  // The planner's decisions for the input shapes written last; before any write(), for the examples that the graph was
  // built with.
  PlanSummary plan(Where where = Where::current()) const;
  // The plan as text: tasks in order with their ids, op, type, stream, memory and the user's line; then reasons. A loop
  // or branch is a WHILE, IF or SWITCH node of its launch, or the host drives it; under it stands what one run of each
  // body costs. It includes what is known only later: workspaces, once they were asked for, and launches whose capture
  // failed. Then the first line says that the step runs op by op, and why.
  std::string explain(Where where = Where::current()) const;
  // The same and more for a script: one JSON object with these keys, in this order. The text is UTF-8; other bytes in
  // names are replaced. Sizes are in bytes. A task of a body counts once, however often it runs. "where" is
  // "train.cpp:12" or null, and "scope" "encoder/layer3" or null.
  //   device, target          "cuda:0", and the name of the device
  //   further_devices         other devices that the plan uses
  //   sinks_whole             whether the step is one launch; false, too, while its capture fails
  //   launches_per_step       launches for a run of one step in mode sink, once it is captured, without those of bodies
  //                           that the host drives
  //   loop_over_steps         whether a run of several steps is one launch; if not, each step takes launches_per_step,
  //                           or, where there are some, unrolled_steps say what a launch holds
  //   unrolled_steps          only where collectives of NCCL keep the steps out of a loop: the most steps of a launch
  //                           that holds their nodes once for each step; 1 where Limits::unrolled_nodes has no room
  //   nodes, host_nodes       nodes, and how many of them run on the host of a device with separate memory
  //   streams
  //   variables_elsewhere     only where Variables live on further devices; each: name, device, bytes, placement (the
  //                           number of on_device()), why
  //   copies                  of each step: count, to_host_bytes, to_device_bytes, within_device_bytes,
  //                           between_devices_bytes
  //   invariant_copies        copies that run only when their source was written; each: direction, bytes, source,
  //                           destination
  //   memory                  arena_bytes, host_arena_bytes (with workspaces, once they are known), invariant_bytes,
  //                           value_bytes, live_bytes (the largest sum of
  //                           values that are needed at the same time)
  //   fusion                  ops, nodes, bytes, obstacle: how many ops were joined, and to how many nodes; of results
  //                           that are not stored any more; null, or why ops that could be joined stay separate
  //   avoided_copies          ops, bytes: those that only move elements and are not needed, and of their results
  //   programmatic_launch     on, nodes (whose first kernel captured graphs launch so), obstacle (null, or why none is,
  //                           though Tuning::programmatic_launch is on)
  //   collectives             only where the device carries out some; each: task (its id), stream, beside (ids of the
  //                           tasks of other streams that may run meanwhile)
  //   islands                 each: tasks (their ids, without those of bodies), sunk, nodes (bodies included), after
  //                           (the numbers of islands that must be done before), beside (whether it
  //                           runs beside islands in front of it that it does not wait for)
  //   split_islands           likewise, those of split_sink; empty if they are the same
  //   tasks                   the schedule; each: id, kind, op, where, scope, device ("cuda:0" or "host"), stream,
  //                           after (the streams it waits for), forks (each: stream, source, task: from here on
  //                           `stream` waits for what `source` was given so far, for the sake of `task`), and
  //     kind "call"           ops (of a group of fused ops: their names), attributes (of the op, if it names them: see
  //                           fields.h; the first 16 elements of a list), programmatic (whether its first kernel is
  //                           launched so), inputs and outputs, each: type, access (inputs: read, write, shape_only),
  //                           buffer, memory
  //     kind "copy"           direction (to_host, to_device, within_device, between_devices), bytes, source,
  //                           destination (both: buffer, memory)
  //     kind "if", "while"    predicate (buffer, memory)
  //     kind "switch"         index (buffer, memory)
  //     all three kinds       node ("IF", "WHILE" or "SWITCH" in its launch; null: the host drives it), reason (why the
  //                           host drives it: an index into `reasons`), iterations (of a loop, if they are known),
  //                           iterations_in_body (of a loop: how many a run of its body is),
  //                           costs (of one run of each body: ops, host_ops, copies, to_host_bytes, to_device_bytes,
  //                           within_device_bytes, launches: if the host drives it, what mode sink launches in it),
  //                           islands (of each body: its launches, and what the host issues between them;
  //                           each: tasks, sunk, nodes), bodies (tasks of then, else; of the one body; of each body)
  //   shape_cache             sets of input shapes that are kept (Limits::shape_cache_bytes): shapes, captured, bytes,
  //                           evicted; null for a graph without open dimensions
  //   reasons                 each: what, why (the rule), where, scope, cost, remedy
  // `buffer` is the number of a piece of memory, the same wherever a task uses it, and `memory` its place as in the
  // text; both are null where nothing is touched.
  std::string explain_json(Where where = Where::current()) const;
  // The same as a graph for graphviz (`dot -Tsvg`). A cluster for each island and for each body of if and while. Nodes
  // of the device are blue, of further ones green, of the host orange, copies small and white (invariant copies
  // dashed), branches and loops diamonds (orange where the host drives them); the numbers are the ids of tasks, as in
  // the text. An edge leads from each task that writes a buffer to each that may read what it wrote, so none leaves a
  // view; a dashed one from the last task of a stream to a task that waits for it for other reasons; a dotted one from
  // a branch or loop to the first task of each body.
  std::string explain_dot(Where where = Where::current()) const;
  // The memory that the plan needs, before run() allocates it; to_string() prints it. Code and captured graphs are not
  // included, because CUDA does not say what they take. All input shapes share one arena, but each that was bound keeps
  // workspaces and host memory of its own, see Limits::shape_cache_bytes. Prepares the ops, as bind() does, and
  // throws the same Errors, but waits for no other rank.
  MemoryReport memory(Where where = Where::current());

  // Gives data to an input or a feed. An input takes one tensor. A feed takes one slice, which every step uses, or one
  // slice for each step of the coming run, along a new first dimension. An open dimension becomes as large as the
  // tensor's. The data is copied before the call returns; in memory of bind_memory() it lies there then, unless
  // WriteOptions name a stream. Throws Error for another dtype or shape, and for a stream that cannot be used or is
  // being captured.
  void write(const Value& input, const Tensor& tensor, Where where = Where::current()) {
    write(input, tensor, WriteOptions{}, where);
  }
  // The same with options: in the order of a stream of the caller's.
  void write(const Value& input, const Tensor& tensor, const WriteOptions& options, Where where = Where::current());
  // The same for a range of elements in contiguous memory: std::vector, std::array, std::span and so on.
  template <std::ranges::contiguous_range Range>
  void write(const Value& input, const Range& data, Where where = Where::current()) {
    write(input, data, WriteOptions{}, where);
  }
  // The same with options: in the order of a stream of the caller's.
  template <std::ranges::contiguous_range Range>
  void write(const Value& input, const Range& data, const WriteOptions& options, Where where = Where::current()) {
    using T = std::ranges::range_value_t<Range>;
    write_raw(input, dtype_of<T>(), std::ranges::data(data), static_cast<std::int64_t>(std::ranges::size(data)),
              options, where);
  }
  // The same for std::vector<bool>, whose elements are bits: they are copied to bytes first.
  template <std::same_as<bool> T>
  void write(const Value& input, const std::vector<T>& data, Where where = Where::current()) {
    write(input, Tensor(Shape{static_cast<std::int64_t>(data.size())}, data, where), where);
  }

  // Memory for the slices of a feed that a coming run reads, one for each of its steps, so that whoever makes the data
  // writes it where the device fetches it: the CPU reads it there, and a GPU copies it from there, on a stream of its
  // own, while the launches before are still running. write(std::move(slices)) gives it to the next run(), as write()
  // of a Tensor does, and copies nothing on the host. Slices may be staged while steps run, and for several coming
  // runs; those that are dropped are given back. The shape of a slice is that written last; `slice` says another where
  // dimensions are open. Waits where the device still reads all memory that was staged before. Throws Error for a Value
  // that is no feed, and for a shape that does not fit.
  StagedSlices stage(const Value& feed, std::int64_t slices, Where where = Where::current());
  // The same for slices of this shape, which has no open dimension.
  StagedSlices stage(const Value& feed, std::int64_t slices, const Shape& slice, Where where = Where::current());
  // Throws Error for slices of another program, and for those that were written already. After an Error the slices are
  // still there, and may be written again.
  void write(StagedSlices&& slices, Where where = Where::current());

  // Makes memory of the caller's the place of an input or an output: memory of the target device, or of the host for a
  // program on the CPU. Nothing is copied. Steps read the input where it lies, so write() is not needed. The output is
  // there when the run is done; after a failed step its bytes are undefined. The caller may use the memory while no run
  // does: after sync(), or in the order of RunOptions::stream.
  //
  // `bytes` is the size of the memory, which must be large enough for the value and begin at a multiple of
  // Target::alignment. It must exist until the program is destroyed or the value is bound to other memory: `owner` is
  // kept until then, and may be dropped by any thread. Call this before the first run: it
  // waits for all steps, and what was bound and captured must be bound and captured again. Throws Error for memory that
  // does not fit, for feeds and inputs with open dimensions, and if the memory overlaps that of another value although
  // steps write one of the two.
  void bind_memory(const Value& value, void* memory, std::size_t bytes, Where where = Where::current()) {
    bind_memory(value, memory, bytes, nullptr, where);
  }
  // The same with an owner of the memory, or nullptr.
  void bind_memory(const Value& value, void* memory, std::size_t bytes, std::shared_ptr<const void> owner,
                   Where where = Where::current());
  // The same for a Variable, in memory of the device on which it lives, before any program that uses it is bound or
  // run. Its value is what the memory holds, not what it was made with; Variable::write() changes it. The memory must
  // exist until the Variable and all programs that use it are destroyed, which is how long `owner` is kept.
  void bind_memory(const Variable& variable, void* memory, std::size_t bytes, Where where = Where::current()) {
    bind_memory(variable, memory, bytes, nullptr, where);
  }
  // The same with an owner of the memory, or nullptr.
  void bind_memory(const Variable& variable, void* memory, std::size_t bytes, std::shared_ptr<const void> owner,
                   Where where = Where::current());

  // Plans, prepares and allocates for the input shapes written last. run() calls it when it meets new shapes. If there
  // is not enough memory, the Error says what the memory was for, how much is free where that is known, which values
  // are the largest, with their lines, and what to do. The program stays usable, for example with smaller shapes. Ranks
  // wait for each other, and compare plans and first values: see ranks.h.
  void bind(Where where = Where::current());

  // Runs steps. Returns when they are issued, not when they are done (but see enqueue()). Allocates nothing for shapes
  // that are bound. In the modes that sink, the first step for each set of input shapes runs interactively; then the
  // step is captured, or later, see Tuning::capture_after. Throws Error, having changed nothing, if an input was not
  // written, a feed has too few slices, or the stream of the caller cannot be used.
  void run(Mode mode = sink, const RunOptions& options = {}, Where where = Where::current());

  // Gives one step to a CUDA stream of the caller's, and nothing else: the step runs after what the
  // stream was given so far and before what it is given later. The stream must belong to the target.
  //
  // If the caller is capturing the stream, the step becomes a part of the caller's graph, and runs whenever that graph
  // is launched. It then reads inputs where they lie, and commits, records and counts like a step of run(); random ops
  // draw new numbers each time. This works between other work in one capture, several times, and in the function of a
  // SinkCache. Otherwise this is run(sink, {.stream = stream}); do that once before the capture, because kernels are
  // loaded and memory is allocated in the first step.
  //
  // The program does not know of launches of the caller's graph. Before any other call on the program, or on its
  // Variables, wait for them: sync() throws what has failed in them, but waits only for steps of run(). Data, steps and
  // seeds that are given then by write(), set_steps(), set_seed() or Variable::write() are there for the next launch.
  // write() with WriteOptions::stream is the one call that needs no wait. No other program may use the Variables
  // meanwhile. Launches after a run() see what it has left: once a step was captured, run() returns when its steps are
  // done; with RunOptions::stream it does not wait, and they are done for what that stream is given later. Steps of one
  // program in one capture run one after the other, in the order of these calls, on branches of the caller's, too.
  //
  // The caller's graph keeps all that the step uses alive: the program may be destroyed while launches of it are under
  // way or still to come, and these compute what they would have computed. Everything that was captured for these input
  // shapes is kept until the graph, what the caller cloned and instantiated from it, and their launches are gone. CUDA
  // then tells the library on a thread where nothing can be freed, so the next call of this library frees it:
  // compile(), or a call but poll() and try_records(), or the destructor, of a Program or SinkCache, on any thread.
  // Until then CompileOptions::log may be called. Memory of bind_memory() stays the caller's to keep. If a step fails
  // after the program was destroyed, only the log tells of the failure, when all this is freed.
  //
  // In a capture this waits until what run() has issued is done. CompileOptions::guards do not look at launches of the
  // caller's graph.
  //
  // Throws Error in a capture if the step has not run before with these input shapes, is not one launch, reads a feed,
  // or reads a Variable or input on another device; then nothing was captured. If the capture itself breaks, Error says
  // why; end it, and destroy what it holds.
  void enqueue(cudaStream_t stream, Where where = Where::current());

  // Waits for all steps. Throws Error if a step failed, naming the op and the step: that step and all that were issued
  // after it committed nothing; and with ErrorCode::stopped if the run stopped at a step (Graph::stop_when()), which
  // committed, and none after it. Either is reported once, by the first of these calls: sync(), poll(), a call that
  // reads records or outputs, or Variable::read() of a Variable that the program writes. A Variable::read() on another
  // thread does not count as the first.
  void sync(Where where = Where::current());

  // Waits for all steps, and logs what sync() would throw for a failed one, as the destructor does: for the end of a
  // process that does not destroy all programs. Throws Error where sync() cannot be called.
  void log_failed_step(Where where = Where::current());

  // Returns whether everything that run() issued is done, without waiting for it. If it is done, throws what sync()
  // would throw. Once it returns true, records and outputs can be read without waiting.
  bool poll(Where where = Where::current());

  // Calls sync(), then returns every value recorded under `name` since the last read, oldest first; of a value with
  // several elements all of them, one after the other. If more values were
  // recorded than RecordOptions::capacity, the newest have overwritten the oldest: the first time a warning is logged,
  // and lost_records() counts them.
  template <class T = float>
  std::vector<T> records(std::string_view name, Where where = Where::current()) {
    std::vector<T> values;
    read_record(
        name, [&](const std::vector<double>& taken) { values.assign(taken.begin(), taken.end()); }, where);
    return values;
  }
  // The same without sync(): returns what steps that are done have recorded since the last read, oldest first, and
  // nothing if there is none yet. Later steps may still be running, even those of the same launch. Returns at most one
  // value less than the capacity. Never waits and makes no call to the device. A value that was returned here is not
  // returned again by records(). Does not report failed steps; sync() and poll() do.
  template <class T = float>
  std::vector<T> try_records(std::string_view name, Where where = Where::current()) {
    std::vector<T> values;
    take_record(
        name, [&](const std::vector<double>& taken) { values.assign(taken.begin(), taken.end()); }, where);
    return values;
  }
  // The number of values recorded under `name` that were overwritten before they were read, as far as records() and
  // try_records() have noticed.
  std::int64_t lost_records(std::string_view name, Where where = Where::current()) const;
  // How many values under `name` are kept until they are read: RecordOptions::capacity, rounded up, or what the program
  // chose.
  std::int64_t record_capacity(std::string_view name, Where where = Where::current()) const;
  // Calls sync(), then returns a copy of an output by its name. Outputs can be read until the next run().
  // Throws Error if a step of the last run failed, or the run stopped (Graph::stop_when()), because it left no outputs.
  Tensor output(std::string_view name, Where where = Where::current());
  // The same by the Value that Graph::output() was given.
  Tensor output(const Value& value, Where where = Where::current());

  // Sets the seed of random ops from the next run() on. Nothing is captured again.
  void set_seed(std::uint32_t seed, Where where = Where::current());
  // Returns the number of steps committed so far. Waits for all steps.
  std::int64_t steps(Where where = Where::current());
  // Sets the number of the next step, which ops see as Graph::step(), for example to go on from a checkpoint. Waits for
  // all steps. Throws Error unless 0 <= steps < 2^31. The number has 32 bits: behind step 2^31 - 1 it goes on at -2^31,
  // which schedules, restore() and files of train() do not expect; give it a smaller one before.
  void set_steps(std::int64_t steps, Where where = Where::current());
  // Counts of the program's work so far. Does not wait for steps.
  Counters counters(Where where = Where::current()) const;
  // Returns the measurements and the choice of run(automatic) for the input shapes written last. Does not wait, so that
  // the last steps may not be included yet.
  AutomaticReport automatic_report(Where where = Where::current());
  // Counts the nodes that `sink` has captured for the input shapes written last, for launches of one step or of several
  // steps. Empty if nothing was captured yet.
  std::optional<CaptureInfo> captured(LaunchOf steps = LaunchOf::one_step, Where where = Where::current()) const;
  // Writes a file with names for what profilers show of captured steps, which are ids of nodes, for
  // profiling/kernel_table.py and tools of your own. Each line is a JSON object:
  //
  //   id      of the node. Profilers show it as the original of the node that ran: originalGraphNodeId in the database
  //           of Nsight Systems, the original node of a clone in CUPTI
  //   graph   the id that profilers show for launches
  //   op      the name of the op, such as "matmul". Like the next ones it is missing for what graphsink itself adds
  //   where   the line of your code that made the op, "file:line"
  //   node    the number of the op in its graph
  //   bytes   that the op reads and writes: all its operands, those that it changes twice
  //   flops   OpDef::flops; missing where the op has none
  //   work    "kernel scale(float*, float)", "memcpy" and the like
  //
  // An op may have several nodes; bytes and flops are those of the op. Steps in graphs of the caller's (enqueue()) are
  // not listed, and neither are captures that changed a graph in place (Counters::graph_updates): profilers show them
  // with the ids of the graph as it was made. If the environment variable GRAPHSINK_NODE_NAMES names a file, every
  // program and SinkCache adds such lines to it whenever it captures something, so that a program need not be changed
  // to be profiled. A program on the CPU logs that there are no names.
  //
  // Throws Error if nothing is captured yet, on the CPU, if the file cannot be written, and if CUPTI, which knows the
  // ids and belongs to the CUDA toolkit, is not found.
  void write_node_names(const std::string& path, Where where = Where::current()) const;
  // Runs steps, waits for them, and returns what each op of the plan took: its mean over all runs, in the order of the
  // plan, measured by the clock of the device between one op and the next. Ops that the step runs at the same time run
  // one after the other here. They are captured together where the whole step is one launch, and on the CPU share the
  // threads of a launch; where it is not, the device may have waited for the host before an op. The steps are like
  // those of run(): they read feeds, commit and record. Allocates memory; graphsink-bench --profile prints the result.
  // Throws Error as run() and sync() do, if the program has not run with these input shapes, if a result has a size
  // that depends on data without an upper bound, and if the plan uses further devices.
  std::vector<OpTime> time_ops(std::int64_t steps, Where where = Where::current());
  // Bytes of the target's arena, which all input shapes share.
  std::size_t arena_bytes(Where where = Where::current()) const;
  // The device that the program was compiled for, CompileOptions::target. Valid as long as the program.
  const Target& target(Where where = Where::current()) const;
  // The Variables that the graph uses, in the order in which it was built: parameters and states of optimizers.
  std::vector<Variable> variables(Where where = Where::current()) const;

 private:
  void close() noexcept;
  friend class ProgramAccess;
  friend const struct Plan& plan_of(const Program& program);
  friend Program compile(const Graph& graph, const CompileOptions& options, Where where);
  class Impl;
  Program(const Graph& graph, const CompileOptions& options, Where where);
  void write_raw(const Value& input, DType dtype, const void* data, std::int64_t count, const WriteOptions& options,
                 Where where);
  StagedSlices stage_shape(const Value& feed, std::int64_t slices, const Shape* slice, const Where& where);
  // Whoever gets the values may throw for want of memory; then they have not been read.
  using GetValues = std::function<void(const std::vector<double>&)>;
  void read_record(std::string_view name, const GetValues& get, Where where);
  void take_record(std::string_view name, const GetValues& get, Where where);
  // Both throw Error for a moved-from Program, and while another thread is in a call. The first is for calls that may
  // wait: see enqueue().
  struct Call;
  Call impl(const Where& where) const;
  Call impl_without_wait(const Where& where) const;
  std::shared_ptr<Impl> impl_;  // shared with graphs of the caller's that hold a step, see enqueue()
};

// Opens the device and plans the graph for it. Throws Error if there is no such device, or the graph cannot run there.
Program compile(const Graph& graph, const CompileOptions& options = {}, Where where = Where::current());

// Runs each op as it is called, without a graph or a plan: for experiments, and to look at values while debugging.
// `tanh(eager.tensor({1, 2}))` is computed when the call returns. Used by one thread at a time. Throws Error if it was
// moved from.
class Eager {
 public:
  // Opens the device. Throws Error if there is none such.
  explicit Eager(DeviceId device = cpu());

  // An f32 vector.
  Value tensor(std::initializer_list<double> values, Where where = Where::current());
  // A copy of the tensor on the device. Throws Error if it has no data.
  Value tensor(const Tensor& tensor, Where where = Where::current());
  // Waits until the value is computed, and returns a copy.
  static Tensor read(const Value& value, Where where = Where::current());

 private:
  std::shared_ptr<GraphData> data_;
};

// A Value of an Eager prints its elements; of a Graph, its type.
std::ostream& operator<<(std::ostream& out, const Value& value);

}  // namespace graphsink
