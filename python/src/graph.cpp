// Value, Variable and Graph.
#include <sstream>
#include <string_view>
#include <utility>

#include "bindings.h"
#include "garbage.h"

namespace graphsink::python {

namespace {

using Binary = Value (*)(Arg, Arg, Placement);

Value apply(Binary op, nb::handle a, nb::handle b) {
  const Where where = here();
  OpCall call;
  Arg first = Operand{a}.operand(where), second = Operand{b}.operand(where);
  call.begin(first, second);
  return op(std::move(first), std::move(second), Placement{});
}

using Unary = Value (*)(Arg, Placement);

Value apply(Unary op, nb::handle a) {
  OpCall call;
  Arg operand = Operand{a}.operand(here());
  call.begin(operand);
  return op(std::move(operand), Placement{});
}

// x + y, and y + x for a number y; numbers of NumPy come first where Value has no __array_ufunc__.
template <class T>
void bind_binary(nb::class_<T>& type, const char* name, const char* reversed, Binary op) {
  const std::string operand = "(self, other: graphsink._types.Operand, /) -> Value";
  type.def(
      name, [op](nb::handle self, nb::handle other) { return apply(op, self, other); },
      nb::sig(interned("def " + std::string(name) + operand)), nb::is_operator());
  if (reversed == nullptr) return;
  type.def(
      reversed, [op](nb::handle self, nb::handle other) { return apply(op, other, self); },
      nb::sig(interned("def " + std::string(reversed) + operand)), nb::is_operator());
}

template <class T>
void bind_unary(nb::class_<T>& type, const char* name, Unary op) {
  type.def(
      name, [op](nb::handle self) { return apply(op, self); }, nb::is_operator(),
      nb::sig(interned("def " + std::string(name) + "(self) -> Value")));
}

template <class T>
void bind_operators(nb::class_<T>& type) {
  bind_binary(type, "__add__", "__radd__", add);
  bind_binary(type, "__sub__", "__rsub__", sub);
  bind_binary(type, "__mul__", "__rmul__", mul);
  bind_binary(type, "__truediv__", "__rtruediv__", div);
  bind_binary(type, "__pow__", "__rpow__", pow);
  bind_binary(type, "__matmul__", "__rmatmul__",
              [](Arg a, Arg b, Placement placement) { return matmul(std::move(a), std::move(b), {}, placement); });
  bind_binary(type, "__lt__", nullptr, less);
  bind_binary(type, "__le__", nullptr, less_equal);
  bind_binary(type, "__gt__", nullptr, greater);
  bind_binary(type, "__ge__", nullptr, greater_equal);
  bind_binary(type, "__and__", "__rand__", logical_and);
  bind_binary(type, "__or__", "__ror__", logical_or);
  bind_binary(type, "__xor__", "__rxor__", logical_xor);
  bind_unary(type, "__neg__", neg);
  bind_unary(type, "__abs__", abs);
  bind_unary(type, "__invert__", logical_not);
  // NumPy leaves operators with arrays to this class.
  type.attr("__array_ufunc__") = nb::none();
}

// How to ask for the elements of a Value that an Eager has computed.
constexpr const char* kOfEager = "read it as an array with numpy.asarray(), or take elements by x[i] and its .shape";

// Refuses what Python asks of numbers and a Value of a graph cannot tell. A Value of an Eager answers as its array
// does, where that has one element.
template <class T>
void refuse_conversions(nb::class_<T>& type, const char* what, const char* reading) {
  const auto refuse = [&](const char* name, const char* signature, const char* problem, const char* remedy) {
    const char* message = interned(std::string("a ") + what + " " + problem + "; remedy: " + remedy);
    const char* of_eager = interned(std::string("a Value has no ") + name + "(); remedy: " + kOfEager);
    const bool is_of_number = std::string_view(signature).find("NoReturn") == std::string_view::npos;
    type.def(
        name,
        [=](nb::args arguments, nb::kwargs) -> nb::object {
          const nb::handle self = arguments[0];
          if (!nb::isinstance<Value>(self) || nb::inst_ptr<Value>(self)->eager() == nullptr)
            throw nb::type_error(message);
          if (!is_of_number) throw nb::type_error(of_eager);
          return self.attr("__array__")().attr("item")().attr(name)();
        },
        nb::sig(interned(std::string("def ") + name + signature)));
  };
  refuse("__bool__", "(self) -> bool", "has no truth value while the graph is built",
         "choose in the graph, with gs.if_(), gs.while_() or gs.where(); combine conditions with & and |");
  refuse("__iter__", "(self) -> typing.NoReturn", "cannot be iterated over while the graph is built",
         "take elements by x[i] or gs.split(), or loop in the graph with gs.scan() or gs.while_()");
  refuse("__len__", "(self) -> typing.NoReturn", "has no len()",
         "read .shape, or compute gs.dim(x, axis) in the graph");
  refuse("__float__", "(self) -> float", "is no number while the graph is built", reading);
  refuse("__int__", "(self) -> int", "is no number while the graph is built", reading);
  refuse("__index__", "(self) -> typing.NoReturn", "is no index of Python's",
         "use gs.gather() or gs.take_along_axis()");
  refuse("__contains__", "(self, other: object, /) -> typing.NoReturn", "cannot be searched while the graph is built",
         "compute gs.any(x == y)");
}

// x[1:, ::2, 0, None, ...]: one slice() for all bounds, then the axes of integers go, and those of None come.
class Subscript {
 public:
  Subscript(const Value& value, nb::handle index, const Where& where)
      : where_(where), shape_(value.shape(where)), rank_(shape_.rank()) {
    nb::tuple parts = nb::isinstance<nb::tuple>(index) ? nb::borrow<nb::tuple>(index) : nb::make_tuple(index);
    int named = 0, ellipses = 0;
    for (nb::handle part : parts) {
      named += !part.is_none() && part.ptr() != Py_Ellipsis;
      ellipses += part.ptr() == Py_Ellipsis;
    }
    if (ellipses > 1)
      throw Error("[]", where, "... stands in the index " + std::to_string(ellipses) + " times", "use one");
    for (nb::handle part : parts) {
      if (part.ptr() == Py_Ellipsis) {
        for (int i = named; i < rank_; ++i) take_all();
      } else {
        add(part);
      }
    }
    if (static_cast<int>(begins_.size()) > rank_) {
      throw Error("[]", where, std::to_string(begins_.size()) + " indices for " + to_string(value.type(where)),
                  "give one for each axis at most");
    }
  }

  Value apply(const Value& value) const {
    Value result = value;
    if (!begins_.empty()) result = slice(Arg(result, where_), begins_, ends_, steps_);
    // From the back, so that the numbers of the axes before stay right.
    for (auto axis = dropped_.rbegin(); axis != dropped_.rend(); ++axis) result = squeeze(Arg(result, where_), *axis);
    for (int axis : added_) result = unsqueeze(Arg(result, where_), axis);
    return result;
  }

 private:
  void take_all() { take(0, to_end, 1); }
  void take(std::int64_t begin, std::int64_t end, std::int64_t step) {
    begins_.push_back(begin);
    ends_.push_back(end);
    steps_.push_back(step);
    ++position_;
  }

  void add(nb::handle part) {
    if (part.is_none()) {
      added_.push_back(position_++);
    } else if (PySlice_Check(part.ptr())) {
      add_slice(part);
    } else {
      add_element(part);
    }
  }

  void add_slice(nb::handle part) {
    const auto bound = [&](const char* name, std::int64_t missing) {
      nb::object given = part.attr(name);
      if (given.is_none()) return missing;
      // As in Python, a bound that is too large for the machine stands for the end.
      if (PyLong_Check(given.ptr()) && !PyBool_Check(given.ptr()))
        return static_cast<std::int64_t>(PyNumber_AsSsize_t(given.ptr(), nullptr));
      return integer(given);
    };
    const std::int64_t step = bound("step", 1);
    // A slice that goes backwards begins at the last element; to_end is the end in either direction.
    take(bound("start", step < 0 ? -1 : 0), bound("stop", to_end), step);
  }

  void add_element(nb::handle part) {
    const std::int64_t element = integer(part);
    const auto axis = static_cast<int>(begins_.size());
    if (axis < rank_ && !shape_.is_open(axis) && (element >= shape_[axis] || element < -shape_[axis])) {
      throw Error("[]", where_,
                  "index " + std::to_string(element) + " lies outside of axis " + std::to_string(axis) + " of " +
                      to_string(shape_),
                  "take an element that is there");
    }
    dropped_.push_back(static_cast<int>(begins_.size()));
    take(element, element == -1 ? to_end : element + 1, 1);
    --position_;
  }

  std::int64_t integer(nb::handle given) const {
    std::int64_t number = 0;
    if (!nb::detail::load_integer(given, number)) {
      throw nb::type_error(
          "an index of a Value is an integer, a slice, None or ...; for indices in a Value use gs.gather(), and for a "
          "mask gs.masked_select()");
    }
    return number;
  }

  Where where_;
  Shape shape_;
  int rank_ = 0;
  int position_ = 0;  // the axis of the result that comes next
  std::vector<std::int64_t> begins_, ends_, steps_;
  std::vector<int> dropped_;  // axes of the slice that integers take away
  std::vector<int> added_;    // axes of the result
};

template <class T>
void bind_subscript(nb::class_<T>& type) {
  type.def(
      "__getitem__",
      [](nb::handle self, nb::handle index) {
        const Where where = here();
        OpCall call;
        const Value value = value_of(Operand{self}, where, "[]");
        const Subscript subscript(value, index, where);
        call.begin(value);
        return subscript.apply(value);
      },
      nb::arg("index").none(), nb::sig("def __getitem__(self, index: graphsink._types.Index, /) -> Value"),
      "x[i] is without the axis, x[a:b:step] keeps it; None adds an axis, ... stands for all that are left. Integers "
      "from the end are negative. The results are copies.");
}

void bind_value(nb::module_& m) {
  nb::class_<Value> value(m, "Value", "One output of one node of a graph.", nb::is_weak_referenceable());
  value.def_prop_ro("dtype", [](const Value& self) { return self.dtype(here()); })
      .def_prop_ro(
          "shape", [](const Value& self) { return self.shape(here()); }, "The sizes; an open dimension is a gs.Dim.")
      .def_prop_ro("ndim", [](const Value& self) { return self.shape(here()).rank(); })
      .def("__repr__",
           [](const Value& self) {
             std::ostringstream text;
             {
               WithoutGil others_run;
               text << self;
             }
             return text.str();
           })
      .def("__hash__", [](nb::handle self) { return reinterpret_cast<std::uintptr_t>(self.ptr()) >> 4; })
      .def(
          "__eq__", [](nb::handle self, const Operand& other) { return apply(equal, self, other.object); },
          nb::is_operator())
      .def(
          "__ne__", [](nb::handle self, const Operand& other) { return apply(not_equal, self, other.object); },
          nb::is_operator())
      .def_prop_ro(
          "T", [](nb::handle self) { return apply(transpose, self); },
          "gs.transpose(): the last two axes change places.");
  bind_operators(value);
  bind_subscript(value);
  refuse_conversions(value, "Value of a graph", "ask the program for it: Graph.output() and Program.output()");
  value.def(
      "__array__",
      [](const Value& self, nb::handle dtype, nb::handle) {
        const Where where = here();
        if (self.eager() == nullptr) {
          throw nb::type_error(
              "a Value of a graph has no elements while the graph is built; remedy: make it an output and ask the "
              "Program for it: Graph.output() and Program.output()");
        }
        Tensor tensor;
        {
          WithoutGil others_run;
          tensor = Eager::read(self, where);
        }
        nb::object array = to_array(std::move(tensor));
        return dtype.is_none() ? array : array.attr("astype")(dtype);
      },
      nb::arg("dtype") = nb::none(), nb::arg("copy") = nb::none(),
      nb::sig("def __array__(self, dtype: typing.Any = None, copy: bool | None = None) -> graphsink._types.Array"),
      "The elements of a Value of an Eager.");
}

// Two Variables are the same or not; with a Value, elements are compared.
nb::object compared(const Variable& a, nb::handle b, Binary op, bool if_same) {
  if (nb::isinstance<Variable>(b)) return nb::bool_((a == *nb::inst_ptr<Variable>(b)) == if_same);
  if (!nb::isinstance<Value>(b)) return nb::not_implemented();
  return nb::cast(apply(op, nb::find(a), b));
}

void bind_variable(nb::module_& m) {
  nb::class_<Variable> variable(
      m, "Variable",
      "State that lives across runs and may be used by several graphs, such as a parameter of a model. Any thread may "
      "read() and write() it while programs run: the calls take place between runs.",
      nb::is_weak_referenceable());
  variable
      .def(
          "__init__",
          [](Variable* self, std::string name, nb::handle initial, std::optional<DType> dtype, Placement on) {
            const Where where = here();
            Tensor tensor = to_tensor(initial, dtype ? dtype : std::optional(f32), where);
            if (dtype && tensor.dtype() != *dtype) tensor = tensor.to(*dtype, where);
            new (self) Variable(std::move(name), std::move(tensor), on, where);
          },
          nb::arg("name"), nb::arg("initial").sig("graphsink._types.ArrayLike"), nb::arg("dtype") = nb::none(),
          nb::arg("on") = Placement(),
          "An array keeps its dtype, unless another is given; numbers become f32. It lives on the target of a program, "
          "or with on=on_device(1) on the first of its further devices.")
      .def_prop_ro("placement", [](const Variable& self) { return self.placement(here()); })
      .def_prop_ro("name", [](const Variable& self) { return self.name(here()); })
      .def_prop_ro("dtype", [](const Variable& self) { return self.type(here()).dtype; })
      .def_prop_ro("shape", [](const Variable& self) { return self.type(here()).shape; })
      .def(
          "read",
          [](const Variable& self) {
            const Where where = here();
            Tensor tensor;
            {
              WithoutGil others_run;
              tensor = self.read(where);
            }
            return to_array(std::move(tensor));
          },
          nb::sig("def read(self) -> graphsink._types.Array"),
          "Waits for the programs that use the Variable and returns a copy of its data; bf16 as float32.")
      .def(
          "write",
          [](Variable& self, nb::handle data) {
            const Where where = here();
            const DType dtype = self.type(where).dtype;
            const Tensor tensor = to_tensor(data, dtype, where);
            WithoutGil others_run;
            self.write(tensor, where);
          },
          nb::arg("data").sig("graphsink._types.ArrayLike"),
          "Waits for the programs that use the Variable and copies the data to it. Raises Error for another type.")
      .def(
          "assign",
          [](const Variable& self, const Operand& value) {
            const Where where = here();
            if (nb::isinstance<Value>(value.object)) {
              assign(self, value.arg(where));
            } else {
              Graph graph = current_graph(where, "assign").graph;
              graph.assign(self, value.arg(where));
            }
          },
          nb::arg("value"),
          "Assigns a Value, a Variable or a number when the step commits. What is built after this call sees it. A "
          "Variable or a number belongs to the graph that is being traced (@gs.program); otherwise use Graph.assign().")
      .def("__repr__",
           [](const Variable& self) {
             return "Variable(\"" + self.name(here()) + "\", " + to_string(self.type(here())) + ")";
           })
      .def(
          "__eq__", [](const Variable& a, nb::handle b) { return compared(a, b, equal, true); }, nb::arg().none(),
          nb::sig("def __eq__(self, other: object, /) -> bool"))
      .def(
          "__ne__", [](const Variable& a, nb::handle b) { return compared(a, b, not_equal, false); }, nb::arg().none(),
          nb::sig("def __ne__(self, other: object, /) -> bool"))
      .def("__hash__", [](const Variable& self) { return reinterpret_cast<std::uintptr_t>(self.data().get()) >> 4; });
  bind_operators(variable);
  bind_subscript(variable);
  refuse_conversions(variable, "Variable", "use Variable.read()");
  variable.def(
      "__array__",
      [](const Variable&, nb::args, nb::kwargs) -> nb::object {
        throw nb::type_error(
            "a Variable is no array, because programs may change it; remedy: copy its elements with Variable.read()");
      },
      nb::sig("def __array__(self, dtype: typing.Any = None, copy: bool | None = None) -> typing.NoReturn"));
}

void add_name(GraphHandle& self, const std::string& name, const Value& value) {
  self.names->inputs.insert_or_assign(name, value);
}

void bind_graph_class(nb::module_& m) {
  nb::class_<GraphHandle>(m, "Graph",
                          "A computation under construction. Used by one thread at a time. compile() takes a snapshot: "
                          "nodes that are added later are not part of the compiled Program.",
                          nb::is_weak_referenceable(), nb::type_slots(OwnedObjects<GraphHandle>::slots))
      .def("__init__",
           [](nb::pointer_and_handle<GraphHandle> self) {
             new (self.p) GraphHandle;
             const auto key = reinterpret_cast<std::uintptr_t>(self.p->graph.data().get());
             nb::module_::import_("graphsink._context").attr("graphs")[nb::int_(key)] = self.h;
           })
      .def(
          "input",
          [](GraphHandle& self, const std::string& name, DType dtype, const Dims& shape) {
            Value value = self.graph.input(name, dtype, std::span<const Dim>(shape.list), here());
            add_name(self, name, value);
            return value;
          },
          nb::arg("name"), nb::arg("dtype"), nb::arg("shape") = nb::tuple(),
          "Adds an input: data given by Program.write(), the same for every step of a run.")
      .def(
          "feed",
          [](GraphHandle& self, const std::string& name, DType dtype, const Dims& shape) {
            Value value = self.graph.feed(name, dtype, std::span<const Dim>(shape.list), here());
            add_name(self, name, value);
            return value;
          },
          nb::arg("name"), nb::arg("dtype"), nb::arg("shape") = nb::tuple(),
          "Adds a feed: data given by Program.write(), one slice of this shape for each step of a run.")
      .def(
          "constant",
          [](GraphHandle& self, nb::handle data, std::optional<DType> dtype) {
            const Where where = here();
            return self.graph.constant(to_tensor_of(data, dtype, "constant", where), where);
          },
          nb::arg("data").sig("graphsink._types.ArrayLike"), nb::arg("dtype") = nb::none(),
          "Adds a constant, whose data become part of the graph. An array keeps its dtype, and another one as `dtype` "
          "is an Error; numbers become `dtype`, or f32.")
      .def(
          "value", [](GraphHandle& self, const Variable& v) { return self.graph.value(v, here()); },
          nb::arg("variable"), "The Variable's value at the start of the step, or the Value assigned to it.")
      .def(
          "updated", [](GraphHandle& self, const Variable& v) { return self.graph.updated(v, here()); },
          nb::arg("variable"),
          "The value that the Variable has after its update, in the same step: what the optimizer that was called "
          "before makes of it, or the Value that was assigned last.")
      .def(
          "step", [](GraphHandle& self) { return self.graph.step(here()); },
          "The number of the step, which is the number of steps committed so far: an i32 scalar.")
      .def(
          "assign",
          [](GraphHandle& self, const Variable& v, const Operand& value) { self.graph.assign(v, value.arg(here())); },
          nb::arg("variable"), nb::arg("value"), "Assigns a Value, a Variable or a number when the step commits.")
      .def(
          "record",
          [](GraphHandle& self, const std::string& name, const Operand& value, std::int64_t capacity) {
            const Where where = here();
            const Arg recorded = value.arg(where);
            self.graph.record(name, recorded, {.capacity = capacity});
            std::vector<std::int64_t> sizes;
            const auto& content = recorded.content();
            if (const auto* v = std::get_if<Value>(&content)) {
              const Shape shape = v->shape(where);
              sizes.assign(shape.dims().begin(), shape.dims().end());
            } else if (const auto* variable = std::get_if<Variable>(&content)) {
              const Shape& shape = variable->type(where).shape;
              sizes.assign(shape.dims().begin(), shape.dims().end());
            }
            self.names->records.insert_or_assign(name, std::move(sizes));
          },
          nb::arg("name"), nb::arg("value"), nb::kw_only(), nb::arg("capacity") = 0,
          "Records one float or several, such as a loss, in every step: Program.records(name) returns the values of "
          "all steps since its last call.")
      .def(
          "stop_when", [](GraphHandle& self, const Operand& c) { self.graph.stop_when(c.arg(here())); },
          nb::arg("condition"),
          "Ends the run with the first step in which the condition, a boolean scalar, holds; that step commits.")
      .def(
          "output",
          [](GraphHandle& self, const std::string& name, const Operand& v) {
            const Where where = here();
            Arg shown = v.arg(where);
            // A Value, so that bind_memory() and output_view() find it by its name.
            if (const auto* variable = std::get_if<Variable>(&shown.content()))
              shown = Arg(self.graph.value(*variable, where), where);
            self.graph.output(name, shown);
            if (const auto* value = std::get_if<Value>(&shown.content()))
              self.names->outputs.insert_or_assign(name, *value);
          },
          nb::arg("name"), nb::arg("value"),
          "Makes what the last step of a run computes readable by Program.output(name).")
      .def_prop_ro(
          "inputs",
          [](const GraphHandle& self) {
            nb::dict all;
            for (const auto& [name, value] : self.names->inputs) all[name.c_str()] = value;
            return all;
          },
          nb::sig("def inputs(self) -> dict[str, Value]"), "The inputs and feeds by name.");
}

}  // namespace

const GraphHandle& current_graph(const Where& where, const char* op) {
  nb::object current = nb::module_::import_("graphsink._context").attr("current_graph")();
  if (current.is_none()) {
    throw Error(
        op, where, "neither a Variable nor a number says which graph it is meant for",
        "give a Value, such as graph.value(variable), use Graph.assign(), or build within a function of @gs.program");
  }
  return *nb::inst_ptr<GraphHandle>(current);
}

Value value_of(const Operand& operand, const Where& where, const char* op) {
  const Arg arg = operand.arg(where);
  if (const auto* value = std::get_if<Value>(&arg.content())) return *value;
  if (const auto* variable = std::get_if<Variable>(&arg.content())) {
    Graph graph = current_graph(where, op).graph;
    return graph.value(*variable, where);
  }
  throw Error(op, where, "a number is no Value of a graph", "use Graph.constant()");
}

void bind_graph(nb::module_& m) {
  bind_value(m);
  bind_variable(m);
  bind_graph_class(m);
  m.def(
      "true_size", [](const Value& input, int axis) { return true_size(input, axis, here()); }, nb::arg("input"),
      nb::arg("axis"), "The size of an axis of an input as it was given to write(), without what fills its bucket.");
  m.def(
      "valid_mask", [](const Value& input, int axis) { return valid_mask(input, axis, here()); }, nb::arg("input"),
      nb::arg("axis"), "For each index of that axis, whether the data as it was given to write() has it.");
}

}  // namespace graphsink::python
