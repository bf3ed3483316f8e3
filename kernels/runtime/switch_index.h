// The op that checks the index of a switch_.
#pragma once

#include "graphsink/op.h"

namespace graphsink {

// Input 0: one i32, i64 or u8. Output 0: the same as an i32. If it is not one of 0 .. bodies - 1, the step fails, and
// the output is 0.
extern const OpDef switch_index_op;
struct SwitchIndexAttrs {
  std::int64_t bodies = 1;
  static auto fields(auto& s) { return std::tie("bodies", s.bodies); }
};

}  // namespace graphsink
