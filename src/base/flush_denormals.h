// Whether the arithmetic of the calling thread treats denormal numbers as zeros.
#pragma once

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace graphsink {

// While a FlushDenormals lives, its thread reads denormal operands as zeros and writes zeros in place of denormal
// results, or, if `flush` is false, computes with denormals as IEEE 754 says. Then the thread's own setting is in force
// again. Processors are up to a hundred times slower with denormals. Implemented for x86-64 and 64-bit ARM; elsewhere
// it does nothing.
class FlushDenormals {
 public:
#if defined(__x86_64__) || defined(__aarch64__)
  explicit FlushDenormals(bool flush) noexcept : outer_(control()) {
    const Control wanted = flush ? outer_ | kFlushAll : outer_ & ~kFlushAll;
    is_changed_ = wanted != outer_;
    if (is_changed_) set_control(wanted);
  }
  ~FlushDenormals() {
    if (is_changed_) set_control(outer_);
  }
#else
  explicit FlushDenormals(bool) noexcept {}
#endif
  FlushDenormals(const FlushDenormals&) = delete;
  FlushDenormals& operator=(const FlushDenormals&) = delete;

#if defined(__x86_64__)
  using Control = unsigned;
  static constexpr Control kFlushAll = 0x8040;  // the bits "flush to zero" and "denormals are zeros" of MXCSR
  // The thread's control register of floating-point arithmetic.
  static Control control() noexcept { return _mm_getcsr(); }
  static void set_control(Control control) noexcept { _mm_setcsr(control); }
#elif defined(__aarch64__)
  using Control = unsigned long;
  static constexpr Control kFlushAll = 1ul << 24;  // the bit FZ of FPCR, for operands and results
  static Control control() noexcept {
    Control control;
    asm volatile("mrs %0, fpcr" : "=r"(control));
    return control;
  }
  static void set_control(Control control) noexcept { asm volatile("msr fpcr, %0" ::"r"(control) : "memory"); }
#endif

 private:
#if defined(__x86_64__) || defined(__aarch64__)
  Control outer_;
  bool is_changed_;
#endif
};

}  // namespace graphsink
