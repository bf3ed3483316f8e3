// What the C++ memory model allows two threads that use host memory at the same time: each protocol is written as the
// loads and stores of its threads, all executions are enumerated, and no wrong one may be among them. Processors with
// strong ordering, such as those of x86-64, never show most of these.
//
// The model is that of [intro.races] in C++20, without read-modify-writes and fences: each load reads some store; a
// release store that an acquire load reads comes before it; what comes before what has no cycle and agrees with the
// order of the stores of each place (coherence).
#include "device/host_memory.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <vector>

namespace graphsink::memory_order_test {
namespace {

constexpr auto kRelease = std::memory_order_release, kAcquire = std::memory_order_acquire,
               kRelaxed = std::memory_order_relaxed;

struct Access {
  int place = 0;
  bool is_store = false;
  int value = 0;  // what is stored
  std::memory_order order = kRelaxed;
};
Access store(int place, int value, std::memory_order order) { return {place, true, value, order}; }
Access load(int place, std::memory_order order) { return {place, false, 0, order}; }

// What an execution has shown: what each load of the second thread has read, in its order, and the last values.
struct Outcome {
  std::vector<int> read;
  std::vector<int> last;
};

class Model {
 public:
  // All places hold 0 at first.
  Model(const std::vector<Access>& first, const std::vector<Access>& second) {
    for (const auto& thread : {first, second})
      for (const Access& access : thread) places_ = std::max(places_, access.place + 1);
    for (int place = 0; place < places_; ++place) add(-1, store(place, 0, kRelease));
    for (const Access& access : first) add(0, access);
    for (const Access& access : second) add(1, access);
  }

  bool allows(const std::function<bool(const Outcome&)>& is_wrong) {
    is_wrong_ = is_wrong;
    is_found_ = false;
    order_stores(0);
    return is_found_;
  }

 private:
  struct Event {
    int thread;
    Access access;
    int reads = -1;  // the store that a load reads
  };

  std::size_t size() const { return events_.size(); }
  void add(int thread, const Access& access) { events_.push_back({thread, access}); }

  std::vector<int> stores_of(int place) const {
    std::vector<int> stores;
    for (std::size_t i = 0; i < size(); ++i)
      if (events_[i].access.is_store && events_[i].access.place == place) stores.push_back(static_cast<int>(i));
    return stores;
  }

  // Every order of the stores of each place, that of the initial values first.
  void order_stores(int place) {
    if (place == places_) return choose_reads(0);
    std::vector<int> stores = stores_of(place);
    do {
      stores_.push_back(stores);
      order_stores(place + 1);
      stores_.pop_back();
    } while (std::next_permutation(stores.begin() + 1, stores.end()));
  }

  void choose_reads(std::size_t event) {
    if (event == size()) return judge();
    if (events_[event].access.is_store) return choose_reads(event + 1);
    for (int from : stores_[static_cast<std::size_t>(events_[event].access.place)]) {
      events_[event].reads = from;
      choose_reads(event + 1);
    }
  }

  void judge() {
    if (!is_consistent()) return;
    Outcome outcome;
    for (const Event& event : events_)
      if (!event.access.is_store && event.thread == 1)
        outcome.read.push_back(events_[static_cast<std::size_t>(event.reads)].access.value);
    for (const auto& stores : stores_)
      outcome.last.push_back(events_[static_cast<std::size_t>(stores.back())].access.value);
    is_found_ = is_found_ || is_wrong_(outcome);
  }

  bool is_consistent() const {
    // before[i][j]: i happens before j.
    std::vector<std::vector<bool>> before(size(), std::vector<bool>(size()));
    for (std::size_t i = 0; i < size(); ++i) {
      for (std::size_t j = 0; j < size(); ++j) {
        const Event &a = events_[i], &b = events_[j];
        const bool is_in_order = a.thread == b.thread ? i < j : a.thread == -1;
        const bool is_told = b.reads == static_cast<int>(i) && a.access.order == kRelease && b.access.order == kAcquire;
        before[i][j] = is_in_order || is_told;
      }
    }
    for (std::size_t k = 0; k < size(); ++k)
      for (std::size_t i = 0; i < size(); ++i)
        for (std::size_t j = 0; j < size(); ++j)
          if (before[i][k] && before[k][j]) before[i][j] = true;
    for (std::size_t i = 0; i < size(); ++i) {
      if (before[i][i]) return false;
      for (std::size_t j = 0; j < size(); ++j)
        if (before[i][j] && !agrees(i, j)) return false;
    }
    return true;
  }

  // Whether i may come before j by the order of the stores of their place, where they have one.
  bool agrees(std::size_t i, std::size_t j) const {
    const Event &a = events_[i], &b = events_[j];
    if (a.access.place != b.access.place) return true;
    const int first = rank(i), second = rank(j);
    // A load that reads a store comes behind it, and in front of the next.
    return b.access.is_store ? first < second : first <= second;
  }

  // The number of the store that an event is, or reads, in the order of the stores of its place.
  int rank(std::size_t event) const {
    const int made = events_[event].access.is_store ? static_cast<int>(event) : events_[event].reads;
    const auto& stores = stores_[static_cast<std::size_t>(events_[event].access.place)];
    return static_cast<int>(std::find(stores.begin(), stores.end(), made) - stores.begin());
  }

  int places_ = 0;
  std::vector<Event> events_;
  std::vector<std::vector<int>> stores_;  // of each place
  std::function<bool(const Outcome&)> is_wrong_;
  bool is_found_ = false;
};

// A ring for two values: the device puts each and then tells how many there are, the host reads the number, the oldest
// value, and the number again. It keeps the value unless that may have been overwritten meanwhile, by the step in
// progress too (exec/report/records.cpp and device/step_times.h).
bool ring_shows_a_later_value(std::memory_order put, std::memory_order read) {
  constexpr int kCount = 0, kFirst = 1, kSecond = 2;
  Model model({store(kFirst, 1, put), store(kCount, 1, kRelease), store(kSecond, 2, put), store(kCount, 2, kRelease),
               store(kFirst, 3, put), store(kCount, 3, kRelease)},
              {load(kCount, kAcquire), load(kFirst, read), load(kCount, kRelaxed)});
  return model.allows([](const Outcome& seen) {
    const bool is_there = seen.read[0] == 1 || seen.read[0] == 2;
    const bool is_kept = seen.read[2] + 1 - 2 <= 0;
    return is_there && is_kept && seen.read[1] != 1;
  });
}

TEST(MemoryOrder, ARingShowsNoValueOfTheNextRound) {
  EXPECT_FALSE(ring_shows_a_later_value(kPutOrder, kAcquire));
  EXPECT_TRUE(ring_shows_a_later_value(kRelaxed, kAcquire)) << "relaxed stores overtake the one of the number";
  EXPECT_TRUE(ring_shows_a_later_value(kPutOrder, kRelaxed)) << "relaxed loads are overtaken by the second look";
}

// The host takes note of a failure and then tells the device so; the device, once told, reports the next failure.
bool failure_gets_lost(std::memory_order put, std::memory_order read) {
  constexpr int kFailed = 0, kAcknowledged = 1;
  Model model({store(kFailed, 0, std::memory_order_release), store(kAcknowledged, 1, put)},
              {load(kAcknowledged, read), store(kFailed, 1, kRelease)});
  return model.allows([](const Outcome& seen) { return seen.read[0] == 1 && seen.last[0] == 0; });
}

TEST(MemoryOrder, NoFailureGetsLost) {
  EXPECT_FALSE(failure_gets_lost(kPutOrder, kReadOrder));
  EXPECT_TRUE(failure_gets_lost(kRelaxed, kReadOrder)) << "a relaxed store overtakes that of what it is about";
  EXPECT_TRUE(failure_gets_lost(kPutOrder, kRelaxed));
}

}  // namespace
}  // namespace graphsink::memory_order_test
