// A Python function that takes the warnings of a program.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>

#include "graphsink/log.h"

namespace graphsink::python {

// Empty for None. The function is called with the GIL, on whichever thread meets the failure; what it raises is
// printed, and the message goes to spdlog. After the interpreter has begun to end, messages go to spdlog.
LogFunction log_function(nanobind::handle function);
// The same for a function that its owner shows to Python's garbage collector: only borrowed. The owner empties
// `function`, with the GIL, before the function may be gone; messages go to spdlog from then on.
LogFunction log_function(std::shared_ptr<nanobind::handle> function);

// The log function of a program, which belongs to ProgramHandle::callables, so that Python's garbage collector sees it.
// It is never cleared: the program that calls it is finalized before anything is.
class LogOwner {
 public:
  explicit LogOwner(nanobind::handle function)
      : function_(nanobind::borrow(function)), borrowed_(std::make_shared<nanobind::handle>(function)) {}
  ~LogOwner() { *borrowed_ = {}; }
  LogOwner(const LogOwner&) = delete;

  // Messages of what outlives the program, such as Variables, go to spdlog.
  LogFunction log() const { return log_function(borrowed_); }

  template <class Visit>
  void visit_owned(Visit visit) {
    visit(function_);
  }

 private:
  nanobind::object function_;
  std::shared_ptr<nanobind::handle> borrowed_;
};

}  // namespace graphsink::python
