// Whether the arithmetic of the calling thread treats denormal numbers as zeros.
#pragma once

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace graphsink {

// While a FlushDenormals lives, its thread reads denormal operands as zeros and writes zeros in place of denormal
// results, or, if `flush` is false, computes with denormals as IEEE 754 says. Then the thread's own setting is in force
// again. Processors are up to a hundred times slower with denormals. Implemented for x86-64; elsewhere it does nothing.
class FlushDenormals {
 public:
#if defined(__x86_64__)
  explicit FlushDenormals(bool flush) noexcept : outer_(_mm_getcsr()) {
    unsigned wanted = flush ? outer_ | kFlushAll : outer_ & ~kFlushAll;
    is_changed_ = wanted != outer_;
    if (is_changed_) _mm_setcsr(wanted);
  }
  ~FlushDenormals() {
    if (is_changed_) _mm_setcsr(outer_);
  }
#else
  explicit FlushDenormals(bool) noexcept {}
#endif
  FlushDenormals(const FlushDenormals&) = delete;
  FlushDenormals& operator=(const FlushDenormals&) = delete;

 private:
#if defined(__x86_64__)
  static constexpr unsigned kFlushAll = 0x8040;  // the bits "flush to zero" and "denormals are zeros" of MXCSR
  unsigned outer_;
  bool is_changed_;
#endif
};

}  // namespace graphsink
