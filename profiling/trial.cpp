#include "profiling/trial.h"

#include <algorithm>
#include <cmath>

namespace graphsink::bench {
namespace {

constexpr double kWindowUs = 20e3;
constexpr std::size_t kMinSamples = 9, kMaxSamples = 500;
constexpr double kSamplingUs = 100e3;              // time for latency and enqueue time, once there are kMinSamples
constexpr std::int64_t kStepsBetweenReads = 4096;  // a program keeps the last 65,536 losses

template <class Sample>
std::vector<double> sample_for_a_while(const Sample& sample) {
  std::vector<double> samples;
  auto start = Clock::now();
  while (samples.size() < kMinSamples || (us_since(start) < kSamplingUs && samples.size() < kMaxSamples))
    samples.push_back(sample());
  return samples;
}

void add_difference(Counters& sum, const Counters& before, const Counters& after) {
  sum.api_calls += after.api_calls - before.api_calls;
  sum.graph_launches += after.graph_launches - before.graph_launches;
  sum.kernels += after.kernels - before.kernels;
  sum.copies += after.copies - before.copies;
  sum.host_nodes += after.host_nodes - before.host_nodes;
}

Program timed_compile(const models::Model& model, DeviceId device, int threads, double& us) {
  Clock::time_point start = Clock::now();
  Program program = compile(model.graph, {.target = device, .tuning = tuning_of(model, threads)});
  us = us_since(start);
  return program;
}

}  // namespace

Trial::Trial(models::Model model, Mode mode, DeviceId device, std::int64_t steps, std::int64_t steps_per_launch,
             int threads)
    : model_(std::move(model)),
      mode_(mode),
      steps_(steps),
      steps_per_launch_(model_.has_one_step_a_run ? 1 : steps_per_launch),
      threads_(threads),
      program_(timed_compile(model_, device, threads, compile_us_)) {}

// Steps [first, end), each with its own data; a remainder is one shorter run.
void Trial::run_fed(std::int64_t first, std::int64_t end) {
  std::int64_t read = first;
  for (std::int64_t step = first; step < end;) {
    std::int64_t count = std::min(steps_per_launch_, end - step);
    models::feed(program_, model_, step, count);
    Counters before = program_.counters();
    run(count);
    Counters after = program_.counters();
    add_difference(in_runs_, before, after);
    if (std::uint64_t launches = after.graph_launches - before.graph_launches; launches > 0) {
      bool in_one = count > 1 && program_.plan().loop_over_steps;
      // On a device with separate memory, a kernel before the launch hands over its parameters.
      std::uint64_t own = program_.target().separate_memory ? launches : 0;
      kernels_in_graphs_ += in_one ? after.kernels - before.kernels - own
                                   : static_cast<std::uint64_t>(count * program_.captured()->kernels);
    }
    step += count;
    if (step - read >= kStepsBetweenReads) read = step, take_losses();
  }
  take_losses();
}

void Trial::take_losses() {
  std::vector<double> losses = program_.records<double>("loss");
  losses_.insert(losses_.end(), losses.begin(), losses.end());
}

void Trial::run_counted() {
  run_fed(0, kWarmUp);
  in_runs_ = Counters{};
  kernels_in_graphs_ = 0;
  run_fed(kWarmUp, kWarmUp + steps_);

  auto steps = static_cast<double>(steps_);
  counts_.api_calls_per_step = static_cast<double>(in_runs_.api_calls) / steps;
  counts_.graph_launches_per_step = static_cast<double>(in_runs_.graph_launches) / steps;
  counts_.kernels_per_step = static_cast<double>(in_runs_.kernels) / steps;
  counts_.copies_per_step = static_cast<double>(in_runs_.copies) / steps;
  counts_.host_nodes_per_step = static_cast<double>(in_runs_.host_nodes) / steps;
  counts_.captures = program_.counters().captures;
  counts_.fallbacks = program_.counters().fallbacks;
  if (in_runs_.kernels > 0)
    counts_.sunk_share = static_cast<double>(kernels_in_graphs_) / static_cast<double>(in_runs_.kernels);

  results_.loss_first = losses_.front();
  results_.loss_last = losses_.back();
  results_.loss_hash = checksum(losses_.data(), losses_.size() * sizeof(double));
  std::string bits;
  for (const Variable& variable : model_.variables) {
    state_.push_back(variable.read());
    bits.append(reinterpret_cast<const char*>(state_.back().data()), state_.back().bytes());
  }
  results_.state_hash = checksum(bits.data(), bits.size());
}

void Trial::restore() {
  program_.sync();
  for (std::size_t i = 0; i < state_.size(); ++i) model_.variables[i].write(state_[i]);
  models::feed(program_, model_, kWarmUp + steps_, steps_per_launch_);
  run(steps_per_launch_);  // the first run after a pause wakes threads
  program_.sync();
}

double Trial::window_us(std::int64_t runs) {
  auto start = Clock::now();
  for (std::int64_t i = 0; i < runs; ++i) run(steps_per_launch_);
  program_.sync();
  return us_since(start);
}

void Trial::time_window() {
  restore();
  double us = window_us(runs_per_window_);
  while (us < kWindowUs) {
    double runs = static_cast<double>(runs_per_window_);
    runs_per_window_ = static_cast<std::int64_t>(std::ceil(runs * std::min(10.0, 1.3 * kWindowUs / us)));
    us = window_us(runs_per_window_);
  }
  step_us_.push_back(us / static_cast<double>(runs_per_window_ * steps_per_launch_));
}

void Trial::time_launches() {
  restore();
  latency_us_ = sample_for_a_while([&] {
    auto start = Clock::now();
    run(steps_per_launch_);
    program_.sync();
    return us_since(start);
  });
  double clock_cost = thread_clock_cost();
  enqueue_us_ = sample_for_a_while([&] {
    double us = thread_us_of([&] { run(steps_per_launch_); }, clock_cost);
    program_.sync();
    return us;
  });
}

}  // namespace graphsink::bench
