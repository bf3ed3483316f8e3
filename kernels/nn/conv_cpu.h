// conv2d and its gradients on the CPU: columns of some rows of windows at a time, which stay in a near cache, and their
// products by BLAS.
#pragma once

#include "kernels/nn/columns.h"
#include "kernels/support/blas.h"

namespace graphsink {

struct ConvSizes {
  Windows windows;
  std::int64_t images = 0, channels = 0, filters = 0, groups = 1;
  bool is_plain = false;  // the columns are the image itself

  std::int64_t image_size() const { return channels * windows.pixels(); }
  std::int64_t column_rows() const { return channels * windows.window_size(); }  // rows of columns, all groups
  std::int64_t columns_size() const { return column_rows() * windows.windows(); }
  std::int64_t result_size() const { return filters * windows.windows(); }
  std::int64_t filter_size() const { return filters * column_rows() / groups; }
  bool has_products() const { return images > 0 && columns_size() > 0 && filters > 0; }

  std::int64_t group_channels() const { return channels / groups; }
  std::int64_t group_filters() const { return filters / groups; }
  std::int64_t group_rows() const { return column_rows() / groups; }  // rows of columns, one group
};

// How the CPU divides the work. A unit is computed alone; a tile is some units, one after another, in its part of the
// workspace. Units of the convolution are some rows of the result of an image. Units of the gradients are some channels
// of a group, of an image or of the filters.
struct ConvUnits {
  std::int64_t rows = 1;      // rows of windows whose columns are made at once
  std::int64_t channels = 0;  // channels whose columns are made at once
  std::int64_t units = 0, tiles = 1;
  int distance = 0;          // between rows of columns
  std::int64_t scratch = 0;  // elements for the columns of a tile
};
enum class ConvOperand : std::uint8_t { image, filters, result };  // tensors of conv2d

constexpr std::int64_t pieces(std::int64_t size, std::int64_t piece) {
  return piece == 0 ? 0 : (size + piece - 1) / piece;
}

// `out` is what is computed.
inline ConvUnits conv_units(const ConvSizes& s, ConvOperand out, std::int64_t element_bytes) {
  constexpr std::int64_t kElements = 1 << 14;  // column elements at a time; more if these are under kWindows windows
  constexpr std::int64_t kWindows = 128;       // fewest windows, so that BLAS seldom copies the other operand
  constexpr std::int64_t kChannelRows = 64;    // rows of columns of a unit, at most, unless it has one channel
  constexpr std::int64_t kMostTiles = 16, kMostBytes = 16 << 20;
  const Windows& w = s.windows;
  ConvUnits u;
  bool is_result = out == ConvOperand::result;
  std::int64_t most_channels =
      is_result ? s.group_channels() : std::max<std::int64_t>(1, kChannelRows / w.window_size());
  u.channels = pieces(s.group_channels(), pieces(s.group_channels(), most_channels));
  std::int64_t column_rows = u.channels * w.window_size();
  std::int64_t at_once = std::max(kWindows, kElements / std::max<std::int64_t>(1, column_rows));
  u.rows =
      std::clamp<std::int64_t>(at_once / std::max<std::int64_t>(1, w.x.out), 1, std::max<std::int64_t>(1, w.y.out));
  u.distance = static_cast<int>(u.rows * w.x.out + 8);  // not a power of two, whose multiples share places in a cache
  u.scratch = s.is_plain ? 0 : column_rows * u.distance;
  std::int64_t blocks = s.groups * pieces(s.group_channels(), u.channels);
  u.units = is_result ? s.images * pieces(w.y.out, u.rows) : out == ConvOperand::image ? s.images * blocks : blocks;
  std::int64_t in_memory = u.scratch == 0 ? kMostTiles : kMostBytes / (u.scratch * element_bytes);
  u.tiles = std::clamp<std::int64_t>(std::min(in_memory, kMostTiles), 1, std::max<std::int64_t>(1, u.units));
  return u;
}

// f(unit) for the units of tiles [first, end).
template <class F>
void for_each_unit(const ConvUnits& u, std::int64_t first, std::int64_t end, const F& f) {
  for (std::int64_t unit = first * u.units / u.tiles; unit < end * u.units / u.tiles; ++unit) f(unit);
}

// f(rows) for the rows of windows, some at a time.
template <class F>
void for_each_row_block(const ConvSizes& s, const ConvUnits& u, const F& f) {
  for (std::int64_t y = 0; y < s.windows.y.out; y += u.rows) f(Span{y, std::min(s.windows.y.out, y + u.rows)});
}

// The columns of some channels and rows of windows, as an operand. Unless they are the image itself, they are made.
template <class T>
BlasMatrix<T> columns_of(const ConvSizes& s, const ConvUnits& u, const T* planes, std::int64_t channels, Span rows,
                         T* scratch) {
  const Windows& w = s.windows;
  if (s.is_plain) return {planes + rows.begin * w.x.out, static_cast<int>(w.windows())};
  im2col(w, channels, rows, planes, scratch, u.distance);
  return {scratch, u.distance};
}

// The channels of a unit of a gradient, in their group and in the image.
struct ConvChannels {
  std::int64_t image, group, first, count;

  ConvChannels(const ConvSizes& s, const ConvUnits& u, std::int64_t unit) {
    std::int64_t blocks = pieces(s.group_channels(), u.channels);
    image = unit / (blocks * s.groups);
    group = unit / blocks % s.groups;
    first = unit % blocks * u.channels;
    count = std::min(u.channels, s.group_channels() - first);
  }
  std::int64_t in_image(const ConvSizes& s) const { return group * s.group_channels() + first; }
};

// result = filters x columns, for each group.
template <class T>
void convolve(const ConvSizes& s, const ConvUnits& u, std::int64_t unit, const T* x, const T* w, T* scratch, T* out) {
  std::int64_t blocks = pieces(s.windows.y.out, u.rows), image = unit / blocks, first = unit % blocks * u.rows;
  Span rows{first, std::min(s.windows.y.out, first + u.rows)};
  auto filters = static_cast<int>(s.group_filters()), depth = static_cast<int>(s.group_rows());
  auto windows = static_cast<int>((rows.end - rows.begin) * s.windows.x.out);
  for (std::int64_t group = 0; group < s.groups; ++group) {
    const T* planes = x + image * s.image_size() + group * s.group_channels() * s.windows.pixels();
    T* to = out + image * s.result_size() + group * filters * s.windows.windows() + rows.begin * s.windows.x.out;
    multiply(filters, windows, depth, T(1), BlasMatrix<T>{w + group * filters * depth, depth},
             columns_of(s, u, planes, s.group_channels(), rows, scratch), T(0), to,
             static_cast<int>(s.windows.windows()));
  }
}

// columns = filters^T x gradient of the result. They are added up to the gradient of the image.
template <class T>
void convolve_back(const ConvSizes& s, const ConvUnits& u, std::int64_t unit, const T* g, const T* w, T* scratch,
                   T* dx) {
  ConvChannels c(s, u, unit);
  const Windows& windows = s.windows;
  auto all_windows = static_cast<int>(windows.windows()), filters = static_cast<int>(s.group_filters());
  T* planes = dx + c.image * s.image_size() + c.in_image(s) * windows.pixels();
  const T* of_group = g + c.image * s.result_size() + c.group * filters * windows.windows();
  BlasMatrix<T> lhs{w + c.group * filters * s.group_rows() + c.first * windows.window_size(),
                    static_cast<int>(s.group_rows()), true};
  if (!s.is_plain) std::fill_n(planes, c.count * windows.pixels(), T(0));
  for_each_row_block(s, u, [&](Span rows) {
    auto n = static_cast<int>((rows.end - rows.begin) * windows.x.out);
    std::int64_t first = rows.begin * windows.x.out;
    multiply(static_cast<int>(c.count * windows.window_size()), n, filters, T(1), lhs,
             BlasMatrix<T>{of_group + first, all_windows}, T(0), s.is_plain ? planes + first : scratch,
             s.is_plain ? all_windows : u.distance);
    if (!s.is_plain) add_columns(windows, c.count, rows, scratch, u.distance, planes);
  });
}

// gradient of the filters = the sum of gradient of the result x columns^T over images.
template <class T>
void correlate(const ConvSizes& s, const ConvUnits& u, std::int64_t unit, const T* x, const T* g, T* scratch, T* dw) {
  ConvChannels c(s, u, unit);
  const Windows& windows = s.windows;
  auto filters = static_cast<int>(s.group_filters()), depth = static_cast<int>(s.group_rows());
  T* to = dw + c.group * filters * depth + c.first * windows.window_size();
  bool adds = false;
  for (std::int64_t image = 0; image < s.images; ++image)
    for_each_row_block(s, u, [&](Span rows) {
      const T* planes = x + image * s.image_size() + c.in_image(s) * windows.pixels();
      const T* of_group = g + image * s.result_size() + c.group * filters * windows.windows();
      BlasMatrix<T> columns = columns_of(s, u, planes, c.count, rows, scratch);
      columns.is_transposed = true;
      multiply(filters, static_cast<int>(c.count * windows.window_size()),
               static_cast<int>((rows.end - rows.begin) * windows.x.out), T(1),
               BlasMatrix<T>{of_group + rows.begin * windows.x.out, static_cast<int>(windows.windows())}, columns,
               adds ? T(1) : T(0), to, depth);
      adds = true;
    });
}

}  // namespace graphsink
