// The device boundary: all that executors know of a device. Work given to a Stream is issued if the stream is live and
// captured if it is capturing; callers cannot tell, which is why a sunk step gives the bits of an interactive one.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/function_ref.h"
#include "base/log.h"
#include "base/thrown.h"
#include "device/launch_ring.h"
#include "device/memory_map.h"
#include "device/running_calls.h"
#include "graphsink/counters.h"
#include "graphsink/op.h"
#include "ir/bound_node.h"
#include "ir/plan.h"

namespace graphsink {

// In-order queue of work. Used by one thread at a time.
class Stream {
 public:
  virtual ~Stream() = default;

  // Whether several threads of the CPU may compute a node that is given from now on. Other devices do not look at it.
  bool shares_nodes = false;
};
using Streams = std::span<Stream* const>;

// Device or host memory, freed with the last copy.
using Memory = std::shared_ptr<void>;

// An allocation failed. The message says what the device knows; the caller adds what the memory was for.
class OutOfMemory : public Error {
 public:
  // `full`: the device whose memory does not suffice; cpu() for memory of the host, pinned memory included.
  OutOfMemory(std::string op, DeviceId full, std::string problem, std::string remedy)
      : Error(std::move(op), Where(), std::move(problem), std::move(remedy), ErrorCode::out_of_memory), full_(full) {}
  DeviceId full() const { return full_; }

 private:
  DeviceId full_;
};

// Bytes that are allocated now. Shared with the memory, which may outlive its device and be freed by any thread.
struct HeldBytes {
  std::atomic<std::size_t> device = 0;
  std::atomic<std::size_t> host = 0;
};

// A range of addresses whose memory grows at its end, so that addresses in it never change.
class Arena {
 public:
  virtual ~Arena() = default;
  virtual std::byte* base() const = 0;
  virtual std::size_t size() const = 0;
  // size() after grow(bytes).
  virtual std::size_t size_for(std::size_t bytes) const = 0;
  // Afterwards size() >= bytes. Throws OutOfMemory; then nothing has changed.
  virtual void grow(std::size_t bytes) = 0;
};

// A capture failed. Nothing has run and nothing is lost: the step can be issued op by op.
class CaptureFailed : public Error {
 public:
  using Error::Error;
};

// A kernel of a captured graph and its arguments.
using Arguments = std::vector<std::vector<std::byte>>;
struct CapturedKernel {
  const BoundNode* node = nullptr;  // null: of no op
  Arguments arguments;              // empty if the device does not know them
  bool is_of_library = false;       // or may be: the node's body called a library
};

// A node of a captured graph as profilers know it.
struct ProfiledNode {
  std::uint64_t id = 0;             // that profilers show as the original of the node that they saw running
  const BoundNode* node = nullptr;  // op whose body captured it; null: of no op
  std::string work;                 // "kernel scale(float*, float)", "memcpy"
};
struct ProfiledNodes {
  std::uint32_t graph = 0;  // the id that profilers show for launches of the graph
  std::vector<ProfiledNode> nodes;
};

// Everything that was given to the streams between begin_capture and end_capture, ready to launch.
class CapturedGraph {
 public:
  virtual ~CapturedGraph() = default;
  virtual CaptureInfo info() const = 0;
  // Its kernels in a fixed order, including those of bodies. Empty on a device whose captures keep no arguments. Throws
  // Error if a call of the device fails. The device must exist.
  virtual std::vector<CapturedKernel> kernels() const { return {}; }
  // Its nodes that profilers can show, those of bodies included, in a fixed order. Empty on a device that no profiler
  // looks at. Throws Error if the ids cannot be had. The device must exist.
  virtual ProfiledNodes profiled_nodes() const { return {}; }
};

// Where the CPU bodies of a program report exceptions. In memory from DeviceMemory::allocate_host(), since nodes of a
// plan for a device with separate memory read `failed`.
struct HostStatus {
  std::uint32_t failed = 0;  // 1 once a body threw
  std::int32_t node = -1;    // the first that did, and what it threw
  Thrown what;
  RunningCalls* running = nullptr;       // shows which host calls run; may be null
  std::uint32_t* step_failed = nullptr;  // Progress::failed: if 1, this step follows a failed one; may be null
  // The first node with another size than was planned for, on the host of a device: see StepState::size_node.
  std::int32_t size_node = -1;
  std::int64_t size = 0;

  // Called in a catch block by the thread that ran the body of `bad`. The first exception is kept.
  void take_exception(const BoundNode& bad) noexcept {
    std::int32_t none = -1;
    if (std::atomic_ref(node).compare_exchange_strong(none, bad.id)) {
      what = thrown();
      what.is_own = what.is_of(bad.op->name, Where());  // a node that the planner has added stands for another op
    }
    std::atomic_ref(failed).store(1, std::memory_order_release);
  }
  // Forgets what was thrown. No body may be running.
  void clear() {
    failed = 0;
    node = -1;
    what = {};
    size_node = -1;
  }
};

// Memory of FeedMemory::stage(). All that refers to it or to a part of it owns it together.
using StagedMemory = std::shared_ptr<std::byte>;

// Where the data of a feed lies, which comes anew for every few steps.
class FeedMemory {
 public:
  virtual ~FeedMemory() = default;
  // Copies `bytes` from host memory, which the caller may reuse at once, and leaves alone what work that was given to
  // `stream`, a live one, still reads. The result is the address at which work that is given to it until the next call
  // finds them. Throws OutOfMemory.
  virtual const void* write(Stream& stream, const void* source, std::size_t bytes) = 0;
  // Host memory for data that send() will send, 256-byte aligned and not initialised. Whoever drops it unsent, on any
  // thread, gives it back. Waits if all such memory is still read. Throws OutOfMemory.
  virtual StagedMemory stage(std::size_t bytes) = 0;
  // Like write(), for data that lies in memory of stage(), of which `bytes` from there on are sent. The device may
  // still read the memory when this returns: the caller drops it. If it throws, the data may be sent again.
  virtual const void* send(Stream& stream, const StagedMemory& staged, std::size_t bytes) = 0;
  virtual std::size_t bytes() const = 0;         // size of the memory from which steps read
  virtual std::size_t staged_bytes() const = 0;  // size of the memory of stage(), unless steps read it
};

// How much memory a device has, and how much of it nobody has taken.
struct MemoryRoom {
  std::size_t free = 0;
  std::size_t total = 0;
};

// Memory that a device makes, and what it knows of memory.
class DeviceMemory {
 public:
  virtual ~DeviceMemory() = default;
  // Memory: 256-byte aligned. allocate() is zero-filled. Throws OutOfMemory.
  virtual Memory allocate(std::size_t bytes) = 0;
  virtual Memory allocate_host(std::size_t bytes) = 0;
  virtual std::unique_ptr<Arena> reserve() = 0;
  virtual std::unique_ptr<FeedMemory> make_feed_memory() = 0;  // the device must outlive it
  // Bytes of the host that the device keeps for its uploads and decisions; grow with the first uploads.
  virtual std::size_t staging_bytes() const = 0;
  // Throws Error unless everything that the device runs may use these bytes, which somebody else allocated. Asks as far
  // as the device can tell.
  virtual void require_usable(const void* /*memory*/, std::size_t /*bytes*/) {}
  // Nothing on a device that cannot tell.
  virtual std::optional<MemoryRoom> room() { return {}; }
  // State of the memory at an address, as far as the device knows it.
  virtual MemoryState memory_state(std::uintptr_t) const { return MemoryState::unknown; }
};

// The streams of a device, their order, and the copies that they make.
class DeviceQueue {
 public:
  virtual ~DeviceQueue() = default;
  virtual std::unique_ptr<Stream> make_stream() = 0;
  // For make_wait() with a stream that somebody else owns, which must exist whenever the result is used. `handle` is a
  // cudaStream_t. Throws Error where there is no such stream of this device. make_wait() for a stream that is being
  // captured throws Error and does nothing.
  virtual std::unique_ptr<Stream> borrow_stream(void* handle) = 0;
  // Waits on the host for all work of a live stream. Throws Error where the device has failed.
  virtual void wait(Stream& stream) = 0;
  // Whether everything given to a live stream so far is done. Never waits. Throws Error where the device has failed.
  virtual bool is_done(Stream& stream) = 0;
  // For destructors, after wait() threw: waits for the stream by other means. False: some work may still be running.
  virtual bool wait_otherwise(Stream& stream) noexcept = 0;
  // Makes `later` wait: what it is given from now on begins when everything given to `earlier` so far is done.
  virtual void make_wait(Stream& later, Stream& earlier) = 0;
  // Copies in stream order. The memory must stay alive while the copy, or a captured graph of it, can run.
  virtual void copy(Stream& stream, void* destination, const void* source, std::size_t bytes) = 0;
  // Copies host memory that the caller may reuse at once, through staging memory of the device's; live streams only.
  virtual void upload(Stream& stream, void* destination, const void* source, std::size_t bytes) = 0;
};

// The nodes that steps of a plan consist of, and control flow around them.
class DeviceNodes {
 public:
  virtual ~DeviceNodes() = default;
  // Work in stream order. `node` and memory must stay alive while it, or a captured graph of it, can run.
  // Enqueues begin_launch(ring). `ring` must outlive this work and every capture of it.
  virtual void begin(Stream& stream, const LaunchRing& ring) = 0;
  // Enqueues the body of the op for this device, or, if node.on_host is set, the CPU body. A CPU body that throws is
  // reported in node.status, and fails the step: here where the device runs CPU bodies, by a node of the plan on a
  // device with separate memory.
  virtual void call(Stream& stream, const BoundNode& node) = 0;
  // Runs the CPU body at once, on this thread: live streams only, and what the node reads must be there.
  virtual void call_now(const BoundNode& node) = 0;
  // A branch, choice or loop, decided on the device in a captured graph and by the host when live. `decision` is an
  // address of the device. A branch runs body 0 if the bool there is true, else body 1; a choice the body whose number
  // the i32 there is; a loop runs body 0 as long as the bool there is true. bodies(which, streams) issues a body; it is
  // called with as many streams as given, the first of which carries on where streams[0] was. `count` is the number of
  // bodies.
  using Bodies = FunctionRef<void(std::size_t which, Streams)>;
  virtual void control(Streams streams, TaskKind kind, const void* decision, std::size_t count,
                       const Bodies& bodies) = 0;
  // Counts of what the device was asked to do so far (fallbacks are the executor's).
  virtual Counters counters() const = 0;
};

// Captures work that is given to streams, and launches what was captured.
class DeviceCapture {
 public:
  virtual ~DeviceCapture() = default;
  // Sinking. Between these two, on one thread, everything given to the streams is captured, and nothing runs;
  // streams[0] begins and must wait for all others at the end. On an exception from anything in between, call
  // leave_capture().
  virtual void begin_capture(Streams streams) = 0;
  // `spare`: a graph of this device that is not needed any more, and of which no launch is under way; may be null. If
  // it has the same nodes, only with other arguments, a device may change it in place of making an executable graph
  // anew, which is cheaper (Counters::graph_updates). It is destroyed in any case.
  virtual std::unique_ptr<CapturedGraph> end_capture(Streams streams,
                                                     std::unique_ptr<CapturedGraph> spare = nullptr) = 0;
  // Sinking into a capture that somebody else has begun on `callers`, a stream of borrow_stream(). Until
  // leave_capture(), everything given to streams[0] goes to `callers`, and the other streams fork from it; at the end
  // streams[0] must wait for them. Work given until an exception stays in the capture; call leave_capture() then, too.
  // `owner` lives as long as the captured graph, what is made of it, or a launch of these: it must own all that the
  // work uses. If the capture is broken already, it is not kept.
  virtual bool is_captured_by_others(Stream& /*callers*/) { return false; }
  virtual void enter_capture(Streams, Stream& /*callers*/, std::shared_ptr<void> /*owner*/) {}
  // Makes the streams live again. Work that was captured since begin_capture() is dropped; work that was given since
  // enter_capture() stays in the capture of the other.
  virtual void leave_capture(Streams streams) noexcept = 0;
  // Runs the graph in the order of `stream`. Captured loops over steps are counted as `steps` iterations.
  virtual void launch(Stream& stream, CapturedGraph& graph, std::int64_t steps = 1) = 0;
};

class Device : public DeviceMemory, public DeviceQueue, public DeviceNodes, public DeviceCapture {
 public:
  const Target& target() const { return target_; }

 protected:
  Target target_;  // set when the device is made
};

// How CPU bodies run, those on the host of a CUDA device too.
struct CpuOptions {
  bool flush_denormals = true;  // they treat denormals as zeros, whatever the setting of the thread that runs them
  int threads = 0;              // threads of the CPU device for each launch; 0: one per core that the process may use
  bool share_all = false;       // these share also what is too small to gain from that
};

// Opens a device, which logs what it cannot throw. Throws Error if it is not there or not part of this build. With
// `beside`, the CUDA devices opened for the same program so far: their streams can wait for each other and be captured
// together, and each reaches the memory of the others as far as the machine allows. A capture is begun, ended,
// cancelled and launched by the first, with the streams of all; every other call goes to the device whose stream it
// names (make_wait(): to that of `later`).
std::shared_ptr<Device> open_device(DeviceId id, const Log& log = {}, std::span<Device* const> beside = {},
                                    const CpuOptions& options = {});

}  // namespace graphsink
