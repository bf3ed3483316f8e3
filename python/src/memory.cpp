#include "memory.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "arrays.h"
#include "bindings.h"
#include "streams.h"

namespace graphsink::python {

namespace {

// The beginning of DLManagedTensorVersioned of DLPack. Only these members have their places in every version.
struct VersionedHead {
  std::uint32_t major, minor;
  void* context;
  void (*deleter)(VersionedHead*);
  std::uint64_t flags;
};
constexpr std::uint64_t kReadOnly = 1;
constexpr const char* kVersioned = "dltensor_versioned";
constexpr std::uint32_t kMajor = 1;

[[noreturn]] void refuse(const Where& where, const std::string& problem, const std::string& remedy) {
  throw Error("bind_memory", where, problem, remedy);
}

bool has(nb::handle object, const char* name) { return PyObject_HasAttrString(object.ptr(), name) != 0; }

// Waits for what the stream of an array was given so far.
void wait_for(std::uintptr_t stream, DeviceId device, const Where& where) {
  wait_for_stream(stream, device, "bind_memory", "the array",
                  "end captures before, and pass an array whose stream exists", where);
}

// Makes the object's library order its work before what the caller does next: see memory_of().
nb::object dlpack_capsule(nb::handle object, std::uintptr_t stream) {
  nb::object give = object.attr("__dlpack__");
  try {
    return give(nb::arg("stream") = stream, nb::arg("max_version") = nb::make_tuple(1, 0));
  } catch (nb::python_error& error) {
    if (!error.matches(PyExc_TypeError)) throw;
  }
  return give(nb::arg("stream") = stream);  // a library that is older than versions
}

GivenMemory from_array(const AnyArray& array, bool is_read_only, nb::handle owner, const Where& where) {
  auto* kept = new AnyArray(array);
  nb::capsule deleter(kept, [](void* of) noexcept { delete static_cast<AnyArray*>(of); });
  return {const_cast<void*>(array.data()), type_of(array, where), is_contiguous(array), is_read_only,
          nb::make_tuple(owner, deleter)};
}

bool is_host(int kind) { return kind == nb::device::cpu::value || kind == nb::device::cuda_host::value; }

GivenMemory of_capsule(const nb::object& capsule, nb::handle owner, bool is_wanted_of_host, const Where& where) {
  bool is_read_only = false;
  if (PyCapsule_IsValid(capsule.ptr(), kVersioned) != 0) {
    const auto* head = static_cast<const VersionedHead*>(PyCapsule_GetPointer(capsule.ptr(), kVersioned));
    if (head->major != kMajor) {
      refuse(where, "the array is of version " + std::to_string(head->major) + " of DLPack",
             "pass one of version 1, which was asked for");
    }
    is_read_only = (head->flags & kReadOnly) != 0;
  }
  AnyArray array;
  if (!nb::try_cast(capsule, array))
    refuse(where, "there is no tensor of DLPack in the capsule", "pass an array of PyTorch, JAX or CuPy");
  if (is_host(array.device_type()) != is_wanted_of_host)
    refuse(where, "the capsule has memory of another device", "pass an array in memory of the program's device");
  return from_array(array, is_read_only, owner, where);
}

// The dtype that a typestr such as "<f4" names. Throws Error for another one.
DType dtype_of_typestr(const std::string& typestr, const Where& where) {
  constexpr std::pair<std::string_view, DType> kKnown[] = {{"f4", f32}, {"f8", f64}, {"f2", f16},    {"i4", i32},
                                                           {"i8", i64}, {"u1", u8},  {"b1", boolean}};
  const bool is_of_this_machine = typestr.starts_with('<') || typestr.starts_with('|');
  for (const auto& [name, dtype] : kKnown)
    if (is_of_this_machine && std::string_view(typestr).substr(1) == name) return dtype;
  refuse(where, "the dtype \"" + typestr + "\" of the CUDA array interface is not one of graphsink",
         "convert the array");
}

// Whether strides in bytes are those of row-major order without gaps.
bool is_row_major(const std::vector<std::int64_t>& sizes, const std::vector<std::int64_t>& strides, std::size_t bytes) {
  auto expected = static_cast<std::int64_t>(bytes);
  for (std::size_t d = sizes.size(); d-- > 0;) {
    if (sizes[d] != 1 && strides[d] != expected) return false;
    expected *= sizes[d];
  }
  return true;
}

// What the CUDA array interface says in one field. Throws Error if there is none of that type.
template <class T>
T field(const nb::dict& interface, const char* name, const Where& where) {
  T value{};
  if (!interface.contains(name) || !nb::try_cast(nb::object(interface[name]), value))
    refuse(where, "__cuda_array_interface__ has no usable \"" + std::string(name) + "\"",
           "pass an array of CuPy, Numba or PyTorch");
  return value;
}
bool is_there(const nb::dict& interface, const char* name) {
  return interface.contains(name) && !nb::object(interface[name]).is_none();
}

std::vector<std::int64_t> numbers(const nb::dict& interface, const char* name, const Where& where) {
  std::vector<std::int64_t> all;
  for (nb::handle each : field<nb::tuple>(interface, name, where)) {
    std::int64_t number = 0;
    if (!nb::try_cast(each, number)) field<std::string>({}, name, where);
    all.push_back(number);
  }
  return all;
}

GivenMemory by_interface(nb::handle object, DeviceId device, std::optional<cudaStream_t> stream, const Where& where) {
  const nb::dict interface = nb::cast<nb::dict>(object.attr("__cuda_array_interface__"));
  if (is_there(interface, "mask")) {
    refuse(where, "the array has a mask, which says that some of its elements are not valid",
           "fill these, and pass an array without a mask");
  }
  const std::vector<std::int64_t> sizes = numbers(interface, "shape", where);
  const nb::tuple data = field<nb::tuple>(interface, "data", where);
  std::uintptr_t address = 0;
  if (nb::len(data) != 2 || !nb::try_cast(data[0], address)) field<std::string>({}, "data", where);
  GivenMemory memory;
  memory.begin = reinterpret_cast<void*>(address);
  memory.type = {dtype_of_typestr(field<std::string>(interface, "typestr", where), where),
                 Shape(std::span<const std::int64_t>(sizes), where)};
  memory.is_contiguous = true;
  if (is_there(interface, "strides")) {
    const std::vector<std::int64_t> strides = numbers(interface, "strides", where);
    if (strides.size() != sizes.size()) field<std::string>({}, "strides", where);
    memory.is_contiguous = is_row_major(sizes, strides, size_of(memory.type.dtype));
  }
  memory.is_read_only = nb::cast<bool>(data[1]);
  memory.owner = nb::borrow(object);
  if (is_there(interface, "stream")) {
    const auto given = field<std::uintptr_t>(interface, "stream", where);
    if (given == 0) refuse(where, "the stream 0 of __cuda_array_interface__ is ambiguous", "say 1 or 2");
    if (!stream || number_of_stream(*stream) != given) wait_for(given, device, where);
  }
  return memory;
}

GivenMemory of_host(nb::handle object, bool is_written, const Where& where) {
  if (PyCapsule_CheckExact(object.ptr())) return of_capsule(nb::borrow(object), object, true, where);
  AnyArray array;
  if (!nb::try_cast(object, array)) {
    refuse(where, "the object gives no memory by DLPack or the buffer protocol",
           "pass an array of NumPy, PyTorch, JAX or CuPy, or copy=True");
  }
  nb::ndarray<> writable;
  const bool is_read_only = is_written && !nb::try_cast(object, writable);
  return from_array(array, is_read_only, object, where);
}

// The device of an object, as DLPack numbers kinds and devices.
std::pair<int, int> dlpack_device(nb::handle object) {
  if (has(object, "__dlpack_device__")) {
    const nb::tuple device = nb::cast<nb::tuple>(object.attr("__dlpack_device__")());
    return {nb::cast<int>(nb::int_(nb::object(device[0]))), nb::cast<int>(device[1])};
  }
  if (has(object, "__cuda_array_interface__")) return {nb::device::cuda::value, -1};
  return {nb::device::cpu::value, 0};
}

}  // namespace

bool is_of_device(nb::handle object) { return !is_host(dlpack_device(object).first); }

GivenMemory memory_of(nb::handle object, DeviceId device, bool is_written, std::optional<cudaStream_t> stream,
                      const Where& where) {
  if (PyCapsule_CheckExact(object.ptr()) && device.kind != DeviceKind::cpu)
    refuse(where, "a capsule alone does not say which work it waits for", "pass the array itself");
  const auto [kind, index] = dlpack_device(object);
  const bool is_of_cuda = kind == nb::device::cuda::value || kind == nb::device::cuda_managed::value;
  if (is_host(kind) != (device.kind == DeviceKind::cpu) || is_of_cuda == is_host(kind) ||
      (is_of_cuda && index >= 0 && index != device.index)) {
    const std::string seen = is_host(kind)              ? "the host"
                             : is_of_cuda && index >= 0 ? to_string(cuda(index))
                                                        : "another device";
    refuse(where, "the array is in memory of " + seen + ", and the program runs on " + to_string(device),
           "pass an array in memory of that device");
  }
  if (is_host(kind)) return of_host(object, is_written, where);
  if (!has(object, "__dlpack__")) return by_interface(object, device, stream, where);
  const nb::object capsule = dlpack_capsule(object, number_of_stream(stream.value_or(nullptr)));
  GivenMemory memory = of_capsule(capsule, object, false, where);
  if (!stream) wait_for(kLegacyStream, device, where);
  return memory;
}

}  // namespace graphsink::python
