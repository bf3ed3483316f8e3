#include <algorithm>
#include <set>
#include <utility>

#include "build/optimizer_checks.h"
#include "graphsink/ops.h"
#include "graphsink/optim.h"
#include "ir/graph_data.h"

namespace graphsink {
namespace {

constexpr const char* kAverage = "exponential_average";

DType dtype_of_average(const Variable& parameter) {
  const DType dtype = parameter.type().dtype;
  return is_half(dtype) ? f32 : dtype;
}

// Whether the weight of the average is below 1 in the dtype that it is computed in.
bool is_below_1(double decay, const Variable& parameter) {
  return dtype_of_average(parameter) == f64 ? decay < 1 : static_cast<float>(decay) < 1;
}

void check_average(const std::vector<Variable>& parameters, const Arg& decay, const Where& where) {
  std::set<const VariableData*> seen;
  for (const Variable& parameter : parameters) {
    require_valid(parameter, kAverage, where);
    if (!is_float(parameter.type().dtype))
      throw Error(kAverage, where, "\"" + parameter.name() + "\" is " + to_string(parameter.type()), "average floats");
    if (!seen.insert(parameter.data().get()).second)
      throw Error(kAverage, where, "\"" + parameter.name() + "\" is given twice", "give each parameter once");
  }
  const OptimizerCall call{kAverage, where};
  if (const double* number = as_number(decay)) {
    const bool fits = std::all_of(parameters.begin(), parameters.end(),
                                  [&](const Variable& parameter) { return is_below_1(*number, parameter); });
    expect_option(*number >= 0 && *number < 1 && fits, call, "decay", *number,
                  "a number from 0 to below 1, in the dtype of the averages");
  } else {
    expect_one_float(call, "decay", decay);
  }
}

// The weights of the average so far and of the parameter.
std::pair<Arg, Arg> weights_of(const Arg& decay, DType dtype, const Where& where) {
  if (const double* number = as_number(decay)) return {Arg(*number, where), Arg(1 - *number, where)};
  const Value factor = cast(decay, dtype);
  return {Arg(factor, where), Arg(Arg(1.0, where) - Arg(factor, where), where)};
}

}  // namespace

std::vector<Variable> exponential_average(const Graph& graph, const std::vector<Variable>& parameters, Arg decay,
                                          Where where) {
  check_average(parameters, decay, where);
  Graph g(graph);
  std::vector<Value> updated;  // all are checked before anything is added
  for (const Variable& parameter : parameters) updated.push_back(g.updated(parameter, where));
  auto arg = [&](const Value& value) { return Arg(value, where); };
  std::vector<Variable> averages;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const DType dtype = dtype_of_average(parameters[i]);
    const Variable& average =
        averages.emplace_back(g.data()->make_beside(parameters[i], ".ema", parameters[i].read().to(dtype), where));
    const auto [kept, taken] = weights_of(decay, dtype, where);
    const Value parameter = dtype == parameters[i].type().dtype ? updated[i] : cast(arg(updated[i]), dtype);
    assign(average, arg(arg(arg(g.value(average, where)) * kept) + arg(arg(parameter) * taken)));
  }
  return averages;
}

}  // namespace graphsink
