// The ring in which launches find their parameters. Many launches are queued, some of them fail, and each reads its own
// slot.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>

#include <numeric>

#include "device/launch_ring.h"
#include "program_fixture.h"

#ifdef GRAPHSINK_EMULATED
#include "emulator.h"
#include "ir/step_state.h"
#endif

namespace graphsink::launch_queue_test {
namespace {

using testing::OnDevice;

constexpr int kMoreThanThereAreSlots = 2 * static_cast<int>(LaunchSlots::kCapacity) + 100;

// Records the parameters that a launch received: the number of its slice, and a number drawn from its seed.
struct Told {
  Graph g;
  Value x = g.feed("x", f32, {1});
  Told() {
    g.record("slice", sum(x));
    g.record("random", sum(random_uniform(x)));
  }
  // Writes as many slices as any launch reads. Each slice holds its number.
  void write(Program& p, int slices) const {
    std::vector<float> numbers(static_cast<std::size_t>(slices));
    std::iota(numbers.begin(), numbers.end(), 0.0f);
    p.write(x, numbers);
  }
  static std::pair<std::vector<double>, std::vector<double>> read(Program& p) {
    std::vector<double> slices = p.records<double>("slice");
    return {slices, p.records<double>("random")};
  }
};

TEST_P(OnDevice, QueuedLaunchesReadTheirOwnParameters) {
  constexpr int kMaxSteps = 3;
  Told told;
  auto run_all = [&](Mode mode, bool waits) {
    Program p = compile(told.g);
    told.write(p, kMaxSteps);
    for (int i = 0; i < kMoreThanThereAreSlots; ++i) {
      p.set_seed(static_cast<std::uint32_t>(i));
      p.run(mode, {.steps = 1 + i % kMaxSteps});
      if (waits) p.sync();
    }
    return Told::read(p);
  };
  auto expected = run_all(interactive, true);
  EXPECT_EQ(expected.first.size(), expected.second.size());
  EXPECT_EQ(run_all(sink, false), expected);
  EXPECT_EQ(run_all(interactive, false), expected);
}

// Because of the op on the host, each step is a separate launch.
TEST_P(OnDevice, QueuedStepsOfOneRunReadTheirOwnSlices) {
  Graph g;
  Value x = g.feed("x", f32, {1});
  g.record("y", sum(emit(testing::cpu_plus_one, {x})[0]));
  Program p = compile(g);
  std::vector<float> numbers(kMoreThanThereAreSlots), expected(kMoreThanThereAreSlots);
  std::iota(numbers.begin(), numbers.end(), 0.0f);
  std::iota(expected.begin(), expected.end(), 1.0f);
  p.write(x, numbers);
  for (Mode mode : {sink, split_sink, automatic}) {
    SCOPED_TRACE(to_string(mode));
    p.run(mode, {.steps = kMoreThanThereAreSlots});
    EXPECT_EQ(p.records("y"), expected);
  }
}

TEST_P(OnDevice, ModesByTurnsShareTheRing) {
  Told told;
  std::pair<std::vector<double>, std::vector<double>> all[2];
  for (bool by_turns : {false, true}) {
    Program p = compile(told.g, {.guards = {.replay_every = by_turns ? 7 : 0}});
    told.write(p, 4);
    constexpr Mode kModes[] = {sink, interactive, automatic, split_sink, interactive_parallel};
    for (int i = 0; i < 60; ++i) {
      p.set_seed(static_cast<std::uint32_t>(i));
      p.run(by_turns ? kModes[i % 5] : interactive, {.steps = 1 + i % 4});
    }
    all[by_turns] = Told::read(p);
  }
  EXPECT_EQ(all[0], all[1]);
}

TEST_P(OnDevice, OtherSlicesAndOtherAddressesReachQueuedLaunchesInOrder) {
  Told told;
  Program p = compile(told.g);
  std::vector<float> expected;
  for (int slices : {1, 3, 1, 2, 5000, 1, 7}) {  // from 2 to 5000, the slices get larger memory
    told.write(p, slices);
    for (int i = 0; i < 3; ++i) {
      int steps = std::min(slices, 4);
      p.run(sink, {.steps = steps});
      for (int step = 0; step < steps; ++step) expected.push_back(static_cast<float>(step));
    }
  }
  EXPECT_EQ(p.records("slice"), expected);
}

// The ring of one program. Its slots cannot be read until `look`, which runs at the first attempt, has returned.
class GuardedSlots {
 public:
  explicit GuardedSlots(void (*look)()) {
    memory_ = mmap(nullptr, sizeof(LaunchSlots), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    look_ = look;
    struct sigaction action = {};
    action.sa_handler = [](int) {
      look_();
      mprotect(memory_, sizeof(LaunchSlots), PROT_READ);
    };
    sigaction(SIGSEGV, &action, &before_);
  }
  ~GuardedSlots() {
    sigaction(SIGSEGV, &before_, nullptr);
    munmap(memory_, sizeof(LaunchSlots));
  }
  GuardedSlots(const GuardedSlots&) = delete;
  LaunchParams* slots() const { return static_cast<LaunchSlots*>(memory_)->slots; }
  void close() const { mprotect(memory_, sizeof(LaunchSlots), PROT_NONE); }

 private:
  static inline void (*look_)() = nullptr;
  static inline void* memory_ = nullptr;
  struct sigaction before_ = {};
};

// As soon as the count is updated, the host may write to the slot.
TEST(LaunchRing, ASlotIsReadBeforeTheHostIsToldSo) {
  static std::uint32_t taken, taken_at_first_read;
  taken = 4, taken_at_first_read = 0;
  GuardedSlots guarded([] { taken_at_first_read = taken; });
  guarded.slots()[4] = {.first_slice = 5, .end_slice = 6, .seed = 7, .tag = 8};
  guarded.close();
  StepState block;
  std::uint32_t next = 4;
  begin_launch({&block, &next, guarded.slots(), &taken});
  EXPECT_EQ(taken_at_first_read, 4u);
  EXPECT_EQ(taken, 5u);
  EXPECT_EQ(next, 5u);
  EXPECT_EQ(block.slice, 5);
  EXPECT_EQ(block.end_slice, 6);
  EXPECT_EQ(block.seed, 7u);
  EXPECT_EQ(block.tag, 8u);
  EXPECT_TRUE(block.more);
}

#ifdef GRAPHSINK_EMULATED

// The slot of a failed launch is written again, and the device takes it next.
TEST(LaunchQueue, AFailedLaunchLeavesHostAndDeviceInStep) {
  Told told;
  auto run_all = [&](bool fails) {
    Program p = compile(told.g, {.target = cuda(0)});
    told.write(p, 2);
    for (int i = 0; i < 40; ++i) {
      p.set_seed(static_cast<std::uint32_t>(i));
      Mode mode = i % 10 < 5 ? sink : interactive;
      std::int64_t steps = 1 + i % 2;
      if (fails && i > 5 && i % 3 == 0) {
        emu::fail(mode == sink ? "cudaGraphLaunch" : "cudaLaunchKernelExC", 1, cudaErrorInvalidValue);
        EXPECT_THROW(p.run(mode, {.steps = steps}), Error);
        p.set_seed(1000);  // another failure in a row, with other parameters in the slot
        emu::fail(mode == sink ? "cudaGraphLaunch" : "cudaLaunchKernelExC", 1, cudaErrorInvalidValue);
        EXPECT_THROW(p.run(mode, {.steps = steps}), Error);
        p.set_seed(static_cast<std::uint32_t>(i));
      }
      p.run(mode, {.steps = steps});
    }
    return Told::read(p);
  };
  auto expected = run_all(false);
  EXPECT_EQ(run_all(true), expected);
  emu::reset();
}

// A launch that fails after the beginning of the step has already taken its slot.
TEST(LaunchQueue, AFailureLaterInTheStepLeavesHostAndDeviceInStep) {
  Told told;
  for (int nth : {2, 3}) {
    Program p = compile(told.g, {.target = cuda(0)});
    told.write(p, 2);
    std::vector<float> expected;
    for (int i = 0; i < 6; ++i) {
      emu::fail("cudaLaunchKernelExC", nth, cudaErrorInvalidValue);
      EXPECT_THROW(p.run(interactive, {.steps = 2}), Error);
      p.run(i % 2 ? sink : interactive, {.steps = 1 + i % 2});
      for (int step = 0; step < 1 + i % 2; ++step) expected.push_back(static_cast<float>(step));
    }
    EXPECT_EQ(p.records("slice"), expected);
  }
  emu::reset();
}

TEST(LaunchQueue, AProgramIsDestroyedWithLaunchesQueued) {
  Told told;
  emu::LiveObjects before = emu::live_objects();
  for (int launches : {10, kMoreThanThereAreSlots}) {
    Program p = compile(told.g, {.target = cuda(0)});
    told.write(p, 1);
    for (int i = 0; i < launches; ++i) p.run(sink);
  }
  EXPECT_EQ(emu::live_objects().total(), before.total());
}

#endif

}  // namespace
}  // namespace graphsink::launch_queue_test
