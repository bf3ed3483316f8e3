#include "base/at.h"
#include "base/printable.h"
#include "graphsink/memory.h"
#include "passes/explain.h"
#include "passes/passes.h"

namespace graphsink {
namespace {

std::string padded(std::string text, std::size_t width) {
  text.append(text.size() < width ? width - text.size() : 1, ' ');
  return text;
}

class Printer {
 public:
  Printer(const Plan& plan, const PlanFacts& facts)
      : plan_(plan), facts_(facts), on_width_(used_further_devices(plan).empty() ? 10 : 16) {}

  std::string run() {
    text_ = summary_text(plan_, facts_) + padded("  #", 6) + padded("op", 20) + padded("on", on_width_) +
            padded("result", 26) + padded("memory", 28) + "from\n";
    for (const InvariantCopy& copy : plan_.invariant_copies) print(copy);
    for (std::size_t i = 0; i < plan_.islands.size(); ++i) {
      const Island& island = plan_.islands[i];
      if (plan_.islands.size() > 1) text_ += "  island " + std::to_string(i) + ": " + island_text(island) + "\n";
      for (int id : island.tasks) print(id, plan_.tasks[at(id)].stream, 0);
    }
    for (const auto* reasons : {&plan_.reasons, &facts_.reasons})
      for (const Reason& reason : *reasons) text_ += "note: " + reason_text(reason) + "\n";
    return std::move(text_);
  }

 private:
  void row(const std::string& id, int indent, const std::string& op, const std::string& on, const std::string& result,
           const std::string& memory, const Where& where) {
    std::string row = padded("  " + id, 6) + padded(std::string(at(indent) * 2, ' ') + printable(op), 20) +
                      padded(on, on_width_) + padded(result, 26) + padded(printable(memory), 28) + to_string(where);
    row.erase(row.find_last_not_of(' ') + 1);
    text_ += row + "\n";
  }

  static std::string stream_text(const Task& task, int stream) {
    std::string text = "s" + std::to_string(stream);
    for (std::size_t i = 0; i < task.after.size(); ++i) text += (i ? "," : "<") + std::to_string(task.after[i]);
    return text;
  }

  std::string result_memory(const PlanNode& node) const {
    std::string text;
    for (std::size_t i = at(node.inputs); i < node.operands.size() && i < at(node.inputs) + 2; ++i)
      text += (i > at(node.inputs) ? ", " : "") + memory_text(plan_, node.operands[i]);
    return text;
  }

  void print(const InvariantCopy& copy) {
    row("-", 0, "copy", "if new", bytes_text(plan_.buffers[at(copy.source)].bytes),
        memory_text(plan_, copy.source) + " -> " + memory_text(plan_, copy.destination), Where());
  }

  void print(int id, int stream, int indent) {
    const Task& task = plan_.tasks[at(id)];
    auto line = [&](const std::string& op, const std::string& where_it_runs, const std::string& result,
                    const std::string& memory,
                    const Where& where) { row(std::to_string(id), indent, op, where_it_runs, result, memory, where); };
    std::string on = stream_text(task, stream);
    if (int device = device_of(plan_, task); device > 0) on = device_name(plan_, device) + " " + on;
    if (task.kind == TaskKind::call) {
      const PlanNode& node = plan_.nodes[at(task.node)];
      if (node.programmatic == ProgrammaticLaunch::all) on += " pdl";
      line(std::string(node.op->name), node.on_host ? "host" : on, result_text(plan_, node), result_memory(node),
           node.where);
      if (const auto ops = fused_ops(node); !ops.empty()) {
        text_ += padded("", 6) + std::string(at(indent) * 2, ' ') + " ";
        for (const std::string& op : ops) text_ += " " + op;
        text_ += "\n";
      }
      return;
    }
    if (task.kind == TaskKind::copy) {
      line("copy", on, bytes_text(plan_.buffers[at(task.source)].bytes),
           memory_text(plan_, task.source) + " -> " + memory_text(plan_, task.destination), Where());
      return;
    }
    const PlanControl& control = plan_.controls[at(task.control)];
    line(name_of(task.kind), on, control_text(plan_, task), memory_text(plan_, task.source), control.where);
    const std::string margin = padded("", 6) + std::string(at(indent) * 2, ' ');
    if (control.reason >= 0)
      text_ += margin + "the host drives it: " + printable(plan_.reasons[at(control.reason)].why) + "\n";
    text_ += margin + costs_text(task) + "\n";
    for (std::size_t i = 0; i < task.bodies.size(); ++i) {
      if (i > 0 || task.kind == TaskKind::choice) text_ += margin + name_of_body(task.kind, i) + "\n";
      print_body(plan_.sequences[at(task.bodies[i])], stream, indent + 1);
    }
  }

  void print_body(const Sequence& body, int stream, int indent) {
    if (body.islands.empty()) {
      for (int id : body.tasks) print(id, stream, indent);
      return;
    }
    for (const Island& island : body.islands) {
      text_ += padded("", 6) + std::string(at(indent) * 2, ' ') +
               (island.sunk ? "one launch:" : "issued by the host:") + "\n";
      for (int id : island.tasks) print(id, stream, indent);
    }
  }

  std::string name_of_run(const Task& task, std::size_t body) const {
    if (task.kind != TaskKind::loop) return name_of_body(task.kind, body);
    return plan_.controls[at(task.control)].iterations_in_body == 1 ? "each iteration" : "each run of the body";
  }

  // "then: 1 op, 1 copy; else: nothing".
  std::string costs_text(const Task& task) const {
    std::string text;
    for (std::size_t i = 0; i < task.bodies.size(); ++i)
      text += (i > 0 ? "; " : "") + name_of_run(task, i) + ": " + body_cost_text(plan_, task.bodies[i]);
    return text;
  }

  const Plan& plan_;
  const PlanFacts& facts_;
  std::string text_;
  std::size_t on_width_;
};

}  // namespace

std::string Plan::explain(const PlanFacts& facts) const { return Printer(*this, facts).run(); }

}  // namespace graphsink
