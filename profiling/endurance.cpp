// Whether anything grows over time: many launches of one program, many programs one after the other, with the memory of
// device and process before and after. On a CUDA device also what a node of an executable graph takes of its memory.
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "graphsink/graphsink.h"
#include "profiling/clock.h"
#include "profiling/endurance.h"
#include "profiling/machine.h"
#include "profiling/report_file.h"
#include "samples/cli.h"

namespace graphsink::bench {
namespace {

using nlohmann::json;

struct Options {
  std::string device = "auto";
  std::int64_t launches = 1000000, programs = 1000;
  std::vector<std::int64_t> nodes{1000};
  std::string json_file;
};

// Host memory of this process and memory of the device in use, in bytes.
struct Memory {
  std::int64_t host = 0;
  std::optional<std::int64_t> device;

  explicit Memory(DeviceId id) {
    std::ifstream file("/proc/self/statm");
    std::int64_t pages = 0;
    file >> pages >> host;
    host *= sysconf(_SC_PAGESIZE);
#ifdef GRAPHSINK_CUDA
    if (id.kind == DeviceKind::cuda) device = used_device_bytes(id.index);
#else
    (void)id;
#endif
  }
};

json growth(const Memory& before, const Memory& after) {
  json grown = {{"host", after.host - before.host}, {"device", nullptr}};
  if (before.device && after.device) grown["device"] = *after.device - *before.device;
  return grown;
}

// A training step of a few small kernels, whose loss stays finite however long it runs.
class Trainer {
 public:
  explicit Trainer(DeviceId device) {
    Variable w("w", Tensor::kaiming({16, 4}, 1));
    Value x = graph_.input("x", f32, {8, 16}), loss = mean(pow(matmul(x, graph_.value(w)), 2.0));
    adamw(loss, {w}, {.lr = 1e-3});
    graph_.output("loss", loss);
    program_.emplace(compile(graph_, {.target = device}));
    program_->write(x, Tensor::uniform({8, 16}, 2, -1, 1));
  }
  void run(std::int64_t steps) {
    for (std::int64_t i = 0; i < steps; ++i) program_->run(sink);
    program_->sync();
  }
  double loss() { return program_->output("loss").at(0); }
  Counters counters() const { return program_->counters(); }

 private:
  Graph graph_;
  std::optional<Program> program_;
};

void require_finite(double loss) {
  if (!std::isfinite(loss)) throw Error("endurance", Where(), "the loss is not finite any more", "report it");
}

// The first tenth is warm-up: caches and pools have their size then.
json launch_often(DeviceId device, std::int64_t launches) {
  constexpr std::int64_t kBetweenSyncs = 1000;
  Trainer trainer(device);
  std::int64_t warm_up = launches / 10 + 3;
  trainer.run(warm_up);
  const Memory before(device);
  const auto start = Clock::now();
  for (std::int64_t left = launches; left > 0; left -= kBetweenSyncs) trainer.run(std::min(left, kBetweenSyncs));
  const double us = us_since(start) / static_cast<double>(launches);
  const Memory after(device);
  require_finite(trainer.loss());
  return {{"launches", launches},
          {"us_a_launch", us},
          {"graph_launches", trainer.counters().graph_launches},
          {"grown_bytes", growth(before, after)}};
}

json build_often(DeviceId device, std::int64_t programs) {
  auto build = [&] {
    Trainer trainer(device);
    trainer.run(4);  // the first step runs op by op, a later one captures
    require_finite(trainer.loss());
  };
  for (std::int64_t i = 0; i < programs / 10 + 1; ++i) build();
  const Memory before(device);
  const auto start = Clock::now();
  for (std::int64_t i = 0; i < programs; ++i) build();
  const double us = us_since(start) / static_cast<double>(programs);
  return {{"programs", programs}, {"us_a_program", us}, {"grown_bytes", growth(before, Memory(device))}};
}

void print_growth(const json& part) {
  const json& grown = part["grown_bytes"];
  std::printf("; grown by %lld bytes of the host", static_cast<long long>(grown["host"].get<std::int64_t>()));
  if (!grown["device"].is_null())
    std::printf(", %lld bytes of the device", static_cast<long long>(grown["device"].get<std::int64_t>()));
  std::printf("\n");
}

void print(const json& report) {
  std::printf("device %s\n", report["machine"]["device"].get<std::string>().c_str());
  if (report.contains("launches")) {
    const json& part = report["launches"];
    std::printf("%lld launches, %.3f us each", static_cast<long long>(part["launches"].get<std::int64_t>()),
                part["us_a_launch"].get<double>());
    print_growth(part);
  }
  if (report.contains("programs")) {
    const json& part = report["programs"];
    std::printf("%lld programs built and destroyed, %.1f us each",
                static_cast<long long>(part["programs"].get<std::int64_t>()), part["us_a_program"].get<double>());
    print_growth(part);
  }
  for (const json& row : report.value("nodes", json::array()))
    std::printf("%8lld nodes: %10.1f bytes a graph, %8.1f bytes a node, %.1f us to instantiate\n",
                static_cast<long long>(row["nodes"].get<std::int64_t>()), row["bytes_a_graph"].get<double>(),
                row["bytes_a_node"].get<double>(), row["us_a_graph"].get<double>());
}

int run(const Options& options) {
  DeviceId device = cli::device_of(options.device);
  ReportFile file(options.json_file);
  Graph probe;
  probe.output("y", add(probe.input("x", f32, {1}), 1.0));
  json report = {{"machine", describe_machine(compile(probe, {.target = device}).target())}};
  if (options.launches > 0) report["launches"] = launch_often(device, options.launches);
  if (options.programs > 0) report["programs"] = build_often(device, options.programs);
#ifdef GRAPHSINK_CUDA
  if (!options.nodes.empty() && device.kind == DeviceKind::cuda)
    for (const NodeBytes& row : measure_node_bytes(device.index, options.nodes)) {
      const double a_graph = static_cast<double>(row.bytes) / static_cast<double>(row.graphs);
      report["nodes"].push_back({{"nodes", row.nodes},
                                 {"graphs", row.graphs},
                                 {"us_a_graph", row.us_a_graph},
                                 {"bytes_a_graph", a_graph},
                                 {"bytes_a_node", a_graph / static_cast<double>(row.nodes)},
                                 {"bytes_afterwards", row.bytes_afterwards}});
    }
#endif
  file.write(report, [&] { print(report); });
  return 0;
}

}  // namespace
}  // namespace graphsink::bench

int main(int argc, char** argv) {
  using namespace graphsink;
  bench::Options options;
  CLI::App app(
      "Launches a program often, builds many programs, and says what grew; on a CUDA device also what nodes take.");
  app.add_option("--device", options.device, "auto, cpu or cuda:N")->capture_default_str();
  app.add_option("--launches", options.launches, "of one program; 0: leave this out")
      ->check(cli::whole_number(0, 1000000000))
      ->capture_default_str();
  app.add_option("--programs", options.programs, "built and destroyed one after the other; 0: leave this out")
      ->check(cli::whole_number(0, 10000000))
      ->capture_default_str();
  app.add_option("--nodes", options.nodes,
                 "of executable graphs, separated by commas; only the first takes new memory; 0: leave this out")
      ->delimiter(',')
      ->check(cli::whole_number(0, 1000000))
      ->capture_default_str();
  app.add_option("--json", options.json_file, "write the report to this file; - prints it instead of the table");
  return cli::run_program(app, argc, argv, [&] {
    std::erase(options.nodes, 0);
    return bench::run(options);
  });
}
