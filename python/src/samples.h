// Samples of Python: what a function or a data set gives for an index, copied into the memory of a Source or a feed.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "graphsink/graphsink.h"

namespace nb = nanobind;

namespace graphsink::python {

struct SourceHandle {
  template <class Visit>
  void visit_owned(Visit visit) {
    visit(function);
  }

  std::shared_ptr<const Source> source;
  nb::object function{};  // which the source calls, if it is one of Python
};

// While it lives, its thread makes a sample for a loader by a function of Python. There the loader may not be called,
// nor be waited for: it waits for the sample.
class MakingSample {
 public:
  explicit MakingSample(const void* loader) noexcept : loader_(loader), outer_(innermost()) { innermost() = this; }
  ~MakingSample() { innermost() = outer_; }
  MakingSample(const MakingSample&) = delete;
  MakingSample& operator=(const MakingSample&) = delete;

  // Whether this thread makes a sample for the loader.
  static bool is_for(const void* loader) noexcept;
  static bool is_for_any() noexcept { return innermost() != nullptr; }

 private:
  static const MakingSample*& innermost() noexcept;

  const void* loader_;
  const MakingSample* outer_;
};

// The source as a loader reads it, within a MakingSample where it calls a function of Python.
std::shared_ptr<const Source> source_for(const void* loader, const SourceHandle& handle, const Where& where);

// Fields by name, as pairs of a dtype and a shape.
std::vector<Field> fields_of(const nb::dict& fields);
nb::dict fields_dict(const std::vector<Field>& fields);

// Copies a sample: a dict with the names of the fields, a tuple or list in their order, or one array for one field.
// Numbers become the dtype of their field; an array of another dtype or shape is an Error, at the line that made the
// source. Needs the GIL.
void copy_sample(nb::handle sample, const std::vector<Field>& fields, SampleMemory to, const std::string& what,
                 const Where& where);

// Calls what makes a sample. An Error, or what a function of Python raises, says then which one it is. Needs the GIL.
void name_sample(std::int64_t index, const std::function<void()>& make);

// A sample as a dict of arrays that own their memory. Needs the GIL.
nb::dict sample_dict(const std::vector<Field>& fields, SampleMemory from);

// The `prepare` of loaders: function(key, sample) makes the fields `to` of a sample with the fields `from`. The
// function is only borrowed, and called with the GIL, within a MakingSample of the loader. Empty for None.
Prepare prepare_of(const void* loader, nb::handle function, const std::vector<Field>& from,
                   const std::vector<Field>& to, const Where& where);

// The `while_waiting` of loaders: runs handlers of signals, as that of Ctrl-C, and then the function, which is only
// borrowed, unless it is None. Throws what they raise.
std::function<void()> while_waiting_of(nb::handle function);

}  // namespace graphsink::python
