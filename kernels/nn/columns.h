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

// f(first, row, inside) for each row of columns: column ox is element first + ox * stride of the planes where it lies
// `inside`, else padding.
template <class T, class F>
void for_each_column_row(T* columns, const Windows& w, std::int64_t planes, const F& f) {
  for (std::int64_t plane = 0; plane < planes; ++plane)
    for (std::int64_t ky = 0; ky < w.y.window; ++ky)
      for (std::int64_t kx = 0; kx < w.x.window; ++kx) {
        Span inside = windows_with(w.x, kx);
        for (std::int64_t oy = 0; oy < w.y.out; ++oy, columns += w.x.out) {
          std::int64_t iy = w.y.element(oy, ky);
          std::int64_t first = plane * w.pixels() + iy * w.x.in + kx * w.x.dilation - w.x.padding;
          f(first, columns, iy < 0 ? Span{0, 0} : inside);
        }
      }
}

template <class T>
void im2col(CudaArgs& a, const Windows& w, std::int64_t planes, const T* x, T* columns) {
  std::int64_t size = planes * w.window_size() * w.windows();
  LaunchSize launch = launch_size(size);
  a.launch(fill_columns<T>, launch.grid, launch.block, 0, x, columns, w, size);
}
template <class T>
void im2col(const CpuArgs&, const Windows& w, std::int64_t planes, const T* x, T* columns) {
  std::int64_t stride = w.x.stride;
  for_each_column_row(columns, w, planes, [&](std::int64_t first, T* row, Span inside) {
    std::fill_n(row, inside.begin, T(0));
    if (stride == 1) {
      std::copy_n(x + first + inside.begin, inside.end - inside.begin, row + inside.begin);
    } else {
      for (std::int64_t ox = inside.begin; ox < inside.end; ++ox) row[ox] = x[first + ox * stride];
    }
    std::fill(row + inside.end, row + w.x.out, T(0));
  });
}

template <class T>
void col2im(CudaArgs& a, const Windows& w, std::int64_t planes, const T* columns, T* x) {
  std::int64_t size = planes * w.pixels();
  LaunchSize launch = launch_size(size);
  a.launch(sum_columns<T>, launch.grid, launch.block, 0, columns, x, w, size);
}
template <class T>
void col2im(const CpuArgs&, const Windows& w, std::int64_t planes, const T* columns, T* x) {
  std::int64_t stride = w.x.stride;
  std::fill_n(x, planes * w.pixels(), T(0));
  for_each_column_row(columns, w, planes, [&](std::int64_t first, const T* row, Span inside) {
    T* sums = x + first + inside.begin * stride;
    row += inside.begin;
    if (stride == 1) {
      for_each_index(inside.end - inside.begin, [=](std::int64_t i) { sums[i] += row[i]; });
    } else {
      for (std::int64_t i = 0; i < inside.end - inside.begin; ++i) sums[i * stride] += row[i];
    }
  });
}

}  // namespace graphsink
