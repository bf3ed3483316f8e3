#include "device/cpu/schedule_choice.h"

#include <algorithm>

#include "base/at.h"

namespace graphsink {

// Rivals are the ways behind `rival`, in order, without the best one; none is left at the end of a round.
void ScheduleChoice::begin_trial(int rival) {
  rival_ = rival == best_ ? rival + 1 : rival;
  launch_ = 0;
  if (rival_ < ways_) return;
  rival_ = -1;
  launch_ = -kBetweenRounds;
}

void ScheduleChoice::took(double time) {
  if (!is_trial()) {
    if (++launch_ == 0) begin_trial(0);
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
