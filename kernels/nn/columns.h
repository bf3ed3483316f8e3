// im2col and col2im: convolutions as products of matrices.
#pragma once

#include "kernels/nn/window.h"

namespace graphsink {

// columns[plane, ky, kx, oy, ox]: element (ky, kx) of window (oy, ox) of a plane, 0 for padding.
template <class T>
__global__ void fill_columns(const T* x, T* columns, Windows w, std::int64_t size) {
  wait_for_inputs();
  for (std::int64_t i = thread_index(); i < size; i += all_threads()) {
    std::int64_t line = quotient(i, w.x.out), ox = i - line * w.x.out;
    std::int64_t block = quotient(line, w.y.out), oy = line - block * w.y.out;
    std::int64_t above = quotient(block, w.x.window), kx = block - above * w.x.window;
    std::int64_t plane = quotient(above, w.y.window), ky = above - plane * w.y.window;
    std::int64_t iy = w.y.element(oy, ky), ix = w.x.element(ox, kx);
    columns[i] = iy < 0 || ix < 0 ? T(0) : x[plane * w.pixels() + iy * w.x.in + ix];
  }
}

// Each element adds up its columns in the order of (ky, kx).
template <class T>
__global__ void sum_columns(const T* columns, T* x, Windows w, std::int64_t size) {
  wait_for_inputs();
  for (std::int64_t i = thread_index(); i < size; i += all_threads()) {
    std::int64_t line = quotient(i, w.x.in), ix = i - line * w.x.in;
    std::int64_t plane = quotient(line, w.y.in), iy = line - plane * w.y.in;
    const T* first = columns + plane * w.window_size() * w.windows();
    T sum(0);
    for (std::int64_t ky = 0; ky < w.y.window; ++ky) {
      std::int64_t oy = w.y.reader(iy, ky);
      if (oy < 0) continue;
      for (std::int64_t kx = 0; kx < w.x.window; ++kx) {
        std::int64_t ox = w.x.reader(ix, kx);
        if (ox >= 0) sum += first[(ky * w.x.window + kx) * w.windows() + oy * w.x.out + ox];
      }
    }
    x[i] = sum;
  }
}

// out = the sum of `images` arrays of `size` elements, in their order, added to `out` if `adds`.
template <class T>
__global__ void sum_images(const T* parts, T* out, std::int64_t images, std::int64_t size, bool adds) {
  wait_for_inputs();
  for (std::int64_t i = thread_index(); i < size; i += all_threads()) {
    T sum = adds ? out[i] : T(0);
    for (std::int64_t image = 0; image < images; ++image) sum += parts[image * size + i];
    out[i] = sum;
  }
}

template <class T>
void im2col(CudaArgs& a, const Windows& w, std::int64_t planes, const T* x, T* columns) {
  std::int64_t size = planes * w.window_size() * w.windows();
  a.launch(fill_columns<T>, launch_size(size), x, columns, w, size);
}
template <class T>
void col2im(CudaArgs& a, const Windows& w, std::int64_t planes, const T* columns, T* x) {
  std::int64_t size = planes * w.pixels();
  a.launch(sum_columns<T>, launch_size(size), columns, x, w, size);
}
// --- the CPU makes the columns of some rows of windows at a time: columns[plane, ky, kx, oy - rows.begin, ox].
// `distance`: elements from the columns of one window element (ky, kx) to those of the next.

// f(element (0, 0) of the plane, ky, kx, its columns) for each element of a window.
template <class T, class X, class F>
void for_each_column_block(T* columns, X* x, const Windows& w, std::int64_t planes, std::int64_t distance, const F& f) {
  for (std::int64_t plane = 0; plane < planes; ++plane)
    for (std::int64_t ky = 0; ky < w.y.window; ++ky)
      for (std::int64_t kx = 0; kx < w.x.window; ++kx, columns += distance) f(x + plane * w.pixels(), ky, kx, columns);
}

// Copies element (ky, kx) of the windows of these rows, which are not padding.
template <class T>
void copy_columns(const T* from, const Windows& w, Span rows, Span inside, T* columns) {
  std::int64_t out = w.x.out, count = rows.end - rows.begin;
  if (inside.begin == inside.end) {
    std::fill_n(columns, count * out, T(0));
  } else if (w.x.stride == 1 && w.y.stride == 1 && w.x.in == out) {  // all rows lie side by side
    std::copy(from + inside.begin, from + (count - 1) * out + inside.end, columns + inside.begin);
    for (std::int64_t row = 0; row < count; ++row, columns += out) {
      for (std::int64_t ox = 0; ox < inside.begin; ++ox) columns[ox] = T(0);
      for (std::int64_t ox = inside.end; ox < out; ++ox) columns[ox] = T(0);
    }
  } else {
    for (std::int64_t row = 0; row < count; ++row, columns += out, from += w.y.stride * w.x.in) {
      std::fill_n(columns, inside.begin, T(0));
      if (w.x.stride == 1) {
        std::copy(from + inside.begin, from + inside.end, columns + inside.begin);
      } else {
        for (std::int64_t ox = inside.begin; ox < inside.end; ++ox) columns[ox] = from[ox * w.x.stride];
      }
      std::fill(columns + inside.end, columns + out, T(0));
    }
  }
}

template <class T>
void im2col(const Windows& w, std::int64_t planes, Span rows, const T* x, T* columns, std::int64_t distance) {
  std::int64_t size = (rows.end - rows.begin) * w.x.out;
  for_each_column_block(columns, x, w, planes, distance, [&](const T* plane, std::int64_t ky, std::int64_t kx, T* to) {
    Span in_plane = windows_with(w.y, ky);
    Span seen{std::clamp(in_plane.begin, rows.begin, rows.end), std::clamp(in_plane.end, rows.begin, rows.end)};
    std::fill_n(to, (seen.begin - rows.begin) * w.x.out, T(0));
    if (seen.begin < seen.end) {
      std::int64_t first = seen.begin * w.y.stride - w.y.padding + ky * w.y.dilation;
      copy_columns(plane + first * w.x.in + kx * w.x.dilation - w.x.padding, w, seen, windows_with(w.x, kx),
                   to + (seen.begin - rows.begin) * w.x.out);
    }
    std::fill(to + (seen.end - rows.begin) * w.x.out, to + size, T(0));
  });
}

// Adds columns to the elements that they would be copied from.
template <class T>
void add_columns(const Windows& w, std::int64_t planes, Span rows, const T* columns, std::int64_t distance, T* x) {
  std::int64_t stride = w.x.stride;
  for_each_column_block(columns, x, w, planes, distance,
                        [&](T* plane, std::int64_t ky, std::int64_t kx, const T* from) {
                          Span inside = windows_with(w.x, kx);
                          for (std::int64_t oy = rows.begin; oy < rows.end; ++oy, from += w.x.out) {
                            std::int64_t iy = w.y.element(oy, ky);
                            if (iy < 0 || inside.begin == inside.end) continue;
                            T* sums = plane + iy * w.x.in + kx * w.x.dilation - w.x.padding + inside.begin * stride;
                            const T* row = from + inside.begin;
                            if (stride == 1) {
                              for_each_index(inside.end - inside.begin, [=](std::int64_t i) { sums[i] += row[i]; });
                            } else {
                              for (std::int64_t i = 0; i < inside.end - inside.begin; ++i) sums[i * stride] += row[i];
                            }
                          }
                        });
}

}  // namespace graphsink
