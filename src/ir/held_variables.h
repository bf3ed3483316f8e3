// Variables that are read or written together, as one step has left them.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "ir/graph_data.h"

namespace graphsink {

// While it lives, no program runs a step that uses one of the Variables, and no other thread reads or writes one: their
// values belong together. Waits for those that do so now. The Variables must outlive it.
class HeldVariables {
 public:
  // `call`: "read" or "write", for the Error that Variable::read() and Variable::write() throw where they are refused.
  HeldVariables(std::span<const Variable> variables, const char* call, const Where& where);
  HeldVariables(const HeldVariables&) = delete;
  HeldVariables& operator=(const HeldVariables&) = delete;

  // As Variable::read() and Variable::write(), of one of them.
  Tensor read(const Variable& variable, const Where& where) const;
  void write(const Variable& variable, const Tensor& tensor, const Where& where) const;

 private:
  // By address, which is the order in which every program locks them.
  std::map<VariableData*, std::unique_lock<TicketLock>> locks_;
  std::vector<std::shared_ptr<const void>> programs_;
};

}  // namespace graphsink
