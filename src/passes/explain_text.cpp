#include "base/at.h"
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
    for (const HoistedCopy& copy : plan_.hoisted) print(copy);
    for (std::size_t i = 0; i < plan_.islands.size(); ++i) {
      const Island& island = plan_.islands[i];
      if (plan_.islands.size() > 1) text_ += "  island " + std::to_string(i) + ": " + island_text(island) + "\n";
      for (int k = island.first; k < island.last; ++k) {
        const Step& step = plan_.sequences[0].steps[at(k)];
        print(step, step.stream, 0);
      }
    }
    for (const auto* reasons : {&plan_.reasons, &facts_.reasons})
      for (const Reason& reason : *reasons) text_ += "note: " + reason_text(reason) + "\n";
    return std::move(text_);
  }

 private:
  void line(int indent, const std::string& op, const std::string& on, const std::string& result,
            const std::string& memory, const Where& where) {
    row(std::to_string(number_++), indent, op, on, result, memory, where);
  }

  void row(const std::string& number, int indent, const std::string& op, const std::string& on,
           const std::string& result, const std::string& memory, const Where& where) {
    std::string row = padded("  " + number, 6) + padded(std::string(at(indent) * 2, ' ') + op, 20) +
                      padded(on, on_width_) + padded(result, 26) + padded(memory, 28) + to_string(where);
    row.erase(row.find_last_not_of(' ') + 1);
    text_ += row + "\n";
  }

  static std::string stream_text(const Step& step, int stream) {
    std::string text = "s" + std::to_string(stream);
    for (std::size_t i = 0; i < step.after.size(); ++i) text += (i ? "," : "<") + std::to_string(step.after[i]);
    return text;
  }

  std::string result_memory(const PlanNode& node) const {
    std::string text;
    for (std::size_t i = at(node.inputs); i < node.operands.size() && i < at(node.inputs) + 2; ++i)
      text += (i > at(node.inputs) ? ", " : "") + memory_text(plan_, node.operands[i]);
    return text;
  }

  void print(const HoistedCopy& copy) {
    row("-", 0, "copy", "if new", bytes_text(plan_.buffers[at(copy.source)].bytes),
        memory_text(plan_, copy.source) + " -> " + memory_text(plan_, copy.destination), Where());
  }

  void print(const Step& step, int stream, int indent) {
    std::string on = stream_text(step, stream);
    if (int device = device_of(plan_, step); device > 0) on = device_name(plan_, device) + " " + on;
    if (step.kind == StepKind::call) {
      const PlanNode& node = plan_.nodes[at(step.node)];
      line(indent, std::string(node.op->name), node.on_host ? "host" : on, result_text(plan_, node),
           result_memory(node), node.where);
      return;
    }
    if (step.kind == StepKind::copy) {
      line(indent, "copy", on, bytes_text(plan_.buffers[at(step.source)].bytes),
           memory_text(plan_, step.source) + " -> " + memory_text(plan_, step.destination), Where());
      return;
    }
    line(indent, name_of(step.kind), on, "", memory_text(plan_, step.source), Where());
    for (std::size_t i = 0; i < step.sequences.size(); ++i) {
      if (i == 1) text_ += padded("", 6) + std::string(at(indent) * 2, ' ') + "else\n";
      for (const Step& inner : plan_.sequences[at(step.sequences[i])].steps) print(inner, stream, indent + 1);
    }
  }

  const Plan& plan_;
  const PlanFacts& facts_;
  std::string text_;
  std::size_t on_width_;
  int number_ = 0;
};

}  // namespace

std::string Plan::explain(const PlanFacts& facts) const { return Printer(*this, facts).run(); }

}  // namespace graphsink
