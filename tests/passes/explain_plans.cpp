#include "explain_plans.h"

#include <string_view>
#include <utility>

#include "graphsink/graphsink.h"
#include "ir/system_ops.h"
#include "test_ops.h"

template class nlohmann::basic_json<>;

namespace graphsink::testing {

Plan plan_for(const Graph& graph, const Target& target) { return make_plan(graph, target, system_ops()); }

Plan host_op_plan() {
  Graph g;
  Value x = g.input("x", f32, {256});
  g.output("y", relu(emit(cpu_plus_one, {tanh(x)})[0]));
  return plan_for(g, Target::cuda13());
}

Plan host_loop_plan() {
  Graph g;
  Value x = g.input("x", f32, {4});
  auto [y] = while_(
      {x}, [](Value s) { return sum(s) < 100.0; }, [](Value s) { return emit(cpu_plus_one, {s})[0] * 2.0; });
  g.output("y", y);
  return plan_for(g, Target::cuda13());
}

Plan invariant_copies_plan() {
  Graph g;
  Value x = g.input("x", f32, {256});
  Variable table("table", Tensor(f32, {4, 64}));
  Value y = emit(cpu_plus_one, {reshape(g.value(table), {256}, on_device)})[0];
  g.output("y", if_(
                    sum(x, {}, {}, on_device) < 1.0, [&] { return mul(emit(cpu_plus_one, {x})[0], y, on_device); },
                    [&] { return add(x, y, on_device); }));
  return plan_for(g, Target::cuda13());
}

Plan branch_in_loop_plan() {
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

Plan scopes_plan() {
  Graph g;
  const auto layer = [](const Value& x) {
    const Variable w("w", Tensor(f32, {4, 4}));
    return tanh(matmul(x, w));
  };
  Value x = g.input("x", f32, {4, 4});
  {
    const Scope encoder("encoder");
    for (int i = 0; i < 2; ++i) {
      const Scope scope("layer" + std::to_string(i));
      x = layer(x);
    }
    x = emit(cpu_plus_one, {x})[0];
  }
  g.output("y", sum(x));
  return plan_for(g, Target::cuda13());
}

Plan choice_plan() {
  Graph g;
  Value x = g.input("x", f32, {4});
  g.output("y", switch_(argmax(x, 0), {[&] { return x * 3.0; }, [&] { return x; }, [&] { return tanh(x); }}));
  return plan_for(g, Target::cuda13());
}

Plan found_size_plan() {
  Graph g;
  Value x = g.input("x", f32, {64});
  const Padded chosen = masked_select(x, greater(x, 0.0), next_power_of_two());
  g.output("mean", mean(chosen));
  g.output("different", unique(x, 16).values.values);
  return plan_for(g, Target::cuda13());
}

Plan unrolled_plan() {
  Graph g;
  Value x = g.input("x", f32, {2, 4});
  Scan made = scan({sum(x, {0})}, {x}, [](const Values& state, const Values& row) {
    Value s = while_(
        {state[0]}, [](Value t) { return sum(t) < 10.0; }, [](Value t) { return t * 2.0; })[0];
    return Scan{{emit(cpu_plus_one, {s})[0]}, {s + row[0]}};
  });
  g.output("kept", made.outputs[0]);
  return plan_for(g, Target::cuda13());
}

Plan wide_plan() {
  Graph g;
  Value x = g.feed("x", f32, {64});
  for (int branch = 0; branch < 4; ++branch) {
    Value y = x * (branch + 2.0);  // equal branches would be computed once
    for (int i = 0; i < 8; ++i) y = tanh(y);
    g.record("s" + std::to_string(branch), sum(y));
  }
  return plan_for(g, Target::cuda13());
}

Plan further_device_plan() {
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

std::vector<Plan> plans() {
  return {plan_for(small_mlp(), Target::host()),
          plan_for(small_mlp(), Target::cuda13()),
          host_op_plan(),
          host_loop_plan(),
          invariant_copies_plan(),
          branch_in_loop_plan(),
          choice_plan(),
          unrolled_plan(),
          found_size_plan(),
          wide_plan(),
          further_device_plan()};
}

std::vector<json> flat(const json& tasks) {
  std::vector<json> result;
  for (const json& task : tasks) {
    result.push_back(task);
    for (const json& body : task.value("bodies", json::array()))
      for (json& inner : flat(body)) result.push_back(std::move(inner));
  }
  return result;
}

json explain_json_of(const Plan& plan) { return json::parse(plan.explain_json()); }

json schedule_json_of(const Plan& plan) { return explain_json_of(plan)["tasks"]; }

std::vector<json> tasks_of(const Plan& plan) { return flat(schedule_json_of(plan)); }

int id_of(const Plan& plan, std::string_view op) {
  for (const json& task : tasks_of(plan))
    if (task["op"] == op) return task["id"];
  return -1;
}

}  // namespace graphsink::testing
