// On a GPU, exp(), sin() and other functions have other last bits than on a CPU. Kernels of the software device, too,
// so that a test fails which computes on one of them what is expected of the other. Part of simt.h, and of kernels that
// are compiled at run time.
#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

namespace emu {

#ifdef EMU_RUN_TIME_KERNEL
inline constexpr bool is_in_kernel = true;
#else
// Whether a kernel runs on this thread. CPU bodies are compiled from the same functions.
extern constinit thread_local bool is_in_kernel;
#endif

// Changes the last bit of y, but not of results that GPUs return exactly, such as exp(0) and tanh(infinity).
template <class T>
T device_result(T y) {
  static_assert(std::is_same_v<T, float> || std::is_same_v<T, double>);
  using Bits = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>;
  if (!is_in_kernel || y == T(0) || y == T(1) || y == T(-1) || y - y != T(0)) return y;
  return std::bit_cast<T>(std::bit_cast<Bits>(y) ^ 1);
}

}  // namespace emu

#define GRAPHSINK_DEVICE_RESULT(y) ::emu::device_result(y)
