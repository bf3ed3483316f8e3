#include "arrays.h"

#include <nanobind/ndarray.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "casters.h"
#include "memory.h"

namespace graphsink::python {

namespace {

DType dtype_of_array(const AnyArray& array, const Where& where) {
  for (DType dtype : {f32, f64, i32, boolean, f16, bf16, i64, u8})
    if (array.dtype() == dlpack_dtype(dtype)) return dtype;
  throw Error("array", where,
              "the dtype (DLPack code " + std::to_string(array.dtype().code) + ", " +
                  std::to_string(array.dtype().bits) + " bits) is not one of graphsink",
              "convert the array, for example with .astype(numpy.float32)");
}

// Copies the elements of an array with steps of its own, row by row of the last axis.
void copy_strided(const AnyArray& array, std::size_t bytes, std::byte* to) {
  const std::size_t rank = array.ndim();
  const std::size_t row = rank == 0 ? 1 : array.shape(rank - 1);
  const std::int64_t step = rank == 0 ? 1 : array.stride(rank - 1);
  const auto* from = static_cast<const std::byte*>(array.data());
  std::vector<std::size_t> at(rank, 0);
  for (std::size_t done = 0; done < array.size(); done += row) {
    std::int64_t offset = 0;
    for (std::size_t d = 0; d + 1 < rank; ++d) offset += static_cast<std::int64_t>(at[d]) * array.stride(d);
    for (std::size_t i = 0; i < row; ++i, to += bytes)
      std::memcpy(to, from + (offset + static_cast<std::int64_t>(i) * step) * static_cast<std::int64_t>(bytes), bytes);
    for (std::size_t d = rank > 0 ? rank - 1 : 0; d-- > 0;) {
      if (++at[d] < array.shape(d)) break;
      at[d] = 0;
    }
  }
}

[[noreturn]] void refuse_device(const Where& where) {
  throw Error("array", where, "its memory is that of a device, not of the host",
              "give the program the memory itself with bind_memory(), or copy it to the host");
}

// Every byte but 0 means true, such as those of a view of other data as bool; ops count on 0 and 1.
void make_bools(Tensor& tensor) {
  std::byte* const bytes = tensor.data();
  for (std::size_t i = 0; i < tensor.bytes(); ++i) bytes[i] = static_cast<std::byte>(bytes[i] != std::byte{0});
}

// Whether it is an array of numpy.ma with elements that are not valid. Other arrays have no filled().
bool has_masked_elements(nb::handle object) {
  return nb::hasattr(object.type(), "filled") &&
         nb::cast<bool>(nb::module_::import_("numpy.ma").attr("is_masked")(object));
}

Tensor copy_of(const AnyArray& array, const Where& where) {
  if (array.device_type() != nb::device::cpu::value && array.device_type() != nb::device::cuda_host::value)
    refuse_device(where);
  Tensor tensor(type_of(array, where), where);
  if (tensor.bytes() == 0) return tensor;
  if (is_contiguous(array)) {
    std::memcpy(tensor.data(), array.data(), tensor.bytes());
  } else {
    copy_strided(array, size_of(tensor.dtype()), tensor.data());
  }
  if (tensor.dtype() == boolean) make_bools(tensor);
  return tensor;
}

}  // namespace

nb::dlpack::dtype dlpack_dtype(DType dtype) {
  using Code = nb::dlpack::dtype_code;
  Code code = Code::Float;
  if (dtype == bf16) code = Code::Bfloat;
  if (dtype == i32 || dtype == i64) code = Code::Int;
  if (dtype == u8) code = Code::UInt;
  if (dtype == boolean) code = Code::Bool;
  return {static_cast<std::uint8_t>(code), static_cast<std::uint8_t>(8 * size_of(dtype)), 1};
}

bool is_contiguous(const AnyArray& array) {
  if (array.size() == 0) return true;
  std::int64_t expected = 1;
  for (std::size_t d = array.ndim(); d-- > 0;) {
    if (array.shape(d) != 1 && array.stride(d) != expected) return false;
    expected *= static_cast<std::int64_t>(array.shape(d));
  }
  return true;
}

TensorType type_of(const AnyArray& array, const Where& where) {
  std::vector<std::int64_t> sizes;
  for (std::size_t d = 0; d < array.ndim(); ++d) sizes.push_back(static_cast<std::int64_t>(array.shape(d)));
  return {dtype_of_array(array, where), Shape(std::span<const std::int64_t>(sizes), where)};
}

Tensor to_tensor(nb::handle object, std::optional<DType> wanted, const Where& where) {
  if (nb::isinstance<Tensor>(object)) return *nb::inst_ptr<Tensor>(object);
  if (nb::isinstance<Value>(object)) {
    throw Error("array", where, "a Value of a graph has no elements before a program runs",
                "use gs.Eager, or make it an output() and ask the Program for it");
  }
  if (has_masked_elements(object))
    throw Error("array", where, "some of its elements are masked, which says that they are not valid",
                "give them numbers before, as array.filled(0) does");
  AnyArray array;
  if (nb::try_cast(object, array)) return copy_of(array, where);
  if (is_of_device(object)) refuse_device(where);
  // Numbers, lists of them, and NumPy's scalars and arrays of byte orders and dtypes that DLPack does not have.
  nb::object made = nb::module_::import_("graphsink._arrays")
                        .attr("from_numbers")(object, wanted ? dtype_object(*wanted) : nb::none());
  if (!nb::try_cast(made, array)) {
    throw Error("array", where,
                "no array of " + nb::cast<std::string>(nb::str(nb::object(made.attr("dtype")))) + " can be used",
                "convert it, for example with .astype(numpy.float32)");
  }
  Tensor tensor = copy_of(array, where);
  const bool is_bf16 =
      wanted == bf16 || (nb::hasattr(object, "dtype") && dtype_from(nb::object(object.attr("dtype"))) == bf16);
  return is_bf16 && tensor.dtype() == f32 ? tensor.to(bf16, where) : tensor;
}

Tensor to_tensor_of(nb::handle object, std::optional<DType> given, const char* op, const Where& where) {
  Tensor tensor = to_tensor(object, given.value_or(f32), where);
  if (!given || tensor.dtype() == *given) return tensor;
  const std::string seen(to_string(tensor.dtype())), wanted(to_string(*given));
  const std::string name = "gs." + (*given == boolean ? "boolean" : wanted);
  const bool is_tensor = nb::isinstance<Tensor>(object);
  throw Error(op, where, "the array is of " + seen + ", which it keeps, and the dtype is given as " + wanted,
              "convert it before, with " +
                  (is_tensor        ? ".to(" + name + ")"
                   : *given == bf16 ? "gs.Tensor(array, gs.bf16)"
                                    : ".astype(" + name + ")") +
                  ", or give no dtype");
}

nb::object array_of(void* memory, const TensorType& type, nb::handle owner, bool is_writable) {
  std::vector<std::size_t> sizes;
  for (std::int64_t size : type.shape.dims()) sizes.push_back(static_cast<std::size_t>(size));
  const nb::dlpack::dtype dtype = dlpack_dtype(type.dtype);
  if (is_writable)
    return nb::cast(nb::ndarray<nb::numpy>(memory, sizes.size(), sizes.data(), owner, nullptr, dtype),
                    nb::rv_policy::reference);
  return nb::cast(nb::ndarray<nb::numpy, nb::ro>(memory, sizes.size(), sizes.data(), owner, nullptr, dtype),
                  nb::rv_policy::reference);
}

nb::object aligned_array(const void* elements, const TensorType& type) {
  constexpr std::align_val_t kAlignment{64};
  void* copied = ::operator new(std::max<std::size_t>(type.bytes(), 1), kAlignment);
  nb::capsule owner(copied, [](void* made) noexcept { ::operator delete(made, kAlignment); });
  if (type.bytes() > 0) std::memcpy(copied, elements, type.bytes());
  return array_of(copied, type, owner, true);
}

nb::object to_array(Tensor&& tensor) {
  auto kept = std::make_unique<Tensor>(tensor.dtype() == bf16 ? tensor.to(f32) : std::move(tensor));
  Tensor& of = *kept;
  nb::capsule owner(kept.release(), [](void* memory) noexcept { delete static_cast<Tensor*>(memory); });
  return array_of(of.data(), of.type(), owner, true);
}

}  // namespace graphsink::python
