// Parts of one model on several ranks.
#include <string>
#include <utility>

#include "graphsink/ops.h"
#include "graphsink/ranks.h"
#include "ir/graph_data.h"
#include "ranks/collective.h"

namespace graphsink {
namespace {

void infer_enter(InferArgs& a) {
  a.expect_inputs(1);
  a.out(a.in(0).dtype, a.in(0).shape);
}
void enter_on_cpu(const CpuArgs&) {}
void enter_on_cuda(CudaArgs&) {}

std::vector<Value> enter_grad(const GradArgs& g) {
  return {leave_parallel(Arg(g.grads[0], g.where), Comm(g.attrs.as<CollectiveAttrs>().group))};
}

constexpr Alias kEnterIsAView[] = {{0, 0}};
const OpDef enter_op{.name = "enter_parallel",
                     .infer = infer_enter,
                     .views = kEnterIsAView,
                     .traits = {.only_views = true},
                     .bodies = {enter_on_cpu, enter_on_cuda},
                     .grad = on_ranks<enter_grad>};

// One loss per row, of rows that have logits of `part` classes from `first` on.
class DividedCrossEntropy {
 public:
  DividedCrossEntropy(const Value& logits, const Value& targets, const Comm& comm, const CrossEntropyOptions& options,
                      const Where& where)
      : logits_(logits), targets_(targets), comm_(comm), options_(options), where_(where) {}

  Value loss() const {
    const std::int64_t part = logits_.shape()[1], first = comm_.rank() * part, classes = comm_.size() * part;
    const Value target = narrow(targets_), is_here = is_from(target, first, first + part);
    const Value ignored = is_ignored(), is_class = is_from(target, 0, classes);
    const Value is_elsewhere = ignored.valid() ? logical_or(arg(is_class), arg(ignored)) : is_class;
    // Nothing of an ignored row has a part in the gradient, whatever its logits are.
    const Value logits =
        ignored.valid() ? graphsink::where(arg(unsqueeze(arg(ignored), 1)), number(0), arg(logits_)) : logits_;
    // A target that is no class is an index outside of every part, and fails the step.
    const Value wrong_or_0 = graphsink::where(arg(is_elsewhere), number(0), arg(target));
    const Value index =
        graphsink::where(arg(is_here), arg(sub(arg(target), number(static_cast<double>(first)))), arg(wrong_or_0));
    const Value picked = reshape(arg(take_along_axis(arg(logits), arg(unsqueeze(arg(index), 1)), 1)), {-1});
    const Value of_target = leave_parallel(arg(graphsink::where(arg(is_here), arg(picked), number(0))), comm_);

    // The largest logit only keeps exp() from overflowing: it has no part in the gradient.
    const Value largest = all_reduce(arg(max(arg(stop_gradient(arg(logits))), {1}, {.keep_axes = true})), comm_,
                                     {.reduction = Reduction::max});
    const Value terms = exp(arg(sub(arg(logits), arg(largest))));
    const Value total = leave_parallel(arg(sum(arg(terms), {1})), comm_);
    // In this order small losses of large logits keep their digits.
    const Value rows = add(arg(sub(arg(reshape(arg(largest), {-1})), arg(of_target))), arg(log(arg(total))));
    return combined(rows, ignored);
  }

 private:
  Arg arg(const Value& value) const { return Arg(value, where_); }
  Arg number(double x) const { return Arg(x, where_); }
  // As i32, in which what is beyond it stays far from all classes.
  Value narrow(const Value& x) const {
    return x.dtype() == i32 ? x : cast(arg(clamp(arg(x), -0x1p31, 0x1p31 - 1)), i32);
  }
  Value is_from(const Value& x, std::int64_t low, std::int64_t high) const {
    return logical_and(arg(greater_equal(arg(x), number(static_cast<double>(low)))),
                       arg(less(arg(x), number(static_cast<double>(high)))));
  }
  // Not valid() if no row is ignored.
  Value is_ignored() const {
    if (!options_.ignore_index) return {};
    return equal(arg(targets_), number(static_cast<double>(*options_.ignore_index)));
  }
  Value combined(const Value& rows, const Value& ignored) const {
    if (!ignored.valid()) return options_.per_row ? rows : mean(arg(rows));
    const Value zeros = graphsink::where(arg(ignored), number(0), arg(rows));
    if (options_.per_row) return zeros;
    const Value count = sum(arg(cast(arg(logical_not(arg(ignored))), rows.dtype())));
    return div(arg(sum(arg(zeros))), arg(count));
  }

  const Value &logits_, &targets_;
  const Comm& comm_;
  const CrossEntropyOptions& options_;
  const Where& where_;
};

}  // namespace

std::vector<Value> gradient_of_same_loss(const GradArgs& g) {
  const auto& attrs = g.attrs.as<CollectiveAttrs>();
  const Value same = enter_parallel(Arg(g.grads[0], g.where), Comm(attrs.group));
  if (attrs.reduction == Reduction::sum) return {same};
  return {div(Arg(same, g.where), Arg(attrs.group->size(), g.where))};
}

Value enter_parallel(Arg x, const Comm& comm) {
  const auto* value = std::get_if<Value>(&x.content());
  if (comm.size() == 1 && value != nullptr && value->valid()) return *value;
  return emit_on_ranks(enter_op, x, CollectiveAttrs{comm.group()});
}

Value leave_parallel(Arg x, const Comm& comm) { return all_reduce(std::move(x), comm, {.same_loss = true}); }

Value cross_entropy_parallel(Arg logits, Arg targets, const Comm& comm, const CrossEntropyOptions& options) {
  if (comm.size() == 1) return cross_entropy(std::move(logits), std::move(targets), options);
  const auto *x = std::get_if<Value>(&logits.content()), *t = std::get_if<Value>(&targets.content());
  const auto fail = [&](const std::string& problem, const std::string& remedy) {
    throw Error("cross_entropy_parallel", logits.where(), problem, remedy);
  };
  if (x == nullptr || t == nullptr) fail("an operand is not a Value", "pass results of ops");
  const TensorType type = x->type(logits.where()), of_targets = t->type(logits.where());
  if (type.shape.rank() != 2 || (type.dtype != f32 && type.dtype != f64) || of_targets.shape.rank() != 1 ||
      (of_targets.dtype != i32 && of_targets.dtype != i64))
    fail("logits are " + to_string(type) + ", and targets " + to_string(of_targets),
         "pass logits [n, c / size] of f32 or f64, and targets [n] of i32 or i64");
  if (type.shape.is_open(1)) fail("the number of classes is open", "give it when the graph is built");
  const std::size_t first = x->graph()->nodes.size();
  const Value loss = DividedCrossEntropy(*x, *t, comm, options, logits.where()).loss();
  x->graph()->note_rank_nodes(first);
  x->graph()->rank_nodes.erase(loss.node());  // a single rank has one node, of cross_entropy()
  return loss;
}

}  // namespace graphsink
