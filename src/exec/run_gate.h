// Keeps a program's calls apart from what other threads do with its Variables, without taking a lock for each of them.
#pragma once

#include <atomic>
#include <cstdint>

namespace graphsink {

// One per program, known to each Variable that the program uses. The program is inside while one of its calls uses its
// device. It counts on what it found when it last took its Variables, each under its lock, as long as the epoch has not
// moved since.
//
// The program and the others meet as in Dekker's algorithm. The program says that it is inside, then looks at the
// epoch; another user moves the epoch, then looks whether the program is inside, and waits until it is not. As all four
// accesses are sequentially consistent, at least one side sees the other: either the program finds that the epoch has
// moved, leaves and takes its Variables again, or the other waits until the program is outside. Who only reads a
// Variable holds the gate in place of moving the epoch: the program waits outside meanwhile, and need not take its
// Variables again. A program never waits for the lock of a Variable while it is inside, so that others may hold one
// while they wait.
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

  // Moves whenever somebody else has used or broken a Variable of the program; never 0.
  std::uint64_t epoch() const { return epoch_.load(); }

  // For others, holding the Variable's lock, or marking it as broken: the next run() takes its Variables again.
  void touch() { epoch_.fetch_add(1); }
  // After touch(): returns when the program is not inside. Returns at once on the thread that is inside.
  void wait_until_outside() const {
    while (is_inside_.load() != 0 && thread_.load(std::memory_order_relaxed) != this_thread()) is_inside_.wait(1);
  }

  // Whether this thread is the one that used the program last.
  bool is_used_here() const { return thread_.load(std::memory_order_relaxed) == this_thread(); }

  // The program is outside between these two, unless this thread is the one that is inside. For others, holding the
  // Variable's lock.
  void hold() {
    holds_.fetch_add(1);
    wait_until_outside();
  }
  void release() {
    holds_.fetch_sub(1);
    holds_.notify_all();
  }

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

  int depth_ = 0;  // of the program's thread, as a program is used by one at a time
  std::atomic<std::uint64_t> epoch_ = 1;
  std::atomic<int> is_inside_ = 0;
  std::atomic<int> holds_ = 0;
  std::atomic<const void*> thread_ = nullptr;  // the thread that entered last
};

}  // namespace graphsink
