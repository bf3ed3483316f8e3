#include "device/cpu/schedule_choice.h"

#include <algorithm>

#include "base/at.h"

namespace graphsink {

// Rivals are the ways from `rival` on, in order, without the best one; none is left at the end of a round.
void ScheduleChoice::begin_trial(int rival) {
  rival_ = rival == best_ ? rival + 1 : rival;
  launch_ = 0;
  if (rival_ < ways_) return;
  launch_ = -kBetweenRounds;
  usual_ = 0;
  slow_ = 0;
}

// What is usual follows slowly.
bool ScheduleChoice::is_slower_than_usual(double time) {
  slow_ = usual_ > 0 && time > kSlow * usual_ ? slow_ + 1 : 0;
  usual_ = usual_ > 0 ? usual_ + (time - usual_) / 32 : time;
  return slow_ >= kSlowInARow;
}

void ScheduleChoice::took(double time) {
  if (!is_trial()) {
    ++launch_;
    const bool is_due = launch_ == 0 || (is_slower_than_usual(time) && launch_ >= kLeastBetweenRounds - kBetweenRounds);
    if (is_due) begin_trial(0);
    return;
  }
  if (launch_ % 2 == 0) {
    time_ = time;
  } else {
    ratios_[at(launch_ / 2)] = time / time_;
  }
  if (++launch_ < 2 * kPairs) return;
  std::nth_element(ratios_.begin(), ratios_.begin() + kPairs / 2, ratios_.end());
  const int rival = rival_;
  if (ratios_[kPairs / 2] < kFaster) best_ = rival;
  begin_trial(rival + 1);
}

}  // namespace graphsink
