#include "ranks/updates.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include "base/at.h"
#include "base/number_text.h"
#include "ranks/collective.h"

namespace graphsink {
namespace {

// Writes attributes as "axis 1, keep_axes true".
class AttributeText final : public FieldVisitor {
 public:
  explicit AttributeText(bool is_random) : is_random_(is_random) {}

  void name(std::string_view name) override {
    // From where a random op draws may differ.
    if (depth_ == 0) skips_ = is_random_ && (name == "part" || name == "node");
    if (!skips_) text_ += (text_.empty() ? "" : ", ") + std::string(name);
  }
  void value(bool is) override { add(is ? "true" : "false"); }
  void value(std::int64_t number) override { add(std::to_string(number)); }
  void value(std::uint64_t number) override { add(std::to_string(number)); }
  void value(double number) override { add(number_text(number)); }
  void value(std::string_view text) override { add(text); }
  void no_value() override { add("none"); }
  void begin_struct() override {
    add("{");
    ++depth_;
  }
  void end_struct() override {
    --depth_;
    add("}");
  }
  std::size_t begin_list(std::size_t size) override {
    add("[");
    return size;
  }
  void end_list(std::size_t) override { add("]"); }

  std::string take() { return std::move(text_); }

 private:
  void add(std::string_view value) {
    if (!skips_) text_ += " " + std::string(value);
  }

  bool is_random_, skips_ = false;  // whether the field that is visited, and all in it, is left out
  int depth_ = 0;                   // structs around it
  std::string text_;
};

std::string attributes_of(const Node& node) {
  AttributeText text(node.op->traits.random);
  node.attrs.visit_fields(text);
  return text.take();
}

// Lines end where a tab or a new line is.
std::string one_line(std::string text) {
  std::replace_if(
      text.begin(), text.end(), [](char c) { return c == '\t' || c == '\n'; }, ' ');
  return text;
}

// Examples of open dimensions may differ, as the sizes do for which they stand.
std::string type_text(const TensorType& type) {
  std::string text(to_string(type.dtype));
  for (int i = 0; i < type.shape.rank(); ++i)
    text += (i == 0 ? "[" : ", ") + (type.shape.is_open(i) ? "open" : std::to_string(type.shape[i]));
  return text + (type.shape.rank() == 0 ? "[]" : "]");
}

// Finds what depends on what. A loop or branch counts as one node, which stands for all nodes of its bodies.
class Dependence {
 public:
  Dependence(const GraphData& graph, const RankGroup& group)
      : graph_(graph), group_(group), wholes_(graph.nodes.size()), operands_(graph.nodes.size()) {
    for (const auto& [number, v] : graph.numbers) numbers_.emplace(v.node, std::bit_cast<double>(number.first));
    find_wholes();
    find_operands();
    find_writers();
    find_averages();
    find_equal();
  }

  Updates updates() const {
    const std::vector<bool> counts = all_that_gradients_need();
    Lines lines;
    std::string ops = text_of(counts, lines);
    return {std::move(ops), equal_variables(counts, lines)};
  }

 private:
  using Lines = std::map<int, std::size_t>;  // by node: the number of its line

  const Node& node(int id) const { return graph_.nodes[at(id)]; }
  const CollectiveAttrs* collective(int id) const {
    return node(id).op->traits.agree != nullptr ? node(id).attrs.get_if<CollectiveAttrs>() : nullptr;
  }
  // The number of the Variable that the node reads; -1: it reads none.
  int variable_of(int id) const {
    const auto* attrs = node(id).attrs.get_if<VariableAttrs>();
    return attrs == nullptr ? -1 : graph_.variable_index.at(attrs->variable.data().get());
  }

  // The outermost loop or branch around each node, or the node itself.
  void find_wholes() {
    std::vector<int> owners(graph_.regions.size(), -1);
    for (std::size_t id = 0; id < graph_.nodes.size(); ++id)
      for (const int body : graph_.nodes[id].bodies) owners[at(body)] = static_cast<int>(id);
    for (std::size_t id = 0; id < graph_.nodes.size(); ++id) {
      int whole = static_cast<int>(id);
      for (int owner = owners[at(node(whole).region)]; owner >= 0; owner = owners[at(node(whole).region)])
        whole = owner;
      wholes_[id] = whole;
    }
  }
  void add_operand(int whole, ValueRef v) {
    if (v.node >= 0 && wholes_[at(v.node)] != whole) operands_[at(whole)].push_back(wholes_[at(v.node)]);
  }
  void find_operands() {
    for (std::size_t id = 0; id < graph_.nodes.size(); ++id) {
      const Node& node = graph_.nodes[id];
      for (const ValueRef v : node.inputs) add_operand(wholes_[id], v);
      for (const int body : node.bodies) {
        for (const ValueRef v : graph_.regions[at(body)].results) add_operand(wholes_[id], v);
        for (const Stacked& stacked : graph_.regions[at(body)].stacked) add_operand(wholes_[id], stacked.value);
      }
    }
  }
  // The nodes whose results a step writes to a Variable, or which write it themselves.
  void find_writers() {
    writers_.resize(graph_.variables.size());
    for (std::size_t i = 0; i < graph_.variables.size(); ++i)
      if (graph_.variables[i].is_assigned()) writers_[i].push_back(wholes_[at(graph_.variables[i].assigned.node)]);
    for (std::size_t id = 0; id < graph_.nodes.size(); ++id) {
      const Node& node = graph_.nodes[id];
      for (std::size_t k = 0; k < node.inputs.size(); ++k) {
        if (access_of(*node.op, k, node.inputs.size()) != Access::write) continue;
        const int variable = variable_of(node.inputs[k].node);
        if (variable >= 0) writers_[at(variable)].push_back(wholes_[id]);
      }
    }
  }
  void find_averages() {
    averages_.resize(graph_.nodes.size());
    follows_.resize(graph_.nodes.size());
    for (std::size_t id = 0; id < graph_.nodes.size(); ++id) {
      const CollectiveAttrs* attrs = collective(static_cast<int>(id));
      if (attrs != nullptr && attrs->same_program && attrs->group.get() == &group_) averages_[at(wholes_[id])] = true;
    }
    for (std::size_t id = 0; id < graph_.nodes.size(); ++id)
      follows_[id] = averages_[id] || std::any_of(operands_[id].begin(), operands_[id].end(),
                                                  [&](int operand) { return follows_[at(operand)]; });
  }

  // Whether a node has equal results on all ranks, if its operands and the Variables are equal.
  bool keeps_equal(int id) const {
    const Node& n = node(id);
    if (n.attrs.get_if<InputAttrs>() != nullptr || n.op->traits.random || n.op->traits.host_effect) return false;
    const auto* constant = n.attrs.get_if<ConstantAttrs>();
    return constant == nullptr || constant->tensor->shape().size() <= 1;
  }
  // Whether a node has equal results on all ranks, whatever its operands are.
  bool makes_equal(int id) const {
    const CollectiveAttrs* attrs = collective(id);
    if (attrs == nullptr || attrs->group.get() != &group_) return false;
    const std::string_view name = node(id).op->name;
    return name == "all_reduce" || name == "all_gather" || name == "broadcast";
  }
  // All Variables count as equal, until what is written to one is not.
  void find_equal() {
    std::vector<bool> keeps(graph_.nodes.size(), true);
    for (std::size_t id = 0; id < graph_.nodes.size(); ++id)
      if (!keeps_equal(static_cast<int>(id))) keeps[at(wholes_[id])] = false;
    equal_variable_.assign(graph_.variables.size(), true);
    std::vector<bool> equal(graph_.nodes.size());
    for (bool changes = true; changes;) {
      for (int id = 0; id < static_cast<int>(equal.size()); ++id) {
        const int variable = variable_of(id);
        const auto& operands = operands_[at(id)];
        equal[at(id)] = variable >= 0
                            ? equal_variable_[at(variable)]
                            : makes_equal(id) || (keeps[at(id)] && std::all_of(operands.begin(), operands.end(),
                                                                               [&](int x) { return equal[at(x)]; }));
      }
      changes = false;
      for (std::size_t i = 0; i < writers_.size(); ++i) {
        const auto& writers = writers_[i];
        if (!equal_variable_[i] || std::all_of(writers.begin(), writers.end(), [&](int x) { return equal[at(x)]; }))
          continue;
        equal_variable_[i] = false;
        changes = true;
      }
    }
  }

  // Marks these nodes, and those on which they depend, also by what earlier steps wrote. `visit` returns false for a
  // node whose operands do not count.
  template <class Visit>
  std::vector<bool> reach(std::vector<int> from, const Visit& visit) const {
    std::vector<bool> reached(graph_.nodes.size());
    while (!from.empty()) {
      const int id = from.back();
      from.pop_back();
      if (reached[at(id)] || !visit(id)) continue;
      reached[at(id)] = true;
      from.insert(from.end(), operands_[at(id)].begin(), operands_[at(id)].end());
      const int variable = variable_of(id);
      if (variable >= 0) from.insert(from.end(), writers_[at(variable)].begin(), writers_[at(variable)].end());
    }
    return reached;
  }

  std::vector<bool> all_that_gradients_need() const {
    std::vector<int> averages;
    for (std::size_t id = 0; id < averages_.size(); ++id)
      if (averages_[id]) averages.push_back(static_cast<int>(id));
    return reach(averages, [](int) { return true; });
  }

  // Those that are written behind the averages, and those that such updates read.
  std::vector<Variable> equal_variables(const std::vector<bool>& counts, const Lines& lines) const {
    std::vector<int> from;
    for (std::size_t id = 0; id < graph_.nodes.size(); ++id) {
      const int variable = counts[id] ? variable_of(static_cast<int>(id)) : -1;
      if (variable < 0 || !equal_variable_[at(variable)]) continue;
      for (const int writer : writers_[at(variable)])
        if (follows_[at(writer)]) from.push_back(static_cast<int>(id));
    }
    const std::vector<bool> reached = reach(std::move(from), [&](int id) {
      const int variable = variable_of(id);
      return !averages_[at(id)] && (variable < 0 || equal_variable_[at(variable)]);
    });
    std::vector<Variable> result;
    for (const int variable : in_order_of(lines))
      if (reached[at(graph_.variables[at(variable)].read.node)])
        result.push_back(graph_.variables[at(variable)].variable);
    return result;
  }

  // A number, a Variable or the state of random numbers is one node, made where the graph uses it first, and that may
  // be for what one rank alone computes. So its line stands where a node that counts uses it first.
  bool is_source(int id) const {
    const Attrs& attrs = node(id).attrs;
    return attrs.get_if<ConstantAttrs>() != nullptr || attrs.get_if<VariableAttrs>() != nullptr ||
           id == graph_.random_state.node;
  }
  void add_line(int id, Lines& lines, std::string& text) const {
    if (lines.contains(id)) return;
    const auto add_sources = [&](const auto& values) {
      for (const ValueRef v : values)
        if (v.node >= 0 && is_source(v.node)) add_line(v.node, lines, text);
    };
    add_sources(node(id).inputs);
    for (const int body : node(id).bodies) add_sources(graph_.regions[at(body)].results);
    text += line_of(id, lines);
    lines.emplace(id, lines.size());
  }

  void add_assignment(int variable, Lines& lines, std::string& text) const {
    const VariableUse& use = graph_.variables[at(variable)];
    if (!use.is_assigned()) return;
    add_line(use.assigned.node, lines, text);
    text += "assign " + name_of(use.assigned, lines) + " to " + name_of(use.read, lines) + "\t" +
            one_line(to_string(node(use.assigned.node).where)) + "\n";
  }

  // `lines` become those of the text.
  std::string text_of(const std::vector<bool>& counts, Lines& lines) const {
    std::string text;
    for (int id = 0; id < static_cast<int>(graph_.nodes.size()); ++id)
      if (counts[at(wholes_[at(id)])] && !is_source(id)) add_line(id, lines, text);
    // An assigned value may be a further Variable, which has no line yet.
    std::set<int> seen;
    for (bool has_more = true; std::exchange(has_more, false);) {
      for (const int variable : in_order_of(lines)) {
        if (!seen.insert(variable).second) continue;
        has_more = true;
        add_assignment(variable, lines, text);
      }
    }
    return text;
  }
  // The Variables that have a line, in the order of these.
  std::vector<int> in_order_of(const Lines& lines) const {
    std::vector<std::pair<std::size_t, int>> found;
    for (const auto& [id, line] : lines)
      if (const int variable = variable_of(id); variable >= 0) found.emplace_back(line, variable);
    std::sort(found.begin(), found.end());
    std::vector<int> result;
    for (const auto& [line, variable] : found) result.push_back(variable);
    return result;
  }
  static std::string name_of(ValueRef v, const Lines& lines) {
    return std::to_string(lines.at(v.node)) + (v.output > 0 ? "." + std::to_string(v.output) : "");
  }
  // "concat (axis 1) of 3 5: f32[4, 16]", and the place. Operands are named by the numbers of their lines.
  std::string line_of(int id, const Lines& lines) const {
    const Node& n = node(id);
    std::string text(n.op->name);
    if (const std::string attributes = attributes_of(n); !attributes.empty()) text += " (" + attributes + ")";
    if (const auto number = numbers_.find(id); number != numbers_.end()) text += " " + number_text(number->second);
    for (std::size_t i = 0; i < n.inputs.size(); ++i) text += (i == 0 ? " of " : " ") + name_of(n.inputs[i], lines);
    for (const int body : n.bodies) {
      text += ", a body gives";
      for (const ValueRef v : graph_.regions[at(body)].results) text += " " + name_of(v, lines);
    }
    for (std::size_t i = 0; i < n.outputs.size(); ++i) text += (i == 0 ? ": " : " ") + type_text(n.outputs[i]);
    const std::string part = n.composition < 0 ? "" : graph_.name_of(n) + " at ";
    return one_line(text) + "\t" + one_line(part + to_string(n.where)) + "\n";
  }

  const GraphData& graph_;
  const RankGroup& group_;
  std::map<int, double> numbers_;           // by node: constants that are numbers
  std::vector<int> wholes_;                 // by node
  std::vector<std::vector<int>> operands_;  // by node, those that stand for others: the same
  std::vector<std::vector<int>> writers_;   // by Variable
  std::vector<bool> averages_;              // by node: it averages gradients
  std::vector<bool> follows_;               // by node: it averages gradients, or depends on an average
  std::vector<bool> equal_variable_;        // by Variable
};

}  // namespace

Updates updates_of(const GraphData& graph, const RankGroup& group) { return Dependence(graph, group).updates(); }

}  // namespace graphsink
