#include "differential.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <sstream>
#include <stdexcept>

#include "api/plan_of.h"
#include "graphsink/program.h"
#include "ir/graph_data.h"
#include "program_fixture.h"
#include "round_trip.h"
#include "test_ops.h"

namespace graphsink::testing {
namespace {

constexpr std::uint32_t kSeed = 7;

// How the steps of a graph are run: run i takes runs[i].steps steps in runs[i].mode.
struct Run {
  Mode mode;
  int steps;
};
struct Schedule {
  std::string name;
  std::vector<Run> runs;
  bool reads_between = true;  // outputs after each run, which waits for it; else at the end alone
  Guards guards = {};
  Tuning tuning{};
  bool check_finite = false;
};

std::vector<Schedule> schedules(const Recipe& recipe, DeviceId device) {
  const int steps = recipe.steps;
  const Recipe::Options& options = recipe.options;
  std::vector<Mode> modes;
  for (Mode mode : kAllModes)
    if (!is_split(mode) || device.kind == DeviceKind::cuda) modes.push_back(mode);  // else there is nothing to split
  std::vector<Schedule> result;
  for (Mode mode : modes) {
    std::string name(to_string(mode));
    result.push_back({name, std::vector<Run>(static_cast<std::size_t>(steps), {mode, 1}), result.empty()});
    if (mode != interactive_parallel) continue;
    result.back().tuning.fuse = false;
    result.back().tuning.unroll_loops = false;
    result.back().tuning.threads = 3;
    result.back().guards.share_all = true;
  }
  Schedule launches{
      "sink, several steps a launch, three threads that share all",
      {},
      true,
      {.poison = options.poison, .replay_every = options.replay_every, .arguments = true, .share_all = true}};
  launches.tuning.threads = 3;
  launches.tuning.programmatic_launch = true;
  launches.check_finite = options.check_finite;
  for (int step = 0; step < steps;) {
    const int most = step < kRewrittenAt ? std::min(steps, kRewrittenAt) - step : steps - step;
    const int next = options.steps_per_launch > 0 ? std::min(options.steps_per_launch, most) : most;
    launches.runs.push_back({sink, next});
    step += next;
  }
  result.push_back(launches);
  Schedule turns{"all modes by turns, on a poisoned arena", {}, true, {.poison = true}};
  for (int i = 0; i < steps; ++i) turns.runs.push_back({modes[static_cast<std::size_t>(i + 1) % modes.size()], 1});
  turns.tuning.programmatic_launch = true;
  turns.tuning.unroll_loops = false;
  result.push_back(turns);
  return result;
}

// Slices [from, from + count) of a feed.
Tensor slices(const Building::Fed& fed, int from, int count) {
  Shape slice = fed.value.shape(), shape{count};
  for (std::int64_t n : slice.dims()) shape.push_back(n);
  Tensor data(fed.value.dtype(), shape);
  std::size_t bytes = data.bytes() / static_cast<std::size_t>(count);
  for (int k = 0; k < count; ++k)
    std::memcpy(data.data() + bytes * static_cast<std::size_t>(k), fed.at(from + k).data(), bytes);
  return data;
}

// The same slices, in memory of the program's.
StagedSlices staged(const Building::Fed& fed, Program& program, int from, int count) {
  StagedSlices memory = program.stage(fed.value, count);
  for (int k = 0; k < count; ++k) {
    const std::span<std::byte> slice = memory.bytes(k);
    std::memcpy(slice.data(), fed.at(from + k).data(), slice.size());
  }
  return memory;
}

// What the caller gives to the run that begins with step `from`.
void write(Building& building, Program& program, int from, int steps) {
  bool rewrites = from == 0 || from == kRewrittenAt;
  for (const Building::Fed& fed : building.fed) {
    if (fed.is_staged(from)) {
      program.write(staged(fed, program, from, steps));
    } else if (fed.is_feed) {
      program.write(fed.value, slices(fed, from, steps));
    }
    if (!fed.is_feed && rewrites) program.write(fed.value, fed.at(from));
  }
  for (Building::State& state : building.states)
    if (from == kRewrittenAt && state.is_frozen()) state.variable.write(state.rewritten());
}

// What the plan says is what was captured. A kernel behind the first of its op counts in the graph alone.
void expect_programmatic_edges(const Program& program) {
  for (LaunchOf steps : {LaunchOf::one_step, LaunchOf::several_steps}) {
    const std::optional<CaptureInfo> captured = program.captured(steps);
    const auto planned = static_cast<int>(plan_of(program).programmatic.nodes);
    if (!captured || captured->programmatic_edges >= planned) continue;
    throw std::runtime_error(std::to_string(captured->programmatic_edges) + " programmatic edges for " +
                             std::to_string(planned) + " nodes");
  }
}

// `plans`: takes the plan of each step from which another one may be in force.
Trace run(const Recipe& recipe, Building& building, DeviceId device, const Schedule& schedule,
          std::map<int, Plan>* plans = nullptr) {
  for (Building::State& state : building.states) state.variable.write(state.initial);
  building.effects->entries.clear();
  // The Variables keep the device, which logs what fails when it is closed.
  auto logged = std::make_shared<std::string>();
  auto log = [logged](LogLevel, std::string_view message) { *logged += message; };
  Program program = compile(building.graph, {.target = device,
                                             .further_devices = further_devices(device),
                                             .check_finite = schedule.check_finite,
                                             .default_placement = recipe.options.default_placement,
                                             .seed = kSeed,
                                             .tuning = schedule.tuning,
                                             .guards = schedule.guards,
                                             .log = log});
  Trace trace;
  try {
    int step = 0;
    for (std::size_t i = 0; i < schedule.runs.size(); ++i) {
      const Run& next = schedule.runs[i];
      write(building, program, step, next.steps);
      if (plans && step == 0) plans->insert({0, plan_of(program)});
      program.run(next.mode, {.steps = next.steps});
      const bool may_be_another = step == 0 || step == kRewrittenAt || building.finds_sizes();
      if (plans && may_be_another) plans->insert_or_assign(step, plan_of(program));
      step += next.steps;
      if (!schedule.reads_between && i + 1 < schedule.runs.size()) continue;
      for (const std::string& name : building.outputs) trace.outputs[step].push_back(program.output(name));
    }
    program.sync();
  } catch (const Error& e) {
    trace.failure = e.what();
    std::erase_if(trace.outputs, [&](const auto& of_step) { return of_step.second.size() < building.outputs.size(); });
  }
  expect_programmatic_edges(program);
  for (const std::string& name : building.records) trace.records.push_back(program.records<double>(name));
  trace.steps = program.steps();
  for (const Building::State& state : building.states) trace.variables.push_back(state.variable.read());
  trace.effects = building.effects->entries;
  if (!logged->empty()) throw std::runtime_error("it logged " + *logged);
  return trace;
}

bool same_bits(const Tensor& a, const Tensor& b) {
  return a.type() == b.type() && std::memcmp(a.data(), b.data(), a.bytes()) == 0;
}

// With the first element that differs in hexadecimal, because printed decimals may be the same.
std::string difference(const Tensor& a, const Tensor& b) {
  std::ostringstream out;
  if (a.type() == b.type()) {
    const std::size_t size = size_of(a.dtype());
    std::size_t i = 0;
    while (std::memcmp(a.data() + i * size, b.data() + i * size, size) == 0) ++i;
    const auto index = static_cast<std::int64_t>(i);
    out << "element " << i << ": " << std::hexfloat << a.at(index) << " and " << b.at(index) << std::defaultfloat
        << " in ";
  }
  out << a << " and " << b;
  return out.str();
}

std::string not_finite(const Building& building, const Trace& trace) {
  auto is_finite = [](const Tensor& x) {
    for (std::int64_t i = 0; i < x.shape().size(); ++i)
      if (!std::isfinite(x.at(i))) return false;
    return true;
  };
  for (const auto& [step, outputs] : trace.outputs)
    for (std::size_t i = 0; i < outputs.size(); ++i)
      if (!is_finite(outputs[i])) return building.outputs[i] + " is not finite after step " + std::to_string(step);
  for (std::size_t i = 0; i < trace.variables.size(); ++i)
    if (!is_finite(trace.variables[i])) return "Variable " + building.states[i].variable.name() + " is not finite";
  return "";
}

bool same_types(const Trace& a, const Trace& b) {
  if (a.outputs.empty() || b.outputs.empty()) return true;
  const std::vector<Tensor>&x = a.outputs.rbegin()->second, &y = b.outputs.rbegin()->second;
  return std::equal(x.begin(), x.end(), y.begin(), y.end(),
                    [](const Tensor& s, const Tensor& t) { return s.type() == t.type(); });
}

// Whether an error may be that of a step for which the oracle has another one: of several failures, which one a step
// says depends on the order in which its ops run.
bool may_say(const Building& building, const std::string& failure) {
  int places = 0;  // that fail on purpose
  for (const char* count : {kNoBody, kOverLimit})
    if (const auto found = building.counts.find(count); found != building.counts.end()) places += found->second;
  const auto says = [&](const char* text) { return failure.find(text) != std::string::npos; };
  return places > 1 && (says("is the number of none of its bodies") || says("its condition still held after"));
}

// Makes the building refer to what a file of its graph holds.
void go_through_file(Building& building) {
  const std::vector<FileOp> ops = cpu_file_ops(building.effects);
  const std::shared_ptr<GraphData> before = building.graph.data();
  building.graph = through_file(building.graph, ops).graph;
  const std::shared_ptr<GraphData>& after = building.graph.data();
  for (Building::Fed& fed : building.fed) fed.value = Value(after, fed.value.node(), fed.value.output());
  for (Building::State& state : building.states) {
    const auto known = before->variable_index.find(state.variable.data().get());
    if (known == before->variable_index.end()) continue;  // the graph does not use it
    state.variable = after->variables[static_cast<std::size_t>(known->second)].variable;
  }
}

std::optional<Failure> check_on(const Recipe& recipe, DeviceId device, const Compare& compare, Trace& wanted) {
  Building building(recipe);
  std::string where = to_string(device) + ": ";
  try {
    std::vector<Schedule> all = schedules(recipe, device);
    std::map<int, Plan> plans;
    const Trace first = run(recipe, building, device, all[0], &plans);
    auto plan = [&](int step) -> const Plan& { return std::prev(plans.upper_bound(step))->second; };
    Expected expected = expect(recipe, building, {plan, kSeed, &first.outputs});
    if (!expected.problem.empty()) return Failure{"gradient", where + expected.problem};
    wanted = std::move(expected.trace);
    for (Schedule& schedule : all) {
      schedule.check_finite = schedule.check_finite && expected.all_finite && wanted.failure.empty();
      // A failure that is not seen at once would let the caller go on writing.
      schedule.reads_between = schedule.reads_between || !wanted.failure.empty();
      if (building.has_effects) schedule.guards.replay_every = 0;  // effects would happen twice
    }
    std::string problem = not_finite(building, wanted);
    if (!problem.empty()) return Failure{"not finite", where + problem};
    for (const Schedule& schedule : all) {
      where = to_string(device) + ", " + schedule.name + ": ";
      problem = compare(building, wanted, &schedule == &all[0] ? first : run(recipe, building, device, schedule));
      if (!problem.empty()) return Failure{problem.starts_with("failure") ? "failure" : "difference", where + problem};
    }
    where = to_string(device) + ", read from a file: ";
    go_through_file(building);
    const Schedule& launches = all[all.size() - 2];
    problem = difference(building, wanted, run(recipe, building, device, launches));  // not counted with the schedules
    if (!problem.empty()) return Failure{"file", where + problem};
  } catch (const std::exception& e) {
    return Failure{"error", where + e.what()};
  }
  return {};
}

}  // namespace

std::string difference(const Building& building, const Trace& a, const Trace& b) {
  const bool is_said = b.failure.find(a.failure) != std::string::npos || may_say(building, b.failure);
  if (a.failure.empty() != b.failure.empty() || !is_said)
    return "failure: " + (a.failure.empty() ? "none" : a.failure) + " and " + (b.failure.empty() ? "none" : b.failure);
  if (a.steps != b.steps) return "steps(): " + std::to_string(a.steps) + " and " + std::to_string(b.steps);
  for (std::size_t i = 0; i < a.records.size(); ++i) {
    if (a.records[i].size() != b.records[i].size()) return building.records[i] + ": another number of values";
    for (std::size_t k = 0; k < a.records[i].size(); ++k) {
      if (a.records[i][k] != b.records[i][k]) {
        return building.records[i] + ", number " + std::to_string(k + 1) + ": " + std::to_string(a.records[i][k]) +
               " and " + std::to_string(b.records[i][k]);
      }
    }
  }
  for (const auto& [step, outputs] : b.outputs) {
    const std::vector<Tensor>& wanted = a.outputs.at(step);
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      if (!same_bits(wanted[i], outputs[i]))
        return building.outputs[i] + " after step " + std::to_string(step) + ": " + difference(wanted[i], outputs[i]);
    }
  }
  for (std::size_t i = 0; i < a.variables.size(); ++i) {
    if (!same_bits(a.variables[i], b.variables[i]))
      return "Variable " + building.states[i].variable.name() + ": " + difference(a.variables[i], b.variables[i]);
  }
  // A step that fails may have had some of its effects.
  const bool has_same = a.effects.size() <= b.effects.size() &&
                        std::equal(a.effects.begin(), a.effects.end(), b.effects.begin()) &&
                        (a.effects.size() == b.effects.size() || !a.failure.empty());
  return has_same ? "" : "order or operands of host effects";
}

std::optional<Failure> check(const Recipe& recipe, const Compare& compare) {
  try {
    std::vector<Trace> traces;
    for (DeviceId device : devices()) {
      traces.emplace_back();
      if (auto failure = check_on(recipe, device, compare, traces.back())) return failure;
      if (!same_types(traces.front(), traces.back())) return Failure{"types", to_string(device) + " has others"};
    }
  } catch (const std::exception& e) {
    return Failure{"cannot be built", e.what()};
  }
  return {};
}

}  // namespace graphsink::testing
