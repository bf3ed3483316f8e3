// The Variables that a program uses, which other programs and other threads may use, too.
#pragma once

#include <map>
#include <memory>
#include <optional>

#include "exec/allocator.h"
#include "exec/bound_plan.h"
#include "exec/run_gate.h"
#include "exec/session.h"
#include "exec/variable.h"

namespace graphsink {

// One per program. Programs that share Variables follow one another: a program takes all of its Variables at once,
// under the locks of all of them, and is inside its gate before it lets the locks go. The next program that wants one
// of them waits until this run is issued, and what it then gives to the device comes after this run. While nobody else
// uses them, the program keeps what it has taken, and no lock is needed.
class UsedVariables {
 public:
  explicit UsedVariables(const Session& session);
  ~UsedVariables();
  UsedVariables(const UsedVariables&) = delete;
  UsedVariables& operator=(const UsedVariables&) = delete;

  RunGate& gate() const { return *gate_; }

  // Makes homes on the device for those of the plan that have none. Reads of those that the plan writes ask `writer`
  // from now on. Takes locks of Variables, and so must not be called inside the gate. Throws Error.
  void bring(const Plan& plan, const std::weak_ptr<VariableWriter>& writer, Allocator& allocator, const Where& where);
  // Makes memory of the caller's, which holds the Variable's value, its home. Throws Error if it has another one.
  void use_memory(const Variable& variable, void* memory, const Where& where);
  // Brings the program inside its gate, after all that others have done with its Variables so far. Throws Error if one
  // is broken.
  void enter_run(std::optional<RunGate::Inside>& inside);

  void* address(const Variable& variable) const { return used(variable).home->address(); }
  // Whether it lives in memory of the caller's, who may write it unseen.
  bool is_callers(const Variable& variable) const { return used(variable).home->is_callers(); }
  // Another number after each write of the Variable by anybody; as enter_run() found it.
  std::uint64_t version(const Variable& variable) const { return used(variable).version; }

  // Throws Error if one of them holds parts of two steps.
  void require_whole() const;
  // A commit broke off: until their values are written again, all uses of those that the program writes throw `why`.
  void set_broken(const BrokenCommit& why) const;

 private:
  // A Variable, kept alive.
  struct Used {
    Variable variable;
    std::shared_ptr<DeviceVariable> home;
    bool is_written = false;  // by the program
    std::uint64_t version = 0;
  };
  // By address, which is the order in which every program locks them.
  using ByAddress = std::map<const VariableData*, Used>;

  const Used& used(const Variable& variable) const { return variables_.at(variable.data().get()); }
  void take();

  const Session& session_;
  std::shared_ptr<Transfer> transfer_;  // of the Variables that come to the device with this program
  ByAddress variables_;
  std::shared_ptr<RunGate> gate_ = std::make_shared<RunGate>();  // known to the Variables
  std::uint64_t taken_epoch_ = 0;                                // of gate_, when take() succeeded last
};

}  // namespace graphsink
