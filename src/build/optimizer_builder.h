// Builds the nodes of an optimizer.
#pragma once

#include <functional>
#include <vector>

#include "graphsink/op.h"
#include "graphsink/optim.h"

namespace graphsink {

// The same update twice: written in place by the commit, and as values.
struct UpdateOps {
  const OpDef* commit;
  const OpDef* values;
};

// Parts in which the optimizers differ.
struct Method {
  const char* name;  // name of the optimizer, a string literal
  const char* call;  // the function that the user calls, a string literal
  UpdateOps ops{};
  UpdateOps ops_16{};  // ops for 16-bit parameters
  std::vector<const char*> states{};
  std::function<Attrs(double weight_decay)> attrs;
  Arg lr;
  Arg weight_decay;
};

// With the gradients of the loss, times the loss scale if there is one.
Optimizer build_optimizer(const Value& loss, const std::vector<ParameterGroup>& groups, const Method& method,
                          const GradientOptions& options, const Where& where);
// With gradients of the user's, at least one.
Optimizer build_optimizer(const std::vector<Value>& gradients, const std::vector<ParameterGroup>& groups,
                          const Method& method, const GradientOptions& options, const Where& where);

}  // namespace graphsink
