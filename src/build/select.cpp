// Results whose size depends on data: an op for the places of elements that are not zero, and what is made of it.
#include <algorithm>
#include <cmath>
#include <limits>

#include "base/number_text.h"
#include "build/composed.h"
#include "graphsink/select.h"
#include "kernels/movement/nonzero.h"

namespace graphsink {
namespace {

// The size of a result is that of a hidden input, whose size the program sets to what steps find.
Value add_size(const Composed& c, const Value& x, const Bucket& bucket, const Where& where) {
  GraphData& graph = *x.graph();
  for (int region = graph.current_region; region >= 0; region = graph.regions[at(region)].parent) {
    if (!graph.regions[at(region)].is_loop) continue;
    c.fail("it is in a loop, and its result may have another size in each iteration", "give the result an upper bound");
  }
  const Shape shape = x.shape().examples();
  std::int64_t example = bucket.round_up(std::max<std::int64_t>(shape.size() / 2, 1));
  if (example < 0) example = bucket.round_up(1);  // a list of sizes has at least one
  InputAttrs attrs{"size of nonzero " + to_string(where), DType::u8, {open(example, bucket)}};
  attrs.is_result_size = true;
  return add_input(graph, std::move(attrs), where);
}

// Ops of an Eager know the number of elements when they have run.
Padded run_now(const Composed& c, const Value& x, bool is_flat, const ResultSize& size) {
  const NonzeroAttrs all{is_flat, x.shape().size(), {}};
  std::vector<Value> found = emit(nonzero_op, {c.arg(x)}, all, c.placement);
  const auto count = std::int64_t{x.graph()->download_now(found[1]).as<std::int32_t>()[0]};
  const std::int64_t rows = size.bucket().round_up(count);
  if (rows < 0) c.fail(to_string(StepError::size, count), "add a larger size to the bucket");
  std::vector<Value> made = emit(nonzero_op, {c.arg(x)}, NonzeroAttrs{is_flat, rows, {}}, c.placement);
  return {made[0], made[1]};
}

Padded find_nonzero(const Composed& c, const Value& x, bool is_flat, const ResultSize& size, const Where& where) {
  if (size.is_bound()) {
    if (size.most() < 0) c.fail("the upper bound is " + std::to_string(size.most()), "give one of at least 0");
    std::vector<Value> made = emit(nonzero_op, {c.arg(x)}, NonzeroAttrs{is_flat, size.most(), {}}, c.placement);
    return {made[0], made[1]};
  }
  if (x.eager()) return run_now(c, x, is_flat, size);
  const Value rows = add_size(c, x, size.bucket(), where);
  std::vector<Value> made =
      emit(nonzero_op, {c.arg(x), c.arg(rows)}, NonzeroAttrs{is_flat, -1, size.bucket()}, c.placement);
  return {made[0], made[1]};
}

// Whether a row of x was found, in as many axes as x has.
Value found_rows(const Composed& c, const Value& x, const Value& count) {
  Value found = less(c.arg(arange(c.arg(x), 0, i32, c.placement)), c.arg(count), c.placement);
  for (int d = 1; d < x.shape().rank(); ++d) found = unsqueeze(c.arg(found), -1);
  return found;
}

Value with_padding(const Composed& c, const Value& x, const Value& count, double padding) {
  return graphsink::where(c.arg(found_rows(c, x, count)), c.arg(x), c.arg(padding), c.placement);
}

// The rows of indices that were found, and zeros.
Value valid_indices(const Composed& c, const Padded& indices) {
  const Value& values = indices.values;
  const bool are_places = !values.eager() && values.graph()->nodes[at(values.node())].op == &nonzero_op;
  return are_places ? values : with_padding(c, values, indices.count, 0);
}

Value flat(const Composed& c, const Value& x) { return reshape(c.arg(x), {-1}); }

Padded finished(const Composed& c, Padded result) {
  c.finish({result.values, result.count});
  return result;
}

void begin(Composed& c, const Padded& x) {
  if (!x.values.valid() || !x.count.valid()) c.fail("an empty Padded", "pass a result of a function of select.h");
  if (x.values.shape().rank() == 0) c.fail("the values are a scalar, not rows", "give them a first axis");
  c.begin(x.values);
}

}  // namespace

Padded nonzero(Arg x, const ResultSize& size, Placement placement) {
  Composed c("nonzero", x.where(), placement);
  return finished(c, find_nonzero(c, c.values({x})[0], false, size, x.where()));
}

Padded flat_nonzero(Arg x, const ResultSize& size, Placement placement) {
  Composed c("flat_nonzero", x.where(), placement);
  return finished(c, find_nonzero(c, c.values({x})[0], true, size, x.where()));
}

Padded masked_select(Arg x, Arg mask, const ResultSize& size, Placement placement) {
  Composed c("masked_select", x.where(), placement);
  std::vector<Value> in = c.values({x, mask});
  if (in[1].dtype() != DType::boolean) c.fail("the mask is " + to_string(in[1].type()), "pass booleans");
  if (!(in[0].shape().examples() == in[1].shape().examples())) {
    c.fail("the mask has another shape: " + to_string(in[0].type()) + ", " + to_string(in[1].type()),
           "pass a mask of the shape of x; broadcast_to() makes one");
  }
  Padded places = find_nonzero(c, in[1], true, size, x.where());
  return finished(c, gather(c.arg(flat(c, in[0])), places, placement));
}

Unique unique(Arg x, const ResultSize& size, Placement placement) {
  Composed c("unique", x.where(), placement);
  const Value operand = c.values({x})[0];
  if (operand.dtype() == DType::boolean)
    c.fail("takes f32, f64, f16, bf16, i32, i64, u8: " + to_string(operand.type()), "cast() the operand to u8");
  const Sorted sorted = sort(c.arg(flat(c, operand)), 0, {}, placement);
  const Value place = arange(c.arg(sorted.values), 0, i32, placement);
  const Value before = maximum(c.arg(sub(c.arg(place), c.arg(1), placement)), c.arg(0), placement);
  const Value other =
      not_equal(c.arg(sorted.values), c.arg(gather(c.arg(sorted.values), c.arg(before), 0, placement)), placement);
  // True for the first of each group of equal elements.
  const Value first = logical_or(c.arg(equal(c.arg(place), c.arg(0), placement)), c.arg(other), placement);
  const Padded begins = find_nonzero(c, first, true, size, x.where());
  Unique result;
  result.values = gather(c.arg(sorted.values), begins, placement);

  const Value length = dim(c.arg(sorted.values), 0, placement), rows = dim(c.arg(begins.values), 0, placement);
  const Value next = add(c.arg(arange(c.arg(begins.values), 0, i32, placement)), c.arg(1), placement);
  const Value next_row = minimum(c.arg(next), c.arg(sub(c.arg(rows), c.arg(1), placement)), placement);
  const Value end =
      where(c.arg(less(c.arg(next), c.arg(begins.count), placement)),
            c.arg(graphsink::gather(c.arg(begins.values), c.arg(next_row), 0, placement)), c.arg(length), placement);
  result.counts = with_padding(c, sub(c.arg(end), c.arg(begins.values), placement), begins.count, 0);

  const Value number =
      sub(c.arg(cumsum(c.arg(cast(c.arg(first), i32, placement)), 0, {}, placement)), c.arg(1), placement);
  const Value zeros = mul(c.arg(place), c.arg(0), placement);
  const Value inverse = scatter_add(c.arg(zeros), c.arg(sorted.indices), c.arg(number), 0, placement);
  result.inverse = reshape_like(c.arg(inverse), c.arg(operand));
  c.finish({result.values.values, result.values.count, result.counts, result.inverse});
  return result;
}

Value valid_mask(const Padded& x, Placement placement, Where where) {
  Composed c("valid_mask", where, placement);
  begin(c, x);
  return c.finished(less(c.arg(arange(c.arg(x.values), 0, i32, placement)), c.arg(x.count), placement));
}

Value sum(const Padded& x, Placement placement, Where where) {
  Composed c("sum", where, placement);
  begin(c, x);
  return c.finished(sum(c.arg(with_padding(c, x.values, x.count, 0)), {0}, {}, placement));
}

Value mean(const Padded& x, Placement placement, Where where) {
  Composed c("mean", where, placement);
  begin(c, x);
  c.expect_floats(x.values, "the operand");
  const Value wide = c.wide(x.values);
  const Value all = sum(c.arg(with_padding(c, wide, x.count, 0)), {0}, {}, placement);
  return c.finished(c.as(x.values.dtype(), div(c.arg(all), c.arg(c.as(wide.dtype(), x.count)), placement)));
}

Padded softmax(const Padded& x, Placement placement, Where where) {
  Composed c("softmax", where, placement);
  begin(c, x);
  c.expect_floats(x.values, "the operand");
  const Value hidden = with_padding(c, x.values, x.count, -std::numeric_limits<double>::infinity());
  return finished(c, {with_padding(c, softmax(c.arg(hidden), 0, placement), x.count, 0), x.count});
}

Padded gather(Arg x, const Padded& indices, Placement placement) {
  Composed c("gather", x.where(), placement);
  begin(c, indices);
  const Value valid = valid_indices(c, indices);
  return finished(c, {with_padding(c, gather(x, c.arg(valid), 0, placement), indices.count, 0), indices.count});
}

Value scatter_add(Arg base, const Padded& indices, Arg updates, Placement placement) {
  Composed c("scatter_add", base.where(), placement);
  begin(c, indices);
  const std::vector<Value> in = c.values({base, updates});
  const Value valid = valid_indices(c, indices);
  // x + -0.0 is x, also where x is -0.0.
  const Value added = with_padding(c, in[1], indices.count, is_float(in[1].dtype()) ? -0.0 : 0);
  return c.finished(scatter_add(c.arg(in[0]), c.arg(valid), c.arg(added), 0, placement));
}

Value sample_top_p(Arg logits, double p, const TopPOptions& options, Placement placement) {
  Composed c("sample_top_p", logits.where(), placement);
  const Value given = c.values({logits})[0];
  c.expect_floats(given, "the operand");
  if (given.shape().rank() != 2) c.fail("the logits are " + to_string(given.type()), "reshape() them to [n, classes]");
  if (!(p > 0 && p <= 1)) c.fail("p is " + number_text(p), "pass a probability above 0, at most 1");
  if (!(options.temperature > 0) || !std::isfinite(options.temperature))
    c.fail("the temperature is " + number_text(options.temperature), "pass a positive number; argmax() is its limit");
  const Value scaled = div(c.arg(c.wide(given)), c.arg(options.temperature), placement);
  const Sorted sorted = sort(c.arg(softmax(c.arg(scaled), 1, placement)), 1, {.descending = true}, placement);
  const Value before = cumsum(c.arg(sorted.values), 1, {.exclusive = true}, placement);
  const Value kept = less(c.arg(before), c.arg(p), placement);  // the first class, which has 0 before it, always
  const Value mass = where(c.arg(kept), c.arg(sorted.values), c.arg(0.0), placement);
  const Value total = sum(c.arg(mass), {1}, {.keep_axes = true}, placement);
  const Value drawn = mul(c.arg(random_uniform(c.arg(total), 0, 1, placement)), c.arg(total), placement);
  auto count = [&](const Value& flags) {
    return sum(c.arg(cast(c.arg(flags), i32, placement)), {1}, {.keep_axes = true}, placement);
  };
  const Value passed = count(less_equal(c.arg(cumsum(c.arg(mass), 1, {}, placement)), c.arg(drawn), placement));
  // Rounding may put the number that was drawn behind the last class that is kept.
  const Value choice = minimum(c.arg(passed), c.arg(sub(c.arg(count(kept)), c.arg(1), placement)), placement);
  return c.finished(flat(c, take_along_axis(c.arg(sorted.indices), c.arg(choice), 1, placement)));
}

}  // namespace graphsink
