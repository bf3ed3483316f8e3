// Windows that slide over the last two axes of a tensor, as convolutions and pools have them.
#pragma once

#include <array>

#include "base/sizes.h"
#include "kernels/support/kernel.h"

namespace graphsink {

// One of the two axes. Window o covers elements o * stride - padding + k * dilation for k in [0, window), of which
// those outside [0, in) are padding.
struct WindowAxis {
  std::int64_t in = 0, out = 0, window = 1, stride = 1, padding = 0, dilation = 1;

  // The element k of window o, or -1 for padding.
  HD std::int64_t element(std::int64_t o, std::int64_t k) const {
    std::int64_t at = o * stride - padding + k * dilation;
    return at >= 0 && at < in ? at : -1;
  }
  // The window whose element k is `at`, or -1.
  HD std::int64_t reader(std::int64_t at, std::int64_t k) const {
    std::int64_t from_first = at + padding - k * dilation;
    if (from_first < 0) return -1;
    std::int64_t o = quotient(from_first, stride);
    return o * stride == from_first && o < out ? o : -1;
  }
};

// [begin, end)
struct Span {
  std::int64_t begin, end;
};
// The windows whose element k is not padding.
inline Span windows_with(const WindowAxis& axis, std::int64_t k) {
  std::int64_t first = k * axis.dilation - axis.padding;  // in window 0
  std::int64_t begin = first >= 0 ? 0 : (-first + axis.stride - 1) / axis.stride;
  std::int64_t end = first >= axis.in ? 0 : (axis.in - 1 - first) / axis.stride + 1;
  end = std::min(end, axis.out);
  return {std::min(begin, end), end};
}
// The elements of window o, without padding and where dilation is 1.
HD Span elements_of(const WindowAxis& axis, std::int64_t o) {
  std::int64_t begin = o * axis.stride - axis.padding, end = begin + axis.window;
  return {begin < 0 ? 0 : begin, end < axis.in ? end : axis.in};
}

struct Windows {
  WindowAxis y, x;

  HD std::int64_t pixels() const { return y.in * x.in; }
  HD std::int64_t windows() const { return y.out * x.out; }
  HD std::int64_t window_size() const { return y.window * x.window; }
};

using Pair = std::array<std::int64_t, 2>;

// Windows over the last two axes of `shape`. Throws Error naming the op and the user's line unless there is one.
inline Windows windows_over(const InferArgs& a, const Shape& shape, const Pair& window, const Pair& stride,
                            const Pair& padding, const Pair& dilation) {
  Windows result;
  for (std::size_t d : {0, 1}) {
    if (window[d] < 1 || stride[d] < 1 || dilation[d] < 1 || padding[d] < 0)
      a.fail("a window, stride or dilation is below 1, or a padding below 0", "use sizes of 1 and more");
    WindowAxis& axis = d == 0 ? result.y : result.x;
    axis = {shape[static_cast<int>(d) - 2], 0, window[d], stride[d], padding[d], dilation[d]};
    std::int64_t padded = sum_of_sizes(axis.in, product_of_sizes(2, axis.padding));
    std::int64_t room = padded - product_of_sizes(axis.dilation, axis.window - 1) - 1;
    if (room < 0) a.fail("the window is larger than the padded image", "use a smaller window or more padding");
    axis.out = room / axis.stride + 1;
  }
  return result;
}

}  // namespace graphsink
