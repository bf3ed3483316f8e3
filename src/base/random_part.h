// The part for which random ops draw that this thread builds.
#pragma once

#include <cstdint>

namespace graphsink {

// That of the innermost RandomPart; 0 without.
std::int64_t random_part();

}  // namespace graphsink
