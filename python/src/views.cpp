#include "views.h"

#include <nanobind/ndarray.h>

#include <cstddef>
#include <vector>

#include "bindings.h"
#include "streams.h"

namespace graphsink::python {

namespace {

int dlpack_kind(DeviceId device) {
  return device.kind == DeviceKind::cpu ? nb::device::cpu::value : nb::device::cuda::value;
}

template <class... Flags>
nb::object array_of_device(const ViewedMemory& memory) {
  std::vector<std::size_t> sizes;
  for (std::int64_t size : memory.type.shape.dims()) sizes.push_back(static_cast<std::size_t>(size));
  const nb::ndarray<nb::array_api, Flags...> array(memory.begin, sizes.size(), sizes.data(), keeper(memory.owner),
                                                   nullptr, dlpack_dtype(memory.type.dtype), dlpack_kind(memory.device),
                                                   memory.device.index);
  return nb::cast(array, nb::rv_policy::reference);
}

}  // namespace

nb::capsule keeper(const std::shared_ptr<const void>& owner) {
  return {new std::shared_ptr<const void>(owner), [](void* kept) noexcept {
            WithoutGil others_run;  // memory of a device is freed behind its work
            delete static_cast<std::shared_ptr<const void>*>(kept);
          }};
}

std::optional<std::uintptr_t> stream_of_reader(nb::handle stream, DeviceId device) {
  if (stream.is_none()) return kLegacyStream;
  std::int64_t number = 0;
  if (!nb::try_cast(stream, number)) throw nb::type_error("__dlpack__(): stream is an integer or None");
  if (device.kind == DeviceKind::cpu) throw nb::value_error("__dlpack__(): memory of the host has no stream");
  if (number == -1) return {};
  if (number <= 0) throw nb::value_error("__dlpack__(): stream 0 is ambiguous; say 1 or 2, or an address");
  return static_cast<std::uintptr_t>(number);
}

nb::tuple dlpack_device_of(DeviceId device) { return nb::make_tuple(dlpack_kind(device), device.index); }

nb::object dlpack_of(const ViewedMemory& memory, nb::handle max_version, nb::handle dl_device, nb::handle copy) {
  const nb::object array = memory.is_read_only ? array_of_device<nb::ro>(memory) : array_of_device<>(memory);
  return array.attr("__dlpack__")(nb::arg("max_version") = max_version, nb::arg("dl_device") = dl_device,
                                  nb::arg("copy") = copy);
}

void require_cuda_array(const ViewedMemory& memory) {
  if (memory.device.kind == DeviceKind::cpu || memory.type.dtype == bf16)
    throw nb::attribute_error("the CUDA array interface has neither memory of the host nor bf16: use __dlpack__()");
}

nb::dict cuda_array_interface_of(const ViewedMemory& memory, nb::handle stream) {
  nb::dict interface;
  interface["shape"] = shape_object(memory.type.shape);
  interface["typestr"] = dtype_object(memory.type.dtype).attr("str");
  const std::uintptr_t address = memory.type.bytes() == 0 ? 0 : reinterpret_cast<std::uintptr_t>(memory.begin);
  interface["data"] = nb::make_tuple(address, memory.is_read_only);
  interface["strides"] = nb::none();
  interface["stream"] = stream;
  interface["version"] = 3;
  return interface;
}

}  // namespace graphsink::python
