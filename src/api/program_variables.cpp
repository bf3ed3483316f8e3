// What a Program does because others use its Variables, too.
#include "api/program_impl.h"
#include "base/at.h"

namespace graphsink {
namespace {

// Holds the locks of all Variables of a program. Whoever holds several has locked them in the order of their addresses.
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

}  // namespace

// Programs that share Variables follow one another. A program takes all of its Variables at once, under the locks of
// all of them, and is inside before it lets the locks go: the next program that wants one of them waits until this run
// is issued, and what it then gives to the device comes after this run. While nobody else uses them, the program keeps
// what it has taken, and no lock is needed.
void Program::Impl::enter_run(std::optional<RunGate::Inside>& inside) {
  inside.emplace(*gate_);
  if (gate_->epoch() == taken_epoch_) return;
  inside.reset();  // nobody waits for a lock inside
  const Locked all(variables_);
  take_variables();
  inside.emplace(*gate_);  // does not wait: who holds the gate holds the lock of a Variable, too
}

void Program::Impl::take_variables() {
  // From before: a Variable that is marked as broken meanwhile moves it, and the next run finds out. Nothing else can,
  // as all Variables are locked.
  std::uint64_t epoch = gate_->epoch();
  for (auto& [data, used] : variables_) {
    used.home->take(device(), session_.shared_stream(), *gate_);
    used.home->require_whole();
    if (used.is_written) used.home->will_be_written();
    used.version = used.home->version();
  }
  taken_epoch_ = epoch;
}

std::uint64_t Program::Impl::version_of(const Buffer& source) {
  if (source.storage == Storage::input) return inputs_->version(source.index);
  return used(current_->bound.plan().variables[at(source.index)]).version;
}

void Program::Impl::refresh_hoisted() {
  const Plan& plan = current_->bound.plan();
  for (std::size_t i = 0; i < plan.hoisted.size(); ++i) {
    const HoistedCopy& copy = plan.hoisted[i];
    std::uint64_t version = version_of(plan.buffers[at(copy.origin)]);
    if (current_->bound.is_fresh(i, version)) continue;
    // Behind what wrote the origin, and before what writes it next.
    session_.issue_on(plan.buffers[at(copy.destination)].device,
                      [&](Device& there, Stream& on) { current_->bound.refresh(i, version, there, on); });
  }
}

void Program::Impl::require_whole_variables() {
  if (gate_->epoch() == taken_epoch_) return;  // nobody has touched them since they were found whole
  for (const auto& [data, used] : variables_) used.home->require_whole();
}

void Program::Impl::break_variables(const BrokenCommit& why) {
  Error broken(why.op(), why.where(), why.problem(),
               "write their values from before the step to all Variables that the program assigns; " + why.remedy());
  for (const auto& [data, used] : variables_)
    if (used.is_written) used.home->set_broken(broken);
}

}  // namespace graphsink
