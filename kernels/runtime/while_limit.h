// The op that fails the step of a loop that did not end in time.
#pragma once

#include "graphsink/op.h"

namespace graphsink {

// No outputs. Fails the step if input 0, one bool, is true: the condition of a loop after its last iteration.
extern const OpDef while_limit_op;
struct WhileLimitAttrs {
  std::int64_t iterations = 0;
  static auto fields(auto& s) { return std::tie("iterations", s.iterations); }
};

}  // namespace graphsink
