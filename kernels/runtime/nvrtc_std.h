// Parts of the C++ standard library and of the CUDA headers for kernels that NVRTC compiles. NVRTC has neither, and
// finds this text under the names of the standard headers (kernels/runtime/fused_source.h).
#ifndef GRAPHSINK_NVRTC_STD
#define GRAPHSINK_NVRTC_STD

#ifndef INFINITY
#define INFINITY __int_as_float(0x7f800000)
#endif

#if __CUDA_ARCH__ >= 900
__device__ inline void cudaGridDependencySynchronize() { asm volatile("griddepcontrol.wait;" ::: "memory"); }
#endif

namespace std {

using uint8_t = unsigned char;
using uint16_t = unsigned short;
using int32_t = int;
using uint32_t = unsigned;
using int64_t = long;
using uint64_t = unsigned long;
static_assert(sizeof(int64_t) == 8, "graphsink needs a system on which a long has 64 bits");

template <bool condition, class A, class B>
struct conditional {
  using type = A;
};
template <class A, class B>
struct conditional<false, A, B> {
  using type = B;
};
template <bool condition, class A, class B>
using conditional_t = typename conditional<condition, A, B>::type;
template <class A, class B>
inline constexpr bool is_same_v = false;
template <class A>
inline constexpr bool is_same_v<A, A> = true;
template <class T, class... Ts>
inline constexpr bool is_one_of_v = (is_same_v<T, Ts> || ...);
template <class T>
inline constexpr bool is_floating_point_v = is_one_of_v<T, float, double>;
template <class T>
inline constexpr bool is_integral_v = is_one_of_v<T, bool, signed char, unsigned char, short, unsigned short, int,
                                                  unsigned, long, unsigned long, long long, unsigned long long>;
template <class T>
inline constexpr bool is_arithmetic_v = is_floating_point_v<T> || is_integral_v<T>;

template <class To, class From>
constexpr To bit_cast(const From& from) {
  return __builtin_bit_cast(To, from);
}

// Limits of the integer types that elements may have.
template <class T>
struct numeric_limits {
  static constexpr bool has_infinity = false;
  static constexpr T infinity() { return T(0); }
  static constexpr bool kIsSigned = T(-1) < T(0);
  static constexpr T max() { return static_cast<T>(kIsSigned ? ~0ul >> (65 - 8 * sizeof(T)) : ~0ul); }
  static constexpr T lowest() { return kIsSigned ? static_cast<T>(-max() - 1) : T(0); }
};
template <>
struct numeric_limits<float> {
  static constexpr bool has_infinity = true;
  static constexpr float infinity() { return __builtin_bit_cast(float, 0x7f800000u); }
  static constexpr float max() { return 0x1.fffffep127f; }
  static constexpr float lowest() { return -max(); }
};
template <>
struct numeric_limits<double> {
  static constexpr bool has_infinity = true;
  static constexpr double infinity() { return __builtin_bit_cast(double, 0x7ff0000000000000ul); }
  static constexpr double max() { return 0x1.fffffffffffffp1023; }
  static constexpr double lowest() { return -max(); }
};

}  // namespace std

#endif
