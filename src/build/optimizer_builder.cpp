#include "build/optimizer_builder.h"

#include <algorithm>
#include <set>
#include <span>
#include <string>
#include <utility>

#include "base/at.h"
#include "build/optimizer_checks.h"
#include "graphsink/grad.h"
#include "graphsink/ops.h"
#include "ir/graph_data.h"
#include "kernels/optim/optimizer_ops.h"

namespace graphsink {
namespace {

Tensor in_f32(const Tensor& x) {
  Tensor result(f32, x.shape());
  std::int64_t i = 0;
  for (float& element : result.as<float>()) element = static_cast<float>(x.at(i++));
  return result;
}

class Builder {
 public:
  Builder(Graph graph, const std::vector<ParameterGroup>& groups, Method method, const GradientOptions& options,
          Where where)
      : graph_(std::move(graph)), groups_(groups), method_(std::move(method)), options_(options), where_(where) {
    check_optimizer(call(), *graph_.data(), groups_, method_, options_);
    for (const ParameterGroup& group : groups_)
      parameters_.insert(parameters_.end(), group.parameters.begin(), group.parameters.end());
  }

  // With the gradients of the loss, times the loss scale if there is one.
  Optimizer minimize(const Value& loss) {
    begin();
    return update(gradients_of(loss));
  }

  // With gradients of the user's.
  Optimizer apply(const std::vector<Value>& gradients) {
    check_gradients(call(), *graph_.data(), parameters_, gradients, options_);
    begin();
    return update(gradients);
  }

 private:
  struct Controls {
    Value updates, apply, scale;
  };

  OptimizerCall call() const { return {method_.call, where_}; }

  // Where some parameters are parts, all of their ranks have equal values of the others, and of their state.
  void note_undivided() {
    std::vector<Variable> undivided = result_.variables();
    std::erase_if(undivided, [&](const Variable& state) { return states_of_parts_.contains(state.data().get()); });
    std::vector<std::shared_ptr<const void>> groups;
    for (const Variable& parameter : parameters_) {
      const RankDivision* division = parameter.data()->division.get();
      if (division == nullptr) {
        undivided.push_back(parameter);
      } else if (std::find(groups.begin(), groups.end(), division->group) == groups.end()) {
        groups.push_back(division->group);
      }
    }
    for (const std::shared_ptr<const void>& group : groups) graph_.data()->undivided.push_back({group, undivided});
  }

  void begin() {
    if (!options_.loss_scale) return;
    const Variable& given = options_.loss_scale->variable;
    const Variable scale =
        given.valid() ? given : named("loss_scale", Tensor::full(f32, {}, options_.loss_scale->initial));
    result_.loss_scale = writable(result_.state.emplace_back(scale));
  }

  Optimizer update(std::vector<Value> gradients) {
    const std::size_t first_part = graph_.data()->nodes.size();
    gradients = accumulate(std::move(gradients));
    Controls controls = decide(gradients);
    Value lr = learning_rate(method_.lr, "lr", parameters_, result_.lr);
    std::size_t first = 0;
    for (std::size_t i = 0; i < groups_.size(); ++i) {
      Value group_lr = lr;
      result_.group_lr.emplace_back();
      if (groups_[i].lr) {
        const std::string name = "lr." + std::to_string(i);
        group_lr = learning_rate(*groups_[i].lr, name, groups_[i].parameters, result_.group_lr.back());
      }
      std::span<const Value> own(gradients.data() + first, groups_[i].parameters.size());
      update(groups_[i], own, group_lr, controls);
      first += own.size();
    }
    // Last: it writes what the updates read.
    if (!counters_.written.empty()) {
      write({&count_update_op, &updated_counts_op}, count_attrs_, counters_.operands, counters_.written);
      if (!in_body()) remember(updated_counts_op, count_attrs_, counters_.operands, counters_.written);
    }
    if (result_.gradient_norm.valid()) results_.push_back(result_.gradient_norm);
    compose(first_part, results_);
    note_undivided();
    return result_;
  }

  Arg arg(const Value& value) const { return {value, where_}; }
  std::vector<Arg> args(const std::vector<Value>& values) const {
    std::vector<Arg> all;
    for (const Value& value : values) all.push_back(arg(value));
    return all;
  }
  // The user wrote none of the nodes from `first` on.
  void compose(std::size_t first, std::span<const Value> results) const {
    GraphData& graph = *graph_.data();
    std::vector<ValueRef> made;
    for (const Value& result : results) made.push_back({result.node(), result.output()});
    graph.compose(graph.add_composition({method_.call}), static_cast<int>(first), made);
  }
  Value number(const Tensor& tensor) { return graph_.constant(tensor, where_); }

  // In a body, what an update computes is assigned to the Variables, which the commit then stores.
  bool in_body() const { return graph_.data()->current_region != 0; }

  // Variable that is not named after a parameter: the scopes of their calls tell two optimizers of one kind apart.
  Variable named(const std::string& name, const Tensor& initial) const {
    return graph_.data()->make_variable(std::string(method_.name) + "." + name, initial, where_);
  }
  Variable state(const std::string& name, const Tensor& initial) {
    return result_.state.emplace_back(named(name, initial));
  }
  // Beside its parameter.
  Variable keep(const Variable& parameter, const std::string& name, const Tensor& initial) {
    const Variable made = graph_.data()->make_beside(parameter, name, initial, Where());
    if (parameter.data()->division) states_of_parts_.insert(made.data().get());
    return result_.state.emplace_back(made);
  }

  // The devices of the parameters, ascending: an op writes Variables of one device alone.
  static std::set<int> devices_of(std::span<const Variable> parameters) {
    std::set<int> devices;
    for (const Variable& parameter : parameters) devices.insert(parameter.placement().device);
    return devices;
  }

  std::vector<Value> gradients_of(const Value& loss) {
    for (const Variable& parameter : parameters_) expect_not_assigned(parameter);
    std::vector<Arg> wrt;
    for (const Variable& parameter : parameters_)
      wrt.push_back(in_body() ? arg(writable(parameter)) : Arg(parameter, where_));
    if (!result_.loss_scale.valid()) return grad(arg(loss), wrt);
    const std::size_t first_part = graph_.data()->nodes.size();
    Value scale = cast(arg(result_.loss_scale), loss.dtype());
    const Value scaled = mul(arg(loss), arg(scale));
    compose(first_part, std::span(&scaled, 1));
    return grad(arg(scaled), wrt);
  }

  // The sums over the micro-steps so far.
  std::vector<Value> accumulate(std::vector<Value> gradients) {
    if (options_.accumulate == 1) return gradients;
    const Arg micro = arg(micro_step());
    std::vector<Variable> sums;
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      DType wide = gradients[i].dtype() == f64 ? f64 : f32;
      sums.push_back(keep(parameters_[i], ".gradient", Tensor(wide, parameters_[i].type().shape)));
    }
    for (int device : devices_of(parameters_)) {
      std::vector<Arg> inputs{micro};
      std::vector<std::size_t> here;
      for (std::size_t i = 0; i < gradients.size(); ++i) {
        if (parameters_[i].placement().device != device) continue;
        here.push_back(i);
        inputs.push_back(arg(graph_.value(sums[i], where_)));
        inputs.push_back(arg(gradients[i]));
      }
      const std::vector<Value> summed = emit(accumulate_op, inputs, AccumulateAttrs{options_.accumulate});
      for (std::size_t k = 0; k < here.size(); ++k) gradients[here[k]] = summed[k];
    }
    for (std::size_t i = 0; i < sums.size(); ++i) assign(sums[i], arg(gradients[i]));
    results_ = gradients;
    return gradients;
  }

  // Number that tells the first and the last of accumulated gradients: the step or, in a body that accumulates, how
  // often it has run since an update.
  Value micro_step() {
    if (!in_body() || options_.accumulate == 1) return graph_.step(where_);
    if (!micro_step_.valid()) {
      const Variable variable = state("micro_step", Tensor(i32, {}));
      micro_step_ = graph_.value(variable, where_);
      const Value next = add(arg(micro_step_), Arg(1, where_));
      const Value goes_on = less(arg(next), Arg(options_.accumulate, where_));
      assign(variable, arg(graphsink::where(arg(goes_on), arg(next), Arg(0, where_))));
    }
    return micro_step_;
  }

  Controls decide(const std::vector<Value>& gradients) {
    Value step = micro_step();
    bool counts = options_.accumulate > 1 || options_.loss_scale || in_body();
    const double* clip = as_number(options_.clip_norm);
    const bool clips = clip == nullptr || *clip > 0;
    if (!counts && !clips) return {step, number(Tensor::scalar(true)), number(Tensor::scalar(1.0f))};

    Value none = number(Tensor(f32, {0}));
    Value norm = none, scale = none;
    bool has_norm = clips || options_.loss_scale;
    if (has_norm) norm = norm_of_all(norm_of(gradients));
    if (options_.loss_scale) scale = result_.loss_scale;
    std::vector<Arg> inputs{arg(step), arg(norm), arg(scale)};
    if (clip == nullptr) inputs.push_back(arg(value_of(options_.clip_norm)));
    ControlAttrs attrs{options_.accumulate, clip == nullptr ? 0 : *clip, options_.loss_scale.has_value()};
    std::vector<Value> control = emit(control_update_op, inputs, attrs);
    if (has_norm) result_.gradient_norm = control[2];
    return {counts ? count(control[0], control[3]) : step, control[0], control[1]};
  }

  // The norm of these gradients and, where they are of parts of parameters, of the other parts, which other ranks have.
  Value norm_of(const std::vector<Value>& gradients) const {
    std::vector<const RankDivision*> divisions{nullptr};  // one for each group, behind that of undivided parameters
    std::vector<std::vector<Arg>> inputs(1);
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      const RankDivision* division = parameters_[i].data()->division.get();
      std::size_t place = 0;
      if (division != nullptr)
        for (place = 1; place < divisions.size() && divisions[place]->group != division->group;) ++place;
      if (place == divisions.size()) {
        divisions.push_back(division);
        inputs.emplace_back();
      }
      inputs[place].push_back(arg(gradients[i]));
    }
    if (divisions.size() == 1) return emit(gradient_norm_op, inputs[0])[0];
    GraphData& graph = *graph_.data();
    const std::size_t first = graph.nodes.size();
    const Value norm = norm_of_parts(divisions, inputs);
    graph.note_rank_nodes(first);
    graph.rank_nodes.erase(norm.node());  // a single rank has one node
    return norm;
  }

  // Each rank of the first group adds an equal share of what is not divided, so that all have one norm, bit by bit,
  // whatever each has computed of it.
  Value norm_of_parts(const std::vector<const RankDivision*>& divisions,
                      const std::vector<std::vector<Arg>>& inputs) const {
    const auto square = [&](const std::vector<Arg>& of) {  // that of a large f32 is beyond f32
      const Value wide = cast(arg(emit(gradient_norm_op, of)[0]), f64);
      return mul(arg(wide), arg(wide));
    };
    Value all;
    for (std::size_t k = 1; k < divisions.size(); ++k) {
      Value squares = square(inputs[k]);
      if (k == 1 && !inputs[0].empty()) {
        const Arg ranks(static_cast<double>(divisions[1]->part.count), where_);
        squares = graphsink::add(arg(squares), arg(div(arg(square(inputs[0])), ranks)));
      }
      squares = divisions[k]->sum(squares, where_);
      all = all.valid() ? graphsink::add(arg(all), arg(squares)) : squares;
    }
    return cast(arg(sqrt(arg(all))), f32);
  }

  // From the norm of the gradients that this optimizer has.
  Value norm_of_all(const Value& norm) const {
    if (!options_.norm_of_all) return norm;
    const Value all = options_.norm_of_all(norm);
    if (!all.valid() || all.graph() != norm.graph() || all.type() != norm.type())
      throw Error(method_.call, where_, "GradientOptions::norm_of_all does not return one f32 of this graph",
                  "return a Value computed from the norm that it gets, of the same type");
    return all;
  }

  // The updates before this step.
  Value count(const Value& apply, const Value& overflowed) {
    auto add = [&](const Variable& variable) {
      counters_.written.push_back(variable);
      counters_.operands.push_back(graph_.value(variable, where_));
    };
    counters_.operands = {apply, overflowed};
    add(state("updates", Tensor(i32, {})));
    if (options_.loss_scale) {
      count_attrs_ = {options_.loss_scale->growth, options_.loss_scale->backoff, options_.loss_scale->interval};
      counters_.written.push_back(result_.state.front());
      counters_.operands.push_back(result_.loss_scale);
      add(state("since_change", Tensor(i32, {})));
    }
    return counters_.operands[2];
  }

  // Returns the Value of an Arg that is no number.
  Value value_of(const Arg& given) {
    if (const auto* value = std::get_if<Value>(&given.content())) return *value;
    return graph_.value(std::get<Variable>(given.content()), given.where());
  }

  // A number becomes a Variable of the host's, of f64 if a parameter is; a Value stays what it is.
  Value learning_rate(const Arg& lr, const std::string& name, const std::vector<Variable>& parameters,
                      Variable& variable) {
    if (const double* number = as_number(lr)) {
      bool is_f64 = std::any_of(parameters.begin(), parameters.end(),
                                [](const Variable& parameter) { return parameter.type().dtype == f64; });
      variable = named(name, Tensor::full(is_f64 ? f64 : f32, {}, *number));
      return graph_.value(variable, lr.where());
    }
    if (const auto* given = std::get_if<Variable>(&lr.content())) variable = *given;
    return value_of(lr);
  }

  void expect_not_assigned(const Variable& parameter) const {
    const GraphData& graph = *graph_.data();
    const auto known = graph.variable_index.find(parameter.data().get());
    if (known == graph.variable_index.end()) return;
    const VariableUse& use = graph.variables[at(known->second)];
    if (!graph.is_assigned_here(use)) return;
    throw Error(method_.call, where_,
                "\"" + parameter.name() + "\" was already assigned at " + to_string(use.assigned_where),
                "update it in one place");
  }

  // The parameter as an operand that the optimizer writes.
  Value writable(const Variable& parameter) {
    expect_not_assigned(parameter);
    return graph_.value(parameter, where_);
  }

  // Operands that an update takes for one parameter, and the Variables that it writes.
  struct Tensors {
    std::vector<Value> operands;
    std::vector<Variable> written;
  };
  Tensors tensors_of(const Variable& parameter, const Value& gradient) {
    Tensors tensors{{writable(parameter), gradient}, {parameter}};
    auto add = [&](const char* name, const Tensor& initial) {
      tensors.written.push_back(keep(parameter, std::string(".") + method_.name + "." + name, initial));
      tensors.operands.push_back(graph_.value(tensors.written.back(), where_));
    };
    const TensorType& type = parameter.type();
    for (const char* name : method_.states) add(name, Tensor(type.dtype == f64 ? f64 : f32, type.shape));
    if (is_half(type.dtype)) add("master", in_f32(parameter.read()));
    return tensors;
  }

  void update(const ParameterGroup& group, std::span<const Value> gradients, const Value& lr,
              const Controls& controls) {
    update(method_.ops, false, group, gradients, lr, controls);
    update(method_.ops_16, true, group, gradients, lr, controls);
  }

  // Updates the parameters that are 16-bit, or the others.
  void update(const UpdateOps& ops, bool is_16_bit, const ParameterGroup& group, std::span<const Value> gradients,
              const Value& lr, const Controls& controls) {
    std::vector<Tensors> parameters;
    for (std::size_t i = 0; i < gradients.size(); ++i)
      if (is_half(group.parameters[i].type().dtype) == is_16_bit)
        parameters.push_back(tensors_of(group.parameters[i], gradients[i]));
    if (parameters.empty()) return;
    const Arg& decay = group.weight_decay ? *group.weight_decay : method_.weight_decay;
    const double* constant = as_number(decay);
    std::vector<Value> last;
    if (constant == nullptr) last.push_back(value_of(decay));
    const Attrs attrs = method_.attrs(constant == nullptr ? 0 : *constant);
    auto operands_for = [&](std::span<const Tensors> of) {
      std::vector<Value> operands{controls.updates, controls.apply, controls.scale, lr};
      for (const Tensors& tensors : of)
        operands.insert(operands.end(), tensors.operands.begin(), tensors.operands.end());
      operands.insert(operands.end(), last.begin(), last.end());
      return operands;
    };
    for (int device : devices_of(group.parameters)) {
      std::vector<Tensors> here;
      std::vector<Variable> written;
      for (const Tensors& tensors : parameters) {
        if (tensors.written.front().placement().device != device) continue;
        here.push_back(tensors);
        written.insert(written.end(), tensors.written.begin(), tensors.written.end());
      }
      if (!here.empty()) write(ops, attrs, operands_for(here), written);
    }
    if (in_body()) return;
    for (const Tensors& tensors : parameters)
      remember(*ops.values, attrs, operands_for(std::span(&tensors, 1)), tensors.written);
  }

  void write(const UpdateOps& ops, const Attrs& attrs, const std::vector<Value>& operands,
             const std::vector<Variable>& written) const {
    if (!in_body()) {
      emit(*ops.commit, args(operands), attrs);
      return;
    }
    const std::vector<Value> values = emit(*ops.values, args(operands), attrs);
    for (std::size_t i = 0; i < values.size(); ++i) assign(written[i], arg(values[i]));
  }

  // How to compute what is written, for Graph::updated().
  void remember(const OpDef& op, const Attrs& attrs, const std::vector<Value>& operands,
                const std::vector<Variable>& written) {
    Update update{&op, attrs, {}, written};
    for (const Value& value : operands) update.inputs.push_back({value.node(), value.output()});
    graph_.data()->updates.push_back(std::move(update));
  }

  Graph graph_;
  std::vector<ParameterGroup> groups_;
  Method method_;
  GradientOptions options_;
  Where where_;
  std::vector<Variable> parameters_;  // parameters of all groups
  Optimizer result_;
  std::set<const VariableData*> states_of_parts_;
  std::vector<Value> results_;  // values that are more than parts of the update
  Tensors counters_;            // operands of count_update_op, and Variables that it writes, if there is one
  Value micro_step_;            // in a body, once it is needed
  LossScaleAttrs count_attrs_;
};

}  // namespace

Optimizer build_optimizer(const Value& loss, const std::vector<ParameterGroup>& groups, const Method& method,
                          const GradientOptions& options, const Where& where) {
  return Builder(Graph(loss.graph()), groups, method, options, where).minimize(loss);
}
Optimizer build_optimizer(const std::vector<Value>& gradients, const std::vector<ParameterGroup>& groups,
                          const Method& method, const GradientOptions& options, const Where& where) {
  return Builder(Graph(gradients.front().graph()), groups, method, options, where).apply(gradients);
}

}  // namespace graphsink
