#include "program_file/graph_reader.h"

#include <bit>
#include <utility>

#include "base/at.h"
#include "base/convert.h"
#include "base/kept_text.h"
#include "base/printable.h"
#include "graphsink/control.h"
#include "kernels/movement/nonzero.h"

namespace graphsink {
namespace {

std::vector<const std::string*> texts_of(const JsonField& list) {
  std::vector<const std::string*> texts;
  for (std::size_t i = 0; i < list.size(); ++i) texts.push_back(kept_text(list[i].text()));
  return texts;
}

constexpr std::int64_t kMostInt = std::numeric_limits<int>::max();

}  // namespace

GraphReader::GraphReader(const JsonField& form, const OpNames& ops, Checkpoint& checkpoint)
    : form_(form), names_(ops), checkpoint_(checkpoint) {}

std::shared_ptr<GraphData> GraphReader::read() {
  read_tables();
  const JsonField nodes = form_.member("nodes");
  if (nodes.size() > static_cast<std::size_t>(kMostInt)) nodes.refuse("has more nodes than a graph may have");
  read_variables();
  read_bodies(nodes);
  for (std::size_t i = 0; i < nodes.size(); ++i) read_node(nodes[i]);
  graph_->current_region = 0;
  if (graph_->variables.size() < variables_.size())
    form_.member("variables")[graph_->variables.size()].refuse("no node reads this Variable");
  read_results();
  read_numbers();
  return graph_;
}

void GraphReader::read_tables() {
  form_.expect_members({"format", "nodes", "regions", "variables", "updates", "records", "stops", "outputs", "numbers",
                        "compositions", "ops", "files", "scopes"});
  const JsonField format = form_.member("format");
  if (const std::int64_t version = format.integer(1, kMostInt); version > kGraphFormat) {
    format.refuse(
        "is version " + std::to_string(version) + ", and this library reads up to " + std::to_string(kGraphFormat),
        "load it with the version of the library that wrote it, or a newer one");
  }
  files_ = texts_of(form_.member("files"));
  scopes_ = texts_of(form_.member("scopes"));
  const JsonField ops = form_.member("ops");
  for (std::size_t i = 0; i < ops.size(); ++i) read_op(ops[i]);
  const JsonField compositions = form_.member("compositions");
  for (std::size_t i = 0; i < compositions.size(); ++i) {
    const JsonField composition = compositions[i];
    composition.expect_members({"op", "gradients"});
    constexpr int kMostGradients = 64;  // derivatives of derivatives; names of nodes are as long
    graph_->add_composition({*kept_text(composition.member("op").text()),
                             static_cast<int>(composition.member("gradients").integer(0, kMostGradients))});
  }
}

void GraphReader::read_op(const JsonField& field) {
  if (field.size() != 2) field.refuse("expected a name and a version");
  const std::string& name = field[0].text();
  const std::int64_t version = field[1].integer(1, kMostInt);
  ops_.push_back(names_.find(name, version));
  if (ops_.back() != nullptr) return;
  const std::int64_t newest = names_.newest(name);
  if (newest == 0) {
    field.refuse("the op " + in_quotes(name) + " is not known",
                 "list its OpDef in GraphFileOptions::ops, under this name");
  }
  field.refuse("the op " + in_quotes(name) + " has version " + std::to_string(version) +
                   ", and the newest that is known is " + std::to_string(newest),
               "load the file with a version of the library, or of the op in `ops`, that knows it");
}

void GraphReader::read_variables() {
  const JsonField list = form_.member("variables");
  for (std::size_t i = 0; i < list.size(); ++i) {
    const JsonField field = list[i];
    field.expect_members({"name", "tensor", "on", "is_beside_another", "assigned", "assigned_at"});
    const JsonField name = field.member("tensor");
    const auto found = checkpoint_.tensors.find(name.text());
    // Each has one of its own, so that they take no more memory than the file.
    if (found == checkpoint_.tensors.end())
      name.refuse("the file has no tensor " + in_quotes(name.text()) + ", or another Variable has it");
    const Placement on = placement_of(field);
    if (on == on_cpu) field.member("on").refuse("expected the number of a device: Variables live on devices");
    variables_.emplace_back(field.member("name").text(), std::move(found->second), on, Where());
    const std::optional<JsonField> is_beside = field.find("is_beside_another");
    variables_.back().data()->is_beside_another = is_beside && is_beside->flag();
    checkpoint_.tensors.erase(found);
  }
}

// Each body belongs to one node, which comes behind all of its nodes.
void GraphReader::read_bodies(const JsonField& nodes) {
  regions_ = form_.member("regions");
  const std::size_t count = regions_->size();
  if (count == 0) regions_->refuse("has no region for the step");
  owners_.assign(count, nodes.size());
  std::vector<int> depths(count, 0);
  for (std::size_t i = 0; i < count; ++i) {
    const JsonField field = (*regions_)[i];
    field.expect_members(
        {"parent", "parameters", "results", "counter", "limit", "runs_to_limit", "is_of_segments", "stacked", "at"});
    const JsonField parent = field.member("parent");
    graph_->regions.resize(i + 1);  // not all at once: a region takes much more memory than "0," in the file
    graph_->regions[i].parent = i == 0 ? static_cast<int>(parent.integer(-1, -1)) : parent.index(i);
    graph_->regions[i].where = place_of(field);
    if (i > 0) depths[i] = depths[at(graph_->regions[i].parent)] + 1;
    if (depths[i] > kMaxNestedBodies)
      field.refuse("is deeper in bodies than " + std::to_string(kMaxNestedBodies) + ", which is the most");
  }
  for (std::size_t id = 0; id < nodes.size(); ++id) {
    const std::optional<JsonField> bodies = nodes[id].find("bodies");
    for (std::size_t k = 0; bodies && k < bodies->size(); ++k) {
      const JsonField field = (*bodies)[k];
      const int body = field.index(count);
      if (body == 0 || owners_[at(body)] != nodes.size()) field.refuse("is the body of another node, or the step");
      owners_[at(body)] = id;
      region(body).op = op_of(nodes[id]).op;
    }
  }
  for (std::size_t i = 1; i < count; ++i)
    if (owners_[i] == nodes.size()) (*regions_)[i].refuse("is the body of no node");
}

const FileOp& GraphReader::op_of(const JsonField& field) const {
  return *ops_[at(field.member("op").index(ops_.size()))];
}

Attrs GraphReader::attrs_of(const JsonField& field, const FileOp& op) const {
  if (op.attrs.read == nullptr) {
    if (field.find("attrs")) field.member("attrs").refuse("the op " + in_quotes(op.name_in_file()) + " has none");
    return {};
  }
  const JsonField attrs = field.member("attrs");
  JsonFieldReader io(attrs);
  return attrs.guard([&] { return op.attrs.read(io); });
}

Placement GraphReader::placement_of(const JsonField& field) const {
  const std::optional<JsonField> on = field.find("on");
  if (!on) return {};
  if (on->is_integer()) return on_device(static_cast<int>(on->integer(0, kMostInt)));
  if (on->text() != "cpu") on->refuse("expected \"cpu\" or the number of a device, seen " + in_quotes(on->text()));
  return on_cpu;
}

Where GraphReader::place_of(const JsonField& field, std::string_view name) const {
  const std::optional<JsonField> at = field.find(name);
  if (!at) return {};
  if (at->size() != 2 && at->size() != 3) at->refuse("expected a file, a line and perhaps a scope");
  const std::string* file = files_[graphsink::at((*at)[0].index(files_.size()))];
  const std::string* scope = at->size() == 3 ? scopes_[graphsink::at((*at)[2].index(scopes_.size()))] : nullptr;
  const std::int64_t line = (*at)[1].integer(0, std::numeric_limits<std::uint32_t>::max());
  return {file->c_str(), static_cast<std::uint32_t>(line), scope};
}

ValueRef GraphReader::value_of(const JsonField& field, int region) const {
  const ValueRef v = value_or_size_of(field, region);
  if (is_size_of_result(v))
    field.refuse("node " + std::to_string(v.node) + " is the size of a result, and has no data");
  return v;
}

bool GraphReader::is_size_of_result(ValueRef v) const {
  const Node& node = graph_->nodes[at(v.node)];
  return node.op == &input_op && node.attrs.as<InputAttrs>().is_result_size;
}

ValueRef GraphReader::value_or_size_of(const JsonField& field, int region) const {
  if (field.is_list() && field.size() != 2) field.refuse("expected the number of a node, and of its output");
  const JsonField node = field.is_list() ? field[0] : field;
  ValueRef v{node.index(graph_->nodes.size()), 0};
  const std::vector<TensorType>& outputs = graph_->nodes[at(v.node)].outputs;
  if (field.is_list()) v.output = field[1].index(outputs.size());
  if (at(v.output) >= outputs.size()) field.refuse("node " + std::to_string(v.node) + " has no outputs");
  if (!graph_->is_within(region, graph_->nodes[at(v.node)].region))
    field.refuse("node " + std::to_string(v.node) + " is in a body, and has no value outside of it");
  return v;
}

std::vector<ValueRef> GraphReader::values_of(const JsonField& field, std::string_view name, int region) const {
  std::vector<ValueRef> values;
  const std::optional<JsonField> list = field.find(name);
  for (std::size_t i = 0; list && i < list->size(); ++i) values.push_back(value_of((*list)[i], region));
  return values;
}

void GraphReader::read_node(const JsonField& field) {
  static const std::set<std::string, std::less<>> kMembers{
      "op", "in", "out", "attrs", "region", "bodies", "on", "copy_of", "composition", "is_inside", "at"};
  field.expect_members(kMembers);
  const std::size_t id = graph_->nodes.size();
  int region = 0;
  if (const std::optional<JsonField> number = field.find("region")) {
    region = number->index(graph_->regions.size());
    if (owners_[at(region)] <= id) number->refuse("ends before this node");
  }
  graph_->current_region = region;
  const FileOp& op = op_of(field);
  const Where where = place_of(field);
  if (!is_branch(*op.op) && op.op != &while_op && field.find("bodies")) field.refuse("has bodies, and its op has none");
  if (is_source(*op.op)) {
    read_source(field, op, where);
    if (graph_->nodes.back().region != region) field.refuse("is a source, which is in no body");
  } else {
    Node node;
    node.op = op.op;
    node.where = where;
    node.placement = placement_of(field);
    node.attrs = attrs_of(field, op);
    const auto* found = op.op == &nonzero_op ? node.attrs.get_if<NonzeroAttrs>() : nullptr;
    if (found != nullptr && found->most < 0) {
      const JsonField in = field.member("in");
      if (in.size() == 2) node.inputs = {value_of(in[0], region), value_or_size_of(in[1], region)};
      expect_size_of_result(field, node);
    } else {
      node.inputs = values_of(field, "in", region);
    }
    if (is_branch(*op.op)) {
      read_branch(field, std::move(node));
    } else if (op.op == &while_op) {
      read_loop(field, std::move(node));
    } else {
      if (node.inputs.empty()) field.refuse("has no operands");
      const std::size_t outputs = field.member("out").size();
      field.guard([&] { infer_node(*graph_, node, outputs); });
      graph_->add_node(std::move(node));
    }
  }
  read_remarks(field, graph_->nodes[id]);
  expect_same_outputs(field, graph_->nodes[id]);
}

// The program gives the input the size that a step finds, so that nothing else may have it. Gradients of branches have
// copies of the node, which find the same.
void GraphReader::expect_size_of_result(const JsonField& field, const Node& node) {
  const JsonField in = field.member("in");
  if (node.inputs.size() != 2) in.refuse("expected a value and the size of the result");
  const int size = node.inputs[1].node;
  if (!is_size_of_result(node.inputs[1])) in[1].refuse("is no input that stands for the size of a result");
  const Bucket& bucket = graph_->nodes[at(size)].attrs.as<InputAttrs>().dims[0].bucket;
  if (bucket != node.attrs.as<NonzeroAttrs>().bucket) in[1].refuse("has another bucket than the result");
  const auto [known, is_first] = sized_.emplace(size, static_cast<int>(graph_->nodes.size()));
  if (is_first) return;
  const std::optional<JsonField> copy_of = field.find("copy_of");
  if (!copy_of || copy_of->index(graph_->nodes.size()) != known->second) in[1].refuse("is the size of another result");
}

void GraphReader::read_remarks(const JsonField& field, Node& node) {
  const std::size_t id = graph_->nodes.size() - 1;
  if (const auto copy_of = field.find("copy_of")) node.copy_of = copy_of->index(id);
  if (const auto composition = field.find("composition")) {
    node.composition = composition->index(graph_->compositions.size());
    if (const auto is_inside = field.find("is_inside")) node.is_inside = is_inside->flag();
  } else if (field.find("is_inside")) {
    field.refuse("is inside of no composition");
  }
}

void GraphReader::expect_same_outputs(const JsonField& field, const Node& node) const {
  const JsonField out = field.member("out");
  bool is_same = out.size() == node.outputs.size();
  for (std::size_t i = 0; is_same && i < out.size(); ++i) is_same = out[i].text() == to_string(node.outputs[i]);
  if (is_same) return;
  constexpr std::size_t kMostListed = 200;  // bytes of the text
  std::string made;
  for (std::size_t i = 0; i < node.outputs.size() && made.size() <= kMostListed; ++i)
    made += (made.empty() ? "" : ", ") + to_string(node.outputs[i]);
  out.refuse("the op " + in_quotes(node.op->name) + " makes " +
             (made.empty() ? "nothing" : shortened(made, kMostListed)));
}

void GraphReader::read_results() {
  Graph graph(graph_);
  const JsonField updates = form_.member("updates");
  for (std::size_t i = 0; i < updates.size(); ++i) read_update(updates[i]);
  const JsonField variables = form_.member("variables");
  for (std::size_t i = 0; i < variables.size(); ++i) {
    const std::optional<JsonField> assigned = variables[i].find("assigned");
    if (!assigned) continue;
    const Value value = graph_->value(value_of(*assigned, 0));
    assigned->guard([&] { assign(variables_[i], Arg(value, place_of(variables[i], "assigned_at"))); });
  }
  const auto each = [&](const char* list, const auto& add) {
    const JsonField named = form_.member(list);
    for (std::size_t i = 0; i < named.size(); ++i) {
      const JsonField field = named[i];
      field.expect_members({"name", "value", "capacity", "at"});
      const std::string name = field.find("name") ? field.member("name").text() : "";
      const Arg value(graph_->value(value_of(field.member("value"), 0)), place_of(field));
      field.guard([&] { add(field, name, value); });
    }
  };
  each("records", [&](const JsonField& field, const std::string& name, const Arg& value) {
    const auto capacity = field.find("capacity");
    graph.record(name, value, {capacity ? capacity->integer(1, kMaxRecordCapacity) : 0});
  });
  each("stops", [&](const JsonField&, const std::string&, const Arg& value) { graph.stop_when(value); });
  each("outputs", [&](const JsonField&, const std::string& name, const Arg& value) { graph.output(name, value); });
}

// Constants that ops made of numbers, and that other ops with the same numbers share.
void GraphReader::read_numbers() {
  const JsonField numbers = form_.member("numbers");
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    const JsonField field = numbers[i];
    field.expect_members({"number", "node"});
    const double number = field.member("number").real();
    const JsonField node = field.member("node");
    const ValueRef v = value_of(node, 0);
    const TensorType& type = graph_->type(v);
    bool fits = graph_->nodes[at(v.node)].op == &constant_op && type.shape.rank() == 0 && holds(type.dtype, number);
    fits = fits && graph_->nodes[at(v.node)].attrs ==
                       Attrs(ConstantAttrs{std::make_shared<const Tensor>(Tensor::full(type.dtype, {}, number))});
    if (!fits) node.refuse("is not the constant that is made of the number");
    graph_->numbers.emplace(std::pair(std::bit_cast<std::uint64_t>(number), type.dtype), v);
  }
}

void GraphReader::read_update(const JsonField& field) {
  field.expect_members({"op", "in", "attrs", "variables", "node"});
  const FileOp& op = op_of(field);
  Update update{op.op, attrs_of(field, op), values_of(field, "in", 0)};
  const JsonField variables = field.member("variables");
  for (std::size_t i = 0; i < variables.size(); ++i)
    update.variables.push_back(variables_[at(variables[i].index(variables_.size()))]);
  std::vector<TensorType> types;
  for (ValueRef v : update.inputs) types.push_back({graph_->type(v).dtype, graph_->type(v).shape.examples()});
  InferArgs infer(op.op->name, types, update.attrs, Where());
  if (types.empty() || is_source(*op.op) || is_branch(*op.op) || op.op == &while_op)
    field.refuse("its op computes no update");
  field.guard([&] { infer_outputs(*op.op, infer); });
  bool fits = infer.outputs().size() == update.variables.size();
  for (std::size_t i = 0; fits && i < update.variables.size(); ++i)
    fits = infer.outputs()[i] == update.variables[i].type();
  if (!fits) field.refuse("its op computes other values than its Variables have");
  if (const auto node = field.find("node")) {
    update.node = node->index(graph_->nodes.size());
    const Node& made = graph_->nodes[at(update.node)];
    if (made.op != op.op || made.region != 0 || made.outputs != infer.outputs())
      node->refuse("is no node of this update");
  }
  graph_->updates.push_back(std::move(update));
}

void GraphReader::expect_type(const JsonField& field, ValueRef v, const TensorType& wanted) const {
  if (graph_->type(v) != wanted) field.refuse("expected " + to_string(wanted) + ", seen " + to_string(graph_->type(v)));
}

void GraphReader::expect_predicate(const JsonField& field, ValueRef v) const {
  const TensorType& type = graph_->type(v);
  if (type.dtype != DType::boolean || !is_single(type)) field.refuse("is " + to_string(type) + ", not one bool");
}

}  // namespace graphsink
