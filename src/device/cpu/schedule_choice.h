// Which of several ways to run a captured graph is the fastest, by measurement.
//
// Whether it pays that threads share small tiles depends on how fast the cores of the machine exchange data, and on
// whether two processors are two cores or two threads of one core, which may change while a virtual machine runs. So no
// estimate is right everywhere. Results do not depend on the way.
#pragma once

#include <array>

namespace graphsink {

class ScheduleChoice {
 public:
  // Way 0 is the one to begin with.
  explicit ScheduleChoice(int ways) : ways_(ways) {}

  // The way to run the next launch. It remains the same until took() is called.
  int next() const { return is_rivals_turn() ? rival_ : best_; }
  // How long that launch took, in any unit.
  void took(double time);

  // In a trial, the best way so far and a rival take turns of some launches each, so that whatever else slows the
  // machine down, or makes the launches longer or shorter, does so to both. The first launch of a turn does not count:
  // it wakes threads, or finds data in another cache. The rival wins if the median of each of its turns is the smaller
  // one.
  static constexpr int kTurns = 4, kTurn = 4;
  static constexpr double kFaster = 0.95;
  // After a round of trials against all other ways, the best one runs until the next round. That begins early if some
  // launches in a row take longer than usual, but not too early.
  static constexpr int kBetweenRounds = 1000, kLeastBetweenRounds = 200;
  static constexpr double kSlow = 1.2;
  static constexpr int kSlowInARow = 3;
  static constexpr int kWarmUp = 2;  // launches, at the beginning

 private:
  using Turn = std::array<double, kTurn - 1>;  // times

  bool is_trial() const { return launch_ >= 0; }
  bool is_rivals_turn() const { return is_trial() && launch_ / kTurn % 2 == 1; }
  void begin_trial(int rival);
  bool has_rival_won() const;
  bool is_slower_than_usual(double time);

  const int ways_;
  int best_ = 0, rival_ = 0;
  int launch_ = -kWarmUp;  // launch of the trial, from 0; negative: minus the launches left until the next round
  std::array<Turn, kTurns> turns_{};
  double usual_ = 0;  // time of the best way; 0: not known
  int slow_ = 0;      // launches in a row that took longer
};

}  // namespace graphsink
