// Control flow and gradients. Bodies return lists of Values, of which graphsink/_control.py makes trees.
#include <nanobind/stl/function.h>
#include <nanobind/stl/pair.h>

#include "bindings.h"

namespace graphsink::python {

namespace {

Values values_of(nb::handle list, const Where& where) {
  Values values;
  for (nb::handle each : list) values.push_back(value_of(Operand{each}, where));
  return values;
}

nb::list list_of(const Values& values) {
  nb::list list;
  for (const Value& value : values) list.append(value);
  return list;
}

// Bodies are called while the graph is built, by the thread that builds it, which holds the GIL.
std::function<Values()> body_of(const nb::callable& function, const Where& where) {
  return [function, where] { return values_of(function(), where); };
}
std::function<Values(const Values&)> loop_body_of(const nb::callable& function, const Where& where) {
  return [function, where](const Values& state) { return values_of(function(list_of(state)), where); };
}

}  // namespace

void bind_control(nb::module_& m) {
  m.def(
      "if_values",
      [](const Operand& predicate, const nb::callable& then_body, const nb::callable& else_body) {
        const Where where = here();
        return list_of(
            detail::if_values(predicate.operand(where), body_of(then_body, where), body_of(else_body, where)));
      },
      nb::sig("def if_values(predicate: graphsink._types.Operand, then_body: collections.abc.Callable[[], "
              "list[Value]], else_body: collections.abc.Callable[[], list[Value]], /) -> list[Value]"));
  m.def(
      "switch_values",
      [](const Operand& index, const nb::list& bodies) {
        const Where where = here();
        std::vector<std::function<Values()>> all;
        for (nb::handle body : bodies) all.push_back(body_of(nb::cast<nb::callable>(body), where));
        return list_of(switch_(index.operand(where), all));
      },
      nb::sig("def switch_values(index: graphsink._types.Operand, bodies: list[collections.abc.Callable[[], "
              "list[Value]]], /) -> list[Value]"));
  m.def(
      "while_values",
      [](const std::vector<Operand>& init, const nb::callable& condition, const nb::callable& body,
         std::int64_t max_iterations, bool recompute) {
        const Where where = here();
        const auto holds = [&](const Values& state) { return value_of(Operand{condition(list_of(state))}, where); };
        return list_of(while_(operands(init, where), holds, loop_body_of(body, where),
                              WhileOptions{.max_iterations = max_iterations, .recompute = recompute}, where));
      },
      nb::sig("def while_values(init: list[typing.Any], condition: collections.abc.Callable[[list[Value]], Value], "
              "body: collections.abc.Callable[[list[Value]], list[Value]], max_iterations: int, recompute: bool, /) -> "
              "list[Value]"));
  m.def(
      "scan_values",
      [](const std::vector<Operand>& init, const std::vector<Operand>& inputs, const nb::callable& body,
         std::int64_t iterations, bool recompute) {
        const Where where = here();
        const auto iterate = [&](const Values& state, const Values& slices) {
          nb::object result = body(list_of(state), list_of(slices));
          return Scan{values_of(result[0], where), values_of(result[1], where)};
        };
        const Scan result = scan(operands(init, where), operands(inputs, where), iterate,
                                 {.iterations = iterations, .recompute = recompute}, where);
        return nb::make_tuple(list_of(result.state), list_of(result.outputs));
      },
      nb::sig("def scan_values(init: list[typing.Any], inputs: list[typing.Any], body: "
              "collections.abc.Callable[[list[Value], list[Value]], tuple[list[Value], list[Value]]], iterations: int, "
              "recompute: bool, /) -> tuple[list[Value], list[Value]]"));
  m.def(
      "grad_values",
      [](const Operand& loss, const std::vector<Operand>& wrt) {
        const Where where = here();
        return list_of(grad(loss.arg(where), args(wrt, where)));
      },
      nb::sig("def grad_values(loss: graphsink._types.Operand, wrt: list[typing.Any], /) -> list[Value]"));
}

}  // namespace graphsink::python
