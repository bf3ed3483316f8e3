// max_pool2d, avg_pool2d: one element for each window over an image.
#include <limits>

#include "graphsink/ops.h"
#include "kernels/file_ops.h"
#include "kernels/nn/window.h"
#include "kernels/support/dtype.h"
#include "kernels/support/tiles.h"

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

// Each kind of pooling computes one element of plane `plane`: element (oy, ox) of the result, or (iy, ix) of the
// gradient.
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

// The element of u at the place of the largest one of x.
template <class T>
HD T chosen_at(const T* u, const T* x, const Windows& w, std::int64_t i) {
  Place at = place_of(i, w.y.out, w.x.out);
  std::int64_t first = at.plane * w.pixels();
  return u[first + winner(x + first, w, at.y, at.x)];
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
template <class T>
__global__ void choose(const T* u, const T* x, T* out, Windows w, std::int64_t size) {
  wait_for_inputs();
  for (std::int64_t i = thread_index(); i < size; i += all_threads()) out[i] = chosen_at(u, x, w, i);
}

struct PoolAttrs {
  Pair window;
  Pool2dOptions options;
  static auto fields(auto& s) { return std::tie("window", s.window, "options", s.options); }
};

Windows windows_of(const InferArgs& a, const Shape& shape) {
  auto [window, options] = a.attrs<PoolAttrs>();
  for (std::size_t d : {0, 1})
    if (options.stride[d] == 0) options.stride[d] = window[d];
  return windows_over(a, shape, window, options.stride, options.padding, {1, 1});
}

Shape pooled_shape(Shape image, const Windows& w) {
  image[-2] = w.y.out;
  image[-1] = w.x.out;
  return image;
}

void infer_pool(InferArgs& a) {
  a.expect_inputs(1);
  const Shape& shape = a.in(0).shape;
  const auto& [window, options] = a.attrs<PoolAttrs>();
  expect_dtype<float, double>(a, 0);
  if (shape.rank() < 2) a.fail("takes images", "reshape() the operand to [..., h, w]");
  Windows w = windows_of(a, shape);
  if (options.padding[0] >= window[0] || options.padding[1] >= window[1] || w.pixels() == 0)
    a.fail("a window may hold nothing but padding", "use less padding than the window's size");
  a.out(a.in(0).dtype, pooled_shape(shape, w));
}

Prepared prepare_windows(const PrepareArgs& p, const Shape& image) {
  InferArgs a(p.op, p.types.first(static_cast<std::size_t>(p.inputs)), p.attrs, p.where);
  return {std::make_shared<Windows>(windows_of(a, image))};
}
template <class Pool, int image>
Prepared prepare_pool(const PrepareArgs& p) {
  load_kernels<pool<Pool, float>, pool<Pool, double>, pool_grad<Pool, float>, pool_grad<Pool, double>>(p);
  return prepare_windows(p, p.in(image).shape);
}

template <class Pool, class T>
void pool_on(CudaArgs& a) {
  std::int64_t size = a.out_type(0).shape.size();
  a.launch(pool<Pool, T>, launch_size(size), a.in<T>(0), a.out<T>(0), a.local<Windows>(), size);
}
// --- the CPU makes a row of windows together, element by element of the windows

constexpr std::int64_t kBlock = 256;  // windows at a time

// f(an element of the plane, a window, n) for each element (ky, kx) of windows: the next n windows of `row` that have
// it, which are some of `range`, read elements from there on, a stride apart. Only elements in these rows of the image.
template <class F>
void for_each_element(const Windows& w, std::int64_t row, Span range, Span image_rows, const F& f) {
  for (std::int64_t ky = 0; ky < w.y.window; ++ky) {
    std::int64_t iy = w.y.element(row, ky);
    if (iy < image_rows.begin || iy >= image_rows.end) continue;
    for (std::int64_t kx = 0; kx < w.x.window; ++kx) {
      Span seen = windows_with(w.x, kx);
      std::int64_t begin = std::max(seen.begin, range.begin), end = std::min(seen.end, range.end);
      if (begin < end) f(iy * w.x.in + begin * w.x.stride - w.x.padding + kx, begin, end - begin);
    }
  }
}
// f(range) for the windows of a row, some at a time.
template <class F>
void for_each_block(const Windows& w, const F& f) {
  for (std::int64_t first = 0; first < w.x.out; first += kBlock) f(Span{first, std::min(first + kBlock, w.x.out)});
}
// f(plane, its rows among these) for rows of all planes, of which each has `rows_of_plane`.
template <class F>
void for_each_plane(RowRange rows, std::int64_t rows_of_plane, const F& f) {
  for (std::int64_t row = rows.first, count = 0; row < rows.end; row += count) {
    std::int64_t plane = row / rows_of_plane, first = row - plane * rows_of_plane;
    count = std::min(rows.end - row, rows_of_plane - first);
    f(plane, Span{first, first + count});
  }
}

// n elements of a plane that ends at `end`, a stride apart: where they are, or a copy.
template <class T>
const T* side_by_side(std::int64_t n, std::int64_t stride, const T* from, const T* end, T (&copy)[kBlock]) {
  if (stride == 1) return from;
  if (stride == 2) {  // loops that read pairs become vector code
    T second[kBlock];
    T *firsts = copy, *seconds = second;
    std::int64_t pairs = from + 2 * n <= end ? n : n - 1;
    for_each_index(pairs, [=](std::int64_t i) {
      firsts[i] = from[2 * i];
      seconds[i] = from[2 * i + 1];
    });
    if (pairs < n) copy[pairs] = from[2 * pairs];
  } else {
    for (std::int64_t i = 0; i < n; ++i) copy[i] = from[i * stride];
  }
  return copy;
}

// A NaN wins, and stays.
template <class T>
void pool_row(MaxPool, const T* plane, const Windows& w, std::int64_t row, Span range, T* out) {
  T copy[kBlock];
  std::fill(out + range.begin, out + range.end, -std::numeric_limits<T>::infinity());
  for_each_element(w, row, range, {0, w.y.in}, [&](std::int64_t from, std::int64_t first, std::int64_t n) {
    const T* x = side_by_side(n, w.x.stride, plane + from, plane + w.pixels(), copy);
    T* best = out + first;
    for_each_index(n, [=](std::int64_t i) {
      T element = x[i], so_far = best[i];
      T larger = element > so_far ? element : so_far;
      best[i] = element != element ? element : larger;
    });
  });
}
template <class T>
void pool_row(AvgPool, const T* plane, const Windows& w, std::int64_t row, Span range, T* out) {
  T copy[kBlock];
  auto size = static_cast<T>(w.window_size());
  std::fill(out + range.begin, out + range.end, T(0));
  for_each_element(w, row, range, {0, w.y.in}, [&](std::int64_t from, std::int64_t first, std::int64_t n) {
    const T* x = side_by_side(n, w.x.stride, plane + from, plane + w.pixels(), copy);
    T* sum = out + first;
    for_each_index(n, [=](std::int64_t i) { sum[i] += x[i]; });
  });
  T* means = out + range.begin;
  for_each_index(range.end - range.begin, [=](std::int64_t i) { means[i] /= size; });
}
// These rows of windows of all planes.
template <class Pool, class T>
void pool_rows(const T* x, const Windows& w, RowRange rows, T* out) {
  for_each_plane(rows, w.y.out, [&](std::int64_t plane, Span of_plane) {
    for (std::int64_t oy = of_plane.begin; oy < of_plane.end; ++oy) {
      T* row = out + (plane * w.y.out + oy) * w.x.out;
      for_each_block(w, [&](Span range) { pool_row(Pool{}, x + plane * w.pixels(), w, oy, range, row); });
    }
  });
}

// Adds the gradients of some windows, of which `g` is the row, to the elements of a plane that they chose.
template <class T>
void pool_row_grad(MaxPool, const T* g, const T* plane, const Windows& w, std::int64_t row, Span range, Span image_rows,
                   T* dx) {
  T most[kBlock], copy[kBlock];
  std::int32_t places[kBlock];  // in the plane
  std::fill_n(most, range.end - range.begin, -std::numeric_limits<T>::infinity());
  std::fill_n(places, range.end - range.begin, -1);
  for_each_element(w, row, range, {0, w.y.in}, [&](std::int64_t from, std::int64_t window, std::int64_t n) {
    const T* x = side_by_side(n, w.x.stride, plane + from, plane + w.pixels(), copy);
    T* best = most + (window - range.begin);
    std::int32_t* place = places + (window - range.begin);
    auto base = static_cast<std::int32_t>(from), stride = static_cast<std::int32_t>(w.x.stride);
    for_each_index(n, [=](std::int64_t i) {
      T element = x[i], so_far = best[i];
      std::int32_t here = base + stride * static_cast<std::int32_t>(i), there = place[i];
      bool wins = !(element <= so_far) & (so_far == so_far);
      best[i] = wins ? element : so_far;
      place[i] = wins ? here : there;
    });
  });
  for (std::int64_t ox = range.begin; ox < range.end; ++ox) {
    std::int64_t place = places[ox - range.begin];
    if (place < 0) place = winner(plane, w, row, ox);  // all of them are -inf
    if (place >= image_rows.begin * w.x.in && place < image_rows.end * w.x.in) dx[place] += g[ox];
  }
}
template <class T>
void pool_row_grad(AvgPool, const T* g, const T*, const Windows& w, std::int64_t row, Span range, Span image_rows,
                   T* dx) {
  for_each_element(w, row, range, image_rows, [&](std::int64_t from, std::int64_t first, std::int64_t n) {
    const T* gradients = g + first;
    T* to = dx + from;
    std::int64_t stride = w.x.stride;
    if (stride == 1) return for_each_index(n, [=](std::int64_t i) { to[i] += gradients[i]; });
    for_each_index(n, [=](std::int64_t i) { to[i * stride] += gradients[i]; });
  });
}
template <class T>
void finish_gradients(MaxPool, const Windows&, std::int64_t, T*) {}
template <class T>
void finish_gradients(AvgPool, const Windows& w, std::int64_t n, T* dx) {
  auto size = static_cast<T>(w.window_size());
  for_each_index(n, [=](std::int64_t i) { dx[i] /= size; });
}

// These rows of the images. Each takes the gradients of the windows that it is in, in their order.
template <class Pool, class T>
void pool_grad_rows(const T* g, const T* x, const Windows& w, RowRange rows, T* dx) {
  if (w.pixels() > std::numeric_limits<std::int32_t>::max()) {
    for (std::int64_t i = rows.first * w.x.in; i < rows.end * w.x.in; ++i) dx[i] = gradient_at<Pool>(g, x, w, i);
    return;
  }
  for_each_plane(rows, w.y.in, [&](std::int64_t plane, Span image_rows) {
    T *of_plane = dx + plane * w.pixels(), *first = of_plane + image_rows.begin * w.x.in;
    std::int64_t size = (image_rows.end - image_rows.begin) * w.x.in;
    std::fill_n(first, size, T(0));
    for (std::int64_t oy = 0; oy < w.y.out; ++oy) {
      Span seen = elements_of(w.y, oy);
      if (seen.end <= image_rows.begin || seen.begin >= image_rows.end) continue;
      const T* row = g + (plane * w.y.out + oy) * w.x.out;
      for_each_block(w, [&](Span range) {
        pool_row_grad(Pool{}, row, x + plane * w.pixels(), w, oy, range, image_rows, of_plane);
      });
    }
    finish_gradients(Pool{}, w, size, first);
  });
}

// Tiles are rows of windows, and rows of the images for the gradients.
std::int64_t rows_of(const TensorType& type) {
  std::int64_t width = type.shape[-1];
  return width == 0 ? 0 : type.shape.size() / width;
}
std::int64_t count_pool_tiles(const BodyArgs& a) {
  const auto& w = a.local<Windows>();
  return count_row_tiles(rows_of(a.out_type(0)), w.x.out * w.window_size());
}
template <class Pool>
void run_pool_tiles(const CpuArgs& a, std::int64_t first, std::int64_t end) {
  const auto& w = a.local<Windows>();
  const RowRange rows(first, end, rows_of(a.out_type(0)), w.x.out * w.window_size());
  for_dtype<float, double>(a.out_type(0).dtype, [&]<class T>() { pool_rows<Pool>(a.in<T>(0), w, rows, a.out<T>(0)); });
}
template <class Pool>
constexpr Tiles kPoolTiles{count_pool_tiles, run_pool_tiles<Pool>};
template <class Pool, class T>
void pool_grad_on(CudaArgs& a) {
  std::int64_t size = a.out_type(0).shape.size();
  a.launch(pool_grad<Pool, T>, launch_size(size), a.in<T>(0), a.in<T>(1), a.out<T>(0), a.local<Windows>(), size);
}
std::int64_t count_pool_grad_tiles(const BodyArgs& a) {
  return count_row_tiles(rows_of(a.out_type(0)), a.local<Windows>().x.in);
}
template <class Pool>
void run_pool_grad_tiles(const CpuArgs& a, std::int64_t first, std::int64_t end) {
  const auto& w = a.local<Windows>();
  const RowRange rows(first, end, rows_of(a.out_type(0)), w.x.in);
  for_dtype<float, double>(a.out_type(0).dtype,
                           [&]<class T>() { pool_grad_rows<Pool>(a.in<T>(0), a.in<T>(1), w, rows, a.out<T>(0)); });
}
template <class Pool>
constexpr Tiles kPoolGradTiles{count_pool_grad_tiles, run_pool_grad_tiles<Pool>};

template <class Pool>
void pool_any(CudaArgs& a) {
  for_dtype<float, double>(a.out_type(0).dtype, [&]<class T>() { pool_on<Pool, T>(a); });
}
template <class Pool>
void pool_grad_any(CudaArgs& a) {
  for_dtype<float, double>(a.out_type(0).dtype, [&]<class T>() { pool_grad_on<Pool, T>(a); });
}

// --- what max_pool2d chose, of another image

template <class T>
void choose_on(CudaArgs& a) {
  std::int64_t size = a.out_type(0).shape.size();
  a.launch(choose<T>, launch_size(size), a.in<T>(0), a.in<T>(1), a.out<T>(0), a.local<Windows>(), size);
}
void choose_any(CudaArgs& a) {
  for_dtype<float, double>(a.out_type(0).dtype, [&]<class T>() { choose_on<T>(a); });
}
void run_choose_tiles(const CpuArgs& a, std::int64_t first, std::int64_t end) {
  const auto& w = a.local<Windows>();
  const RowRange rows(first, end, rows_of(a.out_type(0)), w.x.out * w.window_size());
  for_dtype<float, double>(a.out_type(0).dtype, [&]<class T>() {
    for (std::int64_t i = rows.first * w.x.out; i < rows.end * w.x.out; ++i)
      a.out<T>(0)[i] = chosen_at(a.in<T>(0), a.in<T>(1), w, i);
  });
}
constexpr Tiles kChooseTiles{count_pool_tiles, run_choose_tiles};

// Inputs: u, and the image whose largest elements it takes.
void infer_choose(InferArgs& a) {
  a.expect_inputs(2);
  a.expect_input(0, a.in(1));
  const TensorType made = a.outputs_of(infer_pool, {a.in(1)})[0];
  a.out(made.dtype, made.shape);
}

Prepared prepare_choose(const PrepareArgs& p) {
  load_kernels<choose<float>, choose<double>>(p);
  return prepare_windows(p, p.in(1).shape);
}

// Inputs: gradient, image (of avg_pool2d the shape only).
void infer_pool_grad(InferArgs& a) {
  a.expect_inputs(2);
  a.expect_input(0, a.outputs_of(infer_pool, {a.in(1)})[0]);
  a.out(a.in(0).dtype, a.in(1).shape);
}
Access avg_grad_access(int operand, int) { return operand == 1 ? Access::shape_only : Access::read; }

std::vector<Value> avg_grad_grad(const GradArgs& a) {
  const auto& [window, options] = a.attrs.as<PoolAttrs>();
  return {avg_pool2d(Arg(a.grads[0], a.where), window, options), Value()};
}

// Each is linear in its first operand, and the other's gradient.
std::vector<Value> max_grad_grad(const GradArgs& a);
std::vector<Value> choose_grad(const GradArgs& a);

const OpDef max_grad_op{.name = "max_pool2d_grad",
                        .infer = infer_pool_grad,
                        .traits = {.kernels_wait = true},
                        .prepare = prepare_pool<MaxPool, 1>,
                        .bodies = {kPoolGradTiles<MaxPool>, pool_grad_any<MaxPool>},
                        .grad = max_grad_grad};
const OpDef choose_op{.name = "max_pool2d_choose",
                      .infer = infer_choose,
                      .traits = {.kernels_wait = true},
                      .prepare = prepare_choose,
                      .bodies = {kChooseTiles, choose_any},
                      .grad = choose_grad};
const OpDef avg_grad_op{.name = "avg_pool2d_grad",
                        .infer = infer_pool_grad,
                        .access = avg_grad_access,
                        .traits = {.kernels_wait = true},
                        .prepare = prepare_pool<AvgPool, 1>,
                        .bodies = {kPoolGradTiles<AvgPool>, pool_grad_any<AvgPool>},
                        .grad = avg_grad_grad};

std::vector<Value> max_grad_grad(const GradArgs& a) {
  return {emit(choose_op, {Arg(a.grads[0], a.where), a.inputs[1]}, a.attrs)[0], Value()};
}
std::vector<Value> choose_grad(const GradArgs& a) {
  return {emit(max_grad_op, {Arg(a.grads[0], a.where), a.inputs[1]}, a.attrs)[0], Value()};
}

template <const OpDef& grad_op>
std::vector<Value> pool2d_grad(const GradArgs& a) {
  return emit(grad_op, {Arg(a.grads[0], a.where), a.inputs[0]}, a.attrs);
}

const OpDef max_op{.name = "max_pool2d",
                   .infer = infer_pool,
                   .traits = {.kernels_wait = true},
                   .prepare = prepare_pool<MaxPool, 0>,
                   .bodies = {kPoolTiles<MaxPool>, pool_any<MaxPool>},
                   .grad = pool2d_grad<max_grad_op>};
const OpDef avg_op{.name = "avg_pool2d",
                   .infer = infer_pool,
                   .traits = {.kernels_wait = true},
                   .prepare = prepare_pool<AvgPool, 0>,
                   .bodies = {kPoolTiles<AvgPool>, pool_any<AvgPool>},
                   .grad = pool2d_grad<avg_grad_op>};

}  // namespace

Value max_pool2d(Arg x, std::array<std::int64_t, 2> window, Pool2dOptions options, Placement placement) {
  return emit(max_op, {x}, PoolAttrs{window, options}, placement)[0];
}
Value avg_pool2d(Arg x, std::array<std::int64_t, 2> window, Pool2dOptions options, Placement placement) {
  return emit(avg_op, {x}, PoolAttrs{window, options}, placement)[0];
}

std::span<const FileOp> pool_file_ops() {
  static constexpr FileOp ops[] = {file_op<PoolAttrs>(max_op), file_op<PoolAttrs>(avg_op),
                                   file_op<PoolAttrs>(max_grad_op), file_op<PoolAttrs>(choose_op),
                                   file_op<PoolAttrs>(avg_grad_op)};
  return ops;
}

}  // namespace graphsink
