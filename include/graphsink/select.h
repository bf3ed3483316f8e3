// Results whose size depends on data: the elements that a mask selects, the different elements of a vector.
//
// Such a result is Padded: it has as many rows as its ResultSize says, first those that were found, then zeros, and
// `count` says how many were found. Ops work on all rows; the functions below, and where() with valid_mask(), leave the
// padding out.
//
//   Value mask = greater(x, 1.0);
//   Padded few = masked_select(x, mask, 64);                   // 64 rows; a step that finds more elements fails
//   Padded all = masked_select(x, mask);                       // as many rows as elements
//   Padded some = masked_select(x, mask, next_power_of_two()); // rounded up, so that few sizes come up
//
// With an upper bound, the size of the result is fixed, and everything stays in one launch. Without one, a step is
// planned for the size that the step before had. If it finds another size, it commits nothing, and run() plans for that
// size and runs the step again, before it returns: each size has a plan and a captured graph of its own, in the shape
// cache of the program. So a step whose size is the one before costs nothing more, but run() waits for its steps. Ops
// with an effect on the host would run twice, and are refused; so is a size without a bound in a loop.
#pragma once

#include <cstdint>
#include <variant>
#include <vector>

#include "graphsink/bucket.h"
#include "graphsink/graph.h"
#include "graphsink/version.h"

namespace GRAPHSINK_PUBLIC graphsink {

// How many rows a result has whose number of elements depends on data.
class ResultSize {
 public:
  ResultSize() = default;  // as many as there are elements
  // `most` rows, an upper bound of at least 0.
  ResultSize(std::int64_t most) : rule_(most) {}  // NOLINT: implicit
  // The same.
  ResultSize(int most) : rule_(std::int64_t{most}) {}  // NOLINT: implicit
  // The number of elements rounded up by a rule.
  ResultSize(Bucket bucket) : rule_(std::move(bucket)) {}  // NOLINT: implicit
  // Whether an upper bound was given, so that the number of rows is known before the program runs.
  bool is_bound() const { return std::holds_alternative<std::int64_t>(rule_); }
  // Returns the upper bound. Requires is_bound().
  std::int64_t most() const { return std::get<std::int64_t>(rule_); }
  // Returns the rule by which the number of elements is rounded up. Requires that is_bound() is false.
  const Bucket& bucket() const { return std::get<Bucket>(rule_); }

 private:
  std::variant<Bucket, std::int64_t> rule_;
};

// Rows that were found, and zeros behind them.
struct Padded {
  Value values;  // [rows, ...]; rows from `count` on are zeros
  Value count;   // i32 scalar
};

// The indices of the elements of x that are not zero (NaN is not zero), in ascending order: i32 [rows, axes of x].
// flat_nonzero numbers the elements of x from 0 instead: i32 [rows]. x has any dtype, at least one axis and fewer than
// 2^31 elements. With an upper bound, a step that finds more elements fails. Throws Error for a bound that is negative.
Padded nonzero(Arg x, const ResultSize& size = {}, Placement placement = {});
Padded flat_nonzero(Arg x, const ResultSize& size = {}, Placement placement = {});  // i32 [rows], see nonzero()

// The elements of x where the boolean mask, which has the shape of x, is true, in the order of x: [rows]. The gradient
// goes to the elements that were selected.
Padded masked_select(Arg x, Arg mask, const ResultSize& size = {}, Placement placement = {});

// Result of unique().
struct Unique {
  Padded values;  // the different elements of x, ascending
  Value counts;   // i32 [rows]: how often each is in x
  Value inverse;  // i32, of the shape of x: the place of each element of x in `values`
};
// The different elements of x, of any dtype but boolean. All NaNs are different, and come last; 0.0 and -0.0 are equal,
// and the first of them is kept. The gradient of the values goes to the first of equal elements.
Unique unique(Arg x, const ResultSize& size = {}, Placement placement = {});

// For each row, whether it is one of those that were found: a bool vector, true and then false.
Value valid_mask(const Padded& x, Placement placement = {}, Where where = Where::current());

// The sum of the rows that were found. Padding has no part in the result or the gradient, whatever it holds. Takes
// floats, i32 and i64.
Value sum(const Padded& x, Placement placement = {}, Where where = Where::current());
// The mean of the rows that were found, NaN if there are none. Padding has no part in the result or the gradient. Takes
// floats.
Value mean(const Padded& x, Placement placement = {}, Where where = Where::current());
// Softmax along the first axis over the rows that were found; 0 in the padding, which has no part in the gradient,
// either. Takes floats.
Padded softmax(const Padded& x, Placement placement = {}, Where where = Where::current());
// The rows of x, which has at least one, at the indices that were found, [rows]: see gather(). The padding is zeros.
Padded gather(Arg x, const Padded& indices, Placement placement = {});
// Adds row i of updates to row indices[i] of base, which has at least one, for the indices that were found: see
// scatter_add().
Value scatter_add(Arg base, const Padded& indices, Arg updates, Placement placement = {});

// Options of sample_top_p().
struct TopPOptions {
  double temperature = 1;  // logits are divided by it
};
// Draws an index from each row of logits [n, classes], from the smallest set of the most probable classes whose
// probabilities add up to at least p ("nucleus sampling": Holtzman et al. 2020, "The Curious Case of Neural Text
// Degeneration"): i32 [n]. p = 1 draws from all classes. The draw depends on the same as random_uniform. Throws Error
// unless 0 < p <= 1 and the temperature is positive.
Value sample_top_p(Arg logits, double p, const TopPOptions& options = {}, Placement placement = {});

}  // namespace graphsink
