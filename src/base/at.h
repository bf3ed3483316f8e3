// Indices are ints, in which -1 says "none"; containers of the standard library count in std::size_t.
#pragma once

#include <cstddef>

namespace graphsink {

constexpr std::size_t at(int index) { return static_cast<std::size_t>(index); }

}  // namespace graphsink
