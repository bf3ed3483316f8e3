#include "log.h"

#include <memory>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "bindings.h"
#include "interpreter.h"

namespace nb = nanobind;

namespace graphsink::python {

namespace {

// `function` returns the function to call, with the GIL; it is empty if the owner of the function is gone.
template <class Function>
LogFunction calling(Function function) {
  return [function = std::move(function)](LogLevel level, std::string_view message) {
    if (!is_running()) throw std::runtime_error("the interpreter has ended");
    WithGil gil;
    const nb::object called = nb::borrow(function());
    if (!called.is_valid()) throw std::runtime_error("the log function is gone");
    try {
      const std::string text = python_names(message);
      ending_here([&] { called(level, text); });
    } catch (nb::python_error& error) {
      error.discard_as_unraisable("a log function of graphsink");
      throw std::runtime_error("the log function has failed");
    }
  };
}

}  // namespace

LogFunction log_function(nb::handle function) {
  if (!function.is_valid() || function.is_none()) return {};
  return calling([kept = keep(function)] { return nb::handle(kept->ptr()); });
}

LogFunction log_function(std::shared_ptr<nb::handle> function) {
  if (function == nullptr || !function->is_valid() || function->is_none()) return {};
  return calling([borrowed = std::move(function)] { return *borrowed; });
}

}  // namespace graphsink::python
