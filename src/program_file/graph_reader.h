// A graph from its JSON, which is not trusted.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "graphsink/checkpoint.h"
#include "program_file/graph_form.h"
#include "program_file/json_fields.h"

namespace graphsink {

// Builds the graph node by node, as the calls that made it did: each is checked before it is added. Used once.
class GraphReader {
 public:
  // Takes the tensors that the graph uses out of the checkpoint. All are borrowed.
  GraphReader(const JsonField& form, const OpNames& ops, Checkpoint& checkpoint);

  // Throws Error, naming the field.
  std::shared_ptr<GraphData> read();

 private:
  // These three read what all nodes refer to.
  void read_tables();
  void read_op(const JsonField& field);
  void read_variables();
  void read_bodies(const JsonField& nodes);
  // Adds node number graph_->nodes.size().
  void read_node(const JsonField& field);
  void read_source(const JsonField& field, const FileOp& op, const Where& where);
  void read_input(const JsonField& field, const JsonField& attrs, const OpDef& op, const Where& where);
  void read_constant(const JsonField& attrs, const Where& where);
  void read_variable(const JsonField& attrs, const Where& where);
  void read_parameter(const JsonField& attrs, const Where& where);
  void read_branch(const JsonField& field, Node node);
  void read_loop(const JsonField& field, Node node);
  void read_body_of_loop(const JsonField& field, const Node& node, Region& body);
  void read_counter(const JsonField& field, const Node& node, Region& body);
  void read_remarks(const JsonField& field, Node& node);
  void expect_same_outputs(const JsonField& field, const Node& node) const;
  void expect_size_of_result(const JsonField& field, const Node& node);
  void read_results();
  void read_numbers();
  void read_update(const JsonField& field);

  const FileOp& op_of(const JsonField& field) const;
  Attrs attrs_of(const JsonField& field, const FileOp& op) const;
  Placement placement_of(const JsonField& field) const;
  // "at", or the member of another name.
  Where place_of(const JsonField& field, std::string_view name = "at") const;
  // A value that nodes of this region may use: not the size of a result, which has no data.
  ValueRef value_of(const JsonField& field, int region) const;
  std::vector<ValueRef> values_of(const JsonField& field, std::string_view name, int region) const;
  ValueRef value_or_size_of(const JsonField& field, int region) const;
  bool is_size_of_result(ValueRef v) const;
  Region& region(int number) { return graph_->regions[static_cast<std::size_t>(number)]; }
  void expect_predicate(const JsonField& field, ValueRef v) const;
  void expect_type(const JsonField& field, ValueRef v, const TensorType& wanted) const;

  const JsonField form_;
  const OpNames& names_;
  Checkpoint& checkpoint_;
  std::shared_ptr<GraphData> graph_ = std::make_shared<GraphData>();
  std::vector<const FileOp*> ops_;
  std::vector<const std::string*> files_, scopes_;
  std::vector<Variable> variables_;
  std::map<std::string, std::shared_ptr<const Tensor>, std::less<>> constants_;  // by tensor
  std::vector<std::size_t> owners_;  // by region: the node that it is a body of; of region 0: the end
  std::optional<JsonField> regions_;
  std::map<int, int> sized_;  // by input that holds the size of a result: the node that makes this result
};

}  // namespace graphsink
