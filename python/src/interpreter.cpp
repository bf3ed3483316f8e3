#include "interpreter.h"

#include <atomic>

#include "gil.h"

namespace nb = nanobind;

namespace graphsink::python {

namespace {

std::atomic<bool> has_ended = false;

}  // namespace

void end_python() noexcept { has_ended = true; }

bool is_running() noexcept {
  if (has_ended) return false;
#if PY_VERSION_HEX >= 0x030d0000
  return Py_IsInitialized() != 0 && Py_IsFinalizing() == 0;
#else
  return nb::is_alive() && Py_IsInitialized() != 0;
#endif
}

void require_running(const char* op, const Where& where) {
  if (!is_running())
    throw Error(op, where, "the Python interpreter has ended", "close Loaders and programs before",
                ErrorCode::unavailable);
}

std::shared_ptr<nb::object> keep(nb::handle object) {
  return {new nb::object(nb::borrow(object)), [](nb::object* kept) {
            if (is_running()) {
              WithGil gil;
              delete kept;
            } else {
              kept->release();
              delete kept;
            }
          }};
}

}  // namespace graphsink::python
