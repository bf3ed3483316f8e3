#include <algorithm>
#include <string>
#include <string_view>

#include "base/at.h"
#include "base/json_writer.h"
#include "ir/graph_data.h"
#include "passes/exchanges.h"
#include "passes/explain.h"
#include "passes/passes.h"
#include "passes/plan_queries.h"

namespace graphsink {
namespace {

const char* name_of(Access access) {
  return access == Access::read ? "read" : access == Access::write ? "write" : "shape_only";
}

const char* name_of(CopyDirection direction) {
  return direction == CopyDirection::to_host         ? "to_host"
         : direction == CopyDirection::to_device     ? "to_device"
         : direction == CopyDirection::within_device ? "within_device"
                                                     : "between_devices";
}

// Writes the attributes of a node.
class AttributeWriter final : public FieldVisitor {
 public:
  explicit AttributeWriter(JsonWriter& json) : json_(json) {}
  void name(std::string_view name) override { json_.key(name); }
  void value(bool is) override { json_.value(is); }
  void value(std::int64_t number) override { json_.value(number); }
  void value(std::uint64_t number) override { json_.value(number); }
  void value(double number) override { json_.value(number); }
  void value(std::string_view text) override { json_.value(text); }
  void no_value() override { json_.null(); }
  void begin_struct() override { json_.begin_object(); }
  void end_struct() override { json_.end_object(); }
  std::size_t begin_list(std::size_t size) override {
    json_.begin_array();
    return std::min(size, kMostElements);
  }
  void end_list(std::size_t size) override {
    if (size > kMostElements) json_.value(std::to_string(size) + " in all");
    json_.end_array();
  }

 private:
  static constexpr std::size_t kMostElements = 16;  // elements of a list that are written
  JsonWriter& json_;
};

class Writer {
 public:
  Writer(const Plan& plan, const PlanFacts& facts) : plan_(plan), facts_(facts) {}

  std::string run() {
    object([&] {
      json_.member("device", to_string(plan_.target().id));
      json_.member("target", plan_.target().name);
      array("further_devices", used_further_devices(plan_),
            [&](int device) { json_.value(device_name(plan_, device)); });
      json_.member("sinks_whole", sinks_whole(plan_) && facts_.op_by_op.empty());
      json_.member("launches_per_step", launches_per_step(plan_.islands));
      json_.member("loop_over_steps", plan_.loop_over_steps && !facts_.is_step_by_step);
      if (plan_.unrolled_steps > 0) json_.member("unrolled_steps", unrolled_steps(plan_, facts_));
      const TaskCounts counts = count_tasks(plan_);
      json_.member("nodes", counts.nodes);
      json_.member("host_nodes", counts.host_nodes);
      json_.member("streams", plan_.streams);
      add_variables_elsewhere();
      object("copies", [&] {
        json_.member("count", counts.copies);
        add_copied_bytes(counts);
        json_.member("between_devices_bytes", counts.between_devices_bytes);
      });
      array("invariant_copies", plan_.invariant_copies, [&](const InvariantCopy& copy) { add(copy); });
      add_memory();
      object("fusion", [&] {
        json_.member("ops", plan_.fusion.ops);
        json_.member("nodes", plan_.fusion.nodes);
        json_.member("bytes", plan_.fusion.bytes);
        text_or_null("obstacle", plan_.fusion.obstacle);
      });
      object("avoided_copies", [&] {
        json_.member("ops", plan_.avoided_copies.ops);
        json_.member("bytes", plan_.avoided_copies.bytes);
      });
      object("programmatic_launch", [&] {
        json_.member("on", plan_.programmatic.is_on);
        json_.member("nodes", plan_.programmatic.nodes);
        text_or_null("obstacle", plan_.programmatic.obstacle);
      });
      add_collectives();
      add_islands("islands", plan_.islands);
      add_islands("split_islands", plan_.split_islands);
      array("tasks", plan_.sequences[0].tasks, [&](int id) { add_task(id, plan_.tasks[at(id)].stream); });
      add_shape_cache();
      json_.key("reasons");
      json_.begin_array();
      for (const auto* list : {&plan_.reasons, &facts_.reasons})
        for (const Reason& reason : *list) add(reason);
      json_.end_array();
    });
    return json_.take() + "\n";
  }

 private:
  // Variables that live on further devices, where there are any.
  void add_variables_elsewhere() {
    const std::vector<std::size_t> elsewhere = variables_elsewhere(plan_);
    if (elsewhere.empty()) return;
    array("variables_elsewhere", elsewhere, [&](std::size_t i) {
      const VariableData& data = *plan_.variables[i].data();
      object([&] {
        json_.member("name", data.name);
        json_.member("device", device_name(plan_, plan_.variable_devices[i]));
        json_.member("bytes", data.type.bytes());
        json_.member("placement", plan_.variable_devices[i]);
        json_.member("why", data.is_beside_another ? "the placement of its parameter" : "its placement");
      });
    });
  }

  // Those that the device carries out, where there are any.
  void add_collectives() {
    const std::vector<Beside> exchanges = beside_exchanges(plan_);
    if (exchanges.empty()) return;
    array("collectives", exchanges, [&](const Beside& each) {
      object([&] {
        json_.member("task", each.exchange);
        json_.member("stream", plan_.tasks[at(each.exchange)].stream);
        add_numbers("beside", each.tasks);
      });
    });
  }

  // The members of an object, or of one that is a member itself, are what `add` writes.
  template <class Add>
  void object(const Add& add) {
    json_.begin_object();
    add();
    json_.end_object();
  }
  template <class Add>
  void object(const char* name, const Add& add) {
    json_.key(name);
    object(add);
  }
  // `add` writes one element.
  template <class Range, class Add>
  void array(const Range& range, const Add& add) {
    json_.begin_array();
    for (const auto& element : range) add(element);
    json_.end_array();
  }
  template <class Range, class Add>
  void array(const char* name, const Range& range, const Add& add) {
    json_.key(name);
    array(range, add);
  }

  void text_or_null(const char* name, const std::string& text) {
    json_.key(name);
    text.empty() ? json_.null() : json_.value(text);
  }
  void number_or_null(const char* name, int number) {
    json_.key(name);
    number < 0 ? json_.null() : json_.value(number);
  }
  void add_numbers(const char* name, const std::vector<int>& numbers) {
    json_.key(name);
    json_.array(numbers);
  }

  void add_copied_bytes(const TaskCounts& counts) {
    json_.member("to_host_bytes", counts.to_host_bytes);
    json_.member("to_device_bytes", counts.to_device_bytes);
    json_.member("within_device_bytes", counts.within_device_bytes);
  }

  void add(const InvariantCopy& copy) {
    object([&] {
      json_.member("direction", name_of(direction_of(plan_, copy)));
      json_.member("bytes", plan_.buffers[at(copy.source)].bytes);
      object("source", [&] { add_buffer(copy.source); });
      object("destination", [&] { add_buffer(copy.destination); });
    });
  }

  void add_place(const Where& where) {
    text_or_null("where", line_of(where));
    text_or_null("scope", std::string(where.scope()));
  }

  void add(const Reason& reason) {
    object([&] {
      json_.member("what", reason.what);
      json_.member("why", reason.why);
      add_place(reason.where);
      json_.member("cost", reason.cost);
      json_.member("remedy", reason.remedy);
    });
  }

  void add_memory() {
    object("memory", [&] {
      json_.member("arena_bytes", plan_.devices[0].arena_bytes);
      json_.member("host_arena_bytes", host_arena_bytes(plan_, facts_));
      json_.member("invariant_bytes", plan_.host_invariant_bytes);
      json_.member("value_bytes", plan_.value_bytes);
      json_.member("live_bytes", live_bytes(plan_));
    });
  }

  void add_shape_cache() {
    const auto& cache = facts_.shape_cache;
    json_.key("shape_cache");
    if (!cache) return json_.null();
    object([&] {
      json_.member("shapes", cache->shapes);
      json_.member("captured", cache->captured);
      json_.member("bytes", cache->bytes);
      json_.member("evicted", cache->evicted);
    });
  }

  void add_islands(const char* name, const std::vector<Island>& islands) {
    array(name, islands, [&](const Island& island) {
      object([&] {
        add(island);
        add_numbers("after", island.after);
        json_.member("beside", island.beside);
      });
    });
  }

  void add(const Island& island) {
    add_numbers("tasks", island.tasks);
    json_.member("sunk", island.sunk);
    json_.member("nodes", count_tasks(plan_, plan_.tasks_of(island)).nodes);
  }

  // `stream` is the stream of the task of the schedule. The tasks of a body run on the stream of the task around them.
  void add_task(int id, int stream) {
    const Task& task = plan_.tasks[at(id)];
    const PlanNode* node = task.kind == TaskKind::call ? &plan_.nodes[at(task.node)] : nullptr;
    object([&] {
      json_.member("id", id);
      json_.member("kind", name_of(task.kind));
      json_.member("op", node ? std::string(node->op->name) : name_of(task.kind));
      const Where where = node ? node->where : task.control >= 0 ? plan_.controls[at(task.control)].where : Where();
      add_place(where);
      json_.member("device", node && node->on_host ? "host" : device_name(plan_, device_of(plan_, task)));
      json_.member("stream", stream);
      add_numbers("after", task.after);
      array("forks", task.forks, [&](const Fork& fork) {
        object([&] {
          json_.member("stream", fork.stream);
          json_.member("source", fork.source);
          json_.member("task", fork.task);
        });
      });
      if (node) {
        add_call(*node);
      } else if (task.kind == TaskKind::copy) {
        json_.member("direction", name_of(direction_of(plan_, task)));
        json_.member("bytes", plan_.buffers[at(task.source)].bytes);
        object("source", [&] { add_buffer(task.source); });
        object("destination", [&] { add_buffer(task.destination); });
      } else {
        object(task.kind == TaskKind::choice ? "index" : "predicate", [&] { add_buffer(task.source); });
        add_control(task);
        array("bodies", task.bodies,
              [&](int body) { array(plan_.sequences[at(body)].tasks, [&](int inner) { add_task(inner, stream); }); });
      }
    });
  }

  void add_call(const PlanNode& node) {
    if (const auto ops = fused_ops(node); !ops.empty()) {
      json_.key("ops");
      json_.array(ops);
    }
    if (AttributeWriter writer(json_); node.attrs.has_fields())
      object("attributes", [&] { node.attrs.visit_fields(writer); });
    json_.member("programmatic", node.programmatic == ProgrammaticLaunch::all);
    add_operands("inputs", node, 0, at(node.inputs));
    add_operands("outputs", node, at(node.inputs), node.operands.size());
  }

  void add_operands(const char* name, const PlanNode& node, std::size_t begin, std::size_t end) {
    json_.key(name);
    json_.begin_array();
    for (std::size_t i = begin; i < end; ++i) {
      object([&] {
        json_.member("type", to_string(node.types[i]));
        if (i < at(node.inputs)) json_.member("access", name_of(access_of(*node.op, i, at(node.inputs))));
        add_buffer(node.operands[i]);
      });
    }
    json_.end_array();
  }

  void add_control(const Task& task) {
    const PlanControl& control = plan_.controls[at(task.control)];
    const char* node = conditional_node(plan_, task);
    text_or_null("node", node ? node : "");
    number_or_null("reason", control.reason);
    number_or_null("iterations", control.iterations);
    number_or_null("iterations_in_body", task.kind == TaskKind::loop ? control.iterations_in_body : -1);
    array("costs", task.bodies, [&](int body) {
      const TaskCounts counts = count_tasks(plan_, plan_.tasks_of(body));
      object([&] {
        json_.member("ops", counts.nodes);
        json_.member("host_ops", counts.host_nodes);
        json_.member("copies", counts.copies);
        add_copied_bytes(counts);
        json_.member("launches", launches_of_body(plan_, body));
      });
    });
    array("islands", task.bodies, [&](int body) {
      array(plan_.sequences[at(body)].islands, [&](const Island& island) { object([&] { add(island); }); });
    });
  }

  void add_buffer(int buffer) {
    number_or_null("buffer", buffer);
    text_or_null("memory", memory_text(plan_, buffer));
  }

  const Plan& plan_;
  const PlanFacts& facts_;
  JsonWriter json_{2};
};

}  // namespace

std::string Plan::explain_json(const PlanFacts& facts) const { return Writer(*this, facts).run(); }

}  // namespace graphsink
