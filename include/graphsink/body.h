// How an op is computed: the bodies of OpDef::bodies, what they get as their argument, and how they are prepared.
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <string_view>

#include "graphsink/attrs.h"
#include "graphsink/graph.h"
#include "graphsink/step_block.h"
#include "graphsink/target.h"
#include "graphsink/type.h"
#include "graphsink/version.h"

namespace GRAPHSINK_PUBLIC graphsink {

class CudaArgs;

// Result of OpDef::prepare for one node of a plan.
struct Prepared {
  std::shared_ptr<const void> data;  // node-local data, read by a body with a.local<T>()
  std::size_t workspace = 0;         // bytes of scratch memory that the body needs while it runs
};

// The argument of OpDef::prepare, which is called once for each node of a plan and never during a capture.
struct PrepareArgs {
  std::string_view op;                // name of the op, for errors
  Where where;                        // the user's line
  std::span<const TensorType> types;  // inputs, then outputs, with all sizes known
  int inputs = 0;                     // number of inputs
  const Attrs& attrs;                 // attributes of the node
  bool cuda = false;                  // the CUDA body will run, not the CPU body
  void* device = nullptr;             // the device, for the library's own ops (device/cuda/...)
  // The node is in the body of a loop or branch, so that the first step, which is issued op by op, may not execute it.
  // prepare() must then load whatever the body would load at its first use, because loading is forbidden in a capture.
  bool may_be_skipped = false;

  const TensorType& in(int i) const { return types[static_cast<std::size_t>(i)]; }            // type of input i
  const TensorType& out(int i) const { return types[static_cast<std::size_t>(inputs + i)]; }  // type of output i
};

// A node of a bound plan, with addresses. It does not change while the plan is bound. Bodies see it through BodyArgs.
class BodyNode {
 protected:
  const Attrs* attrs = nullptr;       // attributes of the node
  void* const* pointers = nullptr;    // inputs, then outputs
  const TensorType* types = nullptr;  // likewise
  int inputs = 0;                     // number of inputs
  int outputs = 0;                    // number of outputs
  const void* local = nullptr;        // Prepared::data
  void* workspace = nullptr;          // see BodyArgs::workspace()
  std::size_t workspace_bytes = 0;    // Prepared::workspace
  StepBlock* step = nullptr;          // see BodyArgs::step()
  int id = -1;                        // number of the node in its graph
  Where where;                        // the user's line

  friend class BodyArgs;
};

// Common base of the arguments of CPU and CUDA bodies: access to their node.
class BodyArgs {
 public:
  explicit BodyArgs(const BodyNode& node) : node_(&node) {}  // for the library

  int inputs() const { return node_->inputs; }    // number of inputs
  int outputs() const { return node_->outputs; }  // number of outputs
  // @{
  // The dtype of input or output i, and its shape, with all sizes known. Valid while the plan is bound.
  const TensorType& in_type(int i) const { return node_->types[i]; }
  const TensorType& out_type(int i) const { return node_->types[node_->inputs + i]; }
  // @}
  // The elements of input i: device memory in a CUDA body, host memory in a CPU body. Aligned to 256 bytes, except for
  // outputs of views, and to Target::alignment in memory of the caller's.
  template <class T>
  const T* in(int i) const {
    return static_cast<const T*>(node_->pointers[i]);
  }
  // The elements of input i, which must be an operand with Access::write.
  template <class T>
  T* in_out(int i) const {
    return static_cast<T*>(node_->pointers[i]);
  }
  // The elements of output i, in memory as that of inputs. The body must write all of them: they are not initialised.
  template <class T>
  T* out(int i) const {
    return static_cast<T*>(node_->pointers[node_->inputs + i]);
  }
  // The struct that was given to emit(). Throws Error if its type is not T.
  template <class T>
  const T& attrs() const {
    return node_->attrs->as<T>();
  }
  // The data that prepare() returned, which must be a T.
  template <class T>
  const T& local() const {
    return *static_cast<const T*>(node_->local);
  }
  // Scratch memory, where the elements are, for the time that the body runs: not initialised. nullptr if prepare()
  // asked for none.
  void* workspace() const { return node_->workspace; }
  std::size_t workspace_bytes() const { return node_->workspace_bytes; }  // number of bytes that prepare() asked for
  // The running step: device memory in a CUDA body, which passes the pointer to its kernel; host memory in a CPU body
  // of a program for the CPU. The host of a GPU runs a CPU body while the step is in the memory of the GPU: there it
  // throws Error. The number of the step can be an operand of the op, Graph::step(), which is right everywhere.
  StepBlock* step() const {
    if (!has_step()) throw_no_step();
    return node_->step;
  }
  bool has_step() const { return node_->step != nullptr; }  // false in a CPU body on the host of a GPU
  int id() const { return node_->id; }                      // the node's number in its graph
  const Where& where() const { return node_->where; }       // the user's line
  const BodyNode& node() const { return *node_; }           // for the library

 private:
  [[noreturn]] void throw_no_step() const;

  const BodyNode* node_;
};

// The argument of a CPU body. The body may run on any thread and must not call CUDA. If it throws, the step
// fails and commits nothing. If the op has an operand with Access::write, the Variables may be left half-written: see
// Program.
class CpuArgs : public BodyArgs {
 public:
  using BodyArgs::BodyArgs;  // for the library
};

// How the work of a CPU body can be shared by several threads. A tile is a piece of it that does not depend on the
// others, so tiles of a node run at the same time. How many there are, and what each computes, depends on shapes and
// attributes alone, so that results do not depend on the number of threads. If a node has a workspace, its tiles must
// not use the same part of it.
struct Tiles {
  // Number of tiles, at least 0. If it throws, or returns less, the step fails, as if the body had thrown.
  std::int64_t (*count)(const BodyArgs&) = nullptr;
  void (*run)(const CpuArgs&, std::int64_t first, std::int64_t end) = nullptr;  // tiles [first, end)
  // Joins what the tiles left in the workspace, on one thread, when all have run. nullptr if there is nothing to join;
  // nor is it called if the node has no workspace. It is called even if a tile has thrown, and what is in the workspace
  // may be incomplete: the step commits nothing then.
  void (*join)(const CpuArgs&) = nullptr;
};
// Runs all tiles of the op on this thread, then joins them.
void run_all_tiles(const CpuArgs& args);

// Computes the elements [begin, begin + size) of the result of an op, counted in row-major order, and stores them from
// `out` on. `begin` is a multiple of kPartElements, and so is `size`, unless the part is the last one. It may use what
// prepare() returned, but no workspace.
using OutputPart = void (*)(const CpuArgs& args, std::int64_t begin, std::int64_t size, void* out);
constexpr std::int64_t kPartElements = 64;     // unit of parts: see OutputPart
constexpr std::int64_t kTileElements = 16384;  // a tile of an op with an OutputPart has so many elements, or the rest
static_assert(kTileElements % kPartElements == 0);
// Tiles::count of an op with an OutputPart: one for each kTileElements of output 0; at least 1.
std::int64_t count_part_tiles(const BodyArgs& args);
// Tiles::run of such an op: computes these tiles as one part.
void run_part_tiles(const CpuArgs& args, std::int64_t first, std::int64_t end);
void run_whole_part(const CpuArgs& args);  // computes all elements as one part

// A way to compute an op on one kind of device.
struct OpBody {
  using Cpu = void (*)(const CpuArgs&);  // computes the outputs
  using Cuda = void (*)(CudaArgs&);      // enqueues the work that computes the outputs

  constexpr OpBody() = default;  // no body
  // On the CPU, by one thread.
  template <std::convertible_to<Cpu> F>
  constexpr OpBody(F body) : cpu(body) {}  // NOLINT: implicit, for lists of bodies
  // On the CPU, by several threads.
  constexpr OpBody(Tiles work) : cpu(run_all_tiles), tiles(work) {}  // NOLINT: implicit
  // On the CPU, part by part, for ops with one output that is cheap to compute so, such as those that only move
  // elements. The parts are tiles; and the planner joins the op with the element-wise ops that use its result. `whole`
  // computes all of it on one thread, where there is a shorter way than a part that is all.
  template <std::convertible_to<OutputPart> F>
  constexpr OpBody(F body, Cpu whole = run_whole_part)  // NOLINT: implicit
      : cpu(whole), tiles{count_part_tiles, run_part_tiles}, part(body) {}
  // On CUDA devices of compute capability `least` (90 stands for 9.0) and above.
  template <std::convertible_to<Cuda> F>
  constexpr OpBody(F body, int least = 0)  // NOLINT: implicit
      : device(DeviceKind::cuda), least_capability(least), cuda(body) {}

  DeviceKind device = DeviceKind::cpu;  // device that the body is for
  // Compute capability that the body needs at least: 90 for 9.0. Where several bodies fit, the highest one runs.
  int least_capability = 0;
  Cuda cuda = nullptr;        // if `device` is cuda
  Cpu cpu = nullptr;          // if `device` is cpu; the same is computed by `tiles` and `part`, if they are given
  Tiles tiles = {};           // tiles; without functions one thread computes the op
  OutputPart part = nullptr;  // function for a part; nullptr if the op is not computed so
};

// The bodies of an op: {cpu_body, cuda_body}, or {tiles, cuda_body, {cuda_body_for_hopper, 90}}. At most one is for the
// CPU, and kMostCuda are for CUDA devices: emit() refuses an op that lists more.
class OpBodies {
 public:
  static constexpr std::size_t kMostCuda = 3;  // bodies for CUDA devices

  constexpr OpBodies() = default;  // none
  // In any order.
  constexpr OpBodies(std::initializer_list<OpBody> bodies) {
    for (const OpBody& body : bodies) {
      const bool is_cuda = body.device == DeviceKind::cuda;
      std::size_t& count = is_cuda ? cuda_bodies_ : cpu_bodies_;
      if (count == (is_cuda ? kMostCuda : 1)) {
        has_too_many_ = true;
      } else {
        ++count;
        bodies_[is_cuda ? count : 0] = body;
      }
    }
  }
  constexpr bool has_too_many() const { return has_too_many_; }  // whether the list had more, which are left out
  // The body for the CPU; without one, its functions are nullptr.
  constexpr const OpBody& cpu() const { return bodies_[0]; }
  // @{
  // All bodies: cpu(), then those for CUDA devices.
  constexpr const OpBody* begin() const { return bodies_.data(); }
  constexpr const OpBody* end() const { return begin() + 1 + cuda_bodies_; }
  // @}

 private:
  std::array<OpBody, 1 + kMostCuda> bodies_{};
  std::size_t cpu_bodies_ = 0, cuda_bodies_ = 0;
  bool has_too_many_ = false;
};

}  // namespace graphsink
