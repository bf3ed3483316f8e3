#include "kernels/runtime/fused_layout.h"

#include <algorithm>

#include "base/at.h"

namespace graphsink {
namespace {

// Returns where in an input of the group the elements of the op's result lie. Returns nothing if the op does more than
// move elements of one input of the group, or if they do not lie in runs.
std::optional<RunsInInput> runs_of(const FusedOp& op) {
  if (!op.op->moves || op.operands.size() != 1 || op.operands[0].input < 0) return {};
  const Strided all =
      Strided::whole(op.types[0].shape).part(op.types[1].shape, moves_of(*op.op, {op.attrs, op.types, 1}, 0, op.where));
  RunsInInput runs{all.first, 1, 1};
  int d = all.shape.rank() - 1;
  // The innermost axes are a run, as many of them as have no gaps.
  for (; d >= 0 && (all.shape[d] == 1 || all.strides[at(d)] == runs.run); --d) runs.run *= all.shape[d];
  // The others count runs.
  runs.pitch = d >= 0 ? all.strides[at(d)] : runs.run;
  std::int64_t stride = runs.pitch;
  for (; d >= 0; --d) {
    if (all.shape[d] > 1 && all.strides[at(d)] != stride) return {};
    stride *= all.shape[d];
  }
  return runs.pitch < runs.run ? std::nullopt : std::optional(runs);
}

// Whether it is faster to compute what lies between the runs than to copy the runs of each slice.
bool are_close(const RunsInInput& runs) {
  return runs.pitch <= 2 * runs.run && runs.pitch - runs.run <= std::max<std::int64_t>(16, runs.run / 4);
}

// Whether a run of each value that is computed fits into the cache. `slices`: the ops that are not.
bool are_short(const FusedAttrs& group, std::size_t slices, const RunsInInput& runs) {
  std::size_t widest = 1;
  for (const FusedOp& op : group.ops)
    for (const TensorType& type : op.types) widest = std::max(widest, size_of(type.dtype));
  const std::size_t values = group.ops.size() - slices + group.outputs.size();
  return static_cast<std::size_t>(runs.pitch) <= kMaxFusedRowBytes / values / widest;
}

// Whether the op reads nothing but values that lie in runs, and single numbers, and can compute what lies between the
// runs, too, whatever that is: no op of floating-point numbers fails because of its operands.
bool computes_runs(const FusedOp& op) {
  if (!op.op->elements.row) return false;
  for (std::size_t i = 0; i < op.operands.size(); ++i)
    if (op.operands[i].op < 0 && (op.operands[i].input < 0 || op.types[i].shape.size() != 1)) return false;
  return std::all_of(op.types.begin(), op.types.end(), [](const TensorType& type) { return is_float(type.dtype); });
}

}  // namespace

FusedLayout layout_of(const FusedAttrs& group) {
  const std::int64_t size = group.ops.front().types.back().shape.size();
  FusedLayout layout;
  const RunsInInput* apart = nullptr;  // some that are not one run
  for (const FusedOp& op : group.ops) layout.in_place.push_back(runs_of(op));
  for (int output : group.outputs) layout.in_place[at(output)].reset();
  for (const auto& runs : layout.in_place)
    if (runs && runs->run != size) apart = &*runs;
  if (!apart) return layout;
  auto fits = [&](const FusedOp& op) {
    const auto& runs = layout.in_place[static_cast<std::size_t>(&op - group.ops.data())];
    return runs ? runs->run == apart->run && runs->pitch == apart->pitch : computes_runs(op);
  };
  const auto slices = static_cast<std::size_t>(
      std::count_if(layout.in_place.begin(), layout.in_place.end(), [](const auto& runs) { return runs.has_value(); }));
  if (are_close(*apart) && are_short(group, slices, *apart) && std::all_of(group.ops.begin(), group.ops.end(), fits)) {
    layout.run = apart->run;
    layout.pitch = apart->pitch;
  } else {
    for (auto& runs : layout.in_place)
      if (runs && runs->run != size) runs.reset();
  }
  return layout;
}

}  // namespace graphsink
