#include "profiling/profile.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "profiling/trial.h"

namespace graphsink::bench {
namespace {

using nlohmann::json;

constexpr std::int64_t kWarmUp = 3;
constexpr double kLeastShare = 0.005;  // share of the time that a printed row has at least

struct Row {
  std::string op, where, result;
  std::int64_t runs = 0;
  double us = 0, bytes = 0, flops = 0;  // sums over all runs
};

// The first two.
std::string results_of(const OpTime& op) {
  std::string text;
  for (std::size_t i = 0; i < op.outputs.size(); ++i) {
    if (i > 0) text += ", ";
    if (i == 2) return text + "...";
    text += to_string(op.outputs[i]);
  }
  return text;
}

std::vector<Row> rows_of(const std::vector<OpTime>& ops) {
  std::map<std::tuple<std::string, std::string, std::string>, Row> rows;
  for (const OpTime& op : ops) {
    if (op.runs == 0) continue;
    const std::string where = line_of(op.where), result = results_of(op);
    Row& row = rows[{op.op, where, result}];
    row.op = op.op;
    row.where = where;
    row.result = result;
    row.runs += op.runs;
    const auto runs = static_cast<double>(op.runs);
    row.us += runs * op.us;
    row.bytes += runs * static_cast<double>(op.bytes);
    row.flops += runs * static_cast<double>(op.flops);
  }
  std::vector<Row> sorted;
  for (auto& [key, row] : rows) sorted.push_back(std::move(row));
  std::stable_sort(sorted.begin(), sorted.end(), [](const Row& a, const Row& b) { return a.us > b.us; });
  return sorted;
}

// The time of each scope, the longest first: of all runs, in microseconds. Empty where no op has a scope.
std::vector<std::pair<std::string, double>> scopes_of(const std::vector<OpTime>& ops) {
  std::map<std::string, double> times;
  for (const OpTime& op : ops) times[std::string(op.where.scope())] += static_cast<double>(op.runs) * op.us;
  if (times.size() == 1 && times.contains("")) times.clear();
  std::vector<std::pair<std::string, double>> sorted(times.begin(), times.end());
  std::stable_sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
  return sorted;
}

// In GB/s or GFLOP/s; null where nothing is counted or no time was seen.
json rate(double count, double us) { return count > 0 && us > 0 ? json(count / us / 1e3) : json(); }

// The op with this name; null if there is none.
const OpTime* find(const std::vector<OpTime>& ops, const std::string& name) {
  auto found = std::find_if(ops.begin(), ops.end(), [&](const OpTime& op) { return op.op == name; });
  return found == ops.end() ? nullptr : &*found;
}

// The best rate of the op with this name in several runs of a graph.
json rate_of(const Graph& graph, const std::vector<Value>& inputs, const std::string& op, bool counts_flops,
             DeviceId device, int threads) {
  Program program = compile(graph, {.target = device, .tuning = {.threads = threads}});
  for (const Value& input : inputs) program.write(input, Tensor(f32, input.shape()));
  program.run();
  json best;
  for (int round = 0; round < 5; ++round) {
    const std::vector<OpTime> times = program.time_ops(3);
    const OpTime* time = find(times, op);
    if (time == nullptr) continue;
    const json seen = rate(static_cast<double>(counts_flops ? time->flops : time->bytes), time->us);
    if (best.is_null() || (!seen.is_null() && seen.get<double>() > best.get<double>())) best = seen;
  }
  return best;
}

std::string number(const json& value) {
  if (value.is_null()) return "-";
  char text[32];
  std::snprintf(text, sizeof text, "%.1f", value.get<double>());
  return text;
}

}  // namespace

json measure_machine(DeviceId device, int threads, bool is_test_size) {
  const std::int64_t n = is_test_size ? 64 : 1024, length = is_test_size ? 1 << 12 : 1 << 24;
  Graph products, sums;
  const Value a = products.input("a", f32, {n, n}), b = products.input("b", f32, {n, n});
  products.output("c", matmul(a, b));
  const Value x = sums.input("x", f32, {length}), y = sums.input("y", f32, {length});
  sums.output("z", x + y);
  return {{"gflops", rate_of(products, {a, b}, "matmul", true, device, threads)},
          {"gbytes", rate_of(sums, {x, y}, "add", false, device, threads)}};
}

json profile_of(models::Model model, DeviceId device, int threads, std::int64_t steps) {
  Program program = compile(model.graph, {.target = device, .tuning = tuning_of(model, threads)});
  for (std::int64_t step = 0; step < kWarmUp; ++step) {
    models::feed(program, model, step, 1);
    program.run();
  }
  models::feed(program, model, kWarmUp, steps);
  const std::vector<OpTime> ops = program.time_ops(steps);
  json rows = json::array();
  double us = 0;
  for (const Row& row : rows_of(ops)) {
    rows.push_back({{"op", row.op},
                    {"where", row.where},
                    {"result", row.result},
                    {"runs_per_step", static_cast<double>(row.runs) / static_cast<double>(steps)},
                    {"us_per_step", row.us / static_cast<double>(steps)},
                    {"us_per_run", row.us / static_cast<double>(row.runs)},
                    {"gflops", rate(row.flops, row.us)},
                    {"gbytes", rate(row.bytes, row.us)}});
    us += row.us / static_cast<double>(steps);
  }
  json scopes = json::array();
  for (const auto& [scope, time] : scopes_of(ops))
    scopes.push_back({{"scope", scope}, {"us_per_step", time / static_cast<double>(steps)}});
  return {{"workload", model.name},
          {"steps", steps},
          {"us_per_step", us},
          {"ops", std::move(rows)},
          {"scopes", std::move(scopes)}};
}

void print_profile(std::ostream& out, const json& profile, const json& machine) {
  char line[512];
  const double all = profile["us_per_step"].get<double>();
  std::snprintf(line, sizeof line, "%s: %.1f us a step, op after op; the machine: %s GFLOP/s (matmul), %s GB/s (add)\n",
                profile["workload"].get<std::string>().c_str(), all, number(machine["gflops"]).c_str(),
                number(machine["gbytes"]).c_str());
  out << line;
  std::snprintf(line, sizeof line, "%10s %6s %8s %9s %8s %7s  %-18s %-18s %s\n", "us/step", "share", "runs", "us/run",
                "GFLOP/s", "GB/s", "op", "where", "result");
  out << line;
  double left_out = 0;
  for (const json& row : profile["ops"]) {
    const double us = row["us_per_step"].get<double>(), share = all > 0 ? us / all : 0;
    if (share < kLeastShare) {
      left_out += us;
      continue;
    }
    std::snprintf(line, sizeof line, "%10.1f %5.1f%% %8.6g %9.2f %8s %7s  %-18s %-18s %s\n", us, 100 * share,
                  row["runs_per_step"].get<double>(), row["us_per_run"].get<double>(), number(row["gflops"]).c_str(),
                  number(row["gbytes"]).c_str(), row["op"].get<std::string>().c_str(),
                  row["where"].get<std::string>().c_str(), row["result"].get<std::string>().c_str());
    out << line;
  }
  if (left_out > 0) {
    std::snprintf(line, sizeof line, "%10.1f %5.1f%%  ops of less than %.1f %% each\n", left_out, 100 * left_out / all,
                  100 * kLeastShare);
    out << line;
  }
  if (profile["scopes"].empty()) return;
  std::snprintf(line, sizeof line, "%10s %6s  %s\n", "us/step", "share", "scope");
  out << line;
  for (const json& row : profile["scopes"]) {
    const double us = row["us_per_step"].get<double>();
    const auto scope = row["scope"].get<std::string>();
    std::snprintf(line, sizeof line, "%10.1f %5.1f%%  ", us, all > 0 ? 100 * us / all : 0);
    out << line << (scope.empty() ? "outside of scopes" : scope) << "\n";
  }
}

}  // namespace graphsink::bench
