#include "device/cpu/schedule_choice.h"

#include <algorithm>

#include "base/at.h"

namespace graphsink {
namespace {

template <class Times>
double median(Times times) {
  std::nth_element(times.begin(), times.begin() + times.size() / 2, times.end());
  return times[times.size() / 2];
}

}  // namespace

// Rivals are the ways from `rival` on, in order, without the best one; none is left at the end of a round.
void ScheduleChoice::begin_trial(int rival) {
  rival_ = rival == best_ ? rival + 1 : rival;
  launch_ = 0;
  if (rival_ < ways_) return;
  launch_ = -kBetweenRounds;
  usual_ = 0;
  slow_ = 0;
}

bool ScheduleChoice::has_rival_won() const {
  for (std::size_t turn = 0; turn < kTurns; turn += 2)
    if (median(turns_[turn + 1]) >= kFaster * median(turns_[turn])) return false;
  return true;
}

// The usual time follows the measured times slowly.
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
  const int in_turn = launch_ % kTurn;
  if (in_turn > 0) turns_[at(launch_ / kTurn)][at(in_turn - 1)] = time;
  if (++launch_ < kTurns * kTurn) return;
  const int rival = rival_;
  if (has_rival_won()) best_ = rival;
  begin_trial(rival + 1);
}

}  // namespace graphsink
