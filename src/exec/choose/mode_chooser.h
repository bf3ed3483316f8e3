// The mode `automatic`: in which of several modes a step runs, chosen by what steps took in each. Knows no device and
// no clock; it is told.
//
// Measure. Modes are compared by the time of a step as StepTimes defines it, from when the device could begin to its
// end. Where steps follow each other without a pause that is the time between their ends; where the caller does
// something else between runs, that is left out, and so are binding and capturing, which the host does before the step
// begins. A device whose queue was full when a trial began works off ops that were issued long before, and does not
// show what issuing costs: so the thread's time inside run() is measured too, and a block of steps costs the longer of
// the two, as it would if it went on. Work that the host could have done while the device works is not counted.
//
// Method. Blocks of successive steps of the mode that was chosen (A) and of another (B) follow each other as A B B A,
// then B A A B: in both sums a drift of the machine, and whatever comes with the place in the order, cancel (Box,
// Hunter and Hunter, "Statistics for Experimenters", on paired and counterbalanced designs). The first step of a block
// warms caches up and does not count. One such comparison gives one number, log(time of B / time of A); ratios are
// averaged as logarithms (Fleming and Wallace, "How not to lie with statistics", CACM 29(3), 1986). Their mean has the
// interval of Student's t. Looking at it after every comparison would sooner or later find a difference where there is
// none (Armitage, McPherson and Rowe, "Repeated significance tests on accumulating data", 1969): it is looked at after
// 4, 8, 16, 32 and 64 comparisons, with 99 % each, hence 95 % for all (Bonferroni), for each B. Then counting begins
// anew, as the machine may have changed. B is chosen when the whole interval says that it is faster, and by
// kWorthwhile.
//
// Cost. All steps of B are trials. A comparison begins only if the trials so far and those of this comparison are at
// most kTrialShare of the time of all steps so far, and each B has an equal part of that: a slow one does not keep
// others from their turn. A trial is expected to take what it took in the better block of the last comparison (one in a
// mode that never ran, what it takes interactively); if it takes longer, the next comparison has to wait. The first
// step is interactive, as it is for every set of input shapes. It is no trial, and says what one takes, but being the
// first it may say far too much: the blocks of the first comparison have one step, which is enough to know better and
// not to decide.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "graphsink/automatic.h"

namespace graphsink {

class ModeChooser {
 public:
  static constexpr double kTrialShare = 0.01;
  static constexpr double kWorthwhile = 0.01;
  static constexpr std::int64_t kBlockSteps = 4;  // the first of them does not count

  struct Turn {
    Mode mode = sink;
    std::int64_t steps = 0;
    std::uint64_t tag = 0;  // below 2^47, never 0
    bool is_compared = false;
  };
  Mode mode_of(std::uint64_t tag) const { return candidates_[tag & kCandidateMask].report.mode; }

  // The first candidate is chosen until another has shown to be faster; or interactive_serial, which is one of them, if
  // `begins_interactive`.
  explicit ModeChooser(const std::vector<Mode>& candidates, bool begins_interactive = false);

  // Returns the next turn: the mode of the first Turn::steps steps, at least one, of the coming `steps` steps. They do
  // not sink, and are not compared, unless `may_sink`.
  Turn next(std::int64_t steps, bool may_sink = true);
  // The thread's time for issuing a turn that is compared. Not called where the turn was not issued as it should be.
  void issued(const Turn& turn, double ns);
  // One step of the turn with that tag is done. In the order of the turns; some may be missing.
  void completed(std::uint64_t tag, double ns, bool ok);
  // The turn last given was not issued, or not as it should be: the comparison in progress is no good.
  void drop();

  AutomaticReport report() const;

 private:
  struct Candidate {
    AutomaticReport::Candidate report;
    double expected_ns = 0;  // expected time of a step; 0: not known
    double trial_ns = 0;     // time of all its trials so far
    bool was_tried = false;
    // Logarithms of its ratios to the chosen one since counting began.
    int count = 0;
    double mean = 0, squares = 0;  // mean and sum of squared differences from it (Welford, Technometrics 4(3), 1962)
  };
  struct Block {
    bool is_trial = false;
    std::int64_t planned = 0, issued = 0, seen = 0, counted = 0;
    double all_ns = 0, counted_ns = 0, host_ns = 0;

    double step_ns() const;
  };
  static constexpr std::size_t kBlocks = 4;
  // A tag: the number of a block, whether it is a trial, the index of the candidate.
  static constexpr std::uint64_t kCandidateMask = 15, kTrial = 16;
  static constexpr int kNumberShift = 5;

  std::size_t index_of(Mode mode) const;
  double expected_ns(const Candidate& candidate) const;
  double trial_ns() const;  // time of all trials of all candidates so far
  bool can_afford(const Candidate& other, std::int64_t trials) const;
  std::int64_t trials_of(const Candidate& other, std::int64_t steps) const;  // in a block of its own
  bool open(std::int64_t steps);                                             // false: none can be afforded
  Block* block_of(std::uint64_t number);
  void spoil();
  void close();
  void add(Candidate& other, double log_ratio);
  void look(Candidate& other);
  void choose(Candidate& other);

  std::vector<Candidate> candidates_;
  std::size_t chosen_ = 0;
  bool has_begun_ = false;
  double all_ns_ = 0;
  Turn last_;
  // The comparison in progress: from the first turn of its first block to the last time of its last.
  bool is_open_ = false;
  bool is_good_ = true;
  bool trial_first_ = true;  // order of the last comparison: true is B A A B, false A B B A
  std::size_t other_ = 0;    // B
  std::array<Block, kBlocks> blocks_;
  std::size_t current_ = kBlocks;   // the block that takes the next step; kBlocks: all were issued
  std::uint64_t first_number_ = 0;  // number of the first block; the turns between two comparisons have a number, too
  std::uint64_t number_ = 1;
  std::int64_t comparisons_ = 0, switches_ = 0;
};

}  // namespace graphsink
