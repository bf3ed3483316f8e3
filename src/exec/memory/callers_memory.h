// Memory of the caller's that a program uses in place of its own, see Program::bind_memory().
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "exec/issue/bound_plan.h"

namespace graphsink {

class CallersMemory {
 public:
  struct Range {
    std::byte* begin = nullptr;
    std::size_t bytes = 0;
    bool is_written = false;  // by steps
    std::shared_ptr<const void> owner{};
  };

  // Throws Error unless the range can take a value of `needed` bytes: if it is too small, not aligned, not usable on
  // `device`, or overlaps one of another value although steps write one of the two. `name`: of the value, such as
  // `input "x"`.
  void require(const std::string& name, const Range& range, std::size_t needed, Device& device,
               const Where& where) const;
  // Takes the range, in place of one that the value had.
  void add(const std::string& name, const Range& range) { ranges_[name] = range; }
  // The same for an output, a result of a node of the graph.
  void add_output(int node, int result, const std::string& name, const Range& range);
  bool contains(const std::string& name) const { return ranges_.contains(name); }

  // Lets the outputs of the plan that were added live there: sets Addresses::outputs. Throws Error if one does not fit,
  // or has no memory of its own in this plan.
  void place_outputs(const Plan& plan, Addresses& addresses, const Where& where) const;

 private:
  std::map<std::string, Range> ranges_;
  std::map<std::pair<int, int>, std::string> outputs_;  // names, by node and result
};

}  // namespace graphsink
