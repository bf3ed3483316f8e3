// gs.StreamLoader: batches of samples for work that Python code gives to a CUDA stream. graphsink/_data.py makes its
// source.
#include "graphsink/stream_loader.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "bindings.h"
#include "garbage.h"
#include "log.h"
#include "samples.h"
#include "streams.h"
#include "views.h"

namespace graphsink::python {

namespace {

// The memory of a field, and the stream that orders what is written to it.
struct BatchMemory {
  BatchMemory(ViewedMemory of, std::uintptr_t number_of, nb::object given)
      : memory(std::move(of)), number(number_of), stream(std::move(given)) {}
  BatchMemory(BatchMemory&&) = default;
  ~BatchMemory() {
    if (memory.owner == nullptr) return;
    WithoutGil others_run;  // it may be freed, behind the work of the device
    memory.owner.reset();
  }

  template <class Visit>
  void visit_owned(Visit visit) {
    visit(stream);
  }

  ViewedMemory memory;
  std::uintptr_t number;  // number of the stream
  nb::object stream;      // as the caller gave it
};

class StreamLoaderHandle : public LoaderHandleOf<StreamLoader> {
 public:
  StreamLoaderHandle(nb::handle stream, DeviceId device, nb::handle log)
      : device_(device), stream_(stream_of(stream).value_or(nullptr)), log_(std::make_shared<nb::handle>(log)) {}
  ~StreamLoaderHandle() { close(); }

  void make(const SourceHandle& source, const SampleOrder& order, StreamLoaderOptions options, const Where& where) {
    options.log = log_function(log_);
    const std::shared_ptr<const Source> read = source_for(this, source, where);
    WithoutGil others_run;
    loader = std::make_unique<StreamLoader>(stream_, read, order, options, where);
  }

  // Memory that arrays keep tells the log function, too, where it cannot be freed: not any more.
  void close() {
    LoaderHandleOf::close();
    *log_ = {};
  }

  void end() {
    const Call call(*this, here());
    close();
  }

  BatchMemory data(const std::string& name) {
    const Where where = here();
    StreamLoader& of = open(where);
    const std::vector<Field>& fields = of.fields(where);
    const auto field = std::find_if(fields.begin(), fields.end(), [&](const Field& each) { return each.name == name; });
    if (field == fields.end()) (void)of.data<float>(name, where);  // throws Error
    std::vector<std::int64_t> sizes{of.most_samples(where)};
    for (std::int64_t size : field->type.shape.dims()) sizes.push_back(size);
    void* begin = address<float, double, half, bfloat16, std::int32_t, std::int64_t, std::uint8_t, bool>(*field, where);
    const TensorType type{field->type.dtype, Shape(std::span<const std::int64_t>(sizes), where)};
    return {{begin, type, device_, false, of.memory(where)}, number_of_stream(stream_), used.front()};
  }

 private:
  // The address of a field whose dtype is that of one of the types.
  template <class... T>
  void* address(const Field& field, const Where& where) {
    void* found = nullptr;
    const auto take = [&]<class Each>(Each*) {
      if (field.type.dtype == dtype_of<Each>()) found = loader->data<Each>(field.name, where);
    };
    (take(static_cast<T*>(nullptr)), ...);
    return found;
  }

  DeviceId device_;
  cudaStream_t stream_;
  std::shared_ptr<nb::handle> log_;  // its object is among those that are used
};

void make_stream_loader(StreamLoaderHandle* self, nb::handle stream, nb::handle source_object, const SampleOrder& order,
                        int workers, int ahead, nb::handle prepare, std::uint64_t seed, nb::handle fields,
                        const std::optional<std::string>& mask, std::int64_t most_samples, int device, nb::handle log,
                        nb::handle while_waiting) {
  const Where where = here();
  const auto& source = nb::cast<const SourceHandle&>(source_object);
  StreamLoaderOptions options{.workers = workers,
                              .ahead = ahead,
                              .seed = seed,
                              .while_waiting = while_waiting_of(while_waiting),
                              .mask = mask.value_or(""),
                              .most_samples = most_samples,
                              .device = device};
  if (!fields.is_none()) options.fields = fields_of(nb::cast<nb::dict>(fields));
  const std::vector<Field>& made = options.fields.empty() ? source.source->fields() : options.fields;
  options.prepare = prepare_of(self, prepare, source.source->fields(), made, where);
  auto* handle = new (self) StreamLoaderHandle(stream, cuda(device), log);
  try {
    handle->used = {nb::borrow(stream), nb::borrow(source_object), nb::borrow(prepare), nb::borrow(log),
                    nb::borrow(while_waiting)};
    handle->make(source, order, std::move(options), where);
  } catch (...) {
    handle->~StreamLoaderHandle();
    throw;
  }
}

nb::object give_dlpack(const BatchMemory& self, nb::handle stream, nb::handle max_version, nb::handle dl_device,
                       nb::handle copy) {
  const std::optional<std::uintptr_t> reader = stream_of_reader(stream, self.memory.device);
  if (reader && *reader != self.number) {
    wait_for_stream(self.number, self.memory.device, "StreamLoader", "the loader",
                    "call __dlpack__() before a capture, and as long as the stream exists", here());
  }
  return dlpack_of(self.memory, max_version, dl_device, copy);
}

void bind_batch_memory(nb::module_& m) {
  nb::class_<BatchMemory>(
      m, "BatchMemory",
      "Device memory of StreamLoader.data(), for from_dlpack() of PyTorch, JAX and CuPy, and for what reads "
      "__cuda_array_interface__. It may be written to. What is made of it keeps the memory, also without the loader.",
      nb::type_slots(OwnedObjects<BatchMemory>::slots))
      .def_prop_ro("dtype", [](const BatchMemory& self) { return self.memory.type.dtype; })
      .def_prop_ro("shape", [](const BatchMemory& self) { return self.memory.type.shape; })
      .def("__dlpack__", give_dlpack, nb::kw_only(), nb::arg("stream").none() = nb::none(),
           nb::arg("max_version").none() = nb::none(), nb::arg("dl_device").none() = nb::none(),
           nb::arg("copy").none() = nb::none(),
           nb::sig("def __dlpack__(self, *, stream: int | None = None, max_version: tuple[int, int] | None = None, "
                   "dl_device: tuple[int, int] | None = None, copy: bool | None = None) -> typing.Any"),
           "A capsule. The batches are written in the order of the loader's stream: for another one, and None, which "
           "is the legacy stream, waits on the host for the batches that next() has brought so far; later ones are "
           "for the loader's stream alone. Does not wait if stream is -1.")
      .def(
          "__dlpack_device__", [](const BatchMemory& self) { return dlpack_device_of(self.memory.device); },
          nb::sig("def __dlpack_device__(self) -> tuple[int, int]"))
      .def_prop_ro(
          "__cuda_array_interface__",
          [](const BatchMemory& self) {
            require_cuda_array(self.memory);
            return cuda_array_interface_of(self.memory, nb::int_(self.number));
          },
          nb::sig("def __cuda_array_interface__(self) -> dict[str, typing.Any]"),
          "Version 3. Its stream is that of the loader.")
      .def("__repr__", [](const BatchMemory& self) {
        return "BatchMemory(" + to_string(self.memory.type) + ", " + to_string(self.memory.device) + ")";
      });
}

}  // namespace

void bind_stream_loader(nb::module_& m) {
  bind_batch_memory(m);
  nb::class_<StreamLoaderReport, LoaderReport>(
      m, "StreamLoaderReport", "Counts of what a StreamLoader did, for which each batch is a launch; str() says it.")
      .def_ro("copies", &StreamLoaderReport::copies)
      .def_ro("copied_bytes", &StreamLoaderReport::copied_bytes)
      .def_ro("copied_ahead", &StreamLoaderReport::copied_ahead)
      .def("__str__", [](const StreamLoaderReport& report) { return to_string(report); });
  const StreamLoaderOptions defaults;
  using Handle = StreamLoaderHandle;
  nb::class_<Handle>(m, "StreamLoaderCore", nb::is_weak_referenceable(), nb::type_slots(OwnedObjects<Handle>::slots))
      .def("__init__", make_stream_loader, nb::arg("stream").none(), nb::arg("source").sig("Source"), nb::arg("order"),
           nb::arg("workers") = defaults.workers, nb::arg("ahead") = defaults.ahead,
           nb::arg("prepare").none() = nb::none(), nb::arg("seed") = defaults.seed,
           nb::arg("fields").none() = nb::none(), nb::arg("mask").none() = nb::none(),
           nb::arg("most_samples") = defaults.most_samples, nb::arg("device") = defaults.device,
           nb::arg("log").none() = nb::none(), nb::arg("while_waiting").none() = nb::none())
      .def("next",
           [](Handle& self) { return self.use([](StreamLoader& of, const Where& where) { return of.next(where); }); })
      .def_prop_ro(
          "fields", [](Handle& self) { return fields_dict(self.open(here()).fields(here())); },
          nb::sig("def fields(self) -> dict[str, tuple[graphsink._types.DType, tuple[int, ...]]]"))
      .def("data", &Handle::data, nb::arg("field"))
      .def_prop_ro("most_samples", [](Handle& self) { return self.open(here()).most_samples(here()); })
      .def_prop_ro("batches", [](Handle& self) { return self.open(here()).batches(here()); })
      .def_prop_ro("position",
                   [](Handle& self) {
                     return self.look([](const StreamLoader& of, const Where& where) { return of.position(where); });
                   })
      .def(
          "seek",
          [](Handle& self, const LoaderPosition& position) {
            self.use([&](StreamLoader& of, const Where& where) { of.seek(position, where); });
          },
          nb::arg("position"))
      .def("report",
           [](Handle& self) {
             return self.look([](const StreamLoader& of, const Where& where) { return of.report(where); });
           })
      .def("close", &Handle::end)
      .def("end_with_python", &Handle::end_with_python);
}

}  // namespace graphsink::python
