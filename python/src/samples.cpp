#include "samples.h"

#include <nanobind/stl/pair.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "arrays.h"
#include "casters.h"
#include "gil.h"
#include "interpreter.h"

namespace graphsink::python {

namespace {

// A dict, or what stands for one in libraries of data sets, such as a collections.UserDict.
bool is_mapping(nb::handle sample) {
  if (nb::isinstance<nb::dict>(sample)) return true;
  const nb::object mapping = nb::module_::import_("collections.abc").attr("Mapping");
  const int is_one = PyObject_IsInstance(sample.ptr(), mapping.ptr());
  if (is_one < 0) nb::raise_python_error();
  return is_one == 1;
}

nb::object part_of(nb::handle sample, const std::vector<Field>& fields, std::size_t i, const std::string& what,
                   const Where& where) {
  if (nb::isinstance<nb::tuple>(sample) || nb::isinstance<nb::list>(sample)) {
    if (nb::len(sample) != fields.size()) {
      throw Error(what, where,
                  "the sample has " + std::to_string(nb::len(sample)) + " parts for " + std::to_string(fields.size()) +
                      " fields",
                  "return one array for each field");
    }
    return nb::steal(PySequence_GetItem(sample.ptr(), static_cast<Py_ssize_t>(i)));
  }
  if (is_mapping(sample)) {
    const nb::str name(fields[i].name.data(), fields[i].name.size());
    const int has = PySequence_Contains(sample.ptr(), name.ptr());
    if (has < 0) nb::raise_python_error();
    if (has == 0)
      throw Error(what, where, "the sample has no \"" + fields[i].name + "\"", "return a dict with all of the fields");
    return sample[name];
  }
  if (fields.size() != 1)
    throw Error(what, where, "the sample is one array for several fields", "return a dict or a tuple of arrays");
  return nb::borrow(sample);
}

}  // namespace

bool MakingSample::is_for(const void* loader) noexcept {
  for (const MakingSample* each = innermost(); each != nullptr; each = each->outer_)
    if (each->loader_ == loader) return true;
  return false;
}

const MakingSample*& MakingSample::innermost() noexcept {
  thread_local const MakingSample* made = nullptr;
  return made;
}

std::shared_ptr<const Source> source_for(const void* loader, const SourceHandle& handle, const Where& where) {
  if (!handle.function.is_valid()) return handle.source;
  const auto read = [loader, source = handle.source, where](std::int64_t index, SampleMemory to) {
    const MakingSample here(loader);
    source->read(index, to, where);
  };
  return function_source(handle.source->size(), handle.source->fields(), read, where);
}

static std::string text_of(nb::handle object) { return nb::cast<std::string>(nb::str(object)); }

std::vector<Field> fields_of(const nb::dict& fields) {
  std::vector<Field> all;
  for (auto [name, type] : fields) {
    const std::string field = "the field \"" + nb::cast<std::string>(name) + "\" is ";
    std::pair<nb::object, nb::object> parts;
    Sizes sizes;
    if (!nb::try_cast(type, parts) || !nb::try_cast(parts.second, sizes))
      throw Error("source", here(), field + "described by " + text_of(type) + ", not by a dtype and a shape",
                  "give both, such as (gs.f32, (784,))");
    const std::optional<DType> dtype = dtype_from(parts.first);
    if (!dtype)
      throw Error("source", here(), field + "of " + text_of(parts.first) + ", which is no dtype of graphsink",
                  "convert the samples, for example with .astype(numpy.int32)");
    all.push_back({nb::cast<std::string>(name), {*dtype, sizes.shape(here())}});
  }
  return all;
}

nb::dict fields_dict(const std::vector<Field>& fields) {
  nb::dict all;
  for (const Field& field : fields)
    all[nb::str(field.name.data(), field.name.size())] = nb::make_tuple(field.type.dtype, field.type.shape);
  return all;
}

// NumPy has no bf16: a sample of it is an array of float32 to a function of Python, which may return it as it is. Other
// tensors, and numbers that bf16 does not hold, stay what they are.
static Tensor exact_bf16(Tensor tensor, DType wanted) {
  if (wanted != bf16 || tensor.dtype() != f32) return tensor;
  const Tensor rounded = tensor.to(bf16), again = rounded.to(f32);
  const std::span<const float> before = tensor.as<float>(), after = again.as<float>();
  const bool is_exact = std::equal(before.begin(), before.end(), after.begin(),
                                   [](float a, float b) { return a == b || (std::isnan(a) && std::isnan(b)); });
  return is_exact ? rounded : tensor;
}

void copy_sample(nb::handle sample, const std::vector<Field>& fields, SampleMemory to, const std::string& what,
                 const Where& where) {
  for (std::size_t i = 0; i < fields.size(); ++i) {
    const Tensor tensor = exact_bf16(to_tensor(part_of(sample, fields, i, what, where), fields[i].type.dtype, where),
                                     fields[i].type.dtype);
    if (tensor.type() != fields[i].type) {
      throw Error(what, where,
                  "\"" + fields[i].name + "\" is " + to_string(tensor.type()) + ", not " + to_string(fields[i].type),
                  "return arrays of the types of the fields");
    }
    if (tensor.bytes() > 0) std::memcpy(to[i].data(), tensor.data(), tensor.bytes());
  }
}

void name_sample(std::int64_t index, const std::function<void()>& make) {
  const std::string name = "sample " + std::to_string(index);
  try {
    make();
  } catch (const Error& e) {
    throw Error(e.op(), e.where(), name + ": " + e.problem(), e.remedy(), e.code());
  } catch (nb::python_error& e) {
    const nb::str note(("graphsink: " + name + " of the source").c_str());
    bool is_noted = !nb::hasattr(e.value(), "add_note");  // which Python has from 3.11 on
    for (nb::handle each : nb::getattr(e.value(), "__notes__", nb::make_tuple()))
      is_noted = is_noted || text_of(each).starts_with("graphsink: sample ");
    if (!is_noted) e.value().attr("add_note")(note);
    throw;
  }
}

nb::dict sample_dict(const std::vector<Field>& fields, SampleMemory from) {
  nb::dict sample;
  for (std::size_t i = 0; i < fields.size(); ++i) {
    Tensor tensor(fields[i].type);
    if (tensor.bytes() > 0) std::memcpy(tensor.data(), from[i].data(), tensor.bytes());
    sample[nb::str(fields[i].name.data(), fields[i].name.size())] = to_array(std::move(tensor));
  }
  return sample;
}

Prepare prepare_of(const void* loader, nb::handle function, const std::vector<Field>& from,
                   const std::vector<Field>& to, const Where& where) {
  if (function.is_none()) return {};
  return [loader, function, from, to, where](const SampleKey& key, SampleMemory read, SampleMemory made) {
    require_running("prepare", where);
    const MakingSample here(loader);
    WithGil gil;
    const nb::dict sample = sample_dict(from, read);
    name_sample(key.sample,
                [&] { copy_sample(ending_here([&] { return function(key, sample); }), to, made, "prepare", where); });
  };
}

std::function<void()> while_waiting_of(nb::handle function) {
  return [function] {
    WithGil gil;
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
    if (!function.is_none()) ending_here([&] { function(); });
  };
}

}  // namespace graphsink::python
