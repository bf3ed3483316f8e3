#include "base/vector_level.h"

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "base/log.h"

namespace graphsink {
namespace {

VectorLevel level_of_processor() noexcept {
#if defined(__x86_64__) && !defined(__clang__)
  if (__builtin_cpu_supports("x86-64-v4")) return VectorLevel::avx512;
  if (__builtin_cpu_supports("x86-64-v3")) return VectorLevel::avx2;
#endif
  return VectorLevel::baseline;
}

VectorLevel allowed_level() noexcept {
  const char* text = std::getenv("GRAPHSINK_VECTOR_LEVEL");
  std::string_view wanted = text ? text : "";
  for (VectorLevel level : {VectorLevel::baseline, VectorLevel::avx2, VectorLevel::avx512})
    if (wanted == to_string(level)) return level;
  if (!wanted.empty())
    Log().warn({"GRAPHSINK_VECTOR_LEVEL is \"", wanted, "\", and changes nothing: it may be baseline, avx2 or avx512"});
  return VectorLevel::avx512;
}

}  // namespace

VectorLevel vector_level() noexcept {
  static const VectorLevel level = std::min(level_of_processor(), allowed_level());
  return level;
}

bool halves_avx512() noexcept {
#if defined(__x86_64__) && !defined(__clang__)
  return __builtin_cpu_is("amdfam19h");  // Zen 3, which has no AVX-512, and Zen 4
#else
  return false;
#endif
}

const char* to_string(VectorLevel level) noexcept {
  switch (level) {
    case VectorLevel::baseline:
      return "baseline";
    case VectorLevel::avx2:
      return "avx2";
    case VectorLevel::avx512:
      return "avx512";
  }
  return "unknown";
}

}  // namespace graphsink
