// The host writes data for the next steps while earlier steps still run.
#include <gtest/gtest.h>

#include <chrono>
#include <future>

#include "program_fixture.h"

namespace graphsink::write_ahead_test {
namespace {

using testing::OnDevice;

struct GateAttrs {
  std::shared_future<void>* is_open;
};
const OpDef gate_op{.name = "gate", .infer = testing::infer_like_first, .bodies = {[](const CpuArgs& a) {
                                                                          a.attrs<GateAttrs>().is_open->wait_for(
                                                                              std::chrono::seconds(20));
                                                                          *a.out<float>(0) = *a.in<float>(0);
                                                                        }}};

// An input and a feed. Their sum is recorded after an op that waits at a gate.
struct Gated {
  std::promise<void> open;
  std::shared_future<void> is_open = open.get_future().share();
  Graph g;
  Value x = g.input("x", f32, {1}), y = g.feed("y", f32, {1});
  Gated() { g.record("sum", sum(emit(gate_op, {x}, GateAttrs{&is_open})[0] + y)); }
  void write(Program& p, float value) {
    p.write(x, std::vector<float>{value});
    p.write(y, std::vector<float>{100 * value});
  }
};

TEST_P(OnDevice, WritesDoNotWaitForTheStepsBefore) {
  for (Mode mode : testing::kModes) {
    SCOPED_TRACE(to_string(mode));
    Gated gated;
    Program p = compile(gated.g);
    gated.write(p, 1);
    p.run(mode);  // its op waits at the gate; a write() that waited for it would take 20 s
    auto begin = std::chrono::steady_clock::now();
    gated.write(p, 2);
    p.run(mode);
    gated.write(p, 3);
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
    gated.open.set_value();
    p.run(mode);
    EXPECT_EQ(p.records("sum"), (std::vector<float>{101, 202, 303}));
  }
}

// More writes than are kept in flight, of growing sizes.
TEST_P(OnDevice, ManyWritesKeepTheirOrder) {
  Graph g;
  Value x = g.feed("x", f32, {open(1)});
  g.record("sum", sum(tanh(x) * 0.0 + x));
  Program p = compile(g);
  std::vector<float> wanted;
  for (int i = 0; i < 200; ++i) {
    auto size = static_cast<std::size_t>(1 + i % 5 * 1000);
    p.write(x, std::vector<float>(size, static_cast<float>(i)));
    p.run(i % 2 ? sink : interactive);
    wanted.push_back(static_cast<float>(i) * static_cast<float>(size));
  }
  EXPECT_EQ(p.records("sum"), wanted);
}

}  // namespace
}  // namespace graphsink::write_ahead_test
