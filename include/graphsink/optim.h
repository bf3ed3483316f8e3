// Optimizers: graph builders that end in one fused op over all parameters, which is also their commit.
#pragma once

#include <optional>
#include <vector>

#include "graphsink/graph.h"

namespace graphsink {

// Parameters that share options; what is not given is the optimizer's. A parameter in no group stays as it is, and no
// gradient is computed for it alone: that is how to freeze one.
struct ParameterGroup {
  std::vector<Variable> parameters;
  std::optional<Arg> lr = {};
  std::optional<double> weight_decay = {};
};

// The loss is multiplied by a scale so that small gradients do not vanish in 16 bits; an update with an overflow is
// skipped and the scale reduced (Micikevicius et al. 2018, "Mixed precision training", section 3.2).
struct LossScale {
  double initial = 65536;  // above 0
  double growth = 2;       // at least 1; after `interval` updates without an overflow
  double backoff = 0.5;    // between 0 and 1; after one with
  int interval = 2000;     // at least 1
};

// What happens to the gradients before an update.
struct GradientOptions {
  // Gradients are scaled down so that their norm, of all parameters together, is at most this; 0: never; infinite: the
  // norm is computed, nothing is scaled.
  double clip_norm = 0;
  // An update is made in every so many steps, with the mean of their gradients.
  int accumulate = 1;
  std::optional<LossScale> loss_scale = {};
};

// Options are Args: a number, finite and at least 0, becomes a one-element Variable (returned; f64 if a parameter that
// it is for is, else f32) that the host may write between runs, a Value (a schedule, made from Graph::step()) is
// computed in every step.
struct SgdOptions {
  Arg lr = 1e-2;
  double momentum = 0;      // below 1
  bool nesterov = false;    // needs momentum
  double weight_decay = 0;  // times the parameter, added to the gradient
  GradientOptions gradients = {};
};
struct AdamwOptions {
  Arg lr = 1e-3;
  double beta1 = 0.9;  // both below 1
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0.01;
  GradientOptions gradients = {};
};

// A learning rate that rises linearly to `peak` in `warmup` steps, then falls to `final` of it at step `steps` as half
// a cosine, and stays (Loshchilov & Hutter 2017, "SGDR", without restarts). With steps = 0 it stays at its peak; other
// numbers of steps are above `warmup`.
struct CosineSchedule {
  double peak = 1e-3;
  std::int64_t warmup = 0;
  std::int64_t steps = 0;
  double final = 0.1;
  DType dtype = f32;  // of the rate: f64 for parameters of f64
};
// A scalar of Graph::step(): ordinary nodes. Throws Error for a schedule that ends before its warm-up, and for numbers
// that are negative or not finite.
Value cosine_schedule(const Graph& graph, const CosineSchedule& schedule, Where where = Where::current());

struct Optimizer {
  Variable lr;                     // refers to nothing if the learning rate was a Value (a schedule)
  std::vector<Variable> group_lr;  // of each group; refers to nothing where it is the optimizer's or was a Value
  // Each where it is needed: "<optimizer>.loss_scale", the sums over micro-steps "<parameter>.gradient",
  // "<optimizer>.updates" and ".since_change"; then for each parameter in order "<parameter>.adamw.m" and ".v", or
  // "<parameter>.sgd.velocity"; of a 16-bit parameter also ".adamw.master" or ".sgd.master", its value in f32, in a
  // group after those of the other parameters.
  std::vector<Variable> state;
  Value gradient_norm;  // f32 scalar, before clipping; valid with clip_norm or loss_scale
  Value loss_scale;     // f32 scalar, of this step; valid with loss_scale

  // All of them: what a checkpoint needs besides the parameters.
  std::vector<Variable> variables() const;
};

// Updates all parameters in one op for each group, 16-bit ones in another. Reading a parameter after this call in the
// same graph is an Error: read it before. Those of f16 and bf16 are updated in a master copy in f32, which begins as
// what the parameter holds when this is called, and are rounded from it: a host that writes the parameter later writes
// the copy too. The number of an update is that of committed steps, or of updates where accumulation or loss scaling
// make them differ. Throw Error for a parameter given twice or assigned already, for an option that is negative, not a
// number or out of its range, and as grad() does.

// parameter -= lr * (gradient + weight_decay * parameter), or with momentum
// velocity = momentum * velocity + gradient + weight_decay * parameter; parameter -= lr * velocity.
Optimizer sgd(const Value& loss, const std::vector<Variable>& parameters, SgdOptions options = {},
              Where where = Where::current());
Optimizer sgd(const Value& loss, const std::vector<ParameterGroup>& groups, SgdOptions options = {},
              Where where = Where::current());

// AdamW (Loshchilov & Hutter 2019, "Decoupled weight decay regularization", algorithm 2), bias correction by the number
// of the update.
Optimizer adamw(const Value& loss, const std::vector<Variable>& parameters, AdamwOptions options = {},
                Where where = Where::current());
Optimizer adamw(const Value& loss, const std::vector<ParameterGroup>& groups, AdamwOptions options = {},
                Where where = Where::current());

}  // namespace graphsink
