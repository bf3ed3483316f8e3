// Whether groups of element-wise ops have the bits of the separate ops.
#pragma once

#include <functional>

#include "program_fixture.h"
#include "same_outputs.h"

namespace graphsink::testing {

// Runs the graph in all modes with and without groups, and compares the bits of all outputs. `make` builds it twice, so
// that each has Variables of its own.
inline void expect_same_bits(const std::function<void(Graph&)>& make) {
  Graph g, same;
  make(g);
  make(same);
  Program separate = compile(g, {.target = cpu(), .tuning = {.fuse = false}}), fused = compile(same, {.target = cpu()});
  expect_same_outputs(separate, fused);
}

}  // namespace graphsink::testing
