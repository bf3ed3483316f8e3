// Small ops for the tests of the CUDA device. They work on scalars in device memory, most of them in place.
#pragma once

#include <memory>

#include "graphsink/op.h"

namespace graphsink::testing {

// Operates on one f32: x = factor * x + offset.
struct Affine {
  float factor = 1, offset = 0;
};
extern const OpDef affine;
// Like affine, but slow, so that a missing wait for it shows.
extern const OpDef slow_affine;

// f32 x -> y = x + a float on the host. This is a mistake: a captured graph keeps the first value of the float.
struct HostFloat {
  std::shared_ptr<const float> value;
};
extern const OpDef add_host_float;
// The same as if its kernel were one of a library.
extern const OpDef library_adds_host_float;
// f32 x -> y = x + 1 + 2 + 4 + 8, with one kernel per addition.
extern const OpDef adds_four_numbers;
// f32 x: x = 2 (x + 1), by two kernels that wait for those in front of them.
extern const OpDef waits_for_inputs;
// The same without waiting, which is a mistake.
extern const OpDef claims_to_wait;
// f32 x -> y = x. Its kernel also receives an address that it does not use: the void* from its prepare(), which the
// test sets.
extern const OpDef takes_address;

// i32 counter, bool flag: flag = counter > 0, or flag = counter is odd.
extern const OpDef is_positive;
extern const OpDef is_odd;
// i32 counter: --counter, or counter = the value of the attribute (int).
extern const OpDef count_down;
extern const OpDef set_count;
// i64 sum: sum += slice of feed 0. The tables given by FeedTables contain the address and stride of the feed.
struct FeedTables {
  const void** rings;
  std::int64_t* strides;
};
extern const OpDef add_slice;
// Ends a step: ++slice, more = slice < end_slice.
extern const OpDef next_slice;

// Ops whose bodies must not be captured.
extern const OpDef allocates;
extern const OpDef waits;
// Launches more threads than a block may have, and does not check the result.
extern const OpDef launches_too_much;
// The same through CudaArgs::launch(), which checks the result.
extern const OpDef launches_too_much_checked;

}  // namespace graphsink::testing
