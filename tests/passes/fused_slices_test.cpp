// Slices in groups of element-wise ops on the CPU: which are read where they are, and that no bit changes by that.
#include <algorithm>
#include <functional>

#include "fused_bits.h"
#include "ir/fused.h"
#include "ir/system_ops.h"
#include "kernels/runtime/fused_layout.h"
#include "plan_text.h"

namespace graphsink::fused_slices_test {
namespace {

using testing::expect_same_bits;
using testing::ops_of;

// The layout of the only group of the graph.
FusedLayout layout_in(const std::function<void(Graph&)>& make) {
  Graph g;
  make(g);
  const Plan plan = make_plan(g, Target::host(), system_ops());
  FusedLayout layout;
  int groups = 0;
  for (const PlanNode& node : plan.nodes) {
    if (const auto* group = node.attrs.get_if<FusedAttrs>()) {
      layout = layout_of(*group);
      ++groups;
    }
  }
  EXPECT_EQ(groups, 1) << ops_of(plan);
  return layout;
}
std::int64_t slices_in_place(const FusedLayout& layout) {
  return std::count_if(layout.in_place.begin(), layout.in_place.end(), [](auto& runs) { return runs.has_value(); });
}

Value uniform(Graph& g, const char* name, const Shape& shape, DType dtype = f32) {
  return g.value(Variable(name, Tensor::uniform(shape, 1, -1.0f, 1.0f).to(dtype)));
}

// A stencil, as samples/models/jacobi.cpp has it; its sum of neighbours is an output, too.
void build_stencil(Graph& g, const Shape& shape, DType dtype) {
  Value x = uniform(g, "x", shape, dtype), factor = uniform(g, "factor", {}, dtype);
  auto part = [&](std::int64_t row, std::int64_t column) {
    std::vector<std::int64_t> begins(static_cast<std::size_t>(shape.rank()), 0), ends(begins.size(), to_end);
    begins[begins.size() - 2] = row;
    begins[begins.size() - 1] = column;
    ends[ends.size() - 2] = row - 2 < 0 ? row - 2 : to_end;
    ends[ends.size() - 1] = column - 2 < 0 ? column - 2 : to_end;
    return slice(x, begins, ends);
  };
  Value sum = part(0, 1) + part(2, 1) + (part(1, 0) + part(1, 2));
  g.output("sum", sum);
  g.output("z", tanh(sum * factor) - part(1, 1));
}

TEST(FusedSlices, SlicesOfWhichRunsAreCloseAreReadWhereTheyAre) {
  struct Sizes {
    Shape shape;
    std::int64_t run;     // elements that the group computes together
    std::int64_t slices;  // in place
  };
  const Sizes kSizes[] = {{{32, 32}, 30, 5},   {{4, 4}, 2, 5},       {{5, 5}, 3, 5},       {{3, 40}, 1, 5},
                          {{2, 3, 4}, 1, 0},   {{500, 130}, 128, 5}, {{70, 1000}, 998, 5}, {{4, 3}, 1, 0},
                          {{4, 40, 34}, 1, 0}, {{4, 20000}, 1, 0}};
  for (const auto& [shape, run, slices] : kSizes) {
    for (DType dtype : {f32, f64, f16, bf16}) {
      SCOPED_TRACE(to_string(shape) + " " + std::string(to_string(dtype)));
      auto make = [&, &shape = shape](Graph& g) { build_stencil(g, shape, dtype); };
      const FusedLayout layout = layout_in(make);
      EXPECT_EQ(layout.run, run);
      EXPECT_EQ(slices_in_place(layout), slices);
      expect_same_bits(make);
    }
  }
}

TEST(FusedSlices, RunsOfSeveralAxesAreOneAfterTheOther) {
  auto make = [](Graph& g) {
    Value x = uniform(g, "x", {2, 3, 6});
    g.output("z", tanh(slice(x, {0, 0, 1}, {to_end, to_end, 5}) - slice(x, {0, 0, 2}, {to_end, to_end, 6})));
  };
  const FusedLayout layout = layout_in(make);
  EXPECT_EQ(layout.run, 4);
  EXPECT_EQ(layout.pitch, 6);
  expect_same_bits(make);
}

TEST(FusedSlices, SlicesThatAreOneRunAreReadWhereTheyAreInAnyGroup) {
  for (std::int64_t size : {2, 100, 40000}) {
    for (DType dtype : {f32, f64, f16, i32}) {
      SCOPED_TRACE(std::to_string(size) + " " + std::string(to_string(dtype)));
      auto make = [=](Graph& g) {
        Value x = uniform(g, "x", {size + 1}, dtype), y = uniform(g, "y", {size}, dtype);
        g.output("z", (slice(x, {1}, {to_end}) - slice(x, {0}, {-1})) * y);
      };
      const FusedLayout layout = layout_in(make);
      EXPECT_EQ(layout.run, 1);
      EXPECT_EQ(slices_in_place(layout), 2);
      expect_same_bits(make);
    }
  }
}

// Slices that are copied, since it is needed or faster.
TEST(FusedSlices, SlicesAreCopiedWhereTheirRunsDoNotFit) {
  struct Copied {
    const char* name;
    std::function<void(Graph&)> make;
  };
  auto inner = [](const Value& x) { return slice(x, {0, 1}, {to_end, -1}); };
  const Copied kCopied[] = {
      {"AnOperandOfAnotherLayout",
       [=](Graph& g) {
         g.output("z", inner(uniform(g, "x", {9, 34})) * uniform(g, "y", {9, 32}));
       }},
      {"ARow",
       [=](Graph& g) {
         g.output("z", inner(uniform(g, "x", {9, 34})) * uniform(g, "y", {32}));
       }},
      {"RunsOfAnotherPitch",
       [=](Graph& g) {
         g.output("z", inner(uniform(g, "x", {9, 34})) * slice(uniform(g, "y", {9, 33}), {0, 1}, {9, 33}));
       }},
      {"ASliceThatIsAnOutput",
       [=](Graph& g) {
         Value x = inner(uniform(g, "x", {9, 34}));
         g.output("x", x);
         g.output("z", tanh(x));
       }},
      {"NotFloats",
       [=](Graph& g) {
         g.output("z", inner(uniform(g, "x", {9, 34}, i32)) * 3 + 1);
       }},
      {"ASumOfRows",
       [=](Graph& g) {
         g.output("z", sum(tanh(inner(uniform(g, "x", {9, 34}))), {1}));
       }},
      {"Columns",
       [](Graph& g) {
         g.output("z", tanh(slice(uniform(g, "x", {9, 34}), {0, 1}, {to_end, 3})) * 2.0);
       }},
      {"Backwards",
       [](Graph& g) {
         g.output("z", tanh(slice(uniform(g, "x", {9, 34}), {0, to_end}, {to_end, 0}, {1, -1})) * 2.0);
       }},
      {"EverySecondRowButTheLast",
       [](Graph& g) {
         g.output("z", tanh(slice(uniform(g, "x", {9, 34}), {0, 0}, {8, 33}, {2, 1})) * 2.0);
       }},
  };
  for (const Copied& copied : kCopied) {
    SCOPED_TRACE(copied.name);
    const FusedLayout layout = layout_in(copied.make);
    EXPECT_EQ(layout.run, 1);
    EXPECT_EQ(layout.pitch, 1);
    EXPECT_EQ(slices_in_place(layout), 0);
    expect_same_bits(copied.make);
  }
}

// Several tiles of runs, which threads share.
TEST(FusedSlices, RunsAreSharedByThreads) {
  auto make = [](Graph& g) { build_stencil(g, {700, 260}, f32); };
  for (int threads : {1, 3}) {
    Graph g, same;
    make(g);
    make(same);
    Program separate = compile(g, {.target = cpu(), .tuning = {.fuse = false}});
    Program fused = compile(same, {.target = cpu(), .tuning = {.threads = threads}, .guards = {.share_all = true}});
    testing::expect_same_outputs(separate, fused);
  }
}

}  // namespace
}  // namespace graphsink::fused_slices_test
