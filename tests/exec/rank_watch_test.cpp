// Waits for other ranks: only one that lasts, for steps that are under way, is given up.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "exec/issue/host_watch.h"
#include "exec/memory/run_gate.h"
#include "graphsink/graphsink.h"
#include "ir/system_ops.h"

namespace graphsink::rank_watch_test {
namespace {

// Ranks whose patience ends at once: what counts is whether two looks see one wait.
class Impatient : public RankWait {
 public:
  std::vector<RankVote> votes(const RankVote& mine) const override { return {mine}; }
  std::chrono::nanoseconds patience() const override { return std::chrono::nanoseconds(0); }
  void give_up(const std::string& run) const override { given_up_run = run; }
  const std::uint32_t* given_up() const override { return nullptr; }
  void require_whole() const override {}

  mutable std::string given_up_run = "none";
};

struct Watched {
  Watched() { launches.allocate(*device, nullptr, nullptr); }
  std::shared_ptr<Device> device = open_device(cpu());
  std::unique_ptr<Stream> stream = device->make_stream();
  LaunchQueue launches;
  RunningCalls calls;
  Progress progress;
  RunGate gate;
};

TEST(RankWatch, AskingAboutALaterRunIsAnotherWait) {
  Watched watched;
  HostWatch watch(watched.calls, watched.launches, "", std::chrono::milliseconds(0), Log(),
                  {std::make_shared<Impatient>(), &watched.progress, &watched.gate});
  watched.launches.push({}, *watched.device, *watched.stream);
  EXPECT_FALSE(watch.has_asked_too_long());
  EXPECT_TRUE(watch.has_asked_too_long());
  watched.launches.push({}, *watched.device, *watched.stream);
  EXPECT_FALSE(watch.has_asked_too_long()) << "the run before was asked about, however long ago that was";
  EXPECT_TRUE(watch.has_asked_too_long());
  std::atomic_ref(watched.progress.records).store(1);
  EXPECT_FALSE(watch.has_asked_too_long()) << "a step was committed meanwhile";
}

// Another set of input shapes has another plan.
TEST(RankWatch, TheWaitOfTheRunThatWasGivenLastIsGivenUp) {
  Watched watched;
  const auto first = std::make_shared<Impatient>(), last = std::make_shared<Impatient>();
  HostWatch watch(watched.calls, watched.launches, "", std::chrono::milliseconds(0), Log(),
                  {first, &watched.progress, &watched.gate});
  watch.set_run(first, "in mode sink with x f32[4]");
  watch.set_run(last, "in mode sink with x f32[3]");
  watch.give_up();
  EXPECT_EQ(first->given_up_run, "none");
  EXPECT_EQ(last->given_up_run, "in mode sink with x f32[3]");
}

TEST(RankWatch, AReaderWaitsForAProgramOnlyWhereItsStepsAreTheLast) {
  RunGate gate;
  {
    const RunGate::Held held(gate);
    EXPECT_EQ(gate.awaited_since(), 0) << "a gate is held, too, while somebody waits for another program";
    const RunGate::Awaited awaited(gate);
    const std::int64_t since = gate.awaited_since();
    EXPECT_NE(since, 0);
    const RunGate::Awaited as_well(gate);
    EXPECT_EQ(gate.awaited_since(), since);
  }
  EXPECT_EQ(gate.awaited_since(), 0);
}

}  // namespace
}  // namespace graphsink::rank_watch_test
