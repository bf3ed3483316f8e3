#include "op_reference_data.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace graphsink::testing {

Array batched_product(const Array& a, const Array& b, bool transpose_a, bool transpose_b) {
  auto leading = [](const Shape& s) { return Shape(s.dims().first(static_cast<std::size_t>(s.rank() - 2))); };
  auto matrix = [](const Array& x, std::size_t index) {
    Array one({x.shape[-2], x.shape[-1]});
    std::copy_n(x.at.begin() + static_cast<std::ptrdiff_t>(index * one.at.size()), one.at.size(), one.at.begin());
    return one;
  };
  Shape batch_a = leading(a.shape), batch_b = leading(b.shape);
  Shape batch = map(Array(batch_a), Array(batch_b), [](double, double) { return 0; }).shape;
  Array y;
  y.shape = batch;
  y.shape.push_back(a.shape[transpose_a ? -1 : -2]);
  y.shape.push_back(b.shape[transpose_b ? -2 : -1]);
  std::vector<std::size_t> in_a = positions(batch, batch_a), in_b = positions(batch, batch_b);
  for (std::size_t i = 0; i < in_a.size(); ++i) {
    Array one = product(matrix(a, in_a[i]), matrix(b, in_b[i]), transpose_a, transpose_b);
    y.at.insert(y.at.end(), one.at.begin(), one.at.end());
  }
  return y;
}

Array generate(const Shape& shape, const std::function<double(const Shape&)>& f) {
  Array y(shape);
  for (std::int64_t i = 0; i < shape.size(); ++i) {
    Shape at = shape;
    std::int64_t rest = i;
    for (int d = shape.rank() - 1; d >= 0; --d) {
      at[d] = rest % shape[d];
      rest /= shape[d];
    }
    y[i] = f(at);
  }
  return y;
}

std::int64_t index_of(const Shape& shape, const Shape& at) {
  std::int64_t index = 0;
  for (int d = 0; d < shape.rank(); ++d) index = index * shape[d] + at[d];
  return index;
}

int from_front(int axis, int rank) { return axis < 0 ? axis + rank : axis; }

Array permuted(const Array& x, const std::vector<int>& axes) {
  Shape shape, from = x.shape;
  for (int axis : axes) shape.push_back(x.shape[axis]);
  return generate(shape, [&](const Shape& at) {
    for (int d = 0; d < at.rank(); ++d) from[axes[static_cast<std::size_t>(d)]] = at[d];
    return x[index_of(x.shape, from)];
  });
}

Numbers walk(std::int64_t size, std::int64_t begin, std::int64_t end, std::int64_t step) {
  Numbers result;
  if (end < 0) end += size;
  std::int64_t i = begin < 0 ? begin + size : begin;
  i = step > 0 ? std::max<std::int64_t>(i, 0) : std::min(i, size - 1);
  for (; i >= 0 && i < size && (step > 0 ? i < end : i > end); i += step) result.push_back(i);
  return result;
}

Array sliced(const Array& x, const Numbers& begins, const Numbers& ends, const Numbers& steps) {
  std::vector<Numbers> indices;
  Shape shape;
  for (int d = 0; d < x.shape.rank(); ++d) {
    auto i = static_cast<std::size_t>(d);
    std::int64_t step = i < steps.size() ? steps[i] : 1;
    bool is_to_begin = i < ends.size() && ends[i] == to_end && step < 0;
    indices.push_back(i < begins.size() ? walk(x.shape[d], begins[i], is_to_begin ? -x.shape[d] - 1 : ends[i], step)
                                        : walk(x.shape[d], 0, x.shape[d], 1));
    shape.push_back(static_cast<std::int64_t>(indices.back().size()));
  }
  return generate(shape, [&](Shape at) {
    for (int d = 0; d < at.rank(); ++d) at[d] = indices[static_cast<std::size_t>(d)][static_cast<std::size_t>(at[d])];
    return x[index_of(x.shape, at)];
  });
}

Array padded(const Array& x, const Numbers& before, const Numbers& after, double value) {
  Shape shape = x.shape;
  for (int d = 0; d < shape.rank(); ++d)
    shape[d] += before[static_cast<std::size_t>(d)] + after[static_cast<std::size_t>(d)];
  return generate(shape, [&](Shape at) {
    for (int d = 0; d < at.rank(); ++d) {
      at[d] -= before[static_cast<std::size_t>(d)];
      if (at[d] < 0 || at[d] >= x.shape[d]) return value;
    }
    return x[index_of(x.shape, at)];
  });
}

Array joined(const Arrays& parts, int axis) {
  Shape shape = parts[0].shape;
  axis = from_front(axis, shape.rank());
  shape[axis] = 0;
  for (const Array& part : parts) shape[axis] += part.shape[axis];
  return generate(shape, [&](Shape at) {
    std::size_t part = 0;
    while (at[axis] >= parts[part].shape[axis]) at[axis] -= parts[part++].shape[axis];
    return parts[part][index_of(parts[part].shape, at)];
  });
}

Arrays parted(const Array& x, const Numbers& sizes, int axis) {
  Arrays parts;
  axis = from_front(axis, x.shape.rank());
  std::int64_t begin = 0;
  for (std::int64_t size : sizes) {
    Shape shape = x.shape;
    shape[axis] = size;
    parts.push_back(generate(shape, [&](Shape at) {
      at[axis] += begin;
      return x[index_of(x.shape, at)];
    }));
    begin += size;
  }
  return parts;
}

std::int64_t indexed_position(const Shape& at, const Shape& x, const Array& indices, int axis) {
  Shape index, from;
  for (int d = 0; d < at.rank(); ++d) {
    if (d == axis) from.push_back(0);
    if (d >= axis && d < axis + indices.shape.rank()) {
      index.push_back(at[d]);
    } else {
      from.push_back(at[d]);
    }
  }
  if (from.rank() < x.rank()) from.push_back(0);  // a scalar index of the last axis
  from[axis] = static_cast<std::int64_t>(indices[index_of(indices.shape, index)]);
  return index_of(x, from);
}

Array gathered(const Array& x, const Array& indices, int axis) {
  axis = from_front(axis, x.shape.rank());
  Shape shape;
  for (int d = 0; d < x.shape.rank(); ++d) {
    if (d != axis) shape.push_back(x.shape[d]);
    for (int i = 0; d == axis && i < indices.shape.rank(); ++i) shape.push_back(indices.shape[i]);
  }
  return generate(shape, [&](const Shape& at) { return x[indexed_position(at, x.shape, indices, axis)]; });
}

Array scattered(Array base, const Array& indices, const Array& updates, int axis) {
  axis = from_front(axis, base.shape.rank());
  generate(updates.shape, [&](const Shape& at) {
    base[indexed_position(at, base.shape, indices, axis)] += updates[index_of(updates.shape, at)];
    return 0.0;
  });
  return base;
}

Shape windowed(Shape shape, const WindowOptions& o) {
  for (int d : {0, 1}) {
    auto i = static_cast<std::size_t>(d);
    std::int64_t covered = (o.window[i] - 1) * o.dilation[i] + 1, outputs = 0;
    for (std::int64_t at = -o.padding[i]; at + covered <= shape[d - 2] + o.padding[i]; at += o.stride[i]) ++outputs;
    shape[d - 2] = outputs;
  }
  return shape;
}

Array convolved(const Array& x, const Array& w, const Conv2dOptions& o) {
  WindowOptions windows{{w.shape[2], w.shape[3]}, o.stride, o.padding, o.dilation};
  Shape shape = windowed(x.shape, windows);
  shape[1] = w.shape[0];
  return generate(shape, [&](const Shape& at) {
    double sum = 0;
    std::int64_t first_channel = at[1] / (w.shape[0] / o.groups) * w.shape[1];
    for (std::int64_t c = 0; c < w.shape[1]; ++c)
      for (std::int64_t ky = 0; ky < w.shape[2]; ++ky)
        for (std::int64_t kx = 0; kx < w.shape[3]; ++kx) {
          std::int64_t iy = at[2] * o.stride[0] + ky * o.dilation[0] - o.padding[0];
          std::int64_t ix = at[3] * o.stride[1] + kx * o.dilation[1] - o.padding[1];
          if (iy < 0 || iy >= x.shape[2] || ix < 0 || ix >= x.shape[3]) continue;
          sum += x[index_of(x.shape, {at[0], first_channel + c, iy, ix})] * w[index_of(w.shape, {at[1], c, ky, kx})];
        }
    return sum;
  });
}

Array pooled(const Array& x, const WindowOptions& o, bool is_max) {
  int rank = x.shape.rank();
  return generate(windowed(x.shape, o), [&](const Shape& at) {
    double sum = 0, most = -std::numeric_limits<double>::infinity();
    for (std::int64_t ky = 0; ky < o.window[0]; ++ky)
      for (std::int64_t kx = 0; kx < o.window[1]; ++kx) {
        Shape from = at;
        from[rank - 2] = at[rank - 2] * o.stride[0] + ky - o.padding[0];
        from[rank - 1] = at[rank - 1] * o.stride[1] + kx - o.padding[1];
        if (from[-2] < 0 || from[-2] >= x.shape[-2] || from[-1] < 0 || from[-1] >= x.shape[-1]) continue;
        double value = x[index_of(x.shape, from)];
        sum += value;
        most = std::max(most, value);
      }
    return is_max ? most : sum / static_cast<double>(o.window[0] * o.window[1]);
  });
}
}  // namespace graphsink::testing
