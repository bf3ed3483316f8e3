#include "log.h"

#include <memory>
#include <stdexcept>
#include <string_view>

#include "interpreter.h"

namespace nb = nanobind;

namespace graphsink::python {

LogFunction log_function(nb::handle function) {
  if (!function.is_valid() || function.is_none()) return {};
  return [kept = keep(function)](LogLevel level, std::string_view message) {
    if (!is_running()) throw std::runtime_error("the interpreter has ended");
    nb::gil_scoped_acquire gil;
    try {
      nb::handle(kept->ptr())(level, nb::str(message.data(), message.size()));
    } catch (nb::python_error& error) {
      error.discard_as_unraisable("a log function of graphsink");
      throw std::runtime_error("the log function has failed");
    }
  };
}

}  // namespace graphsink::python
