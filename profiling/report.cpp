#include "profiling/report.h"

#include <cstdio>
#include <optional>
#include <string>

namespace graphsink::bench {
namespace {

using nlohmann::json;

json to_json(const std::optional<Spread>& spread) {
  return spread ? json{{"min", spread->min}, {"median", spread->median}, {"max", spread->max}} : json();
}

// "-" where nothing was timed.
std::string text_of(const json& spread, const char* field) {
  if (spread.is_null()) return "-";
  char text[32];
  std::snprintf(text, sizeof text, "%.2f", spread[field].get<double>());
  return text;
}

int streams_used(const Trial& trial) { return is_serial(trial.mode()) ? 1 : trial.program().plan().streams; }

json to_json(const AutomaticReport& report) {
  json candidates = json::array();
  for (const AutomaticReport::Candidate& candidate : report.candidates)
    candidates.push_back({{"mode", to_string(candidate.mode)},
                          {"steps", candidate.steps},
                          {"ratio", candidate.ratio},
                          {"low", candidate.low},
                          {"high", candidate.high}});
  return {{"chosen", to_string(report.chosen)}, {"candidates", std::move(candidates)},
          {"switches", report.switches},        {"comparisons", report.comparisons},
          {"seconds", report.seconds},          {"trial_seconds", report.trial_seconds}};
}

}  // namespace

json row_of(Trial& trial) {
  const Program& program = trial.program();
  const Counts& counts = trial.counts();
  const Results& results = trial.results();
  const PlanSummary plan = program.plan();
  auto captured = program.captured(trial.steps_per_launch() > 1 ? LaunchOf::several_steps : LaunchOf::one_step);
  return {{"mode", to_string(trial.mode())},
          {"device", to_string(program.target().id)},
          {"flavour", GRAPHSINK_FLAVOUR},
          {"steps", trial.steps()},
          {"steps_per_launch", trial.steps_per_launch()},
          {"threads", program.target().separate_memory ? json() : json(trial.threads())},
          {"compile_us", trial.compile_us()},
          {"step_us", to_json(trial.step_us())},
          {"latency_us", to_json(trial.latency_us())},
          {"enqueue_us", to_json(trial.enqueue_us())},
          {"api_calls_per_step", counts.api_calls_per_step},
          {"graph_launches_per_step", counts.graph_launches_per_step},
          {"kernels_per_step", counts.kernels_per_step},
          {"copies_per_step", counts.copies_per_step},
          {"host_nodes_per_step", counts.host_nodes_per_step},
          {"conditional_nodes", captured ? json(captured->conditional_nodes) : json()},
          {"iterations", nullptr},
          {"islands", plan.islands},
          {"streams_used", streams_used(trial)},
          {"recordings", counts.captures},
          {"updates", nullptr},
          {"fallbacks", counts.fallbacks},
          {"automatic", trial.mode() == automatic ? to_json(trial.automatic_report()) : json()},
          {"sunk_share", counts.sunk_share},
          {"arena_bytes", plan.arena_bytes},
          {"live_bytes", plan.live_bytes},
          {"loss_first", results.loss_first},
          {"loss_last", results.loss_last},
          {"loss_hash", results.loss_hash},
          {"state_hash", results.state_hash}};
}

void print_table(std::ostream& out, const json& report) {
  const json& machine = report["machine"];
  char line[256];
  std::snprintf(line, sizeof line, "%s, %d cores; device %s; %s; %s\n",
                machine["cpu"].is_string() ? machine["cpu"].get<std::string>().c_str() : "unknown CPU",
                machine["cores"].get<int>(), machine["device"].get<std::string>().c_str(),
                machine["compiler"].get<std::string>().c_str(), machine["blas"].get<std::string>().c_str());
  out << line;
  if (machine["fusion"] != "on") out << "fusion " << machine["fusion"].get<std::string>() << "\n";
  std::snprintf(line, sizeof line, "%-9s %-21s %10s %19s %10s %10s %8s %8s %19s  %s\n", "workload", "mode", "us/step",
                "min..max", "latency", "enqueue", "launches", "kernels", "loss", "state");
  out << line;
  for (const json& row : report["rows"]) {
    const json& step = row["step_us"];
    std::snprintf(line, sizeof line, "%-9s %-21s %10s %9s..%-8s %10s %10s %8.3g %8.5g %9.4f->%-8.4f  %.8s\n",
                  row["workload"].get<std::string>().c_str(), row["mode"].get<std::string>().c_str(),
                  text_of(step, "median").c_str(), text_of(step, "min").c_str(), text_of(step, "max").c_str(),
                  text_of(row["latency_us"], "median").c_str(), text_of(row["enqueue_us"], "median").c_str(),
                  row["graph_launches_per_step"].get<double>(), row["kernels_per_step"].get<double>(),
                  row["loss_first"].get<double>(), row["loss_last"].get<double>(),
                  row["state_hash"].get<std::string>().c_str());
    out << line;
  }
}

}  // namespace graphsink::bench
