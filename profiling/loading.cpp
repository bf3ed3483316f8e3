// The cost of feeding a sunk training step: batches that are prepared between launches, beside them by one worker, and
// by several, for several steps a launch, against data that is there already. And who worked when, for a drawing.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "graphsink/graphsink.h"
#include "profiling/clock.h"
#ifdef GRAPHSINK_RANKS
#include "profiling/loading_ranks.h"
#endif
#include "profiling/machine.h"
#include "profiling/no_ranks.h"
#include "profiling/report_file.h"
#include "samples/cli.h"
#include "samples/models/data.h"
#include "samples/models/mlp.h"

namespace graphsink::bench {
namespace {

using nlohmann::json;

constexpr std::int64_t kBatch = 32;
constexpr int kResident = -1;  // in the place of a number of workers: every step reads one batch that was written once

struct Options {
  std::string device = "auto", data;
  std::vector<std::int64_t> steps_per_launch{1, 4, 16, 64, 256};
  std::vector<int> workers{1, 2, 4};
  std::int64_t steps = 512, preparing_us = 0;
  int windows = 5;
  std::string json_file;
  bool ranks = false;
};

std::string name_of(int workers) {
  if (workers == kResident) return "resident";
  return workers == 0 ? "sync" : "async, " + std::to_string(workers) + (workers == 1 ? " worker" : " workers");
}

// The mlp of graphsink-bench.
struct Training {
  models::Mlp mlp;
  models::Model model;
  Program program;

  Training(const models::DigitData& data, DeviceId device, models::Sharing sharing = {})
      : mlp(data.digits->images.shape()[1], 256, 10, 1),
        model(models::train_mlp(mlp, data.digits, {.sharing = std::move(sharing)})),
        program(compile(model.graph, {.target = device})) {}

  Loader loader(const models::DigitData& data, const OrderOptions& order, const LoaderOptions& options) {
    return {program,
            tensor_source({{"image", data.digits->images}, {"label", data.digits->labels}}),
            sample_order(data.digits->labels.shape().size(), order),
            {{"image", model.feeds[0].value}, {"label", model.feeds[1].value}},
            options};
  }
};

// Copies a sample, and computes something for so long.
void prepare(std::int64_t us, SampleMemory from, SampleMemory to) {
  for (std::size_t i = 0; i < from.size(); ++i) std::memcpy(to[i].data(), from[i].data(), from[i].size());
  const auto begun = Clock::now();
  while (us_since(begun) < static_cast<double>(us)) {
  }
}

// Windows of one way to feed the model.
class Trial {
 public:
  Trial(const Options& options, const models::DigitData& data, DeviceId device, int workers, std::int64_t per_launch)
      : options_(options), workers_(workers), per_launch_(per_launch), training_(data, device) {
    if (workers == kResident) {
      models::feed(training_.program, training_.model, 0, 1);
      return;
    }
    const auto prepares = [us = options.preparing_us](const SampleKey&, SampleMemory from, SampleMemory to) {
      prepare(us, from, to);
    };
    loader_.emplace(training_.loader(data, {.batch = kBatch, .seed = 1},
                                     {.steps_per_launch = per_launch, .workers = workers, .prepare = prepares}));
  }

  // The first window captures, and does not count.
  void run() {
    const double thread = thread_us();
    const auto begun = Clock::now();
    for (std::int64_t done = 0; done < options_.steps;) {
      const std::int64_t left = options_.steps - done;
      const std::int64_t steps = loader_ ? loader_->next(left) : std::min(per_launch_, left);
      if (steps > 0) training_.program.run(sink, {.steps = steps});
      done += steps;
    }
    const double used = thread_us() - thread;
    training_.program.sync();
    const double took = us_since(begun);
    const double waited = loader_ ? 1e6 * loader_->report().waited_seconds : 0;
    if (windows_++ > 0) {
      step_us_.push_back(took / static_cast<double>(options_.steps));
      thread_us_.push_back(used / static_cast<double>(options_.steps));
      idle_.push_back((waited - waited_) / took);
    }
    waited_ = waited;
    (void)training_.program.records("loss");
  }

  json row() const {
    json row = {{"loading", name_of(workers_)},
                {"steps_per_launch", per_launch_},
                {"step_us", spread_of(step_us_).median},
                {"thread_us", spread_of(thread_us_).median}};
    if (!loader_) return row;
    const LoaderReport report = loader_->report();
    row["idle_share"] = spread_of(idle_).median;
    row["starved_share"] = static_cast<double>(report.starved) / static_cast<double>(report.launches);
    return row;
  }

 private:
  const Options& options_;
  const int workers_;
  const std::int64_t per_launch_;
  Training training_;
  std::optional<Loader> loader_;
  std::vector<double> step_us_, thread_us_, idle_;
  double waited_ = 0;  // us, before this window
  int windows_ = 0;
};

// Who worked when: lanes of spans, each for the batches of one launch.
class Timeline {
 public:
  Timeline() { lanes_.push_back({std::this_thread::get_id(), "training thread"}); }

  double now() const { return us_since(start_); }
  // When the gradients of each launch were under way between ranks: two times for each step.
  void exchanged(const std::vector<Clock::time_point>& times, std::int64_t per_launch) {
    const auto us = [&](Clock::time_point time) {
      return std::chrono::duration<double, std::micro>(time - start_).count();
    };
    for (std::size_t i = 0; i + 1 < times.size(); i += 2)
      exchanges_.push_back({{"begin_us", us(times[i])},
                            {"end_us", us(times[i + 1])},
                            {"launch", static_cast<std::int64_t>(i / 2) / per_launch}});
  }
  // Called by this thread.
  void prepared(double begin, std::int64_t launch) {
    const double end = now();
    const std::lock_guard lock(mutex_);
    Lane& lane = of_this_thread();
    json& spans = lane.spans;
    if (!spans.empty() && spans.back()["launch"] == launch) {  // the next sample of the same launch
      spans.back()["end_us"] = end;
    } else {
      spans.push_back({{"begin_us", begin}, {"end_us", end}, {"launch", launch}});
    }
  }
  void ran(double begin, std::int64_t launch) {
    device_.push_back({{"begin_us", begin}, {"end_us", now()}, {"launch", launch}});
  }
  // Precondition: the threads have ended.
  json lanes() const {
    json lanes = json::array();
    for (const Lane& lane : lanes_)
      if (!lane.spans.empty()) lanes.push_back({{"name", lane.name}, {"spans", lane.spans}});
    if (!exchanges_.empty()) lanes.push_back({{"name", "collective"}, {"spans", exchanges_}});
    lanes.push_back({{"name", "device"}, {"spans", device_}});
    return lanes;
  }

 private:
  struct Lane {
    std::thread::id thread;
    std::string name;
    json spans = json::array();
  };
  Lane& of_this_thread() {
    for (Lane& lane : lanes_)
      if (lane.thread == std::this_thread::get_id()) return lane;
    return lanes_.emplace_back(Lane{std::this_thread::get_id(), "worker " + std::to_string(lanes_.size())});
  }

  const Clock::time_point start_ = Clock::now();
  std::mutex mutex_;
  std::vector<Lane> lanes_;
  json device_ = json::array(), exchanges_ = json::array();
};

// The means by which a rank measures beside the others. `start`: all ranks begin when they have called it.
struct Sharing {
  models::Sharing of;
  std::shared_ptr<std::vector<Clock::time_point>> times = std::make_shared<std::vector<Clock::time_point>>();
  std::function<void()> start = [] {};
};

// A few launches, each of which is waited for. Samples come in order, so that their numbers tell the launch.
json timeline_of(const Options& options, const models::DigitData& data, DeviceId device, int workers,
                 const Sharing& sharing = {}) {
  constexpr std::int64_t kLaunches = 8;
  const std::int64_t per_launch = options.steps_per_launch.front();
  Training training(data, device, sharing.of);
  models::run(training.program, training.model, sink, 0, per_launch);
  models::run(training.program, training.model, sink, per_launch, per_launch);  // it is captured now
  training.program.sync();
  sharing.times->clear();
  sharing.start();
  Timeline timeline;
  {
    const auto prepares = [&](const SampleKey& key, SampleMemory from, SampleMemory to) {
      const double begin = timeline.now();
      prepare(options.preparing_us, from, to);
      timeline.prepared(begin, key.sample / (kBatch * per_launch));
    };
    Loader loader = training.loader(data, {.batch = kBatch, .is_shuffled = false},
                                    {.steps_per_launch = per_launch, .workers = workers, .prepare = prepares});
    for (std::int64_t launch = 0; launch < kLaunches; ++launch) {
      const std::int64_t steps = loader.next();
      if (steps == 0) break;  // the epoch is too short for more
      const double begin = timeline.now();
      training.program.run(sink, {.steps = steps});
      training.program.sync();
      timeline.ran(begin, launch);
    }
  }
  timeline.exchanged(*sharing.times, per_launch);
  return {{"loading", name_of(workers)}, {"steps_per_launch", per_launch}, {"lanes", timeline.lanes()}};
}

// Only timelines, of all ranks together: one without asynchronous loading, and one with it.
int run_ranks(const Options& options) {
#ifdef GRAPHSINK_RANKS
  const Comm comm = world();
  const models::DigitData data = models::find_digits(options.data);
  ReportFile file(comm.rank() == 0 ? options.json_file : "");
  json report = {{"machine", describe_machine(Training(data, cpu()).program.target())},
                 {"data", data.source.name},
                 {"ranks", comm.size()},
                 {"preparing_us", options.preparing_us},
                 {"rows", json::array()},
                 {"timelines", json::array()}};
  for (const int workers : {0, options.workers.front()}) {
    Sharing sharing;
    sharing.of = timed_sharing(comm, sharing.times);
    sharing.start = [&] { comm.barrier(); };
    json timeline = timeline_of(options, data, cpu(), workers, sharing);
    timeline["lanes"] = lanes_of_ranks(comm, timeline["lanes"]);
    timeline["loading"] = std::to_string(comm.size()) + (comm.size() == 1 ? " rank, " : " ranks, ") + name_of(workers);
    report["timelines"].push_back(std::move(timeline));
  }
  if (comm.rank() == 0) file.write(report, [&] { std::printf("%d timelines\n", 2); });
  return 0;
#else
  (void)options;
  refuse_ranks();
#endif
}

json rows_of(const Options& options, const models::DigitData& data, DeviceId device, std::int64_t per_launch) {
  std::vector<std::unique_ptr<Trial>> trials;
  std::vector<int> ways{kResident, 0};
  ways.insert(ways.end(), options.workers.begin(), options.workers.end());
  for (int workers : ways) trials.push_back(std::make_unique<Trial>(options, data, device, workers, per_launch));
  for (int window = 0; window <= options.windows; ++window) {
    std::fprintf(stderr, "%lld steps a launch, window %d of %d\n", static_cast<long long>(per_launch), window,
                 options.windows);
    for (const auto& trial : trials) trial->run();
  }
  json rows = json::array();
  for (const auto& trial : trials) rows.push_back(trial->row());
  return rows;
}

void print(const json& report) {
  std::printf("device %s, mlp on batches of %d, %lld us to prepare a sample\n%8s  %-18s %10s %16s %12s %10s\n",
              report["machine"]["device"].get<std::string>().c_str(), static_cast<int>(kBatch),
              static_cast<long long>(report["preparing_us"].get<std::int64_t>()), "a launch", "loading", "us/step",
              "training thread", "idle at most", "starved");
  for (const json& row : report["rows"]) {
    std::printf("%8lld  %-18s %10.2f %13.2f us", static_cast<long long>(row["steps_per_launch"].get<std::int64_t>()),
                row["loading"].get<std::string>().c_str(), row["step_us"].get<double>(),
                row["thread_us"].get<double>());
    if (row.contains("idle_share"))
      std::printf(" %11.1f%% %9.1f%%", 100 * row["idle_share"].get<double>(), 100 * row["starved_share"].get<double>());
    std::printf("\n");
  }
}

int run(const Options& options) {
  const DeviceId device = cli::device_of(options.device);
  const models::DigitData data = models::find_digits(options.data);
  ReportFile file(options.json_file);
  json report = {{"machine", describe_machine(Training(data, device).program.target())},
                 {"data", data.source.name},
                 {"preparing_us", options.preparing_us},
                 {"rows", json::array()},
                 {"timelines", json::array()}};
  for (std::int64_t per_launch : options.steps_per_launch)
    for (json& row : rows_of(options, data, device, per_launch)) report["rows"].push_back(std::move(row));
  std::vector<int> drawn{0, options.workers.front()};
  if (options.workers.size() > 1) drawn.push_back(options.workers.back());
  for (int workers : drawn) report["timelines"].push_back(timeline_of(options, data, device, workers));
  file.write(report, [&] { print(report); });
  return 0;
}

}  // namespace
}  // namespace graphsink::bench

int main(int argc, char** argv) {
  using namespace graphsink;
  bench::Options options;
  CLI::App app(
      "Measures training steps whose batches are loaded between launches, beside them, and not at all, for several\n"
      "steps a launch. profiling/loading_timeline.py draws who worked when, from the report.");
  app.add_option("--device", options.device, "auto, cpu or cuda:N")->capture_default_str();
  app.add_option("--data", options.data, "directory of the IDX files; else $GRAPHSINK_DATA, else ../shared/data");
  app.add_option("--steps-per-launch", options.steps_per_launch, "numbers, separated by commas")
      ->delimiter(',')
      ->check(cli::whole_number(1, cli::kMostStepsPerLaunch))
      ->capture_default_str();
  app.add_option("--workers", options.workers, "numbers of threads that prepare batches, separated by commas")
      ->delimiter(',')
      ->check(cli::whole_number(1, 256))
      ->capture_default_str();
  app.add_option("--steps", options.steps, "of each window")
      ->check(cli::whole_number(1, cli::kMostSteps))
      ->capture_default_str();
  app.add_option("--preparing-us", options.preparing_us, "what a sample takes to prepare, beside its copy")
      ->check(cli::whole_number(0, 1000000))
      ->capture_default_str();
  app.add_option("--windows", options.windows, "of each way to load, beside the first")
      ->check(cli::whole_number(1, 1000))
      ->capture_default_str();
  app.add_option("--json", options.json_file, "write the report to this file; - prints it instead of the table");
  app.add_flag("--ranks", options.ranks,
               "only timelines, on the CPU, of all processes that were started together: loads, steps and collectives");
  const int code = cli::run_program(app, argc, argv,
                                    [&] { return options.ranks ? bench::run_ranks(options) : bench::run(options); });
  return options.ranks ? cli::end_of_rank(code) : code;
}
