// The ops by which ranks exchange values, and their gradients.
#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "base/at.h"
#include "graphsink/ops.h"
#include "ir/graph_data.h"
#include "ranks/collective.h"
#include "ranks/nccl_form.h"
#include "ranks/reduce.h"

namespace graphsink {
namespace {

RankGroup& group_of(const BodyArgs& a) { return *a.attrs<CollectiveAttrs>().group; }

// A dead step goes on as if each rank had what this one has, so that its loops end as those of the rank alone would.
void take_own(const CpuArgs& a) {
  const std::size_t in = a.in_type(0).bytes(), out = a.out_type(0).bytes();
  for (std::size_t first = 0; in > 0 && first < out; first += in)
    std::memcpy(a.out<std::byte>(0) + first, a.in<void>(0), std::min(in, out - first));
}

template <OpBody::Cpu body>
void in_live_steps(const CpuArgs& a) {
  if (is_dead(a)) return take_own(a);
  compare_calls(a);
  body(a);
}

constexpr OpDef collective_op(std::string_view name, void (*infer)(InferArgs&), OpBody::Cpu body, Gradient::Rule grad,
                              Prepared (*prepare)(const PrepareArgs&) = prepare_exchange) {
  return {.name = name,
          .infer = infer,
          .traits = {.host_effect = true, .agree = &agree_op, .call_cost = "a wait for all ranks"},
          .prepare = prepare,
          .bodies = {body},
          .grad = grad};
}

// The form of an op for the group.
const OpDef& form_of(const OpDef& op, const RankGroup& group);

void check_reduction(InferArgs& a) {
  const Reduction reduction = a.attrs<CollectiveAttrs>().reduction;
  if (reduction != Reduction::sum && reduction != Reduction::mean && reduction != Reduction::max)
    a.fail("has no such reduction", "pass a value of the enumeration Reduction");
  const DType dtype = a.in(0).dtype;
  const char* const remedy = "cast() the operand to one of these that holds its numbers";
  if (dtype == DType::boolean) a.fail("takes numbers", remedy);
  if (reduction == Reduction::mean && !is_float(dtype)) a.fail("takes the mean of floats", remedy);
  if (reduction == Reduction::max && a.attrs<CollectiveAttrs>().same_loss)
    a.fail("has no gradient of a maximum for one loss", "give stop_gradient() of the operand, and leave same_loss out");
  if (reduction == Reduction::sum && dtype == DType::u8) a.fail("takes the sum of floats, i32 and i64", remedy);
}

// The size of the first axis, of which each rank has or gets an equal part.
std::int64_t first_axis(InferArgs& a, std::int64_t parts) {
  const Shape& shape = a.in(0).shape;
  if (shape.rank() == 0) a.fail("takes a tensor with an axis, not a scalar", "unsqueeze() the scalar");
  const std::int64_t size = shape.is_open(0) ? shape.examples()[0] : shape[0];
  if (size % parts != 0)
    a.fail("the first axis cannot be divided by the " + std::to_string(parts) + " ranks", "pad() it to a multiple");
  return size;
}

Shape with_first(Shape shape, std::int64_t size) {
  const bool is_open = shape.is_open(0);
  Shape result = shape.examples();
  result[0] = size;
  for (int i = 0; i < shape.rank(); ++i)
    if (i == 0 ? is_open : shape.is_open(i)) result.mark_open(i);
  return result;
}

std::vector<Value> emit_again(const OpDef& op, const GradArgs& g, Reduction reduction) {
  auto attrs = g.attrs.as<CollectiveAttrs>();
  attrs.reduction = reduction;
  const OpDef& form = form_of(op, *attrs.group);
  return emit(form, {Arg(g.grads[0], g.where)}, std::move(attrs));
}

// --- all_reduce

// The elements of a rank's part, when all are divided among the ranks: the last part is filled up with zeros.
std::int64_t part_of(std::int64_t size, int ranks) { return (size + ranks - 1) / ranks; }

void infer_all_reduce(InferArgs& a) {
  a.expect_inputs(1);
  check_reduction(a);
  a.out(a.in(0).dtype, a.in(0).shape);
}

Prepared prepare_all_reduce(const PrepareArgs& p) {
  if (p.cuda) return prepare_nccl(p);
  const int ranks = p.attrs.as<CollectiveAttrs>().group->size();
  const std::int64_t size = p.in(0).shape.size(), part = part_of(size, ranks);
  const auto all = static_cast<std::size_t>(part * ranks) * size_of(p.in(0).dtype);
  return {nullptr, part * ranks == size ? all : 3 * all};
}

// Each rank combines one part of the elements, and then all get the parts of all.
void all_reduce_body(const CpuArgs& a) {
  RankGroup& group = group_of(a);
  const TensorType& type = a.in_type(0);
  const std::int64_t size = type.shape.size(), part = part_of(size, group.size());
  const std::size_t bytes = static_cast<std::size_t>(part) * size_of(type.dtype), all = bytes * at(group.size());
  auto* received = static_cast<std::byte*>(a.workspace());
  const void* sent = a.in<void>(0);
  void* result = a.out<void>(0);
  const bool is_padded = all != type.bytes();
  if (is_padded) {
    std::byte* padded = received + all;
    std::memcpy(padded, sent, type.bytes());
    std::memset(padded + type.bytes(), 0, all - type.bytes());
    sent = padded;
    result = received + 2 * all;
  }
  group.all_to_all(sent, received, bytes, exchange_of(a));
  reduce_rows(received, type.dtype, part, group.size(), a.attrs<CollectiveAttrs>().reduction);
  group.all_gather(received, result, bytes, exchange_of(a));
  if (is_padded) std::memcpy(a.out<void>(0), result, type.bytes());
}

std::vector<Value> all_reduce_grad(const GradArgs& g);
constexpr OpDef kAllReduce = collective_op("all_reduce", infer_all_reduce, in_live_steps<all_reduce_body>,
                                           on_ranks<all_reduce_grad>, prepare_all_reduce);

std::vector<Value> all_reduce_grad(const GradArgs& g) {
  if (g.attrs.as<CollectiveAttrs>().same_loss) return gradient_of_same_loss(g);
  const Reduction reduction = g.attrs.as<CollectiveAttrs>().reduction;
  if (reduction != Reduction::max) return emit_again(kAllReduce, g, reduction);
  const auto arg = [&](const Value& value) { return Arg(value, g.where); };
  const Value is_largest = cast(arg(equal(arg(g.inputs[0]), arg(g.outputs[0]))), g.inputs[0].dtype());
  const Value total = emit_again(kAllReduce, g, Reduction::sum)[0];
  auto attrs = g.attrs.as<CollectiveAttrs>();
  attrs.reduction = Reduction::sum;
  const OpDef& form = form_of(kAllReduce, *attrs.group);
  const Value count = emit(form, {arg(is_largest)}, std::move(attrs))[0];
  return {mul(arg(is_largest), arg(div(arg(total), arg(count))))};
}

// --- reduce_scatter and all_gather

void infer_reduce_scatter(InferArgs& a) {
  a.expect_inputs(1);
  const auto& attrs = a.attrs<CollectiveAttrs>();
  check_reduction(a);
  if (attrs.reduction == Reduction::max) a.fail("has no maximum", "use all_reduce(), and take a part of the result");
  const std::int64_t size = first_axis(a, attrs.group->size());
  a.out(a.in(0).dtype, with_first(a.in(0).shape, size / attrs.group->size()));
}

Prepared prepare_reduce_scatter(const PrepareArgs& p) {
  return p.cuda ? prepare_nccl(p) : Prepared{nullptr, p.in(0).bytes()};
}

void reduce_scatter_body(const CpuArgs& a) {
  RankGroup& group = group_of(a);
  const TensorType& part = a.out_type(0);
  group.all_to_all(a.in<void>(0), a.workspace(), part.bytes(), exchange_of(a));
  reduce_rows(a.workspace(), part.dtype, part.shape.size(), group.size(), a.attrs<CollectiveAttrs>().reduction);
  std::memcpy(a.out<void>(0), a.workspace(), part.bytes());
}

void infer_all_gather(InferArgs& a) {
  a.expect_inputs(1);
  a.out(a.in(0).dtype, with_first(a.in(0).shape, first_axis(a, 1) * a.attrs<CollectiveAttrs>().group->size()));
}

void all_gather_body(const CpuArgs& a) {
  group_of(a).all_gather(a.in<void>(0), a.out<void>(0), a.in_type(0).bytes(), exchange_of(a));
}

std::vector<Value> reduce_scatter_grad(const GradArgs& g);
std::vector<Value> all_gather_grad(const GradArgs& g);
constexpr OpDef kReduceScatter =
    collective_op("reduce_scatter", infer_reduce_scatter, in_live_steps<reduce_scatter_body>,
                  on_ranks<reduce_scatter_grad>, prepare_reduce_scatter);
constexpr OpDef kAllGather =
    collective_op("all_gather", infer_all_gather, in_live_steps<all_gather_body>, on_ranks<all_gather_grad>);

std::vector<Value> reduce_scatter_grad(const GradArgs& g) {
  const auto& attrs = g.attrs.as<CollectiveAttrs>();
  const Value all = emit_again(kAllGather, g, Reduction::sum)[0];
  if (attrs.reduction == Reduction::sum) return {all};
  return {div(Arg(all, g.where), Arg(attrs.group->size(), g.where))};
}
std::vector<Value> all_gather_grad(const GradArgs& g) { return emit_again(kReduceScatter, g, Reduction::sum); }

// --- broadcast

void infer_broadcast(InferArgs& a) {
  a.expect_inputs(1);
  const auto& attrs = a.attrs<CollectiveAttrs>();
  if (attrs.root < 0 || attrs.root >= attrs.group->size())
    a.fail("there is no rank " + std::to_string(attrs.root) + " in a group of " + std::to_string(attrs.group->size()),
           "give a root from 0 to " + std::to_string(attrs.group->size() - 1));
  a.out(a.in(0).dtype, a.in(0).shape);
}

void broadcast_body(const CpuArgs& a) {
  RankGroup& group = group_of(a);
  const int root = a.attrs<CollectiveAttrs>().root;
  const std::size_t bytes = a.in_type(0).bytes();
  if (group.rank() == root && bytes > 0) std::memcpy(a.out<void>(0), a.in<void>(0), bytes);
  group.broadcast(a.out<void>(0), bytes, root, exchange_of(a));
}

// The loss depends on what the root has alone. All ranks build the same ops, which a constant tells apart.
std::vector<Value> broadcast_grad(const GradArgs& g) {
  const auto& attrs = g.attrs.as<CollectiveAttrs>();
  const Value total = emit_again(kAllReduce, g, Reduction::sum)[0];
  const bool is_root = attrs.group->rank() == attrs.root;
  const Value mine = Graph(total.graph()).constant(Tensor::scalar(is_root), g.where);
  return {where(Arg(mine, g.where), Arg(total, g.where), Arg(0, g.where))};
}

constexpr OpDef kBroadcast =
    collective_op("broadcast", infer_broadcast, in_live_steps<broadcast_body>, on_ranks<broadcast_grad>);

// --- all_to_all

void infer_all_to_all(InferArgs& a) {
  a.expect_inputs(1);
  (void)first_axis(a, a.attrs<CollectiveAttrs>().group->size());
  a.out(a.in(0).dtype, a.in(0).shape);
}

void all_to_all_body(const CpuArgs& a) {
  RankGroup& group = group_of(a);
  group.all_to_all(a.in<void>(0), a.out<void>(0), a.in_type(0).bytes() / at(group.size()), exchange_of(a));
}

std::vector<Value> all_to_all_grad(const GradArgs& g);
constexpr OpDef kAllToAll =
    collective_op("all_to_all", infer_all_to_all, in_live_steps<all_to_all_body>, on_ranks<all_to_all_grad>);
std::vector<Value> all_to_all_grad(const GradArgs& g) { return emit_again(kAllToAll, g, Reduction::sum); }

#ifdef GRAPHSINK_CUDA
constexpr OpDef kNcclAllReduce = with_nccl<nccl_all_reduce>(kAllReduce);
constexpr OpDef kNcclReduceScatter = with_nccl<nccl_reduce_scatter>(kReduceScatter);
constexpr OpDef kNcclAllGather = with_nccl<nccl_all_gather>(kAllGather);
constexpr OpDef kNcclBroadcast = with_nccl<nccl_broadcast>(kBroadcast);
constexpr OpDef kNcclAllToAll = with_nccl<nccl_all_to_all>(kAllToAll);

const OpDef& form_of(const OpDef& op, const RankGroup& group) {
  if (group.nccl() == nullptr) return op;
  if (&op == &kAllReduce) return kNcclAllReduce;
  if (&op == &kReduceScatter) return kNcclReduceScatter;
  if (&op == &kAllGather) return kNcclAllGather;
  if (&op == &kBroadcast) return kNcclBroadcast;
  return &op == &kAllToAll ? kNcclAllToAll : op;
}
#else
const OpDef& form_of(const OpDef& op, const RankGroup&) { return op; }
#endif

// A group of one needs no node, only the checks of the op.
Value collective(const OpDef& op, const Arg& x, CollectiveAttrs attrs) {
  const auto* value = std::get_if<Value>(&x.content());
  const OpDef& form = form_of(op, *attrs.group);
  if (attrs.group->size() > 1 || value == nullptr) return emit_on_ranks(form, x, std::move(attrs));
  const TensorType type = value->type(x.where());
  const Attrs shared(std::move(attrs));
  InferArgs infer(op.name, std::span(&type, 1), shared, x.where());
  op.infer(infer);
  return *value;
}

}  // namespace

Value emit_on_ranks(const OpDef& form, const Arg& x, CollectiveAttrs attrs) {
  // On one rank, too, an operand that is no Value becomes a node, and so does its collective.
  const bool is_of_ranks = attrs.group->size() > 1 && std::holds_alternative<Value>(x.content());
  const Value made = emit(form, {x}, std::move(attrs))[0];
  if (is_of_ranks) made.graph()->note_rank_nodes(at(made.node()));
  return made;
}

Value all_reduce(Arg x, const Comm& comm, const AllReduceOptions& options) {
  return collective(kAllReduce, x, {comm.group(), options.reduction, 0, options.same_loss});
}
Value all_reduce_gradients(Arg x, const Comm& comm, bool same_program) {
  return collective(kAllReduce, x, {comm.group(), Reduction::mean, 0, false, {}, same_program});
}
Value all_gather(Arg x, const Comm& comm) { return collective(kAllGather, x, {comm.group()}); }
Value reduce_scatter(Arg x, const Comm& comm, const ReduceScatterOptions& options) {
  return collective(kReduceScatter, x, {comm.group(), options.reduction});
}
Value reduce_scatter_gradients(Arg x, const Comm& comm, bool same_program) {
  return collective(kReduceScatter, x, {comm.group(), Reduction::mean, 0, false, {}, same_program});
}
Value broadcast(Arg x, const Comm& comm, int root) {
  return collective(kBroadcast, x, {comm.group(), Reduction::sum, root});
}
Value all_to_all(Arg x, const Comm& comm) { return collective(kAllToAll, x, {comm.group()}); }

}  // namespace graphsink
