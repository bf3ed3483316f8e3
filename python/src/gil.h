// Python's lock, the GIL, as every function of the bindings takes it and lets go of it.
//
// When a process ends while a daemon thread of Python runs, Python before 3.14 ends the thread as soon as it asks for
// the GIL, by pthread_exit(): that unwinds the stack, and so ends the process where it meets a function that is
// noexcept, as destructors are, or drops references without the GIL. Here such a thread waits for the end of the
// process instead, as all do from 3.14 on.
#pragma once

#include <cxxabi.h>
#include <nanobind/nanobind.h>
#include <unistd.h>

#include <utility>

#include "graphsink/version.h"

namespace graphsink::python {

// Waits for the end of the process.
[[noreturn]] inline void wait_for_end() noexcept {
  while (true) ::pause();
}

// Whether Python has ended while this thread, which is not the main one, was at work: then the GIL is gone, too. The
// other module of the package calls it.
GRAPHSINK_PUBLIC bool is_behind_python() noexcept;

// Calls what may ask for the GIL. For calls of users' functions, in which a daemon thread spends its time.
template <class Call>
decltype(auto) ending_here(const Call& call) {
  if (is_behind_python()) wait_for_end();
  try {
    return call();
  } catch (const abi::__forced_unwind&) {
    wait_for_end();
  }
}

// While it lives, this thread has the GIL, whichever thread it is.
class WithGil {
 public:
  WithGil() : state_(ending_here([] { return PyGILState_Ensure(); })) {}
  ~WithGil() { PyGILState_Release(state_); }
  WithGil(const WithGil&) = delete;
  WithGil& operator=(const WithGil&) = delete;

 private:
  PyGILState_STATE state_;
};

// While it lives, other Python threads run. For every call that waits, or takes a lock that a thread may hold which
// waits for the GIL.
class WithoutGil {
 public:
  WithoutGil() : thread_(PyEval_SaveThread()) {}
  ~WithoutGil() {
    ending_here([this] { PyEval_RestoreThread(thread_); });
  }
  WithoutGil(const WithoutGil&) = delete;
  WithoutGil& operator=(const WithoutGil&) = delete;

 private:
  PyThreadState* thread_;
};

}  // namespace graphsink::python
