#include "graphsink/optim.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <set>
#include <span>
#include <utility>

#include "base/convert.h"
#include "base/number_text.h"
#include "graphsink/grad.h"
#include "graphsink/op.h"
#include "graphsink/ops.h"
#include "ir/graph_data.h"
#include "kernels/optim/optimizer_ops.h"

namespace graphsink {
namespace {

// The same update twice: written in place by the commit, and as values.
struct UpdateOps {
  const OpDef* commit;
  const OpDef* values;
};

// What distinguishes the optimizers.
struct Method {
  const char* name;  // of the optimizer, a string literal
  const char* call;  // the function that the user calls, a string literal
  UpdateOps ops{};
  UpdateOps ops_16{};  // of 16-bit parameters
  std::vector<const char*> states{};
  std::function<Attrs(double weight_decay)> attrs;
  Arg lr;
  Arg weight_decay;
};

const double* as_number(const Arg& arg) { return std::get_if<double>(&arg.content()); }

Tensor in_f32(const Tensor& x) {
  Tensor result(f32, x.shape());
  std::int64_t i = 0;
  for (float& element : result.as<float>()) element = static_cast<float>(x.at(i++));
  return result;
}

void expect_option(bool fits, const std::string& method, const Where& where, const std::string& option, double value,
                   const std::string& range) {
  if (!fits) throw Error(method, where, option + " is " + number_text(value), "give " + range);
}

class Builder {
 public:
  Builder(Graph graph, const std::vector<ParameterGroup>& groups, Method method, const GradientOptions& options,
          Where where)
      : graph_(std::move(graph)), groups_(groups), method_(std::move(method)), options_(options), where_(where) {
    check();
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
    check(gradients);
    begin();
    return update(gradients);
  }

 private:
  struct Controls {
    Value updates, apply, scale;
  };

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
    Value lr = learning_rate(method_.lr, std::string(method_.name) + ".lr", parameters_, result_.lr);
    std::size_t first = 0;
    for (std::size_t i = 0; i < groups_.size(); ++i) {
      Value group_lr = lr;
      result_.group_lr.emplace_back();
      if (groups_[i].lr) {
        std::string name = std::string(method_.name) + ".lr." + std::to_string(i);
        group_lr = learning_rate(*groups_[i].lr, name, groups_[i].parameters, result_.group_lr.back());
      }
      std::span<const Value> own(gradients.data() + first, groups_[i].parameters.size());
      update(groups_[i], own, group_lr, controls);
      first += own.size();
    }
    // Last: it writes what the updates read.
    if (!counters_.written.empty()) {
      emit(count_update_op, args(counters_.operands), count_attrs_);
      remember(updated_counts_op, count_attrs_, counters_.operands, counters_.written);
    }
    if (result_.gradient_norm.valid()) results_.push_back(result_.gradient_norm);
    compose(first_part, results_);
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

  Variable named(const std::string& name, const Tensor& initial) const {
    return Variable(std::string(method_.name) + "." + name, initial);
  }
  Variable state(const std::string& name, const Tensor& initial) {
    return result_.state.emplace_back(named(name, initial));
  }
  Variable keep(const std::string& name, const Tensor& initial) {
    return result_.state.emplace_back(Variable(name, initial));
  }

  void check() const {
    if (const GraphData& graph = *graph_.data(); graph.current_region != 0) {
      throw Error(method_.call, where_, "updates parameters in " + graph.describe_body(graph.current_region),
                  "call it outside of the body, with what the body returns");
    }
    if (options_.accumulate < 1) {
      throw Error(method_.call, where_, "accumulate is " + std::to_string(options_.accumulate), "give at least 1");
    }
    check_gradient_options();
    expect_factor("weight_decay", method_.weight_decay);
    expect_factor("lr", method_.lr);
    for (const ParameterGroup& group : groups_) {
      if (group.weight_decay) expect_factor("weight_decay of a group", *group.weight_decay);
      if (group.lr) expect_factor("lr", *group.lr);
    }
    std::set<const VariableData*> seen;
    for (const ParameterGroup& group : groups_) {
      for (const Variable& parameter : group.parameters) {
        require_valid(parameter, method_.call, where_);
        if (seen.insert(parameter.data().get()).second) continue;
        throw Error(method_.call, where_, "\"" + parameter.name() + "\" is given twice", "put it in one group");
      }
    }
  }

  void check_gradient_options() const {
    if (const double* clip = as_number(options_.clip_norm)) {
      expect(*clip == 0 || static_cast<float>(*clip) > 0, "clip_norm", *clip, "a norm above 0 as f32, or 0 for never");
    } else {
      expect_one_float("clip_norm", options_.clip_norm);
    }
    if (!options_.loss_scale) return;
    const LossScale& scale = *options_.loss_scale;
    auto initial = static_cast<float>(scale.initial), growth = static_cast<float>(scale.growth);
    expect(initial > 0 && std::isfinite(initial), "loss_scale.initial", scale.initial, "a finite f32 above 0");
    expect(growth >= 1 && std::isfinite(growth), "loss_scale.growth", scale.growth, "a finite f32 of at least 1");
    expect(scale.backoff > 0 && scale.backoff < 1, "loss_scale.backoff", scale.backoff, "a number between 0 and 1");
    expect(scale.interval >= 1, "loss_scale.interval", scale.interval, "at least 1");
    if (scale.variable.valid() && scale.variable.type() != TensorType{f32, {}}) {
      throw Error(method_.call, where_, "loss_scale.variable is " + to_string(scale.variable.type()) + ", not f32[]",
                  "make it of Tensor::scalar(65536.0f)");
    }
  }

  // Gradients of the user's.
  void check(const std::vector<Value>& gradients) const {
    if (gradients.size() != parameters_.size()) {
      throw Error(
          method_.call, where_,
          std::to_string(gradients.size()) + " gradients for " + std::to_string(parameters_.size()) + " parameters",
          "pass one gradient for each parameter, in the order of the parameters");
    }
    if (options_.loss_scale && !options_.loss_scale->variable.valid()) {
      throw Error(method_.call, where_,
                  "a loss_scale of which the gradients know nothing: they were computed before it exists",
                  "make a Variable of the scale, multiply the loss by it, and name it in LossScale::variable");
    }
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      const TensorType& wanted = parameters_[i].type();
      const TensorType given = graph_.data()->type(graph_.data()->visible(gradients[i], method_.call, where_));
      const TensorType wide{is_half(wanted.dtype) ? f32 : wanted.dtype, wanted.shape};
      if (given == wanted || given == wide) continue;
      throw Error(method_.call, where_,
                  "the gradient of \"" + parameters_[i].name() + "\", which is " + to_string(wanted) + ", is " +
                      to_string(given),
                  "pass gradients of the types of their parameters; those of 16-bit parameters may be f32");
    }
  }

  void expect(bool fits, const std::string& option, double value, const std::string& range) const {
    expect_option(fits, method_.call, where_, option, value, range);
  }
  void expect_factor(const std::string& option, const Arg& factor) const {
    const double* number = as_number(factor);
    if (number == nullptr) return expect_one_float(option, factor);
    expect(*number >= 0 && std::isfinite(static_cast<float>(*number)), option, *number, "a finite f32 of at least 0");
  }
  void expect_one_float(const std::string& option, const Arg& value_or_variable) const {
    const auto* variable = std::get_if<Variable>(&value_or_variable.content());
    const auto* value = std::get_if<Value>(&value_or_variable.content());
    if (value && !value->valid()) return;  // emit() refuses it
    const Where& where = value_or_variable.where();
    const TensorType type = variable ? variable->type(where) : value->type(where);
    if ((type.dtype == DType::f32 || type.dtype == DType::f64) && is_single(type)) return;
    throw Error(method_.call, where_, option + " is " + to_string(type) + ", not one f32 or f64",
                "pass a number or a scalar Value");
  }

  std::vector<Value> gradients_of(const Value& loss) {
    std::vector<Arg> wrt;
    for (const Variable& parameter : parameters_) wrt.emplace_back(parameter, where_);
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
    std::vector<Arg> inputs{arg(graph_.step(where_))};
    std::vector<Variable> sums;
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      DType wide = gradients[i].dtype() == f64 ? f64 : f32;
      sums.push_back(keep(parameters_[i].name() + ".gradient", Tensor(wide, parameters_[i].type().shape)));
      inputs.push_back(arg(graph_.value(sums.back(), where_)));
      inputs.push_back(arg(gradients[i]));
    }
    gradients = emit(accumulate_op, inputs, AccumulateAttrs{options_.accumulate});
    for (std::size_t i = 0; i < sums.size(); ++i) assign(sums[i], arg(gradients[i]));
    results_ = gradients;
    return gradients;
  }

  Controls decide(const std::vector<Value>& gradients) {
    Value step = graph_.step(where_);
    bool counts = options_.accumulate > 1 || options_.loss_scale;
    const double* clip = as_number(options_.clip_norm);
    const bool clips = clip == nullptr || *clip > 0;
    if (!counts && !clips) return {step, number(Tensor::scalar(true)), number(Tensor::scalar(1.0f))};

    Value none = number(Tensor(f32, {0}));
    Value norm = none, scale = none;
    bool has_norm = clips || options_.loss_scale;
    if (has_norm) {
      std::vector<Arg> inputs;
      for (const Value& gradient : gradients) inputs.push_back(arg(gradient));
      norm = emit(gradient_norm_op, inputs)[0];
    }
    if (options_.loss_scale) scale = result_.loss_scale;
    std::vector<Arg> inputs{arg(step), arg(norm), arg(scale)};
    if (clip == nullptr) inputs.push_back(arg(value_of(options_.clip_norm)));
    ControlAttrs attrs{options_.accumulate, clip == nullptr ? 0 : *clip, options_.loss_scale.has_value()};
    std::vector<Value> control = emit(control_update_op, inputs, attrs);
    if (has_norm) result_.gradient_norm = control[2];
    return {counts ? count(control[0], control[3]) : step, control[0], control[1]};
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

  // Of an Arg that is no number.
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
      variable = Variable(name, Tensor::full(is_f64 ? f64 : f32, {}, *number));
      return graph_.value(variable, lr.where());
    }
    if (const auto* given = std::get_if<Variable>(&lr.content())) variable = *given;
    return value_of(lr);
  }

  // The parameter as an operand that the optimizer writes.
  Value writable(const Variable& parameter) {
    const VariableUse& use = graph_.data()->use(parameter, where_);
    if (use.assigned.node >= 0) {
      throw Error(method_.call, where_,
                  "\"" + parameter.name() + "\" was already assigned at " + to_string(use.assigned_where),
                  "update it in one place");
    }
    return graph_.value(parameter, where_);
  }

  // What an update takes of one parameter, and what it writes.
  struct Tensors {
    std::vector<Value> operands;
    std::vector<Variable> written;
  };
  Tensors tensors_of(const Variable& parameter, const Value& gradient) {
    Tensors tensors{{writable(parameter), gradient}, {parameter}};
    auto add = [&](const char* name, const Tensor& initial) {
      tensors.written.push_back(keep(parameter.name() + "." + method_.name + "." + name, initial));
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

  // Of the parameters that are 16-bit, or of the others.
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
    emit(*ops.commit, args(operands_for(parameters)), attrs);
    for (const Tensors& tensors : parameters)
      remember(*ops.values, attrs, operands_for(std::span(&tensors, 1)), tensors.written);
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
  std::vector<Variable> parameters_;  // of all groups
  Optimizer result_;
  std::vector<Value> results_;  // that are more than parts of the update
  Tensors counters_;            // of count_update_op, if there is one
  LossScaleAttrs count_attrs_;
};

Method method_of(const SgdOptions& options, const char* call, const Where& where) {
  bool is_plain = options.momentum == 0;
  expect_option(options.momentum >= 0 && options.momentum < 1, call, where, "momentum", options.momentum,
                "a number from 0 to below 1");
  expect_option(!options.nesterov || !is_plain, call, where, "nesterov is given, and momentum", options.momentum,
                "a momentum above 0, or leave nesterov out");
  auto attrs = [momentum = options.momentum, nesterov = options.nesterov](double decay) {
    return SgdAttrs{momentum, decay, nesterov};
  };
  Method method{.name = "sgd", .call = call, .attrs = attrs, .lr = options.lr, .weight_decay = options.weight_decay};
  if (is_plain) {
    method.ops = {&sgd_op, &updated_sgd_op};
    method.ops_16 = {&sgd_16_op, &updated_sgd_16_op};
  } else {
    method.ops = {&momentum_op, &updated_momentum_op};
    method.ops_16 = {&momentum_16_op, &updated_momentum_16_op};
    method.states = {"velocity"};
  }
  return method;
}

Method method_of(const AdamwOptions& options, const char* call, const Where& where) {
  for (auto [name, beta] : {std::pair{"beta1", options.beta1}, {"beta2", options.beta2}})
    expect_option(beta >= 0 && static_cast<float>(beta) < 1, call, where, name, beta,
                  "a number from 0 to below 1, as f32");
  expect_option(options.eps >= 0 && std::isfinite(options.eps), call, where, "eps", options.eps,
                "a finite number of at least 0");
  auto attrs = [beta1 = options.beta1, beta2 = options.beta2, eps = options.eps](double decay) {
    return AdamwAttrs{beta1, beta2, eps, decay};
  };
  return {.name = "adamw",
          .call = call,
          .ops = {&adamw_op, &updated_adamw_op},
          .ops_16 = {&adamw_16_op, &updated_adamw_16_op},
          .states = {"m", "v"},
          .attrs = attrs,
          .lr = options.lr,
          .weight_decay = options.weight_decay};
}

template <class Options>
Optimizer minimize(const Value& loss, const std::vector<ParameterGroup>& groups, const Options& options,
                   const char* call, const Where& where) {
  Method method = method_of(options, call, where);
  if (!loss.valid()) throw Error(call, where, "the loss is not a Value", "pass the result of an op");
  if (loss.eager()) throw Error(call, where, "the loss is a Value of an Eager", "build a Graph");
  return Builder(Graph(loss.graph()), groups, std::move(method), options.gradients, where).minimize(loss);
}

template <class Options>
Optimizer apply_gradients(const Options& options, const std::vector<ParameterGroup>& groups,
                          const std::vector<Value>& gradients, const Where& where) {
  constexpr const char* kCall = "apply";
  Method method = method_of(options, kCall, where);
  if (gradients.empty()) throw Error(kCall, where, "no gradients", "pass one for each parameter");
  const Value& first = gradients.front();
  if (!first.valid()) throw Error(kCall, where, "the first gradient is not a Value", "pass the result of an op");
  if (first.eager()) throw Error(kCall, where, "the gradients are Values of an Eager", "build a Graph");
  return Builder(Graph(first.graph()), groups, std::move(method), options.gradients, where).apply(gradients);
}

}  // namespace

std::vector<Variable> Optimizer::variables() const {
  std::vector<Variable> all = state;
  if (lr.valid()) all.push_back(lr);
  std::copy_if(group_lr.begin(), group_lr.end(), std::back_inserter(all), [](const Variable& v) { return v.valid(); });
  return all;
}

Optimizer sgd(const Value& loss, const std::vector<Variable>& parameters, SgdOptions options, Where where) {
  return minimize(loss, std::vector<ParameterGroup>{{parameters}}, options, "sgd", where);
}
Optimizer sgd(const Value& loss, const std::vector<ParameterGroup>& groups, SgdOptions options, Where where) {
  return minimize(loss, groups, options, "sgd", where);
}

Optimizer adamw(const Value& loss, const std::vector<Variable>& parameters, AdamwOptions options, Where where) {
  return minimize(loss, std::vector<ParameterGroup>{{parameters}}, options, "adamw", where);
}
Optimizer adamw(const Value& loss, const std::vector<ParameterGroup>& groups, AdamwOptions options, Where where) {
  return minimize(loss, groups, options, "adamw", where);
}

Optimizer apply(const SgdOptions& options, const std::vector<Variable>& parameters, const std::vector<Value>& gradients,
                Where where) {
  return apply_gradients(options, std::vector<ParameterGroup>{{parameters}}, gradients, where);
}
Optimizer apply(const SgdOptions& options, const std::vector<ParameterGroup>& groups,
                const std::vector<Value>& gradients, Where where) {
  return apply_gradients(options, groups, gradients, where);
}

Optimizer apply(const AdamwOptions& options, const std::vector<Variable>& parameters,
                const std::vector<Value>& gradients, Where where) {
  return apply_gradients(options, std::vector<ParameterGroup>{{parameters}}, gradients, where);
}
Optimizer apply(const AdamwOptions& options, const std::vector<ParameterGroup>& groups,
                const std::vector<Value>& gradients, Where where) {
  return apply_gradients(options, groups, gradients, where);
}

}  // namespace graphsink
