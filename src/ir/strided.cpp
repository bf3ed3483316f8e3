#include "ir/strided.h"

#include <array>
#include <string>
#include <utility>

#include "base/at.h"
#include "graphsink/op.h"
#include "ir/call_of_op.h"

namespace graphsink {

Strided Strided::whole(const Shape& shape, int tensor) {
  Strided result{.shape = shape, .tensor = tensor};
  std::int64_t stride = 1;
  for (int d = shape.rank() - 1; d >= 0; --d) {
    result.strides[at(d)] = stride;
    stride *= shape[d];
  }
  return result;
}

Strided Strided::part(const Shape& part_shape, const AxisMap& map) const {
  Strided result{.shape = part_shape, .first = first, .tensor = tensor};
  for (int d = 0; d < part_shape.rank(); ++d) {
    const AxisMap::Axis& axis = map.axes[d];
    result.first += axis.begin * strides[at(axis.of_whole)];
    result.strides[at(d)] = axis.step * strides[at(axis.of_whole)];
  }
  return result;
}

AxisMap moves_of(const OpDef& op, const MoveArgs& args, int part, const Where& where) {
  const AxisMap map = call_of_op(op.name, where, "OpDef::moves", [&] { return op.moves(args, part); });
  const int rank = args.in(0).shape.rank();
  for (const TensorType& output : args.types.subspan(at(args.inputs)))
    if (output.shape.rank() != rank)
      throw Error(std::string(op.name), where,
                  "it has .moves, and an output of " + std::to_string(output.shape.rank()) +
                      " axes for an operand of " + std::to_string(rank),
                  "leave .moves out where the number of axes changes");
  std::array<bool, Shape::kMaxRank> is_named{};
  for (int d = 0; d < rank; ++d) {
    const int axis = map.axes[d].of_whole;
    if (axis < 0 || axis >= rank || std::exchange(is_named[at(axis)], true))
      throw Error(std::string(op.name), where,
                  "its .moves gives axis " + std::to_string(axis) + " for axis " + std::to_string(d) + " of " +
                      std::to_string(rank),
                  "name each axis of the whole once");
  }
  return map;
}

}  // namespace graphsink
