// Parameters of which each rank has a part.
#include <memory>
#include <string>
#include <utility>

#include "graphsink/ranks.h"
#include "ir/graph_data.h"
#include "ranks/tensor_part.h"

namespace graphsink {

Variable divided_variable(const std::string& name, const Tensor& whole, int axis, const Comm& comm, Placement on,
                          Where where) {
  const Shape& shape = whole.shape();
  const int from_front = axis < 0 ? axis + shape.rank() : axis;
  const auto fail = [&](const std::string& problem, const std::string& remedy) {
    throw Error("divided_variable", where, "\"" + name + "\" is " + to_string(whole.type()) + ", " + problem, remedy);
  };
  if (from_front < 0 || from_front >= shape.rank())
    fail("which has no axis " + std::to_string(axis), "give an axis of the tensor");
  if (shape[from_front] % comm.size() != 0)
    fail("whose axis " + std::to_string(axis) + " cannot be divided by " + std::to_string(comm.size()) + " ranks",
         "make its size a multiple of the number of ranks, or start another number of ranks");
  if (comm.size() == 1) return Variable(name, whole, on, where);
  const TensorPart part{from_front, comm.rank(), comm.size()};
  Variable variable(part_name(name, part.number), cut_part(whole, part), on, where);
  variable.data()->division = std::make_shared<const RankDivision>(RankDivision{
      part, comm.group(), [comm](const Value& x, const Where& of) { return all_reduce(Arg(x, of), comm); }});
  return variable;
}

}  // namespace graphsink
