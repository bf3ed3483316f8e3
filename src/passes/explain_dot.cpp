#include <map>
#include <set>

#include "base/at.h"
#include "graphsink/memory.h"
#include "passes/explain.h"
#include "passes/passes.h"

namespace graphsink {
namespace {

using Edge = std::pair<int, int>;  // numbers of steps

// Which steps depend on which, in the numbers of the text.
class Flow {
 public:
  explicit Flow(const Plan& plan) : plan_(plan) {
    for (const Step& step : plan.sequences[0].steps) {
      for (int other : step.after)
        if (auto tail = tails_.find(other); tail != tails_.end()) joins_.insert({tail->second, number_});
      tails_[step.stream] = number_;
      visit(step);
    }
    for (const Edge& edge : data_) joins_.erase(edge);
  }

  // From each step that may have written what another reads.
  const std::set<Edge>& data() const { return data_; }
  // From each hoisted copy, by its index, to what reads it.
  const std::set<Edge>& hoisted() const { return hoisted_; }
  // From the last step of a stream to one that waits for it and reads nothing that it wrote.
  const std::set<Edge>& joins() const { return joins_; }

 private:
  void read(int buffer, int step) {
    for (std::size_t i = 0; i < plan_.hoisted.size(); ++i)
      if (plan_.hoisted[i].destination == buffer) hoisted_.insert({static_cast<int>(i), step});
    for (int writer : writers_[buffer]) data_.insert({writer, step});
  }

  void visit(const Step& step) {
    int number = number_++;
    if (step.sequences.empty()) {
      Touched buffers = touched(plan_, step);
      for (int buffer : buffers.reads) read(buffer, number);
      for (int buffer : buffers.writes) writers_[buffer].insert(number);
      return;
    }
    read(step.source, number);
    visit_bodies(step);
    if (step.kind != StepKind::loop) return;
    number_ = number + 1;  // once more, for what an iteration reads of the one before it
    visit_bodies(step);
    read(step.source, number);
  }

  void visit_bodies(const Step& step) {
    for (int body : step.sequences)
      for (const Step& inner : plan_.sequences[at(body)].steps) visit(inner);
  }

  const Plan& plan_;
  int number_ = 0;
  std::map<int, int> tails_;  // per stream
  // Per buffer. Only the states of loops and the results of branches have several, and a reader may get any of them.
  std::map<int, std::set<int>> writers_;
  std::set<Edge> data_;
  std::set<Edge> hoisted_;
  std::set<Edge> joins_;
};

// A quoted string of DOT. Lines end with `line_end`: \n centers them, \l puts them to the left.
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
    for (std::size_t i = 0; i < plan_.hoisted.size(); ++i)
      line(1, hoisted_name(i) + " [label=" +
                  quoted("copy " + bytes_text(plan_.buffers[at(plan_.hoisted[i].source)].bytes) + "\nif new") + ", " +
                  kCopyStyle + ", style=\"filled,dashed\"];");
    for (std::size_t i = 0; i < plan_.islands.size(); ++i) print(plan_.islands[i], i);
    Flow flow(plan_);
    // An edge back to an earlier step, of a loop, does not decide where that is drawn.
    for (const Edge& edge : flow.data()) print(edge, edge.first < edge.second ? "" : " [constraint=false]");
    for (const Edge& edge : flow.hoisted()) line(1, hoisted_name(at(edge.first)) + " -> " + name(edge.second) + ";");
    for (const Edge& edge : flow.joins()) print(edge, " [style=dashed]");
    for (const Edge& edge : entries_) print(edge, " [style=dotted]");
    return text_ + "}\n";
  }

 private:
  static constexpr const char* kCopyStyle = "fillcolor=white, fontsize=10, height=0.2, width=0.2";

  static std::string hoisted_name(std::size_t index) { return "hoisted" + std::to_string(index); }
  static std::string name(int number) { return "step" + std::to_string(number); }

  void line(int indent, const std::string& text) { text_ += std::string(at(indent) * 2, ' ') + text + "\n"; }

  void print(const Edge& edge, const char* attributes) {
    line(1, name(edge.first) + " -> " + name(edge.second) + attributes + ";");
  }

  void print(const Island& island, std::size_t index) {
    line(1, "subgraph cluster_island" + std::to_string(index) + " {");
    line(2, "label=" + quoted("island " + std::to_string(index) + ": " + island_text(island)) +
                (island.sunk ? ";" : "; color=red;"));
    for (int i = island.first; i < island.last; ++i) {
      const Step& step = plan_.sequences[0].steps[at(i)];
      print(step, step.stream, 2);
    }
    line(1, "}");
  }

  void print(const Step& step, int stream, int indent) {
    int number = number_++;
    std::string head = std::to_string(number) + " ", on = "\ns" + std::to_string(stream);
    if (step.kind == StepKind::call) {
      const PlanNode& node = plan_.nodes[at(step.node)];
      std::string label = head + std::string(node.op->name), where = to_string(node.where);
      if (std::string result = result_text(plan_, node); !result.empty()) label += "\n" + result;
      int device = device_of(plan_, step);
      if (device > 0) on += " of " + device_name(plan_, device);
      label += (node.on_host ? "\nhost" : on) + (where.empty() ? "" : ", " + where);
      declare(indent, number, label,
              node.on_host ? "fillcolor=orange"
              : device > 0 ? "fillcolor=palegreen"
                           : "fillcolor=lightblue");
    } else if (step.kind == StepKind::copy) {
      declare(indent, number, head + "copy " + bytes_text(plan_.buffers[at(step.source)].bytes), kCopyStyle);
    } else {
      declare(indent, number, head + name_of(step.kind) + on, "fillcolor=lightyellow, shape=diamond");
      print_bodies(step, number, stream, indent);
    }
  }

  void declare(int indent, int number, const std::string& label, const char* attributes) {
    line(indent, name(number) + " [label=" + quoted(label) + ", " + attributes + "];");
  }

  void print_bodies(const Step& step, int number, int stream, int indent) {
    for (std::size_t i = 0; i < step.sequences.size(); ++i) {
      const char* what = step.kind == StepKind::loop ? "body" : i == 0 ? "then" : "else";
      line(indent, "subgraph cluster_" + name(number) + "_" + what + " {");
      line(indent + 1, "label=" + quoted(what + (" of " + std::to_string(number))) + "; style=rounded;");
      const auto& steps = plan_.sequences[at(step.sequences[i])].steps;
      if (!steps.empty()) entries_.insert({number, number_});
      for (const Step& inner : steps) print(inner, stream, indent + 1);
      line(indent, "}");
    }
  }

  const Plan& plan_;
  std::string text_;
  std::set<Edge> entries_;  // from control steps into their bodies
  int number_ = 0;
};

}  // namespace

std::string Plan::explain_dot() const { return DotPrinter(*this).run(); }

}  // namespace graphsink
