// graphsink::Error becomes graphsink.Error (graphsink/_error.py), and std::bad_alloc MemoryError.
#include "bindings.h"

namespace graphsink::python {

void set_error(const Error& error) {
  const nb::object type = nb::module_::import_("graphsink._error").attr("Error");
  const std::string scope(error.where().scope());
  const nb::object made = type(error.op(), error.where().file_name(), error.where().line(), scope, error.problem(),
                               error.remedy(), error.code(), error.what());
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
