// RandomPart: random numbers for a part of a tensor, such as the rows of one rank.
#pragma once

#include <cstddef>
#include <cstdint>

#include "graphsink/error.h"
#include "graphsink/version.h"

namespace GRAPHSINK_PUBLIC graphsink {

struct PartOfWhole;

// How the whole is divided whose part a RandomPart names.
struct RandomPartOptions {
  int axis = 0;            // the axis along which tensors are divided; negative counts from behind
  std::int64_t parts = 0;  // number of parts, all of one size; for axis 0 it is not needed, and changes no number
};

// As long as a RandomPart lives, the random ops that its thread builds, dropout() included, draw for a part of a larger
// tensor: part r of tensors [n, ...] gets the numbers that elements r * n to (r + 1) * n - 1 along the first axis of
// the whole would get. So ranks that train on parts of one batch draw what one process draws for the whole batch, in
// which the rows of rank 0 come first, then those of rank 1 (sample_order() deals them in turn instead), if their
// graphs have equal numbers of nodes in front of these ops, their programs have one seed, and all parts have one
// size. Collectives, their gradients, average() and norms of divided parameters are no nodes in this count;
// apply_sharded() and the gradient of cross_entropy_parallel() are, so build random ops in front of these:
//
//   RandomPart part(comm.rank());
//   Value loss = model(x, t);  // with dropout, along whose first axis the batch lies
//
// Tensors may be divided along another axis, such as the hidden elements or the heads of ranks that share a model. Then
// part r of tensors [..., n] gets the numbers of elements r * n to (r + 1) * n - 1 along that axis of the whole, which
// has parts * n of them. It lies around the ops alone that draw for divided tensors:
//
//   Value hidden = gelu(matmul(enter_parallel(x, model), widen_columns));
//   {
//     RandomPart part(model.rank(), {.axis = -1, .parts = model.size()});
//     hidden = dropout(hidden, 0.1);
//   }
//
// Without one, all ranks draw the same numbers. Gradients draw what the op in front of them has drawn, wherever they
// are built. In a loop the part is one of what an iteration draws.
//
// A RandomPart is a variable of a block: it ends before the one around it, on the thread that made it, and other
// threads do not see it. One along the first axis, such as the batch, and one along another axis both count: the whole
// is divided along both. The innermost of several along the first axis counts, and so does that of several along other
// axes, whichever these are. Each op sees by its tensor which axis is the first: -1 of a vector is. In RandomPart(0)
// ops draw as they do without one along the first axis, in RandomPart(0, {.axis = -1, .parts = 1}) as without one along
// another axis.
class RandomPart {
 public:
  // Parts are counted from 0. Throws Error for a negative number, for one that is not below `parts`, where that is
  // given, and for an axis other than 0 without parts. The ops throw Error where their tensor does not have the axis
  // and it is divided into more than one part, where all parts along it have more than 2^33 numbers, and where a part
  // is beyond the first 2^33, which is all that an op can draw in a step.
  explicit RandomPart(std::int64_t number, RandomPartOptions options = {}, Where where = Where::current());
  ~RandomPart();
  RandomPart(const RandomPart&) = delete;
  RandomPart& operator=(const RandomPart&) = delete;
  static void* operator new(std::size_t) = delete;
  static void* operator new[](std::size_t) = delete;

 private:
  friend PartOfWhole part_of_whole(int rank);

  std::int64_t number_;
  RandomPartOptions options_;
  const RandomPart* outer_;
};

}  // namespace graphsink
