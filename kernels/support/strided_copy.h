// Strided copies: they gather elements into a dense result.
#pragma once

#include "ir/strided.h"
#include "kernels/support/layout.h"
#include "kernels/support/words.h"

namespace graphsink {

// Word i of the result is word `first` + source.find(i) of the operand. Strides may be negative.
struct StridedCopy {
  Layout<1> source;
  std::int64_t first = 0;
  int word = 1;  // bytes
};

template <class T>
__global__ void copy_strided(const T* x, T* out, Layout<1> source, std::int64_t first) {
  wait_for_inputs();
  for (std::int64_t i = thread_index(); i < source.size; i += all_threads()) out[i] = x[first + source.find(i)];
}

// The layout of the elements of a part, counted from its first.
inline Layout<1> layout_of(const Strided& part) {
  Layout<1> layout;
  layout.size = part.shape.size();
  for (int d = 0; d < part.shape.rank() && layout.size > 0; ++d)
    append(layout, part.shape[d], {part.strides[static_cast<std::size_t>(d)]});
  return layout;
}

// Copies the part of the operand that the map says. If the elements of a row are neighbours, several of them are copied
// as one larger word. This and run_copy() are static, because nvcc gives each file a kernel of its own of a template:
// so a file loads the one that it launches.
static inline StridedCopy make_strided_copy(const PrepareArgs& p, const AxisMap& map) {
  const Strided part = Strided::whole(p.in(0).shape).part(p.out(0).shape, map);
  const auto element = static_cast<std::int64_t>(size_of(p.in(0).dtype));
  const Layout<1> source = layout_of(part);
  StridedCopy copy{source, part.first, static_cast<int>(element)};
  int inner = source.rank - 1;
  if (source.rank > 0 && source.strides[0][inner] == 1) {
    copy.word = word_size({source.dims[inner] * element, part.first * element});
    for (int d = 0; d < inner; ++d) copy.word = word_size({copy.word, source.strides[0][d] * element});
    std::int64_t elements = copy.word / element;
    copy.source.size /= elements;
    copy.source.dims[inner] /= elements;
    for (int d = 0; d < inner; ++d) copy.source.strides[0][d] /= elements;
    copy.first /= elements;
  }
  with_word(copy.word, [&]<class T>(T) { load_kernel(p, copy_strided<T>); });
  return copy;
}

static inline void run_copy(const StridedCopy& copy, CudaArgs& a) {
  with_word(copy.word, [&]<class T>(T) {
    a.launch(copy_strided<T>, launch_size(copy.source.size), a.in<T>(0), a.out<T>(0), copy.source, copy.first);
  });
}

// Writes elements [first, end) of the result to `out`. The offsets that `source` gives count from `x`.
template <class T>
void copy_elements(const Layout<1>& source, const T* x, std::int64_t first, std::int64_t end, T* out) {
  const std::int64_t stride = source.step(0);
  RowWalk walk(source, first);
  for (std::int64_t i = first, count = 0; i < end; i += count, out += count) {
    count = std::min(walk.left(), end - i);
    const T* row = x + walk.offset();
    std::int64_t rows = 1;
    if (stride == 1) {
      if (count == source.row()) rows = std::min(walk.rows_left(), (end - i) / count);
      copy_rows(out, count, row, walk.row_stride(), rows, count);
    } else if (stride == 0) {
      std::fill_n(out, count, *row);
    } else {
      for (std::int64_t j = 0; j < count; ++j) out[j] = row[j * stride];
    }
    walk.next_rows(rows);
    count *= rows;
  }
}

// An OutputPart of an op that copies its first operand.
inline void run_copy_part(const StridedCopy& copy, const CpuArgs& a, std::int64_t begin, std::int64_t size,
                          void* result) {
  const std::int64_t elements = copy.word / static_cast<std::int64_t>(size_of(a.out_type(0).dtype));
  const std::int64_t first = begin / elements, end = first + size / elements;
  with_word(copy.word, [&]<class T>(T) {
    copy_elements(copy.source, a.in<T>(0) + copy.first, first, end, static_cast<T*>(result));
  });
}

inline void run_copy(const StridedCopy& copy, const CpuArgs& a) {
  if (copy.source.size > 0) run_copy_part(copy, a, 0, a.out_type(0).shape.size(), a.out<void>(0));
}

}  // namespace graphsink
