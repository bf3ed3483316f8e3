// Python functions as ops of a graph, and as the log of a program: who owns them, and how threads of the library call
// them.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>
#include <string>
#include <vector>

#include "graphsink/graphsink.h"

namespace nb = nanobind;

namespace graphsink::python {

class HostFunction;

// How an op refers to its function: not by a reference, because the function usually refers to the program, and
// Python's garbage collector could not see such a cycle. Read and written with the GIL.
struct HostSlot {
  HostFunction* function = nullptr;  // nullptr once it is gone
};

// The Python function of one host op. It belongs to the list of its graph (GraphHandle::callables), which programs of
// the graph own, too.
class HostFunction {
 public:
  HostFunction(std::string name, nb::object function, nb::object out, nb::object grad);
  ~HostFunction() { slot_->function = nullptr; }
  HostFunction(const HostFunction&) = delete;
  HostFunction& operator=(const HostFunction&) = delete;

  const std::string& name() const { return name_; }
  const nb::object& function() const { return function_; }
  const nb::object& out() const { return out_; }
  const nb::object& grad() const { return grad_; }
  const std::shared_ptr<HostSlot>& slot() const { return slot_; }

  // An exception of the function is kept until a call reports it as an Error.
  void add_failure(const std::string& text, nb::object exception);
  // Takes the newest exception whose text is in the problem of an Error; None if there is none.
  nb::object take_failure(const std::string& problem);

  // For Python's garbage collector.
  int visit(visitproc visit, void* arg) const;
  void clear();

 private:
  struct Failure {
    std::string text;
    nb::object exception;
  };
  std::string name_;
  nb::object function_, out_, grad_;
  std::vector<Failure> failures_;
  std::shared_ptr<HostSlot> slot_ = std::make_shared<HostSlot>(HostSlot{this});
};

// Whether the calling thread runs the function of a host op, whose program cannot be destroyed meanwhile.
bool is_in_host_op() noexcept;

}  // namespace graphsink::python
