// One mode of one workload: a fresh program, its results, its counts, its times.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "profiling/clock.h"
#include "samples/models/model.h"

namespace graphsink::bench {

// How the model is compiled, with so many threads.
inline Tuning tuning_of(const models::Model& model, int threads) {
  Tuning tuning = model.tuning;
  tuning.threads = threads;
  return tuning;
}

// Sums over the counted steps, per step where the name says so; totals include the warm-up.
struct Counts {
  double api_calls_per_step = 0, graph_launches_per_step = 0, kernels_per_step = 0, copies_per_step = 0;
  double host_nodes_per_step = 0;
  std::uint64_t captures = 0, fallbacks = 0;
  double sunk_share = 0;  // kernels that a graph launch issued, over all kernels
};

struct Results {
  double loss_first = 0, loss_last = 0;
  std::string loss_hash, state_hash;  // checksums of the losses of all steps, of the bits of all Variables at the end
};

class Trial {
 public:
  static constexpr std::int64_t kWarmUp = 3;
  static constexpr int kWindows = 15;

  // A model that has one step a run has one step a launch. `threads`: Tuning::threads. Throws Error if the
  // model cannot run on the device.
  Trial(models::Model model, Mode mode, DeviceId device, std::int64_t steps, std::int64_t steps_per_launch,
        int threads = 0);

  // kWarmUp steps, then the counted ones. Call it first, and once; results() and counts() are of these steps alone.
  void run_counted();
  // Adds a sample of step_us: at least 20 ms between two syncs, divided by its steps. Every window starts from the
  // state after run_counted() and trains on the same data.
  void time_window();
  // Fills latency_us and enqueue_us.
  void time_launches();

  Mode mode() const { return mode_; }
  std::int64_t steps() const { return steps_; }
  std::int64_t steps_per_launch() const { return steps_per_launch_; }
  int threads() const { return threads_; }
  const Program& program() const { return program_; }
  // The report on all steps so far, timed or not.
  AutomaticReport automatic_report() { return program_.automatic_report(); }
  double compile_us() const { return compile_us_; }  // wall time of compile(): plan, and opening the device
  const Results& results() const { return results_; }
  const Counts& counts() const { return counts_; }
  // Nothing before time_window() or time_launches(): wall time of a step among others, wall time of one run() and its
  // sync(), time of this thread inside one run().
  std::optional<Spread> step_us() const { return spread_if_any(step_us_); }
  std::optional<Spread> latency_us() const { return spread_if_any(latency_us_); }
  std::optional<Spread> enqueue_us() const { return spread_if_any(enqueue_us_); }

 private:
  static std::optional<Spread> spread_if_any(const std::vector<double>& samples) {
    return samples.empty() ? std::nullopt : std::optional(spread_of(samples));
  }
  void run(std::int64_t count) { program_.run(mode_, {.steps = count}); }
  void run_fed(std::int64_t first, std::int64_t end);
  void take_losses();
  void restore();
  double window_us(std::int64_t runs);

  models::Model model_;
  Mode mode_;
  std::int64_t steps_, steps_per_launch_;
  int threads_;
  double compile_us_ = 0;
  Program program_;
  std::vector<double> losses_;
  Results results_;
  Counts counts_;
  Counters in_runs_;  // counts of run() alone, without writes of feeds and reads of losses
  std::uint64_t kernels_in_graphs_ = 0;
  std::vector<Tensor> state_;  // data of the Variables, after run_counted()
  std::int64_t runs_per_window_ = 1;
  std::vector<double> step_us_, latency_us_, enqueue_us_;
};

}  // namespace graphsink::bench
