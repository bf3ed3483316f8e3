#include "ending.h"

#include <atomic>
#include <mutex>
#include <thread>
#include <vector>

#include "samples.h"

namespace graphsink::python {

namespace {

struct Late {
  std::shared_ptr<void> object;
  nb::object callables;
};

// Never freed, because it may be used last.
struct LateObjects {
  std::mutex mutex;
  std::vector<Late> all;
};
LateObjects& late() {
  static auto* objects = new LateObjects;
  return *objects;
}

std::atomic<std::thread::id> ended_by{};

bool is_in_function() noexcept { return is_in_host_op() || MakingSample::is_for_any(); }

}  // namespace

void begin_end() noexcept { ended_by = std::this_thread::get_id(); }

bool is_behind_python() noexcept {
  const std::thread::id by = ended_by;
  return by != std::thread::id() && by != std::this_thread::get_id() && Py_IsInitialized() == 0;
}

bool is_left_behind() noexcept {
  const std::thread::id by = ended_by;
  return by != std::thread::id() && by != std::this_thread::get_id() && !is_in_function();
}

// A test of trainings in Python fails if the problem gets another text.
bool is_of_the_end(const Error& error) noexcept {
  return error.code() == ErrorCode::misuse && error.problem() == "another thread is in a call of it" &&
         is_left_behind();
}

void set_exit() noexcept { PyErr_SetNone(PyExc_SystemExit); }

void require_not_left_behind() {
  if (!is_left_behind()) return;
  set_exit();
  throw nb::python_error();
}

void end_later(std::shared_ptr<void> object, nb::object callables) noexcept {
  const std::lock_guard lock(late().mutex);
  late().all.push_back({std::move(object), std::move(callables)});
}

void end_late_objects() noexcept {
  if (is_in_function()) return;  // which what ends may wait for
  std::vector<Late> all;
  {
    const std::lock_guard lock(late().mutex);
    all.swap(late().all);
  }
  if (all.empty()) return;
  WithoutGil others_run;
  for (Late& each : all) each.object.reset();
}

}  // namespace graphsink::python
