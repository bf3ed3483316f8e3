// OneThread: for an object that is used by one thread at a time. A second one meets an Error in the place of a race.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <thread>

#include "base/fork_mark.h"
#include "graphsink/error.h"

namespace graphsink {

class OneThread {
 public:
  // A call of the object, as long as this lives. Within it the same thread may make further ones.
  class Call {
   public:
    // Throws Error in the name of the `object`, such as "Program", while another thread is in a call of it.
    Call(OneThread& of, const char* object, const Where& where) {
      std::thread::id caller;
      if (of.caller_.compare_exchange_strong(caller, std::this_thread::get_id(), std::memory_order_acquire)) {
        is_first_of_ = &of;
      } else if (caller != std::this_thread::get_id()) {
        of.fork_mark_.require_parent(object, where);  // a child of fork() does not have the thread that is in the call
        refuse(object, where);
      }
    }
    // One that is not counted: any number of threads may make it.
    Call() = default;
    ~Call() {
      if (is_first_of_ != nullptr) is_first_of_->caller_.store({}, std::memory_order_release);
    }
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;

   private:
    [[noreturn]] static void refuse(const std::string& object, const Where& where) {
      throw Error(object, where, "another thread is in a call of it",
                  "use a " + object +
                      " on one thread at a time: let threads take turns by a lock around their calls, "
                      "or give each its own");
    }

    OneThread* is_first_of_ = nullptr;
  };

 private:
  std::atomic<std::thread::id> caller_{};
  ForkMark fork_mark_;
};

// A call of an object that lives at least as long as the call, also if that replaces it.
struct Held {
  std::shared_ptr<const void> object;
  OneThread::Call call;
};

// The implementation of a public object, for one call: impl(where)->run(...).
template <class Impl>
class CallOf {
 public:
  CallOf(Impl& impl, OneThread& of, const char* object, const Where& where) : impl_(impl), call_(of, object, where) {}
  // A call that is not counted.
  explicit CallOf(Impl& impl) : impl_(impl) {}
  Impl* operator->() const { return &impl_; }

 private:
  Impl& impl_;
  OneThread::Call call_;
};

}  // namespace graphsink
