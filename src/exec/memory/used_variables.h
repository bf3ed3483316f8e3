// The Variables that a program uses, which other programs and other threads may use, too.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "exec/issue/bound_plan.h"
#include "exec/issue/session.h"
#include "exec/memory/allocator.h"
#include "exec/memory/run_gate.h"
#include "exec/memory/variable.h"

namespace graphsink {

// Each program has one. Programs that share Variables take turns: a program takes all of its Variables at once, under
// the locks of all of them, and enters its gate before it releases the locks. Another program that needs one of them
// waits until this run is issued, and its own work on the device comes after this run. As long as no other program uses
// the Variables, the program keeps them and takes no lock.
class UsedVariables {
 public:
  explicit UsedVariables(const Session& session);
  ~UsedVariables();
  UsedVariables(const UsedVariables&) = delete;
  UsedVariables& operator=(const UsedVariables&) = delete;

  RunGate& gate() const { return *gate_; }

  // Makes homes for those of the plan that have none, each on its device. Reads of those that the plan writes ask
  // `writer` from now on. Takes locks of Variables, and so must not be called inside the gate. Throws Error.
  void bring(const Plan& plan, const std::weak_ptr<VariableWriter>& writer, Allocator& allocator, const Where& where);
  // Makes memory of the caller's, which holds the Variable's value, its home. Throws Error if it has another one.
  void use_memory(const Variable& variable, std::shared_ptr<void> memory, const Where& where);
  // Brings the program inside its gate, after all that others have done with its Variables so far. Throws Error if one
  // is broken.
  void enter_run(std::optional<RunGate::Inside>& inside);

  void* address(const Variable& variable) const { return used(variable).home->address(); }
  // Whether it lives in memory of the caller's, which the caller may write without a call of this library.
  bool is_callers(const Variable& variable) const { return used(variable).home->is_callers(); }
  // A number that changes with each write of the Variable, as enter_run() found it.
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

  const std::shared_ptr<Transfer>& transfer(int device);

  const Session& session_;
  std::shared_ptr<std::mutex> transfer_mutex_ = std::make_shared<std::mutex>();
  // By device, each made on first use: for Variables that this program brings there.
  std::vector<std::shared_ptr<Transfer>> transfers_;
  ByAddress variables_;
  std::shared_ptr<RunGate> gate_ = std::make_shared<RunGate>();  // known to the Variables
  std::uint64_t taken_epoch_ = 0;                                // the epoch of gate_ at the last success of take()
};

}  // namespace graphsink
