// The cost of input shapes that change from run to run, in every mode: a training step of a small model
// with batches of random sizes, of which the program keeps a few. Each program gets the same sizes; windows of the
// modes follow each other in turn, so that each ratio is of neighbours.
#include <cstdio>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "graphsink/graphsink.h"
#include "profiling/clock.h"
#include "profiling/machine.h"
#include "profiling/report_file.h"
#include "samples/cli.h"

namespace graphsink::bench {
namespace {

using nlohmann::json;

constexpr Mode kModes[] = {interactive_serial, sink, automatic};
constexpr std::int64_t kWidth = 16;

struct Options {
  std::string device = "auto";
  int sizes = 300, kept = 8, windows = 7;
  std::int64_t steps = 3000;  // steps of a window
  std::vector<std::int64_t> repeats{1, 5, 50};
  std::string json_file;
};

// A program in one mode.
class Trial {
 public:
  Trial(const Options& options, DeviceId device, Mode mode, std::int64_t repeats)
      : options_(options), mode_(mode), repeats_(repeats) {
    Variable in("in", Tensor::kaiming({kWidth, kWidth}, 1)), out("out", Tensor::kaiming({kWidth, 4}, 2));
    x_ = graph_.input("x", f32, {open(options.sizes), kWidth});
    Value hidden = tanh(matmul(x_, graph_.value(in)));
    Value loss = mean(pow(matmul(hidden, graph_.value(out)), 2.0));
    adamw(loss, {in, out}, {.lr = 1e-3});
    graph_.record("loss", loss);
    CompileOptions compiled{.target = device};
    compiled.limits.shape_cache_shapes = static_cast<std::size_t>(options.kept);
    compiled.log = [](LogLevel, std::string_view text) {
      std::fprintf(stderr, "%.*s\n", static_cast<int>(text.size()), text.data());
    };
    program_.emplace(compile(graph_, compiled));
    program_->write(x_, batch(options.sizes));  // there is room for the largest from the beginning
    program_->run(interactive_serial);
    program_->sync();
  }

  // Runs a window; the sizes are those of its number.
  void run(unsigned window) {
    std::mt19937 random(window);
    const auto begun = Clock::now();
    for (std::int64_t step = 0; step < options_.steps; step += repeats_) {
      program_->write(x_, batch(1 + static_cast<int>(random() % static_cast<unsigned>(options_.sizes))));
      for (std::int64_t i = 0; i < repeats_; ++i) program_->run(mode_);
    }
    program_->sync();
    times_.push_back(us_since(begun) / static_cast<double>(options_.steps));
    (void)program_->records("loss");
  }

  Mode mode() const { return mode_; }
  const std::vector<double>& times() const { return times_; }
  Counters counters() const { return program_->counters(); }

 private:
  static Tensor batch(int rows) { return Tensor::full(f32, {rows, kWidth}, 0.25); }

  const Options& options_;
  const Mode mode_;
  const std::int64_t repeats_;
  Graph graph_;
  Value x_;
  std::optional<Program> program_;
  std::vector<double> times_;  // time of a step of each window, in us
};

json rows_of(const Options& options, DeviceId device, std::int64_t repeats) {
  std::vector<std::unique_ptr<Trial>> trials;
  for (Mode mode : kModes) trials.push_back(std::make_unique<Trial>(options, device, mode, repeats));
  for (int window = 0; window < options.windows; ++window)
    for (const auto& trial : trials) trial->run(static_cast<unsigned>(window));
  json rows = json::array();
  for (const auto& trial : trials) {
    std::vector<double> ratios;
    for (std::size_t i = 0; i < trial->times().size(); ++i) ratios.push_back(trial->times()[i] / trials[0]->times()[i]);
    const Counters counters = trial->counters();
    rows.push_back({{"mode", to_string(trial->mode())},
                    {"repeats", repeats},
                    {"step_us", spread_of(trial->times()).median},
                    {"ratio", spread_of(ratios).median},
                    {"captures", counters.captures},
                    {"updates", counters.graph_updates},
                    {"launches", counters.graph_launches},
                    {"evicted", counters.evicted_shapes},
                    {"device_bytes", counters.device_bytes}});
  }
  return rows;
}

void print(const json& report) {
  std::printf("device %s\n%8s  %-20s %10s %16s %10s %10s %10s\n",
              report["machine"]["device"].get<std::string>().c_str(), "repeats", "mode", "us/step", "to interactive",
              "launches", "captures", "in place");
  for (const json& row : report["rows"])
    std::printf("%8lld  %-20s %10.2f %16.3f %10lld %10lld %10lld\n",
                static_cast<long long>(row["repeats"].get<std::int64_t>()), row["mode"].get<std::string>().c_str(),
                row["step_us"].get<double>(), row["ratio"].get<double>(),
                static_cast<long long>(row["launches"].get<std::int64_t>()),
                static_cast<long long>(row["captures"].get<std::int64_t>()),
                static_cast<long long>(row["updates"].get<std::int64_t>()));
}

int run(const Options& options) {
  DeviceId device = cli::device_of(options.device);
  Graph none;
  none.output("x", none.constant(Tensor::scalar(0.0f)));
  const Program probe = compile(none, {.target = device});
  ReportFile file(options.json_file);
  json report = {{"machine", describe_machine(probe.target())}, {"rows", json::array()}};
  for (std::int64_t repeats : options.repeats)
    for (json& row : rows_of(options, device, repeats)) report["rows"].push_back(std::move(row));
  file.write(report, [&] { print(report); });
  return 0;
}

}  // namespace
}  // namespace graphsink::bench

int main(int argc, char** argv) {
  using namespace graphsink;
  bench::Options options;
  CLI::App app(
      "Measures steps whose input has another shape every few runs, in every mode, against interactive-serial.");
  app.add_option("--device", options.device, "auto, cpu or cuda:N")->capture_default_str();
  app.add_option("--sizes", options.sizes, "how many sizes there are")
      ->check(cli::whole_number(1, 100000))
      ->capture_default_str();
  app.add_option("--kept", options.kept, "how many shapes the program keeps")
      ->check(cli::whole_number(1, 100000))
      ->capture_default_str();
  app.add_option("--repeats", options.repeats, "how many runs each size has, separated by commas")
      ->delimiter(',')
      ->check(cli::whole_number(1, 1000000))
      ->capture_default_str();
  app.add_option("--steps", options.steps, "of each window")
      ->check(cli::whole_number(1, 100000000))
      ->capture_default_str();
  app.add_option("--windows", options.windows, "of each mode")
      ->check(cli::whole_number(1, 1000))
      ->capture_default_str();
  app.add_option("--json", options.json_file, "write the report to this file; - prints it instead of the table");
  return cli::run_program(app, argc, argv, [&] { return bench::run(options); });
}
