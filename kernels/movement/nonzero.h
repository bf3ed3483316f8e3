// The op behind the functions of select.h: the places of the elements that are not zero.
#pragma once

#include "graphsink/bucket.h"
#include "graphsink/op.h"

namespace graphsink {

struct NonzeroAttrs {
  bool is_flat = false;    // whether places are numbers, or an index for each axis
  std::int64_t most = -1;  // rows of the result; -1: as many as input 1 has, of which only the shape is used
  Bucket bucket{};         // with input 1: which numbers of elements have that many rows
  static auto fields(auto& s) { return std::tie("is_flat", s.is_flat, "most", s.most, "bucket", s.bucket); }
};

// Input 0 is of any dtype and shape. Output 0 is i32, [rows] if flat, else [rows, axes of input 0]: the places in
// ascending order, then zeros. Output 1 is how many places there are, an i32 scalar. The step fails if the rows are too
// few, or do not belong to that number; if there is an input 1, the program then runs it again with other rows.
extern const OpDef nonzero_op;

}  // namespace graphsink
