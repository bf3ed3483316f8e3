#include "graphsink/memory.h"
#include "passes/passes.h"

namespace graphsink {
namespace {

std::size_t at(int i) { return static_cast<std::size_t>(i); }

std::string padded(std::string text, std::size_t width) {
  text.append(text.size() < width ? width - text.size() : 1, ' ');
  return text;
}

std::string count_text(std::size_t n, const char* one) { return std::to_string(n) + " " + one + (n == 1 ? "" : "s"); }

class Printer {
 public:
  explicit Printer(const Plan& plan) : plan_(plan) {}

  std::string run() {
    header();
    text_ +=
        padded("  #", 6) + padded("op", 20) + padded("on", 10) + padded("result", 26) + padded("memory", 28) + "from\n";
    sequence(0, 0);
    for (const Reason& reason : plan_.reasons) print(reason);
    return std::move(text_);
  }

 private:
  void header() {
    std::size_t calls = 0, copies = 0;
    for (const Sequence& s : plan_.sequences)
      for (const Step& step : s.steps) ++(step.kind == StepKind::copy ? copies : calls);
    std::size_t sunk = 0;
    for (const Island& island : plan_.islands) sunk += island.sunk;
    text_ += "plan for " + to_string(plan_.target.id);
    if (plan_.target.id.kind == DeviceKind::cuda) text_ += " (" + plan_.target.name + ")";
    text_ += ": " + count_text(calls, "node") + ", ";
    if (copies) text_ += std::to_string(copies) + (copies == 1 ? " copy, " : " copies, ");
    text_ += count_text(at(plan_.streams), "stream") + "; ";
    text_ += sunk == 1 && plan_.islands.size() == 1 ? "sinks whole: 1 launch per step"
                                                    : "sinks in parts: " + count_text(sunk, "island");
    text_ += plan_.loop_over_steps ? ", or per many steps\n" : "\n";
    text_ += "arena " + bytes_text(plan_.arena_bytes) + " for " + bytes_text(plan_.value_bytes) + " of values";
    if (plan_.host_arena_bytes) text_ += ", " + bytes_text(plan_.host_arena_bytes) + " on the host";
    text_ += "\n";
  }

  std::string place(int buffer) const {
    if (buffer < 0) return "";
    const Buffer& b = plan_.buffers[at(buffer)];
    switch (b.storage) {
      case Storage::arena:
        return "arena+" + std::to_string(b.offset);
      case Storage::host_arena:
        return "host+" + std::to_string(b.offset);
      case Storage::variable:
        return "\"" + plan_.variables[at(b.index)].name() + "\"";
      case Storage::record_ring:
        return "records";
      case Storage::input:
        return "input";
      case Storage::constant:
      case Storage::host_constant:
        return "constant";
      default:
        return "step block";
    }
  }

  void line(int indent, const std::string& op, const std::string& on, const std::string& result,
            const std::string& memory, const Where& where) {
    std::string row = padded("  " + std::to_string(number_++), 6) + padded(std::string(at(indent) * 2, ' ') + op, 20) +
                      padded(on, 10) + padded(result, 26) + padded(memory, 28) + to_string(where);
    row.erase(row.find_last_not_of(' ') + 1);
    text_ += row + "\n";
  }

  std::string stream_text(const Step& step) const {
    std::string text = "s" + std::to_string(step.stream);
    for (std::size_t i = 0; i < step.after.size(); ++i) text += (i ? "," : "<") + std::to_string(step.after[i]);
    return text;
  }

  void call(const Step& step, int indent) {
    const PlanNode& node = plan_.nodes[at(step.node)];
    std::string result, memory;
    for (std::size_t i = at(node.inputs); i < node.operands.size(); ++i) {
      if (i > at(node.inputs) + 1) {
        result += ", ...";
        break;
      }
      bool is_ring = plan_.buffers[at(node.operands[i])].storage == Storage::record_ring;
      result += (i > at(node.inputs) ? ", " : "") +
                (is_ring ? count_text(plan_.records.size(), "record") : to_string(node.types[i]));
      memory += (i > at(node.inputs) ? ", " : "") + place(node.operands[i]);
    }
    std::size_t written = 0;
    for (int i = 0; i < node.inputs; ++i) written += access_of(*node.op, at(i), at(node.inputs)) == Access::write;
    if (written) {
      result = "commits " + count_text(written, "variable");
      memory.clear();
    }
    line(indent, std::string(node.op->name), node.on_host ? "host" : stream_text(step), result, memory, node.where);
  }

  void sequence(int index, int indent) {
    for (const Step& step : plan_.sequences[at(index)].steps) {
      switch (step.kind) {
        case StepKind::call:
          call(step, indent);
          break;
        case StepKind::copy:
          line(indent, "copy", stream_text(step), bytes_text(plan_.buffers[at(step.source)].bytes),
               place(step.source) + " -> " + place(step.destination), Where());
          break;
        default:
          line(indent, step.kind == StepKind::loop ? "while" : "if", stream_text(step), "", place(step.source),
               Where());
          for (std::size_t i = 0; i < step.sequences.size(); ++i) {
            if (i == 1) text_ += padded("", 6) + std::string(at(indent) * 2, ' ') + "else\n";
            sequence(step.sequences[i], indent + 1);
          }
      }
    }
  }

  void print(const Reason& reason) {
    text_ += "note: " + reason.what;
    if (std::string where = to_string(reason.where); !where.empty()) text_ += " (" + where + ")";
    text_ += ": " + reason.why + "; cost: " + reason.cost + "; remedy: " + reason.remedy + "\n";
  }

  const Plan& plan_;
  std::string text_;
  int number_ = 0;
};

}  // namespace

std::string Plan::explain() const { return Printer(*this).run(); }

}  // namespace graphsink
