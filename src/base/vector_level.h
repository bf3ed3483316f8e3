// Which vector instructions the loops of CPU bodies use.
#pragma once

#include <cstdint>

namespace graphsink {

enum class VectorLevel : std::uint8_t {
  baseline,  // SSE2, which every x86-64 processor has; the only one on other processors
  avx2,      // x86-64-v3 of the psABI
  avx512,    // x86-64-v4
};

// The highest level of this processor. GRAPHSINK_VECTOR_LEVEL=baseline or =avx2 lowers it, for a comparison: results
// have the same bits at every level. It is read once per process; another value is ignored with a warning.
VectorLevel vector_level() noexcept;
const char* to_string(VectorLevel level) noexcept;

// Whether the processor computes vectors of 512 bits as two of 256, so that a body may as well use the shorter ones:
// AMD's Zen 4 does.
bool halves_avx512() noexcept;

}  // namespace graphsink
