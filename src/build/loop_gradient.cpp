// The gradient of a loop with a limit is a loop that goes back through its iterations. The loop itself keeps its state
// of each iteration in stacks, and the results of ops that are expensive, such as products, or of additions behind
// them. Each iteration of the gradient takes those, computes the other values of the iteration again, and walks back
// through them. Gradients of the state are handed on from iteration to iteration; those of what the body takes from
// outside are added up; those of slices are stacked.
//
// A matrix from outside that each iteration multiplies rows by has as its gradient the sum, over the iterations, of
// rows transposed times the gradient of the product. That is one product of both stacks, behind the loop.
#include <algorithm>

#include "base/at.h"
#include "build/backward.h"
#include "build/counted_loop.h"
#include "graphsink/ops.h"
#include "ir/control.h"
#include "kernels/linalg/matmul.h"
#include "kernels/runtime/stack.h"

namespace graphsink {

struct Backward::LoopGradient {
  LoopGradient(Backward& backward, int id, const Node& node)
      : b_(backward),
        graph_(*backward.graph_),
        id_(id),
        node_(node),
        body_(graph_.regions[at(node.bodies[0])]),
        upstream_(backward.grads_[id]),
        captured_(backward.captured_by(node)) {
    upstream_.resize(node.outputs.size());
    for (std::size_t j = 0; j < body_.parameters.size(); ++j)
      if (b_.depends_(body_.parameters[j])) active_.push_back(j);
    for (int made : body_.nodes) {
      const Node& maker = graph_.nodes[at(made)];
      if (!maker.op->traits.costly) continue;
      for (int k = 0; k < static_cast<int>(maker.outputs.size()); ++k) expensive_.push_back(with_sum({made, k}));
    }
  }

  void run() {
    std::vector<Arg> init;
    for (std::size_t j : active_) init.push_back(arg(upstream_[j].valid() ? upstream_[j] : b_.zeros_like(output(j))));
    for (ValueRef v : captured_.values) init.push_back(arg(wide(b_.zeros_like(graph_.value(v)))));
    std::vector<Stacked> of_slices, of_products;
    const Values result = loop_back(init, [&](const Values& sums, const Value& iteration) {
      return go_back(sums, iteration, of_slices, of_products);
    });
    std::size_t i = 0;
    for (std::size_t j : active_) {
      if (b_.depends_(node_.inputs[j])) b_.accumulate(node_.inputs[j], result[i]);
      ++i;
    }
    for (ValueRef v : captured_.values) b_.accumulate(v, result[i++]);
    for (std::size_t k = 0; k < of_slices.size(); ++k) {
      const ValueRef stack = graph_.nodes[at(captured_.slices[k])].inputs[0];
      b_.accumulate(stack, graph_.value(stacked_output(graph_, result[0].node(), of_slices[k])));
    }
    for (std::size_t k = 0; k < of_products.size(); ++k)
      add_product(captured_.products[k], graph_.value(stacked_output(graph_, result[0].node(), of_products[k])));
  }

 private:
  Arg arg(const Value& v) const { return {v, node_.where}; }
  Value output(std::size_t j) { return graph_.value({id_, static_cast<int>(j)}); }
  Value slice(const Value& stack, const Value& place) { return emit(slice_at_op, {arg(stack), arg(place)})[0]; }
  // Sums over the iterations are made of f32 where the gradients have 16 bits. A loop in the body of another one hands
  // such a sum on to it, and they are rounded once, behind the outermost.
  Value wide(const Value& v) const { return as(is_half(v.dtype()) ? DType::f32 : v.dtype(), v, node_.where); }
  static ValueRef ref(const Value& v) { return {v.node(), v.output()}; }

  // A value of the body that is expensive to compute, such as `p` in p + x + y. Where nothing else uses it, the whole
  // sum can be kept in its place.
  struct Expensive {
    ValueRef value;
    ValueRef sum{};  // p + x + y, of the same type; invalid if there is none
    int adder = -1;  // the node p + x
  };

  Expensive with_sum(ValueRef value) const {
    Expensive result{value};
    for (int adder = only_adder(value); adder >= 0; adder = only_adder(result.sum)) {
      if (result.adder < 0) result.adder = adder;
      result.sum = {adder, 0};
    }
    return result;
  }

  // The node of the body that alone uses the value, if it is a sum of the value's type; else -1.
  int only_adder(ValueRef value) const {
    int user = -1, uses = 0;
    for (int id : body_.nodes) {
      const Node& reader = graph_.nodes[at(id)];
      const auto count = std::count(reader.inputs.begin(), reader.inputs.end(), value);
      if (count > 0) user = id;
      uses += static_cast<int>(count) + (reader.bodies.empty() ? 0 : 2);  // bodies in the body may use it, too
    }
    uses += static_cast<int>(std::count(body_.results.begin(), body_.results.end(), value));
    if (uses != 1 || user < 0) return -1;  // that it is stacked does not count: a gradient may have asked for that
    const Node& sum = graph_.nodes[at(user)];
    const Scalar scalar = sum.op->elements.scalar;
    const bool is_sum = scalar == Scalar::add || scalar == Scalar::subtract;
    return is_sum && sum.outputs[0] == graph_.type(value) ? user : -1;
  }

  // A loop over the iterations from the last to the first. The number of the iteration is a part of its state, the last
  // one, which counts down.
  Values loop_back(std::vector<Arg> init, const std::function<Values(const Values&, const Value&)>& go_back) {
    auto number = [&](std::int64_t n) {
      return Graph(graph_.shared_from_this()).constant(Tensor::scalar(static_cast<std::int32_t>(n)), node_.where);
    };
    const Value count = body_.runs_to_limit ? number(body_.limit) : output(body_.parameters.size() - 1);
    init.push_back(arg(body_.runs_to_limit ? number(body_.limit - 1) : sub(arg(count), Arg(1, node_.where))));
    auto step = [&](const Values& state) {
      const Value& iteration = state[state.size() - 2];  // before the loop's own counter
      Values next = go_back({state.begin(), state.end() - 2}, iteration);
      next.push_back(sub(arg(iteration), Arg(1, node_.where)));
      return next;
    };
    if (body_.runs_to_limit) return fixed_loop("grad", graph_, init, step, body_.limit, node_.where);
    auto goes_on = [&](const Values& state) { return less(arg(state.back()), arg(count)); };
    return counted_loop("grad", graph_, init, goes_on, step, body_.limit, node_.where);
  }

  // The gradient of the matrix in a product, from those of the product in all iterations.
  void add_product(int id_of_product, const Value& of_product) {
    const Node product = graph_.nodes[at(id_of_product)];  // a copy: the graph grows
    const ValueRef rows = stacked_output(graph_, id_, {product.inputs[0], body_.counter.now});
    const Value inputs[] = {graph_.value(rows), graph_.value(product.inputs[1])};
    const bool needed[] = {false, true};
    const Value gradient = b_.gradients_of(id_of_product, product, inputs, {}, {&of_product, 1}, needed)[1];
    b_.accumulate(product.inputs[1], is_half(gradient.dtype()) ? unrounded(gradient) : gradient);
  }

  // The gradient of a matrix, which is a product, as a Value of f32. Nothing uses the rounded one then.
  Value unrounded(const Value& gradient) {
    const Node product = graph_.nodes[at(gradient.node())];
    const int first = static_cast<int>(graph_.nodes.size());
    const Value result = emit(matmul_op, {arg(graph_.value(product.inputs[0])), arg(graph_.value(product.inputs[1]))},
                              graphsink::unrounded(product.attrs), product.placement)[0];
    const ValueRef to_outside = ref(result);
    if (product.composition >= 0) graph_.compose(product.composition, first, {&to_outside, 1});
    return result;
  }

  // The state that the iteration began with.
  std::vector<ValueRef> state_at(const Value& iteration) {
    std::vector<ValueRef> state;
    for (ValueRef parameter : body_.parameters) {
      if (parameter == body_.counter.now) {
        state.push_back(ref(iteration));
      } else {
        const ValueRef stack = stacked_output(graph_, id_, {parameter, body_.counter.now});
        state.push_back(ref(slice(graph_.value(stack), iteration)));
      }
    }
    return state;
  }

  // The expensive values of the iteration, and sums; what of these is not used then is not kept.
  std::vector<Expensive> kept_at(const Value& iteration) {
    auto kept_of = [&](ValueRef value) {
      const ValueRef kept =
          ref(slice(graph_.value(stacked_output(graph_, id_, {value, body_.counter.now})), iteration));
      const Node& maker = graph_.nodes[at(value.node)];
      graph_.nodes[at(kept.node)].composition = maker.composition;
      graph_.nodes[at(kept.node)].is_inside = maker.is_inside;
      return kept;
    };
    std::vector<Expensive> kept;
    for (const auto& [value, sum, adder] : expensive_)
      kept.push_back({kept_of(value), adder >= 0 ? kept_of(sum) : ValueRef{}, adder});
    return kept;
  }

  // Whether a node from `first` on other than `except`, or a body from `first_region` on, reads the value.
  bool is_read(ValueRef value, int first, std::size_t first_region, int except) const {
    for (int n = first; n < static_cast<int>(graph_.nodes.size()); ++n) {
      const Node& reader = graph_.nodes[at(n)];
      for (std::size_t i = 0; n != except && i < reader.inputs.size(); ++i)
        if (reader.inputs[i] == value && reads(reader, i)) return true;
      if (reader.op == &parameter_op && reader.attrs.as<ParameterAttrs>().initial == value) return true;
    }
    for (std::size_t r = first_region; r < graph_.regions.size(); ++r) {
      const Region& region = graph_.regions[r];
      if (std::find(region.results.begin(), region.results.end(), value) != region.results.end()) return true;
      for (const Stacked& stacked : region.stacked)
        if (stacked.value == value) return true;
    }
    return false;
  }

  // Lets the nodes from `first` and the bodies from `first_region` on use another value that has the same bits. Nodes
  // that nothing uses then are not computed.
  void replace(ValueRef value, ValueRef other, int first, std::size_t first_region) {
    auto replace_in = [&](std::vector<ValueRef>& values) { std::replace(values.begin(), values.end(), value, other); };
    for (std::size_t n = at(first); n < graph_.nodes.size(); ++n) {
      Node& user = graph_.nodes[n];
      replace_in(user.inputs);
      if (user.op != &parameter_op || user.attrs.as<ParameterAttrs>().initial != value) continue;
      user.attrs = ParameterAttrs{user.attrs.as<ParameterAttrs>().type, other};
    }
    for (std::size_t r = first_region; r < graph_.regions.size(); ++r) {
      replace_in(graph_.regions[r].results);
      for (Stacked& stacked : graph_.regions[r].stacked)
        if (stacked.value == value) stacked.value = other;
    }
  }

  // One iteration: the gradients of the state and of what is captured, from those that `sums` holds.
  Values go_back(const Values& sums, const Value& iteration, std::vector<Stacked>& of_slices,
                 std::vector<Stacked>& of_products) {
    const std::vector<ValueRef> state = state_at(iteration);
    const std::vector<Expensive> kept = kept_at(iteration);
    const int first = static_cast<int>(graph_.nodes.size());
    const std::size_t first_region = graph_.regions.size();
    const BodyCopy copy_of(graph_, node_.bodies[0], b_.where_, state);
    std::vector<ValueRef> values, targets;
    std::vector<Value> of_values;
    for (std::size_t i = 0; i < active_.size(); ++i) {
      values.push_back(copy_of(body_.results[active_[i]]));
      of_values.push_back(sums[i]);
      targets.push_back(state[active_[i]]);
    }
    for (std::size_t k = 0; k < body_.stacked.size(); ++k) {
      const Value& of_stack = upstream_[body_.parameters.size() + k];
      if (!of_stack.valid()) continue;
      values.push_back(copy_of(body_.stacked[k].value));
      of_values.push_back(slice(of_stack, graph_.value(copy_of(body_.stacked[k].place))));
    }
    targets.insert(targets.end(), captured_.values.begin(), captured_.values.end());
    for (int made : captured_.slices) targets.push_back(copy_of({made, 0}));
    for (int made : captured_.products) targets.push_back(copy_of({made, 0}));
    Values gradients = Backward(b_.graph_, targets, b_.where_).run_body(values, of_values, first);
    auto stacked = gradients.begin() + static_cast<std::ptrdiff_t>(active_.size() + captured_.values.size());
    for (int made : captured_.slices) of_slices.push_back({ref(*stacked++), copy_of(graph_.nodes[at(made)].inputs[1])});
    for (std::size_t k = 0; k < captured_.products.size(); ++k)
      of_products.push_back({ref(*stacked++), ref(iteration)});
    gradients.resize(sums.size());
    for (std::size_t i = 0; i < active_.size(); ++i) gradients[i] = b_.rounded(state[active_[i]], gradients[i]);
    for (std::size_t i = active_.size(); i < gradients.size(); ++i)
      gradients[i] = add(arg(sums[i]), arg(wide(gradients[i])));
    for (std::size_t i = 0; i < kept.size(); ++i) {
      const auto& [value, sum, adder] = expensive_[i];
      // Gradients of sums read no summand, but that of the op that computes the value may read it.
      const bool keeps_sum = adder >= 0 && !is_read(copy_of(value), first, first_region, copy_of({adder, 0}).node);
      replace(copy_of(keeps_sum ? sum : value), keeps_sum ? kept[i].sum : kept[i].value, first, first_region);
    }
    return gradients;
  }

  Backward& b_;
  GraphData& graph_;
  int id_;
  const Node& node_;
  const Region body_;            // a copy: the graph grows
  std::vector<Value> upstream_;  // gradients of the outputs; invalid: none
  const Captured captured_;
  std::vector<std::size_t> active_;   // numbers of the states through which gradients flow
  std::vector<Expensive> expensive_;  // kept, not computed again
};

void Backward::step_loop(int id, const Node& node) {
  for (std::size_t j = 0; j < node.outputs.size(); ++j) {
    if (!grads_[id][j].valid() || !depends_({id, static_cast<int>(j)})) continue;
    if (graph_->regions[at(node.bodies[0])].limit == 0) refuse_loop(node, j);
    return LoopGradient(*this, id, node).run();
  }
}

void Backward::refuse_loop(const Node& node, std::size_t output) const {
  throw Error(std::string(node.op->name), node.where,
              "has no gradient without a limit on its iterations, and grad() at " + to_string(where_) +
                  " must pass through " + inside(node, output),
              "give the loop .max_iterations, or keep it out of the path from the loss to the parameters");
}

}  // namespace graphsink
