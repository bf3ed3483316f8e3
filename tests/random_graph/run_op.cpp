#include "run_op.h"

#include <cstring>

#include "base/at.h"
#include "base/flush_denormals.h"
#include "ir/graph_data.h"

namespace graphsink::testing {
namespace {

// The input that an output shares its memory with, or -1.
int viewed(const BoundNode& node, int operand) {
  for (Alias view : node.op->views)
    if (node.inputs + view.output == operand) return view.input;
  return -1;
}

}  // namespace

std::vector<Tensor> OpRunner::run(const Call& call, StepState block) {
  const bool on_cuda = has_own_memory() && !call.on_host;
  const auto inputs = static_cast<int>(call.inputs.size());
  Prepared prepared;
  if (call.op.prepare)
    prepared = call.op.prepare({call.op.name, call.where, call.types, inputs, call.attrs, on_cuda, device_.get()});
  std::vector<Tensor> outputs;
  for (std::size_t i = at(inputs); i < call.types.size(); ++i) outputs.emplace_back(call.types[i]);
  std::vector<Tensor*> operands;
  for (const Tensor* input : call.inputs) operands.push_back(const_cast<Tensor*>(input));
  for (Tensor& output : outputs) operands.push_back(&output);
  BoundNode bound;
  bound.op = &call.op;
  bound.attrs = &call.attrs;
  bound.types = call.types.data();
  bound.inputs = inputs;
  bound.outputs = static_cast<int>(outputs.size());
  bound.local = prepared.data.get();
  bound.workspace_bytes = prepared.workspace;
  bound.id = call.id;
  bound.where = call.where;
  on_cuda ? run_on_device(bound, operands, block) : run_on_host(bound, operands, block);
  return outputs;
}

void OpRunner::run_on_host(BoundNode& node, const std::vector<Tensor*>& operands, StepState& block) const {
  std::vector<void*> pointers;
  for (std::size_t i = 0; i < operands.size(); ++i) {
    int view = viewed(node, static_cast<int>(i));
    pointers.push_back(view >= 0 ? pointers[at(view)] : operands[i] ? operands[i]->data() : nullptr);
  }
  std::vector<std::byte> workspace(node.workspace_bytes);
  node.pointers = pointers.data();
  node.workspace = workspace.data();
  node.step = &block;
  const FlushDenormals denormals(CompileOptions().flush_denormals);  // as in a program
  body_for(*node.op, DeviceKind::cpu)->cpu(CpuArgs(node));
  for (std::size_t i = 0; i < operands.size(); ++i)
    if (viewed(node, static_cast<int>(i)) >= 0) std::memcpy(operands[i]->data(), pointers[i], operands[i]->bytes());
}

void OpRunner::run_on_device(BoundNode& node, const std::vector<Tensor*>& operands, const StepState& block) {
  std::size_t used = 0;
  std::vector<std::size_t> offsets;
  auto take = [&](std::size_t bytes) {
    offsets.push_back(used);
    used += (bytes + 255) / 256 * 256;
  };
  for (const Tensor* operand : operands) take(operand ? operand->bytes() : 0);
  take(node.workspace_bytes);
  take(sizeof block);
  if (used > bytes_) memory_ = device_->allocate(bytes_ = 2 * used);
  auto* base = static_cast<std::byte*>(memory_.get());
  std::vector<void*> pointers;
  for (std::size_t i = 0; i < operands.size(); ++i) {
    int view = viewed(node, static_cast<int>(i));
    pointers.push_back(view >= 0 ? pointers[at(view)] : operands[i] ? base + offsets[i] : nullptr);
    bool is_input = static_cast<int>(i) < node.inputs;
    if (is_input && operands[i]) device_->upload(*stream_, pointers[i], operands[i]->data(), operands[i]->bytes());
  }
  node.pointers = pointers.data();
  node.workspace = base + offsets[operands.size()];
  node.step = reinterpret_cast<StepState*>(base + offsets.back());
  device_->upload(*stream_, node.step, &block, sizeof block);
  device_->call(*stream_, node);
  for (std::size_t i = at(node.inputs); i < operands.size(); ++i)
    device_->copy(*stream_, operands[i]->data(), pointers[i], operands[i]->bytes());
  device_->wait(*stream_);
}

}  // namespace graphsink::testing
