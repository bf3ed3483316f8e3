#include "memory.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>

#include <algorithm>
#include <array>
#include <charconv>
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
  if (std::find(sizes.begin(), sizes.end(), 0) != sizes.end()) return true;
  auto expected = static_cast<std::int64_t>(bytes);
  for (std::size_t d = sizes.size(); d-- > 0;) {
    if (sizes[d] != 1 && strides[d] != expected) return false;
    expected *= sizes[d];
  }
  return true;
}

// __cuda_array_interface__ of an array, for a call `op` of the caller's. Its functions throw Error for what is not
// there.
class ArrayInterface {
 public:
  ArrayInterface(nb::handle array, const char* op, const Where& where) : op_(op), where_(where) {
    const nb::object given = array.attr("__cuda_array_interface__");
    if (!nb::isinstance<nb::dict>(given)) refuse("__cuda_array_interface__ is no dict");
    fields_ = nb::borrow<nb::dict>(given);
    sizes_ = numbers("shape");
    const nb::tuple data = field<nb::tuple>("data");
    if (nb::len(data) != 2 || !nb::try_cast(data[0], first_)) refuse_field("data");
    const int is_true = PyObject_IsTrue(nb::object(data[1]).ptr());
    if (is_true < 0) throw nb::python_error();
    is_read_only_ = is_true != 0;
    typestr_ = field<std::string>("typestr");
    if (!is_there("strides")) return;
    strides_ = numbers("strides");
    if (strides_->size() != sizes_.size()) refuse_field("strides");
  }

  bool is_there(const char* name) const { return fields_.contains(name) && !nb::object(fields_[name]).is_none(); }
  template <class T>
  T field(const char* name) const {
    T value{};
    if (!fields_.contains(name) || !nb::try_cast(nb::object(fields_[name]), value)) refuse_field(name);
    return value;
  }
  std::uintptr_t first() const { return first_; }  // the address of the first element
  bool is_read_only() const { return is_read_only_; }
  const std::string& typestr() const { return typestr_; }
  const std::vector<std::int64_t>& sizes() const { return sizes_; }
  const std::optional<std::vector<std::int64_t>>& strides() const { return strides_; }  // in bytes

  // The bytes of an element, which end the typestr.
  std::int64_t bytes_of_element() const {
    std::int64_t bytes = 0;
    const char* end = typestr_.data() + typestr_.size();
    if (typestr_.size() < 3 || std::from_chars(typestr_.data() + 2, end, bytes).ptr != end) refuse_field("typestr");
    return bytes;
  }

 private:
  [[noreturn]] void refuse(const std::string& problem) const {
    throw Error(op_, where_, problem, "pass an array of CuPy, Numba or PyTorch");
  }
  [[noreturn]] void refuse_field(const char* name) const {
    refuse("__cuda_array_interface__ has no usable \"" + std::string(name) + "\"");
  }
  std::vector<std::int64_t> numbers(const char* name) const {
    std::vector<std::int64_t> all;
    for (nb::handle each : field<nb::tuple>(name)) {
      std::int64_t number = 0;
      if (!nb::try_cast(each, number)) refuse_field(name);
      all.push_back(number);
    }
    return all;
  }

  const char* op_;
  Where where_;
  nb::dict fields_;
  std::uintptr_t first_ = 0;
  bool is_read_only_ = false;
  std::string typestr_;
  std::vector<std::int64_t> sizes_;
  std::optional<std::vector<std::int64_t>> strides_{};
};

GivenMemory by_interface(nb::handle object, DeviceId device, std::optional<cudaStream_t> stream, const Where& where) {
  const ArrayInterface interface(object, "bind_memory", where);
  if (interface.is_there("mask")) {
    refuse(where, "the array has a mask, which says that some of its elements are not valid",
           "fill these, and pass an array without a mask");
  }
  GivenMemory memory;
  memory.begin = reinterpret_cast<void*>(interface.first());
  memory.type = {dtype_of_typestr(interface.typestr(), where),
                 Shape(std::span<const std::int64_t>(interface.sizes()), where)};
  memory.is_contiguous =
      !interface.strides() || is_row_major(interface.sizes(), *interface.strides(), size_of(memory.type.dtype));
  memory.is_read_only = interface.is_read_only();
  memory.owner = nb::borrow(object);
  if (interface.is_there("stream")) {
    const auto given = interface.field<std::uintptr_t>("stream");
    if (given == 0) refuse(where, "the stream 0 of __cuda_array_interface__ is ambiguous", "say 1 or 2");
    if (!stream || number_of_stream(*stream) != given) wait_for(given, device, where);
  } else if (!stream) {
    wait_for(kLegacyStream, device, where);  // it does not say where its work is
  }
  return memory;
}

// The bytes from the first element to the last one. `axes` are sizes and distances in bytes.
MemoryRange range_of_axes(std::uintptr_t first, std::int64_t element,
                          const std::vector<std::array<std::int64_t, 2>>& axes) {
  std::int64_t low = 0, high = element;
  for (const auto& [size, stride] : axes) {
    if (size == 0) return {reinterpret_cast<const void*>(first), 0};
    (stride < 0 ? low : high) += (size - 1) * stride;
  }
  return {reinterpret_cast<const void*>(first + static_cast<std::uintptr_t>(low)),
          static_cast<std::size_t>(high - low)};
}

GivenMemory of_host(nb::handle object, const Where& where) {
  if (PyCapsule_CheckExact(object.ptr())) return of_capsule(nb::borrow(object), object, true, where);
  AnyArray array;
  if (!nb::try_cast(object, array)) {
    refuse(where, "the object gives no memory by DLPack or the buffer protocol",
           "pass an array of NumPy, PyTorch, JAX or CuPy, or copy=True; a tensor of PyTorch that requires a gradient "
           "gives its memory behind detach()");
  }
  nb::ndarray<> writable;
  const bool is_read_only = !nb::try_cast(object, writable);
  return from_array(array, is_read_only, object, where);
}

// The device of an object, as DLPack numbers kinds and devices.
std::pair<int, int> dlpack_device(nb::handle object) {
  if (has(object, "__dlpack_device__")) {
    const nb::object device = object.attr("__dlpack_device__")();
    const bool is_sequence = nb::isinstance<nb::tuple>(device) || nb::isinstance<nb::list>(device);
    std::int64_t kind = 0;
    std::int64_t index = 0;
    if (!is_sequence || nb::len(device) != 2 || PyIndex_Check(nb::object(device[0]).ptr()) == 0 ||
        !nb::try_cast(nb::object(nb::int_(nb::object(device[0]))), kind) || !nb::try_cast(nb::object(device[1]), index))
      throw nb::type_error("__dlpack_device__() of the array returns no tuple of two integers");
    return {static_cast<int>(kind), static_cast<int>(index)};
  }
  if (has(object, "__cuda_array_interface__")) return {nb::device::cuda::value, -1};
  return {nb::device::cpu::value, 0};
}

}  // namespace

std::optional<MemoryRange> range_of(nb::handle array, const char* op, const Where& where) {
  std::vector<std::array<std::int64_t, 2>> axes;
  if (has(array, "__cuda_array_interface__")) {
    const ArrayInterface interface(array, op, where);
    const std::vector<std::int64_t>& sizes = interface.sizes();
    const std::int64_t element = interface.bytes_of_element();
    axes.resize(sizes.size());
    std::int64_t stride = element;
    for (std::size_t d = sizes.size(); d-- > 0;) {
      axes[d] = {sizes[d], interface.strides() ? (*interface.strides())[d] : stride};
      stride *= sizes[d];
    }
    return range_of_axes(interface.first(), element, axes);
  }
  AnyArray found;
  if (!nb::try_cast(array, found)) return {};
  const auto element = static_cast<std::int64_t>(found.itemsize());
  for (std::size_t d = 0; d < found.ndim(); ++d)
    axes.push_back({static_cast<std::int64_t>(found.shape(d)), found.stride(d) * element});
  return range_of_axes(reinterpret_cast<std::uintptr_t>(found.data()), element, axes);
}

bool is_of_device(nb::handle object) { return !is_host(dlpack_device(object).first); }

GivenMemory memory_of(nb::handle object, DeviceId device, std::optional<cudaStream_t> stream, const Where& where) {
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
  if (is_host(kind)) return of_host(object, where);
  if (!has(object, "__dlpack__")) return by_interface(object, device, stream, where);
  const nb::object capsule = dlpack_capsule(object, number_of_stream(stream.value_or(nullptr)));
  GivenMemory memory = of_capsule(capsule, object, false, where);
  if (!stream) wait_for(kLegacyStream, device, where);
  return memory;
}

}  // namespace graphsink::python
