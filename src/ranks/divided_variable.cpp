// Parameters of which each rank has a part.
#include <memory>
#include <string>
#include <utility>

#include "graphsink/ops.h"
#include "graphsink/ranks.h"
#include "ir/graph_data.h"
#include "ranks/collective.h"
#include "ranks/tensor_part.h"

namespace graphsink {

// Squares of f32 overflow in f32.
Value norm_of_ranks(const Value& norm, const Comm& comm, const Where& where) {
  const Value wide = cast(Arg(norm, where), f64);
  const Value squares = all_reduce(Arg(mul(Arg(wide, where), Arg(wide, where)), where), comm);
  return cast(Arg(sqrt(Arg(squares, where)), where), f32);
}

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
  Variable variable(part_name(name, part.number), part_of(whole, part), on, where);
  variable.data()->whole = std::make_shared<const WholeTensor>(WholeTensor{
      part, comm.group(), [comm](const Value& norm, const Where& of) { return norm_of_ranks(norm, comm, of); }});
  return variable;
}

}  // namespace graphsink
