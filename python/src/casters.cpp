#include "casters.h"

#include <string>
#include <string_view>

namespace graphsink::python {

namespace {

constexpr struct {
  DType dtype;
  const char* name;  // NumPy's and PyTorch's; bf16 is PyTorch's, JAX's and ml_dtypes'
} kNames[] = {{f32, "float32"}, {f64, "float64"},   {i32, "int32"}, {boolean, "bool"},
              {f16, "float16"}, {bf16, "bfloat16"}, {i64, "int64"}, {u8, "uint8"}};

std::optional<DType> dtype_named(std::string_view name) noexcept {
  for (const auto& known : kNames)
    if (name == known.name || name == to_string(known.dtype)) return known.dtype;
  return {};
}

std::optional<DType> dtype_called(nb::handle name) noexcept {
  if (!name.is_valid() || !PyUnicode_Check(name.ptr())) return {};
  Py_ssize_t size = 0;
  const char* text = PyUnicode_AsUTF8AndSize(name.ptr(), &size);
  if (text == nullptr) {
    PyErr_Clear();
    return {};
  }
  return dtype_named({text, static_cast<std::size_t>(size)});
}

bool has_attribute(nb::handle object, const char* name) { return PyObject_HasAttrString(object.ptr(), name) != 0; }

[[noreturn]] void refuse(nb::handle object, const char* expected) {
  const std::string type =
      nb::cast<std::string>(nb::str(nb::handle(reinterpret_cast<PyObject*>(Py_TYPE(object.ptr())))));
  throw nb::type_error((std::string(expected) + ", not " + type).c_str());
}

}  // namespace

std::optional<DType> dtype_from(nb::handle object) noexcept {
  if (object.is_none()) return {};
  if (PyUnicode_Check(object.ptr())) return dtype_called(object);
  try {
    // A dtype of torch prints as "torch.float32"; NumPy, and gs.bf16, have names.
    const std::string text = nb::cast<std::string>(nb::str(object));
    if (text.starts_with("torch.")) return dtype_named(std::string_view(text).substr(6));
    if (!PyType_Check(object.ptr()) && has_attribute(object, "name")) return dtype_called(object.attr("name"));
    return dtype_called(nb::module_::import_("numpy").attr("dtype")(object).attr("name"));
  } catch (...) {
    return {};
  }
}

nb::object dtype_object(DType dtype) {
  if (dtype == bf16) return nb::module_::import_("graphsink._types").attr("bf16");
  for (const auto& known : kNames)
    if (known.dtype == dtype) return nb::module_::import_("numpy").attr("dtype")(known.name);
  return nb::none();
}

nb::tuple shape_object(const Shape& shape) {
  nb::list sizes;
  const Shape examples = shape.examples();
  for (int d = 0; d < shape.rank(); ++d) {
    if (shape.is_open(d)) {
      sizes.append(nb::cast(open(examples[d])));
    } else {
      sizes.append(examples[d]);
    }
  }
  return nb::tuple(sizes);
}

std::optional<Arg> number_of(nb::handle object, const Where& where) {
  if (PyBool_Check(object.ptr())) return Arg(object.ptr() == Py_True, where);
  if (PyFloat_Check(object.ptr())) return Arg(PyFloat_AsDouble(object.ptr()), where);
  if (PyIndex_Check(object.ptr()) && !has_attribute(object, "shape")) {
    std::int64_t number = 0;
    if (!nb::detail::load_integer(object, number))
      throw Error("operand", where, "the integer has more than 64 bits", "use a number that an i64 holds");
    return Arg(number, where);
  }
  // NumPy's scalars, and arrays and tensors without axes: item() gives the number of Python's.
  if (has_attribute(object, "item") && has_attribute(object, "shape") && nb::len(nb::object(object.attr("shape"))) == 0)
    return number_of(nb::object(object.attr("item")()), where);
  return {};
}

Arg Operand::arg(const Where& where) const {
  if (nb::isinstance<Value>(object)) return Arg(*nb::inst_ptr<Value>(object), where);
  if (nb::isinstance<Variable>(object)) return Arg(*nb::inst_ptr<Variable>(object), where);
  if (std::optional<Arg> number = number_of(object, where)) return *number;
  refuse(object,
         "an operand is a Value, a Variable or a number (for an array, use Graph.constant(), gs.tensor(), or an input "
         "that Program.write() fills)");
}

Arg Operand::operand(const Where& where) const {
  if (!nb::isinstance<Variable>(object)) return arg(where);
  nb::object current = nb::module_::import_("graphsink._context").attr("current_graph")();
  if (current.is_none()) return arg(where);
  Graph graph = nb::inst_ptr<GraphHandle>(current)->graph;
  return Arg(graph.value(*nb::inst_ptr<Variable>(object), where), where);
}

std::vector<Arg> operands(const std::vector<Operand>& operands, const Where& where) {
  std::vector<Arg> all;
  all.reserve(operands.size());
  for (const Operand& operand : operands) all.push_back(operand.operand(where));
  return all;
}

std::vector<Arg> args(const std::vector<Operand>& operands, const Where& where) {
  std::vector<Arg> all;
  all.reserve(operands.size());
  for (const Operand& operand : operands) all.push_back(operand.arg(where));
  return all;
}

}  // namespace graphsink::python
