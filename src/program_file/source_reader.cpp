// Nodes that stand for memory.
#include "base/at.h"
#include "base/printable.h"
#include "program_file/graph_reader.h"

namespace graphsink {
namespace {

template <class T>
T form_of(const JsonField& attrs) {
  T form;
  JsonFieldReader io(attrs);
  attrs.guard([&] { transfer_value(io, form); });
  return form;
}

}  // namespace

void GraphReader::read_source(const JsonField& field, const FileOp& op, const Where& where) {
  if (field.find("in")) field.refuse("is a source, which has no operands");
  if (field.find("on")) field.refuse("is a source, which has no placement");
  if (op.op == &step_op || op.op == &random_state_op) {
    if (field.find("attrs")) field.refuse("has attributes, and its op has none");
    const Value made = add_source(*graph_, *op.op, {}, where);
    if (op.op == &step_op) return;
    if (graph_->random_state.node >= 0) field.refuse("is the second node of its op");
    graph_->random_state = {made.node(), 0};
    return;
  }
  const JsonField attrs = field.member("attrs");
  if (op.op == &constant_op) return read_constant(attrs, where);
  if (op.op == &variable_op) return read_variable(attrs, where);
  if (op.op == &parameter_op) return read_parameter(attrs, where);
  read_input(field, attrs, *op.op, where);
}

void GraphReader::read_input(const JsonField& field, const JsonField& attrs, const OpDef& op, const Where& where) {
  const auto form = form_of<InputForm>(attrs);
  InputAttrs input{form.name, form.dtype, {}, form.size_of, form.axis, form.is_result_size};
  bool has_open = false;
  for (std::size_t d = 0; d < form.dims.size(); ++d) {
    const DimForm& from = form.dims[d];
    const JsonField dim = attrs.member("dims")[d];
    Dim to(from.size, from.is_open);
    to.bucket = from.bucket;
    has_open = has_open || from.is_open;
    if (from.size < 0) dim.refuse("expected a size of at least 0, seen " + std::to_string(from.size));
    if (!from.bucket.is_every_size() &&
        (!from.is_open || &op == &feed_op || from.bucket.round_up(from.size) != from.size))
      dim.refuse("expected an open dimension of an input, with a size of its bucket");
    input.dims.push_back(std::move(to));
  }
  const bool is_scalar = form.dtype == DType::i32 && form.dims.empty();
  if (form.size_of >= 0) {
    const JsonField of = attrs.member("size_of");
    const Node& other = graph_->nodes[at(of.index(graph_->nodes.size()))];
    const auto* sized = other.op == &input_op ? other.attrs.get_if<InputAttrs>() : nullptr;
    if (sized == nullptr || sized->size_of >= 0 || sized->is_result_size || form.axis < 0 ||
        at(form.axis) >= sized->dims.size())
      of.refuse("is no input with an axis " + std::to_string(form.axis));
  }
  const bool is_size = form.is_result_size && form.dtype == DType::u8 && form.dims.size() == 1 && has_open;
  if (form.size_of < -1 || (form.size_of < 0 && form.axis != 0) || (form.size_of >= 0 && !is_scalar) ||
      (form.is_result_size && !is_size) || (&op == &feed_op && (form.size_of >= 0 || form.is_result_size)) ||
      (form.size_of >= 0 && form.is_result_size))
    attrs.refuse("says of no input what the number in it is");
  field.guard([&] { add_source(*graph_, op, std::move(input), where); });
}

void GraphReader::read_constant(const JsonField& attrs, const Where& where) {
  const std::string name = form_of<ConstantForm>(attrs).tensor;
  std::shared_ptr<const Tensor>& tensor = constants_[name];
  if (tensor == nullptr) {
    const auto found = checkpoint_.tensors.find(name);
    if (found == checkpoint_.tensors.end())
      attrs.member("tensor").refuse("the file has no tensor \"" + shortened(name) + "\", or a Variable has it");
    tensor = std::make_shared<const Tensor>(std::move(found->second));
    checkpoint_.tensors.erase(found);
  }
  add_source(*graph_, constant_op, ConstantAttrs{tensor}, where);
}

// Variables are numbered in the order of their nodes.
void GraphReader::read_variable(const JsonField& attrs, const Where& where) {
  const std::size_t next = graph_->variables.size();
  const int number = form_of<VariableForm>(attrs).number;
  if (next >= variables_.size() || number != static_cast<int>(next))
    attrs.member("number").refuse("expected " + std::to_string(next) + ", the next of the " +
                                  std::to_string(variables_.size()) + " Variables, seen " + std::to_string(number));
  (void)graph_->use(variables_[next], where);
}

void GraphReader::read_parameter(const JsonField& attrs, const Where& where) {
  const Region& body = region(graph_->current_region);
  if (body.op != &while_op) attrs.refuse("is a parameter, and not in the body of a loop");
  const auto form = form_of<ParameterForm>(attrs);
  const ValueRef initial{form.node, form.output};
  const bool is_known = form.node >= 0 && at(form.node) < graph_->nodes.size() && form.output >= 0 &&
                        at(form.output) < graph_->nodes[at(form.node)].outputs.size();
  if (!is_known || !graph_->is_within(body.parent, graph_->nodes[at(form.node)].region))
    attrs.member("node").refuse("is no value that the loop could begin with");
  Node node;
  node.op = &parameter_op;
  node.attrs = ParameterAttrs{graph_->type(initial), initial};
  node.where = where;
  graph_->set_outputs_like(node, {&initial, 1});
  graph_->add_node(std::move(node));
}

}  // namespace graphsink
