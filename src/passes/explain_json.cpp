#include <nlohmann/json.hpp>

#include "base/at.h"
#include "ir/graph_data.h"
#include "passes/explain.h"
#include "passes/passes.h"

namespace graphsink {
namespace {

using Json = nlohmann::ordered_json;

Json where_json(const Where& where) {
  std::string text = to_string(where);
  return text.empty() ? Json() : Json(text);
}

const char* name_of(Access access) {
  return access == Access::read ? "read" : access == Access::write ? "write" : "shape_only";
}

const char* name_of(CopyDirection direction) {
  return direction == CopyDirection::to_host         ? "to_host"
         : direction == CopyDirection::to_device     ? "to_device"
         : direction == CopyDirection::within_device ? "within_device"
                                                     : "between_devices";
}

class Writer {
 public:
  Writer(const Plan& plan, const PlanFacts& facts) : plan_(plan), facts_(facts) {}

  Json run() {
    TaskCounts counts = count_tasks(plan_);
    Json invariant = Json::array();
    for (const InvariantCopy& copy : plan_.invariant_copies)
      invariant.push_back({{"direction", name_of(direction_of(plan_, copy))},
                           {"bytes", plan_.buffers[at(copy.source)].bytes},
                           {"source", buffer_json(copy.source)},
                           {"destination", buffer_json(copy.destination)}});
    Json tasks = Json::array();
    for (int id : plan_.sequences[0].tasks) tasks.push_back(task_json(id, plan_.tasks[at(id)].stream));
    Json reasons = Json::array();
    for (const auto* list : {&plan_.reasons, &facts_.reasons})
      for (const Reason& reason : *list)
        reasons.push_back({{"what", reason.what},
                           {"why", reason.why},
                           {"where", where_json(reason.where)},
                           {"cost", reason.cost},
                           {"remedy", reason.remedy}});
    Json further = Json::array();
    for (int device : used_further_devices(plan_)) further.push_back(device_name(plan_, device));
    Json shape_cache;
    if (const auto& cache = facts_.shape_cache)
      shape_cache = {{"shapes", cache->shapes},
                     {"captured", cache->captured},
                     {"bytes", cache->bytes},
                     {"evicted", cache->evicted}};
    return {{"device", to_string(plan_.target().id)},
            {"target", plan_.target().name},
            {"further_devices", std::move(further)},
            {"sinks_whole", sinks_whole(plan_)},
            {"launches_per_step", launches_per_step(plan_.islands)},
            {"loop_over_steps", plan_.loop_over_steps},
            {"nodes", counts.nodes},
            {"host_nodes", counts.host_nodes},
            {"streams", plan_.streams},
            {"copies",
             {{"count", counts.copies},
              {"to_host_bytes", counts.to_host_bytes},
              {"to_device_bytes", counts.to_device_bytes},
              {"within_device_bytes", counts.within_device_bytes},
              {"between_devices_bytes", counts.between_devices_bytes}}},
            {"invariant_copies", std::move(invariant)},
            {"memory",
             {{"arena_bytes", plan_.devices[0].arena_bytes},
              {"host_arena_bytes", host_arena_bytes(plan_, facts_)},
              {"invariant_bytes", plan_.host_invariant_bytes},
              {"value_bytes", plan_.value_bytes},
              {"live_bytes", live_bytes(plan_)}}},
            {"fusion", fusion()},
            {"avoided_copies", {{"ops", plan_.avoided_copies.ops}, {"bytes", plan_.avoided_copies.bytes}}},
            {"programmatic_launch", programmatic_launch()},
            {"islands", islands_json(plan_.islands)},
            {"split_islands", islands_json(split_islands(plan_))},
            {"tasks", std::move(tasks)},
            {"shape_cache", std::move(shape_cache)},
            {"reasons", std::move(reasons)}};
  }

 private:
  Json islands_json(const std::vector<Island>& islands) const {
    Json json = Json::array();
    for (const Island& island : islands) {
      json.push_back(island_json(island));
      json.back()["after"] = island.after;
      json.back()["beside"] = island.beside;
    }
    return json;
  }

  Json island_json(const Island& island) const {
    return {
        {"tasks", island.tasks}, {"sunk", island.sunk}, {"nodes", count_tasks(plan_, plan_.tasks_of(island)).nodes}};
  }

  // `stream` is the stream of the task of the schedule. The tasks of a body run on the stream of the task around them.
  Json task_json(int id, int stream) const {
    const Task& task = plan_.tasks[at(id)];
    Json json = {{"id", id}};
    const PlanNode* node = task.kind == TaskKind::call ? &plan_.nodes[at(task.node)] : nullptr;
    json["kind"] = name_of(task.kind);
    json["op"] = node ? std::string(node->op->name) : name_of(task.kind);
    json["where"] = where_json(node                ? node->where
                               : task.control >= 0 ? plan_.controls[at(task.control)].where
                                                   : Where());
    json["device"] = node && node->on_host ? "host" : device_name(plan_, device_of(plan_, task));
    json["stream"] = stream;
    json["after"] = task.after;
    json["forks"] = Json::array();
    for (const Fork& fork : task.forks)
      json["forks"].push_back({{"stream", fork.stream}, {"source", fork.source}, {"task", fork.task}});
    if (node) {
      if (auto ops = fused_ops(*node); !ops.empty()) json["ops"] = std::move(ops);
      json["programmatic"] = node->programmatic == ProgrammaticLaunch::all;
      add_operands(*node, json);
    } else if (task.kind == TaskKind::copy) {
      json["direction"] = name_of(direction_of(plan_, task));
      json["bytes"] = plan_.buffers[at(task.source)].bytes;
      json["source"] = buffer_json(task.source);
      json["destination"] = buffer_json(task.destination);
    } else {
      json[task.kind == TaskKind::choice ? "index" : "predicate"] = buffer_json(task.source);
      add_control(task, json);
      add_bodies(task, stream, json);
    }
    return json;
  }

  void add_operands(const PlanNode& node, Json& json) const {
    Json inputs = Json::array(), outputs = Json::array();
    for (std::size_t i = 0; i < node.operands.size(); ++i) {
      bool is_input = i < at(node.inputs);
      Json operand = {{"type", to_string(node.types[i])}};
      if (is_input) operand["access"] = name_of(access_of(*node.op, i, at(node.inputs)));
      operand.update(buffer_json(node.operands[i]));
      (is_input ? inputs : outputs).push_back(std::move(operand));
    }
    json["inputs"] = std::move(inputs);
    json["outputs"] = std::move(outputs);
  }

  Json fusion() const {
    const FusionReport& report = plan_.fusion;
    return {{"ops", report.ops},
            {"nodes", report.nodes},
            {"bytes", report.bytes},
            {"obstacle", report.obstacle.empty() ? Json() : Json(report.obstacle)}};
  }

  Json programmatic_launch() const {
    const ProgrammaticReport& report = plan_.programmatic;
    return {{"on", report.is_on},
            {"nodes", report.nodes},
            {"obstacle", report.obstacle.empty() ? Json() : Json(report.obstacle)}};
  }

  void add_control(const Task& task, Json& json) const {
    const PlanControl& control = plan_.controls[at(task.control)];
    const char* node = conditional_node(plan_, task);
    json["node"] = node ? Json(node) : Json();
    json["reason"] = control.reason >= 0 ? Json(control.reason) : Json();
    json["iterations"] = control.iterations >= 0 ? Json(control.iterations) : Json();
    json["costs"] = Json::array();
    for (int body : task.bodies) {
      const TaskCounts counts = count_tasks(plan_, plan_.tasks_of(body));
      json["costs"].push_back({{"ops", counts.nodes},
                               {"host_ops", counts.host_nodes},
                               {"copies", counts.copies},
                               {"to_host_bytes", counts.to_host_bytes},
                               {"to_device_bytes", counts.to_device_bytes},
                               {"within_device_bytes", counts.within_device_bytes},
                               {"launches", launches_of_body(plan_, body)}});
    }
    json["islands"] = Json::array();
    for (int body : task.bodies) {
      Json islands = Json::array();
      for (const Island& island : plan_.sequences[at(body)].islands) islands.push_back(island_json(island));
      json["islands"].push_back(std::move(islands));
    }
  }

  void add_bodies(const Task& task, int stream, Json& json) const {
    Json bodies = Json::array();
    for (int body : task.bodies) {
      Json tasks = Json::array();
      for (int inner : plan_.sequences[at(body)].tasks) tasks.push_back(task_json(inner, stream));
      bodies.push_back(std::move(tasks));
    }
    json["bodies"] = std::move(bodies);
  }

  Json buffer_json(int buffer) const {
    if (buffer < 0) return {{"buffer", nullptr}, {"memory", nullptr}};
    return {{"buffer", buffer}, {"memory", memory_text(plan_, buffer)}};
  }

  const Plan& plan_;
  const PlanFacts& facts_;
};

}  // namespace

std::string Plan::explain_json(const PlanFacts& facts) const {
  // Names may contain any bytes, but JSON must be UTF-8. So invalid bytes are replaced.
  return Writer(*this, facts).run().dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace graphsink
