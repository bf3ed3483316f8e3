// The op contract: an op is a constant of type OpDef, which states what the op computes and what it needs before it
// runs. A new op is one such constant: see kernels/ for built-in ops and samples/ for a user's. Ops are not registered.
#pragma once

#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "graphsink/attrs.h"
#include "graphsink/axis_map.h"
#include "graphsink/body.h"
#include "graphsink/error.h"
#include "graphsink/graph.h"
#include "graphsink/type.h"
#include "graphsink/version.h"

namespace GRAPHSINK_PUBLIC graphsink {

struct GradArgs;
struct OpDef;

// How a node uses one of its operands.
enum class Access : std::uint8_t {
  read,        // reads its elements
  shape_only,  // uses only its type: the op neither waits for the elements nor keeps them in memory
  // Reads and overwrites a Variable. The op is then part of the commit, which ends the step. It must do nothing if
  // step->ok is 0, and it must not throw, because the stores before it cannot be undone. It has no outputs and no host
  // effect.
  write,
};

// Properties of an op that the planner has to know before the op runs. If an op cannot be captured and its traits do
// not say so, its capture fails and all steps run op by op.
struct OpTraits {
  // The outputs depend not only on inputs and attributes but also on the step, the program's seed and the node's number
  // (BodyArgs::id()), so that two equal nodes draw different numbers.
  bool random = false;
  // The op does something that the graph cannot see: it prints, reads a file or counts. Such a node runs even if
  // nothing uses its outputs, and it runs after all nodes with an effect that were built before it.
  bool host_effect = false;
  // The op may run more than once for one step although it has a host effect, because it only looks whether the step
  // must fail, for example. Steps in which a result turns out to have another size run again (select.h).
  bool repeatable = false;
  // Stream capture can record what the CUDA body does. Set it to false for a body that waits for the device or calls a
  // library that does; the host then issues the op in every step, between two launches.
  bool capturable = true;
  // The CUDA body enqueues only work that may be part of the body of a conditional node: kernels, copies and memsets
  // within one device, and child graphs of these (CUDA Programming Guide, "Conditional Graph Nodes"). If false, the
  // host drives the loops and branches around the op, and a run of several steps takes several launches.
  bool allowed_in_bodies = true;
  // All outputs are views (OpDef::views) and the bodies do nothing, so that plans have no node for the op.
  bool only_views = false;
  // If the first operand has the type of the output, the output is a copy of it. Plans have no node for the op then.
  bool copies_same_type = false;
  // A result takes much more time to compute than to read from memory, as that of a matrix product does. The gradient
  // of a loop keeps such results of all iterations; others it computes again.
  bool costly = false;
  // All that the CUDA body enqueues are kernels that it gives to CudaArgs::launch(). Each begins with
  // wait_for_inputs(), and is compiled for compute capability 9.0 or above. It enqueues at least one, unless an operand
  // or an output has no elements. A captured graph may then launch them programmatically: see
  // Tuning::programmatic_launch.
  bool kernels_wait = false;
  // The op is a collective: every rank of a group of processes runs it, in one order, so it has a host effect, too. In
  // front of the commit of a step with collectives the planner puts a node of the op `agree`, by which all ranks learn
  // whether the step failed on one of them; on the device, if all collectives of the step run there. See ranks.h.
  const OpDef* agree = nullptr;
  // For explain(): the price of a call of the CPU body beside its own work, such as "10 us for a lock". The text must
  // exist as long as the op.
  std::string_view call_cost = {};
};

// An output and an input that may share memory (OpDef::in_place) or always do (OpDef::views).
struct Alias {
  int output = 0;  // number of the output, from 0
  int input = 0;   // number of the input, from 0
};

// The argument of OpDef::infer. infer runs when the op is emitted, and again, with all sizes known, for each set of
// input shapes that a program meets.
class InferArgs {
 public:
  // For the library. All but `where` is borrowed, and must live as long as *this.
  InferArgs(std::string_view op, std::span<const TensorType> inputs, const Attrs& attrs, Where where)
      : op_(op), inputs_(inputs), attrs_(attrs), where_(where) {}

  int inputs() const { return static_cast<int>(inputs_.size()); }  // how many there are
  // Throws Error if there is no such input.
  const TensorType& in(int i) const;
  // The attributes that emit() was given. Throws Error if their type is not T.
  template <class T>
  const T& attrs() const {
    return attrs_.as<T>();
  }
  // Appends the type of the next output.
  void out(DType dtype, const Shape& shape) { outputs_.push_back({dtype, shape}); }
  std::vector<TensorType>& outputs() { return outputs_; }  // the types that out() has appended so far

  // The first `count` inputs are those that the user has given; the others are not named in errors. By default all are.
  void list_inputs(int count) { listed_ = count; }
  // Throws Error, naming the op and the user's line. The types of the inputs are appended to `problem`.
  [[noreturn]] void fail(const std::string& problem, const std::string& remedy) const;
  // Throws Error unless there are exactly `count` inputs.
  void expect_inputs(int count) const;
  // Throws Error unless inputs [0, count) have the same dtype.
  void expect_same_dtype(int count) const;
  // Throws Error unless input i has this type.
  void expect_input(int i, const TensorType& type) const;
  // Throws Error unless input i has this shape, of any dtype.
  void expect_input(int i, const Shape& shape) const;
  // The types that another op's infer makes of these types with the same attributes, for ops that compute its gradient.
  // Throws Error where it does, in the name of this op.
  std::vector<TensorType> outputs_of(void (*infer)(InferArgs&), std::initializer_list<TensorType> inputs) const;

 private:
  std::string_view op_;
  std::span<const TensorType> inputs_;
  const Attrs& attrs_;
  Where where_;
  std::vector<TensorType> outputs_;
  int listed_ = -1;  // -1: all
};

// Computes `size` elements of the result of an element-wise op, on the CPU. Element i of `out` is made of the elements
// i * steps[k] of in[k]. A step is 1, or 0 for an operand of one element. `out` may be an operand whose step is 1.
using ElementwiseRow = void (*)(std::int64_t size, const void* const* in, const std::int64_t* steps, void* out);

// A scalar function that the planner knows: it computes some of them to count the iterations of a loop, and joins
// others with the matrix product in front of them.
enum class Scalar : std::uint8_t {
  other,
  add,
  subtract,
  multiply,
  less,
  less_equal,
  greater,
  greater_equal,
  equal,
  not_equal,
  logical_and,
  logical_or,
  relu,
  gelu,
  silu,
  tanh,
  sigmoid,
};

// How an element-wise op computes an element of its result. The argument of the functions is the types of the operands,
// then that of the output.
struct Elements {
  // The function of the operands, in their order. The planner treats ops with the same one alike.
  Scalar scalar = Scalar::other;
  // The same as an expression in C++, such as "a + b", for kernels that are compiled while the program runs. x is the
  // operand, or a and b are the operands, or a, b and c. T is the type that `type` names, and R is the type of an
  // element of the result. It may call the functions of kernels/support/scalar.h.
  std::string_view text = {};
  // The C++ type T in which `text` is computed, and to which operands are converted first; empty: they are not
  // converted. On CUDA devices the planner joins ops that have it and a text into one kernel. nullptr: never.
  std::string_view (*type)(std::span<const TensorType> types) = nullptr;
  // The function that computes a row on the CPU, with the bits of the CPU body. The planner joins such ops into one
  // node, which computes them block by block. If it is nullptr, or returns nullptr, the op is not joined with others.
  ElementwiseRow (*row)(std::span<const TensorType> types) = nullptr;

  // A kernel that is compiled while the program runs can compute it.
  bool is_written() const { return type != nullptr && !text.empty(); }
};

// How grad() differentiates an op: by a rule, by a formula, or not at all.
struct Gradient {
  // Builds the gradients of the inputs as nodes of the graph.
  using Rule = std::vector<Value> (*)(const GradArgs&);
  // Builds values that equal the outputs, from the inputs and by ops that have gradients. grad() differentiates the
  // nodes of these values in place of the op, which still computes the outputs. Inputs of f16 and bf16 are given as
  // f32. It suits ops that compute the gradient of another op.
  using Formula = std::vector<Value> (*)(std::span<const Value> inputs, const Attrs&);

  constexpr Gradient() = default;
  // A rule: a function, or a lambda that captures nothing.
  template <std::convertible_to<Rule> F>
  constexpr Gradient(F f) : rule(f) {}  // NOLINT: implicit
  // A formula, likewise.
  template <std::convertible_to<Formula> F>
  constexpr Gradient(F f) : formula(f) {}  // NOLINT: implicit
  // There is none. The reason, as the end of a sentence, is for the Error of grad().
  constexpr Gradient(const char* reason) : none_because(reason) {}  // NOLINT: implicit

  Rule rule = nullptr;                 // nullptr: not by a rule
  Formula formula = nullptr;           // nullptr: not by a formula
  std::string_view none_because = {};  // reason why there is no gradient; must exist as long as the op
};

// An op. It must be a constant with static storage duration, because nodes keep a pointer to it.
struct OpDef {
  std::string_view name;  // must be a string literal, because profilers keep a pointer to it
  // Computes the types of all outputs from the types of the inputs and the attributes, and refuses what does not fit
  // with InferArgs::fail(). Required.
  void (*infer)(InferArgs&) = nullptr;
  // Returns the access of one of `operands` inputs. If it is nullptr, all inputs are read.
  Access (*access)(int operand, int operands) = nullptr;
  // Outputs that may be stored in the memory of an input of the same type: the body reads an element for the last time
  // before it overwrites it.
  std::span<const Alias> in_place = {};
  // Outputs that are the memory of an input, of which they may be a part. The body does not write them.
  std::span<const Alias> views = {};
  OpTraits traits = {};  // by default a pure op that a launch can hold
  // Chooses and loads everything that the body needs: library handles, algorithms, kernels, workspace. nullptr if there
  // is nothing to prepare.
  Prepared (*prepare)(const PrepareArgs&) = nullptr;
  // How an element-wise op with one output computes an element. Operands are broadcast as in NumPy.
  Elements elements = {};
  // The functions that compute the op, one for each device or architecture. A CUDA body only enqueues work on
  // a.stream(). It must not allocate, synchronise, read device memory from the host, choose between algorithms or use a
  // library for the first time: prepare() does all that. In a loop a body is captured twice.
  OpBodies bodies = {};
  // How grad() differentiates the op. If nothing is given, grad() throws Error, naming the op.
  Gradient grad = {};
  // Returns how a part lies in the whole, for ops that only move elements. If the op reads the first operand alone,
  // that is the whole, and the outputs are parts of it. If it reads all operands, these are the parts, and together
  // they are its output. Planning throws Error for a map that names no axis of the whole, or one twice.
  AxisMap (*moves)(const MoveArgs&, int part) = nullptr;
  // Returns the floating-point operations of one execution, a multiply-add counted as two. Profiles show the rate, and
  // the CPU estimates the time of tiles. nullptr where the rate says little, because the op waits for memory. If it
  // throws, profiles throw Error, and steps run as if it had returned 0.
  std::uint64_t (*flops)(const BodyArgs&) = nullptr;
};

// Returns the body that runs on a device of that kind and compute capability: of those that can, the one that requires
// the highest capability. nullptr if there is none.
const OpBody* body_for(const OpDef& op, DeviceKind device, int capability = 0);

// The argument of Gradient::Rule, which returns one Value for each input: its gradient, of the input's type, or an
// invalid Value if the loss does not depend on that input. grad() throws Error if the number or a type is wrong.
struct GradArgs {
  std::span<const Value> inputs;   // operands of the node, in their order
  std::span<const Value> outputs;  // values that the node computes
  std::span<const Value> grads;    // per output: its gradient, or an invalid Value if the loss does not depend on it
  std::span<const bool> needed;    // per input: whether its gradient will be used
  const Attrs& attrs;              // attributes of the node
  Where where;                     // the user's line of the node, which the gradient's nodes carry, too
  int node;                        // number that the bodies of the op will find as a.id()
};

// Appends a node to the graph of its inputs and returns its outputs. The op must outlive the program; a temporary does
// not compile. Throws Error for types that the op refuses, for Values of two graphs, and if no input is a Value,
// because numbers and Variables do not belong to a graph.
std::vector<Value> emit(const OpDef& op, std::span<const Arg> inputs, Attrs attrs = {}, Placement placement = {});
// The same for operands in braces: emit(op, {x, y}).
std::vector<Value> emit(const OpDef& op, std::initializer_list<Arg> inputs, Attrs attrs = {}, Placement placement = {});
std::vector<Value> emit(const OpDef&& op, std::span<const Arg> inputs, Attrs attrs = {},
                        Placement placement = {}) = delete;
std::vector<Value> emit(const OpDef&& op, std::initializer_list<Arg> inputs, Attrs attrs = {},
                        Placement placement = {}) = delete;

}  // namespace graphsink
