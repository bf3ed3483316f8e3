#include "graphsink/optim.h"

#include "graphsink/grad.h"
#include "graphsink/op.h"
#include "ir/graph_data.h"
#include "kernels/optimizer_ops.h"

namespace graphsink {
namespace {

// A number becomes a Variable of the host's; a Value stays what it is.
Value learning_rate(const Value& loss, const Arg& lr, const char* name, Optimizer& optimizer) {
  if (const auto* value = std::get_if<Value>(&lr.content())) return *value;
  if (const auto* variable = std::get_if<Variable>(&lr.content())) {
    optimizer.lr = *variable;
  } else {
    optimizer.lr = Variable(name, Tensor::full(DType::f32, {}, std::get<double>(lr.content())));
  }
  return Graph(loss.graph()).value(optimizer.lr, lr.where());
}

// The parameter as an operand that the optimizer writes.
Value writable(const Value& loss, const Variable& parameter, const char* name, const Where& where) {
  const VariableUse& use = loss.graph()->use(parameter, where);
  if (use.assigned.node >= 0) {
    throw Error(name, where, "\"" + parameter.name() + "\" was already assigned at " + to_string(use.assigned_where),
                "update it in one place");
  }
  return Graph(loss.graph()).value(parameter, where);
}

std::vector<Value> gradients(const Value& loss, const std::vector<Variable>& parameters, const Where& where) {
  std::vector<Arg> wrt;
  for (const Variable& parameter : parameters) wrt.emplace_back(parameter, where);
  return grad(Arg(loss, where), wrt);
}

}  // namespace

Optimizer sgd(const Value& loss, const std::vector<Variable>& parameters, SgdOptions options, Where where) {
  std::vector<Value> grads = gradients(loss, parameters, where);
  Optimizer optimizer;
  std::vector<Arg> inputs{Arg(learning_rate(loss, options.lr, "sgd.lr", optimizer), where)};
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    inputs.emplace_back(writable(loss, parameters[i], "sgd", where), where);
    inputs.emplace_back(grads[i], where);
  }
  emit(sgd_op, inputs);
  return optimizer;
}

Optimizer adamw(const Value& loss, const std::vector<Variable>& parameters, AdamwOptions options, Where where) {
  std::vector<Value> grads = gradients(loss, parameters, where);
  Optimizer optimizer;
  Graph graph(loss.graph());
  std::vector<Arg> inputs{Arg(learning_rate(loss, options.lr, "adamw.lr", optimizer), where)};
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const Variable& parameter = parameters[i];
    Variable m(parameter.name() + ".adamw.m", Tensor(parameter.type()));
    Variable v(parameter.name() + ".adamw.v", Tensor(parameter.type()));
    inputs.emplace_back(writable(loss, parameter, "adamw", where), where);
    inputs.emplace_back(grads[i], where);
    inputs.emplace_back(graph.value(m, where), where);
    inputs.emplace_back(graph.value(v, where), where);
    optimizer.state.insert(optimizer.state.end(), {m, v});
  }
  emit(adamw_op, inputs, AdamwAttrs{options.beta1, options.beta2, options.eps, options.weight_decay});
  return optimizer;
}

}  // namespace graphsink
