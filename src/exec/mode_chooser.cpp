#include "exec/mode_chooser.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <utility>

namespace graphsink {
namespace {

// Two-sided 99 % quantiles of Student's t with `comparisons - 1` degrees of freedom.
struct Look {
  int comparisons;
  double t;
};
constexpr Look kLooks[] = {{4, 5.841}, {8, 3.499}, {16, 2.947}, {32, 2.744}, {64, 2.656}};

}  // namespace

double ModeChooser::Block::step_ns() const {
  return std::max(counted_ns / static_cast<double>(counted), host_ns / static_cast<double>(issued));
}

bool ModeChooser::can_afford(std::int64_t trials) const {
  double expected = expected_ns_[static_cast<std::size_t>(other())];
  return expected > 0 && trial_ns_ + static_cast<double>(trials) * expected <= kTrialShare * all_ns_;
}

bool ModeChooser::open(std::int64_t steps) {
  // A sunk block is made of whole launches, as those that come if this side is chosen.
  std::int64_t block_steps = has_tried_ ? kBlockSteps : 1;
  std::int64_t trials = other() == Side::sunk ? std::max(block_steps, steps) : block_steps;
  if (!can_afford(2 * trials)) return false;
  is_open_ = is_good_ = has_tried_ = true;
  trial_first_ = !trial_first_;
  for (std::size_t i = 0; i < kBlocks; ++i) {
    bool is_trial = (i == 0 || i == kBlocks - 1) == trial_first_;
    blocks_[i] = Block{};
    blocks_[i].side = is_trial ? other() : chosen_;
    blocks_[i].planned = is_trial ? trials : block_steps;
  }
  current_ = 0;
  first_number_ = number_ + 1;
  number_ += kBlocks + 1;
  return true;
}

ModeChooser::Turn ModeChooser::next(std::int64_t steps) {
  Turn turn{chosen_, steps, 0, false};
  std::uint64_t number = number_;
  bool is_trial = false;
  if (!std::exchange(has_begun_, true)) {
    turn.side = Side::interactive;
    turn.steps = 1;
  } else if (is_open_ || open(steps)) {
    turn.is_compared = current_ < kBlocks;
  }
  if (turn.is_compared) {
    Block& block = blocks_[current_];
    number = first_number_ + current_;
    turn.side = block.side;
    is_trial = block.side != chosen_;
    if (is_trial) turn.steps = std::min(steps, block.planned - block.issued);
    block.issued += turn.steps;
    if (block.issued >= block.planned) ++current_;
  }
  turn.tag = number << 2 | (is_trial ? 2u : 0u) | static_cast<std::uint64_t>(turn.side);
  (turn.side == Side::sunk ? report_.sunk_steps : report_.interactive_steps) += turn.steps;
  return turn;
}

ModeChooser::Block* ModeChooser::block_of(std::uint64_t number) {
  bool is_in = is_open_ && number >= first_number_ && number < first_number_ + kBlocks;
  return is_in ? &blocks_[static_cast<std::size_t>(number - first_number_)] : nullptr;
}

void ModeChooser::issued(const Turn& turn, double ns) {
  if (Block* block = block_of(turn.tag >> 2)) block->host_ns += ns;
}

void ModeChooser::drop() {
  is_good_ = false;
  current_ = kBlocks;
}

void ModeChooser::completed(std::uint64_t tag, double ns, bool ok) {
  std::uint64_t number = tag >> 2;
  ns = std::max(ns, 0.0);
  all_ns_ += ns;
  if (tag & 2) trial_ns_ += ns;
  double& expected = expected_ns_[static_cast<std::size_t>(side_of(tag))];
  if (expected == 0) expected = ns;
  if (!is_open_) return;
  if (Block* block = block_of(number)) {
    if (!ok) drop();
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
  std::array<double, 2> sums{}, least{};  // by side: of both blocks, a step of the better
  for (const Block& block : blocks_) {
    auto side = static_cast<std::size_t>(block.side);
    double unseen = std::max(block.host_ns - block.all_ns, 0.0);  // issuing is part of what a trial costs
    if (block.side != chosen_) all_ns_ += unseen, trial_ns_ += unseen;
    if (block.seen > 0) {
      double each = (block.all_ns + unseen) / static_cast<double>(block.seen);
      least[side] = least[side] > 0 ? std::min(least[side], each) : each;
    }
    is_good_ &= block.counted > 0;
    if (is_good_) sums[side] += block.step_ns();
  }
  for (std::size_t side = 0; side < least.size(); ++side)
    if (least[side] > 0) expected_ns_[side] = least[side];
  double interactive = sums[static_cast<std::size_t>(Side::interactive)];
  double sunk = sums[static_cast<std::size_t>(Side::sunk)];
  if (is_good_ && sunk > 0 && interactive > 0) add(std::log(interactive / sunk));
}

void ModeChooser::add(double log_ratio) {
  double difference = log_ratio - mean_;
  ++count_;
  ++report_.comparisons;
  mean_ += difference / count_;
  squares_ += difference * (log_ratio - mean_);
  look();
}

void ModeChooser::look() {
  auto now =
      std::find_if(std::begin(kLooks), std::end(kLooks), [&](const Look& look) { return look.comparisons == count_; });
  if (now == std::end(kLooks)) return;
  double half = now->t * std::sqrt(squares_ / (count_ - 1) / count_);
  double low = mean_ - half, high = mean_ + half;
  report_.ratio = std::exp(mean_);
  report_.low = std::exp(low);
  report_.high = std::exp(high);
  const double gain = std::log1p(kWorthwhile);
  bool is_other_faster = chosen_ == Side::sunk ? high < -gain : low > gain;
  if (is_other_faster) {
    chosen_ = other();
    ++report_.switches;
  }
  if (is_other_faster || now + 1 == std::end(kLooks)) {
    count_ = 0;
    mean_ = squares_ = 0;
  }
}

AutomaticReport ModeChooser::report() const {
  AutomaticReport report = report_;
  report.sinks = chosen_ == Side::sunk;
  report.seconds = all_ns_ * 1e-9;
  report.trial_seconds = trial_ns_ * 1e-9;
  return report;
}

std::string to_string(const AutomaticReport& report) {
  if (report.interactive_steps == 0) return "automatic: no step yet";
  char text[256];
  std::snprintf(text, sizeof text, "automatic: %s; %lld steps sunk, %lld interactive",
                report.sinks ? "sinks" : "runs op by op", static_cast<long long>(report.sunk_steps),
                static_cast<long long>(report.interactive_steps));
  std::string sentence = text;
  if (report.ratio == 0) return sentence + "; too few comparisons yet (" + std::to_string(report.comparisons) + ")";
  std::snprintf(
      text, sizeof text,
      "; an interactive step takes %.3f (%.3f to %.3f) times as long as a sunk one, in %lld comparisons, which took "
      "%.2f %% of the time",
      report.ratio, report.low, report.high, static_cast<long long>(report.comparisons),
      report.seconds > 0 ? 100 * report.trial_seconds / report.seconds : 0.0);
  return sentence + text;
}

}  // namespace graphsink
