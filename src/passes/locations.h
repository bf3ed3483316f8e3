// Where the values of a graph are while it is lowered: buffers on devices and on the host, and copies between them.
#pragma once

#include <vector>

#include "passes/planner_ir.h"

namespace graphsink {

class Locations {
 public:
  static constexpr int kHost = -1;  // number of the host as a place; devices count from 0

  // Both are used for as long as this lives; buffers, Variables and copies are added to the plan.
  Locations(const PlannerIr& ir, Plan& plan);

  int add_buffer(Storage storage, std::size_t bytes, int index = -1, int device = 0);
  void add_copy(int sequence, int source, int destination);
  // In the schedule of the step; through the host where the devices cannot reach each other.
  void add_copy_between(int source, int destination);

  // The value was made there.
  void put(ValueRef v, int place, int buffer);
  // Its buffer, copied there on first use, in this sequence.
  int on_device(int sequence, ValueRef v, int device = 0);
  int on_host(int sequence, ValueRef v);

  // A device that has the value, the target first; kHost if none does.
  int home_of(ValueRef v);
  // Whether it was made by now.
  bool is_there(ValueRef v);
  // A copy to the host, or to a further device, that was made in a body may never have run when the body is over:
  // whoever needs it later makes his own.
  void forget_copies(int sequence);

  // Returns a buffer of the same device that still holds the value after the commit: the given one, or a copy.
  int kept(int buffer);
  // Returns a buffer that holds the value until the next run, even if the caller or another program meanwhile writes to
  // inputs and Variables.
  int kept_until_next_run(int buffer);

 private:
  using Table = std::vector<int>;  // per value: a buffer, -1: none
  struct Copy {                    // copy of a value to the host or to a further device
    int sequence;
    ValueRef value;
    int place;
  };

  std::size_t bytes_of(ValueRef v) const { return ir_.type(v).bytes(); }
  int& slot(int place, ValueRef v);
  int source_buffer(ValueRef v);
  bool is_steady(int buffer) const;
  int copy_of(int buffer);  // made in the schedule of the step
  int invariant_buffer(int origin, int place);
  bool are_linked(int a, int b) const;

  const PlannerIr& ir_;
  Plan& plan_;
  std::vector<int> first_output_;  // by node: index of its first output in the tables
  std::vector<Table> devices_;
  Table host_;
  std::vector<Copy> copies_;
};

}  // namespace graphsink
