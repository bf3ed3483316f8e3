// A program as a user of groups of ranks, which may outlive it.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <utility>

#include "ir/agreement.h"

namespace graphsink {

class TurnOfProgram {
 public:
  // `finish_steps`: see RankUser.
  explicit TurnOfProgram(std::function<void()> finish_steps) : user_(std::make_shared<User>(std::move(finish_steps))) {}
  ~TurnOfProgram() { retire(); }
  TurnOfProgram(const TurnOfProgram&) = delete;
  TurnOfProgram& operator=(const TurnOfProgram&) = delete;

  // The groups of its plan; null: it exchanges nothing.
  void set_groups(std::shared_ptr<const RankTurns> groups) { groups_ = std::move(groups); }
  bool has_groups() const { return groups_ != nullptr; }

  // Before the program is bound, in which ranks compare plans. Not inside its gate, because it waits for others.
  void wait_for_others(const Where& where) const {
    if (groups_) (void)groups_->hold(where);
  }
  // Before steps are given to the device. Likewise.
  void take(const Where& where) {
    if (groups_) groups_->take(user_, where);
  }
  // The host has waited for all steps.
  void leave() const {
    if (groups_) groups_->leave(*user_);
  }
  // Nothing of the program is used from then on.
  void retire() {
    leave();
    const std::lock_guard lock(user_->mutex);
    user_->finish = nullptr;
  }

 private:
  struct User : RankUser {
    explicit User(std::function<void()> finish_steps) : finish(std::move(finish_steps)) {}
    void finish_steps() override {
      const std::lock_guard lock(mutex);
      if (finish) finish();
    }
    std::mutex mutex;
    std::function<void()> finish;
  };

  std::shared_ptr<User> user_;
  std::shared_ptr<const RankTurns> groups_;
};

}  // namespace graphsink
