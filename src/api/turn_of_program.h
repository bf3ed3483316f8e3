// A program as a user of groups of ranks, which may outlive it.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
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

  // The groups of its plan; null: it exchanges nothing. `on_host`: in host nodes of a device, which may run all host
  // nodes of a process one after the other, in the order in which they become ready.
  void set_groups(std::shared_ptr<const RankTurns> groups, bool on_host) {
    groups_ = std::move(groups);
    on_host_ = on_host;
  }
  bool has_groups() const { return groups_ != nullptr; }

  // Before the program is bound, in which ranks compare plans. Not inside its gate, because it waits for others.
  void wait_for_others(const Where& where) const {
    if (groups_) (void)groups_->hold(where);
  }
  // Before steps are given to the device. Likewise.
  void take(const Where& where) {
    if (!groups_) return;
    if (on_host_) wait_for_host_nodes();
    groups_->take(user_, where);
  }
  // The host has waited for all steps.
  void leave() const {
    if (!groups_) return;
    user_->thread = std::thread::id();
    groups_->leave(*user_);
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
    // The thread that has given the device steps with host nodes; none: they were waited for.
    std::atomic<std::thread::id> thread{};
  };

  // Whatever its groups are, the steps of the program that this thread has run before are to end first: their host
  // nodes may become ready later than those of this program, and in another order on another rank.
  void wait_for_host_nodes() const {
    static thread_local std::weak_ptr<User> last;
    const std::shared_ptr<User> before = last.lock();
    if (before && before != user_ && before->thread == std::this_thread::get_id()) before->finish_steps();
    user_->thread = std::this_thread::get_id();
    last = user_;
  }

  std::shared_ptr<User> user_;
  std::shared_ptr<const RankTurns> groups_;
  bool on_host_ = false;
};

}  // namespace graphsink
