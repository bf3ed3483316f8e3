// The mode `automatic`: which steps are sunk and which run op by op, chosen by what both took. Knows no device and no
// clock; it is told.
//
// What is compared. The time of a step as StepTimes defines it, from when the device could begin to its end. Where
// steps follow each other without a pause that is the time between their ends; where the caller does something else
// between runs, that is left out, and so are binding and recording, which the host does before the step begins. A
// device whose queue was full when a trial began works off ops that were issued long before, and does not show what
// issuing costs: so the thread's time inside run() is measured too, and a block of steps costs the longer of the two,
// as it would if it went on. What the host could have done while the device works is not counted.
//
// How. Blocks of successive steps of the side that was chosen (A) and of the other (B) follow each other as A B B A,
// then B A A B: in both sums a drift of the machine, and whatever comes with the place in the order, cancel (Box,
// Hunter and Hunter, "Statistics for Experimenters", on paired and counterbalanced designs). The first step of a block
// warms caches up and does not count. One such comparison gives one number, log(time interactive / time sunk); ratios
// are averaged as logarithms (Fleming and Wallace, "How not to lie with statistics", CACM 29(3), 1986). Their mean has
// the interval of Student's t. Looking at it after every comparison would sooner or later find a difference where there
// is none (Armitage, McPherson and Rowe, "Repeated significance tests on accumulating data", 1969): it is looked at
// after 4, 8, 16, 32 and 64 comparisons, with 99 % each, hence 95 % for all (Bonferroni). Then counting begins anew, as
// the machine may have changed. The side changes when the whole interval is on the other side of 1, and by kWorthwhile.
//
// What it costs. All steps of the other side are trials. A comparison begins only if the trials so far and those of
// this comparison are at most kTrialShare of the time of all steps so far. A trial is expected to take what it took in
// the better block of the last comparison; if it takes longer, the next comparison has to wait. The first step is
// interactive, as that of every binding. It is no trial, and says what one takes, but being the first it may say far
// too much: the blocks of the first comparison have one step, which is enough to know better and not to decide.
#pragma once

#include <array>
#include <cstdint>

#include "graphsink/automatic.h"

namespace graphsink {

class ModeChooser {
 public:
  static constexpr double kTrialShare = 0.02;
  static constexpr double kWorthwhile = 0.01;
  static constexpr std::int64_t kBlockSteps = 4;  // the first of them does not count

  enum class Side : std::uint8_t { sunk, interactive };
  struct Turn {
    Side side = Side::sunk;
    std::int64_t steps = 0;
    std::uint64_t tag = 0;  // below 2^48, never 0
    bool is_compared = false;
  };
  static Side side_of(std::uint64_t tag) { return static_cast<Side>(tag & 1); }

  // What the first of the coming `steps` steps do: turn.steps of them, at least one.
  Turn next(std::int64_t steps);
  // The thread's time for issuing a turn that is compared. Not called where the turn was not issued as it should be.
  void issued(const Turn& turn, double ns);
  // One step of the turn with that tag is done. In the order of the turns; some may be missing.
  void completed(std::uint64_t tag, double ns, bool ok);
  // The turn last given was not issued, or not as it should be: the comparison in progress is no good.
  void drop();

  AutomaticReport report() const;

 private:
  struct Block {
    Side side = Side::sunk;
    std::int64_t planned = 0, issued = 0, seen = 0, counted = 0;
    double all_ns = 0, counted_ns = 0, host_ns = 0;

    double step_ns() const;
  };
  static constexpr std::size_t kBlocks = 4;

  Side other() const { return chosen_ == Side::sunk ? Side::interactive : Side::sunk; }
  bool can_afford(std::int64_t trials) const;
  bool open(std::int64_t steps);  // false: it cannot be afforded
  Block* block_of(std::uint64_t number);
  void close();
  void add(double log_ratio);
  void look();

  Side chosen_ = Side::sunk;
  bool has_begun_ = false;
  bool has_tried_ = false;
  double all_ns_ = 0, trial_ns_ = 0;
  std::array<double, 2> expected_ns_{};  // of a step of each side; 0: nothing is known
  // The comparison in progress: from the first turn of its first block to the last time of its last.
  bool is_open_ = false;
  bool is_good_ = true;
  bool trial_first_ = true;  // of the last: B A A B
  std::array<Block, kBlocks> blocks_;
  std::size_t current_ = kBlocks;   // the block that takes the next step; kBlocks: all were issued
  std::uint64_t first_number_ = 0;  // of the blocks; what lies between two comparisons has a number, too
  std::uint64_t number_ = 1;
  // Logarithms of ratios since counting began.
  int count_ = 0;
  double mean_ = 0, squares_ = 0;  // of the differences from the mean (Welford, Technometrics 4(3), 1962)
  AutomaticReport report_;
};

}  // namespace graphsink
