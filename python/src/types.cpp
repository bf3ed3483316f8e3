// Devices, modes, placements, dimensions, buckets, and Tensor.
#include <nanobind/ndarray.h>
#include <nanobind/stl/pair.h>

#include <sstream>

#include "bindings.h"

namespace graphsink::python {

namespace {

void bind_devices(nb::module_& m) {
  nb::enum_<DeviceKind>(m, "DeviceKind", "What a device is.")
      .value("cpu", DeviceKind::cpu)
      .value("cuda", DeviceKind::cuda);
  nb::class_<DeviceId>(m, "DeviceId", "A device: gs.cpu() or gs.cuda(0).")
      .def_ro("kind", &DeviceId::kind)
      .def_ro("index", &DeviceId::index)
      .def(
          "__eq__", [](const DeviceId& a, const DeviceId& b) { return a == b; }, nb::is_operator())
      .def("__hash__", [](const DeviceId& d) { return 2 * d.index + static_cast<int>(d.kind); })
      .def("__getstate__", [](const DeviceId& d) { return std::pair(static_cast<int>(d.kind), d.index); })
      .def("__setstate__",
           [](DeviceId& d, std::pair<int, int> state) {
             new (&d) DeviceId{static_cast<DeviceKind>(state.first), state.second};
           })
      .def("__str__", [](const DeviceId& d) { return to_string(d); })
      .def("__repr__", [](const DeviceId& d) {
        return d.kind == DeviceKind::cpu ? std::string("gs.cpu()") : "gs.cuda(" + std::to_string(d.index) + ")";
      });
  m.def("cpu", &cpu, "The host itself.");
  m.def("cuda_device", &cuda, nb::arg("index"), "A CUDA device: gs.cuda().");
  m.def("cuda_device_count", &cuda_device_count,
        "The number of usable CUDA devices: 0 without a driver, without a device, or in a build without CUDA.");
  nb::class_<Placement>(m, "Placement",
                        "Where the user wants a node to run. By default the planner decides.\n\ngs.on_cpu, "
                        "gs.on_device (the program's target) and gs.on_device(1), the first of the further devices.")
      .def("__call__", &Placement::operator(), nb::arg("number"))
      .def(
          "__eq__", [](const Placement& a, const Placement& b) { return a == b; }, nb::is_operator())
      .def("__hash__", [](const Placement& p) { return 8 * p.device + static_cast<int>(p.kind); })
      .def("__getstate__", [](const Placement& p) { return std::pair(static_cast<int>(p.kind), p.device); })
      .def("__setstate__",
           [](Placement& p, std::pair<int, int> state) {
             new (&p) Placement{static_cast<Placement::Kind>(state.first), state.second};
           })
      .def("__repr__", [](const Placement& p) {
        if (p.kind == Placement::Kind::anywhere) return std::string("gs.anywhere");
        if (p.kind == Placement::Kind::cpu) return std::string("gs.on_cpu");
        return "gs.on_device" + (p.device == 0 ? std::string() : "(" + std::to_string(p.device) + ")");
      });
  m.attr("anywhere") = Placement{};
  m.attr("on_cpu") = on_cpu;
  m.attr("on_device") = on_device;
}

void bind_mode(nb::module_& m) {
  nb::enum_<Mode> mode(m, "Mode", "How a program gives its steps to the device. All modes give the same bits.");
  for (Mode each : kAllModes) {
    std::string name(to_string(each));
    std::replace(name.begin(), name.end(), '-', '_');
    mode.value(interned(name), each);
    m.attr(name.c_str()) = nb::cast(each);
  }
  m.attr("interactive") = nb::cast(interactive);
}

void bind_dimensions(nb::module_& m) {
  nb::class_<Bucket>(m, "Bucket", "A rule by which the sizes of an open dimension are rounded up.")
      .def("round_up", &Bucket::round_up, nb::arg("size"),
           "The smallest size of the rule that is at least `size`; -1 if there is none.")
      .def("__repr__", [](const Bucket& b) { return to_string(b); });
  m.def("next_power_of_two", &next_power_of_two, "1, 2, 4, 8 and so on.");
  m.def("multiples_of", &multiples_of, nb::arg("step"), "`step`, 2 * step and so on. Raises Error if step < 1.");
  m.def("one_of", &one_of, nb::arg("sizes"), "These sizes. Raises Error if there is none, or one that is less than 1.");
  nb::class_<Dim>(m, "Dim", "One dimension of an input: a fixed size, or open, made by gs.open().")
      .def_ro("size", &Dim::size, "The size, or the example of an open dimension.")
      .def_ro("is_open", &Dim::is_open)
      .def(
          "__eq__",
          [](const Dim& a, const Dim& b) { return a.size == b.size && a.is_open == b.is_open && a.bucket == b.bucket; },
          nb::is_operator())
      .def("__hash__", [](const Dim& d) { return d.size; })
      .def("__repr__", [](const Dim& d) {
        const std::string size = std::to_string(d.size);
        return d.is_open ? "open(" + size + ")" : size;
      });
  m.def(
      "open",
      [](std::int64_t example, const std::optional<Bucket>& bucket) {
        return bucket ? open(example, *bucket) : open(example);
      },
      nb::arg("example"), nb::arg("bucket") = nb::none(),
      "An open dimension of an input: its size comes with each write(). The graph is built with an example of the "
      "size, which all ops must accept. With a bucket, sizes are rounded up by its rule and padded with zeros.");
  nb::class_<NewDim>(m, "NewDim", "A dimension of the result of reshape(), made by gs.keep().");
  m.def("keep", &keep, nb::arg("axis"),
        "In the shape of reshape(): the size of an axis of the operand, which may be open.");
  m.attr("to_end") = to_end;
}

// The only element. An i64 may have more digits than a double.
nb::object item_of(const Tensor& tensor, const Where& where) {
  const double value = tensor.item(where);
  switch (tensor.dtype(where)) {
    case boolean:
      return nb::bool_(value != 0);
    case i64:
      return nb::int_(*tensor.as<std::int64_t>(where).data());
    case i32:
    case u8:
      return nb::int_(static_cast<std::int64_t>(value));
    default:
      return nb::float_(value);
  }
}

void bind_tensor(nb::module_& m) {
  nb::enum_<OutputAxis>(m, "OutputAxis", "Which axis of a weight counts the outputs.")
      .value("by_rank", OutputAxis::by_rank)
      .value("first", OutputAxis::first)
      .value("last", OutputAxis::last);
  nb::class_<Tensor>(m, "Tensor",
                     "Dense row-major data on the host. NumPy, PyTorch and JAX read it without a copy by DLPack; "
                     "numpy.asarray() of one of bf16, which NumPy does not have, is of float32.")
      .def(
          "__init__",
          [](Tensor* self, nb::handle data, std::optional<DType> dtype) {
            const Where where = here();
            Tensor made = to_tensor(data, dtype ? dtype : std::optional(f32), where);
            if (dtype && made.dtype() != *dtype) made = made.to(*dtype, where);
            new (self) Tensor(std::move(made));
          },
          nb::arg("data").sig("graphsink._types.ArrayLike"), nb::arg("dtype") = nb::none(),
          "Copies an array, which keeps its dtype, or numbers, which become f32. With a dtype, the elements are "
          "converted as gs.cast() does.")
      .def_prop_ro("dtype", [](const Tensor& self) { return self.dtype(here()); })
      .def_prop_ro("shape", [](const Tensor& self) { return self.shape(here()); })
      .def(
          "to", [](const Tensor& self, DType dtype) { return self.to(dtype, here()); }, nb::arg("dtype"),
          "The same elements in another dtype, converted as gs.cast() does.")
      .def(
          "item", [](const Tensor& self) { return item_of(self, here()); },
          nb::sig("def item(self) -> bool | int | float"),
          "The only element: a bool, an int or a float, as the dtype says.")
      .def(
          "numpy",
          [](nb::handle self) {
            Tensor& tensor = *nb::inst_ptr<Tensor>(self);
            if (tensor.dtype(here()) == bf16) return to_array(tensor.to(f32));
            return array_of(tensor.data(), tensor.type(), self, true);
          },
          nb::sig("def numpy(self) -> graphsink._types.Array"),
          "A view of the elements. Of bf16 it is a copy in float32.")
      .def(
          "__array__",
          [](nb::handle self, nb::handle dtype, nb::handle copy) {
            nb::object array = self.attr("numpy")();
            if (!dtype.is_none()) array = array.attr("astype")(dtype);
            if (!copy.is_none() && nb::cast<bool>(copy)) array = array.attr("copy")();
            return array;
          },
          nb::arg("dtype") = nb::none(), nb::arg("copy") = nb::none(),
          nb::sig("def __array__(self, dtype: typing.Any = None, copy: bool | None = None) -> graphsink._types.Array"))
      .def(
          "__dlpack__",
          [](nb::handle self, const nb::kwargs& options) -> nb::object {
            if (nb::inst_ptr<Tensor>(self)->dtype(here()) == bf16)
              throw nb::buffer_error("NumPy makes no DLPack of bf16; remedy: give .to(gs.f32)");
            return self.attr("numpy")().attr("__dlpack__")(**options);
          },
          nb::sig("def __dlpack__(self, **options: typing.Any) -> typing.Any"))
      .def(
          "__dlpack_device__", [](const Tensor&) { return nb::make_tuple(nb::device::cpu::value, 0); },
          nb::sig("def __dlpack_device__(self) -> tuple[int, int]"))
      .def("__repr__", [](const Tensor& self) {
        std::ostringstream text;
        text << self;
        return text.str();
      });
  m.def(
      "full",
      [](const Sizes& shape, double value, DType dtype) {
        const Where where = here();
        return Tensor::full(dtype, shape.shape(where), value, where);
      },
      nb::arg("shape"), nb::arg("value"), nb::arg("dtype") = f32,
      "Every element is `value`, rounded to the dtype. Raises Error if the dtype cannot hold it.");
  m.def(
      "zeros",
      [](const Sizes& shape, DType dtype) {
        const Where where = here();
        return Tensor(dtype, shape.shape(where), where);
      },
      nb::arg("shape"), nb::arg("dtype") = f32, "Every element is 0.");
  m.def(
      "kaiming",
      [](const Sizes& shape, std::uint64_t seed, OutputAxis outputs) {
        const Where where = here();
        return Tensor::kaiming(shape.shape(where), seed, outputs, where);
      },
      nb::arg("shape"), nb::arg("seed"), nb::arg("outputs").noconvert() = OutputAxis::by_rank,
      "f32 samples of U(-b, b) with b = sqrt(6 / fan_in), for a weight behind relu(). The same seed gives the same "
      "bits on every machine.");
  m.def(
      "xavier",
      [](const Sizes& shape, std::uint64_t seed, OutputAxis outputs) {
        const Where where = here();
        return Tensor::xavier(shape.shape(where), seed, outputs, where);
      },
      nb::arg("shape"), nb::arg("seed"), nb::arg("outputs").noconvert() = OutputAxis::by_rank,
      "f32 samples of U(-b, b) with b = sqrt(6 / (fan_in + fan_out)), for a weight behind tanh() or without an "
      "activation.");
  m.def(
      "uniform",
      [](const Sizes& shape, std::uint64_t seed, float low, float high) {
        const Where where = here();
        return Tensor::uniform(shape.shape(where), seed, low, high, where);
      },
      nb::arg("shape"), nb::arg("seed"), nb::arg("low") = 0.0f, nb::arg("high") = 1.0f, "f32 samples of U(low, high).");
  m.def(
      "normal",
      [](const Sizes& shape, std::uint64_t seed, float mean, float deviation) {
        const Where where = here();
        return Tensor::normal(shape.shape(where), seed, mean, deviation, where);
      },
      nb::arg("shape"), nb::arg("seed"), nb::arg("mean") = 0.0f, nb::arg("deviation") = 1.0f,
      "f32 samples of N(mean, deviation^2).");
}

}  // namespace

void bind_types(nb::module_& m) {
  m.def(
      "require_dtype",
      [](nb::handle dtype) {
        if (dtype_from(dtype)) return;
        const std::string text = nb::cast<std::string>(nb::repr(dtype));
        throw nb::type_error(
            (text + " is not a dtype of graphsink: float16, bfloat16, float32, float64, int32, int64, uint8 or bool")
                .c_str());
      },
      nb::arg("dtype"), "Raises TypeError for what names no dtype.");
  nb::class_<Where>(m, "Where", "A place in the user's source, and the scope that it belongs to.")
      .def_prop_ro("file", [](const Where& w) { return std::string(w.file_name()); })
      .def_prop_ro("line", &Where::line, "From 1; 0 where no line is known.")
      .def_prop_ro("scope", [](const Where& w) { return std::string(w.scope()); })
      .def("__repr__", [](const Where& w) { return to_string(w); });
  bind_devices(m);
  bind_mode(m);
  bind_dimensions(m);
  bind_tensor(m);
}

}  // namespace graphsink::python
