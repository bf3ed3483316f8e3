// Optimizers: graph builders that end in one fused op over all parameters, which is also their commit.
#pragma once

#include <vector>

#include "graphsink/graph.h"

namespace graphsink {

// Options are Args: a number becomes a one-element Variable (returned) that the host may write between runs, a Value
// (a schedule, made from Graph::step()) is computed in every step.
struct SgdOptions {
  Arg lr = 1e-2;
};
struct AdamwOptions {
  Arg lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0.01;
};

struct Optimizer {
  Variable lr;                  // invalid if the learning rate was a Value
  std::vector<Variable> state;  // first and second moments, named "<parameter>.adamw.m" and ".v"
};

// parameter -= lr * gradient, for all parameters in one op. Reading a parameter after this call in the same graph is an
// Error: read it before.
Optimizer sgd(const Value& loss, const std::vector<Variable>& parameters, SgdOptions options = {},
              Where where = Where::current());

// AdamW (Loshchilov & Hutter 2019, "Decoupled weight decay regularization", algorithm 2), bias correction by the number
// of committed steps.
Optimizer adamw(const Value& loss, const std::vector<Variable>& parameters, AdamwOptions options = {},
                Where where = Where::current());

}  // namespace graphsink
