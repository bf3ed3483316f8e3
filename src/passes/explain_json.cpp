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
    StepCounts counts = count_steps(plan_);
    Json hoisted = Json::array();
    for (const HoistedCopy& copy : plan_.hoisted)
      hoisted.push_back({{"direction", name_of(direction_of(plan_, copy))},
                         {"bytes", plan_.buffers[at(copy.source)].bytes},
                         {"source", buffer_json(copy.source)},
                         {"destination", buffer_json(copy.destination)}});
    Json steps = Json::array();
    for (const Step& step : plan_.sequences[0].steps) steps.push_back(step_json(step, step.stream));
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
            {"hoisted", std::move(hoisted)},
            {"memory",
             {{"arena_bytes", plan_.devices[0].arena_bytes},
              {"host_arena_bytes", host_arena_bytes(plan_, facts_)},
              {"hoisted_bytes", plan_.host_hoisted_bytes},
              {"value_bytes", plan_.value_bytes},
              {"live_bytes", live_bytes(plan_)}}},
            {"islands", islands_json(plan_.islands)},
            {"split_islands", islands_json(split_islands(plan_))},
            {"steps", std::move(steps)},
            {"reasons", std::move(reasons)}};
  }

 private:
  Json islands_json(const std::vector<Island>& islands) const {
    Json json = Json::array();
    for (const Island& island : islands)
      json.push_back({{"first", island.first},
                      {"last", island.last},
                      {"sunk", island.sunk},
                      {"nodes", count_steps(plan_, island.first, island.last).nodes},
                      {"after", island.after},
                      {"beside", island.beside}});
    return json;
  }

  // `stream` is that of the step of the schedule: bodies run on the stream of the step around them.
  Json step_json(const Step& step, int stream) {
    Json json = {{"number", number_++}};
    const PlanNode* node = step.kind == StepKind::call ? &plan_.nodes[at(step.node)] : nullptr;
    json["kind"] = name_of(step.kind);
    json["op"] = node ? std::string(node->op->name) : name_of(step.kind);
    json["where"] = where_json(node ? node->where : Where());
    json["device"] = node && node->on_host ? "host" : device_name(plan_, device_of(plan_, step));
    json["stream"] = stream;
    json["after"] = step.after;
    json["forks"] = Json::array();
    for (const Fork& fork : step.forks)
      json["forks"].push_back({{"stream", fork.stream}, {"source", fork.source}, {"step", fork.step}});
    if (node) {
      add_operands(*node, json);
    } else if (step.kind == StepKind::copy) {
      json["direction"] = name_of(direction_of(plan_, step));
      json["bytes"] = plan_.buffers[at(step.source)].bytes;
      json["source"] = buffer_json(step.source);
      json["destination"] = buffer_json(step.destination);
    } else {
      json["predicate"] = buffer_json(step.source);
      add_bodies(step, stream, json);
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

  void add_bodies(const Step& step, int stream, Json& json) {
    Json bodies = Json::array();
    for (int body : step.sequences) {
      Json steps = Json::array();
      for (const Step& inner : plan_.sequences[at(body)].steps) steps.push_back(step_json(inner, stream));
      bodies.push_back(std::move(steps));
    }
    json["bodies"] = std::move(bodies);
  }

  Json buffer_json(int buffer) const {
    if (buffer < 0) return {{"buffer", nullptr}, {"memory", nullptr}};
    return {{"buffer", buffer}, {"memory", memory_text(plan_, buffer)}};
  }

  const Plan& plan_;
  const PlanFacts& facts_;
  int number_ = 0;
};

}  // namespace

std::string Plan::explain_json(const PlanFacts& facts) const {
  // Names may hold any bytes; JSON is UTF-8.
  return Writer(*this, facts).run().dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace graphsink
