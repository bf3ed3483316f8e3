// RandomPart: random numbers for a part of a tensor, such as the rows of one rank.
#pragma once

#include <cstddef>
#include <cstdint>

#include "graphsink/error.h"
#include "graphsink/version.h"

namespace GRAPHSINK_PUBLIC graphsink {

// As long as a RandomPart lives, the random ops that its thread builds, dropout() included, draw for a part of a larger
// tensor: part r of tensors [n, ...] gets the numbers that elements r * n to (r + 1) * n - 1 along the first axis of
// the whole would get. So ranks that train on parts of one batch draw what one process draws for the whole batch, if
// their graphs have equal numbers of nodes in front of these ops, their programs have one seed, and all parts have one
// size:
//
//   RandomPart part(comm.rank());
//   Value loss = model(x, t);  // with dropout, along whose first axis the batch lies
//
// Without one, all ranks draw the same numbers. Gradients draw what the op in front of them has drawn, wherever they
// are built. In a loop the part is one of what an iteration draws.
//
// A RandomPart is a variable of a block: it ends before the one around it, on the thread that made it, and other
// threads do not see it. The innermost counts; in RandomPart(0) ops draw as they do without.
class RandomPart {
 public:
  // Parts are counted from 0. Throws Error for a negative number. The ops throw Error where a part is beyond the first
  // 2^33 numbers, which is all that an op can draw in a step.
  explicit RandomPart(std::int64_t number, Where where = Where::current());
  ~RandomPart();
  RandomPart(const RandomPart&) = delete;
  RandomPart& operator=(const RandomPart&) = delete;
  static void* operator new(std::size_t) = delete;
  static void* operator new[](std::size_t) = delete;

 private:
  std::int64_t outer_;
};

}  // namespace graphsink
