#include "exec/choose/mode_chooser.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/number_text.h"

namespace graphsink {
namespace {

// After how many comparisons the result is tested, and the two-sided 99 % quantile of Student's t for that number (with
// one degree of freedom less).
struct Look {
  int comparisons;
  double t;
};
constexpr Look kLooks[] = {{4, 5.841}, {8, 3.499}, {16, 2.947}, {32, 2.744}, {64, 2.656}};

}  // namespace

double ModeChooser::Block::step_ns() const {
  return std::max(counted_ns / static_cast<double>(counted), host_ns / static_cast<double>(issued));
}

ModeChooser::ModeChooser(const std::vector<Mode>& candidates, bool begins_interactive) {
  for (Mode mode : candidates) candidates_.emplace_back().report.mode = mode;
  if (begins_interactive) chosen_ = index_of(interactive_serial);
}

std::size_t ModeChooser::index_of(Mode mode) const {
  std::size_t i = 0;
  while (candidates_[i].report.mode != mode) ++i;
  return i;
}

double ModeChooser::expected_ns(const Candidate& candidate) const {
  return candidate.expected_ns > 0 ? candidate.expected_ns : candidates_[index_of(interactive_serial)].expected_ns;
}

double ModeChooser::trial_ns() const {
  double sum = 0;
  for (const Candidate& candidate : candidates_) sum += candidate.trial_ns;
  return sum;
}

// Returns the number of steps in a trial block. A block of sink consists of whole launches, which have as many steps as
// the launches that would follow if sink were chosen.
std::int64_t ModeChooser::trials_of(const Candidate& other, std::int64_t steps) const {
  std::int64_t block_steps = other.was_tried ? kBlockSteps : 1;
  return other.report.mode == sink ? std::max(block_steps, steps) : block_steps;
}

bool ModeChooser::can_afford(const Candidate& other, std::int64_t trials) const {
  double expected = static_cast<double>(trials) * expected_ns(other);
  double part = kTrialShare / static_cast<double>(candidates_.size() - 1);
  return expected > 0 && trial_ns() + expected <= kTrialShare * all_ns_ && other.trial_ns + expected <= part * all_ns_;
}

bool ModeChooser::open(std::int64_t steps) {
  std::size_t other = chosen_;
  for (std::size_t i = 0; i < candidates_.size(); ++i) {
    if (i == chosen_ || !can_afford(candidates_[i], 2 * trials_of(candidates_[i], steps))) continue;
    if (other == chosen_ || candidates_[i].trial_ns < candidates_[other].trial_ns) other = i;
  }
  if (other == chosen_) return false;
  other_ = other;
  std::int64_t trials = trials_of(candidates_[other], steps);
  is_open_ = is_good_ = true;
  trial_first_ = !trial_first_;
  for (std::size_t i = 0; i < kBlocks; ++i) {
    blocks_[i] = Block{};
    blocks_[i].is_trial = (i == 0 || i == kBlocks - 1) == trial_first_;
    blocks_[i].planned = blocks_[i].is_trial ? trials : candidates_[other].was_tried ? kBlockSteps : 1;
  }
  candidates_[other].was_tried = true;
  current_ = 0;
  first_number_ = number_ + 1;
  number_ += kBlocks + 1;
  return true;
}

ModeChooser::Turn ModeChooser::next(std::int64_t steps, bool may_sink) {
  Turn turn{candidates_[chosen_].report.mode, steps, 0, false};
  std::uint64_t number = number_;
  bool is_trial = false;
  if (!std::exchange(has_begun_, true)) {
    turn.mode = interactive_serial;
    turn.steps = 1;
  } else if (!may_sink) {
    turn.mode = interactive_serial;
  } else if (is_open_ || open(steps)) {
    turn.is_compared = current_ < kBlocks;
  }
  if (turn.is_compared) {
    Block& block = blocks_[current_];
    number = first_number_ + current_;
    is_trial = block.is_trial;
    if (is_trial) {
      turn.mode = candidates_[other_].report.mode;
      turn.steps = std::min(steps, block.planned - block.issued);
    }
    block.issued += turn.steps;
    if (block.issued >= block.planned) ++current_;
  }
  std::size_t candidate = index_of(turn.mode);
  turn.tag = number << kNumberShift | (is_trial ? kTrial : 0) | candidate;
  last_ = turn;
  candidates_[candidate].report.steps += turn.steps;
  return turn;
}

ModeChooser::Block* ModeChooser::block_of(std::uint64_t number) {
  bool is_in = is_open_ && number >= first_number_ && number < first_number_ + kBlocks;
  return is_in ? &blocks_[static_cast<std::size_t>(number - first_number_)] : nullptr;
}

void ModeChooser::issued(const Turn& turn, double ns) {
  if (Block* block = block_of(turn.tag >> kNumberShift)) block->host_ns += ns;
}

// Called when the last turn will not be timed. Its time is then assumed to be the expected one.
void ModeChooser::drop() {
  spoil();
  if (!(last_.tag & kTrial)) return;
  Candidate& trial = candidates_[index_of(last_.mode)];
  double ns = static_cast<double>(last_.steps) * expected_ns(trial);
  all_ns_ += ns;
  trial.trial_ns += ns;
}

void ModeChooser::spoil() {
  is_good_ = false;
  current_ = kBlocks;
}

void ModeChooser::completed(std::uint64_t tag, double ns, bool ok) {
  std::uint64_t number = tag >> kNumberShift;
  ns = std::max(ns, 0.0);
  all_ns_ += ns;
  Candidate& candidate = candidates_[tag & kCandidateMask];
  if (tag & kTrial) candidate.trial_ns += ns;
  if (candidate.expected_ns == 0) candidate.expected_ns = ns;
  if (!is_open_) return;
  if (Block* block = block_of(number)) {
    if (!ok) spoil();
    block->all_ns += ns;
    if (++block->seen > 1) {
      ++block->counted;
      block->counted_ns += ns;
    }
  }
  bool is_over = number >= first_number_ + kBlocks;
  bool is_complete = current_ == kBlocks && std::all_of(blocks_.begin(), blocks_.end(),
                                                        [](const Block& block) { return block.seen == block.issued; });
  if (is_over || is_complete) close();
}

void ModeChooser::close() {
  is_open_ = false;
  Candidate& other = candidates_[other_];
  // [0] is the chosen mode, [1] the other: sums of the step times of both blocks, and the shorter mean step time.
  std::array<double, 2> sums{}, least{};
  for (const Block& block : blocks_) {
    double unseen = std::max(block.host_ns - block.all_ns, 0.0);  // the time to issue is part of the cost of a trial
    if (block.is_trial) {
      all_ns_ += unseen;
      other.trial_ns += unseen;
    }
    if (block.seen > 0) {
      double each = (block.all_ns + unseen) / static_cast<double>(block.seen);
      double& best = least[block.is_trial];
      best = best > 0 ? std::min(best, each) : each;
    }
    is_good_ &= block.counted > 0;
    if (is_good_) sums[block.is_trial] += block.step_ns();
  }
  if (least[0] > 0) candidates_[chosen_].expected_ns = least[0];
  if (least[1] > 0) other.expected_ns = least[1];
  if (is_good_ && sums[0] > 0 && sums[1] > 0) add(other, std::log(sums[1] / sums[0]));
}

void ModeChooser::add(Candidate& other, double log_ratio) {
  double difference = log_ratio - other.mean;
  ++other.count;
  ++comparisons_;
  other.mean += difference / other.count;
  other.squares += difference * (log_ratio - other.mean);
  look(other);
}

void ModeChooser::look(Candidate& other) {
  auto now = std::find_if(std::begin(kLooks), std::end(kLooks),
                          [&](const Look& look) { return look.comparisons == other.count; });
  if (now == std::end(kLooks)) return;
  double half = now->t * std::sqrt(other.squares / (other.count - 1) / other.count);
  double low = other.mean - half, high = other.mean + half;
  other.report.ratio = std::exp(other.mean);
  other.report.low = std::exp(low);
  other.report.high = std::exp(high);
  if (now + 1 == std::end(kLooks)) {
    other.count = 0;
    other.mean = other.squares = 0;
  }
  if (high < -std::log1p(kWorthwhile)) choose(other);
}

// Makes `other` the chosen mode. The statistics of all candidates are reset, because they were measured against the
// mode chosen before.
void ModeChooser::choose(Candidate& other) {
  AutomaticReport::Candidate ratio = other.report;
  for (Candidate& candidate : candidates_) {
    candidate.count = 0;
    candidate.mean = candidate.squares = 0;
    candidate.report.ratio = candidate.report.low = candidate.report.high = 0;
  }
  AutomaticReport::Candidate& before = candidates_[chosen_].report;
  before.ratio = 1 / ratio.ratio;
  before.low = 1 / ratio.high;
  before.high = 1 / ratio.low;
  chosen_ = index_of(other.report.mode);
  ++switches_;
}

AutomaticReport ModeChooser::report() const {
  AutomaticReport report;
  report.chosen = candidates_[chosen_].report.mode;
  for (const Candidate& candidate : candidates_) report.candidates.push_back(candidate.report);
  report.switches = switches_;
  report.comparisons = comparisons_;
  report.seconds = all_ns_ * 1e-9;
  report.trial_seconds = trial_ns() * 1e-9;
  return report;
}

AutomaticReport::Candidate AutomaticReport::of(Mode mode) const {
  for (const Candidate& candidate : candidates)
    if (candidate.mode == mode) return candidate;
  return {mode};
}

std::string to_string(const AutomaticReport& report) {
  std::int64_t steps = 0;
  std::string issued, ratios;
  for (const AutomaticReport::Candidate& candidate : report.candidates) {
    std::string mode(to_string(candidate.mode));
    steps += candidate.steps;
    issued += (issued.empty() ? "" : ", ") + std::to_string(candidate.steps) + " " + mode;
    if (candidate.ratio == 0) continue;
    ratios += (ratios.empty() ? "" : ", ") + mode + " " + fixed_text(candidate.ratio, 3) + " (" +
              fixed_text(candidate.low, 3) + " to " + fixed_text(candidate.high, 3) + ")";
  }
  if (steps == 0) return "automatic: no step yet";
  std::string text = "automatic: " + std::string(to_string(report.chosen)) + "; steps: " + issued;
  std::string comparisons = std::to_string(report.comparisons);
  if (ratios.empty()) return text + "; too few comparisons yet (" + comparisons + ")";
  return text + "; times as long as it take: " + ratios + "; " + comparisons + " comparisons took " +
         fixed_text(100 * report.trial_seconds / report.seconds, 2) + " % of the time";
}

}  // namespace graphsink
