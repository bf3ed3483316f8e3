// The mistakes that the guards must find, such as a value of the host that a captured graph keeps.
#include <gtest/gtest.h>

#ifdef GRAPHSINK_EMULATED
#include "emulator.h"
#endif
#include "cuda_device_kernels.h"
#include "device/device.h"
#include "graphsink/graphsink.h"

namespace graphsink::cuda_guards_test {
namespace {

TEST(CudaGuards, AuditFindsAFrozenHostValue) {
  Graph g;
  Value x = g.input("x", f32, {1});
  auto value = std::make_shared<float>(1.0f);
  g.output("y", emit(testing::add_host_float, {x}, testing::HostFloat{value})[0]);
  Program p = compile(g, {.target = cuda(0), .guards = {.replay_every = 3}});
  p.write(x, std::vector<float>{10});
  p.run(sink);
  p.run(sink);
  *value = 2.0f;
  try {
    p.run(sink);
    FAIL() << "the difference was not reported";
  } catch (const Error& e) {
    EXPECT_EQ(e.op(), "replay audit");
    EXPECT_NE(e.remedy().find("an op whose CUDA body reads something of the host"), std::string::npos) << e.what();
    EXPECT_NE(e.problem().find("output \"y\" differs between op by op and sunk: element 0 is 12 and 11"),
              std::string::npos)
        << e.problem();
  }
}

// Collects what a program with CompileOptions::guards.arguments logs.
struct Warnings {
  std::vector<std::string> all;
  CompileOptions options() {
    return {.target = cuda(0), .guards = {.arguments = true}, .log = [this](LogLevel, std::string_view text) {
              all.emplace_back(text);
            }};
  }
};

TEST(CudaGuards, ArgumentsNameAHostValueThatChangedBetweenCaptures) {
  for (bool changes : {false, true}) {
    Graph g;
    Value x = g.input("x", f32, {1});
    auto value = std::make_shared<float>(1.0f);
    g.output("y", emit(testing::add_host_float, {x}, testing::HostFloat{value})[0]);
    Warnings warnings;
    Program p = compile(g, warnings.options());
    p.write(x, std::vector<float>{10});
    p.run(sink);
    p.run(sink);
    EXPECT_TRUE(warnings.all.empty());
    if (changes) *value = 2.0f;
    p.run(sink, {.steps = 3});
    p.run(sink, {.steps = 3});
    ASSERT_EQ(warnings.all.size(), changes ? 1u : 0u);
    if (!changes) continue;
    EXPECT_EQ(warnings.all[0].find("argument audit: add_host_float (cuda_guards_test.cpp:"), 0u) << warnings.all[0];
    EXPECT_NE(warnings.all[0].find("was captured with another number than before"), std::string::npos);
  }
}

// Libraries pass numbers without a meaning: products of cuBLASLt do on an H100.
TEST(CudaGuards, ArgumentsOfALibrarysKernelsMayChange) {
  Graph g;
  Value x = g.input("x", f32, {1});
  auto value = std::make_shared<float>(1.0f);
  g.output("y", emit(testing::library_adds_host_float, {x}, testing::HostFloat{value})[0]);
  Warnings warnings;
  Program p = compile(g, warnings.options());
  p.write(x, std::vector<float>{10});
  p.run(sink);
  *value = 2.0f;
  p.run(sink, {.steps = 3});
  EXPECT_GT(p.counters().captures, 1u);
  for (const std::string& warning : warnings.all) ADD_FAILURE() << warning;
}

// CUDA lists the nodes of a graph in any order, which differs from one graph to the next.
TEST(CudaGuards, ArgumentsAreComparedWithThoseOfTheSameKernel) {
  Graph g;
  Value x = g.input("x", f32, {1});
  g.output("y", emit(testing::adds_four_numbers, {x})[0]);
  Warnings warnings;
  Program p = compile(g, warnings.options());
  p.write(x, std::vector<float>{10});
  for (std::int64_t steps = 1; steps <= 6; ++steps) p.run(sink, {.steps = steps});
  EXPECT_EQ(p.output("y").at(0), 25.0);
  EXPECT_GT(p.counters().captures, 1u);
  for (const std::string& warning : warnings.all) ADD_FAILURE() << warning;
}

// Returns an address of device memory that is already freed. This is a mistake.
Prepared free_at_once(const PrepareArgs& a) {
  Prepared prepared;
  prepared.data = std::make_shared<void*>(static_cast<Device*>(a.device)->allocate(256).get());
  return prepared;
}

TEST(CudaGuards, ArgumentsNameAnAddressOfFreedMemory) {
#ifdef GRAPHSINK_EMULATED
  // The kernel does not use the address, so it also runs on a GPU.
  emu::set_address_check(false);
  struct Restore {
    ~Restore() { emu::set_address_check(true); }
  } restore;
#endif
  static const OpDef keeps_freed = [] {
    OpDef op = testing::takes_address;
    op.name = "keeps_freed";
    op.prepare = free_at_once;
    return op;
  }();
  Graph g;
  Value x = g.input("x", f32, {1});
  g.output("y", emit(keeps_freed, {x})[0]);
  Warnings warnings;
  Program p = compile(g, warnings.options());
  p.write(x, std::vector<float>{10});
  for (int i = 0; i < 3; ++i) p.run(sink, {.steps = 1 + i});
  EXPECT_EQ(p.output("y").at(0), 10.0);
  ASSERT_EQ(warnings.all.size(), 1u) << "once for each op";
  EXPECT_EQ(warnings.all[0].find("argument audit: keeps_freed (cuda_guards_test.cpp:"), 0u) << warnings.all[0];
  EXPECT_NE(warnings.all[0].find("was captured with an address of freed memory"), std::string::npos);
}

// Captures loops, branches, products, an optimizer, feeds and random numbers twice, with two shapes.
TEST(CudaGuards, ArgumentsOfTheLibrarysOwnOpsAreAllRight) {
  Graph g;
  Value x = g.feed("x", f32, {open(8), 16});
  Variable w("w", Tensor::kaiming({16, 16}, 1));
  auto [h] = while_(
      {matmul(x, w)}, [](const Value& s) { return sum(s * s) < 40.0; },
      [](const Value& s) {
        return if_(
            sum(s) < 0.0, [&] { return s * 1.5 + 0.25; }, [&] { return s * 2.0; });
      });
  Value loss = mean(softmax(matmul(x, w)) * random_uniform(g, f32, {1}) + tanh(matmul(x, w)) * 0.5);
  adamw(loss, {w}, {.lr = 1e-2});
  g.record("loss", loss);
  g.record("h", mean(softmax(h)));
  Warnings warnings;
  CompileOptions options = warnings.options();
  options.tuning.capture_after = 1;  // else it depends on measured times when a shape is captured
  Program p = compile(g, options);
  for (std::int64_t batch : {8, 200}) {
    p.write(x, Tensor::uniform({3, batch, 16}, 2));
    for (std::int64_t steps : {1, 1, 3, 3}) p.run(sink, {.steps = steps});
  }
  p.sync();
  EXPECT_EQ(p.counters().captures, 4u);
  for (const std::string& warning : warnings.all) ADD_FAILURE() << warning;
}

}  // namespace
}  // namespace graphsink::cuda_guards_test
