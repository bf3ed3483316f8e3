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

// What distinguishes the optimizers.
struct Method {
  const char* name;  // of the function that the user calls, a string literal
  const OpDef* op;
  const OpDef* op_16;  // of 16-bit parameters
  std::vector<const char*> states;
  std::function<Attrs(double weight_decay)> attrs;
  Arg lr;
  double weight_decay;
};

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
  Builder(const Value& loss, Method method, const GradientOptions& options, Where where)
      : loss_(loss), graph_(loss.graph()), method_(std::move(method)), options_(options), where_(where) {}

  Optimizer build(const std::vector<ParameterGroup>& groups) {
    check(groups);
    std::vector<Variable> parameters;
    for (const ParameterGroup& group : groups)
      parameters.insert(parameters.end(), group.parameters.begin(), group.parameters.end());
    if (options_.loss_scale) {
      Variable scale = state("loss_scale", Tensor::full(f32, {}, options_.loss_scale->initial));
      result_.loss_scale = graph_.value(scale, where_);
    }
    std::vector<Value> gradients = gradients_of(parameters);
    const std::size_t first_part = graph_.data()->nodes.size();
    gradients = accumulate(std::move(gradients), parameters);
    Controls controls = decide(gradients);
    Value lr = learning_rate(method_.lr, std::string(method_.name) + ".lr", parameters, result_.lr);
    std::size_t first = 0;
    for (std::size_t i = 0; i < groups.size(); ++i) {
      Value group_lr = lr;
      result_.group_lr.emplace_back();
      if (groups[i].lr) {
        std::string name = std::string(method_.name) + ".lr." + std::to_string(i);
        group_lr = learning_rate(*groups[i].lr, name, groups[i].parameters, result_.group_lr.back());
      }
      std::span<const Value> own(gradients.data() + first, groups[i].parameters.size());
      update(groups[i], own, group_lr, controls);
      first += own.size();
    }
    // Last: it writes what the updates read.
    if (!counted_.empty()) emit(count_update_op, counted_, count_attrs_);
    if (result_.gradient_norm.valid()) results_.push_back(result_.gradient_norm);
    compose(first_part, results_);
    return result_;
  }

 private:
  struct Controls {
    Value updates, apply, scale;
  };

  Arg arg(const Value& value) const { return {value, where_}; }
  // The user wrote none of the nodes from `first` on.
  void compose(std::size_t first, std::span<const Value> results) const {
    GraphData& graph = *graph_.data();
    std::vector<ValueRef> made;
    for (const Value& result : results) made.push_back({result.node(), result.output()});
    graph.compose(graph.add_composition({method_.name}), static_cast<int>(first), made);
  }
  Value number(const Tensor& tensor) { return graph_.constant(tensor, where_); }

  Variable state(const std::string& name, const Tensor& initial) {
    return keep(std::string(method_.name) + "." + name, initial);
  }
  Variable keep(const std::string& name, const Tensor& initial) {
    return result_.state.emplace_back(Variable(name, initial));
  }

  void check(const std::vector<ParameterGroup>& groups) const {
    if (!loss_.valid()) throw Error(method_.name, where_, "the loss is not a Value", "pass the result of an op");
    if (loss_.eager()) throw Error(method_.name, where_, "the loss is a Value of an Eager", "build a Graph");
    if (const GraphData& graph = *loss_.graph(); graph.current_region != 0) {
      throw Error(method_.name, where_, "updates parameters in " + graph.describe_body(graph.current_region),
                  "call it outside of the body, with a loss that the body returns");
    }
    if (options_.accumulate < 1) {
      throw Error(method_.name, where_, "accumulate is " + std::to_string(options_.accumulate), "give at least 1");
    }
    check_gradient_options();
    expect_factor("weight_decay", method_.weight_decay);
    expect_rate(method_.lr);
    for (const ParameterGroup& group : groups) {
      if (group.weight_decay) expect_factor("weight_decay of a group", *group.weight_decay);
      if (group.lr) expect_rate(*group.lr);
    }
    std::set<const VariableData*> seen;
    for (const ParameterGroup& group : groups) {
      for (const Variable& parameter : group.parameters) {
        require_valid(parameter, method_.name, where_);
        if (seen.insert(parameter.data().get()).second) continue;
        throw Error(method_.name, where_, "\"" + parameter.name() + "\" is given twice", "put it in one group");
      }
    }
  }

  void check_gradient_options() const {
    double clip = options_.clip_norm;
    expect(clip == 0 || static_cast<float>(clip) > 0, "clip_norm", clip, "a norm above 0 as f32, or 0 for never");
    if (!options_.loss_scale) return;
    const LossScale& scale = *options_.loss_scale;
    auto initial = static_cast<float>(scale.initial), growth = static_cast<float>(scale.growth);
    expect(initial > 0 && std::isfinite(initial), "loss_scale.initial", scale.initial, "a finite f32 above 0");
    expect(growth >= 1 && std::isfinite(growth), "loss_scale.growth", scale.growth, "a finite f32 of at least 1");
    expect(scale.backoff > 0 && scale.backoff < 1, "loss_scale.backoff", scale.backoff, "a number between 0 and 1");
    expect(scale.interval >= 1, "loss_scale.interval", scale.interval, "at least 1");
  }

  void expect(bool fits, const std::string& option, double value, const std::string& range) const {
    expect_option(fits, method_.name, where_, option, value, range);
  }
  void expect_factor(const std::string& option, double value) const {
    expect(value >= 0 && std::isfinite(static_cast<float>(value)), option, value, "a finite f32 of at least 0");
  }
  void expect_rate(const Arg& lr) const {
    if (const auto* number = std::get_if<double>(&lr.content())) return expect_factor("lr", *number);
    const auto* variable = std::get_if<Variable>(&lr.content());
    const auto* value = std::get_if<Value>(&lr.content());
    if (value && !value->valid()) return;  // emit() refuses it
    const TensorType type = variable ? variable->type(lr.where()) : value->type(lr.where());
    if ((type.dtype == DType::f32 || type.dtype == DType::f64) && is_single(type)) return;
    throw Error(method_.name, where_, "the learning rate is " + to_string(type) + ", not one f32 or f64",
                "pass a number or a scalar Value");
  }

  std::vector<Value> gradients_of(const std::vector<Variable>& parameters) {
    std::vector<Arg> wrt;
    for (const Variable& parameter : parameters) wrt.emplace_back(parameter, where_);
    if (!result_.loss_scale.valid()) return grad(arg(loss_), wrt);
    const std::size_t first_part = graph_.data()->nodes.size();
    Value scale = cast(arg(result_.loss_scale), loss_.dtype());
    const Value scaled = mul(arg(loss_), arg(scale));
    compose(first_part, std::span(&scaled, 1));
    return grad(arg(scaled), wrt);
  }

  // The sums over the micro-steps so far.
  std::vector<Value> accumulate(std::vector<Value> gradients, const std::vector<Variable>& parameters) {
    if (options_.accumulate == 1) return gradients;
    std::vector<Arg> inputs{arg(graph_.step(where_))};
    std::vector<Variable> sums;
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      DType wide = gradients[i].dtype() == f64 ? f64 : f32;
      sums.push_back(keep(parameters[i].name() + ".gradient", Tensor(wide, parameters[i].type().shape)));
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
    if (!counts && options_.clip_norm <= 0) return {step, number(Tensor::scalar(true)), number(Tensor::scalar(1.0f))};

    Value none = number(Tensor(f32, {0}));
    Value norm = none, scale = none;
    bool has_norm = options_.clip_norm > 0 || options_.loss_scale;
    if (has_norm) {
      std::vector<Arg> inputs;
      for (const Value& gradient : gradients) inputs.push_back(arg(gradient));
      norm = emit(gradient_norm_op, inputs)[0];
    }
    if (options_.loss_scale) scale = result_.loss_scale;
    ControlAttrs attrs{options_.accumulate, options_.clip_norm, options_.loss_scale.has_value()};
    std::vector<Value> control = emit(control_update_op, {arg(step), arg(norm), arg(scale)}, attrs);
    if (has_norm) result_.gradient_norm = control[2];
    return {counts ? count(control[0], control[3]) : step, control[0], control[1]};
  }

  // The updates before this step.
  Value count(const Value& apply, const Value& overflowed) {
    Value updates = graph_.value(state("updates", Tensor(i32, {})), where_);
    counted_ = {arg(apply), arg(overflowed), arg(updates)};
    if (options_.loss_scale) {
      count_attrs_ = {options_.loss_scale->growth, options_.loss_scale->backoff, options_.loss_scale->interval};
      counted_.push_back(arg(result_.loss_scale));
      counted_.push_back(arg(graph_.value(state("since_change", Tensor(i32, {})), where_)));
    }
    return updates;
  }

  // A number becomes a Variable of the host's, of f64 if a parameter is; a Value stays what it is.
  Value learning_rate(const Arg& lr, const std::string& name, const std::vector<Variable>& parameters,
                      Variable& variable) {
    if (const auto* value = std::get_if<Value>(&lr.content())) return *value;
    if (const auto* given = std::get_if<Variable>(&lr.content())) {
      variable = *given;
    } else {
      bool is_f64 = std::any_of(parameters.begin(), parameters.end(),
                                [](const Variable& parameter) { return parameter.type().dtype == f64; });
      variable = Variable(name, Tensor::full(is_f64 ? f64 : f32, {}, std::get<double>(lr.content())));
    }
    return graph_.value(variable, lr.where());
  }

  // The parameter as an operand that the optimizer writes.
  Value writable(const Variable& parameter) {
    const VariableUse& use = loss_.graph()->use(parameter, where_);
    if (use.assigned.node >= 0) {
      throw Error(method_.name, where_,
                  "\"" + parameter.name() + "\" was already assigned at " + to_string(use.assigned_where),
                  "update it in one place");
    }
    return graph_.value(parameter, where_);
  }

  void update(const ParameterGroup& group, std::span<const Value> gradients, const Value& lr,
              const Controls& controls) {
    update(method_.op, false, group, gradients, lr, controls);
    update(method_.op_16, true, group, gradients, lr, controls);
  }

  // Of the parameters that are 16-bit, or of the others.
  void update(const OpDef* op, bool is_16_bit, const ParameterGroup& group, std::span<const Value> gradients,
              const Value& lr, const Controls& controls) {
    std::vector<Arg> inputs{arg(controls.updates), arg(controls.apply), arg(controls.scale), arg(lr)};
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      const Variable& parameter = group.parameters[i];
      if (is_half(parameter.type().dtype) != is_16_bit) continue;
      inputs.push_back(arg(writable(parameter)));
      inputs.push_back(arg(gradients[i]));
      DType dtype = parameter.type().dtype == f64 ? f64 : f32;
      for (const char* name : method_.states) {
        Variable moment =
            keep(parameter.name() + "." + method_.name + "." + name, Tensor(dtype, parameter.type().shape));
        inputs.push_back(arg(graph_.value(moment, where_)));
      }
      if (!is_16_bit) continue;
      Variable master = keep(parameter.name() + "." + method_.name + ".master", in_f32(parameter.read()));
      inputs.push_back(arg(graph_.value(master, where_)));
    }
    if (inputs.size() == kFirstTensor) return;
    emit(*op, inputs, method_.attrs(group.weight_decay.value_or(method_.weight_decay)));
  }

  Value loss_;
  Graph graph_;
  Method method_;
  GradientOptions options_;
  Where where_;
  Optimizer result_;
  std::vector<Value> results_;  // that are more than parts of the update
  std::vector<Arg> counted_;    // operands of count_update_op, if there is one
  LossScaleAttrs count_attrs_;
};

void check(const CosineSchedule& schedule, const Where& where) {
  auto refuse = [&](const std::string& problem, const char* remedy) {
    throw Error("cosine_schedule", where, problem, remedy);
  };
  if (schedule.warmup < 0 || schedule.steps < 0)
    refuse("warmup is " + std::to_string(schedule.warmup) + " and steps is " + std::to_string(schedule.steps),
           "give numbers of at least 0");
  if (schedule.steps > 0 && schedule.steps <= schedule.warmup)
    refuse("the schedule of " + std::to_string(schedule.steps) + " steps ends before its warm-up of " +
               std::to_string(schedule.warmup) + " does",
           "give more steps than the warm-up has, or steps = 0 to stay at the peak");
  if (schedule.dtype != f32 && schedule.dtype != f64)
    refuse("the dtype is " + std::string(to_string(schedule.dtype)), "use f32 or f64");
  for (double x : {schedule.peak, schedule.final})
    if (!std::isfinite(x) || !holds(schedule.dtype, x))
      refuse("peak or final is " + number_text(x), "give finite numbers of the dtype");
}

}  // namespace

Value cosine_schedule(const Graph& graph, const CosineSchedule& schedule, Where where) {
  check(schedule, where);
  auto arg = [&](const Value& value) { return Arg(value, where); };
  Value step = cast(arg(Graph(graph).step(where)), schedule.dtype);
  Value rate = Graph(graph).constant(Tensor::full(schedule.dtype, {}, schedule.peak), where);
  if (schedule.steps > schedule.warmup) {
    double length = static_cast<double>(schedule.steps - schedule.warmup);
    Value done = (arg(step) - static_cast<double>(schedule.warmup)) / length;
    Value half = cos(arg(minimum(arg(maximum(arg(done), 0.0)), 1.0)) * M_PI) * 0.5 + 0.5;
    rate = (half * (1 - schedule.final) + schedule.final) * schedule.peak;
  }
  if (schedule.warmup == 0) return rate;
  Value risen = minimum((arg(step) + 1.0) / static_cast<double>(schedule.warmup), 1.0);
  return arg(rate) * risen;
}

std::vector<Variable> Optimizer::variables() const {
  std::vector<Variable> all = state;
  if (lr.valid()) all.push_back(lr);
  std::copy_if(group_lr.begin(), group_lr.end(), std::back_inserter(all), [](const Variable& v) { return v.valid(); });
  return all;
}

Optimizer sgd(const Value& loss, const std::vector<Variable>& parameters, SgdOptions options, Where where) {
  return sgd(loss, std::vector<ParameterGroup>{{parameters}}, std::move(options), where);
}

Optimizer sgd(const Value& loss, const std::vector<ParameterGroup>& groups, SgdOptions options, Where where) {
  bool is_plain = options.momentum == 0;
  expect_option(options.momentum >= 0 && options.momentum < 1, "sgd", where, "momentum", options.momentum,
                "a number from 0 to below 1");
  expect_option(!options.nesterov || !is_plain, "sgd", where, "nesterov is given, and momentum", options.momentum,
                "a momentum above 0, or leave nesterov out");
  auto attrs = [=](double decay) { return SgdAttrs{options.momentum, decay, options.nesterov}; };
  Method method{"sgd", &sgd_op, &sgd_16_op, {}, attrs, options.lr, options.weight_decay};
  if (!is_plain) method.op = &momentum_op, method.op_16 = &momentum_16_op, method.states = {"velocity"};
  return Builder(loss, std::move(method), options.gradients, where).build(groups);
}

Optimizer adamw(const Value& loss, const std::vector<Variable>& parameters, AdamwOptions options, Where where) {
  return adamw(loss, std::vector<ParameterGroup>{{parameters}}, std::move(options), where);
}

Optimizer adamw(const Value& loss, const std::vector<ParameterGroup>& groups, AdamwOptions options, Where where) {
  for (auto [name, beta] : {std::pair{"beta1", options.beta1}, {"beta2", options.beta2}})
    expect_option(beta >= 0 && static_cast<float>(beta) < 1, "adamw", where, name, beta,
                  "a number from 0 to below 1, as f32");
  expect_option(options.eps >= 0 && std::isfinite(options.eps), "adamw", where, "eps", options.eps,
                "a finite number of at least 0");
  auto attrs = [=](double decay) { return AdamwAttrs{options.beta1, options.beta2, options.eps, decay}; };
  Method method{"adamw", &adamw_op, &adamw_16_op, {"m", "v"}, attrs, options.lr, options.weight_decay};
  return Builder(loss, std::move(method), options.gradients, where).build(groups);
}
}  // namespace graphsink
