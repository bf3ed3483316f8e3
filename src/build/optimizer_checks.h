// Checks what the user gives to an optimizer. All functions throw Error.
#pragma once

#include <string>
#include <vector>

#include "build/optimizer_builder.h"
#include "ir/graph_data.h"

namespace graphsink {

// Function that the user calls, and where.
struct OptimizerCall {
  const char* function;
  Where where;
};

// The number, if the Arg is one.
inline const double* as_number(const Arg& arg) { return std::get_if<double>(&arg.content()); }

void expect_option(bool fits, const OptimizerCall& call, const std::string& option, double value,
                   const std::string& range);
// For an Arg that is no number.
void expect_one_float(const OptimizerCall& call, const std::string& option, const Arg& value_or_variable);
void check_optimizer(const OptimizerCall& call, const GraphData& graph, const std::vector<ParameterGroup>& groups,
                     const Method& method, const GradientOptions& options);
// Gradients of the user's.
void check_gradients(const OptimizerCall& call, const GraphData& graph, const std::vector<Variable>& parameters,
                     const std::vector<Value>& gradients, const GradientOptions& options);

}  // namespace graphsink
