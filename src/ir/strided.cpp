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

}  // namespace graphsink
