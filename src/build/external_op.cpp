#include <memory>
#include <utility>

#include "base/thrown.h"
#include "graphsink/cuda.h"
#include "graphsink/external.h"
#include "ir/bound_node.h"

namespace graphsink {
namespace {

// An OpDef of its own for each node, which lives as long as the node's attributes.
struct Code {
  ExternalOp external;
  OpDef op;
};
struct ExternalAttrs {
  std::shared_ptr<const Code> code;
};

const ExternalOp& external_of(const Attrs& attrs) { return attrs.as<ExternalAttrs>().code->external; }

void infer(InferArgs& a) {
  const ExternalOp& external = a.attrs<ExternalAttrs>().code->external;
  if (external.infer) return external.infer(a);
  for (const TensorType& type : external.outputs) a.out(type.dtype, type.shape);
}

Prepared prepare(const PrepareArgs& a) { return {nullptr, external_of(a.attrs).workspace}; }

std::vector<Value> external_grad(const GradArgs& a) { return external_of(a.attrs).grad(a); }

void cpu_body(const CpuArgs& a) { external_of(*bound_node(a).attrs).cpu(a); }

void cuda_body(CudaArgs& a) {
  const ExternalOp& external = external_of(*bound_node(a).attrs);
  try {
    external.cuda(a);
  } catch (const Error&) {
    throw;
  } catch (...) {
    throw body_error(external.name, a.where(), thrown());
  }
}

}  // namespace

std::vector<Value> external_op(ExternalOp op, std::span<const Arg> inputs, Placement placement, Where where) {
  const std::string name = op.name;
  if (name.empty()) throw Error("external_op", where, "it has no name", "give it one, for errors and profiles");
  if (!op.cpu && !op.cuda) {
    throw Error(name, where, "it has neither a function for CUDA nor one for the CPU", "set .cuda, .cpu or both");
  }
  if (op.infer && !op.outputs.empty()) {
    throw Error(name, where, "it has both .outputs and .infer", "set one of them");
  }
  if (!op.infer && op.outputs.empty() && !op.traits.host_effect) {
    throw Error(name, where, "it has no outputs, and says of no effect: nothing would run it",
                "say what it computes, by .outputs or .infer; or set .traits = {.host_effect = true}");
  }
  auto code = std::make_shared<Code>();
  code->external = std::move(op);
  const ExternalOp& external = code->external;
  code->op = OpDef{.name = external.name,
                   .infer = infer,
                   .traits = external.traits,
                   .prepare = prepare,
                   .bodies = external.cpu && external.cuda ? OpBodies{cpu_body, cuda_body}
                             : external.cpu                ? OpBodies{cpu_body}
                                                           : OpBodies{cuda_body},
                   .grad = external.grad ? external_grad : nullptr};
  if (!external.call_cost.empty()) code->op.traits.call_cost = external.call_cost;
  const OpDef& def = code->op;
  return emit(def, inputs, ExternalAttrs{std::move(code)}, placement);
}

std::vector<Value> external_op(ExternalOp op, std::initializer_list<Arg> inputs, Placement placement, Where where) {
  return external_op(std::move(op), std::span(inputs.begin(), inputs.size()), placement, where);
}

}  // namespace graphsink
