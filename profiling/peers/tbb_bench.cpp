// tbb_bench: the workloads chain and wide of graphsink-bench as flow graphs of oneTBB, a task for each operation.
#include <oneapi/tbb/flow_graph.h>
#include <oneapi/tbb/global_control.h>

#include <cmath>
#include <iostream>
#include <list>
#include <memory>
#include <numeric>

#include "profiling/clock.h"
#include "profiling/machine.h"
#include "profiling/report_file.h"
#include "samples/cli.h"

namespace {

namespace gs = graphsink;
namespace tbb = oneapi::tbb;
using gs::bench::Clock;
using gs::bench::us_since;
using nlohmann::json;
using Task = tbb::flow::continue_node<tbb::flow::continue_msg>;

constexpr int kWarmUp = 3, kWindows = 15;
constexpr double kWindowUs = 20e3;

// Tasks are made once; every step starts the first and waits for all.
class FlowGraph {
 public:
  explicit FlowGraph(std::size_t elements) : state(elements) {}
  FlowGraph(const FlowGraph&) = delete;
  FlowGraph& operator=(const FlowGraph&) = delete;

  template <class Body>
  Task& add(std::initializer_list<Task*> after, Body body) {
    tasks_.emplace_back(graph_, [body](tbb::flow::continue_msg) { body(); });
    for (Task* task : after) tbb::flow::make_edge(*task, tasks_.back());
    return tasks_.back();
  }
  void run() {
    tasks_.front().try_put({});
    graph_.wait_for_all();
  }
  std::size_t tasks() const { return tasks_.size(); }

  std::vector<float> state;
  float loss = 0;

 private:
  tbb::flow::graph graph_;
  std::list<Task> tasks_;
};

void link(float* x, std::size_t n, int i) {
  if (i % 2 == 0) {
    for (std::size_t k = 0; k < n; ++k) x[k] *= 0.99999f;
  } else {
    for (std::size_t k = 0; k < n; ++k) x[k] += 0.00001f;
  }
}

// As samples/models/synthetic.cpp, whose step begins and ends with three nodes of its own.
std::unique_ptr<FlowGraph> chain(int nodes) {
  auto g = std::make_unique<FlowGraph>(1);
  g->state[0] = 0.5f;
  FlowGraph* graph = g.get();
  Task* last = &g->add({}, [] {});
  for (int i = 0; i < nodes - 3; ++i) last = &g->add({last}, [=] { link(graph->state.data(), 1, i); });
  g->add({last}, [=] { graph->loss = graph->state[0]; });
  return g;
}

std::unique_ptr<FlowGraph> wide(int branches, int depth, std::size_t elements) {
  auto g = std::make_unique<FlowGraph>(elements);
  gs::Tensor initial = gs::Tensor::uniform({static_cast<std::int64_t>(elements)}, 1);
  std::copy_n(initial.as<float>().data(), elements, g->state.data());
  FlowGraph* graph = g.get();
  Task* first = &g->add({}, [] {});
  std::vector<std::shared_ptr<std::vector<float>>> values;
  Task* joined = nullptr;
  for (int branch = 0; branch < branches; ++branch) {
    auto value = values.emplace_back(std::make_shared<std::vector<float>>(elements));
    auto factor = static_cast<float>(1.0 + 0.001 * branch);
    Task* last = &g->add({first}, [=] {
      for (std::size_t k = 0; k < elements; ++k) (*value)[k] = graph->state[k] * factor;
    });
    for (int i = 1; i < depth; ++i) last = &g->add({last}, [=] { link(value->data(), elements, i); });
    if (joined == nullptr) {
      joined = last;
    } else {
      joined = &g->add({joined, last}, [sum = values[0], value, elements] {
        for (std::size_t k = 0; k < elements; ++k) (*sum)[k] += (*value)[k];
      });
    }
  }
  auto scale = static_cast<float>(1.0 / (branches * (1.0 + 0.0005 * (branches - 1))));
  Task* mean = &g->add({joined}, [=, sum = values[0]] {
    for (std::size_t k = 0; k < elements; ++k) graph->state[k] = (*sum)[k] * scale;
  });
  g->add({mean},
         [=] { graph->loss = static_cast<float>(std::accumulate(graph->state.begin(), graph->state.end(), 0.0)); });
  return g;
}

json measure(const std::string& workload, FlowGraph& graph, std::int64_t steps) {
  double first = 0;
  for (std::int64_t i = 0; i < kWarmUp + steps; ++i) {
    graph.run();
    if (i == 0) first = graph.loss;
  }
  double last = graph.loss;
  std::int64_t runs = 1;
  std::vector<double> step_us;
  while (step_us.size() < kWindows) {
    auto start = Clock::now();
    for (std::int64_t i = 0; i < runs; ++i) graph.run();
    double us = us_since(start);
    if (us < kWindowUs) {
      runs = static_cast<std::int64_t>(std::ceil(static_cast<double>(runs) * std::min(10.0, 1.3 * kWindowUs / us)));
    } else {
      step_us.push_back(us / static_cast<double>(runs));
    }
  }
  gs::bench::Spread spread = gs::bench::spread_of(step_us);
  return {{"workload", workload},
          {"mode", "tbb-flow-graph"},
          {"device", "cpu"},
          {"steps", steps},
          {"steps_per_launch", 1},
          {"step_us", {{"min", spread.min}, {"median", spread.median}, {"max", spread.max}}},
          {"kernels_per_step", graph.tasks()},
          {"loss_first", first},
          {"loss_last", last}};
}

struct Options {
  std::int64_t steps = 100;
  int nodes = 1000;
  std::size_t threads = 2;
  std::string json_file = "-";
};

int run(const Options& options) {
  gs::bench::ReportFile file(options.json_file);
  tbb::global_control threads(tbb::global_control::max_allowed_parallelism, options.threads);
  json report = {{"machine", gs::bench::describe_machine({.name = "oneTBB"})}, {"rows", json::array()}};
  report["machine"]["fusion"] = nullptr;
  report["machine"]["threads"] = options.threads;
  report["rows"].push_back(measure("chain", *chain(options.nodes), options.steps));
  report["rows"].push_back(measure("wide", *wide(8, 32, 65536), options.steps));
  file.write(report, [] {});
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("Measures oneTBB flow graphs of the workloads chain and wide; the report is that of graphsink-bench.");
  app.add_option("--steps", options.steps, "counted steps, after 3 of warm-up")
      ->check(gs::cli::whole_number(1, gs::cli::kMostSteps))
      ->capture_default_str();
  app.add_option("--nodes", options.nodes, "of chain")
      ->check(gs::cli::whole_number(4, 10000000))
      ->capture_default_str();
  app.add_option("--threads", options.threads, "at most")
      ->check(gs::cli::whole_number(1, 10000))
      ->capture_default_str();
  app.add_option("--json", options.json_file, "write the report to this file; - prints it")->capture_default_str();
  return gs::cli::run_program(app, argc, argv, [&] { return run(options); });
}
