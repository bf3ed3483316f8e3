// What CompileOptions::guards asks for.
#include <cstring>

#include "api/program_impl.h"
#include "base/at.h"
#include "base/number_text.h"
#include "passes/passes.h"

namespace graphsink {
namespace {

// "" if there is none. Precondition: the types are the same.
std::string first_difference(const Tensor& a, const Tensor& b) {
  std::size_t size = size_of(a.dtype()), count = a.bytes() / size;
  for (std::size_t i = 0; i < count; ++i) {
    if (std::memcmp(a.data() + i * size, b.data() + i * size, size) == 0) continue;
    auto index = static_cast<std::int64_t>(i);
    return "element " + std::to_string(i) + " is " + number_text(a.at(index)) + " and " + number_text(b.at(index));
  }
  return "";
}

// Of 4 or 8 bytes: a number or an address. Others are structs, in which bytes mean nothing that stand between members,
// or small ones, which may be empty structs.
bool is_word(const std::vector<std::byte>& argument) { return argument.size() == 4 || argument.size() == 8; }

std::uint64_t word(const std::vector<std::byte>& argument) {
  std::uint64_t value = 0;
  std::memcpy(&value, argument.data(), argument.size());
  return value;
}

}  // namespace

void Program::Impl::poison() {
  constexpr unsigned char kNan = 0xff;  // in every byte: a NaN in f16, bf16, f32 and f64, -1 in integers
  const Plan& plan = current_->bound.plan();
  if (std::size_t bytes = host_arena_bytes(plan, current_->bound.facts()); bytes > 0)
    device().fill(stream(), current_->bound.host_arena(), kNan, bytes);
  for (int number = 0; number < session_.count(); ++number) {
    auto index = at(number);
    std::size_t bytes = plan.devices[index].arena_bytes;
    if (bytes == 0) continue;
    // A launch on the program's stream holds work of all devices.
    session_.issue_on(number,
                      [&](Device& there, Stream& on) { there.fill(on, memory_[index].arena->base(), kNan, bytes); });
  }
}

Program::Impl::State Program::Impl::state() {
  State state;
  const Plan& plan = current_->bound.plan();
  for (const Variable& variable : plan.variables)
    state.variables.push_back(download(variable.type(), used(variable).home->address()));
  state.block = download_block();
  state.progress = progress();
  return state;
}

void Program::Impl::set_state(const State& state) {
  const Plan& plan = current_->bound.plan();
  for (std::size_t i = 0; i < plan.variables.size(); ++i) {
    const Tensor& value = state.variables[i];
    device().upload(stream(), used(plan.variables[i]).home->address(), value.data(), value.bytes());
  }
  device().upload(stream(), &control()->block, &state.block, sizeof state.block);
  device().wait(stream());
  progress() = state.progress;
  static_cast<HostStatus*>(host_status_.get())->clear();
}

// Everything that a run leaves behind, with names.
std::vector<std::pair<std::string, Tensor>> Program::Impl::results(std::uint32_t first_record) {
  device().wait(stream());
  State after = state();
  const Plan& plan = current_->bound.plan();
  std::vector<std::pair<std::string, Tensor>> results;
  results.emplace_back("the number of committed steps", Tensor::scalar(after.block.step));
  for (std::size_t i = 0; i < plan.variables.size(); ++i)
    results.emplace_back("Variable \"" + plan.variables[i].name() + "\"", after.variables[i]);
  for (const PlanOutput& output : plan.outputs)
    results.emplace_back("output \"" + output.name + "\"",
                         download(output.type, current_->bound.address(output.buffer)));
  for (const Record& record : records_) {
    std::uint32_t end = after.block.records, count = std::min(end - first_record, record.capacity);
    std::vector<double> values;
    for (std::uint32_t k = end - count; k != end; ++k) values.push_back(record.ring[k % record.capacity]);
    results.emplace_back("record \"" + record.name + "\"", Tensor({count}, values));
  }
  return results;
}

bool Program::Impl::is_audited(Mode mode) {
  int every = options_.guards.replay_every;
  bool may_sink = mode.execution != Mode::Execution::interactive;
  return may_sink && every > 0 && ++sunk_runs_ % every == 0;
}

void Program::Impl::run_audited(Mode mode, std::int64_t steps, const Where& where) {
  if (mode == automatic) mode = sink;
  State before = state();
  if (before.progress.failed) return run_sunk(mode, 0, steps);  // nobody was told of it yet: nothing commits
  run_interactive(interactive_serial, 0, steps);
  auto one_by_one = results(before.block.records);
  set_state(before);
  run_sunk(mode, 0, steps);
  auto sunk = results(before.block.records);
  for (std::size_t i = 0; i < sunk.size(); ++i) {
    const auto& [name, bits] = sunk[i];  // the number of steps comes first: where it agrees, so do all sizes
    std::string difference = first_difference(one_by_one[i].second, bits);
    if (difference.empty()) continue;
    throw Error(
        "replay audit", where,
        name + " differs between op by op and sunk: " + difference + ", in the run that began at step " +
            std::to_string(before.block.step),
        "look for an op whose CUDA body reads something of the host that changes: a captured graph keeps its first "
        "value; make it an input or a Variable");
  }
}

void Program::Impl::warn_of_argument(const BoundNode* node, const std::string& problem) {
  if (!current_->warned.insert(node).second) return;
  std::string place = node ? to_string(node->where) : "";
  log_.warn({"argument audit: ", node ? node->op->name : "a node of the plan", place.empty() ? "" : " (" + place + ")",
             problem});
}

void Program::Impl::audit_arguments(const CapturedGraph& graph) {
  std::map<const BoundNode*, std::size_t> kernels;  // of each node so far
  for (const CapturedKernel& kernel : device().kernels(graph)) {
    Arguments& known = current_->arguments[{kernel.node, kernels[kernel.node]++}];
    Arguments before = std::exchange(known, kernel.arguments);
    for (std::size_t i = 0; i < kernel.arguments.size(); ++i) {
      const std::vector<std::byte>& now = kernel.arguments[i];
      if (!is_word(now)) continue;
      MemoryState state = device().memory_state(word(now));
      if (state == MemoryState::gone) warn_of_argument(kernel.node, " was captured with an address of freed memory");
      bool was_captured = kernel.node && before.size() == kernel.arguments.size();
      if (!was_captured || state != MemoryState::unknown || before[i] == now) continue;
      warn_of_argument(kernel.node,
                       " was captured with another number than before: it reads something of the host that changes, "
                       "of which a captured graph keeps the first value");
    }
  }
}

}  // namespace graphsink
