#include "build/optimizer_checks.h"

#include <cmath>
#include <set>
#include <variant>

#include "base/at.h"
#include "base/number_text.h"

namespace graphsink {
namespace {

class Check {
 public:
  Check(const OptimizerCall& call, const GraphData& graph, const GradientOptions& options)
      : call_(call), graph_(graph), options_(options) {}

  void run(const std::vector<ParameterGroup>& groups, const Method& method) const {
    refuse_recomputed_loops();
    if (options_.accumulate < 1) {
      throw Error(call_.function, call_.where, "accumulate is " + std::to_string(options_.accumulate),
                  "give at least 1");
    }
    check_gradient_options();
    expect_factor("weight_decay", method.weight_decay);
    expect_factor("lr", method.lr);
    for (const ParameterGroup& group : groups) {
      if (group.weight_decay) expect_factor("weight_decay of a group", *group.weight_decay);
      if (group.lr) expect_factor("lr", *group.lr);
    }
    std::set<const VariableData*> seen;
    for (const ParameterGroup& group : groups) {
      for (const Variable& parameter : group.parameters) {
        require_valid(parameter, call_.function, call_.where);
        if (!seen.insert(parameter.data().get()).second)
          throw Error(call_.function, call_.where, "\"" + parameter.name() + "\" is given twice",
                      "put it in one group");
        expect_not_updated(parameter);
      }
    }
    if (seen.empty()) {
      throw Error(call_.function, call_.where, "there are no parameters, so it would do nothing",
                  "pass the Variables that it updates");
    }
  }

  void expect_not_updated(const Variable& parameter) const {
    const auto known = graph_.variable_index.find(parameter.data().get());
    if (known == graph_.variable_index.end()) return;
    const VariableUse& use = graph_.variables[at(known->second)];
    if (!use.committed) return;
    throw Error(call_.function, call_.where,
                "\"" + parameter.name() + "\" is already updated by the optimizer at " + to_string(use.committed_where),
                "update it in one place: give one optimizer the sum of the losses, or each its own parameters");
  }

  void run(const std::vector<Value>& gradients, const std::vector<Variable>& parameters) const {
    if (gradients.size() != parameters.size()) {
      throw Error(
          call_.function, call_.where,
          std::to_string(gradients.size()) + " gradients for " + std::to_string(parameters.size()) + " parameters",
          "pass one gradient for each parameter, in the order of the parameters");
    }
    if (options_.loss_scale && !options_.loss_scale->variable.valid()) {
      throw Error(call_.function, call_.where,
                  "a loss_scale of which the gradients know nothing: they were computed before it exists",
                  "make a Variable of the scale, multiply the loss by it, and name it in LossScale::variable");
    }
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      const TensorType& wanted = parameters[i].type();
      const TensorType given = graph_.type(graph_.visible(gradients[i], call_.function, call_.where));
      const TensorType wide{is_half(wanted.dtype) ? f32 : wanted.dtype, wanted.shape};
      if (given == wanted || given == wide) continue;
      throw Error(call_.function, call_.where,
                  "the gradient of \"" + parameters[i].name() + "\", which is " + to_string(wanted) + ", is " +
                      to_string(given),
                  "pass gradients of the types of their parameters; those of 16-bit parameters may be f32");
    }
  }

 private:
  // Such a loop is built several times over, and only some of these loops would share the optimizer's state.
  void refuse_recomputed_loops() const {
    for (int region = graph_.current_region; region > 0; region = graph_.regions[at(region)].parent) {
      if (!graph_.regions[at(region)].is_of_segments) continue;
      throw Error(call_.function, call_.where,
                  "updates parameters in " + graph_.describe_body(region) + ", which recomputes its iterations",
                  "leave out the option recompute: no gradient passes through an update");
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
      throw Error(call_.function, call_.where,
                  "loss_scale.variable is " + to_string(scale.variable.type()) + ", not f32[]",
                  "make it of Tensor::scalar(65536.0f)");
    }
    if (scale.variable.valid() && scale.variable.placement().device > 0) {
      throw Error(call_.function, call_.where, "loss_scale.variable has the placement of a further device",
                  "make it without a placement: it is updated on the target");
    }
  }

  void expect(bool fits, const std::string& option, double value, const std::string& range) const {
    expect_option(fits, call_, option, value, range);
  }
  void expect_factor(const std::string& option, const Arg& factor) const {
    const double* number = as_number(factor);
    if (number == nullptr) return expect_one_float(option, factor);
    expect(*number >= 0 && std::isfinite(static_cast<float>(*number)), option, *number, "a finite f32 of at least 0");
  }
  void expect_one_float(const std::string& option, const Arg& value_or_variable) const {
    graphsink::expect_one_float(call_, option, value_or_variable);
  }

  const OptimizerCall& call_;
  const GraphData& graph_;
  const GradientOptions& options_;
};

}  // namespace

void expect_option(bool fits, const OptimizerCall& call, const std::string& option, double value,
                   const std::string& range) {
  if (!fits) throw Error(call.function, call.where, option + " is " + number_text(value), "give " + range);
}

void expect_one_float(const OptimizerCall& call, const std::string& option, const Arg& value_or_variable) {
  const auto* variable = std::get_if<Variable>(&value_or_variable.content());
  const auto* value = std::get_if<Value>(&value_or_variable.content());
  if (value && !value->valid()) return;  // emit() refuses it
  const Where& where = value_or_variable.where();
  const TensorType type = variable ? variable->type(where) : value->type(where);
  if ((type.dtype == DType::f32 || type.dtype == DType::f64) && is_single(type)) return;
  throw Error(call.function, call.where, option + " is " + to_string(type) + ", not one f32 or f64",
              "pass a number or a scalar Value");
}

void check_optimizer(const OptimizerCall& call, const GraphData& graph, const std::vector<ParameterGroup>& groups,
                     const Method& method, const GradientOptions& options) {
  Check(call, graph, options).run(groups, method);
}

void check_gradients(const OptimizerCall& call, const GraphData& graph, const std::vector<Variable>& parameters,
                     const std::vector<Value>& gradients, const GradientOptions& options) {
  Check(call, graph, options).run(gradients, parameters);
}

}  // namespace graphsink
