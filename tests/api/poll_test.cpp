// What a program reports during a run: poll() and try_records() never wait for a step.
#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <limits>
#include <mutex>
#include <numeric>
#include <thread>

#include "messages.h"
#include "program_fixture.h"

namespace graphsink::testing::poll_test {
namespace {

using namespace std::chrono_literals;

// Blocks steps until the test lets the given number of them pass, but for at most 15 s. So if run() cannot return while
// a step is blocked, the test fails instead of hanging.
class Gate {
 public:
  void open(int steps) {
    std::lock_guard lock(mutex_);
    open_for_ = steps;
    changed_.notify_all();
  }
  void pass() {
    std::unique_lock lock(mutex_);
    int mine = arrived_++;
    if (changed_.wait_for(lock, 15s, [&] { return open_for_ > mine; })) return;
    open_for_ = std::numeric_limits<int>::max();
    was_forced_ = true;
  }
  int arrived() {
    std::lock_guard lock(mutex_);
    return arrived_;
  }
  bool was_forced() {
    std::lock_guard lock(mutex_);
    return was_forced_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int open_for_ = 0, arrived_ = 0;
  bool was_forced_ = false;
};
struct GateAttrs {
  Gate* gate = nullptr;
};
const OpDef gate_op{.name = "gate", .infer = infer_like_first, .bodies = {[](const CpuArgs& a) {
                                                                 a.attrs<GateAttrs>().gate->pass();
                                                                 *a.out<float>(0) = *a.in<float>(0);
                                                               }}};

class Polls : public ::testing::TestWithParam<std::tuple<DeviceId, Mode>> {
 protected:
  DeviceId device() const { return std::get<0>(GetParam()); }
  Mode mode() const { return std::get<1>(GetParam()); }
};
INSTANTIATE_TEST_SUITE_P(Devices, Polls,
                         ::testing::Combine(::testing::ValuesIn(devices()), ::testing::ValuesIn(kModes)),
                         [](const auto& info) {
                           std::string name = to_string(std::get<0>(info.param)).substr(0, 4) + "_" +
                                              std::string(to_string(std::get<1>(info.param)));
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

// Returns false if the program takes more than 30 s.
bool is_done_soon(Program& p) {
  auto end = std::chrono::steady_clock::now() + 30s;
  while (!p.poll()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::yield();
  }
  return true;
}

void append(std::vector<float>& all, const std::vector<float>& more) {
  all.insert(all.end(), more.begin(), more.end());
}

TEST_P(Polls, NeverWaitForAStepThatIsHeldUp) {
  constexpr int kSteps = 6, kOpen = 3;
  Gate gate;
  Graph g;
  Value x = g.feed("x", f32, {1});
  g.record("x", sum(emit(gate_op, {x}, GateAttrs{&gate})[0]));
  Program p = graphsink::compile(g, {.target = device()});
  EXPECT_TRUE(p.poll());
  EXPECT_TRUE(p.try_records("x").empty());
  std::vector<float> slices(kSteps);
  std::iota(slices.begin(), slices.end(), 1.0f);
  p.write(x, slices);
  gate.open(kOpen);
  p.run(mode(), {.steps = kSteps});
  ASSERT_FALSE(gate.was_forced())
      << "run() does not return while a step is held up: does a launch wait for the one before?";
  std::vector<float> seen;
  while (seen.size() < kOpen || gate.arrived() <= kOpen) {
    ASSERT_FALSE(p.poll());
    append(seen, p.try_records("x"));
    std::this_thread::yield();
  }
  for (int i = 0; i < 1000; ++i) {
    ASSERT_FALSE(p.poll());
    ASSERT_TRUE(p.try_records("x").empty());
  }
  EXPECT_EQ(seen, std::vector<float>(slices.begin(), slices.begin() + kOpen));
  gate.open(kSteps);
  ASSERT_TRUE(is_done_soon(p));
  append(seen, p.try_records("x"));
  EXPECT_EQ(seen, slices);
  EXPECT_TRUE(p.poll());
  EXPECT_TRUE(p.records("x").empty());
}

TEST_P(Polls, SayWhatSyncWouldSayOfAFailedStep) {
  Graph g;
  Value x = g.feed("x", f32, {1});
  g.record("x", sum(emit(cpu_refuse_negative, {x})[0]));
  auto failed_step = [&](auto&& wait) -> std::string {
    Program p = graphsink::compile(g, {.target = device()});
    p.write(x, std::vector<float>{7, -1});
    p.run(mode(), {.steps = 2});
    try {
      wait(p);
    } catch (const Error& e) {
      EXPECT_TRUE(p.poll()) << "said once";
      p.sync();
      EXPECT_EQ(p.try_records("x"), (std::vector<float>{7}));
      p.write(x, std::vector<float>{8});
      p.run(mode());
      EXPECT_TRUE(is_done_soon(p));
      EXPECT_EQ(p.try_records("x"), (std::vector<float>{8}));
      return e.what();
    }
    return "nothing was thrown";
  };
  std::string polled = failed_step([](Program& p) { EXPECT_TRUE(is_done_soon(p)); });
  EXPECT_NE(polled.find("refuse_negative: its body threw: negative input"), std::string::npos) << polled;
  EXPECT_EQ(polled, failed_step([](Program& p) { p.sync(); }));
}

// A thread waits in sync() for a step that is held up until another one has met the Error.
TEST_P(Polls, ASecondThreadIsRefused) {
  Gate gate;
  Graph g;
  Value x = g.feed("x", f32, {1});
  g.record("x", sum(emit(gate_op, {x}, GateAttrs{&gate})[0]));
  Program p = graphsink::compile(g, {.target = device()});
  p.write(x, std::vector<float>{7});
  p.run(mode());
  std::thread waiting([&] {
    while (gate.arrived() >= 0) {
      try {
        return p.sync();
      } catch (const Error&) {  // the other thread was in its call
        std::this_thread::yield();
      }
    }
  });
  std::string refused;
  while (!contains(refused, "another thread") && !gate.was_forced()) refused = message_of([&] { (void)p.poll(); });
  gate.open(1);
  waiting.join();
  EXPECT_TRUE(contains(refused, "Program: another thread is in a call of it")) << refused;
  EXPECT_TRUE(contains(refused, "one thread at a time")) << refused;
  EXPECT_EQ(p.records("x"), (std::vector<float>{7})) << "another thread may take over";
}

TEST_P(Polls, ReadRefusesNamesThatAreNotRecorded) {
  Graph g;
  g.record("loss", sum(g.feed("x", f32, {1})));
  Program p = graphsink::compile(g, {.target = device()});
  EXPECT_THROW((void)p.try_records("los"), Error);
}

// The ring of values wraps around while it is read.
TEST(TryRead, GivesConsecutiveValuesWhileStepsWriteThem) {
  constexpr int kSteps = 300'000;
  Graph g;
  g.record("step", cast(g.step(), f64));
  Program p = graphsink::compile(g);
  p.run(sink, {.steps = kSteps});
  double next = 0;
  bool is_done = false;
  while (!is_done) {
    is_done = p.poll();
    std::vector<double> values = p.try_records<double>("step");
    ASSERT_LT(values.size(), static_cast<std::size_t>(kRecordCapacity));
    if (values.empty()) continue;
    ASSERT_GE(values[0], next);
    for (std::size_t i = 0; i < values.size(); ++i) ASSERT_EQ(values[i], values[0] + static_cast<double>(i));
    next = values.back() + 1;
  }
  EXPECT_EQ(next, kSteps);
  p.run(sink, {.steps = kSteps});
  EXPECT_EQ(p.records<double>("step").size(), static_cast<std::size_t>(kRecordCapacity));
}

}  // namespace
}  // namespace graphsink::testing::poll_test
