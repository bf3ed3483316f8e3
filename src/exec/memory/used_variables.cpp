#include "exec/memory/used_variables.h"

#include <algorithm>
#include <mutex>

#include "base/at.h"
#include "graphsink/memory.h"

namespace graphsink {
namespace {

// Holds the locks of all Variables of a program. Every thread that holds several of these locks has taken them in the
// order of their addresses, which rules out a deadlock.
template <class Variables>
class Locked {
 public:
  explicit Locked(const Variables& variables) : variables_(variables) {
    for (const auto& [data, used] : variables_) used.variable.data()->lock.lock();
  }
  ~Locked() {
    for (const auto& [data, used] : variables_) used.variable.data()->lock.unlock();
  }
  Locked(const Locked&) = delete;
  Locked& operator=(const Locked&) = delete;

 private:
  const Variables& variables_;
};

void add_writer(const Variable& variable, const std::weak_ptr<VariableWriter>& writer) {
  VariableData& data = *variable.data();
  std::lock_guard lock(data.lock);
  std::erase_if(data.writers, [](const auto& known) { return known.expired(); });
  data.writers.push_back(writer);
}

}  // namespace

UsedVariables::UsedVariables(const Session& session) : session_(session), transfers_(at(session.count())) {}

UsedVariables::~UsedVariables() {
  for (const auto& [data, used] : variables_) {
    std::lock_guard lock(used.variable.data()->lock);
    used.home->released_by(session_.stream(), *gate_);
  }
}

const std::shared_ptr<Transfer>& UsedVariables::transfer(int device) {
  std::shared_ptr<Transfer>& known = transfers_.at(at(device));
  if (!known) known = std::make_shared<Transfer>(session_.shared_device(device), transfer_mutex_);
  return known;
}

void UsedVariables::bring(const Plan& plan, const std::weak_ptr<VariableWriter>& writer, Allocator& allocator,
                          const Where& where) {
  for (std::size_t i = 0; i < plan.variables.size(); ++i) {
    const Variable& variable = plan.variables[i];
    if (variables_.contains(variable.data().get())) continue;
    const int device = plan.variable_devices[i];
    const std::string there = device == 0 ? "" : " on " + to_string(session_.device(device).target().id);
    auto home =
        allocator.allocate("Variable \"" + variable.name() + "\" (" + bytes_text(variable.type().bytes()) + ")" + there,
                           "use a smaller model, an optimizer with less state (sgd)", where,
                           [&] { return home_of(variable, transfer(device), gate_, where); });
    variables_[variable.data().get()] = {variable, home, plan.variable_written[i]};
    if (plan.variable_written[i]) add_writer(variable, writer);
    gate_->touch();  // makes the next run call take() for this Variable
  }
}

void UsedVariables::use_memory(const Variable& variable, std::shared_ptr<void> memory, const Where& where) {
  VariableData& data = *variable.data();
  std::lock_guard lock(data.lock);
  if (auto home = std::static_pointer_cast<DeviceVariable>(data.storage)) {
    home->require_parent("it was given memory", where);
    if (home->address() == memory.get()) return home->keep(memory);
    throw Error("bind_memory", where, "the Variable \"" + variable.name() + "\" has memory on a device already",
                "call bind_memory() before any program that uses it is bound or run");
  }
  const int device = home_device(variable, session_.device().target());
  data.storage = std::make_shared<DeviceVariable>(data.name, transfer(device), variable.type(), std::move(memory));
}

void UsedVariables::enter_run(std::optional<RunGate::Inside>& inside) {
  inside.emplace(*gate_);
  if (gate_->epoch() == taken_epoch_) return;
  inside.reset();  // the program must not be inside while it waits for a lock
  const Locked all(variables_);
  take();
  inside.emplace(*gate_);  // does not wait: a thread that holds the gate also holds the lock of a Variable
}

void UsedVariables::take() {
  // The epoch is read first. If a Variable is marked as broken meanwhile, the epoch changes, and the next run sees it.
  // Nothing else can change it, because all Variables are locked.
  std::uint64_t epoch = gate_->epoch();
  for (auto& [data, used] : variables_) {
    used.home->take(session_.device(), session_.shared_stream(), *gate_);
    used.home->require_whole();
    if (used.is_written) used.home->will_be_written();
    used.version = used.home->version();
  }
  taken_epoch_ = epoch;
}

void UsedVariables::require_whole() const {
  if (gate_->epoch() == taken_epoch_) return;  // no other user has touched them since they were last found whole
  for (const auto& [data, used] : variables_) used.home->require_whole();
}

void UsedVariables::set_broken(const BrokenCommit& why) const {
  Error broken(why.op(), why.where(), why.problem(),
               "write their values from before the step to all Variables that the program assigns; " + why.remedy(),
               why.code());
  for (const auto& [data, used] : variables_)
    if (used.is_written) used.home->set_broken(broken);
}

}  // namespace graphsink
