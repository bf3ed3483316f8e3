#include "graphsink/optim.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

#include "build/optimizer_builder.h"
#include "build/optimizer_checks.h"
#include "kernels/optim/optimizer_ops.h"

namespace graphsink {
namespace {

Method method_of(const SgdOptions& options, const OptimizerCall& call) {
  bool is_plain = options.momentum == 0;
  expect_option(options.momentum >= 0 && options.momentum < 1, call, "momentum", options.momentum,
                "a number from 0 to below 1");
  expect_option(!options.nesterov || !is_plain, call, "nesterov is given, and momentum", options.momentum,
                "a momentum above 0, or leave nesterov out");
  auto attrs = [momentum = options.momentum, nesterov = options.nesterov](double decay) {
    return SgdAttrs{momentum, decay, nesterov};
  };
  Method method{
      .name = "sgd", .call = call.function, .attrs = attrs, .lr = options.lr, .weight_decay = options.weight_decay};
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

Method method_of(const AdamwOptions& options, const OptimizerCall& call) {
  for (auto [name, beta] : {std::pair{"beta1", options.beta1}, {"beta2", options.beta2}})
    expect_option(beta >= 0 && static_cast<float>(beta) < 1, call, name, beta, "a number from 0 to below 1, as f32");
  expect_option(options.eps >= 0 && std::isfinite(options.eps), call, "eps", options.eps,
                "a finite number of at least 0");
  auto attrs = [beta1 = options.beta1, beta2 = options.beta2, eps = options.eps](double decay) {
    return AdamwAttrs{beta1, beta2, eps, decay};
  };
  return {.name = "adamw",
          .call = call.function,
          .ops = {&adamw_op, &updated_adamw_op},
          .ops_16 = {&adamw_16_op, &updated_adamw_16_op},
          .states = {"m", "v"},
          .attrs = attrs,
          .lr = options.lr,
          .weight_decay = options.weight_decay};
}

template <class Options>
Optimizer minimize(const Value& loss, const std::vector<ParameterGroup>& groups, const Options& options,
                   const OptimizerCall& call) {
  const Method method = method_of(options, call);
  if (!loss.valid()) throw Error(call.function, call.where, "the loss is not a Value", "pass the result of an op");
  if (loss.eager()) throw Error(call.function, call.where, "the loss is a Value of an Eager", "build a Graph");
  return build_optimizer(loss, groups, method, options.gradients, call.where);
}

template <class Options>
Optimizer apply_gradients(const Options& options, const std::vector<ParameterGroup>& groups,
                          const std::vector<Value>& gradients, const Where& where) {
  const OptimizerCall call{"apply", where};
  const Method method = method_of(options, call);
  if (gradients.empty()) throw Error(call.function, where, "no gradients", "pass one for each parameter");
  const Value& first = gradients.front();
  if (!first.valid())
    throw Error(call.function, where, "the first gradient is not a Value", "pass the result of an op");
  if (first.eager()) throw Error(call.function, where, "the gradients are Values of an Eager", "build a Graph");
  return build_optimizer(gradients, groups, method, options.gradients, where);
}

}  // namespace

std::vector<Variable> Optimizer::variables() const {
  std::vector<Variable> all = state;
  if (lr.valid()) all.push_back(lr);
  std::copy_if(group_lr.begin(), group_lr.end(), std::back_inserter(all), [](const Variable& v) { return v.valid(); });
  return all;
}

Optimizer sgd(const Value& loss, const std::vector<Variable>& parameters, SgdOptions options, Where where) {
  return minimize(loss, std::vector<ParameterGroup>{{parameters}}, options, {"sgd", where});
}
Optimizer sgd(const Value& loss, const std::vector<ParameterGroup>& groups, SgdOptions options, Where where) {
  return minimize(loss, groups, options, {"sgd", where});
}

Optimizer adamw(const Value& loss, const std::vector<Variable>& parameters, AdamwOptions options, Where where) {
  return minimize(loss, std::vector<ParameterGroup>{{parameters}}, options, {"adamw", where});
}
Optimizer adamw(const Value& loss, const std::vector<ParameterGroup>& groups, AdamwOptions options, Where where) {
  return minimize(loss, groups, options, {"adamw", where});
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
