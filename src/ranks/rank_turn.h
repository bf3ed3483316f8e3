// RankTurn: who exchanges values in a group of ranks now, so that exchanges have the order of the calls.
#pragma once

#include <memory>
#include <mutex>
#include <string_view>
#include <thread>

#include "graphsink/error.h"
#include "ir/agreement.h"

namespace graphsink {

// A program has the turn from its run until it was waited for, and a call as long as it lasts. Whoever comes next on
// the same thread waits for the steps of the program; on another thread it gets an Error, whether or not these steps
// have ended: that depends on the order of calls alone, not on how fast a rank is.
class RankTurn {
 public:
  // See RankTurns. Returns whether the user did not have the turn before.
  bool take(const std::shared_ptr<RankUser>& user, std::string_view op, const Where& where);
  void leave(const RankUser& user);

  // A call that is no step. May be nested on one thread.
  class Call {
   public:
    Call(RankTurn& turn, std::string_view op, const Where& where);
    ~Call();
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;

   private:
    RankTurn& turn_;
  };

 private:
  // Throws Error if another thread has the turn.
  void require_thread(std::string_view op, const Where& where) const;

  std::mutex mutex_;  // never held while waiting
  std::weak_ptr<RankUser> user_;
  int calls_ = 0;  // nested ones, of thread_
  std::thread::id thread_;
};

}  // namespace graphsink
