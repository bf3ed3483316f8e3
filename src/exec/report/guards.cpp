#include "exec/report/guards.h"

#include <algorithm>
#include <cstring>

#include "base/at.h"
#include "base/number_text.h"
#include "passes/plan_queries.h"

namespace graphsink {
namespace {

// Describes the first element in which two tensors differ. The result is empty if there is none. Precondition: the
// types are the same.
std::string first_difference(const Tensor& a, const Tensor& b) {
  std::size_t size = size_of(a.dtype()), count = a.bytes() / size;
  for (std::size_t i = 0; i < count; ++i) {
    if (std::memcmp(a.data() + i * size, b.data() + i * size, size) == 0) continue;
    auto index = static_cast<std::int64_t>(i);
    return "element " + std::to_string(i) + " is " + number_text(a.at(index)) + " and " + number_text(b.at(index));
  }
  return "";
}

// Tells whether an argument has 4 or 8 bytes and so can be a number or an address. Arguments of other sizes are
// structs, whose padding bytes have no meaning, or small values, which may be empty structs.
bool is_word(const std::vector<std::byte>& argument) { return argument.size() == 4 || argument.size() == 8; }

std::uint64_t word(const std::vector<std::byte>& argument) {
  std::uint64_t value = 0;
  std::memcpy(&value, argument.data(), argument.size());
  return value;
}

// Fills memory with bytes 0xff, which are a NaN in f16, bf16, f32 and f64, and -1 in integers.
void fill_with_nan(DeviceQueue& device, Stream& stream, void* memory, std::size_t bytes) {
  const std::vector<std::byte> pattern(std::min<std::size_t>(bytes, 4096), std::byte{0xff});
  device.upload(stream, memory, pattern.data(), pattern.size());
  auto* begin = static_cast<std::byte*>(memory);
  for (std::size_t filled = pattern.size(); filled < bytes;) {
    std::size_t more = std::min(filled, bytes - filled);
    device.copy(stream, begin + filled, begin, more);
    filled += more;
  }
}

}  // namespace

void poison(const ShapeEntry& entry, const ProgramMemory& memory, const Session& session) {
  const Plan& plan = entry.plan();
  if (std::size_t bytes = host_arena_bytes(plan, entry.bound.facts()); bytes > 0)
    fill_with_nan(session.device(), session.stream(), entry.bound.host_arena(), bytes);
  for (int number = 0; number < session.count(); ++number) {
    std::size_t bytes = plan.devices[at(number)].arena_bytes;
    if (bytes == 0) continue;
    // A launch on the program's stream contains work of all devices, so the filling is ordered with that stream.
    session.issue_on(
        number, [&](DeviceQueue& there, Stream& on) { fill_with_nan(there, on, memory.arena(number).base(), bytes); });
  }
}

// --- arguments

void ArgumentAudit::warn(ShapeEntry& entry, const BoundNode* node, const std::string& problem) const {
  if (!entry.warned.insert(node).second) return;
  std::string place = node ? to_string(node->where) : "";
  log_.warn({"argument audit: ", node ? node->op->name : "a node of the plan", place.empty() ? "" : " (" + place + ")",
             problem});
}

void ArgumentAudit::examine(ShapeEntry& entry, const CapturedGraph& graph) const {
  std::map<const BoundNode*, std::size_t> kernels;  // how many kernels of each node were seen so far
  for (const CapturedKernel& kernel : graph.kernels()) {
    Arguments& known = entry.arguments[{kernel.node, kernels[kernel.node]++}];
    Arguments before = std::exchange(known, kernel.arguments);
    for (std::size_t i = 0; i < kernel.arguments.size(); ++i) {
      const std::vector<std::byte>& now = kernel.arguments[i];
      if (!is_word(now)) continue;
      MemoryState state = device_.memory_state(word(now));
      if (state == MemoryState::gone) warn(entry, kernel.node, " was captured with an address of freed memory");
      bool was_captured = kernel.node && before.size() == kernel.arguments.size();
      if (kernel.is_of_library || !was_captured || state != MemoryState::unknown || before[i] == now) continue;
      warn(entry, kernel.node,
           " was captured with another number than before: it reads something of the host that changes, of which a "
           "captured graph keeps the first value");
    }
  }
}

// --- replay

ReplayAudit::State ReplayAudit::state(const Plan& plan) const {
  State state;
  for (std::size_t i = 0; i < plan.variables.size(); ++i) {
    const Variable& variable = plan.variables[i];
    state.variables.push_back(
        status_.download(variable.type(), variables_.address(variable), plan.variable_devices[i]));
  }
  state.status = status_.saved();
  return state;
}

void ReplayAudit::set_state(const Plan& plan, const State& state) {
  for (std::size_t i = 0; i < plan.variables.size(); ++i) {
    const Tensor& value = state.variables[i];
    session_.issue_on(plan.variable_devices[i], [&](DeviceQueue& there, Stream& on) {
      there.upload(on, variables_.address(plan.variables[i]), value.data(), value.bytes());
    });
  }
  status_.restore(state.status);
}

std::vector<std::pair<std::string, Tensor>> ReplayAudit::results(const ShapeEntry& entry,
                                                                 std::uint32_t first_record) const {
  const Plan& plan = entry.plan();
  State after = state(plan);  // waits for the run
  std::vector<std::pair<std::string, Tensor>> results;
  results.emplace_back("the number of committed steps", Tensor::scalar(after.status.block.step));
  const bool has_failed = after.status.progress.failed != 0;
  results.emplace_back("whether a step failed", Tensor::scalar(has_failed));
  for (std::size_t i = 0; i < plan.variables.size(); ++i)
    results.emplace_back("Variable \"" + plan.variables[i].name() + "\"", after.variables[i]);
  // Behind a step that failed, or that found another size than was planned for, nobody can read outputs, and what is in
  // their memory depends on the mode.
  if (!has_failed) {
    for (const PlanOutput& output : plan.outputs)
      results.emplace_back("output \"" + output.name + "\"",
                           status_.download(output.type, entry.bound.address(output.buffer)));
  }
  for (auto& [name, values] : records_.stored(first_record, after.status.block.records))
    results.emplace_back("record \"" + name + "\"", std::move(values));
  return results;
}

bool ReplayAudit::is_due(Mode mode) {
  bool may_sink = is_sunk(mode) || mode == automatic;
  return may_sink && every_ > 0 && ++sunk_runs_ % every_ == 0;
}

void ReplayAudit::run(ShapeEntry& entry, Mode mode, std::int64_t first, std::int64_t end, const Where& where) {
  if (mode == automatic) mode = sink;
  runner_.set_times(nullptr);
  State before = state(entry.plan());
  if (before.status.progress.failed)
    return runner_.run(entry, mode, first, end);  // with an unreported failure, no step would commit
  const StepState& block = before.status.block;
  runner_.run(entry, interactive_serial, first, end);
  auto one_by_one = results(entry, block.records);
  set_state(entry.plan(), before);
  runner_.run(entry, mode, first, end);
  auto sunk = results(entry, block.records);
  for (std::size_t i = 0; i < sunk.size(); ++i) {
    // The first two are compared first. If they are equal, both runs left the same results, in the same sizes.
    const auto& [name, bits] = sunk[i];
    std::string difference = first_difference(one_by_one[i].second, bits);
    if (difference.empty()) continue;
    throw Error(
        "replay audit", where,
        name + " differs between op by op and sunk: " + difference + ", in the run that began at step " +
            std::to_string(block.step),
        session_.device().target().separate_memory
            ? "look for an op whose CUDA body reads something of the host that changes: a captured graph keeps its "
              "first value; make it an input or a Variable"
            : "look for an op whose body does not compute the same each time, as one that reads a static variable, a "
              "clock, or its own output before it is written; make what it reads an input or a Variable");
  }
}

}  // namespace graphsink
