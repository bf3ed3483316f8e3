// external_op: code that knows nothing of graphsink as a node of a Graph. Its functions are any callable, with what
// they capture; an OpDef (graphsink/op.h) is for ops that are used in more than one place.
#pragma once

#include <cstddef>
#include <functional>
#include <initializer_list>
#include <span>
#include <string>
#include <vector>

#include "graphsink/op.h"
#include "graphsink/version.h"

namespace GRAPHSINK_PUBLIC graphsink {

// Definition of a node of external_op(). At least one of `cpu` and `cuda` must be set.
struct ExternalOp {
  std::string name{};  // for explain(), errors and profiles
  // The types of the outputs.
  std::vector<TensorType> outputs{};
  // Computes the types of the outputs instead, as OpDef::infer does: for inputs with open dimensions.
  std::function<void(InferArgs&)> infer{};
  // Enqueues the work on a.stream(), or on streams that wait for an event of it and that it then waits for. Work that
  // it gives to other streams runs during a capture, too, in no order with the step; if that is all, the step is not
  // sunk. Kernels by <<<...>>> or CudaArgs::launch(), libraries, host functions. It reads the inputs at a.in<T>(i) and
  // writes the outputs to a.out<T>(i). The program's thread calls it for each step that runs op by op, and once or
  // twice for each capture; a launch repeats what it enqueued then, so numbers that it passes by value must not change.
  // Steps that are captured must not load kernels or allocate for the first time in it: the first step, which runs op
  // by op, does that, unless the node is in the body of a loop or branch.
  std::function<void(CudaArgs& a)> cuda{};
  // Computes the outputs in host memory. For a GPU program it runs on the host, between copies.
  std::function<void(const CpuArgs& a)> cpu{};
  // See OpDef::grad. Empty: grad() throws Error.
  std::function<std::vector<Value>(const GradArgs&)> grad{};
  // Properties that the planner has to know: see OpTraits. A function that prints, counts or changes memory of its own
  // has .host_effect; one that waits for the device has .capturable = false.
  OpTraits traits{};
  std::size_t workspace = 0;  // bytes of scratch memory at a.workspace()
  std::string call_cost{};    // see OpTraits::call_cost
};

// @{
// Appends the node to the graph of its inputs, of which one at least must be a Value, and returns its outputs.
// Variables are read; to change one, assign() an output to it. No two nodes are merged, whatever they capture. Objects
// and memory that the functions refer to must exist as long as programs of the graph. Throws Error where emit() does,
// and if there is no function, or nothing that it computes or does.
std::vector<Value> external_op(ExternalOp op, std::span<const Arg> inputs, Placement placement = {},
                               Where where = Where::current());
std::vector<Value> external_op(ExternalOp op, std::initializer_list<Arg> inputs, Placement placement = {},
                               Where where = Where::current());
// @}

}  // namespace graphsink
