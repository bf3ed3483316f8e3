// The cost of a value that crosses between host and device in the middle of a step, in every mode that can do that.
// The host gets the value and gives it back: two copies, and whatever makes the host wait for the device and the device
// for the host. From the step that does so many times, the same step with an op on the device in place of each round
// trip is taken away; the rest, by the number of crossings, is the result.
#include <cstring>
#include <memory>
#include <vector>

#include <nlohmann/json.hpp>

#include "profiling/machine.h"
#include "profiling/report_file.h"
#include "profiling/trial.h"
#include "samples/cli.h"

namespace graphsink::bench {
namespace {

using nlohmann::json;

constexpr Mode kModes[] = {interactive_serial, split_serial, sink, split_sink};
constexpr std::int64_t kSteps = 20;

void infer(InferArgs& a) {
  a.expect_inputs(1);
  a.out(a.in(0).dtype, a.in(0).shape);
}
void pass_on(const CpuArgs& a) { std::memcpy(a.out<void>(0), a.in<void>(0), a.in_type(0).bytes()); }
const OpDef pass_op{.name = "pass", .infer = infer, .bodies = {pass_on}};

struct Options {
  std::string device = "auto";
  std::vector<std::int64_t> bytes{64, 4096, 65536, 1048576};
  int round_trips = 8;
  std::string json_file;
};

models::Model model_of(const Options& options, std::int64_t bytes, bool crosses) {
  models::Model model;
  model.name = "crossings";
  Variable state("state", Tensor::full(f32, {bytes / 4}, 0.5));
  Value x = model.graph.value(state);
  for (int i = 0; i < options.round_trips; ++i) {
    x = crosses ? emit(pass_op, {x})[0] : mul(x, 1.0, on_device);
    x = mul(x, 0.999, on_device);
  }
  assign(state, x);
  model.graph.record("loss", sum(x));
  model.variables = {state};
  return model;
}

json rows_of(const Options& options, DeviceId device, std::int64_t bytes) {
  std::vector<std::unique_ptr<Trial>> trials;  // two for each mode: with crossings, and without
  for (Mode mode : kModes) {
    for (bool crosses : {true, false}) {
      trials.push_back(std::make_unique<Trial>(model_of(options, bytes, crosses), mode, device, kSteps, 1));
      trials.back()->run_counted();
    }
  }
  for (int window = 0; window < Trial::kWindows; ++window)
    for (const auto& trial : trials) trial->time_window();
  for (const auto& trial : trials)
    if (trial->results().state_hash != trials[0]->results().state_hash)
      throw Error("crossing_cost", Where(), std::string(to_string(trial->mode())) + " has other results", "report it");
  json rows = json::array();
  for (std::size_t i = 0; i < trials.size(); i += 2) {
    double with = trials[i]->step_us()->median, without = trials[i + 1]->step_us()->median;
    int crossings = 2 * options.round_trips;
    rows.push_back({{"mode", trials[i]->mode() == interactive_serial ? "merged-serial" : to_string(trials[i]->mode())},
                    {"bytes", bytes},
                    {"crossings", crossings},
                    {"step_us", with},
                    {"step_without_us", without},
                    {"us_per_crossing", (with - without) / crossings},
                    {"graph_launches_per_step", trials[i]->counts().graph_launches_per_step},
                    {"host_nodes_per_step", trials[i]->counts().host_nodes_per_step},
                    {"copies_per_step", trials[i]->counts().copies_per_step}});
  }
  return rows;
}

void print(const json& report) {
  std::printf("device %s\n%10s  %-14s %12s %12s %16s\n", report["machine"]["device"].get<std::string>().c_str(),
              "bytes", "mode", "us/step", "without", "us per crossing");
  for (const json& row : report["rows"])
    std::printf("%10lld  %-14s %12.2f %12.2f %16.3f\n", static_cast<long long>(row["bytes"].get<std::int64_t>()),
                row["mode"].get<std::string>().c_str(), row["step_us"].get<double>(),
                row["step_without_us"].get<double>(), row["us_per_crossing"].get<double>());
}

int run(const Options& options) {
  DeviceId device = cli::device_of(options.device);
  Program probe = compile(model_of(options, 64, true).graph, {.target = device});
  if (!probe.target().separate_memory)
    throw Error("crossing_cost", Where(), to_string(device) + " shares the host's memory, nothing crosses",
                "name a CUDA device: --device cuda:0");
  ReportFile file(options.json_file);
  json report = {{"machine", describe_machine(probe.target())}, {"rows", json::array()}};
  for (std::int64_t bytes : options.bytes)
    for (json& row : rows_of(options, device, bytes)) report["rows"].push_back(std::move(row));
  file.write(report, [&] { print(report); });
  return 0;
}

}  // namespace
}  // namespace graphsink::bench

int main(int argc, char** argv) {
  using namespace graphsink;
  bench::Options options;
  CLI::App app("Measures what a crossing between host and device costs, in microseconds, in every mode.");
  app.add_option("--device", options.device, "auto or cuda:N")->capture_default_str();
  app.add_option("--bytes", options.bytes, "sizes of the value that crosses, separated by commas; multiples of 4")
      ->delimiter(',')
      ->check(cli::whole_number(4, 1 << 30))
      ->check([](const std::string& text) { return std::stoll(text) % 4 ? text + " is no multiple of 4" : ""; }, "")
      ->capture_default_str();
  app.add_option("--round-trips", options.round_trips, "to the host and back, in a step")
      ->check(cli::whole_number(1, 10000))
      ->capture_default_str();
  app.add_option("--json", options.json_file, "write the report to this file; - prints it instead of the table");
  return cli::run_program(app, argc, argv, [&] { return bench::run(options); });
}
