// Program.stage(): slices of a feed in the memory from which the device fetches them.
#include <nanobind/ndarray.h>

#include <utility>
#include <vector>

#include "bindings.h"
#include "garbage.h"

namespace graphsink::python {

namespace {

// The slices, and the program whose memory they are. The arrays that were handed out keep them, and are known by weak
// references: memory that an array shows is not given to other slices.
struct StagedHandle {
  Ending<StagedSlices> slices;
  nb::object program;
  std::vector<nb::object> arrays;

  template <class Visit>
  void visit_owned(Visit visit) {
    visit(program);
    for (nb::object& array : arrays) visit(array);
  }

  // The device reads the memory from now on.
  void close_arrays() {
    for (const nb::object& reference : arrays)
      if (const nb::object array = reference(); !array.is_none()) array.attr("setflags")(false);
    arrays.clear();
  }
};

nb::object array_at(nb::handle self, std::int64_t i) {
  auto& handle = *nb::inst_ptr<StagedHandle>(self);
  const std::span<std::byte> bytes = handle.slices->bytes(i, here());
  nb::object array = array_of(bytes.data(), handle.slices->type(), self, true);
  handle.arrays.push_back(nb::module_::import_("weakref").attr("ref")(array));
  return array;
}

}  // namespace

void bind_staged(nb::module_& m, nb::class_<ProgramHandle>& program) {
  nb::class_<StagedHandle>(m, "StagedSlices",
                           "Slices of a feed, in memory of Program.stage(). Their elements are not initialised.",
                           nb::type_slots(OwnedObjects<StagedHandle>::slots))
      .def(
          "__len__", [](const StagedHandle& self) { return self.slices->size(); }, "How many; 0 after write().")
      .def_prop_ro("dtype", [](const StagedHandle& self) { return self.slices->type().dtype; })
      .def_prop_ro(
          "shape", [](const StagedHandle& self) { return self.slices->type().shape; }, "The shape of one slice.")
      .def("slice", array_at, nb::arg("i"), nb::sig("def slice(self, i: int) -> graphsink._types.Array"),
           "The elements of slice i as an array, to be written to. Once the slices were given to Program.write() it is "
           "read-only, and its elements are undefined; views that were made of it before must not be written to then.")
      .def(
          "take",
          [](StagedHandle& self, std::int64_t n) {
            StagedHandle taken{self.slices->take(n, here()), self.program, {}};
            self.close_arrays();  // the slices are numbered anew
            return taken;
          },
          nb::arg("n"),
          "Takes the first n slices out of these, for a run of fewer steps than were staged. The others stay, and are "
          "numbered from 0 again. Arrays that slice() has given become read-only.");
  program
      .def(
          "stage",
          [](nb::handle self, nb::handle feed, std::int64_t slices, const std::optional<Sizes>& shape) {
            const Where where = here();
            auto& handle = *nb::inst_ptr<ProgramHandle>(self);
            const Value value = handle.written_input(feed, where);
            const std::optional<Shape> wanted = shape ? std::optional(shape->shape(where)) : std::nullopt;
            StagedSlices staged;
            {
              WithoutGil others_run;
              staged = wanted ? handle.program->stage(value, slices, *wanted, where)
                              : handle.program->stage(value, slices, where);
            }
            return StagedHandle{std::move(staged), nb::borrow(self), {}};
          },
          nb::arg("feed").sig("str | Value"), nb::arg("slices"), nb::arg("shape").none() = nb::none(),
          nb::sig("def stage(self, feed: str | Value, slices: int, shape: collections.abc.Sequence[int] | None = None) "
                  "-> StagedSlices"),
          "Memory for the slices of a feed that a coming run reads, one for each of its steps, so that whoever makes "
          "the data writes it where the device fetches it: write(slices) copies nothing on the host. `shape` is that "
          "of a slice where dimensions are open; by default that written last.")
      .def(
          "write",
          [](ProgramHandle& self, StagedHandle& slices) {
            const Where where = here();
            {
              WithoutGil others_run;
              self.program->write(std::move(slices.slices.object), where);
            }
            slices.close_arrays();
          },
          nb::arg("slices"), "Gives staged slices to the next run().");
}

}  // namespace graphsink::python
