// run() on a bound shape allocates nothing: every operator new of the process is counted.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "graphsink/graphsink.h"
#include "test_ops.h"

namespace {
std::atomic<long> allocations{0};
std::atomic<long> last_that_succeeds{-1};  // none fails if it is negative

void count_allocation() {
  const long last = last_that_succeeds.load();
  if (allocations.fetch_add(1) >= last && last >= 0) throw std::bad_alloc();
}
}  // namespace

// noinline: g++ warns of a mismatch when it inlines one of a pair.
__attribute__((noinline)) void* operator new(std::size_t bytes) {
  count_allocation();
  if (void* memory = std::malloc(bytes ? bytes : 1)) return memory;
  throw std::bad_alloc();
}
__attribute__((noinline)) void* operator new(std::size_t bytes, std::align_val_t align) {
  count_allocation();
  auto a = static_cast<std::size_t>(align);
  if (void* memory = std::aligned_alloc(a, (bytes + a - 1) / a * a)) return memory;
  throw std::bad_alloc();
}
__attribute__((noinline)) void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  allocations.fetch_add(1);
  return std::malloc(bytes ? bytes : 1);
}
__attribute__((noinline)) void operator delete(void* memory, const std::nothrow_t&) noexcept { std::free(memory); }
__attribute__((noinline)) void operator delete(void* memory) noexcept { std::free(memory); }
__attribute__((noinline)) void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
__attribute__((noinline)) void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
__attribute__((noinline)) void operator delete(void* memory, std::size_t, std::align_val_t) noexcept {
  std::free(memory);
}

namespace graphsink {
namespace {

TEST(Allocation, CountingWorks) {
  long before = allocations.load();
  int* volatile kept = new int(1);  // volatile: or the compiler drops the pair
  delete kept;
  EXPECT_EQ(allocations.load(), before + 1);
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
  Program p = compile(g, {.threads = 2, .guards = {.share_all = true}});
  p.write(x, Tensor::uniform({4, 8, 16}, 1));
  p.write(t, Tensor(i32, {4, 8}));
  for (Mode mode : {interactive_serial, interactive_parallel, sink, automatic}) {
    for (std::int64_t steps : {1, 4}) {
      for (int warm_up = 0; warm_up < 3; ++warm_up) p.run(mode, {.steps = steps});
      p.sync();
      long before = allocations.load();
      for (int i = 0; i < 10; ++i) p.run(mode, {.steps = steps});
      // Bodies run on other threads: they are part of it.
      p.sync();
      EXPECT_EQ(allocations.load() - before, 0) << to_string(mode) << ", " << steps << " steps";
    }
  }
  if (p.plan().target().id.kind == DeviceKind::cpu) {
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
    last_that_succeeds.store(allocations.load() + allocation);
    try {
      (void)report();
      last_that_succeeds.store(-1);
      return false;
    } catch (const std::bad_alloc&) {
      last_that_succeeds.store(-1);
      return true;
    }
  };
  for (auto* report :
       {+[](const Program& p) { return p.explain_json(); }, +[](const Program& p) { return p.explain(); },
        +[](const Program& p) { return p.plan().explain_dot(); }}) {
    long failed = 0;
    while (fails_at(failed, [&] { return report(program); })) ++failed;
    EXPECT_GT(failed, 5);
  }
}

}  // namespace
}  // namespace graphsink
