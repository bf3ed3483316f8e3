// The arguments of functions that add optimizers to a graph, as graphsink/_optim.py gives it to them.
#pragma once

#include <nanobind/nanobind.h>

#include <functional>
#include <optional>
#include <vector>

#include "graphsink/graphsink.h"

namespace nb = nanobind;

namespace graphsink::python {

using NormOfAll = std::function<Value(const Value&)>;

// From a list of tuples: Variables, and the group's own learning rate and weight decay, or None.
GRAPHSINK_PUBLIC std::vector<ParameterGroup> groups_of(nb::handle list, const Where& where);
GRAPHSINK_PUBLIC GradientOptions gradient_options(nb::handle clip_norm, int accumulate,
                                                  const std::optional<LossScale>& scale, const NormOfAll& norm_of_all,
                                                  const Where& where);

}  // namespace graphsink::python
