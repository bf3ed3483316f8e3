// Keeps a program's run() apart from what others do with its Variables, without taking a lock for each of them.
#pragma once

#include <atomic>
#include <cstdint>

namespace graphsink {

// One per program, known to each Variable that the program uses. The program counts on what it found when it last
// looked at its Variables, each under its mutex, as long as the epoch has not moved since.
//
// The program and the others meet as in Dekker's algorithm. The program says that it is inside run(), then looks at the
// epoch; another user moves the epoch, then looks whether the program is inside run(), and waits until it is not. As
// all four accesses are sequentially consistent, at least one side sees the other: either the program finds that the
// epoch has moved, leaves and looks at its Variables again, or the other waits for the end of the run. Who only reads a
// Variable holds the gate in place of moving the epoch: the program waits outside meanwhile, and need not look at its
// Variables again. A program never takes the mutex of a Variable while it is inside, so that others may hold one while
// they wait.
class RunGate {
 public:
  // The program's thread is inside run() from construction until leave() or destruction.
  class Inside {
   public:
    explicit Inside(RunGate& gate) : gate_(&gate) { gate.enter(); }
    ~Inside() { leave(); }
    Inside(const Inside&) = delete;
    Inside& operator=(const Inside&) = delete;
    void leave() {
      if (gate_) gate_->leave();
      gate_ = nullptr;
    }

   private:
    RunGate* gate_;
  };

  // Moves whenever somebody has touched a Variable of the program; never 0.
  std::uint64_t epoch() const { return epoch_.load(); }

  // For others, holding the Variable's mutex: from the next run() on the program looks at its Variables again.
  void touch() { epoch_.fetch_add(1); }
  // After touch(): returns when the program is not inside run(). Returns at once on the thread that is inside.
  void wait_until_outside() const {
    while (is_inside_.load() != 0 && thread_.load(std::memory_order_relaxed) != this_thread()) is_inside_.wait(1);
  }

  // The program is outside between these two, unless this thread is the one that is inside. For others, holding the
  // Variable's mutex.
  void hold() {
    holds_.fetch_add(1);
    wait_until_outside();
  }
  void release() {
    holds_.fetch_sub(1);
    holds_.notify_all();
  }

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

  std::atomic<std::uint64_t> epoch_ = 1;
  std::atomic<int> is_inside_ = 0;
  std::atomic<int> holds_ = 0;
  std::atomic<const void*> thread_ = nullptr;  // the thread that entered last
};

}  // namespace graphsink
