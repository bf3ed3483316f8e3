#include "build/body_copy.h"

#include <string>
#include <string_view>

#include "ir/control.h"

namespace graphsink {

ValueRef BodyCopy::operator()(ValueRef v) const {
  const int copy = v.node < 0 ? 0 : copies_[at(v.node)];
  if (copy > 0) return {copy - 1, v.output};
  if (copy == 0) return v;
  const Node& maker = graph_.nodes[at(v.node)];
  throw Error(std::string(maker.op->name), maker.where,
              "grad() at " + to_string(where_) + " computes the values of the body around it again, of which some " +
                  "depend on what this op returns; it has an effect, so it is not repeated",
              "move it out of the body, and pass its result in");
}

void BodyCopy::copy_nodes(int body) {
  const std::vector<int> nodes = graph_.regions[at(body)].nodes;  // a copy: the graph grows below
  for (int id : nodes) copy_node(id);
}

void BodyCopy::copy_node(int id) {
  if (copies_[at(id)] > 0) return;
  Node copy = graph_.nodes[at(id)];
  if (copy.op->traits.host_effect) {
    copies_[at(id)] = -1;
    return;
  }
  copy.copy_of = graph_.origin_of(id);
  copy_all(copy.inputs);
  for (int& body : copy.bodies) body = copy_body(body);
  if (copy.op == &parameter_op) {
    auto attrs = copy.attrs.as<ParameterAttrs>();
    attrs.initial = (*this)(attrs.initial);
    copy.attrs = attrs;
  }
  copies_[at(id)] = 1 + graph_.add_node(std::move(copy));
}

int BodyCopy::copy_body(int body) {
  Region region = graph_.regions[at(body)];
  region.nodes.clear();
  const std::string_view op = region.op->name;
  const int copied = add_body(graph_, std::move(region), op);
  const int around = std::exchange(graph_.current_region, copied);
  copy_nodes(body);
  graph_.current_region = around;
  Region& complete = graph_.regions[at(copied)];
  copy_all(complete.parameters);
  copy_all(complete.results);
  for (Stacked& stacked : complete.stacked) stacked = {(*this)(stacked.value), (*this)(stacked.place)};
  for (ValueRef* v : {&complete.counter.first, &complete.counter.now, &complete.counter.next}) *v = (*this)(*v);
  return copied;
}

}  // namespace graphsink
