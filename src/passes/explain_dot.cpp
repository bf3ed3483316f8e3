#include <map>
#include <set>

#include "base/at.h"
#include "base/printable.h"
#include "graphsink/memory.h"
#include "passes/explain.h"
#include "passes/passes.h"

namespace graphsink {
namespace {

using Edge = std::pair<int, int>;  // ids of tasks

constexpr std::size_t kFusedOpsInLine = 4;

// Finds which tasks depend on which.
class Flow {
 public:
  explicit Flow(const Plan& plan) : plan_(plan) {
    for (int id : plan.sequences[0].tasks) {
      const Task& task = plan.tasks[at(id)];
      for (int other : task.after)
        if (auto tail = tails_.find(other); tail != tails_.end()) joins_.insert({tail->second, id});
      tails_[task.stream] = id;
      visit(id);
    }
    for (const Edge& edge : data_) joins_.erase(edge);
  }

  // Edges from each task that may have written a buffer to the tasks that read it.
  const std::set<Edge>& data() const { return data_; }
  // Edges from each invariant copy, given by its index, to the tasks that read it.
  const std::set<Edge>& invariant() const { return invariant_; }
  // Edges from the last task of a stream to a task that waits for the stream but reads nothing that it wrote.
  const std::set<Edge>& joins() const { return joins_; }

 private:
  void read(int buffer, int task) {
    for (std::size_t i = 0; i < plan_.invariant_copies.size(); ++i)
      if (plan_.invariant_copies[i].destination == buffer) invariant_.insert({static_cast<int>(i), task});
    for (int writer : writers_[buffer]) data_.insert({writer, task});
  }

  void visit(int id) {
    const Task& task = plan_.tasks[at(id)];
    if (task.bodies.empty()) {
      Touched buffers = touched(plan_, task);
      for (int buffer : buffers.reads) read(buffer, id);
      for (int buffer : buffers.writes) writers_[buffer].insert(id);
      return;
    }
    read(task.source, id);
    const bool is_outermost = task.kind == TaskKind::loop && !is_in_loop_;
    if (is_outermost) is_in_loop_ = true;
    visit_bodies(task);
    if (!is_outermost) return;
    visit_bodies(task);  // again: an iteration may read what the one before it wrote, in this loop or in one in it
    read(task.source, id);
    is_in_loop_ = false;
  }

  void visit_bodies(const Task& task) {
    for (int body : task.bodies)
      for (int inner : plan_.sequences[at(body)].tasks) visit(inner);
  }

  const Plan& plan_;
  std::map<int, int> tails_;  // last task, per stream
  // The tasks that wrote each buffer. Only the states of loops and the results of branches have several writers, and a
  // reader may get the value of any of them.
  std::map<int, std::set<int>> writers_;
  bool is_in_loop_ = false;
  std::set<Edge> data_;
  std::set<Edge> invariant_;
  std::set<Edge> joins_;
};

// Returns `text` as a quoted DOT string. Lines end with `line_end`: "\n" centers them, "\l" aligns them to the left.
std::string quoted(const std::string& text, const char* line_end = "\\n") {
  std::string result = "\"";
  for (char c : text) {
    if (c == '\n') {
      result += line_end;
    } else {
      if (c == '"' || c == '\\') result += '\\';
      result += c;
    }
  }
  return result + "\"";
}

class DotPrinter {
 public:
  explicit DotPrinter(const Plan& plan) : plan_(plan) {}

  std::string run() {
    std::string title = summary_text(plan_, {});
    for (const Reason& reason : plan_.reasons) title += "note: " + reason_text(reason) + "\n";
    text_ = "digraph plan {\n  label=" + quoted(title, "\\l") +
            ";\n  labelloc=t;\n  labeljust=l;\n"
            "  node [shape=box, style=filled];\n";
    for (std::size_t i = 0; i < plan_.invariant_copies.size(); ++i)
      line(1, invariant_name(i) + " [label=" +
                  quoted("copy " + bytes_text(plan_.buffers[at(plan_.invariant_copies[i].source)].bytes) + "\nif new") +
                  ", " + kCopyStyle + ", style=\"filled,dashed\"];");
    for (std::size_t i = 0; i < plan_.islands.size(); ++i) print(plan_.islands[i], i);
    Flow flow(plan_);
    // In a loop, an edge may lead back to an earlier task. Such an edge must not affect the layout.
    for (const Edge& edge : flow.data()) print(edge, edge.first < edge.second ? "" : " [constraint=false]");
    for (const Edge& edge : flow.invariant())
      line(1, invariant_name(at(edge.first)) + " -> " + name(edge.second) + ";");
    for (const Edge& edge : flow.joins()) print(edge, " [style=dashed]");
    for (const Edge& edge : entries_) print(edge, " [style=dotted]");
    return text_ + "}\n";
  }

 private:
  static constexpr const char* kCopyStyle = "fillcolor=white, fontsize=10, height=0.2, width=0.2";

  static std::string invariant_name(std::size_t index) { return "invariant" + std::to_string(index); }
  static std::string name(int id) { return "task" + std::to_string(id); }

  void line(int indent, const std::string& text) { text_ += std::string(at(indent) * 2, ' ') + text + "\n"; }

  void print(const Edge& edge, const char* attributes) {
    line(1, name(edge.first) + " -> " + name(edge.second) + attributes + ";");
  }

  void print(const Island& island, std::size_t index) {
    line(1, "subgraph cluster_island" + std::to_string(index) + " {");
    line(2, "label=" + quoted("island " + std::to_string(index) + ": " + island_text(island)) +
                (island.sunk ? ";" : "; color=red;"));
    for (int id : island.tasks) print(id, plan_.tasks[at(id)].stream, 2);
    line(1, "}");
  }

  void print(int id, int stream, int indent) {
    const Task& task = plan_.tasks[at(id)];
    std::string head = std::to_string(id) + " ", on = "\ns" + std::to_string(stream);
    if (task.kind == TaskKind::call) {
      const PlanNode& node = plan_.nodes[at(task.node)];
      std::string label = head + printable(node.op->name), where = to_string(node.where);
      const auto ops = fused_ops(node);
      for (std::size_t k = 0; k < ops.size(); ++k) label += (k % kFusedOpsInLine == 0 ? "\n" : " ") + ops[k];
      if (std::string result = result_text(plan_, node); !result.empty()) label += "\n" + result;
      int device = device_of(plan_, task);
      if (device > 0) on += " of " + device_name(plan_, device);
      label += (node.on_host ? "\nhost" : on) + (where.empty() ? "" : ", " + where);
      declare(indent, id, label,
              node.on_host ? "fillcolor=orange"
              : device > 0 ? "fillcolor=palegreen"
                           : "fillcolor=lightblue");
    } else if (task.kind == TaskKind::copy) {
      declare(indent, id, head + "copy " + bytes_text(plan_.buffers[at(task.source)].bytes), kCopyStyle);
    } else {
      const std::string where = to_string(plan_.controls[at(task.control)].where);
      declare(
          indent, id,
          head + name_of(task.kind) + "\n" + control_text(plan_, task) + on + (where.empty() ? "" : ", " + where),
          conditional_node(plan_, task) ? "fillcolor=lightyellow, shape=diamond" : "fillcolor=orange, shape=diamond");
      print_bodies(task, id, stream, indent);
    }
  }

  void declare(int indent, int id, const std::string& label, const char* attributes) {
    line(indent, name(id) + " [label=" + quoted(label) + ", " + attributes + "];");
  }

  void print_bodies(const Task& task, int id, int stream, int indent) {
    for (std::size_t i = 0; i < task.bodies.size(); ++i) {
      const std::string what = name_of_body(task.kind, i);
      const std::string number = task.kind == TaskKind::choice ? "body" + std::to_string(i) : what;
      line(indent, "subgraph cluster_" + name(id) + "_" + number + " {");
      line(indent + 1,
           "label=" + quoted(what + " of " + std::to_string(id) + ": " + body_cost_text(plan_, task.bodies[i])) +
               "; style=rounded;");
      const auto& tasks = plan_.sequences[at(task.bodies[i])].tasks;
      if (!tasks.empty()) entries_.insert({id, tasks[0]});
      for (int inner : tasks) print(inner, stream, indent + 1);
      line(indent, "}");
    }
  }

  const Plan& plan_;
  std::string text_;
  std::set<Edge> entries_;  // from branches and loops to the tasks of their bodies
};

}  // namespace

std::string Plan::explain_dot() const { return DotPrinter(*this).run(); }

}  // namespace graphsink
