// Optimizers and schedules. graphsink/_optim.py takes trees of parameters and options apart.
#include <nanobind/stl/function.h>

#include "bindings.h"
#include "optimizers.h"

namespace graphsink::python {

namespace {

// None, or what an option is given as.
std::optional<Arg> optional_arg(nb::handle object, const Where& where) {
  if (object.is_none()) return {};
  return Operand{object}.arg(where);
}

// None for what an optimizer does not have.
template <class T>
nb::object if_valid(const T& value) {
  return value.valid() ? nb::cast(value) : nb::none();
}

Value known(const Value& value, const char* name, const char* problem, const char* remedy) {
  if (!value.valid()) throw Error(name, here(), std::string("the optimizer ") + problem, remedy);
  return value;
}

void bind_optimizer(nb::module_& m) {
  nb::class_<LossScale>(m, "LossScale",
                        "Multiplies the loss by a scale so that small gradients do not vanish in 16 bits. If a "
                        "gradient overflows, the update is skipped and the scale is reduced.")
      .def(
          "__init__",
          [](LossScale* self, double initial, double growth, double backoff, int interval,
             const std::optional<Variable>& variable) {
            new (self) LossScale{.initial = initial, .growth = growth, .backoff = backoff, .interval = interval};
            if (variable) self->variable = *variable;
          },
          nb::kw_only(), nb::arg("initial") = LossScale{}.initial, nb::arg("growth") = LossScale{}.growth,
          nb::arg("backoff") = LossScale{}.backoff, nb::arg("interval") = LossScale{}.interval,
          nb::arg("variable") = nb::none())
      .def_ro("initial", &LossScale::initial)
      .def_ro("growth", &LossScale::growth)
      .def_ro("backoff", &LossScale::backoff)
      .def_ro("interval", &LossScale::interval);
  nb::class_<Optimizer>(m, "Optimizer", "What sgd() and adamw() have added to a graph.")
      .def_prop_ro(
          "lr", [](const Optimizer& self) { return if_valid(self.lr); }, nb::sig("def lr(self) -> Variable | None"),
          "The learning rate, which the host may write between runs; None if it was a Value.")
      .def_prop_ro(
          "group_lr",
          [](const Optimizer& self) {
            nb::list all;
            for (const Variable& lr : self.group_lr) all.append(if_valid(lr));
            return all;
          },
          nb::sig("def group_lr(self) -> list[Variable | None]"))
      .def_ro("state", &Optimizer::state, "The optimizer's Variables.")
      .def_prop_ro(
          "gradient_norm",
          [](const Optimizer& self) {
            return known(self.gradient_norm, "gradient_norm", "computes no norm of the gradients",
                         "give it clip_norm, which may be infinite to measure alone, or loss_scale");
          },
          "f32 scalar: the norm before clipping; with clip_norm or loss_scale. Without them Error.")
      .def_prop_ro(
          "loss_scale",
          [](const Optimizer& self) {
            return known(self.loss_scale, "loss_scale", "scales no loss", "give it a loss_scale");
          },
          "f32 scalar: the scale in this step; with loss_scale. Without it Error.")
      .def("variables", &Optimizer::variables,
           "All of these Variables: what a checkpoint needs besides the parameters.");
  m.def(
      "sgd_groups",
      [](const nb::object& loss, nb::handle gradients, nb::handle groups, nb::handle lr, double momentum, bool nesterov,
         nb::handle weight_decay, nb::handle clip_norm, int accumulate, const std::optional<LossScale>& loss_scale,
         const NormOfAll& norm_of_all) {
        const Where where = here();
        SgdOptions options{.lr = Operand{lr}.arg(where),
                           .momentum = momentum,
                           .nesterov = nesterov,
                           .weight_decay = Operand{weight_decay}.arg(where),
                           .gradients = gradient_options(clip_norm, accumulate, loss_scale, norm_of_all, where)};
        if (loss.is_none()) return apply(options, groups_of(groups, where), nb::cast<Values>(gradients), where);
        return sgd(value_of(Operand{loss}, where), groups_of(groups, where), options, where);
      },
      nb::arg("loss").none(), nb::arg("gradients").sig("list[typing.Any]"), nb::arg("groups").sig("list[typing.Any]"),
      nb::arg("lr"), nb::arg("momentum"), nb::arg("nesterov"), nb::arg("weight_decay"), nb::arg("clip_norm"),
      nb::arg("accumulate"), nb::arg("loss_scale").none(), nb::arg("norm_of_all").none());
  m.def(
      "adamw_groups",
      [](const nb::object& loss, nb::handle gradients, nb::handle groups, nb::handle lr, double beta1, double beta2,
         double eps, nb::handle weight_decay, nb::handle clip_norm, int accumulate,
         const std::optional<LossScale>& loss_scale, const NormOfAll& norm_of_all) {
        const Where where = here();
        AdamwOptions options{.lr = Operand{lr}.arg(where),
                             .beta1 = beta1,
                             .beta2 = beta2,
                             .eps = eps,
                             .weight_decay = Operand{weight_decay}.arg(where),
                             .gradients = gradient_options(clip_norm, accumulate, loss_scale, norm_of_all, where)};
        if (loss.is_none()) return apply(options, groups_of(groups, where), nb::cast<Values>(gradients), where);
        return adamw(value_of(Operand{loss}, where), groups_of(groups, where), options, where);
      },
      nb::arg("loss").none(), nb::arg("gradients").sig("list[typing.Any]"), nb::arg("groups").sig("list[typing.Any]"),
      nb::arg("lr"), nb::arg("beta1"), nb::arg("beta2"), nb::arg("eps"), nb::arg("weight_decay"), nb::arg("clip_norm"),
      nb::arg("accumulate"), nb::arg("loss_scale").none(), nb::arg("norm_of_all").none());
  m.def("exponential_average_values",
        [](const GraphHandle& graph, const std::vector<Variable>& parameters, const Operand& decay) {
          const Where where = here();
          return exponential_average(graph.graph, parameters, decay.arg(where), where);
        });
}

void bind_schedules(nb::module_& m) {
  m.def(
      "cosine_schedule",
      [](const GraphHandle& graph, double peak, std::int64_t warmup, std::int64_t steps, double final, DType dtype) {
        return cosine_schedule(graph.graph, {peak, warmup, steps, final, dtype}, here());
      },
      nb::arg("graph"), nb::kw_only(), nb::arg("peak") = 1e-3, nb::arg("warmup") = 0, nb::arg("steps") = 0,
      nb::arg("final") = 0.1, nb::arg("dtype") = f32,
      "A learning rate that rises linearly to `peak` in `warmup` steps, then falls along half a cosine to `final` "
      "times `peak` at step `steps`, and stays there.");
  m.def(
      "linear_schedule",
      [](const GraphHandle& graph, double peak, std::int64_t warmup, std::int64_t steps, double final, DType dtype) {
        return linear_schedule(graph.graph, {peak, warmup, steps, final, dtype}, here());
      },
      nb::arg("graph"), nb::kw_only(), nb::arg("peak") = 1e-3, nb::arg("warmup") = 0, nb::arg("steps") = 0,
      nb::arg("final") = 0.0, nb::arg("dtype") = f32,
      "A learning rate that rises linearly to `peak` and falls linearly to `final` times `peak`.");
  m.def(
      "step_schedule",
      [](const GraphHandle& graph, double peak, double factor, std::int64_t interval,
         const std::vector<std::int64_t>& at, DType dtype) {
        return step_schedule(graph.graph, {peak, factor, interval, at, dtype}, here());
      },
      nb::arg("graph"), nb::kw_only(), nb::arg("peak") = 1e-3, nb::arg("factor") = 0.1, nb::arg("interval") = 0,
      nb::arg("at") = std::vector<std::int64_t>{}, nb::arg("dtype") = f32,
      "A learning rate that is multiplied by `factor` at every `interval`-th step, or at those of `at`.");
  nb::enum_<Annealing>(m, "Annealing", "The curve along which one_cycle_schedule() rises and falls.")
      .value("cosine", Annealing::cosine)
      .value("linear", Annealing::linear);
  m.def(
      "one_cycle_schedule",
      [](const GraphHandle& graph, double peak, std::int64_t warmup, std::int64_t steps, double initial, double final,
         Annealing annealing, DType dtype) {
        return one_cycle_schedule(graph.graph, {peak, warmup, steps, initial, final, annealing, dtype}, here());
      },
      nb::arg("graph"), nb::kw_only(), nb::arg("peak") = 1e-3, nb::arg("warmup") = 0, nb::arg("steps") = 0,
      nb::arg("initial") = 0.04, nb::arg("final") = 4e-6, nb::arg("annealing").noconvert() = Annealing::cosine,
      nb::arg("dtype") = f32,
      "A learning rate that rises from `initial` times `peak` to `peak` at step `warmup`, and falls to `final` times "
      "`peak` at step `steps`.");
}

}  // namespace

std::vector<ParameterGroup> groups_of(nb::handle list, const Where& where) {
  std::vector<ParameterGroup> groups;
  for (nb::handle each : list) {
    ParameterGroup group;
    group.parameters = nb::cast<std::vector<Variable>>(each[0]);
    group.lr = optional_arg(each[1], where);
    group.weight_decay = optional_arg(each[2], where);
    groups.push_back(std::move(group));
  }
  return groups;
}

GradientOptions gradient_options(nb::handle clip_norm, int accumulate, const std::optional<LossScale>& scale,
                                 const NormOfAll& norm_of_all, const Where& where) {
  return {.clip_norm = Operand{clip_norm}.arg(where),
          .accumulate = accumulate,
          .loss_scale = scale,
          .norm_of_all = norm_of_all};
}

void bind_optimizers(nb::module_& m) {
  bind_optimizer(m);
  bind_schedules(m);
}

}  // namespace graphsink::python
