#include "graphsink/grad.h"

#include <algorithm>

#include "graphsink/op.h"
#include "graphsink/ops.h"
#include "ir/graph_data.h"

namespace graphsink {
namespace {

std::size_t at(int i) { return static_cast<std::size_t>(i); }

class Backward {
 public:
  Backward(const Value& loss, const std::vector<Value>& wrt, Where where)
      : graph_(loss.graph()), where_(where), end_(graph_->nodes.size()), depends_(end_, false), grads_(end_) {
    for (const Value& value : wrt) depends_[at(value.node())] = true;
    for (std::size_t id = 0; id < end_; ++id) {
      const Node& node = graph_->nodes[id];
      for (ValueRef input : node.inputs) {
        if (depends_[at(input.node)] && is_float(graph_->type(input).dtype)) depends_[id] = true;
      }
    }
  }

  std::vector<Value> run(const Value& loss, const std::vector<Value>& wrt) {
    if (depends_[at(loss.node())]) {
      accumulate({loss.node(), loss.output()}, one(loss));
      for (int id = loss.node(); id >= 0; --id) {
        if (!grads_[at(id)].empty() && !is_source(*graph_->nodes[at(id)].op)) step(id);
      }
    }
    std::vector<Value> result;
    for (const Value& value : wrt) {
      const auto& grads = grads_[at(value.node())];
      Value g = grads.empty() ? Value() : grads[at(value.output())];
      result.push_back(g.valid() ? g : zeros_like(value));
    }
    return result;
  }

 private:
  Value one(const Value& like) {
    Value number = Graph(graph_).constant(Tensor::full(like.dtype(), {}, 1.0), where_);
    return like.shape().rank() == 0 ? number : broadcast_like(Arg(number, where_), like);
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
    auto needed = std::make_unique<bool[]>(node.inputs.size());
    bool any = false;
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      bool reads = access_of(*node.op, i, node.inputs.size()) == Access::read;
      needed[i] = reads && depends_[at(node.inputs[i].node)] && is_float(graph_->type(node.inputs[i]).dtype);
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
    std::vector<Value> result =
        node.op->grad(GradArgs{inputs, outputs, upstream, {needed.get(), node.inputs.size()}, node.attrs, node.where});
    for (std::size_t i = 0; i < result.size() && i < node.inputs.size(); ++i) {
      if (needed[i] && result[i].valid()) accumulate(node.inputs[i], result[i]);
    }
  }

  std::shared_ptr<GraphData> graph_;
  Where where_;
  std::size_t end_;
  std::vector<bool> depends_;              // per node: on a parameter, through float values
  std::vector<std::vector<Value>> grads_;  // per node and output, empty: none
};

}  // namespace

std::vector<Value> grad(const Arg& loss, const std::vector<Arg>& wrt) {
  const auto* value = std::get_if<Value>(&loss.content());
  if (value == nullptr || !value->valid()) {
    throw Error("grad", loss.where(), "the loss is not a Value", "pass the result of an op");
  }
  if (value->graph()->run_now) {
    throw Error("grad", loss.where(), "Values of an Eager keep no history", "build a Graph");
  }
  if (!is_float(value->dtype()) || !is_single(value->type())) {
    throw Error("grad", loss.where(), "the loss is " + to_string(value->type()) + ", not one float",
                "reduce it, for example with mean()");
  }
  std::vector<Value> targets;
  for (const Arg& arg : wrt) {
    if (const auto* variable = std::get_if<Variable>(&arg.content())) {
      targets.push_back(value->graph()->value(value->graph()->use(*variable, arg.where()).read));
    } else if (const auto* v = std::get_if<Value>(&arg.content()); v && v->valid() && v->graph() == value->graph()) {
      targets.push_back(*v);
    } else {
      throw Error("grad", arg.where(), "with respect to something that is not a Value of the loss's graph",
                  "pass Values or Variables of that graph");
    }
    if (!is_float(targets.back().dtype())) {
      throw Error("grad", arg.where(), "with respect to " + to_string(targets.back().type()), "pass floats");
    }
  }
  // use() above may have added nodes: the walk covers them too.
  return Backward(*value, targets, loss.where()).run(*value, targets);
}

}  // namespace graphsink
