// max_pool2d, avg_pool2d: one element for each window over an image.
#include <limits>

#include "graphsink/ops.h"
#include "kernels/nn/window.h"
#include "kernels/support/dtype.h"

namespace graphsink {
namespace {

// Where the largest element of a window is in its plane: the first of equals, NaN before all others.
template <class T>
HD std::int64_t winner(const T* plane, const Windows& w, std::int64_t oy, std::int64_t ox) {
  Span rows = elements_of(w.y, oy), columns = elements_of(w.x, ox);
  std::int64_t best = rows.begin * w.x.in + columns.begin;
  T most = plane[best];
  for (std::int64_t iy = rows.begin; iy < rows.end; ++iy) {
    for (std::int64_t at = iy * w.x.in + columns.begin; at < iy * w.x.in + columns.end; ++at) {
      T x = plane[at];
      if (x > most || (x != x && most == most)) {
        most = x;
        best = at;
      }
    }
  }
  return best;
}

// f(window (oy, ox)) for the windows that element (iy, ix) of a plane is in, always in the same order.
template <class F>
HD void for_each_reader(const Windows& w, std::int64_t iy, std::int64_t ix, const F& f) {
  for (std::int64_t ky = 0; ky < w.y.window; ++ky) {
    std::int64_t oy = w.y.reader(iy, ky);
    for (std::int64_t kx = 0; oy >= 0 && kx < w.x.window; ++kx) {
      std::int64_t ox = w.x.reader(ix, kx);
      if (ox >= 0) f(oy, ox);
    }
  }
}

// What an element of the result, or of the gradient, is; (y, x) is its place in plane `plane`.
struct MaxPool {
  template <class T>
  HD static T result(const T* x, const Windows& w, std::int64_t plane, std::int64_t oy, std::int64_t ox) {
    const T* first = x + plane * w.pixels();
    return first[winner(first, w, oy, ox)];
  }
  template <class T>
  HD static T gradient(const T* g, const T* x, const Windows& w, std::int64_t plane, std::int64_t iy, std::int64_t ix) {
    T sum(0);
    for_each_reader(w, iy, ix, [&](std::int64_t oy, std::int64_t ox) {
      if (winner(x + plane * w.pixels(), w, oy, ox) == iy * w.x.in + ix)
        sum += g[plane * w.windows() + oy * w.x.out + ox];
    });
    return sum;
  }
};

struct AvgPool {
  template <class T>
  HD static T result(const T* x, const Windows& w, std::int64_t plane, std::int64_t oy, std::int64_t ox) {
    Span rows = elements_of(w.y, oy), columns = elements_of(w.x, ox);
    const T* first = x + plane * w.pixels();
    T sum(0);
    for (std::int64_t iy = rows.begin; iy < rows.end; ++iy)
      for (std::int64_t ix = columns.begin; ix < columns.end; ++ix) sum += first[iy * w.x.in + ix];
    return sum / static_cast<T>(w.window_size());
  }
  template <class T>
  HD static T gradient(const T* g, const T*, const Windows& w, std::int64_t plane, std::int64_t iy, std::int64_t ix) {
    T sum(0);
    for_each_reader(w, iy, ix,
                    [&](std::int64_t oy, std::int64_t ox) { sum += g[plane * w.windows() + oy * w.x.out + ox]; });
    return sum / static_cast<T>(w.window_size());
  }
};

struct Place {
  std::int64_t plane, y, x;
};
HD Place place_of(std::int64_t i, std::int64_t rows, std::int64_t columns) {
  std::int64_t line = quotient(i, columns), plane = quotient(line, rows);
  return {plane, line - plane * rows, i - line * columns};
}

template <class Pool, class T>
HD T result_at(const T* x, const Windows& w, std::int64_t i) {
  Place at = place_of(i, w.y.out, w.x.out);
  return Pool::result(x, w, at.plane, at.y, at.x);
}
template <class Pool, class T>
HD T gradient_at(const T* g, const T* x, const Windows& w, std::int64_t i) {
  Place at = place_of(i, w.y.in, w.x.in);
  return Pool::gradient(g, x, w, at.plane, at.y, at.x);
}

template <class Pool, class T>
__global__ void pool(const T* x, T* out, Windows w, std::int64_t size) {
  wait_for_inputs();
  for (std::int64_t i = thread_index(); i < size; i += all_threads()) out[i] = result_at<Pool>(x, w, i);
}
template <class Pool, class T>
__global__ void pool_grad(const T* g, const T* x, T* dx, Windows w, std::int64_t size) {
  wait_for_inputs();
  for (std::int64_t i = thread_index(); i < size; i += all_threads()) dx[i] = gradient_at<Pool>(g, x, w, i);
}

struct PoolAttrs {
  Pair window;
  Pool2dOptions options;
  friend bool operator==(const PoolAttrs&, const PoolAttrs&) = default;
};

Windows windows_of(const InferArgs& a, const Shape& shape) {
  auto [window, options] = a.attrs<PoolAttrs>();
  for (std::size_t d : {0, 1})
    if (options.stride[d] == 0) options.stride[d] = window[d];
  return windows_over(a, shape, window, options.stride, options.padding, {1, 1});
}

void infer_pool(InferArgs& a) {
  a.expect_inputs(1);
  Shape shape = a.in(0).shape;
  const auto& [window, options] = a.attrs<PoolAttrs>();
  expect_dtype<float, double>(a, 0);
  if (shape.rank() < 2) a.fail("takes images", "reshape() the operand to [..., h, w]");
  Windows w = windows_of(a, shape);
  if (options.padding[0] >= window[0] || options.padding[1] >= window[1] || w.pixels() == 0)
    a.fail("a window may hold nothing but padding", "use less padding than the window's size");
  shape[-2] = w.y.out;
  shape[-1] = w.x.out;
  a.out(a.in(0).dtype, shape);
}

template <class Pool, int image>
Prepared prepare_pool(const PrepareArgs& p) {
  load_kernels<pool<Pool, float>, pool<Pool, double>, pool_grad<Pool, float>, pool_grad<Pool, double>>(p);
  InferArgs a(p.op, p.types.first(static_cast<std::size_t>(p.inputs)), p.attrs, p.where);
  return {std::make_shared<Windows>(windows_of(a, p.in(image).shape))};
}

template <class Pool, class T>
void pool_on(CudaArgs& a) {
  std::int64_t size = a.out_type(0).shape.size();
  LaunchSize launch = launch_size(size);
  a.launch(pool<Pool, T>, launch.grid, launch.block, 0, a.in<T>(0), a.out<T>(0), a.local<Windows>(), size);
}
// --- the CPU makes a row of windows together, element by element of the windows

// f(an element of the plane, a window, n) for each element (ky, kx) of windows: the next n windows of `row` that have
// it, which are some of `range`, read elements from there on, a stride apart.
template <class F>
void for_each_element(const Windows& w, std::int64_t row, Span range, const F& f) {
  for (std::int64_t ky = 0; ky < w.y.window; ++ky) {
    std::int64_t iy = w.y.element(row, ky);
    for (std::int64_t kx = 0; iy >= 0 && kx < w.x.window; ++kx) {
      Span seen = windows_with(w.x, kx);
      std::int64_t begin = std::max(seen.begin, range.begin), end = std::min(seen.end, range.end);
      if (begin < end) f(iy * w.x.in + begin * w.x.stride - w.x.padding + kx, begin, end - begin);
    }
  }
}

// body(i, i * stride) for i in [0, n); the usual strides are known to the compiler.
template <class Body>
void for_each_strided(std::int64_t n, std::int64_t stride, const Body& body) {
  if (stride == 1) return for_each_index(n, [=](std::int64_t i) { body(i, i); });
  if (stride == 2) return for_each_index(n, [=](std::int64_t i) { body(i, 2 * i); });
  for_each_index(n, [=](std::int64_t i) { body(i, i * stride); });
}

template <class T>
void pool_rows(MaxPool, const T* x, const Windows& w, std::int64_t planes, T* out) {
  for (std::int64_t plane = 0; plane < planes; ++plane, x += w.pixels()) {
    for (std::int64_t oy = 0; oy < w.y.out; ++oy, out += w.x.out) {
      std::fill_n(out, w.x.out, -std::numeric_limits<T>::infinity());
      for_each_element(w, oy, {0, w.x.out}, [&](std::int64_t from, std::int64_t first, std::int64_t n) {
        const T* elements = x + from;
        T* best = out + first;
        for_each_strided(n, w.x.stride, [=](std::int64_t i, std::int64_t at) {
          bool wins = (elements[at] > best[i]) | (elements[at] != elements[at]);
          best[i] = wins ? elements[at] : best[i];
        });
      });
    }
  }
}
template <class T>
void pool_rows(AvgPool, const T* x, const Windows& w, std::int64_t planes, T* out) {
  auto size = static_cast<T>(w.window_size());
  for (std::int64_t plane = 0; plane < planes; ++plane, x += w.pixels()) {
    for (std::int64_t oy = 0; oy < w.y.out; ++oy, out += w.x.out) {
      std::fill_n(out, w.x.out, T(0));
      for_each_element(w, oy, {0, w.x.out}, [&](std::int64_t from, std::int64_t first, std::int64_t n) {
        const T* elements = x + from;
        T* sum = out + first;
        for_each_strided(n, w.x.stride, [=](std::int64_t i, std::int64_t at) { sum[i] += elements[at]; });
      });
      T* row = out;
      for_each_index(w.x.out, [=](std::int64_t i) { row[i] /= size; });
    }
  }
}

// Adds the gradients `g` of a row of windows to the elements of a plane that they chose, in the order of the windows.
template <class T>
void add_to_winners(const T* g, const T* plane, const Windows& w, std::int64_t row, T* dx) {
  constexpr std::int64_t kBlock = 256;
  T most[kBlock];
  std::int32_t places[kBlock];  // in the plane
  for (std::int64_t first = 0; first < w.x.out; first += kBlock) {
    Span range{first, std::min(first + kBlock, w.x.out)};
    std::fill_n(most, range.end - first, -std::numeric_limits<T>::infinity());
    std::fill_n(places, range.end - first, -1);
    for_each_element(w, row, range, [&](std::int64_t from, std::int64_t window, std::int64_t n) {
      const T* x = plane + from;
      T* best = most + (window - first);
      std::int32_t* place = places + (window - first);
      auto base = static_cast<std::int32_t>(from);
      for_each_strided(n, w.x.stride, [=](std::int64_t i, std::int64_t at) {
        bool wins = (x[at] > best[i]) | ((x[at] != x[at]) & (best[i] == best[i])) | (place[i] < 0);
        best[i] = wins ? x[at] : best[i];
        place[i] = wins ? base + static_cast<std::int32_t>(at) : place[i];
      });
    });
    for (std::int64_t i = first; i < range.end; ++i) dx[places[i - first]] += g[i];
  }
}

template <class T>
void pool_grad_rows(MaxPool, const T* g, const T* x, const Windows& w, std::int64_t planes, T* dx) {
  if (w.pixels() > std::numeric_limits<std::int32_t>::max()) {
    for (std::int64_t i = 0; i < planes * w.pixels(); ++i) dx[i] = gradient_at<MaxPool>(g, x, w, i);
    return;
  }
  for (std::int64_t plane = 0; plane < planes; ++plane, x += w.pixels(), dx += w.pixels()) {
    std::fill_n(dx, w.pixels(), T(0));
    for (std::int64_t oy = 0; oy < w.y.out; ++oy, g += w.x.out) add_to_winners(g, x, w, oy, dx);
  }
}
template <class T>
void pool_grad_rows(AvgPool, const T* g, const T*, const Windows& w, std::int64_t planes, T* dx) {
  auto size = static_cast<T>(w.window_size());
  for (std::int64_t plane = 0; plane < planes; ++plane, dx += w.pixels()) {
    std::fill_n(dx, w.pixels(), T(0));
    for (std::int64_t oy = 0; oy < w.y.out; ++oy, g += w.x.out) {
      for_each_element(w, oy, {0, w.x.out}, [&](std::int64_t from, std::int64_t first, std::int64_t n) {
        const T* gradients = g + first;
        T* to = dx + from;
        for_each_strided(n, w.x.stride, [=](std::int64_t i, std::int64_t at) { to[at] += gradients[i]; });
      });
    }
    for_each_index(w.pixels(), [=](std::int64_t i) { dx[i] /= size; });
  }
}

template <class Pool, class T>
void pool_on(const CpuArgs& a) {
  const auto& w = a.local<Windows>();
  if (w.windows() > 0) pool_rows(Pool{}, a.in<T>(0), w, a.out_type(0).shape.size() / w.windows(), a.out<T>(0));
}
template <class Pool, class T>
void pool_grad_on(CudaArgs& a) {
  std::int64_t size = a.out_type(0).shape.size();
  LaunchSize launch = launch_size(size);
  a.launch(pool_grad<Pool, T>, launch.grid, launch.block, 0, a.in<T>(0), a.in<T>(1), a.out<T>(0), a.local<Windows>(),
           size);
}
template <class Pool, class T>
void pool_grad_on(const CpuArgs& a) {
  const auto& w = a.local<Windows>();
  pool_grad_rows(Pool{}, a.in<T>(0), a.in<T>(1), w, a.out_type(0).shape.size() / w.pixels(), a.out<T>(0));
}

template <class Pool, class Args>
void pool_any(Args& a) {
  for_dtype<float, double>(a.out_type(0).dtype, [&]<class T>() { pool_on<Pool, T>(a); });
}
template <class Pool, class Args>
void pool_grad_any(Args& a) {
  for_dtype<float, double>(a.out_type(0).dtype, [&]<class T>() { pool_grad_on<Pool, T>(a); });
}

// Inputs: gradient, image (of avg_pool2d the shape only).
void infer_pool_grad(InferArgs& a) { a.out(a.in(0).dtype, a.in(1).shape); }
Access avg_grad_access(int operand, int) { return operand == 1 ? Access::shape_only : Access::read; }

std::vector<Value> avg_grad_grad(const GradArgs& a) {
  const auto& [window, options] = a.attrs.as<PoolAttrs>();
  return {avg_pool2d(Arg(a.grads[0], a.where), window, options), Value()};
}

const OpDef max_grad_op{.name = "max_pool2d_grad",
                        .infer = infer_pool_grad,
                        .prepare = prepare_pool<MaxPool, 1>,
                        .bodies = {pool_grad_any<MaxPool, const CpuArgs>, pool_grad_any<MaxPool, CudaArgs>}};
const OpDef avg_grad_op{.name = "avg_pool2d_grad",
                        .infer = infer_pool_grad,
                        .access = avg_grad_access,
                        .prepare = prepare_pool<AvgPool, 1>,
                        .bodies = {pool_grad_any<AvgPool, const CpuArgs>, pool_grad_any<AvgPool, CudaArgs>},
                        .grad = avg_grad_grad};

template <const OpDef& grad_op>
std::vector<Value> pool2d_grad(const GradArgs& a) {
  return emit(grad_op, {Arg(a.grads[0], a.where), a.inputs[0]}, a.attrs);
}

const OpDef max_op{.name = "max_pool2d",
                   .infer = infer_pool,
                   .prepare = prepare_pool<MaxPool, 0>,
                   .bodies = {pool_any<MaxPool, const CpuArgs>, pool_any<MaxPool, CudaArgs>},
                   .grad = pool2d_grad<max_grad_op>};
const OpDef avg_op{.name = "avg_pool2d",
                   .infer = infer_pool,
                   .prepare = prepare_pool<AvgPool, 0>,
                   .bodies = {pool_any<AvgPool, const CpuArgs>, pool_any<AvgPool, CudaArgs>},
                   .grad = pool2d_grad<avg_grad_op>};

}  // namespace

Value max_pool2d(Arg x, std::array<std::int64_t, 2> window, Pool2dOptions options, Placement placement) {
  return emit(max_op, {x}, PoolAttrs{window, options}, placement)[0];
}
Value avg_pool2d(Arg x, std::array<std::int64_t, 2> window, Pool2dOptions options, Placement placement) {
  return emit(avg_op, {x}, PoolAttrs{window, options}, placement)[0];
}

}  // namespace graphsink
