#include "profiling/ranks_bench.h"

#include <algorithm>
#include <cstdio>
#include <iostream>
#include <memory>
#include <thread>

#include "graphsink/ranks.h"
#include "profiling/clock.h"
#include "profiling/machine.h"
#include "profiling/report_file.h"
#include "profiling/trial.h"
#include "samples/cli.h"
#include "samples/rank_device.h"

namespace graphsink::bench {
namespace {

using nlohmann::json;

constexpr int kWindows = 15;
constexpr std::int64_t kUntimedSteps = 3;
constexpr std::int64_t kStepsOfARank = 1000000;  // the data of each rank begin that many steps behind those of the last

// A model, and a program of it, with or without collectives.
struct Side {
  Side(models::Model of, DeviceId device, Mode run_mode, int threads)
      : model(std::move(of)),
        mode(run_mode),
        program(compile(model.graph, {.target = device, .tuning = tuning_of(model, threads)})) {}

  // In runs of `group` steps, and one of the rest.
  void run(std::int64_t count, std::int64_t group) {
    for (std::int64_t step = 0; step < count; step += group)
      program.run(mode, {.steps = std::min(group, count - step)});
    program.sync();
  }

  models::Model model;
  Mode mode;
  Program program;
  std::vector<double> step_us;
};

class RanksBench {
 public:
  explicit RanksBench(const RanksOptions& options)
      : options_(options),
        comm_(options.nccl ? nccl_world() : world()),
        device_(cli::device_of_rank(options.device, comm_)),
        mode_(cli::mode_of(options.mode)),
        threads_(options.threads) {
    if (threads_ == 0) threads_ = cores_of_a_rank();
  }

  void run() {
    const bool prints = comm_.rank() == 0;
    ReportFile file(prints ? options_.json_file : "");
    json rows = json::array();
    json machine;
    for (const std::string& name : options_.workloads) {
      json row = measure(name);
      if (machine.is_null())
        machine = describe_machine(
            compile(models::Workloads(options_.workload).make(name).graph, {.target = device_}).target());
      rows.push_back(std::move(row));
    }
    if (!prints) return;
    const json report = {{"machine", machine},
                         {"ranks", comm_.size()},
                         {"exchange", options_.nccl ? "nccl" : "host"},
                         {"threads", threads_},
                         {"rows", rows}};
    file.write(report, [&] { print(report); });
  }

 private:
  // mpirun may have bound each rank to cores of its own; else all ranks share those of the machine.
  int cores_of_a_rank() const {
    const auto all = static_cast<int>(std::thread::hardware_concurrency());
    cpu_set_t usable;
    const int mine = sched_getaffinity(0, sizeof usable, &usable) == 0 ? CPU_COUNT(&usable) : all;
    return std::max(1, mine < all ? mine : all / comm_.size());
  }

  // The steps begin with equal Variables, and with data of each rank's own.
  json measure(const std::string& name) {
    std::size_t bytes = 0;
    models::WorkloadOptions shared = options_.workload, alone = options_.workload;
    shared.sharing.apply = [&](const auto& options, const auto& groups, const auto& gradients) {
      for (const Value& gradient : gradients) bytes += gradient.type().bytes();
      return apply(options, groups, average(gradients, comm_, {.bucket_bytes = options_.bucket_bytes}));
    };
    // Without collectives, but with the same optimizer, built in the same way.
    alone.sharing.apply = [](const auto& options, const auto& groups, const auto& gradients) {
      return apply(options, groups, gradients);
    };
    Side with(models::Workloads(shared).make(name), device_, mode_, threads_);
    Side without(models::Workloads(alone).make(name), device_, mode_, threads_);
    const std::int64_t group = std::min(options_.steps_per_launch, options_.steps);
    for (Side* side : {&with, &without}) {
      models::feed(side->program, side->model, comm_.rank() * kStepsOfARank, group);
      side->run(kUntimedSteps * group + options_.steps / group * group, group);
    }
    const std::string hash = state_of(with.model);
    expect_equal(name, hash);
    for (int window = 0; window < kWindows && !options_.untimed; ++window)
      for (Side* side : {&with, &without}) time(*side, group);
    return row_of(name, with, without, bytes, hash);
  }

  // All ranks begin together.
  void time(Side& side, std::int64_t group) {
    comm_.barrier();
    const Clock::time_point start = Clock::now();
    side.run(options_.steps / group * group, group);
    side.step_us.push_back(us_since(start) / static_cast<double>(options_.steps / group * group));
  }

  static std::string state_of(const models::Model& model) {
    std::string bits;
    for (const Variable& variable : model.variables) {
      const Tensor value = variable.read();
      bits.append(reinterpret_cast<const char*>(value.data()), value.bytes());
    }
    return checksum(bits.data(), bits.size());
  }

  // Returns the numbers of all ranks, in their order.
  std::vector<std::vector<double>> gathered(const std::vector<double>& mine) const {
    Tensor row(f64, {1, static_cast<std::int64_t>(mine.size())});
    std::copy(mine.begin(), mine.end(), row.as<double>().begin());
    Eager eager(cpu());
    const Tensor all = comm_.size() == 1 ? row : Eager::read(all_gather(eager.tensor(row), comm_));
    std::vector<std::vector<double>> result;
    for (std::size_t rank = 0; rank < static_cast<std::size_t>(comm_.size()); ++rank) {
      const auto first = all.as<double>().begin() + static_cast<std::ptrdiff_t>(rank * mine.size());
      result.emplace_back(first, first + static_cast<std::ptrdiff_t>(mine.size()));
    }
    return result;
  }

  void expect_equal(const std::string& name, const std::string& hash) const {
    const std::vector<std::vector<double>> all = gathered({static_cast<double>(std::stoul(hash, nullptr, 16))});
    for (std::size_t rank = 1; rank < all.size(); ++rank)
      if (all[rank] != all[0])
        throw Error("workload \"" + name + "\"", Where(),
                    "rank 0 and rank " + std::to_string(rank) + " have other Variables after the same steps",
                    "tell who maintains the library: data-parallel ranks must agree");
  }

  static json to_json(double min, double median, double max) {
    return {{"min", min}, {"median", median}, {"max", max}};
  }

  json row_of(const std::string& name, const Side& with, const Side& without, std::size_t bytes,
              const std::string& hash) const {
    json row = {{"workload", name},
                {"mode", to_string(mode_)},
                {"device", to_string(device_)},
                {"flavour", GRAPHSINK_FLAVOUR},
                {"ranks", comm_.size()},
                {"steps", options_.steps},
                {"steps_per_launch", options_.steps_per_launch},
                {"bytes_per_step", comm_.size() == 1 ? 0 : bytes},
                {"graph_launches", with.program.counters().graph_launches},
                {"host_nodes", with.program.plan().host_nodes},
                {"streams", with.program.plan().streams},
                {"state_hash", hash},
                {"step_us", nullptr},
                {"without_us", nullptr},
                {"efficiency", nullptr},
                {"of_ranks", nullptr}};
    if (options_.untimed) return row;
    const Spread a = spread_of(with.step_us), b = spread_of(without.step_us);
    json each = json::array();
    std::vector<double> ratios;  // ratios of times that were measured one behind the other
    for (std::size_t i = 0; i < with.step_us.size(); ++i) ratios.push_back(without.step_us[i] / with.step_us[i]);
    const Spread c = spread_of(ratios);
    double slowest = 0, slowest_without = 0, least = std::numeric_limits<double>::max();
    for (const std::vector<double>& of_rank :
         gathered({a.min, a.median, a.max, b.min, b.median, b.max, c.min, c.median, c.max})) {
      slowest = std::max(slowest, of_rank[1]);
      slowest_without = std::max(slowest_without, of_rank[4]);
      each.push_back({{"step_us", to_json(of_rank[0], of_rank[1], of_rank[2])},
                      {"without_us", to_json(of_rank[3], of_rank[4], of_rank[5])},
                      {"efficiency", to_json(of_rank[6], of_rank[7], of_rank[8])}});
      least = std::min(least, of_rank[7]);
    }
    row["step_us"] = slowest;
    row["without_us"] = slowest_without;
    row["efficiency"] = least;
    row["of_ranks"] = std::move(each);
    return row;
  }

  static void print(const json& report) {
    const json& machine = report["machine"];
    std::cout << (machine["cpu"].is_string() ? machine["cpu"].get<std::string>() : "unknown CPU") << ", "
              << machine["cores"] << " cores; device " << machine["device"].get<std::string>() << "; "
              << report["ranks"] << (report["ranks"] == 1 ? " rank" : " ranks") << " by "
              << report["exchange"].get<std::string>() << ", " << report["threads"] << " threads each\n";
    char line[192];
    std::snprintf(line, sizeof line, "%-9s %5s %11s %19s %11s %11s %11s %12s  %s\n", "workload", "rank", "us/step",
                  "min..max", "no exchange", "efficiency", "min..max", "bytes/step", "state");
    std::cout << line;
    for (const json& row : report["rows"]) {
      const auto name = row["workload"].get<std::string>(), hash = row["state_hash"].get<std::string>();
      const auto bytes = row["bytes_per_step"].get<unsigned long long>();
      if (row["of_ranks"].is_null()) {
        std::snprintf(line, sizeof line, "%-9s %5s %11s %19s %11s %11s %11s %12llu  %s\n", name.c_str(), "all", "-",
                      "-", "-", "-", "-", bytes, hash.c_str());
        std::cout << line;
        continue;
      }
      int rank = 0;
      for (const json& each : row["of_ranks"]) {
        const json &step = each["step_us"], &ratio = each["efficiency"];
        std::snprintf(line, sizeof line, "%-9s %5d %11.2f %9.2f..%-8.2f %11.2f %9.0f %% %4.0f..%-3.0f %% %12llu  %s\n",
                      name.c_str(), rank++, step["median"].get<double>(), step["min"].get<double>(),
                      step["max"].get<double>(), each["without_us"]["median"].get<double>(),
                      100 * ratio["median"].get<double>(), 100 * ratio["min"].get<double>(),
                      100 * ratio["max"].get<double>(), bytes, hash.c_str());
        std::cout << line;
      }
    }
  }

  const RanksOptions& options_;
  Comm comm_;
  DeviceId device_;
  Mode mode_;
  int threads_;
};

}  // namespace

void bench_ranks(const RanksOptions& options) { RanksBench(options).run(); }

}  // namespace graphsink::bench
