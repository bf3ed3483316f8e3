// Sources of samples, orders, and the Loader. graphsink/_data.py makes sources of dicts of arrays and of data sets.
#include <nanobind/stl/map.h>
#include <nanobind/stl/pair.h>

#include <map>
#include <utility>

#include "bindings.h"
#include "garbage.h"
#include "interpreter.h"
#include "samples.h"

namespace graphsink::python {

namespace {

// The handle owns the function, and whoever reads the source keeps the handle.
SourceHandle python_source(std::int64_t size, nb::handle fields, const nb::object& function) {
  const Where where = here();
  const std::vector<Field> all = fields_of(nb::cast<nb::dict>(fields));
  const auto fill = [function = nb::handle(function), all, where](std::int64_t index, SampleMemory to) {
    require_running("function_source", where);
    WithGil gil;
    name_sample(index,
                [&] { copy_sample(ending_here([&] { return function(index); }), all, to, "function_source", where); });
  };
  return {function_source(size, all, fill, where), function};
}

// The dtype of the field that numbers and lists of them make; nothing for an array, which has one.
std::optional<DType> dtype_of_numbers(nb::handle data) {
  if (nb::hasattr(data, "dtype")) return std::nullopt;
  const nb::object field = nb::module_::import_("graphsink._data").attr("_field")(data);
  return dtype_from(nb::object(field[0]));
}

void bind_sources(nb::module_& m) {
  nb::class_<SourceHandle>(m, "Source", "Numbered training samples. Any number of threads may read one at once.",
                           nb::type_slots(OwnedObjects<SourceHandle>::slots))
      .def("__len__", [](const SourceHandle& self) { return self.source->size(); })
      .def_prop_ro("size", [](const SourceHandle& self) { return self.source->size(); })
      .def_prop_ro(
          "fields", [](const SourceHandle& self) { return fields_dict(self.source->fields()); },
          nb::sig("def fields(self) -> dict[str, tuple[graphsink._types.DType, tuple[int, ...]]]"),
          "The dtype and the shape of each field of a sample, by name.")
      .def(
          "read",
          [](const SourceHandle& self, std::int64_t index) {
            const Where where = here();
            const std::vector<Field>& fields = self.source->fields();
            std::vector<Tensor> parts;
            std::vector<std::span<std::byte>> memory;
            for (const Field& field : fields) parts.emplace_back(field.type);
            for (Tensor& part : parts) memory.emplace_back(part.data(), part.bytes());
            {
              WithoutGil others_run;
              self.source->read(index, memory, where);
            }
            return sample_dict(fields, memory);
          },
          nb::arg("index"), nb::sig("def read(self, index: int) -> dict[str, graphsink._types.Array]"),
          "Sample `index` as arrays by the names of the fields.");
  m.def(
      "tensor_source_of",
      [](nb::handle tensors) {
        const Where where = here();
        std::vector<std::pair<std::string, Tensor>> all;
        for (auto [name, data] : nb::cast<nb::dict>(tensors))
          all.emplace_back(nb::cast<std::string>(name), to_tensor(data, dtype_of_numbers(data), where));
        return SourceHandle{tensor_source(std::move(all), where), {}};
      },
      nb::arg("tensors").sig("dict[str, graphsink._types.ArrayLike]"));
  m.def(
      "index_source",
      [](std::int64_t size) {
        return SourceHandle{index_source(size, here()), {}};
      },
      nb::arg("size"),
      "Samples that are their own number: one field \"index\" i32[], for data that live on the device and are gathered "
      "inside the step.");
  m.def("function_source", &python_source, nb::arg("size"),
        nb::arg("fields").sig(
            "collections.abc.Mapping[str, tuple[graphsink._types.DTypeLike, collections.abc.Sequence[int]]]"),
        nb::arg("function").sig("collections.abc.Callable[[int], typing.Any]"),
        "Samples that a function makes: function(index) returns a dict of arrays by the names of the fields, a tuple "
        "of them in their order, or one array for one field. It is called by the threads of a Loader, one at a time, "
        "because each takes the GIL; what it raises, Loader.next() raises in the place of the batch. The same index "
        "must give the same sample whenever it is asked for.");
}

void bind_file_sources(nb::module_& m) {
  m.def(
      "idx_source",
      [](const FilePath& images, const FilePath& labels, bool is_scaled, bool is_flat, std::int64_t classes,
         const std::string& image, const std::string& label) {
        return SourceHandle{idx_source(images.path, labels.path, {is_scaled, is_flat, classes, image, label}, here()),
                            {}};
      },
      nb::arg("images"), nb::arg("labels"), nb::kw_only(), nb::arg("is_scaled") = true, nb::arg("is_flat") = true,
      nb::arg("classes") = 10, nb::arg("image") = "image", nb::arg("label") = "label",
      "Images and labels in two IDX files, as MNIST has them, plain or gzipped. Scaled images are f32 in [0, 1]; flat "
      "ones have one dimension.");
  nb::enum_<TokenType>(m, "TokenType", "Elements of a file of tokens.")
      .value("uint16", TokenType::uint16)
      .value("uint32", TokenType::uint32)
      .value("int32", TokenType::int32);
  m.def(
      "token_source",
      [](const FilePath& path, std::int64_t length, std::int64_t stride, std::optional<TokenType> type,
         std::int64_t vocabulary, const std::string& input, const std::string& target) {
        return SourceHandle{token_source(path.path, {length, stride, type, vocabulary, input, target}, here()), {}};
      },
      nb::arg("path"), nb::kw_only(), nb::arg("length"), nb::arg("stride") = 0,
      nb::arg("type").noconvert().none() = nb::none(), nb::arg("vocabulary") = 0, nb::arg("input") = "input",
      nb::arg("target") = "target",
      "Windows of a file of tokens, as nanoGPT, Megatron and llm.c write it. A sample is i32[length] from token index "
      "* stride on, and the same shifted by one. The file may be larger than memory.");
  m.def(
      "npy_source",
      [](const std::map<std::string, FilePath>& files) {
        std::vector<std::pair<std::string, std::filesystem::path>> all;
        for (const auto& [name, file] : files) all.emplace_back(name, file.path);
        return SourceHandle{npy_source(all, here()), {}};
      },
      nb::arg("files"),
      "Arrays in .npy files, each with the name of its field, in the order of the names; the first dimensions count "
      "the samples. The files may be larger than memory.");
  m.def(
      "npz_source",
      [](const FilePath& path, const std::vector<std::string>& names, std::size_t most_unpacked) {
        return SourceHandle{npz_source(path.path, {names, most_unpacked}, here()), {}};
      },
      nb::arg("path"), nb::kw_only(), nb::arg("names") = std::vector<std::string>{},
      nb::arg("most_unpacked") = NpzSourceOptions{}.most_unpacked,
      "The arrays of an .npz file, each a field of its name.");
}

void bind_orders(nb::module_& m) {
  nb::enum_<LastBatch>(m, "LastBatch", "How the last batch of an epoch comes about if there are too few samples.")
      .value("drop", LastBatch::drop)
      .value("pad", LastBatch::pad)
      .value("shorter", LastBatch::shorter);
  nb::class_<Batch>(m, "Batch", "The samples of a batch; the first `real` of them are samples in their turn.")
      .def_ro("samples", &Batch::samples)
      .def_ro("real", &Batch::real)
      .def_ro("bucket", &Batch::bucket);
  nb::class_<SampleOrder>(m, "SampleOrder", "Which samples each batch of each epoch consists of.")
      .def_prop_ro("size", &SampleOrder::size,
                   "Samples that it knows: those of its batches are numbered from 0 to size - 1.")
      .def_prop_ro("batches", &SampleOrder::batches, "Batches in every epoch.")
      .def(
          "batch",
          [](const SampleOrder& self, std::int64_t epoch, std::int64_t number) {
            return self.batch(epoch, number, here());
          },
          nb::arg("epoch"), nb::arg("number"),
          "The samples of a batch. Raises Error unless 0 <= epoch and 0 <= number < batches.");
  const OrderOptions defaults;
  const auto options = [](std::int64_t batch, LastBatch last_batch, bool is_shuffled, std::uint64_t seed,
                          std::int64_t rank, std::int64_t world, bool pads_ranks) {
    return OrderOptions{batch, last_batch, is_shuffled, seed, rank, world, pads_ranks};
  };
#define GS_ORDER_OPTIONS                                                                                     \
  nb::kw_only(), nb::arg("batch") = defaults.batch, nb::arg("last_batch").noconvert() = defaults.last_batch, \
                 nb::arg("is_shuffled") = defaults.is_shuffled, nb::arg("seed") = defaults.seed,             \
                 nb::arg("rank") = defaults.rank, nb::arg("world") = defaults.world,                         \
                 nb::arg("pads_ranks") = defaults.pads_ranks
  m.def(
      "sample_order",
      [options](std::int64_t size, std::int64_t batch, LastBatch last_batch, bool is_shuffled, std::uint64_t seed,
                std::int64_t rank, std::int64_t world, bool pads_ranks) {
        return sample_order(size, options(batch, last_batch, is_shuffled, seed, rank, world, pads_ranks), here());
      },
      nb::arg("size"), GS_ORDER_OPTIONS, "Samples 0 to size - 1, each once in an epoch.");
  m.def(
      "weighted_order",
      [options](const std::vector<double>& weights, std::int64_t samples, std::int64_t batch, LastBatch last_batch,
                bool is_shuffled, std::uint64_t seed, std::int64_t rank, std::int64_t world, bool pads_ranks) {
        return weighted_order(weights, samples, options(batch, last_batch, is_shuffled, seed, rank, world, pads_ranks),
                              here());
      },
      nb::arg("weights"), nb::arg("samples"), GS_ORDER_OPTIONS,
      "Samples drawn at random with replacement, sample i with a probability in proportion to weights[i].");
  m.def(
      "length_order",
      [options](const std::vector<std::int64_t>& lengths,
                const std::vector<std::pair<std::int64_t, std::int64_t>>& buckets, std::int64_t batch,
                LastBatch last_batch, bool is_shuffled, std::uint64_t seed, std::int64_t rank, std::int64_t world,
                bool pads_ranks) {
        std::vector<LengthBucket> all;
        for (const auto& [limit, of_batch] : buckets) all.push_back({limit, of_batch});
        return length_order(lengths, all, options(batch, last_batch, is_shuffled, seed, rank, world, pads_ranks),
                            here());
      },
      nb::arg("lengths"), nb::arg("buckets"), GS_ORDER_OPTIONS,
      "Each batch consists of samples of one bucket. `buckets` are pairs: the largest length of a bucket, and the "
      "samples of its batches (0: `batch`).");
#undef GS_ORDER_OPTIONS
}

// The part of a feed's type that one sample has: the type without the dimension for the batch.
Field field_of(const std::string& name, const Value& feed, const Where& where) {
  const Shape shape = feed.shape(where).examples();
  if (shape.rank() == 0)
    throw Error("Loader", where, "the feed \"" + name + "\" has no dimension for the batch", "add one");
  return {name, {feed.dtype(where), Shape(shape.dims().subspan(1), where)}};
}

void make_loader(LoaderHandle* self, nb::handle program_object, nb::handle source_object, const SampleOrder& order,
                 nb::handle feeds, std::int64_t steps_per_launch, int workers, int ahead, WhenStarved when_starved,
                 nb::handle prepare, std::uint64_t seed, nb::handle mask, nb::handle while_waiting) {
  const Where where = here();
  auto& program = nb::cast<ProgramHandle&>(program_object);
  const auto& source = nb::cast<const SourceHandle&>(source_object);
  std::vector<std::pair<std::string, Value>> pairs;
  std::vector<Field> to;
  for (auto [field, feed] : nb::cast<nb::dict>(feeds)) {
    const std::string name = nb::cast<std::string>(field);
    const Value value = program.input(feed, where);
    pairs.emplace_back(name, value);
    to.push_back(field_of(name, value, where));
  }
  LoaderOptions options{.steps_per_launch = steps_per_launch,
                        .workers = workers,
                        .ahead = ahead,
                        .when_starved = when_starved,
                        .prepare = prepare_of(self, prepare, source.source->fields(), to, where),
                        .seed = seed,
                        .while_waiting = while_waiting_of(while_waiting)};
  if (!mask.is_none()) options.mask = program.input(mask, where);
  auto made = std::make_unique<Loader>(*program.program, source_for(self, source, where), order, std::move(pairs),
                                       options, where);
  new (self) LoaderHandle;
  self->loader = std::move(made);
  self->used = {nb::borrow(program_object), nb::borrow(source_object), nb::borrow(prepare), nb::borrow(while_waiting)};
}

void bind_loader_report(nb::module_& m) {
  nb::enum_<WhenStarved>(m, "WhenStarved", "What next() does if only some batches of a launch are there.")
      .value("wait", WhenStarved::wait)
      .value("shrink", WhenStarved::shrink);
  nb::class_<LoaderPosition>(m, "LoaderPosition", "Where in its order a Loader is.")
      .def(
          "__init__",
          [](LoaderPosition* self, std::int64_t epoch, std::int64_t batch) {
            new (self) LoaderPosition{epoch, batch};
          },
          nb::arg("epoch") = 0, nb::arg("batch") = 0)
      .def_ro("epoch", &LoaderPosition::epoch)
      .def_ro("batch", &LoaderPosition::batch)
      .def(
          "__eq__",
          [](const LoaderPosition& a, nb::handle b) {
            return nb::isinstance<LoaderPosition>(b) && a == *nb::inst_ptr<LoaderPosition>(b);
          },
          nb::arg().none(), nb::sig("def __eq__(self, other: object, /) -> bool"))
      .def("__hash__", [](const LoaderPosition& p) { return nb::hash(nb::make_tuple(p.epoch, p.batch)); })
      .def("__getstate__", [](const LoaderPosition& p) { return std::pair(p.epoch, p.batch); })
      .def("__setstate__",
           [](LoaderPosition& p, std::pair<std::int64_t, std::int64_t> state) {
             new (&p) LoaderPosition{state.first, state.second};
           })
      .def("__repr__", [](const LoaderPosition& p) {
        return "LoaderPosition(epoch=" + std::to_string(p.epoch) + ", batch=" + std::to_string(p.batch) + ")";
      });
  nb::class_<LoaderReport>(m, "LoaderReport",
                           "Counts of what a Loader did, and where its time went; str() says it, and what to change.")
      .def_ro("launches", &LoaderReport::launches)
      .def_ro("batches", &LoaderReport::batches)
      .def_ro("samples", &LoaderReport::samples)
      .def_ro("starved", &LoaderReport::starved)
      .def_ro("shrunk", &LoaderReport::shrunk)
      .def_ro("ready", &LoaderReport::ready)
      .def_ro("seconds", &LoaderReport::seconds)
      .def_ro("waited_seconds", &LoaderReport::waited_seconds)
      .def_ro("read_seconds", &LoaderReport::read_seconds)
      .def_ro("prepared_seconds", &LoaderReport::prepared_seconds)
      .def_ro("workers", &LoaderReport::workers)
      .def_ro("obstacle", &LoaderReport::obstacle)
      .def_prop_ro("idle_share", &idle_share,
                   "The largest part of the time, from 0 to 1, in which the device can have had nothing to do.")
      .def_prop_ro("workers_to_keep_up", &workers_to_keep_up)
      .def("__str__", [](const LoaderReport& report) { return to_string(report); });
  nb::class_<SampleKey>(m, "SampleKey", "The numbers that random choices for a sample depend on, and nothing else.")
      .def_ro("seed", &SampleKey::seed)
      .def_ro("epoch", &SampleKey::epoch)
      .def_ro("sample", &SampleKey::sample);
}

void bind_loader(nb::module_& m) {
  const LoaderOptions defaults;
  nb::class_<LoaderHandle>(m, "LoaderCore", nb::is_weak_referenceable(),
                           nb::type_slots(OwnedObjects<LoaderHandle>::slots))
      .def("__init__", make_loader, nb::arg("program").sig("Program"), nb::arg("source").sig("Source"),
           nb::arg("order"), nb::arg("feeds").sig("dict[str, typing.Any]"),
           nb::arg("steps_per_launch") = defaults.steps_per_launch, nb::arg("workers") = defaults.workers,
           nb::arg("ahead") = defaults.ahead, nb::arg("when_starved").noconvert() = defaults.when_starved,
           nb::arg("prepare").none() = nb::none(), nb::arg("seed") = defaults.seed, nb::arg("mask").none() = nb::none(),
           nb::arg("while_waiting").none() = nb::none())
      .def(
          "next",
          [](LoaderHandle& self, std::optional<std::int64_t> most) {
            return self.use(
                [&](Loader& of, const Where& where) { return most ? of.next(*most, where) : of.next(where); });
          },
          nb::arg("most").none() = nb::none())
      .def(
          "set_steps_per_launch",
          [](LoaderHandle& self, std::int64_t steps) {
            self.use([&](Loader& of, const Where& where) { of.set_steps_per_launch(steps, where); });
          },
          nb::arg("steps"))
      .def_prop_ro("batches", [](LoaderHandle& self) { return self.open(here()).batches(here()); })
      .def_prop_ro("order", [](LoaderHandle& self) { return self.open(here()).order(here()); })
      .def_prop_ro("position",
                   [](LoaderHandle& self) {
                     return self.look([](const Loader& of, const Where& where) { return of.position(where); });
                   })
      .def(
          "seek",
          [](LoaderHandle& self, const LoaderPosition& position) {
            self.use([&](Loader& of, const Where& where) { of.seek(position, where); });
          },
          nb::arg("position"))
      .def("report",
           [](LoaderHandle& self) {
             return self.look([](const Loader& of, const Where& where) { return of.report(where); });
           })
      .def("close",
           [](LoaderHandle& self) {
             const LoaderHandle::Call call(self, here());
             self.close();
           })
      .def("end_with_python", &LoaderHandle::end_with_python);
}

}  // namespace

void bind_data(nb::module_& m) {
  bind_sources(m);
  bind_file_sources(m);
  bind_orders(m);
  bind_loader_report(m);
  bind_loader(m);
}

}  // namespace graphsink::python
