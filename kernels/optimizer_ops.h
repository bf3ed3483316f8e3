// The optimizers as ops. They write Variables, hence are part of the commit, and have no outputs.
#pragma once

#include "graphsink/op.h"

namespace graphsink {

struct AdamwAttrs {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0.01;
};

// Inputs: learning rate (one float), then (parameter, gradient) pairs. No attributes.
extern const OpDef sgd_op;
// Inputs: learning rate (one float), then (parameter, gradient, first moment, second moment) for each parameter.
// Attributes: AdamwAttrs.
extern const OpDef adamw_op;

}  // namespace graphsink
