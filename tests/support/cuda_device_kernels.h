// Small ops for the tests of the CUDA device. All work on scalars in device memory, in place.
#pragma once

#include <memory>

#include "graphsink/op.h"

namespace graphsink::testing {

// One f32: x = factor * x + offset.
struct Affine {
  float factor = 1, offset = 0;
};
extern const OpDef affine;
// As affine, but takes a while, so that work which should wait for it and does not is found out.
extern const OpDef slow_affine;

// f32 x -> y = x + a float of the host, which a capture keeps as it was: a mistake.
struct HostFloat {
  std::shared_ptr<const float> value;
};
extern const OpDef add_host_float;
// f32 x -> y = x + 1 + 2 + 4 + 8, by one kernel for each addition.
extern const OpDef adds_four_numbers;
// f32 x -> y = x; its kernel is also given an address that it does not use, the void* of its prepare(), which the test
// sets.
extern const OpDef takes_address;

// i32 counter, bool flag: flag = counter > 0, or flag = counter is odd.
extern const OpDef is_positive;
extern const OpDef is_odd;
// i32 counter: --counter, or counter = value of the attribute (int).
extern const OpDef count_down;
extern const OpDef set_count;
// i64 sum: sum += slice of feed 0, whose address and stride are in the tables given by FeedTables.
struct FeedTables {
  const void** rings;
  std::int64_t* strides;
};
extern const OpDef add_slice;
// Ends a step: ++slice, more = slice < end_slice.
extern const OpDef next_slice;

// Bodies that must not be recorded.
extern const OpDef allocates;
extern const OpDef waits;
// Launches more threads than a block may have and does not look at the result.
extern const OpDef launches_too_much;
// The same through CudaArgs::launch, which looks.
extern const OpDef launches_too_much_checked;

}  // namespace graphsink::testing
