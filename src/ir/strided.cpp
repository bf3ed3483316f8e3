#include "graphsink/strided.h"

#include "base/at.h"

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

}  // namespace graphsink
