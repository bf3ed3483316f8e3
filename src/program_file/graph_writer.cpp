#include "program_file/graph_writer.h"

#include <bit>
#include <vector>

#include "base/at.h"
#include "base/printable.h"
#include "program_file/json_fields.h"

namespace graphsink {
namespace {

// Different texts, by the numbers that stand for them.
class Texts {
 public:
  std::size_t number(std::string_view text) {
    const auto [entry, is_new] = numbers_.try_emplace(std::string(text), texts_.size());
    if (is_new) texts_.push_back(&entry->first);
    return entry->second;
  }
  void write(JsonWriter& json) const {
    json.begin_array();
    for (const std::string* text : texts_) json.value(*text);
    json.end_array();
  }

 private:
  std::map<std::string, std::size_t, std::less<>> numbers_;
  std::vector<const std::string*> texts_;
};

class FormWriter {
 public:
  FormWriter(const GraphData& graph, const OpNames& ops, const std::string& file, const Where& where)
      : graph_(graph), names_(ops), file_(file), where_(where) {}

  WrittenGraph write() {
    expect_complete();
    name_tensors();
    json_.begin_object();
    json_.member("format", kGraphFormat);
    list("nodes", graph_.nodes, [&](const Node& node) { write_node(node); });
    list("regions", graph_.regions, [&](const Region& region) { write_region(region); });
    list("variables", graph_.variables, [&](const VariableUse& use) { write_variable(use); });
    list("updates", graph_.updates, [&](const Update& update) { write_update(update); });
    list("records", graph_.records, [&](const NamedValue& record) { write_named(record); });
    list("stops", graph_.stops, [&](const NamedValue& stop) { write_named(stop); });
    list("outputs", graph_.outputs, [&](const NamedValue& output) { write_named(output); });
    list("compositions", graph_.compositions, [&](const Composition& composition) {
      json_.begin_object();
      json_.member("op", composition.op);
      json_.member("gradients", composition.gradients);
      json_.end_object();
    });
    list("numbers", graph_.numbers, [&](const auto& number) {
      json_.begin_object();
      json_.key("number");
      double value = std::bit_cast<double>(number.first.first);
      JsonFieldWriter(json_).real(value);
      json_.member("node", number.second.node);
      json_.end_object();
    });
    json_.key("ops");
    json_.begin_array();
    for (const FileOp* op : ops_) {
      json_.begin_array();
      json_.value(op->name_in_file());
      json_.value(op->version);
      json_.end_array();
    }
    json_.end_array();
    json_.key("files");
    files_.write(json_);
    json_.key("scopes");
    scopes_.write(json_);
    json_.end_object();
    written_.json = json_.take();
    return std::move(written_);
  }

 private:
  [[noreturn]] void refuse(const std::string& problem, const std::string& remedy) const {
    throw Error(file_, where_, problem, remedy);
  }

  void expect_utf8(const char* what, const std::string& name) const {
    if (!is_utf8(name))
      refuse(std::string(what) + ", \"" + shortened(name) + "\", is not UTF-8", "give names in UTF-8");
  }

  template <class Range, class F>
  void list(const char* name, const Range& range, const F& write) {
    json_.key(name);
    json_.begin_array();
    for (const auto& element : range) write(element);
    json_.end_array();
  }

  // A body whose function threw an exception belongs to no node.
  void expect_complete() const {
    if (graph_.current_region != 0)
      refuse(graph_.describe_body(graph_.current_region) + " is under construction", "write the graph behind it");
    std::vector<bool> has_node(graph_.regions.size());
    for (const Node& node : graph_.nodes)
      for (int body : node.bodies) has_node[at(body)] = true;
    for (std::size_t region = 1; region < has_node.size(); ++region)
      if (!has_node[region])
        refuse(graph_.describe_body(static_cast<int>(region)) + " was left by an exception",
               "build the graph anew, without what threw it");
  }

  void name_tensors() {
    std::size_t constants = 0;
    for (const VariableUse& use : graph_.variables) {
      const std::string& name = use.variable.name();
      std::string unique = name;
      for (int i = 2;
           written_.variables.contains(unique) || unique.starts_with(kConstantPrefix) || unique == "__metadata__"; ++i)
        unique = "variable " + name + " " + std::to_string(i);
      written_.variables.emplace(unique, use.variable);
      tensor_of_variable_.push_back(std::move(unique));
    }
    for (const Node& node : graph_.nodes) {
      if (node.op != &constant_op) continue;
      const Tensor* tensor = node.attrs.as<ConstantAttrs>().tensor.get();
      if (tensor_of_constant_.contains(tensor)) continue;
      std::string name = std::string(kConstantPrefix) + std::to_string(constants++);
      written_.constants.emplace(name, tensor);
      tensor_of_constant_.emplace(tensor, std::move(name));
    }
  }

  void value(ValueRef v) {
    if (v.output == 0) return json_.value(v.node);
    json_.begin_array();
    json_.value(v.node);
    json_.value(v.output);
    json_.end_array();
  }
  void values(const char* name, std::span<const ValueRef> values) {
    list(name, values, [&](ValueRef v) { value(v); });
  }
  void member(const char* name, ValueRef v) {
    json_.key(name);
    value(v);
  }

  // [file, line, scope], without the scope if there is none; nothing for no place.
  void place(const char* name, const Where& where) {
    const std::string_view file = where.file_name();
    if (file.empty() && where.line() == 0 && where.scope().empty()) return;
    json_.key(name);
    json_.begin_array();
    json_.value(files_.number(file));
    json_.value(where.line());
    if (!where.scope().empty()) json_.value(scopes_.number(where.scope()));
    json_.end_array();
  }

  const FileOp& entry_of(const OpDef& op, const Where& node) {
    const FileOp* entry = names_.find(op);
    if (entry != nullptr) return *entry;
    if (op.traits.agree != nullptr)
      refuse(
          "the op \"" + shortened(op.name) + "\"" + (to_string(node).empty() ? "" : " at " + to_string(node)) +
              " exchanges values with other ranks, and files have no ranks",
          "write the graph that one rank builds, with one_rank(), which has no collectives; or write none, and build "
          "the graph in each process");
    refuse("the op \"" + shortened(op.name) + "\"" + (to_string(node).empty() ? "" : " at " + to_string(node)) +
               " has no name in files",
           "list its OpDef in GraphFileOptions::ops; what external_op() made has none: make it an OpDef");
  }

  void member(const char* name, const FileOp& op) {
    const auto [known, is_new] = numbers_.try_emplace(&op, ops_.size());
    if (is_new) ops_.push_back(&op);
    json_.member(name, known->second);
  }

  template <class T>
  void form(T form) {
    json_.key("attrs");
    JsonFieldWriter io(json_);
    transfer_value(io, form);
  }

  void write_attrs(const FileOp& op, const Attrs& attrs, const Where& where) {
    if (op.attrs.write == nullptr) {
      if (attrs == Attrs()) return;
      refuse("the op \"" + std::string(op.name_in_file()) + "\" has attributes, and its entry in `ops` says none",
             "make the entry with file_op<Attributes>()");
    }
    json_.key("attrs");
    JsonFieldWriter io(json_);
    try {
      op.attrs.write(io, attrs);
    } catch (const Error& e) {
      throw Error(file_, where, "attributes of \"" + std::string(op.name_in_file()) + "\": " + e.problem(), e.remedy());
    }
  }

  void write_attrs_of(const FileOp& op, const Node& node) {
    const Attrs& attrs = node.attrs;
    if (const auto* input = attrs.get_if<InputAttrs>(); input && (&input_op == op.op || &feed_op == op.op)) {
      expect_utf8("the name of an input", input->name);
      InputForm to{input->name, input->dtype, {}, input->size_of, input->axis, input->is_result_size};
      for (const Dim& dim : input->dims) to.dims.push_back({dim.size, dim.is_open, dim.bucket});
      form(to);
    } else if (op.op == &constant_op) {
      form(ConstantForm{tensor_of_constant_.at(attrs.as<ConstantAttrs>().tensor.get())});
    } else if (op.op == &variable_op) {
      form(VariableForm{graph_.variable_index.at(attrs.as<VariableAttrs>().variable.data().get())});
    } else if (op.op == &parameter_op) {
      const ValueRef initial = attrs.as<ParameterAttrs>().initial;
      form(ParameterForm{initial.node, initial.output});
    } else {
      write_attrs(op, attrs, node.where);
    }
  }

  void write_node(const Node& node) {
    const FileOp& op = entry_of(*node.op, node.where);
    json_.begin_object();
    member("op", op);
    if (!node.inputs.empty()) values("in", node.inputs);
    list("out", node.outputs, [&](const TensorType& type) { json_.value(to_string(type)); });
    write_attrs_of(op, node);
    if (node.region != 0) json_.member("region", node.region);
    if (!node.bodies.empty()) list("bodies", node.bodies, [&](int body) { json_.value(body); });
    if (node.placement.kind == Placement::Kind::cpu) json_.member("on", "cpu");
    if (node.placement.kind == Placement::Kind::device) json_.member("on", node.placement.device);
    if (node.copy_of >= 0) json_.member("copy_of", node.copy_of);
    if (node.composition >= 0) json_.member("composition", node.composition);
    if (node.is_inside) json_.member("is_inside", true);
    place("at", node.where);
    json_.end_object();
  }

  void write_region(const Region& region) {
    json_.begin_object();
    json_.member("parent", region.parent);
    if (!region.parameters.empty()) values("parameters", region.parameters);
    if (!region.results.empty()) values("results", region.results);
    if (region.counter.now.node >= 0) {
      const ValueRef counter[] = {region.counter.first, region.counter.now, region.counter.next};
      values("counter", counter);
    }
    if (region.limit > 0) json_.member("limit", region.limit);
    if (region.runs_to_limit) json_.member("runs_to_limit", true);
    if (region.is_of_segments) json_.member("is_of_segments", true);
    if (!region.stacked.empty()) {
      list("stacked", region.stacked, [&](const Stacked& stacked) {
        json_.begin_object();
        member("value", stacked.value);
        member("place", stacked.place);
        json_.end_object();
      });
    }
    place("at", region.where);
    json_.end_object();
  }

  void write_variable(const VariableUse& use) {
    json_.begin_object();
    json_.member("name", use.variable.name());
    json_.member("tensor", tensor_of_variable_[at(static_cast<int>(&use - graph_.variables.data()))]);
    if (const Placement& on = use.variable.placement(); on.kind == Placement::Kind::device)
      json_.member("on", on.device);
    if (use.variable.data()->is_beside_another) json_.member("is_beside_another", true);
    if (use.assigned.node >= 0) {
      member("assigned", use.assigned);
      place("assigned_at", use.assigned_where);
    }
    json_.end_object();
  }

  void write_update(const Update& update) {
    const FileOp& op = entry_of(*update.op, Where());
    json_.begin_object();
    member("op", op);
    values("in", update.inputs);
    write_attrs(op, update.attrs, where_);
    list("variables", update.variables,
         [&](const Variable& variable) { json_.value(graph_.variable_index.at(variable.data().get())); });
    if (update.node >= 0) json_.member("node", update.node);
    json_.end_object();
  }

  void write_named(const NamedValue& named) {
    expect_utf8("the name of an output or a record", named.name);
    json_.begin_object();
    if (!named.name.empty()) json_.member("name", named.name);
    member("value", named.value);
    if (named.capacity > 0) json_.member("capacity", named.capacity);
    place("at", named.where);
    json_.end_object();
  }

  const GraphData& graph_;
  const OpNames& names_;
  const std::string& file_;
  const Where& where_;
  WrittenGraph written_;
  JsonWriter json_;
  std::vector<const FileOp*> ops_;  // those in use
  std::map<const FileOp*, std::size_t> numbers_;
  Texts files_, scopes_;
  std::vector<std::string> tensor_of_variable_;  // by number
  std::map<const Tensor*, std::string> tensor_of_constant_;
};

}  // namespace

WrittenGraph write_form(const GraphData& graph, const OpNames& ops, const std::string& file, const Where& where) {
  return FormWriter(graph, ops, file, where).write();
}

}  // namespace graphsink
