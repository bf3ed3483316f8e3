// Keeps a program's calls apart from what other threads do with its Variables, without a lock in each call.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace graphsink {

// Each program has one gate, which each Variable that the program uses knows. The program is inside while one of its
// calls uses its device. The state that the program found when it last took its Variables, each under its lock, holds
// as long as the epoch has not changed.
//
// The program and other users of its Variables exclude each other as in Dekker's algorithm. The program marks itself as
// inside, then reads the epoch. Another user changes the epoch, then reads whether the program is inside, and waits
// until it is not. All four accesses are sequentially consistent, so at least one side sees the other: either the
// program finds a changed epoch, leaves and takes its Variables again, or the other user waits until the program is
// outside. A user that only reads a Variable holds the gate instead of changing the epoch: the program waits outside
// until the gate is released, and need not take its Variables again. A program never waits for the lock of a Variable
// while it is inside, so other users may hold one while they wait.
class RunGate {
 public:
  // The program's thread is inside from construction to destruction. May be nested.
  class Inside {
   public:
    explicit Inside(RunGate& gate) : gate_(gate) {
      if (gate_.depth_++ == 0) gate_.enter();
    }
    ~Inside() {
      if (--gate_.depth_ == 0) gate_.leave();
    }
    Inside(const Inside&) = delete;
    Inside& operator=(const Inside&) = delete;

   private:
    RunGate& gate_;
  };

  // Changes whenever another user has used or broken a Variable of the program. Never 0.
  std::uint64_t epoch() const { return epoch_.load(); }

  // Called by other users, who hold the Variable's lock or have marked it as broken. The program's next run() takes its
  // Variables again.
  void touch() { epoch_.fetch_add(1); }
  // After touch(): returns when the program is not inside. Returns at once on the thread that is inside.
  void wait_until_outside() const {
    while (is_inside_.load() != 0 && thread_.load(std::memory_order_relaxed) != this_thread()) is_inside_.wait(1);
  }

  // Whether this thread is the one that used the program last.
  bool is_used_here() const { return thread_.load(std::memory_order_relaxed) == this_thread(); }

  // Called by other users, who hold the Variable's lock. From hold() to release() the program is outside, unless the
  // calling thread is the one that is inside.
  void hold() {
    holds_.fetch_add(1);
    wait_until_outside();
  }
  void release() {
    holds_.fetch_sub(1);
    holds_.notify_all();
  }

  // Another user of its Variables waits for the program's work while one lives.
  class Awaited {
   public:
    explicit Awaited(RunGate& gate) : gate_(gate) {
      if (gate_.awaited_by_.load() == 0)
        gate_.awaited_since_ = std::chrono::steady_clock::now().time_since_epoch().count();
      gate_.awaited_by_.fetch_add(1);  // whoever sees that somebody waits sees since when
    }
    ~Awaited() { gate_.awaited_by_.fetch_sub(1); }
    Awaited(const Awaited&) = delete;
    Awaited& operator=(const Awaited&) = delete;

   private:
    RunGate& gate_;
  };
  // A number for the time since when others have waited for the program's work; 0: nobody does. Any thread.
  std::int64_t awaited_since() const { return awaited_by_.load() != 0 ? awaited_since_.load() : 0; }

  // Holds a gate while it lives.
  class Held {
   public:
    explicit Held(RunGate& gate) : gate_(gate) { gate_.hold(); }
    ~Held() { gate_.release(); }
    Held(const Held&) = delete;
    Held& operator=(const Held&) = delete;

   private:
    RunGate& gate_;
  };

 private:
  void enter() {
    while (true) {
      thread_.store(this_thread(), std::memory_order_relaxed);
      is_inside_.store(1);
      int holds = holds_.load();
      if (holds == 0) return;
      leave();
      holds_.wait(holds);
    }
  }
  void leave() {
    is_inside_.store(0);
    is_inside_.notify_all();
  }
  static const void* this_thread() {
    static thread_local const char identity = 0;
    return &identity;
  }

  int depth_ = 0;  // number of nested calls; used by the program's thread alone
  std::atomic<std::uint64_t> epoch_ = 1;
  std::atomic<int> is_inside_ = 0;
  std::atomic<int> holds_ = 0;
  std::atomic<int> awaited_by_ = 0;
  std::atomic<std::int64_t> awaited_since_ = 0;
  std::atomic<const void*> thread_ = nullptr;  // the thread that entered last
};

}  // namespace graphsink
