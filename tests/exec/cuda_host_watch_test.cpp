// If a CPU body does not return, a message names it while the caller still waits.
#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <vector>

#include "graphsink/graphsink.h"
#include "test_ops.h"

namespace graphsink::cuda_host_watch_test {
namespace {

using namespace std::chrono_literals;

struct Gate {
  std::promise<void> open;
  std::shared_future<void> is_open = open.get_future().share();
};
struct GateAttrs {
  std::shared_ptr<Gate> gate;
};

void wait_at_gate(const CpuArgs& a) {
  if (a.attrs<GateAttrs>().gate->is_open.wait_for(15s) != std::future_status::ready)
    throw std::runtime_error("nobody opened the gate");
  a.out<float>(0)[0] = a.in<float>(0)[0];
}
const OpDef gate_op{.name = "gate", .infer = testing::infer_like_first, .bodies = {wait_at_gate}};

// Collects messages from any thread.
class Messages {
 public:
  std::size_t add(std::string_view message) {
    std::lock_guard lock(mutex_);
    messages_.emplace_back(message);
    return messages_.size();
  }
  std::vector<std::string> all() const {
    std::lock_guard lock(mutex_);
    return messages_;
  }

 private:
  mutable std::mutex mutex_;
  std::vector<std::string> messages_;
};

TEST(HostWatch, AnOpThatBlocksIsNamed) {
  for (Mode mode : {interactive, split_parallel, sink}) {
    SCOPED_TRACE(to_string(mode));
    Graph g;
    Value x = g.input("x", f32, {1});
    auto gate = std::make_shared<Gate>();
    g.output("y", emit(gate_op, {x}, GateAttrs{gate})[0]);
    Messages messages;
    auto open_at_second = [&](LogLevel, std::string_view message) {
      if (messages.add(message) == 2) gate->open.set_value();
    };
    Program p = compile(g, {.target = cuda(0), .limits = {.host_op_patience = 5ms}, .log = open_at_second});
    p.write(x, std::vector<float>{3});
    p.run(mode);
    EXPECT_EQ(p.output("y").at(0), 3.0);
    std::vector<std::string> seen = messages.all();
    ASSERT_GE(seen.size(), 2u);
    EXPECT_EQ(seen[0].find("gate (cuda_host_watch_test.cpp:"), 0u) << seen[0];
    EXPECT_NE(seen[0].find("has been running on the host for "), std::string::npos) << seen[0];
  }
}

// The loop takes longer in each run, until a wait has lasted too long.
TEST(HostWatch, ALoopThatDoesNotEndIsNamed) {
  for (DeviceId device : testing::devices()) {
    for (Mode mode : {interactive, sink}) {
      SCOPED_TRACE(to_string(device) + " " + std::string(to_string(mode)));
      Graph g;
      Value x = g.input("x", f32, {});
      auto [y] = while_(
          {x}, [](Value s) { return s > 0.0; }, [](Value s) { return s - 1.0; });
      g.output("y", y);
      Messages messages;
      auto add = [&](LogLevel, std::string_view message) { messages.add(message); };
      Program p = compile(g, {.target = device, .limits = {.host_op_patience = 10ms}, .log = add});
      for (float n = 64; messages.all().empty() && n < 1e7f; n *= 4) {
        p.write(x, std::vector<float>{n});
        p.run(mode);
        EXPECT_EQ(p.output("y").at(0), 0.0);
      }
      ASSERT_FALSE(messages.all().empty());
      std::string seen = messages.all()[0];
      EXPECT_EQ(seen.find("no launch has ended for "), 0u) << seen;
      EXPECT_NE(seen.find("while_ (cuda_host_watch_test.cpp:"), std::string::npos) << seen;
      EXPECT_NE(seen.find("WhileOptions::max_iterations"), std::string::npos) << seen;
    }
  }
}

TEST(HostWatch, AnOpThatComesBackIsNot) {
  Graph g;
  Value x = g.input("x", f32, {1});
  g.output("y", emit(testing::cpu_plus_one, {x})[0]);
  Messages messages;
  auto keep = [&](LogLevel, std::string_view message) { messages.add(message); };
  Program p = compile(g, {.target = cuda(0), .log = keep});
  p.write(x, std::vector<float>{3});
  for (int i = 0; i < 100; ++i) p.run(sink);
  p.sync();
  EXPECT_EQ(messages.all(), std::vector<std::string>{});
}

}  // namespace
}  // namespace graphsink::cuda_host_watch_test
