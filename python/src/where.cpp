#include "where.h"

#include <nanobind/nanobind.h>

#include <mutex>
#include <set>
#include <string>

namespace nb = nanobind;

namespace graphsink::python {

namespace {

// Text that lives until the process ends. It is never freed, because Errors may be printed by destructors that run
// last.
struct Texts {
  std::mutex mutex;
  std::set<std::string, std::less<>> all;
  std::string package_folder;
};
Texts& texts() {
  static auto* all = new Texts;
  return *all;
}

// Files of a notebook are named "<ipython-input-3-...>" or "/tmp/ipykernel_.../12.py": neither is of the package.
bool is_of_package(std::string_view file) {
  const std::string& folder = texts().package_folder;
  return !folder.empty() && file.starts_with(folder);
}

}  // namespace

const char* interned(std::string_view text) {
  Texts& known = texts();
  std::lock_guard lock(known.mutex);
  auto found = known.all.find(text);
  if (found == known.all.end()) found = known.all.emplace(text).first;
  return found->c_str();
}

void set_package_folder(std::string_view folder) { texts().package_folder = folder; }

Where here() {
  nb::object frame = nb::steal(reinterpret_cast<PyObject*>(PyThreadState_GetFrame(PyThreadState_Get())));
  while (frame.is_valid() && !frame.is_none()) {
    auto* raw = reinterpret_cast<PyFrameObject*>(frame.ptr());
    nb::object code = nb::steal(reinterpret_cast<PyObject*>(PyFrame_GetCode(raw)));
    nb::object file = nb::steal(PyObject_GetAttrString(code.ptr(), "co_filename"));
    Py_ssize_t size = 0;
    const char* text = file.is_valid() ? PyUnicode_AsUTF8AndSize(file.ptr(), &size) : nullptr;
    if (text == nullptr) {
      PyErr_Clear();  // a name with lone surrogates is no place that could be printed
      return {};
    }
    const std::string_view name(text, static_cast<std::size_t>(size));
    if (!is_of_package(name)) return {interned(name), static_cast<std::uint32_t>(PyFrame_GetLineNumber(raw))};
    frame = nb::steal(PyObject_GetAttrString(frame.ptr(), "f_back"));
    if (!frame.is_valid()) PyErr_Clear();
  }
  return {};
}

}  // namespace graphsink::python
