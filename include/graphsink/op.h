// The op contract: an op is a constant of type OpDef that says what it needs before it runs. A new op is one such
// constant (see kernels/ for the built-in ones and samples/ for a user's); nothing has to be registered.
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <typeinfo>
#include <utility>
#include <vector>

#include "graphsink/error.h"
#include "graphsink/graph.h"
#include "graphsink/type.h"

namespace graphsink {

class CpuArgs;
class CudaArgs;
struct GradArgs;
struct FuseArgs;

// What a node does with one of its operands.
enum class Access : std::uint8_t {
  read,        // reads its elements
  shape_only,  // looks at its type alone: no data dependency, no lifetime
  // Reads and overwrites a Variable: the op is part of the commit, the end of the step. It must do nothing when
  // step->ok is 0, has no outputs and no host effect, and must not throw: what was stored before it would stay.
  write,
};

// What the planner has to know of an op before it runs. What is not said here is found out when a capture fails, and
// the steps run op by op then.
struct OpTraits {
  // The outputs depend on the step, the program's seed and the node's number (BoundNode::id), too, not only on inputs
  // and attributes: two equal nodes are two draws.
  bool random = false;
  // The op does something that the graph cannot see: it prints, reads a file, counts. Such a node runs even if nobody
  // uses its outputs, and after all nodes with an effect that were built before it.
  bool host_effect = false;
  // A capturing stream can hold what the CUDA body enqueues. If false, the host issues the op in every step, between
  // two launches: for bodies that wait for the device or call a library that does.
  bool capturable = true;
  // The body of a conditional node can hold what the CUDA body enqueues: kernels, copies and memsets within its device
  // and graphs of these (CUDA Programming Guide, "Conditional Graph Nodes"). If false, the host drives the loops and
  // branches around the op, and several steps take several launches.
  bool allowed_in_bodies = true;
};

// Output `output` may reuse (in place) or does alias (view) the memory of input `input`.
struct Alias {
  int output = 0;
  int input = 0;
};

// An op's attributes: any copyable struct, immutable once emitted. Cheap to copy.
class Attrs {
 public:
  Attrs() = default;
  template <class T>
  requires(!std::is_same_v<std::remove_cvref_t<T>, Attrs>) Attrs(T value)
      : data_(std::make_shared<const T>(std::move(value))), type_(&typeid(T)) {  // NOLINT: implicit
    if constexpr (std::equality_comparable<T>)
      are_equal_ = [](const void* a, const void* b) { return *static_cast<const T*>(a) == *static_cast<const T*>(b); };
  }

  // Attributes are equal if they are copies of each other, or structs of one type that its operator== calls equal. The
  // planner computes one of two nodes with equal inputs and equal attributes, so an operator== must tell apart all that
  // makes a difference to the outputs: 0.0 and -0.0, for example. Without one, nodes are never taken for equal.
  friend bool operator==(const Attrs& a, const Attrs& b) {
    if (a.data_ == b.data_) return true;
    return a.type_ && b.type_ && *a.type_ == *b.type_ && a.are_equal_ && a.are_equal_(a.data_.get(), b.data_.get());
  }

  // The struct given to emit(). Throws Error if it was of another type.
  template <class T>
  const T& as() const {
    if (type_ == nullptr || *type_ != typeid(T)) throw_mismatch(typeid(T).name());
    return *static_cast<const T*>(data_.get());
  }

 private:
  [[noreturn]] static void throw_mismatch(const char* wanted);
  std::shared_ptr<const void> data_;
  const std::type_info* type_ = nullptr;
  bool (*are_equal_)(const void*, const void*) = nullptr;
};

// What infer() sees. It runs when the op is emitted and again, with concrete shapes, for each set of input shapes.
class InferArgs {
 public:
  InferArgs(std::string_view op, std::span<const TensorType> inputs, const Attrs& attrs, Where where)
      : op_(op), inputs_(inputs), attrs_(attrs), where_(where) {}

  int inputs() const { return static_cast<int>(inputs_.size()); }
  const TensorType& in(int i) const { return inputs_[static_cast<std::size_t>(i)]; }
  template <class T>
  const T& attrs() const {
    return attrs_.as<T>();
  }
  // Appends the type of the next output.
  void out(DType dtype, const Shape& shape) { outputs_.push_back({dtype, shape}); }
  std::vector<TensorType>& outputs() { return outputs_; }

  // Refuses: throws Error naming the op and the user's line. The input types are appended to `problem`.
  [[noreturn]] void fail(const std::string& problem, const std::string& remedy) const;
  // Refuses unless there are exactly `count` inputs.
  void expect_inputs(int count) const;
  // Refuses unless inputs [0, count) share one dtype.
  void expect_same_dtype(int count) const;

 private:
  std::string_view op_;
  std::span<const TensorType> inputs_;
  const Attrs& attrs_;
  Where where_;
  std::vector<TensorType> outputs_;
};

struct StepTimes;

// Why a body failed its step. to_string() makes a sentence of it and of StepBlock::error_index.
enum class StepError : std::int32_t {
  unknown,     // the body did not say
  not_finite,  // the index is that of an element that is infinite or NaN
  index,       // the index is one that lies outside its axis
  target,      // the index is a target that is not a class
  iterations,  // the index is the number of iterations after which a loop was stopped
};
// "index 12 lies outside the axis".
std::string to_string(StepError error, std::int64_t index);

// The state of the running step, in device memory; one per Program. Ops that write Variables read `ok`, schedules read
// `step`, random ops `step` and `seed`. Only the plan's own begin and end nodes write the other fields.
struct StepBlock {
  std::int32_t step = 0;       // committed steps so far: this step's number, counted from 0
  std::uint32_t seed = 0;      // of the program, right behind the step
  std::uint32_t ok = 1;        // 0: this step must commit nothing
  std::int32_t slice = 0;      // which slice of the feeds this step reads
  std::int32_t end_slice = 1;  // the launch ends before this slice
  bool more = false;           // another step follows in this launch (predicate of the loop over steps)
  std::uint8_t unused[3] = {};
  std::int32_t error_node = -1;          // first node that cleared ok, or -1
  std::int32_t error_step = 0;           // the step in which it did
  StepError error = StepError::unknown;  // why it did
  std::uint32_t records = 0;             // recorded steps so far, modulo 2^32 (ring position)
  std::int64_t error_index = 0;          // see StepError
  StepTimes* times = nullptr;            // where to say what this step took; null: nobody asks
  std::uint64_t tag = 0;                 // said with it
  std::int64_t began = 0;                // when this step could begin, in ns
  std::uint32_t timed = 0;               // steps that said so, so far, modulo 2^32
  std::uint32_t acknowledged = 0;  // failures that the user has been told of, as the launch before knew; modulo 2^32
};

// What prepare() returns for one node of a plan.
struct Prepared {
  std::shared_ptr<const void> data;  // node-local data, read by a body with a.local<T>()
  std::size_t workspace = 0;         // bytes of scratch memory, valid during the body only
};

// What prepare() sees. Called once per node of a plan, never while capturing.
struct PrepareArgs {
  std::string_view op;
  Where where;
  std::span<const TensorType> types;  // inputs, then outputs
  int inputs = 0;
  const Attrs& attrs;
  bool cuda = false;       // which body will run
  void* device = nullptr;  // the device, for the internal library headers (device/cuda/...)
  // It is in the body of a loop or branch, so that the first step, which is issued op by op, may run without it.
  // Whatever its first use would load has to be loaded now.
  bool may_be_skipped = false;

  const TensorType& in(int i) const { return types[static_cast<std::size_t>(i)]; }
  const TensorType& out(int i) const { return types[static_cast<std::size_t>(inputs + i)]; }
};

// A node with addresses: everything a body may look at. Built at bind time, constant afterwards.
struct BoundNode {
  const struct OpDef* op = nullptr;
  const Attrs* attrs = nullptr;
  void* const* pointers = nullptr;    // inputs, then outputs
  const TensorType* types = nullptr;  // likewise
  int inputs = 0;
  int outputs = 0;
  const void* local = nullptr;  // Prepared::data
  void* workspace = nullptr;
  std::size_t workspace_bytes = 0;
  StepBlock* step = nullptr;
  int id = -1;  // the node's number in its graph
  Where where;
};

// What every body sees of its node.
class BodyArgs {
 public:
  explicit BodyArgs(const BoundNode& node) : node_(&node) {}

  int inputs() const { return node_->inputs; }
  int outputs() const { return node_->outputs; }
  const TensorType& in_type(int i) const { return node_->types[i]; }
  const TensorType& out_type(int i) const { return node_->types[node_->inputs + i]; }
  // Device memory in a CUDA body, host memory in a CPU body. 256-byte aligned unless a view.
  template <class T>
  const T* in(int i) const {
    return static_cast<const T*>(node_->pointers[i]);
  }
  // An operand of Access::write.
  template <class T>
  T* in_out(int i) const {
    return static_cast<T*>(node_->pointers[i]);
  }
  template <class T>
  T* out(int i) const {
    return static_cast<T*>(node_->pointers[node_->inputs + i]);
  }
  template <class T>
  const T& attrs() const {
    return node_->attrs->as<T>();
  }
  // What prepare() returned. Precondition: it returned a T.
  template <class T>
  const T& local() const {
    return *static_cast<const T*>(node_->local);
  }
  void* workspace() const { return node_->workspace; }
  std::size_t workspace_bytes() const { return node_->workspace_bytes; }
  // In device memory in a CUDA body (pass it to the kernel), in host memory in a CPU body.
  StepBlock* step() const { return node_->step; }
  const BoundNode& node() const { return *node_; }

 private:
  const BoundNode* node_;
};

// A CPU body runs on a worker thread and may not call CUDA. What it throws fails the step, which then commits nothing;
// unless the op has an operand of Access::write: then the Variables of the program are broken, see Program.
class CpuArgs : public BodyArgs {
 public:
  using BodyArgs::BodyArgs;
};

enum class DeviceKind : std::uint8_t { cpu, cuda };

// A function that computes an op on one kind of device.
struct OpBody {
  using Cpu = void (*)(const CpuArgs&);
  using Cuda = void (*)(CudaArgs&);

  constexpr OpBody() = default;
  // A body for the CPU.
  template <std::convertible_to<Cpu> F>
  constexpr OpBody(F body) : cpu(body) {}  // NOLINT: implicit, for lists of bodies
  // A body for CUDA devices of compute capability `least` (90 stands for 9.0) and above.
  template <std::convertible_to<Cuda> F>
  constexpr OpBody(F body, int least = 0)  // NOLINT: implicit
      : device(DeviceKind::cuda), least_capability(least), cuda(body) {}

  DeviceKind device = DeviceKind::cpu;
  int least_capability = 0;
  Cpu cpu = nullptr;    // if `device` is cpu
  Cuda cuda = nullptr;  // if `device` is cuda
};

// The bodies of an op: {cpu_body, cuda_body}, or {cpu_body, cuda_body, {cuda_body_for_hopper, 90}}.
class OpBodies {
 public:
  static constexpr std::size_t kMost = 4;

  constexpr OpBodies() = default;
  // More than kMost do not compile in a constant.
  constexpr OpBodies(std::initializer_list<OpBody> bodies) {
    for (const OpBody& body : bodies) bodies_.at(size_++) = body;
  }
  constexpr const OpBody* begin() const { return bodies_.data(); }
  constexpr const OpBody* end() const { return bodies_.data() + size_; }

 private:
  std::array<OpBody, kMost> bodies_{};
  std::size_t size_ = 0;
};

// The op that computes two nodes at once, with its attributes; no op: the two stay two.
struct Fused {
  const struct OpDef* op = nullptr;
  Attrs attrs;
};

// An op. Constants of static storage duration only: nodes keep a pointer.
struct OpDef {
  std::string_view name;  // a string literal: profilers keep a pointer to it
  // Types of all outputs from types of inputs and attributes; refuses bad ones with a.fail(). Required.
  void (*infer)(InferArgs&) = nullptr;
  // Access of operand i of n; nullptr: all read.
  Access (*access)(int operand, int operands) = nullptr;
  // Memory the planner may reuse, or that an output, which is then no larger than the input, always aliases.
  std::span<const Alias> in_place = {};
  std::span<const Alias> views = {};
  OpTraits traits = {};
  // Chooses and loads everything the body needs; nullptr: nothing to prepare.
  Prepared (*prepare)(const PrepareArgs&) = nullptr;
  // Element-wise ops: the scalar expression of the op, e.g. "a + b".
  std::string_view expr = {};
  // What computes the op, on each device that can. A CUDA body enqueues on a.stream(): no allocation, no sync, no host
  // read, no choice, no first use. In a loop it is captured twice.
  OpBodies bodies = {};
  // Gradients of the inputs as graph; nullptr: none, and grad() says so.
  std::vector<Value> (*grad)(const GradArgs&) = nullptr;
  // Takes the next node over, the bits staying what they were; nullptr: never.
  Fused (*fuse)(const FuseArgs&) = nullptr;
};

// The body that runs on a device of that kind and compute capability: of those that fit, the one that asks for most.
// nullptr if there is none.
const OpBody* body_for(const OpDef& op, DeviceKind device, int capability = 0);

// What fuse() sees: a node with one output, and the first of the nodes that use it. Inputs of the fused op are those of
// the node, then the other ones of `next`; outputs are those of `next`, then, with `is_kept`, the node's own.
struct FuseArgs {
  const Attrs& attrs;
  std::span<const TensorType> inputs;
  const TensorType& output;
  bool is_kept;  // others use the output, too
  const OpDef& next;
  const Attrs& next_attrs;
  std::span<const TensorType> next_inputs;
  int operand;  // of `next`: the one that is the output
};

// What a gradient sees: Values of the node and the gradients of its outputs (an invalid Value where none flows).
// It returns one Value per input, of the input's type, and an invalid one where no gradient flows; else grad() throws.
struct GradArgs {
  std::span<const Value> inputs;
  std::span<const Value> outputs;
  std::span<const Value> grads;
  std::span<const bool> needed;  // per input: is its gradient wanted at all?
  const Attrs& attrs;
  Where where;  // of the forward node: gradient nodes carry the user's line
};

// Appends a node to the graph of its inputs and returns its outputs. The op must outlive the program: temporaries do
// not compile. Throws Error for wrong types, Values of two graphs, or no Value at all (numbers and Variables alone do
// not name a graph).
std::vector<Value> emit(const OpDef& op, std::span<const Arg> inputs, Attrs attrs = {}, Label label = {});
std::vector<Value> emit(const OpDef& op, std::initializer_list<Arg> inputs, Attrs attrs = {}, Label label = {});
std::vector<Value> emit(const OpDef&& op, std::span<const Arg> inputs, Attrs attrs = {}, Label label = {}) = delete;
std::vector<Value> emit(const OpDef&& op, std::initializer_list<Arg> inputs, Attrs attrs = {},
                        Label label = {}) = delete;

}  // namespace graphsink
