#include "graphsink/grad.h"

#include <algorithm>

#include "base/at.h"
#include "build/body_copy.h"
#include "build/dependence.h"
#include "graphsink/control.h"
#include "graphsink/op.h"
#include "graphsink/ops.h"
#include "ir/control.h"

namespace graphsink {
namespace {

std::string count(std::size_t n, const std::string& what) {
  return std::to_string(n) + " " + what + (n == 1 ? "" : "s");
}

class Backward {
 public:
  Backward(const std::shared_ptr<GraphData>& graph, const std::vector<ValueRef>& wrt, Where where)
      : graph_(graph), wrt_(wrt), where_(where), depends_(*graph, wrt), grads_(graph->nodes.size()) {}

  std::vector<Value> run(ValueRef loss) {
    if (depends_(loss)) {
      accumulate(loss, one(loss));
      walk_back(loss.node, 0);
    }
    return results();
  }

  // The same for values of a body, whose gradients are given; an invalid one: there is none. The nodes of the body are
  // those from `first` to the last one of the graph.
  std::vector<Value> run_body(const std::vector<ValueRef>& values, const std::vector<Value>& upstream, int first) {
    const int last = static_cast<int>(graph_->nodes.size()) - 1;
    for (std::size_t j = 0; j < values.size(); ++j)
      if (upstream[j].valid() && depends_(values[j])) accumulate(values[j], upstream[j]);
    walk_back(last, first);
    return results();
  }

 private:
  void walk_back(int last, int first) {
    for (int id = last; id >= first; --id)
      if (!grads_[at(id)].empty() && !is_source(*graph_->nodes[at(id)].op)) step(id);
  }

  std::vector<Value> results() {
    std::vector<Value> result;
    for (ValueRef v : wrt_) {
      const auto& grads = grads_[at(v.node)];
      Value g = grads.empty() ? Value() : grads[at(v.output)];
      result.push_back(g.valid() ? g : zeros_like(graph_->value(v)));
    }
    return result;
  }

  Value one(ValueRef like) {
    const TensorType type = graph_->type(like);
    Value number = Graph(graph_).constant(Tensor::full(type.dtype, {}, 1.0), where_);
    return type.shape.rank() == 0 ? number : broadcast_like(Arg(number, where_), graph_->value(like));
  }

  Value zeros_like(const Value& like) {
    Value zero = Graph(graph_).constant(Tensor::full(like.dtype(), {}, 0.0), where_);
    return broadcast_like(Arg(zero, where_), like);
  }

  void accumulate(ValueRef to, const Value& g) {
    auto& grads = grads_[at(to.node)];
    if (grads.empty()) grads.resize(graph_->nodes[at(to.node)].outputs.size());
    Value& sum = grads[at(to.output)];
    sum = sum.valid() ? add(Arg(sum, graph_->nodes[at(to.node)].where), g) : g;
  }

  void step(int id) {
    Node node = graph_->nodes[at(id)];  // a copy: the graph grows below
    if (is_branch(*node.op)) return step_branch(id, node);
    if (node.op == &while_op) return refuse_loop(id, node);
    auto needed = std::make_unique<bool[]>(node.inputs.size());
    bool any = false;
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      needed[i] = reads(node, i) && depends_(node.inputs[i]);
      any = any || needed[i];
    }
    if (!any) return;
    if (node.op->grad == nullptr) {
      throw Error(std::string(node.op->name), node.where,
                  "has no gradient, and grad() at " + to_string(where_) + " must pass through it",
                  "give its OpDef a .grad, or keep it out of the path from the loss to the parameters");
    }
    std::vector<Value> inputs, outputs;
    for (ValueRef v : node.inputs) inputs.push_back(graph_->value(v));
    for (std::size_t j = 0; j < node.outputs.size(); ++j) outputs.push_back(graph_->value({id, static_cast<int>(j)}));
    std::vector<Value> upstream = grads_[at(id)];
    const std::size_t first_of_grad = graph_->nodes.size();
    std::vector<Value> result = node.op->grad(GradArgs{
        inputs, outputs, upstream, {needed.get(), node.inputs.size()}, node.attrs, node.where, graph_->origin_of(id)});
    // Nodes that the .grad of a user's op makes by plain operators would name the lines of that function.
    for (std::size_t i = first_of_grad; i < graph_->nodes.size(); ++i) graph_->nodes[i].where = node.where;
    check_count(node, result.size());
    for (std::size_t i = 0; i < result.size(); ++i) {
      if (!needed[i] || !result[i].valid()) continue;
      check_gradient(node, i, result[i]);
      accumulate(node.inputs[i], result[i]);
    }
  }

  void check_count(const Node& node, std::size_t results) const {
    if (results == node.inputs.size()) return;
    throw Error(std::string(node.op->name), node.where,
                "its .grad returned " + count(results, "Value") + " for " + count(node.inputs.size(), "input") +
                    ", asked by grad() at " + to_string(where_),
                "return one Value per input, an invalid one where no gradient flows");
  }

  void check_gradient(const Node& node, std::size_t input, const Value& gradient) const {
    const TensorType& wanted = graph_->type(node.inputs[input]);
    std::string seen = "a Value of another graph";
    if (gradient.graph() == graph_) {
      const TensorType& given = graph_->type({gradient.node(), gradient.output()});
      if (given == wanted) return;
      seen = to_string(given);
    }
    throw Error(std::string(node.op->name), node.where,
                "its .grad returned " + seen + " for input " + std::to_string(input) + ", which is " +
                    to_string(wanted) + ", asked by grad() at " + to_string(where_),
                "return a gradient of the input's type, made from GradArgs by ops such as sum_like() and cast()");
  }

  // The gradient of a branch is a branch with the same decision. Its bodies compute the values of the branch again and
  // walk back through them, to what the branch takes from outside.
  void step_branch(int id, const Node& node) {
    const std::vector<ValueRef> captured = captured_by(node);
    if (captured.empty()) return;
    const std::vector<Value> upstream = grads_[at(id)];
    auto backward = [&](int body) {
      return [&, body] {
        const int first = static_cast<int>(graph_->nodes.size());
        const BodyCopy copy_of(*graph_, body, where_);
        std::vector<ValueRef> results = graph_->regions[at(body)].results;
        for (std::size_t j = 0; j < results.size(); ++j)
          if (upstream[j].valid()) results[j] = copy_of(results[j]);
        return Backward(graph_, captured, where_).run_body(results, upstream, first);
      };
    };
    std::vector<std::function<Values()>> bodies;
    for (int body : node.bodies) bodies.emplace_back(backward(body));
    const Values result = branch_values(*graph_, *node.op, node.inputs[0], bodies, node.where);
    for (std::size_t i = 0; i < captured.size(); ++i) accumulate(captured[i], result[i]);
  }

  // The values made outside of a control node that its bodies use and that depend on what the gradient is for.
  std::vector<ValueRef> captured_by(const Node& node) const {
    std::vector<ValueRef> captured;
    for (int body : node.bodies) add_captured(body, body, captured);
    return captured;
  }
  void add_captured(int body, int outermost, std::vector<ValueRef>& captured) const {
    auto add = [&](ValueRef v) {
      const bool is_outside = !graph_->is_within(graph_->nodes[at(v.node)].region, outermost);
      const bool is_known = std::find(captured.begin(), captured.end(), v) != captured.end();
      if (is_outside && !is_known && depends_(v)) captured.push_back(v);
    };
    for (int id : graph_->regions[at(body)].nodes) {
      const Node& node = graph_->nodes[at(id)];
      for (std::size_t i = 0; i < node.inputs.size(); ++i)
        if (reads(node, i)) add(node.inputs[i]);
      for (int inner : node.bodies) add_captured(inner, outermost, captured);
    }
    for (ValueRef v : graph_->regions[at(body)].results) add(v);
  }

  // Refuses a gradient that would have to flow through a loop.
  void refuse_loop(int id, const Node& node) const {
    for (std::size_t j = 0; j < node.outputs.size(); ++j) {
      if (!grads_[at(id)][j].valid() || !depends_({id, static_cast<int>(j)})) continue;
      throw Error(
          std::string(node.op->name), node.where,
          "has no gradient, and grad() at " + to_string(where_) + " must pass through " + inside(node, j),
          "write the iterations out with a loop of C++, or keep the while_ out of the path from the loss to the "
          "parameters");
    }
  }

  // What hands the gradient on to an output: "mul at train.cpp:12 in its body". Of bodies in a body, the innermost.
  std::string inside(const Node& node, std::size_t output) const {
    for (int body : node.bodies) {
      ValueRef result = graph_->regions[at(body)].results[output];
      if (!depends_(result)) continue;
      const Node& maker = graph_->nodes[at(result.node)];
      bool is_inner = !maker.bodies.empty() && graph_->is_within(maker.region, body);
      return is_inner ? inside(maker, at(result.output)) : graph_->describe(result) + " in its body";
    }
    return graph_->describe(node.inputs[output]) + ", its first state";
  }

  std::shared_ptr<GraphData> graph_;
  std::vector<ValueRef> wrt_;
  Where where_;
  Dependence depends_;
  std::vector<std::vector<Value>> grads_;  // per node and output, empty: none
};

// A loss in the body of a loop may depend on what it is differentiated by through the loop's state: by its first value
// or by an earlier iteration, to which no gradient flows. Refuses that, as far as the body is known.
void refuse_state(const GraphData& graph, int loop, ValueRef loss, const std::vector<ValueRef>& outside,
                  const Where& where) {
  const Region& region = graph.regions[at(loop)];
  Dependence on_outside(graph, outside);
  for (ValueRef state : region.parameters) {
    if (!on_outside(state) || !Dependence(graph, std::span(&state, 1))(loss)) continue;
    throw Error(std::string(region.op->name), region.where,
                "grad() at " + to_string(where) + " is in the body, and its loss, " + graph.describe(loss) +
                    ", depends on the state of the loop, which depends on what the gradient is for; no gradient flows "
                    "through other iterations",
                "make what the gradient is for a part of the state, or write the iterations out with a loop of C++");
  }
}

// Checks the loops around, now and again when their bodies are complete.
void check_loops(GraphData& graph, ValueRef loss, const std::vector<ValueRef>& wrt, const Where& where) {
  for (int loop = graph.current_region; loop > 0; loop = graph.regions[at(loop)].parent) {
    if (!graph.regions[at(loop)].is_loop) continue;
    std::vector<ValueRef> outside;
    std::copy_if(wrt.begin(), wrt.end(), std::back_inserter(outside),
                 [&](ValueRef v) { return !graph.is_within(graph.nodes[at(v.node)].region, loop); });
    if (outside.empty()) return;
    refuse_state(graph, loop, loss, outside, where);
    graph.regions[at(loop)].checks.push_back(
        [=](const GraphData& complete) { refuse_state(complete, loop, loss, outside, where); });
  }
}

}  // namespace

std::vector<Value> grad(const Arg& loss, const std::vector<Arg>& wrt) {
  const auto* value = std::get_if<Value>(&loss.content());
  if (value == nullptr || !value->valid()) {
    throw Error("grad", loss.where(), "the loss is not a Value", "pass the result of an op");
  }
  const std::shared_ptr<GraphData>& graph = value->graph();
  if (graph->run_now) {
    throw Error("grad", loss.where(), "Values of an Eager keep no history", "build a Graph");
  }
  ValueRef from = graph->visible(*value, "grad", loss.where());
  if (const TensorType& type = graph->type(from); !is_float(type.dtype) || !is_single(type)) {
    throw Error("grad", loss.where(), "the loss is " + to_string(type) + ", not one float",
                "reduce it, for example with mean()");
  }
  std::vector<ValueRef> targets;
  for (const Arg& arg : wrt) {
    if (const auto* variable = std::get_if<Variable>(&arg.content())) {
      targets.push_back(graph->use(*variable, arg.where()).read);
    } else if (const auto* v = std::get_if<Value>(&arg.content()); v && v->valid() && v->graph() == graph) {
      targets.push_back(graph->visible(*v, "grad", arg.where()));
    } else {
      throw Error("grad", arg.where(), "with respect to something that is not a Value of the loss's graph",
                  "pass Values or Variables of that graph");
    }
    const TensorType& type = graph->type(targets.back());
    if (!is_float(type.dtype)) {
      throw Error("grad", arg.where(), "with respect to " + to_string(type), "pass floats");
    }
  }
  check_loops(*graph, from, targets, loss.where());
  // use() above may have added nodes: the walk covers them too.
  return Backward(graph, targets, loss.where()).run(from);
}

}  // namespace graphsink
