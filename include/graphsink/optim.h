// Optimizers: functions that add gradients, update and commit of the parameters to a graph. One fused op updates all
// parameters of a group that live on one device.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "graphsink/graph.h"
#include "graphsink/version.h"

namespace GRAPHSINK_PUBLIC graphsink {

// Parameters that share options. An option that is not set is that of the optimizer. A parameter that is in no group is
// not updated, and its gradient is not computed: this is how to freeze one.
struct ParameterGroup {
  std::vector<Variable> parameters;      // each in one group
  std::optional<Arg> lr = {};            // learning rate, see SgdOptions
  std::optional<Arg> weight_decay = {};  // as in the options of the optimizer
};

// Multiplies the loss by a scale so that small gradients do not vanish in 16 bits. If a gradient overflows, the update
// is skipped and the scale is reduced (Micikevicius et al. 2018, "Mixed precision training", section 3.2).
struct LossScale {
  double initial = 65536;  // the first scale, above 0
  double growth = 2;       // at least 1: the factor after `interval` updates without an overflow
  double backoff = 0.5;    // between 0 and 1: the factor after an overflow
  int interval = 2000;     // at least 1
  // f32 scalar: what holds the scale, for a loss that you multiply by it yourself, see apply(). It begins with its own
  // value, and `initial` has no effect. Without it the optimizer makes one.
  Variable variable = {};
};

// Treatment of the gradients before an update: clipping, averaging over steps, and the scale of the loss.
struct GradientOptions {
  // The largest norm of the gradients of all parameters together; larger ones are scaled down to it. 0 means no limit.
  // With an infinite limit the norm is computed (Optimizer::gradient_norm), and nothing is scaled. A Value may also be
  // negative, for no limit in this step. If it is not a number, or the norm is none, because a gradient is none, no
  // parameter is a number after the update; a loss scale skips the update then. The norm, and the factor by which this,
  // `accumulate` and a loss scale multiply gradients, are f32, also for parameters of f64: a norm that f32 does not
  // hold is infinite, and the update then nothing.
  Arg clip_norm = 0;
  // The number of steps whose gradients are averaged for one update; at least 1.
  int accumulate = 1;
  std::optional<LossScale> loss_scale = {};  // none: the loss is not scaled
  // Returns the norm of all gradients, where those given are a part of them, as on one of several ranks: from the norm
  // of the part, which is one f32, a Value of the same type. It is called where the graph is built, if the norm is
  // needed for clipping or a loss scale. Each of the ranks must return the same, or they decide differently. Parameters
  // made by divided_variable() (ranks.h) do not need it: the norm given is already that of all their parts.
  std::function<Value(const Value& norm)> norm_of_all = {};
};

// The learning rate is an Arg. A number, finite and at least 0, becomes a Variable with one element, which is returned
// in Optimizer::lr and which the host may write between runs; it is f64 if one of its parameters is, else f32. A Value,
// such as a schedule made from Graph::step(), is computed in every step.
//
// weight_decay and clip_norm are Args, too. A number, finite and at least 0, is a constant of the program. A Value of
// one f32 or f64 is read in every step, as it is: nothing checks that it is at least 0. So the host may change it:
//
//   Variable decay("decay", Tensor::scalar(0.1f));
//   adamw(loss, {w}, {.weight_decay = decay});
//   ...
//   decay.write(Tensor::scalar(0.05f));  // between two runs
struct SgdOptions {
  Arg lr = 1e-2;                   // learning rate
  double momentum = 0;             // at least 0 and below 1
  bool nesterov = false;           // requires a momentum
  Arg weight_decay = 0;            // this times the parameter is added to the gradient
  GradientOptions gradients = {};  // by default they are used as they are
};
// Options of adamw(). For lr, weight_decay and clip_norm see SgdOptions.
struct AdamwOptions {
  Arg lr = 1e-3;                   // learning rate
  double beta1 = 0.9;              // at least 0 and below 1
  double beta2 = 0.999;            // likewise
  double eps = 1e-8;               // added to the root of the second moment, by which an update is divided
  Arg weight_decay = 0.01;         // lr times this times the parameter is subtracted from the parameter
  GradientOptions gradients = {};  // by default they are used as they are
};

// A learning rate that rises linearly to `peak` in `warmup` steps, then falls along half a cosine to `final` times
// `peak` at step `steps`, and stays there (Loshchilov & Hutter 2017, "SGDR", without restarts). With steps = 0 it stays
// at its peak. Any other number of steps must be above `warmup`.
struct CosineSchedule {
  double peak = 1e-3;       // highest rate
  std::int64_t warmup = 0;  // steps of the rise, of which the first has peak / warmup; 0: it begins at the peak
  std::int64_t steps = 0;   // number of the step at which the fall ends; 0: it does not fall
  double final = 0.1;       // share of the peak that is left then
  DType dtype = f32;        // dtype of the rate: f64 for parameters of f64
};
// Returns the learning rate of the step as a scalar, computed from Graph::step() by ordinary nodes. Throws Error for a
// schedule that ends before its warm-up, and for numbers that are negative or not finite.
Value cosine_schedule(const Graph& graph, const CosineSchedule& schedule, Where where = Where::current());

// A learning rate that rises and ends like that of a CosineSchedule, and falls linearly from `peak` to `final` times
// `peak` in between.
struct LinearSchedule {
  double peak = 1e-3;       // highest rate
  std::int64_t warmup = 0;  // steps of the rise, of which the first has peak / warmup; 0: it begins at the peak
  std::int64_t steps = 0;   // number of the step at which the fall ends; 0: it does not fall
  double final = 0;         // share of the peak that is left then
  DType dtype = f32;        // f32 or f64
};
// The same as cosine_schedule() otherwise.
Value linear_schedule(const Graph& graph, const LinearSchedule& schedule, Where where = Where::current());

// A learning rate that begins with `peak` and is multiplied by `factor` at some steps: either at every `interval`-th
// one, or at those of `at`.
struct StepSchedule {
  double peak = 1e-3;                 // rate at step 0
  double factor = 0.1;                // above 0
  std::int64_t interval = 0;          // above 0, unless `at` says where
  std::vector<std::int64_t> at = {};  // steps above 0, each after the one before
  DType dtype = f32;                  // f32 or f64
};
// Returns the learning rate of the step as a scalar, computed from Graph::step() by ordinary nodes. Throws Error unless
// exactly one of `interval` and `at` is given, for steps that are not in order, and for numbers that are not finite.
Value step_schedule(const Graph& graph, const StepSchedule& schedule, Where where = Where::current());

// Form of the rise and of the fall of a OneCycleSchedule: half a cosine, or a line.
enum class Annealing : std::uint8_t { cosine, linear };
// A learning rate that rises from `initial` times `peak` at step 0 to `peak` at step `warmup`, falls to `final` times
// `peak` at step `steps`, and stays there (Smith & Topin 2018, "Super-Convergence"). Both ways are half a cosine or a
// line. The momentum does not change.
struct OneCycleSchedule {
  double peak = 1e-3;                       // highest rate
  std::int64_t warmup = 0;                  // at least 1, for instance 30 % of the steps
  std::int64_t steps = 0;                   // above `warmup`
  double initial = 0.04;                    // at least 0
  double final = 4e-6;                      // at least 0
  Annealing annealing = Annealing::cosine;  // form of both ways
  DType dtype = f32;                        // f32 or f64
};
// Returns the learning rate of the step as a scalar, computed from Graph::step() by ordinary nodes. Throws Error for
// steps that are not in order, and for numbers that are negative or not finite.
Value one_cycle_schedule(const Graph& graph, const OneCycleSchedule& schedule, Where where = Where::current());

// Result of sgd(), adamw() and apply(): the Variables that they made, and values of the step.
struct Optimizer {
  Variable lr;                     // not valid() if the learning rate was a Value
  std::vector<Variable> group_lr;  // learning rate of each group; not valid() if it is the optimizer's or was a Value
  // The optimizer's state, as far as the options need it: "<optimizer>.loss_scale" (or LossScale::variable),
  // "<optimizer>.micro_step" (in a body), "<parameter>.gradient" (sums over accumulated steps), "<optimizer>.updates"
  // and "<optimizer>.since_change"; then for each parameter, in order, "<parameter>.adamw.m" and "<parameter>.adamw.v",
  // or "<parameter>.sgd.velocity". 16-bit parameters come after the others and also have "<parameter>.adamw.master" or
  // "<parameter>.sgd.master", their value in f32. State named after a parameter lives where that does.
  std::vector<Variable> state;
  // f32 scalar: the norm before clipping; valid with clip_norm or loss_scale. It has no gradient, because
  // what an optimizer computes is not differentiated.
  Value gradient_norm;
  Value loss_scale;  // f32 scalar: the scale in this step; valid with loss_scale

  // All of these Variables: what a checkpoint needs besides the parameters.
  std::vector<Variable> variables() const;
};

// sgd() and adamw() update all parameters of a group in one op, and 16-bit ones in a second op. Read a parameter before
// this call: reading it afterwards in the same graph throws Error, and Graph::updated() gives its new value. Parameters
// of f16 and bf16 have a master copy in f32, which begins with the value that the parameter has when the function is
// called. The copy is updated, and the parameter is rounded from it. If you overwrite the parameter, also overwrite the
// master copy, or the next update discards your write. Updates are numbered like committed steps; with accumulation or
// loss scaling they are counted separately.
//
// In a body of if_, switch_, while_ or scan, the update takes place where the body runs, in every iteration of a loop,
// and with its own number of the update: a critic that is trained several times a step, or a step that stops early. The
// gradient is that for the parameters' values in the body. New values are assigned, as by assign(): what follows in the
// body, the next iteration and what comes behind the loop or branch see them, and the step stores them when it commits.
// The update is not in place then: it takes memory for new values of the parameters and of the state, and a branch
// copies the old ones where it does not update. In the body of a loop, sgd() is called whenever the body is built, and
// makes its Variables only the first time; use what the last call returned. Optimizer::gradient_norm and loss_scale
// have no value outside of the body. A parameter may be updated once in each body. No gradient passes through an
// update: give a later loss stop_gradient() of parameters that were updated. Loops with the option recompute cannot
// have an optimizer.
//
// Both functions throw Error without parameters, for a parameter that is given twice or was already assigned, for an
// option that is negative, not a number or out of its range, and where grad() does.

// parameter -= lr * (gradient + weight_decay * parameter), or with momentum
// velocity = momentum * velocity + gradient + weight_decay * parameter; parameter -= lr * velocity.
Optimizer sgd(const Value& loss, const std::vector<Variable>& parameters, SgdOptions options = {},
              Where where = Where::current());
// The same with options for each group.
Optimizer sgd(const Value& loss, const std::vector<ParameterGroup>& groups, SgdOptions options = {},
              Where where = Where::current());

// AdamW (Loshchilov & Hutter 2019, "Decoupled weight decay regularization", algorithm 2). The bias correction uses the
// number of the update.
Optimizer adamw(const Value& loss, const std::vector<Variable>& parameters, AdamwOptions options = {},
                Where where = Where::current());
// The same with options for each group.
Optimizer adamw(const Value& loss, const std::vector<ParameterGroup>& groups, AdamwOptions options = {},
                Where where = Where::current());

// The same updates with gradients that you computed or changed yourself: clipped one by one, reduced over ranks, of
// another method than grad(). There is one gradient for each parameter, in the order of the parameters and groups, of
// the parameter's type; those of 16-bit parameters may also be f32. sgd(loss, parameters, options) does the same as
// apply(options, parameters, grad(loss, parameters)), with the same bits.
//
// With GradientOptions::accumulate, what is averaged is what you pass in each step. With a loss scale, pass the
// gradients of the scaled loss, by which they are divided before the norm is computed:
//
//   Variable scale("scale", Tensor::scalar(65536.0f));
//   std::vector<Value> gradients = grad(loss * scale, {w});  // in 16 bits
//   ... what you do to them must keep them infinite if they are, so that the update is skipped
//   apply(SgdOptions{.gradients = {.loss_scale = LossScale{.variable = scale}}}, {w}, gradients);
//
// Throws Error where sgd() does, for gradients of another number or type than the parameters, and for a loss scale
// without LossScale::variable, which gradients that exist already cannot have in them.
Optimizer apply(const SgdOptions& options, const std::vector<Variable>& parameters, const std::vector<Value>& gradients,
                Where where = Where::current());
// The same with options for each group.
Optimizer apply(const SgdOptions& options, const std::vector<ParameterGroup>& groups,
                const std::vector<Value>& gradients, Where where = Where::current());
// The same with the update of adamw().
Optimizer apply(const AdamwOptions& options, const std::vector<Variable>& parameters,
                const std::vector<Value>& gradients, Where where = Where::current());
// The same with the update of adamw() and options for each group.
Optimizer apply(const AdamwOptions& options, const std::vector<ParameterGroup>& groups,
                const std::vector<Value>& gradients, Where where = Where::current());

// Averages of parameters over the steps, which often do better in tests than the parameters themselves (Polyak &
// Juditsky 1992). Call it after the optimizer: each step does average = decay * average + (1 - decay) * parameter with
// the parameter as the step leaves it, Graph::updated(). Returns one Variable for each parameter, "<parameter>.ema", of
// the parameter's type, but f32 for 16-bit ones; it begins with the value that the parameter has when the function is
// called. It belongs in a checkpoint like other Variables. The memory that Graph::updated() takes is added.
//
// `decay` is a number from 0 to below 1 in the dtype of every average, or a Value of one f32 or f64, which nothing
// checks: minimum(0.999, (step + 1) / (step + 10)) follows the parameters closely at first. The averages advance in
// every step, also in one whose update is skipped or accumulated.
//
// Throws Error for a parameter that no optimizer has updated so far, or that is given twice, and for such a decay.
std::vector<Variable> exponential_average(const Graph& graph, const std::vector<Variable>& parameters,
                                          Arg decay = 0.999, Where where = Where::current());

}  // namespace graphsink
