// How Python objects become arguments of graphsink's functions: operands, dtypes, shapes, axes, placements.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/array.h>
#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <array>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "graphsink/graphsink.h"
#include "handles.h"
#include "where.h"

namespace nb = nanobind;

namespace graphsink::python {

// An operand of an op as Python gives it: a Value, a Variable or a number. Borrowed for the call. The
// other module of the package, graphsink._ranks, calls what is GRAPHSINK_PUBLIC.
struct Operand {
  nb::handle object;
  // Throws TypeError for an object that is none of these.
  GRAPHSINK_PUBLIC Arg arg(const Where& where) const;
  // The same for an op. While a function is traced, a Variable becomes a Value of its graph, so that ops of Variables
  // alone know their graph.
  GRAPHSINK_PUBLIC Arg operand(const Where& where) const;
};
std::vector<Arg> args(const std::vector<Operand>& operands, const Where& where);
GRAPHSINK_PUBLIC std::vector<Arg> operands(const std::vector<Operand>& operands, const Where& where);

// A number of Python's or NumPy's, which may be an array without axes; empty for any other object.
std::optional<Arg> number_of(nb::handle object, const Where& where);

// NumPy's dtype object for a DType, and gs.bf16 for bf16, which NumPy does not have.
nb::object dtype_object(DType dtype);
// Empty for an object that names no dtype. Leaves no Python error behind.
std::optional<DType> dtype_from(nb::handle object) noexcept;

// (32, 784); an open dimension is a Dim.
nb::tuple shape_object(const Shape& shape);

// Sizes of an input: integers and Dims.
struct Dims {
  std::vector<Dim> list;
};
// Sizes that are all known.
struct Sizes {
  std::vector<std::int64_t> list;
  Shape shape(const Where& where) const { return Shape(std::span<const std::int64_t>(list), where); }
};
// Sizes of a result of reshape(): integers and keep().
struct NewSizes {
  std::vector<NewDim> list;
};
// A path as Python gives it, a str or an os.PathLike.
struct FilePath {
  std::filesystem::path path;
};
// A path, or the name of a file, as a str. Names have any bytes; those that are no UTF-8 are escaped, as os.fsdecode()
// does, so that the str names the same file.
inline nb::str path_object(std::string_view path) {
  return nb::steal<nb::str>(PyUnicode_DecodeFSDefaultAndSize(path.data(), static_cast<Py_ssize_t>(path.size())));
}
// Two sizes, for h and w; one integer stands for both.
struct Pair {
  std::array<std::int64_t, 2> list{};
};

}  // namespace graphsink::python

namespace nanobind::detail {

// An integer of Python's or NumPy's that fits, and no bool.
inline bool load_integer(handle source, std::int64_t& number) noexcept {
  if (PyBool_Check(source.ptr()) || !PyIndex_Check(source.ptr())) return false;
  PyObject* index = PyNumber_Index(source.ptr());
  if (index == nullptr) {
    PyErr_Clear();
    return false;
  }
  number = PyLong_AsLongLong(index);
  Py_DECREF(index);
  if (number == -1 && PyErr_Occurred()) {
    PyErr_Clear();
    return false;
  }
  return true;
}

// Calls load(element) for all elements of a list or a tuple; false if it is neither, or load() is false.
template <class Load>
bool load_sequence(handle source, const Load& load) noexcept {
  if (!PyTuple_Check(source.ptr()) && !PyList_Check(source.ptr())) return false;
  const Py_ssize_t size = PySequence_Size(source.ptr());
  for (Py_ssize_t i = 0; i < size; ++i) {
    object element = steal(PySequence_GetItem(source.ptr(), i));
    if (!element.is_valid()) {
      PyErr_Clear();
      return false;
    }
    if (!load(element)) return false;
  }
  return true;
}

// Copies an instance of a bound class; false if it is another object.
template <class T>
bool load_instance(handle source, std::optional<T>& result) noexcept {
  if (!isinstance<T>(source)) return false;
  result.emplace(*inst_ptr<T>(source));
  return true;
}

// Integers, and instances of a bound class T that is made of an integer.
template <class T>
bool load_sizes(handle source, std::vector<T>& list) noexcept {
  return load_sequence(source, [&](handle element) {
    std::int64_t size = 0;
    std::optional<T> made;
    if (load_integer(element, size)) {
      made.emplace(size);
    } else if (!load_instance(element, made)) {
      return false;
    }
    list.push_back(*made);
    return true;
  });
}

template <>
struct type_caster<graphsink::python::Operand> {
  NB_TYPE_CASTER(graphsink::python::Operand, const_name("graphsink._types.Operand"))
  bool from_python(handle source, std::uint32_t, cleanup_list*) noexcept {
    // Some ops take a Graph or a Padded in the place of an operand: these are other overloads.
    if (isinstance<graphsink::python::GraphHandle>(source) || isinstance<graphsink::Padded>(source)) return false;
    if (source.is_none()) return false;
    value.object = source;
    return true;
  }
};

template <>
struct type_caster<graphsink::DType> {
  NB_TYPE_CASTER(graphsink::DType, io_name("graphsink._types.DTypeLike", "graphsink._types.DType"))
  bool from_python(handle source, std::uint32_t, cleanup_list*) noexcept {
    const std::optional<graphsink::DType> dtype = graphsink::python::dtype_from(source);
    if (dtype) value = *dtype;
    return dtype.has_value();
  }
  static handle from_cpp(graphsink::DType dtype, rv_policy, cleanup_list*) noexcept {
    return graphsink::python::dtype_object(dtype).release();
  }
};

template <>
struct type_caster<graphsink::python::Dims> {
  NB_TYPE_CASTER(graphsink::python::Dims, const_name("graphsink._types.DimsLike"))
  bool from_python(handle source, std::uint32_t, cleanup_list*) noexcept { return load_sizes(source, value.list); }
};

template <>
struct type_caster<graphsink::python::Sizes> {
  NB_TYPE_CASTER(graphsink::python::Sizes, const_name("collections.abc.Sequence[int]"))
  bool from_python(handle source, std::uint32_t, cleanup_list*) noexcept {
    return load_sequence(source, [&](handle element) {
      std::int64_t size = 0;
      if (!load_integer(element, size)) return false;
      value.list.push_back(size);
      return true;
    });
  }
};

template <>
struct type_caster<graphsink::python::NewSizes> {
  NB_TYPE_CASTER(graphsink::python::NewSizes, const_name("graphsink._types.NewShapeLike"))
  bool from_python(handle source, std::uint32_t, cleanup_list*) noexcept { return load_sizes(source, value.list); }
};

template <>
struct type_caster<graphsink::python::Pair> {
  NB_TYPE_CASTER(graphsink::python::Pair, const_name("int | tuple[int, int]"))
  bool from_python(handle source, std::uint32_t, cleanup_list*) noexcept {
    if (load_integer(source, value.list[0])) {
      value.list[1] = value.list[0];
      return true;
    }
    std::size_t count = 0;
    return load_sequence(source,
                         [&](handle element) { return count < 2 && load_integer(element, value.list[count++]); }) &&
           count == 2;
  }
  static handle from_cpp(const graphsink::python::Pair& pair, rv_policy, cleanup_list*) noexcept {
    return make_tuple(pair.list[0], pair.list[1]).release();
  }
};

template <>
struct type_caster<graphsink::Axes> {
  NB_TYPE_CASTER(graphsink::Axes, const_name("int | collections.abc.Sequence[int] | None"))
  bool from_python(handle source, std::uint32_t, cleanup_list*) noexcept {
    if (source.is_none()) return true;
    const auto add = [&](handle element) {
      std::int64_t axis = 0;
      if (!load_integer(element, axis) || !std::in_range<int>(axis)) return false;
      value.list.push_back(static_cast<int>(axis));
      return true;
    };
    return add(source) || load_sequence(source, add);
  }
  static handle from_cpp(const graphsink::Axes&, rv_policy, cleanup_list*) noexcept { return none().release(); }
};

template <>
struct type_caster<graphsink::ResultSize> {
  NB_TYPE_CASTER(graphsink::ResultSize, const_name("int | graphsink.Bucket | None"))
  bool from_python(handle source, std::uint32_t, cleanup_list*) noexcept {
    if (source.is_none()) return true;
    std::int64_t most = 0;
    std::optional<graphsink::Bucket> bucket;
    if (load_integer(source, most)) {
      value = graphsink::ResultSize(most);
    } else if (load_instance(source, bucket)) {
      value = graphsink::ResultSize(*bucket);
    } else {
      return false;
    }
    return true;
  }
  static handle from_cpp(const graphsink::ResultSize&, rv_policy, cleanup_list*) noexcept { return none().release(); }
};

template <>
struct type_caster<graphsink::python::FilePath> {
  NB_TYPE_CASTER(graphsink::python::FilePath, const_name("str | os.PathLike[str]"))
  bool from_python(handle source, std::uint32_t flags, cleanup_list* cleanup) noexcept {
    make_caster<std::filesystem::path> caster;
    if (!caster.from_python(source, flags, cleanup)) return false;
    value.path = std::move(caster.value);
    return true;
  }
};

// A read-only view of the sizes of a Value.
template <>
struct type_caster<graphsink::Shape> {
  NB_TYPE_CASTER(graphsink::Shape, const_name("tuple[int | graphsink.Dim, ...]"))
  static handle from_cpp(const graphsink::Shape& shape, rv_policy, cleanup_list*) noexcept {
    return graphsink::python::shape_object(shape).release();
  }
};

}  // namespace nanobind::detail
