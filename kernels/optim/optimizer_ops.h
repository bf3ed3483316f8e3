// The optimizers as ops. They write Variables, hence are part of the commit, and have no outputs.
#pragma once

#include "graphsink/op.h"

namespace graphsink {

// Operands that every optimizer reads, in front of its tensors.
enum UpdateOperand : int {
  kUpdates,        // i32: updates before this one
  kApply,          // boolean: nothing happens where it is false
  kGradientScale,  // f32: every gradient is multiplied by it
  kLearningRate,   // a float
  kFirstTensor,    // then the tensors of each parameter; then the weight decay, a float, if it is not an attribute
};

// Throws Error unless operand i is one element of this dtype.
inline void expect_one(const InferArgs& a, int i, DType dtype) {
  if (a.in(i).dtype == dtype && a.in(i).shape.size() == 1) return;
  a.fail("operand " + std::to_string(i) + " is not one " + std::string(to_string(dtype)),
         "pass a scalar of that dtype");
}

struct SgdAttrs {
  double momentum = 0;
  double weight_decay = 0;
  bool nesterov = false;
  static auto fields(auto& s) {
    return std::tie("momentum", s.momentum, "weight_decay", s.weight_decay, "nesterov", s.nesterov);
  }
};
struct AdamwAttrs {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0.01;
  static auto fields(auto& s) {
    return std::tie("beta1", s.beta1, "beta2", s.beta2, "eps", s.eps, "weight_decay", s.weight_decay);
  }
};

// For each parameter: itself, its gradient, and (momentum) the velocity or (adamw) the first and second moment.
extern const OpDef sgd_op;       // SgdAttrs
extern const OpDef momentum_op;  // SgdAttrs
extern const OpDef adamw_op;     // AdamwAttrs
// The same of f16 and bf16 parameters, each with one tensor more at the end: its master copy in f32, which is updated
// and then rounded to the parameter. Gradients are of the parameter's dtype or f32.
extern const OpDef sgd_16_op, momentum_16_op, adamw_16_op;
// Ops that return the updated tensors instead of writing them. They have the same operands as the ops above, and an
// output for each tensor that these write.
extern const OpDef updated_sgd_op, updated_momentum_op, updated_adamw_op;
extern const OpDef updated_sgd_16_op, updated_momentum_16_op, updated_adamw_16_op;

// The norm of all gradients together, as one f32: the inputs are the gradients.
extern const OpDef gradient_norm_op;

// Sums over micro-steps. Inputs: the step (i32), then for each parameter its sum so far and its gradient; outputs: the
// new sums. The first of every `steps` steps begins anew.
struct AccumulateAttrs {
  int steps = 1;
  static auto fields(auto& s) { return std::tie("steps", s.steps); }
};
extern const OpDef accumulate_op;

// Decides on an update. Inputs: the step (i32), the gradient norm and the loss scale (each one f32, or none), and the
// largest norm (one float) if it is not an attribute.
// Outputs: kApply, kGradientScale, the norm of the mean gradient (f32), and whether it overflowed (boolean).
struct ControlAttrs {
  int accumulate = 1;
  double clip_norm = 0;  // 0: none
  bool skips_overflow = false;
  static auto fields(auto& s) {
    return std::tie("accumulate", s.accumulate, "clip_norm", s.clip_norm, "skips_overflow", s.skips_overflow);
  }
};
extern const OpDef control_update_op;

// Counts an update. Inputs: kApply and whether it overflowed, then written: the updates so far (i32) and, with a loss
// scale, the scale (f32) and the updates since it changed (i32).
struct LossScaleAttrs {
  double growth = 2;
  double backoff = 0.5;
  int interval = 2000;
  static auto fields(auto& s) { return std::tie("growth", s.growth, "backoff", s.backoff, "interval", s.interval); }
};
extern const OpDef count_update_op;
// An op whose outputs are the values that count_update_op would write.
extern const OpDef updated_counts_op;

constexpr const char* kNoGradientOfUpdate = "what an optimizer computes is not differentiated";

}  // namespace graphsink
