// graphsink-bench: what each mode costs and what it computes, for workloads by name, as a table and as JSON.
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <memory>
#include <thread>

#include "profiling/clock.h"
#include "profiling/machine.h"
#include "profiling/no_ranks.h"
#include "profiling/profile.h"
#include "profiling/ranks_bench.h"
#include "profiling/report.h"
#include "profiling/report_file.h"
#include "samples/cli.h"
#include "samples/models/synthetic.h"
#include "samples/models/workloads.h"

namespace {

using namespace graphsink;
using bench::Clock;
using bench::Trial;
using bench::us_since;
using nlohmann::json;

struct Options {
  std::vector<std::string> workloads;
  std::vector<std::string> modes;
  bool names_modes = false;  // given, not the default
  std::string device = "auto";
  std::int64_t steps = 100;
  std::int64_t steps_per_launch = 1;
  std::string size = std::string_view(GRAPHSINK_FLAVOUR) == "emulated" ? "test" : "full";
  std::string json_file;
  std::string export_directory;
  std::string explain;
  int threads = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  bool no_fuse = false;
  bool no_unroll = false;
  bool programmatic_launch = false;
  bool untimed = false;
  bool profile = false;
  bool list = false;
  bool ranks = false;
  bool nccl = false;
  std::int64_t bucket_bytes = std::int64_t{4} << 20;
  bool names_threads = false;  // given, not the default
  models::WorkloadOptions workload;
};

void print_list() {
  std::cout << "workloads:\n";
  for (const auto& workload : models::Workloads::list())
    std::cout << "  " << workload.name << ": " << workload.what << "\n";
  std::cout << "modes:\n";
  for (Mode mode : kAllModes)
    std::cout << "  " << to_string(mode) << (is_split(mode) ? ": only for graphs on more than one device" : "") << "\n";
  std::cout << "  merged-serial, merged-parallel: interactive ones of such graphs\n";
}

// A mode, under the name it was asked for by.
struct NamedMode {
  std::string name;
  Mode mode;
  bool is_for_several_devices;
};

NamedMode mode_of(const std::string& name) {
  if (name == "eager")
    throw Error("mode \"" + name + "\"", Where(), "this version does not have it", "use another one of --list");
  if (name == "merged-serial") return {name, interactive_serial, true};
  if (name == "merged-parallel") return {name, interactive_parallel, true};
  Mode mode = cli::mode_of(name);
  return {name, mode, is_split(mode)};
}

// Writes what another system needs to compute the same: DIR/WORKLOAD.safetensors with the Variables before the first
// step, by their names, and the data of all steps as "feed.0", "feed.1" in the order of the model's feeds. Where the
// data of each step have another size, those of step 7 are "feed.0.7", "feed.1.7".
void write_inputs(const std::filesystem::path& directory, const models::Model& model, std::int64_t steps) {
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  Checkpoint inputs = snapshot(model.variables);
  const std::int64_t all = Trial::kWarmUp + steps;
  for (std::size_t i = 0; i < model.feeds.size(); ++i) {
    const std::string name = "feed." + std::to_string(i);
    if (!model.has_one_step_a_run) inputs.tensors.emplace(name, model.feeds[i].slices(0, all));
    for (std::int64_t step = 0; model.has_one_step_a_run && step < all; ++step)
      inputs.tensors.emplace(name + "." + std::to_string(step), model.feeds[i].slices(step, 1));
  }
  write_checkpoint(directory / (model.name + ".safetensors"), inputs);
}

void print_plan(const models::Model& model, DeviceId device, const std::string& format) {
  Program program = compile(model.graph, {.target = device, .tuning = model.tuning});
  if (format == "text") std::cout << model.name << ": ";
  std::cout << (format == "json"  ? program.explain_json()
                : format == "dot" ? program.explain_dot()
                                  : program.explain());
}

// Rewritten in place, and only on a terminal.
void show_progress(const std::string& text) {
  if (isatty(STDERR_FILENO)) std::cerr << "\r\033[K" << text << std::flush;
}

// How far the workloads are, a line now and then, where no terminal shows more.
class Estimate {
 public:
  explicit Estimate(std::size_t workloads) : workloads_(workloads) {}
  void say_after_one() {
    ++done_;
    const double seconds = us_since(start_) / 1e6;
    if (isatty(STDERR_FILENO) || done_ == workloads_ || seconds < 1.5 * said_ + 5) return;
    said_ = seconds;
    std::cerr << "measured " << done_ << " of " << workloads_ << " workloads in " << std::llround(seconds) << " s\n";
  }

 private:
  Clock::time_point start_ = Clock::now();
  std::size_t workloads_, done_ = 0;
  double said_ = 0;
};

bool is_on_several_devices(const models::Model& model, DeviceId device) {
  return compile(model.graph, {.target = device}).plan().host_nodes > 0;
}

models::Model make(models::Workloads& workloads, const std::string& name, const Options& options) {
  models::Model model = workloads.make(name);
  model.tuning.fuse = model.tuning.fuse && !options.no_fuse;
  model.tuning.unroll_loops = !options.no_unroll;
  model.tuning.programmatic_launch = options.programmatic_launch;
  return model;
}

// All modes of one workload, but those of graphs on several devices where it is on one. Their windows take turns, so
// that what disturbs the machine disturbs all of them.
json measure(models::Workloads& workloads, const std::string& name, const std::vector<NamedMode>& modes,
             DeviceId device, const Options& options) {
  bool is_on_several = is_on_several_devices(workloads.make(name), device);
  std::vector<std::unique_ptr<Trial>> trials;
  std::vector<std::string> names;
  for (const NamedMode& named : modes) {
    if (named.is_for_several_devices && !is_on_several) {
      if (options.names_modes) std::cerr << name << ": " << named.name << " left out, its graph is on one device\n";
      continue;
    }
    show_progress(name + " " + named.name + ": " + std::to_string(options.steps) + " steps");
    models::Model model = make(workloads, name, options);
    trials.push_back(std::make_unique<Trial>(std::move(model), named.mode, device, options.steps,
                                             options.steps_per_launch, options.threads));
    trials.back()->run_counted();
    names.push_back(named.name);
  }
  for (int window = 0; window < Trial::kWindows && !options.untimed; ++window) {
    show_progress(name + ": window " + std::to_string(window + 1) + "/" + std::to_string(Trial::kWindows));
    for (const auto& trial : trials) trial->time_window();
  }
  json rows = json::array();
  for (std::size_t i = 0; i < trials.size(); ++i) {
    if (!options.untimed) trials[i]->time_launches();
    json row = bench::row_of(*trials[i]);
    row["workload"] = name;
    row["mode"] = names[i];
    row["size"] = options.size;
    if (name == "chain") row["nodes"] = options.workload.nodes;
    row["data"] = nullptr;
    if (auto source = workloads.source(name)) row["data"] = {{"name", source->name}, {"checksum", source->checksum}};
    rows.push_back(std::move(row));
  }
  return rows;
}

// Prints a table for each workload, those that cannot be measured excepted, with the reason.
void profile(models::Workloads& workloads, DeviceId device, const Options& options) {
  bench::ReportFile file(options.json_file);
  json report = {{"machine", bench::measure_machine(device, options.threads, options.workload.is_test_size)},
                 {"profiles", json::array()}};
  for (const std::string& name : options.workloads) {
    show_progress(name + ": " + std::to_string(options.steps) + " steps");
    try {
      models::Model model = make(workloads, name, options);
      report["profiles"].push_back(bench::profile_of(std::move(model), device, options.threads, options.steps));
    } catch (const Error& e) {
      if (options.workloads.size() == 1) throw;
      std::cerr << name << ": left out: " << e.what() << "\n";
    }
  }
  show_progress("");
  file.write(report, [&] {
    for (const json& profile : report["profiles"]) bench::print_profile(std::cout, profile, report["machine"]);
  });
}

int run_ranks(const Options& options) {
#ifdef GRAPHSINK_RANKS
  bench::RanksOptions ranks{.workloads = options.workloads,
                            .device = options.device,
                            .nccl = options.nccl,
                            .steps = options.steps,
                            .steps_per_launch = options.steps_per_launch,
                            .threads = options.names_threads ? options.threads : 0,
                            .bucket_bytes = static_cast<std::size_t>(options.bucket_bytes),
                            .untimed = options.untimed,
                            .json_file = options.json_file,
                            .workload = options.workload};
  if (ranks.workloads.empty()) ranks.workloads = {"mlp", "gpt"};
  for (const std::string& name : ranks.workloads)
    if (!models::can_be_shared(name))
      throw Error("workload \"" + name + "\"", Where(), "ranks do not share it", "name mlp, charmlp, lstm or gpt");
  if (options.modes.size() > 1) throw Error("--mode", Where(), "ranks are measured in one mode", "name one of --list");
  if (!options.modes.empty()) ranks.mode = options.modes[0];
  bench::bench_ranks(ranks);
  return 0;
#else
  (void)options;
  bench::refuse_ranks();
#endif
}

int run(Options options) {
  if (options.list) {
    print_list();
    return 0;
  }
  options.workload.is_test_size = options.size == "test";
  options.workload.is_large_size = options.size == "large";
  if (options.ranks) return run_ranks(options);
  if (options.workloads.empty())
    for (const auto& workload : models::Workloads::list()) options.workloads.emplace_back(workload.name);
  options.names_modes = !options.modes.empty();
  if (options.modes.empty())
    for (Mode mode : kAllModes) options.modes.emplace_back(to_string(mode));
  std::vector<NamedMode> modes;
  for (const std::string& name : options.modes) modes.push_back(mode_of(name));
  DeviceId device = cli::device_of(options.device);
  models::Workloads workloads(options.workload);
  for (const std::string& name : options.workloads) {  // refuses before anything is measured
    models::Model model = make(workloads, name, options);
    if (!options.export_directory.empty()) write_inputs(options.export_directory, model, options.steps);
    if (!options.explain.empty()) print_plan(model, device, options.explain);
  }
  if (!options.explain.empty()) return 0;
  if (options.profile) {
    profile(workloads, device, options);
    return 0;
  }
  bench::ReportFile file(options.json_file);
  Program probe = compile(models::chain(10).graph, {.target = device});  // refuses a device that is not there
  json report = {{"machine", bench::describe_machine(probe.target())}, {"rows", json::array()}};
  Estimate estimate(options.workloads.size());
  for (const std::string& name : options.workloads) {
    for (json& row : measure(workloads, name, modes, device, options)) report["rows"].push_back(std::move(row));
    estimate.say_after_one();
  }
  show_progress("");
  file.write(report, [&] { bench::print_table(std::cout, report); });
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("Measures workloads in several modes: times, counts, and hashes of the results.");
  app.add_option("--workload", options.workloads, "names, separated by commas; all of --list")->delimiter(',');
  app.add_option("--mode", options.modes, "names, separated by commas; all of --list")->delimiter(',');
  app.add_option("--device", options.device, "auto, cpu or cuda:N")->capture_default_str();
  app.add_option("--steps", options.steps, "counted steps, after 3 of warm-up")
      ->check(cli::whole_number(1, cli::kMostSteps))
      ->capture_default_str();
  app.add_option("--steps-per-launch", options.steps_per_launch, "steps in one launch")
      ->check(cli::whole_number(1, cli::kMostStepsPerLaunch))
      ->capture_default_str();
  app.add_option("--size", options.size, "of the workloads; only gpt has the size large, see --list")
      ->check(CLI::IsMember({"test", "full", "large"}))
      ->capture_default_str();
  app.add_option("--nodes", options.workload.nodes, "of chain: kernels in a step")
      ->check(cli::whole_number(1, 10000000))
      ->capture_default_str();
  app.add_option("--crossings", options.workload.crossings,
                 "of hetero: how often values cross between host and device, beside what the model itself needs")
      ->check(cli::whole_number(0, 100000))
      ->capture_default_str();
  app.add_flag("--count-on-host", options.workload.counts_on_host,
               "of jacobi: an op on the host counts the iterations, so that the host drives the loop on a GPU");
  const CLI::Option* threads =
      app.add_option("--threads", options.threads, "of the CPU; the cores there are by default")
          ->check(cli::whole_number(1, 1024))
          ->capture_default_str();
  app.add_flag("--no-fuse", options.no_fuse, "compute each op alone; chain always does, because it measures issuing");
  app.add_flag("--no-unroll", options.no_unroll,
               "on a GPU, run one iteration of a loop at once (Tuning::unroll_loops)");
  app.add_flag("--programmatic-launch", options.programmatic_launch,
               "in captured graphs, launch kernels behind kernels programmatically (Tuning::programmatic_launch)");
  app.add_flag("--untimed", options.untimed, "counts and hashes only: run the steps once and leave all times null");
  app.add_option("--data", options.workload.directory,
                 "directory with data; else $GRAPHSINK_DATA, else ../shared/data");
  app.add_option("--text", options.workload.text, "text file for the models of text");
  app.add_option("--json", options.json_file, "write the report to this file; - prints it instead of the table");
  app.add_option("--export", options.export_directory,
                 "write what each workload starts from and trains on to this directory, for profiling/peers");
  app.add_option("--explain", options.explain,
                 "measure nothing; print each workload's plan: what sinks, what does not, and why (dot: for graphviz)")
      ->check(CLI::IsMember({"text", "json", "dot"}));
  app.add_flag("--profile", options.profile,
               "measure each op, in place of the modes: time, GFLOP/s, GB/s, and what the machine can do");
  CLI::Option* ranks =
      app.add_flag("--ranks", options.ranks,
                   "data-parallel training by all processes that were started together, beside the same steps without "
                   "collectives, in one mode (sink); mlp and gpt, unless other ones are named");
  for (const char* other : {"--no-fuse", "--no-unroll", "--programmatic-launch", "--profile", "--explain", "--export"})
    ranks->excludes(app.get_option(other));
  app.add_flag("--nccl", options.nccl, "with --ranks: each process has a GPU, and NCCL moves the gradients")
      ->needs(ranks)
      ->excludes("--device");
  app.add_option("--bucket", options.bucket_bytes, "with --ranks: bytes of gradients that are exchanged at once")
      ->needs(ranks)
      ->check(cli::whole_number(1, std::int64_t{1} << 40))
      ->capture_default_str();
  app.add_flag("--list", options.list, "print workloads and modes");
  const int code = cli::run_program(app, argc, argv, [&] {
    options.names_threads = threads->count() > 0;
    return run(options);
  });
  return options.ranks ? cli::end_of_rank(code) : code;
}
