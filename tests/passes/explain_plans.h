// Plans that the tests of explain() look at, and how they read them as JSON.
#pragma once

#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>
#include <vector>

#include "golden.h"
#include "graphsink/graphsink.h"
#include "ir/system_ops.h"
#include "passes/passes.h"
#include "test_ops.h"

namespace graphsink::testing {

using nlohmann::json;

inline std::size_t at(int i) { return static_cast<std::size_t>(i); }

inline Plan plan_for(const Graph& graph, const Target& target) { return make_plan(graph, target, system_ops()); }

inline Plan host_op_plan() {
  Graph g;
  Value x = g.input("x", f32, {256});
  g.output("y", relu(emit(cpu_plus_one, {tanh(x)})[0]));
  return plan_for(g, Target::cuda13());
}

inline Plan host_loop_plan() {
  Graph g;
  Value x = g.input("x", f32, {4});
  auto [y] = while_(
      {x}, [](Value s) { return sum(s) < 100.0; }, [](Value s) { return emit(cpu_plus_one, {s})[0] * 2.0; });
  g.output("y", y);
  return plan_for(g, Target::cuda13());
}

// A table that is never assigned and an input, both read on the host, one of them in a branch.
inline Plan hoisted_plan() {
  Graph g;
  Value x = g.input("x", f32, {256});
  Variable table("table", Tensor(f32, {4, 64}));
  Value y = emit(cpu_plus_one, {reshape(g.value(table), {256}, on_device)})[0];
  g.output("y", if_(
                    sum(x, {}, false, on_device) < 1.0, [&] { return mul(emit(cpu_plus_one, {x})[0], y, on_device); },
                    [&] { return add(x, y, on_device); }));
  return plan_for(g, Target::cuda13());
}

// A branch between two values in a loop; `x` is read in both.
inline Plan branch_in_loop_plan() {
  Graph g;
  Value x = g.input("x", f32, {4});
  auto [y] = while_(
      {x}, [](Value s) { return sum(s) < 100.0; },
      [](Value s) {
        return if_(
            sum(s) < 10.0, [&] { return s * 3.0; }, [&] { return s + 1.0; });
      });
  g.output("y", tanh(y));
  return plan_for(g, Target::cuda13());
}

// Four branches of eight ops each.
inline Plan wide_plan() {
  Graph g;
  Value x = g.feed("x", f32, {64});
  for (int branch = 0; branch < 4; ++branch) {
    Value y = x;
    for (int i = 0; i < 8; ++i) y = tanh(y);
    g.record("s" + std::to_string(branch), sum(y));
  }
  return plan_for(g, Target::cuda13());
}

// Two devices that reach each other's memory, and the host.
inline Plan further_device_plan() {
  Graph g;
  Value x = g.input("x", f32, {8});
  Variable w("w", Tensor(f32, {8}));
  Value there = tanh(x * w, on_device(1));
  Value here = emit(cpu_plus_one, {there})[0];
  assign(w, add(here, there, on_device));
  Target first = Target::cuda13(), second = Target::cuda13();
  second.id = cuda(1);
  first.peers = {1};
  second.peers = {0};
  return make_plan(g, first, system_ops(), {}, {.further_targets = {second}});
}

inline std::vector<Plan> plans() {
  return {plan_for(small_mlp(), Target::host()),
          plan_for(small_mlp(), Target::cuda13()),
          host_op_plan(),
          host_loop_plan(),
          hoisted_plan(),
          branch_in_loop_plan(),
          wide_plan(),
          further_device_plan()};
}

// All steps, bodies included, in the order of their numbers.
inline std::vector<json> flat(const json& steps) {
  std::vector<json> result;
  for (const json& step : steps) {
    result.push_back(step);
    for (const json& body : step.value("bodies", json::array()))
      for (json& inner : flat(body)) result.push_back(std::move(inner));
  }
  return result;
}

inline json schedule_of(const Plan& plan) { return json::parse(plan.explain_json())["steps"]; }
inline std::vector<json> steps_of(const Plan& plan) { return flat(schedule_of(plan)); }

inline int number_of(const Plan& plan, std::string_view op) {
  for (const json& step : steps_of(plan))
    if (step["op"] == op) return step["number"];
  return -1;
}

}  // namespace graphsink::testing
