// graphsink::Error becomes graphsink.Error (graphsink/_error.py), and std::bad_alloc MemoryError.
#include <cctype>

#include "bindings.h"

namespace graphsink::python {

namespace {

bool is_of_name(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

// What stands in Python for "scope::" of C++; the same where Python has no such name.
std::string python_scope(const std::string& scope) {
  const bool is_type = !scope.empty() && std::isupper(static_cast<unsigned char>(scope[0])) != 0;
  if (scope == "gs" || (is_type && nb::hasattr(nb::module_::import_("graphsink"), scope.c_str()))) return scope + ".";
  return is_type && scope.ends_with("Options") ? "" : scope + "::";
}

}  // namespace

std::string python_names(std::string_view text) {
  std::string made;
  std::size_t at = 0;
  for (std::size_t colons = 0; (colons = text.find("::", at)) != text.npos; at = colons + 2) {
    std::size_t begin = colons;
    while (begin > at && is_of_name(text[begin - 1])) --begin;
    made.append(text.substr(at, begin - at)).append(python_scope(std::string(text.substr(begin, colons - begin))));
  }
  return made.append(text.substr(at));
}

void set_error(const Error& error) {
  const nb::object type = nb::module_::import_("graphsink._error").attr("Error");
  const std::string scope(error.where().scope());
  const nb::object made =
      type(python_names(error.op()), error.where().file_name(), error.where().line(), scope,
           python_names(error.problem()), python_names(error.remedy()), error.code(), python_names(error.what()));
  if (error.code() == ErrorCode::step_failed) {
    nb::object cause = nb::module_::import_("graphsink._host_op").attr("cause_of")(error.op(), error.problem());
    if (!cause.is_none()) PyException_SetCause(made.ptr(), cause.release().ptr());
  }
  PyErr_SetObject(type.ptr(), made.ptr());
}

void bind_errors(nb::module_& m) {
  nb::enum_<ErrorCode>(m, "ErrorCode",
                       "Kind of failure that an Error reports, for programs that go on in different ways.")
      .value("misuse", ErrorCode::misuse)
      .value("unavailable", ErrorCode::unavailable)
      .value("out_of_memory", ErrorCode::out_of_memory)
      .value("device_lost", ErrorCode::device_lost)
      .value("step_failed", ErrorCode::step_failed)
      .value("io", ErrorCode::io)
      .value("stopped", ErrorCode::stopped);
  nb::register_exception_translator([](const std::exception_ptr& thrown, void*) {
    try {
      std::rethrow_exception(thrown);
    } catch (const Error& error) {
      set_error(error);
    }
  });
}

}  // namespace graphsink::python
