// Implementation of CompileOptions::guards: poison, arguments, replay_every. Nothing here is part of a step.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/log.h"
#include "exec/issue/program_shapes.h"
#include "exec/issue/session.h"
#include "exec/issue/step_runner.h"
#include "exec/memory/program_memory.h"
#include "exec/memory/used_variables.h"
#include "exec/report/records.h"
#include "exec/report/step_status.h"
#include "ir/bound_node.h"

namespace graphsink {

// Fills the memory of all values that steps of the entry compute with bytes 0xff, behind the steps issued so far.
void poison(const ShapeEntry& entry, const ProgramMemory& memory, const Session& session);

// Warns of arguments of captured kernels that cannot be right at later launches.
class ArgumentAudit {
 public:
  ArgumentAudit(const DeviceMemory& device, const Log& log) : device_(device), log_(log) {}
  // After a capture of the entry.
  void examine(ShapeEntry& entry, const CapturedGraph& graph) const;

 private:
  void warn(ShapeEntry& entry, const BoundNode* node, const std::string& problem) const;

  const DeviceMemory& device_;
  Log log_;
};

// Repeats every nth sunk run: first op by op, then sunk from the same state, and compares what they leave behind.
class ReplayAudit {
 public:
  // `every`: 0 for never.
  ReplayAudit(int every, const Session& session, StepRunner& runner, StepStatus& status, const UsedVariables& variables,
              const Records& records)
      : every_(every), session_(session), runner_(runner), status_(status), variables_(variables), records_(records) {}

  // Whether the coming run, which is in this mode, is to be repeated. Counts it.
  bool is_due(Mode mode);
  // Runs steps [first, end) and waits for them. Throws Error that names what differs.
  void run(ShapeEntry& entry, Mode mode, std::int64_t first, std::int64_t end, const Where& where);

 private:
  struct State {
    std::vector<Tensor> variables;  // values of Plan::variables, in their order
    StepStatus::Saved status;
  };
  State state(const Plan& plan) const;
  void set_state(const Plan& plan, const State& state);
  // Everything that a run leaves behind, with names. A run with a failed step leaves no outputs.
  std::vector<std::pair<std::string, Tensor>> results(const ShapeEntry& entry, std::uint32_t first_record) const;

  int every_;
  const Session& session_;
  StepRunner& runner_;
  StepStatus& status_;
  const UsedVariables& variables_;
  const Records& records_;
  std::int64_t sunk_runs_ = 0;
};

}  // namespace graphsink
