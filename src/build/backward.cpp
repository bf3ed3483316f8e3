#include "build/backward.h"

#include <algorithm>
#include <utility>

#include "base/at.h"
#include "graphsink/op.h"
#include "graphsink/ops.h"
#include "ir/control.h"
#include "kernels/linalg/matmul.h"
#include "kernels/runtime/stack.h"

namespace graphsink {
namespace {

std::string count(std::size_t n, const std::string& what) {
  return std::to_string(n) + " " + what + (n == 1 ? "" : "s");
}

}  // namespace

std::vector<Value> Backward::run(ValueRef loss) {
  if (depends_(loss)) {
    accumulate(loss, one(loss));
    walk_back(loss.node, 0);
  }
  std::vector<Value> result = results();
  for (std::size_t i = 0; i < result.size(); ++i) result[i] = rounded(wrt_[i], result[i]);
  return result;
}

std::vector<Value> Backward::run_body(const std::vector<ValueRef>& values, const std::vector<Value>& upstream,
                                      int first) {
  walk_body(values, upstream, first);
  return results();
}

void Backward::walk_body(const std::vector<ValueRef>& values, const std::vector<Value>& upstream, int first) {
  const int last = static_cast<int>(graph_->nodes.size()) - 1;
  for (std::size_t j = 0; j < values.size(); ++j)
    if (upstream[j].valid() && depends_(values[j])) accumulate(values[j], upstream[j]);
  walk_back(last, first);
}

void Backward::walk_back(int last, int first) {
  for (int id = last; id >= first; --id)
    if (grads_.contains(id) && !is_source(*graph_->nodes[at(id)].op)) step(id);
}

std::vector<Value> Backward::results() {
  std::vector<Value> result;
  for (ValueRef v : wrt_) {
    const Value& g = gradient_at(v);
    result.push_back(g.valid() ? g : zeros_like(graph_->value(v)));
  }
  return result;
}

Value& Backward::gradient_at(ValueRef v) {
  auto& grads = grads_[v.node];
  if (grads.empty()) grads.resize(graph_->nodes[at(v.node)].outputs.size());
  return grads[at(v.output)];
}

Value Backward::one(ValueRef like) {
  const TensorType type = graph_->type(like);
  Value number = Graph(graph_).constant(Tensor::full(type.dtype, {}, 1.0), where_);
  return type.shape.rank() == 0 ? number : broadcast_like(Arg(number, where_), Arg(graph_->value(like), where_));
}

Value Backward::zeros_like(const Value& like) {
  Value zero = Graph(graph_).constant(Tensor::full(like.dtype(), {}, 0.0), where_);
  return broadcast_like(Arg(zero, where_), Arg(like, where_));
}

Value Backward::as(DType dtype, const Value& v, const Where& where) {
  return v.dtype() == dtype ? v : cast(Arg(v, where), dtype);
}

Value Backward::rounded(ValueRef of, const Value& g) const {
  return as(graph_->type(of).dtype, g, graph_->nodes[at(of.node)].where);
}

void Backward::accumulate(ValueRef to, const Value& g) {
  Value& sum = gradient_at(to);
  if (!sum.valid()) {
    sum = g;
    return;
  }
  const int first = static_cast<int>(graph_->nodes.size());
  const Where where = graph_->nodes[at(to.node)].where;
  const DType dtype = sum.dtype() == g.dtype() ? g.dtype() : DType::f32;
  sum = add(Arg(as(dtype, sum, where), where), Arg(as(dtype, g, where), where));
  const ValueRef result{sum.node(), 0};
  const bool is_inside = graph_->nodes[at(to.node)].is_inside;
  graph_->compose(gradient_of(graph_->nodes[at(to.node)]), first, std::span(&result, is_inside ? 0 : 1));
}

int Backward::gradient_of(const Node& node) {
  const Composition written = graph_->written_as(node);
  const Composition gradient{written.op, written.gradients + 1};
  if (node.composition < 0) return graph_->add_composition(gradient);
  auto [entry, is_new] = gradients_of_compositions_.try_emplace(node.composition);
  if (is_new) entry->second = graph_->add_composition(gradient);
  return entry->second;
}

void Backward::step(int id) {
  const Node node = graph_->nodes[at(id)];  // a copy: the graph grows below
  std::vector<Value>& gradients = grads_[id];
  for (std::size_t j = 0; j < gradients.size(); ++j)
    if (gradients[j].valid()) gradients[j] = rounded({id, static_cast<int>(j)}, gradients[j]);
  if (is_branch(*node.op)) return step_branch(id, node);
  if (node.op == &while_op) return step_loop(id, node);
  step_op(id, node);
}

void Backward::step_op(int id, const Node& node) {
  auto needed = std::make_unique<bool[]>(node.inputs.size());
  bool any = false;
  for (std::size_t i = 0; i < node.inputs.size(); ++i) {
    needed[i] = reads(node, i) && depends_(node.inputs[i]);
    any = any || needed[i];
  }
  if (!any) return;
  if (!node.op->grad.rule && !node.op->grad.formula) refuse_op(node);
  std::vector<Value> inputs, outputs;
  for (ValueRef v : node.inputs) inputs.push_back(graph_->value(v));
  for (std::size_t j = 0; j < node.outputs.size(); ++j) outputs.push_back(graph_->value({id, static_cast<int>(j)}));
  const std::vector<Value> upstream = grads_[id];
  const std::vector<Value> result =
      gradients_of(id, node, inputs, outputs, upstream, {needed.get(), node.inputs.size()});
  for (std::size_t i = 0; i < result.size(); ++i) {
    if (!needed[i] || !result[i].valid()) continue;
    check_gradient(node, i, result[i]);
    accumulate(node.inputs[i], result[i]);
  }
}

void Backward::refuse_op(const Node& node) const {
  const std::string_view because = node.op->grad.none_because;
  std::string problem = "has no gradient, and grad() at " + to_string(where_) + " must pass through it";
  std::string remedy = "keep it out of the path from the loss to the parameters";
  if (because.empty()) {
    remedy = "give its OpDef a .grad, or " + remedy;
  } else {
    problem += "; " + std::string(because);
  }
  throw Error(std::string(node.op->name), node.where, problem, remedy);
}

std::vector<Value> Backward::gradients_of(int id, const Node& node, std::span<const Value> inputs,
                                          std::span<const Value> outputs, std::span<const Value> upstream,
                                          std::span<const bool> needed) {
  const std::size_t first = graph_->nodes.size();
  const GradArgs args{inputs, outputs, upstream, needed, node.attrs, node.where, graph_->origin_of(id)};
  std::vector<Value> result = node.op->grad.rule ? node.op->grad.rule(args) : gradients_by_formula(node, args);
  // Nodes that the .grad of a user's op makes by plain operators would name the lines of that function.
  for (std::size_t i = first; i < graph_->nodes.size(); ++i) graph_->nodes[i].where = node.where;
  check_count(node, result.size());
  std::vector<ValueRef> to_outside;
  for (std::size_t i = 0; i < result.size(); ++i) {
    const int maker = graph_->nodes[at(node.inputs[i].node)].composition;
    const bool is_inside = node.composition >= 0 && maker == node.composition;
    if (!is_inside && result[i].valid() && result[i].graph() == graph_)
      to_outside.push_back({result[i].node(), result[i].output()});
  }
  graph_->compose(gradient_of(node), static_cast<int>(first), to_outside);
  return result;
}

std::vector<Value> Backward::gradients_by_formula(const Node& node, const GradArgs& a) {
  const int first = static_cast<int>(graph_->nodes.size());
  auto ref = [](const Value& v) { return ValueRef{v.node(), v.output()}; };
  std::vector<Value> inputs;
  std::vector<ValueRef> wrt;
  for (std::size_t i = 0; i < a.inputs.size(); ++i) {
    const Value& v = a.inputs[i];
    inputs.push_back(as(is_half(v.dtype()) ? DType::f32 : v.dtype(), v, a.where));
    if (a.needed[i]) wrt.push_back(ref(v));
  }
  const std::vector<Value> outputs = node.op->grad.formula(inputs, a.attrs);
  check_formula(node, outputs);
  std::vector<ValueRef> made;
  std::vector<Value> upstream;
  for (std::size_t j = 0; j < outputs.size(); ++j) {
    made.push_back(ref(outputs[j]));
    upstream.push_back(a.grads[j].valid() ? as(outputs[j].dtype(), a.grads[j], a.where) : Value());
  }
  Backward formula(graph_, wrt, where_, first);
  formula.walk_body(made, upstream, first);
  std::vector<Value> result;
  // A value that is several inputs has one gradient, which goes to the first of them.
  for (std::size_t i = 0; i < a.inputs.size(); ++i)
    result.push_back(a.needed[i] ? std::exchange(formula.gradient_at(ref(a.inputs[i])), Value()) : Value());
  return result;
}

void Backward::check_formula(const Node& node, std::span<const Value> made) const {
  auto fits = [&](const Value& v, const TensorType& wanted) {
    return v.graph() == graph_ && v.shape() == wanted.shape && is_float(v.dtype()) == is_float(wanted.dtype);
  };
  if (std::equal(made.begin(), made.end(), node.outputs.begin(), node.outputs.end(), fits)) return;
  std::string wanted;
  for (const TensorType& type : node.outputs) wanted += (wanted.empty() ? "" : ", ") + to_string(type);
  throw Error(std::string(node.op->name), node.where,
              "the formula of its .grad does not return the outputs of the op, asked by grad() at " + to_string(where_),
              "return Values of these shapes, made from the inputs: " + wanted);
}

void Backward::check_count(const Node& node, std::size_t results) const {
  if (results == node.inputs.size()) return;
  throw Error(std::string(node.op->name), node.where,
              "its .grad returned " + count(results, "Value") + " for " + count(node.inputs.size(), "input") +
                  ", asked by grad() at " + to_string(where_),
              "return one Value per input, an invalid one where no gradient flows");
}

void Backward::check_gradient(const Node& node, std::size_t input, const Value& gradient) const {
  const TensorType& wanted = graph_->type(node.inputs[input]);
  std::string seen = "a Value of another graph";
  if (gradient.graph() == graph_) {
    const TensorType& given = graph_->type({gradient.node(), gradient.output()});
    if (given == wanted) return;
    seen = to_string(given);
  }
  throw Error(std::string(node.op->name), node.where,
              "its .grad returned " + seen + " for input " + std::to_string(input) + ", which is " + to_string(wanted) +
                  ", asked by grad() at " + to_string(where_),
              "return a gradient of the input's type, made from GradArgs by ops such as sum_like() and cast()");
}

// The gradient of a branch is a branch with the same decision. Its bodies compute the values of the branch again and
// walk back through them, to what the branch takes from outside.
void Backward::step_branch(int id, const Node& node) {
  const std::vector<ValueRef> captured = captured_by(node).values;
  if (captured.empty()) return;
  const std::vector<Value> upstream = grads_[id];
  auto backward = [&](int body) {
    return [&, body] {
      const int first = static_cast<int>(graph_->nodes.size());
      const BodyCopy copy_of(*graph_, body, where_);
      std::vector<ValueRef> results = graph_->regions[at(body)].results;
      for (std::size_t j = 0; j < results.size(); ++j)
        if (upstream[j].valid()) results[j] = copy_of(results[j]);
      Values gradients = Backward(graph_, captured, where_).run_body(results, upstream, first);
      for (std::size_t i = 0; i < captured.size(); ++i) gradients[i] = rounded(captured[i], gradients[i]);
      return gradients;
    };
  };
  std::vector<std::function<Values()>> bodies;
  for (int body : node.bodies) bodies.emplace_back(backward(body));
  const Values result = branch_values(*graph_, *node.op, node.inputs[0], bodies, node.where);
  for (std::size_t i = 0; i < captured.size(); ++i) accumulate(captured[i], result[i]);
}

Backward::Captured Backward::captured_by(const Node& node) const {
  Captured captured;
  for (int body : node.bodies) add_captured(body, body, captured);
  // Gradients of a value that other nodes use, too, are added up in each iteration.
  auto is_used_otherwise = [&](ValueRef v) {
    return std::find(captured.values.begin(), captured.values.end(), v) != captured.values.end();
  };
  std::erase_if(captured.slices, [&](int slice) { return is_used_otherwise(graph_->nodes[at(slice)].inputs[0]); });
  std::erase_if(captured.products, [&](int made) { return is_used_otherwise(graph_->nodes[at(made)].inputs[1]); });
  return captured;
}

void Backward::add_captured(int body, int outermost, Captured& captured) const {
  auto is_outside = [&](ValueRef v) { return !graph_->is_within(graph_->nodes[at(v.node)].region, outermost); };
  auto add = [&](ValueRef v) {
    auto& values = captured.values;
    const bool is_known = std::find(values.begin(), values.end(), v) != values.end();
    if (is_outside(v) && !is_known && depends_(v)) values.push_back(v);
  };
  const Region& region = graph_->regions[at(body)];
  const bool is_body_of_loop = body == outermost && region.limit > 0;
  // One slice for each iteration of this loop, so that its gradients are a stack, too.
  auto is_slice = [&](const Node& node) {
    return is_body_of_loop && node.op == &slice_at_op && node.inputs.size() == 2 && is_outside(node.inputs[0]) &&
           graph_->type(node.inputs[0]).shape[0] == region.limit;
  };
  auto is_product = [&](const Node& node) {
    if (!is_body_of_loop || node.op != &matmul_op || is_outside(node.inputs[0])) return false;
    const TensorType &rows = graph_->type(node.inputs[0]), &matrix = graph_->type(node.inputs[1]);
    return is_outside(node.inputs[1]) && is_rows_by_matrix(node.attrs, rows, matrix) &&
           rows.shape.rank() < Shape::kMaxRank;
  };
  for (int id : region.nodes) {
    const Node& node = graph_->nodes[at(id)];
    if (is_slice(node)) {
      if (depends_(node.inputs[0])) captured.slices.push_back(id);
      continue;
    }
    if (is_product(node)) {
      if (depends_(node.inputs[1])) captured.products.push_back(id);
      continue;
    }
    for (std::size_t i = 0; i < node.inputs.size(); ++i)
      if (reads(node, i)) add(node.inputs[i]);
    for (int inner : node.bodies) add_captured(inner, outermost, captured);
  }
  for (ValueRef v : region.results) add(v);
  for (const Stacked& stacked : region.stacked) add(stacked.value);
}

// Describes the node of a body that hands the gradient on to an output: "mul at train.cpp:12 in its body". If bodies
// are nested, it is in the innermost.
std::string Backward::inside(const Node& node, std::size_t output) const {
  for (int body : node.bodies) {
    ValueRef result = graph_->regions[at(body)].results[output];
    if (!depends_(result)) continue;
    const Node& maker = graph_->nodes[at(result.node)];
    bool is_inner = !maker.bodies.empty() && graph_->is_within(maker.region, body);
    return is_inner ? inside(maker, at(result.output)) : graph_->describe(result) + " in its body";
  }
  return graph_->describe(node.inputs[output]) + ", its first state";
}

}  // namespace graphsink
