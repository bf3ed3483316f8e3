// Kinds of entries with sizes that are known only when the graph runs: those of what is written, and those of results.
#include <array>

#include "site.h"

namespace graphsink::testing {
namespace {

// Rows of an input whose number is open, with or without a rule that rounds it up, and numbers of fixed shapes that are
// made of them.
Values open_rows(Site& s) {
  const std::array rules{Bucket(), next_power_of_two(), multiples_of(3), one_of({2, 5, kMaxOpenRows})};
  const Bucket& rule = rules[static_cast<std::size_t>(s.random.below(rules.size()))];
  ++s.building.counts[rule.is_every_size() ? "open: any size" : "open: rounded up"];
  const std::string name = "open" + std::to_string(s.entry.id);
  Value rows = s.building.graph.input(name, f32, {open(1 + s.random.below(kMaxOpenRows), rule), 3});
  s.building.fed.push_back({rows, s.random.next(), false, true});
  Value y = tanh(mul(rows, s.vector(0, f32, 3), s.placement));
  switch (s.random.below(5)) {
    case 0:
      y = matmul(y, Site::fit(s.vector(1, f32, 9), {3, 3}), {.transpose_b = s.random.chance(50)}, s.placement);
      break;
    case 1:
      y = cumsum(y, 0);
      break;
    case 2:
      y = sort(y, 0).values;
      break;
    case 3:
      y = softmax(y, s.random.below(2), s.placement);
      break;
    default:
      break;
  }
  Value size = true_size(rows, 0), is_valid = unsqueeze(valid_mask(rows, 0), 1);
  return {s.tame(masked_mean(y, is_valid)), s.tame(sum(where(is_valid, y, 0.0), {0}, {}, s.placement)),
          mul(cast(size, f32), 0.125)};
}

// A size that is not bound is refused beside ops with an effect, and in loops.
ResultSize result_size(Site& s, std::int64_t most) {
  const std::array rules{Bucket(), next_power_of_two(), multiples_of(5), one_of({3, most})};
  const bool is_bound = s.random.chance(40);
  const Bucket& rule = rules[static_cast<std::size_t>(s.random.below(rules.size()))];
  if (is_bound || s.building.has_effects || s.building.calls->is_in_loop()) {
    ++s.building.counts["size of a result: bound"];
    return most + s.random.below(3);
  }
  ++s.building.counts[rule.is_every_size() ? kFoundSize : kRoundedSize];
  return rule;
}

// Numbers of fixed shapes that are made of as many elements as there are of some kind.
Values found(Site& s) {
  constexpr std::int64_t kElements = 12;
  Value x = s.vector(0, f32, kElements), other = s.vector(1, f32, kElements);
  const ResultSize size = result_size(s, kElements);
  Padded chosen;
  Value count, extra = x;
  switch (s.random.below(4)) {
    case 0: {
      Value whole = cast(mul(other, 2.0), i32, s.placement);
      const Unique different = unique(whole, size, s.placement);
      chosen = {mul(cast(different.values.values, f32), 0.125), different.values.count};
      extra = Site::as(different.inverse, f32);
      break;
    }
    case 1: {
      const Padded places = nonzero(reshape(greater(x, other), {3, -1}), size, s.placement);
      chosen = {mul(cast(places.values, f32), 0.25), places.count};
      break;
    }
    case 2: {
      const Padded places = flat_nonzero(greater(x, other), size, s.placement);
      chosen = gather(x, places, s.placement);
      extra = scatter_add(other, places, tanh(chosen.values, s.placement), s.placement);
      break;
    }
    default:
      chosen = masked_select(x, less(x, other), size, s.placement);
      break;
  }
  if (s.random.chance(30)) chosen = s.hidden([&] { return softmax(chosen, s.placement); });
  return {s.tame(sum(Padded{tanh(chosen.values), chosen.count})), s.tame(extra), mul(cast(chosen.count, f32), 0.125)};
}

const Kind kSizeKinds[] = {
    {"open_rows", Family::source, 2, 0, open_rows},
    {"found", Family::order, 2, 0, found},
};

}  // namespace

std::span<const Kind> size_kinds() { return kSizeKinds; }

}  // namespace graphsink::testing
