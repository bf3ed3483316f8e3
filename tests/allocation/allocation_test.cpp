// run() on a bound shape allocates nothing: every operator new of the process is counted.
#include <gtest/gtest.h>

#include "api/plan_of.h"
#include "counted_new.h"
#include "graphsink/graphsink.h"

namespace graphsink::allocation_test {
namespace {

using testing::allocations;
using testing::FailingAllocation;

TEST(Allocation, CountingWorks) {
  long before = allocations();
  int* volatile kept = new int(1);  // volatile: or the compiler drops the pair
  delete kept;
  EXPECT_EQ(allocations(), before + 1);
}

TEST(Allocation, RunOnABoundShapeAllocatesNothing) {
  Graph g;
  Value x = g.feed("x", f32, {8, 16});
  Value t = g.feed("t", i32, {8});
  Variable w("w", Tensor::kaiming({16, 4}, 1)), b("b", Tensor(f32, {4}));
  Value loss = cross_entropy(matmul(x, w) + b, t);
  adamw(loss, {w, b});
  g.record("loss", loss);
  Variable large("large", Tensor::uniform({40000}, 2));  // which threads share
  assign(large, tanh(g.value(large)));
  Program p = compile(g, {.tuning = {.threads = 2}, .guards = {.share_all = true}});
  p.write(x, Tensor::uniform({4, 8, 16}, 1));
  p.write(t, Tensor(i32, {4, 8}));
  for (Mode mode : {interactive_serial, interactive_parallel, sink, automatic}) {
    for (std::int64_t steps : {1, 4}) {
      for (int warm_up = 0; warm_up < 3; ++warm_up) p.run(mode, {.steps = steps});
      p.sync();
      long before = allocations();
      for (int i = 0; i < 10; ++i) p.run(mode, {.steps = steps});
      // Bodies run on other threads: they are part of it.
      p.sync();
      EXPECT_EQ(allocations() - before, 0) << to_string(mode) << ", " << steps << " steps";
    }
  }
  if (plan_of(p).target().id.kind == DeviceKind::cpu) {
    EXPECT_GT(p.counters().shared, 0u);
  }
}

// Whichever allocation fails, the caller gets std::bad_alloc.
TEST(Allocation, ThatFailsInAReportReachesTheCaller) {
  Graph g;
  Variable w("w", Tensor({1.0f, 2.0f}));
  g.output("y", g.value(w) * 2.0);
  const Program program = compile(g, {.target = cpu()});
  const auto fails_at = [&](long allocation, auto&& report) {
    const FailingAllocation failing(allocation);
    try {
      (void)report();
      return false;
    } catch (const std::bad_alloc&) {
      return true;
    }
  };
  for (auto* report :
       {+[](const Program& p) { return p.explain_json(); }, +[](const Program& p) { return p.explain(); },
        +[](const Program& p) { return plan_of(p).explain_dot(); }}) {
    long failed = 0;
    while (fails_at(failed, [&] { return report(program); })) ++failed;
    EXPECT_GT(failed, 5);
  }
}

}  // namespace
}  // namespace graphsink::allocation_test
