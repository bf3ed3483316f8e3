#include "exec/report/step_status.h"

#include <atomic>
#include <utility>

#include "base/trace.h"
#include "passes/plan_queries.h"

namespace graphsink {
namespace {

constexpr const char* kRemedy =
    "the step committed nothing; mend its input, or lower the learning rate, and run it again";
constexpr const char* kRoomRemedy = "the step committed nothing; give the result room for more elements";
constexpr const char* kRankRemedy = "the step committed nothing on any rank; see the Error of that rank";
constexpr const char* kStopRemedy =
    "that step was committed, and none after it; catch Errors with ErrorCode::stopped, or run() again to go on";

const char* remedy_of(StepError error) {
  if (error == StepError::size) return kRoomRemedy;
  if (error == StepError::other_rank) return kRankRemedy;
  if (error == StepError::other_stop) return kStopOfRankRemedy;
  if (error == StepError::other_step) return kStepOfRankRemedy;
  return kRemedy;
}

}  // namespace

// Tells a writer of a Variable about a failed step of the program. May outlive the program.
class StepStatus::Teller : public VariableWriter {
 public:
  explicit Teller(StepStatus& status) : status_(&status) {}

  // The caller holds the lock of a Variable, and the gate keeps the program outside of its calls. So no other thread
  // uses the status meanwhile.
  void report_failed_step() override {
    std::lock_guard lock(mutex_);
    if (!status_) return;
    RunGate& gate = status_->variables_.gate();
    const RunGate::Held held(gate);
    if (status_->are_ranks_told_) return;  // the steps that failed are those that waited for other ranks
    if (status_->require_ranks_) status_->require_ranks_();
    if (gate.is_used_here()) return status_->report(Where());
    Failure* failure = status_->find(Where());  // stays stored for the thread that uses the program
    if (!failure || std::exchange(failure->is_told, true)) return;
    throw Error(failure->error);
  }

  // Called when the program is destroyed.
  void leave() {
    std::lock_guard lock(mutex_);
    status_ = nullptr;
  }

 private:
  std::mutex mutex_;
  StepStatus* status_;
};

StepStatus::StepStatus(const GraphData& graph, const Session& session, const UsedVariables& variables)
    : graph_(graph), session_(session), variables_(variables), teller_(std::make_shared<Teller>(*this)) {}

StepStatus::~StepStatus() { teller_->leave(); }

std::shared_ptr<VariableWriter> StepStatus::teller() const { return teller_; }

void StepStatus::allocate(StepState* block, RunningCalls& running) {
  DeviceMemory& device = session_.device();
  block_ = block;
  host_ = device.allocate_host(sizeof(HostStatus));
  (new (host_.get()) HostStatus)->running = &running;
  progress_ = device.allocate_host(sizeof(Progress));
  new (progress_.get()) Progress;
  host().step_failed = &progress().failed;
  times_ = device.allocate_host(sizeof(StepTimes));
  new (times_.get()) StepTimes;
}

std::size_t StepStatus::bytes() {
  return rounded_block(sizeof(HostStatus)) + rounded_block(sizeof(Progress)) + rounded_block(sizeof(StepTimes));
}

StepState StepStatus::download_block() const {
  StepState block;
  session_.device().copy(session_.stream(), &block, block_, sizeof block);
  session_.device().wait(session_.stream());
  return block;
}

Tensor StepStatus::download(const TensorType& type, const void* address, int device) const {
  GRAPHSINK_TRACE(copy, "read");
  Tensor tensor(type);
  session_.issue_on(device,
                    [&](DeviceQueue& there, Stream& on) { there.copy(on, tensor.data(), address, tensor.bytes()); });
  session_.device().wait(session_.stream());
  return tensor;
}

void StepStatus::restore(const Saved& saved) {
  session_.device().upload(session_.stream(), block_, &saved.block, sizeof saved.block);
  session_.device().wait(session_.stream());
  progress() = saved.progress;
  host().clear();
}

void StepStatus::note_broken_off() {
  StepState block = download_block();
  bool is_known = block.acknowledged != acknowledged_;  // an older failure, which the next launch clears
  if (!host().failed && (block.error_node < 0 || is_known)) return;
  Progress& told = progress();
  told.error_node = host().failed ? host().node : block.error_node;
  told.error_step = block.error_node >= 0 ? block.error_step : block.step;
  told.error = block.error;
  told.error_index = block.error_index;
  told.failed = 1;
}

bool StepStatus::has_failed() const { return std::atomic_ref(progress().failed).load(std::memory_order_acquire) != 0; }

std::optional<Thrown> StepStatus::take_exception() {
  session_.device().wait(session_.stream());  // a later step may still be throwing
  std::optional<Thrown> result;
  if (host().failed) result = host().what;
  host().clear();
  return result;
}

StepStatus::Failure* StepStatus::find(const Where& where) {
  if (failure_) return &*failure_;
  if (!has_failed()) return nullptr;
  Progress& told = progress();
  StepError error = std::atomic_ref(told.error).load();
  const std::optional<Thrown> exception = take_exception();
  const auto node = static_cast<std::size_t>(std::atomic_ref(told.error_node).load());
  const Node* source = node < graph_.nodes.size() ? &graph_.nodes[node] : nullptr;
  std::optional<Error> thrown;
  if (exception && error == StepError::unknown)
    thrown = body_error(source ? graph_.name_of(*source) : "step", source ? source->where : Where(), *exception);
  std::string problem = (thrown ? thrown->problem() : to_string(error, std::atomic_ref(told.error_index).load())) +
                        ", in step " + std::to_string(std::atomic_ref(told.error_step).load());
  const ErrorCode code = thrown ? thrown->code() : ErrorCode::step_failed;
  std::string remedy(thrown ? thrown->remedy() : std::string_view(remedy_of(error)));
  if (thrown || error == StepError::other_stop || error == StepError::other_step) remedy += "; the step committed nothing";
  if (error == StepError::stopped) {
    const NamedValue& stop = graph_.stops.at(static_cast<std::size_t>(std::atomic_ref(told.error_index).load()));
    return &failure_.emplace(Error("stop_when", stop.where, problem, kStopRemedy, ErrorCode::stopped));
  }
  if (!source) return &failure_.emplace(Error("step", where, problem, remedy, code));
  std::string op = graph_.name_of(*source);
  if (!writes_variables(*source->op, source->inputs.size()))
    return &failure_.emplace(Error(op, source->where, problem, remedy, code));
  BrokenCommit broken(op, source->where, "the step broke off while it committed: " + problem,
                      "an op that writes Variables must not throw", code);
  variables_.set_broken(broken);
  return &failure_.emplace(broken);
}

void StepStatus::report(const Where& where) {
  if (!find(where)) return;
  Error error = failure_->error;
  failure_.reset();
  acknowledge();
  outputs_ = Outputs::lost;
  throw error;
}

void StepStatus::acknowledge() {
  std::atomic_ref(progress().failed).store(0);
  // Whoever is told so, with put(), sees the store above, and cannot report the next failure before it.
  ++acknowledged_;
  if (on_acknowledged_) on_acknowledged_();
}

std::optional<StepStatus::SizeMiss> StepStatus::size_miss() const {
  if (!has_failed()) return {};
  SizeMiss miss;
  auto take = [&](std::int32_t node, std::int64_t elements) {
    if (node >= 0 && (miss.node < 0 || node < miss.node)) miss = {node, elements};
  };
  take(progress().size_node, progress().size);
  take(host().size_node, host().size);
  if (miss.node < 0) return {};
  return miss;
}

void StepStatus::forget_size_miss() {
  host().clear();
  acknowledge();
}

// A launch tells the step block which failures it knows to be reported. So if it knows the last one, it came later.
bool StepStatus::has_outputs() const {
  if (outputs_ != Outputs::lost) return outputs_ == Outputs::there;
  return download_block().acknowledged == acknowledged_;
}

}  // namespace graphsink
