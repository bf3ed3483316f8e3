#include "ranks/rank_turn.h"

#include <string>
#include <utility>

namespace graphsink {

void RankTurn::require_thread(std::string_view op, const Where& where) const {
  if (thread_ == std::this_thread::get_id()) return;
  const bool has_program = !user_.expired();
  if (calls_ == 0 && !has_program) return;
  throw Error(std::string(op), where,
              calls_ > 0 ? "another thread exchanges values in this Comm now"
                         : "another thread has run a program with this Comm, and has not waited for it with sync()",
              "let one thread use the Comm at a time, and sync() its programs before another one does; threads that "
              "do not wait for each other need a Comm each: Comm::split(0) makes one");
}

bool RankTurn::take(const std::shared_ptr<RankUser>& user, std::string_view op, const Where& where) {
  std::shared_ptr<RankUser> before;
  {
    const std::lock_guard lock(mutex_);
    require_thread(op, where);
    before = user_.lock();
    thread_ = std::this_thread::get_id();
    if (!before) user_ = user;
  }
  if (before == user) return false;
  if (before) {
    before->finish_steps();  // it keeps the turn if that throws
    const std::lock_guard lock(mutex_);
    user_ = user;
  }
  return true;
}

void RankTurn::leave(const RankUser& user) {
  const std::lock_guard lock(mutex_);
  if (user_.lock().get() == &user) user_.reset();
}

RankTurn::Call::Call(RankTurn& turn, std::string_view op, const Where& where) : turn_(turn) {
  std::shared_ptr<RankUser> before;
  {
    const std::lock_guard lock(turn_.mutex_);
    turn_.require_thread(op, where);
    before = turn_.user_.lock();
    ++turn_.calls_;
    turn_.thread_ = std::this_thread::get_id();
  }
  if (!before) return;
  try {
    before->finish_steps();
    turn_.leave(*before);
  } catch (...) {
    const std::lock_guard lock(turn_.mutex_);
    --turn_.calls_;
    throw;
  }
}

RankTurn::Call::~Call() {
  const std::lock_guard lock(turn_.mutex_);
  --turn_.calls_;
}

}  // namespace graphsink
