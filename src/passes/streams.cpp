#include <algorithm>
#include <map>
#include <numeric>

#include "base/at.h"
#include "passes/exchanges.h"
#include "passes/passes.h"

namespace graphsink {
namespace {

// A chain of fewer tasks is not worth a stream of its own, because it needs two events to fork and join it.
constexpr int kShortChain = 3;

}  // namespace

namespace {

class Streams {
 public:
  explicit Streams(Plan& plan)
      : plan_(plan), schedule_(plan.sequences[0].tasks), deps_(dependencies(plan)), commit_(first_commit_task(plan)) {}

  void run() {
    is_exchange_ = exchanges_beside(plan_, deps_, commit_);
    measure_chains();
    plan_.stream_devices = {0};
    place_beside();
    auto further = static_cast<int>(plan_.devices.size()) - 1;
    limit_ = std::min(plan_.target().max_streams, kMaxStreams) - further;
    stream_of_.assign(plan_.tasks.size(), 0);
    depth_.assign(plan_.tasks.size(), 0);
    const int commits_follow = first_task_beside_commits();
    for (int i : schedule_) {
      if (auto found = early_.find(i); found != early_.end())
        for (const Island& island : found->second) fork(i, island);
      for (int d : deps_[at(i)]) depth_[at(i)] = std::max(depth_[at(i)], depth_[at(d)] + 1);
      if (i == commits_follow) before_commit_ = tail_;
      const bool is_of_target = device_of(plan_, plan_.tasks[at(i)]) == 0;
      place(i, i >= commit_ && is_of_target ? 0 : beside_[at(i)] >= 0 ? beside_[at(i)] : choose(i));
    }
    plan_.streams = used_;
  }

 private:
  // The islands that the host drives beside a launch get a separate stream, so that they wait only for what they depend
  // on. Those of split_sink get another stream, because the stream of sink does not wait for them.
  void place_beside() {
    beside_.assign(plan_.tasks.size(), -1);
    place_beside(plan_.islands);
    place_beside(plan_.split_islands);
    last_beside_ = used_ - 1;
  }

  void place_beside(const std::vector<Island>& islands) {
    int stream = -1;
    for (const Island& island : islands) {
      // Islands that have a stream already are in plan_.islands and in plan_.split_islands.
      if (!island.beside || beside_[at(island.tasks[0])] >= 0) continue;
      if (stream < 0) stream = new_stream(0);
      for (int i : island.tasks) beside_[at(i)] = stream;
      std::size_t next = 0;  // the first island after all those it waits for on other streams
      for (int i : island.after)
        if (!islands[at(i)].beside) next = at(i) + 1;
      early_[islands[next].tasks[0]].push_back(island);
    }
  }

  // Adds the early waits of an island that runs beside others: before task `here`, its stream waits for the tasks that
  // the island depends on.
  void fork(int here, const Island& island) {
    int stream = beside_[at(island.tasks[0])];
    for (int i : island.tasks) {
      for (int d : deps_[at(i)]) {
        if (d >= here || !must_wait(stream, stream_of_[at(d)], d)) continue;
        plan_.tasks[at(here)].forks.push_back({stream, stream_of_[at(d)], island.tasks[0]});
      }
    }
  }

  // Returns true if `stream` must wait until task `upto` of stream `other` is complete, and notes this wait.
  bool must_wait(int stream, int other, int upto) {
    auto& seen = seen_[at(stream)];
    if (other == stream || seen[at(other)] >= upto || tail_[at(other)] < 0) return false;
    for (std::size_t s = 0; s < seen.size(); ++s) seen[s] = std::max(seen[s], seen_[at(other)][s]);
    seen[at(other)] = tail_[at(other)];
    return true;
  }

  // Measures the length of the chain that starts at each task. A chain continues as long as a task has one successor,
  // and that successor has one dependency. Tasks of the end, which depend on all, do not count.
  void measure_chains() {
    const int end = first_end_task(plan_);
    std::vector<int> successors(plan_.tasks.size(), 0);
    std::vector<int> next(plan_.tasks.size(), -1);
    for (int i : schedule_) {
      if (i >= end) break;
      for (int d : deps_[at(i)]) {
        ++successors[at(d)];
        next[at(d)] = i;
      }
    }
    chain_.assign(plan_.tasks.size(), 1);
    for (auto it = schedule_.rbegin(); it != schedule_.rend(); ++it) {
      int i = *it;
      if (i >= end) continue;
      bool continues = successors[at(i)] == 1 && deps_[at(next[at(i)])].size() == 1 && !is_exchange_[at(next[at(i)])];
      if (continues) chain_[at(i)] = chain_[at(next[at(i)])] + 1;
    }
  }

  // Each commit follows all that stands before the first one, but for the copies that tell further devices how the step
  // stands: such a copy concerns the commit of its device alone, which depends on it. So the commits of several devices
  // run beside each other. The end of the step follows all of them.
  int first_task_beside_commits() const {
    auto first = std::find(schedule_.begin(), schedule_.end(), commit_);
    auto copy = first;
    while (copy != schedule_.begin() && plan_.tasks[at(*(copy - 1))].kind == TaskKind::copy) --copy;
    const bool tells = copy != schedule_.begin() && is_last_of_all(plan_, plan_.tasks[at(*(copy - 1))]);
    return tells ? *copy : *first;
  }

  static PerStream none() {
    PerStream result;
    result.fill(-1);
    return result;
  }

  int new_stream(int device) {
    plan_.stream_devices.push_back(device);
    return used_++;
  }

  // Whether the target has room for one more stream.
  bool can_have_another() const {
    return std::count(plan_.stream_devices.begin(), plan_.stream_devices.end(), 0) < limit_;
  }

  int device_of_stream(int stream) const { return plan_.stream_devices[at(stream)]; }

  int choose(int i) {
    if (i == 0) return 0;
    // All work of a further device is on one stream.
    if (int device = device_of(plan_, plan_.tasks[at(i)]); device > 0) {
      auto& devices = plan_.stream_devices;
      auto found = std::find(devices.begin(), devices.end(), device);
      return found != devices.end() ? static_cast<int>(found - devices.begin()) : new_stream(device);
    }
    if (is_exchange_[at(i)] && exchange_stream_ < 0 && can_have_another()) exchange_stream_ = new_stream(0);
    if (is_exchange_[at(i)] && exchange_stream_ >= 0) return exchange_stream_;
    int best = -1;  // the deepest dependency that is still the last task of its stream
    int nearest = 0;
    for (int d : deps_[at(i)]) {
      if (device_of_stream(stream_of_[at(d)]) != 0) continue;
      if (beside_[at(d)] >= 0 || stream_of_[at(d)] == exchange_stream_) continue;
      nearest = d;
      if (tail_[at(stream_of_[at(d)])] == d && d != 0 && (best < 0 || depth_[at(d)] > depth_[at(best)])) best = d;
    }
    if (best >= 0) return stream_of_[at(best)];
    if (chain_[at(i)] < kShortChain) return stream_of_[at(nearest)];
    if (tail_[0] <= 0) return 0;
    if (can_have_another()) return new_stream(0);
    int least = 0;
    for (int s = 1; s < used_; ++s)
      if (device_of_stream(s) == 0 && s > last_beside_ && s != exchange_stream_ && load_[at(s)] < load_[at(least)])
        least = s;
    return least;
  }

  void place(int i, int stream) {
    Task& task = plan_.tasks[at(i)];
    task.stream = stream_of_[at(i)] = stream;
    auto wait_for = [&](int other, int upto) {
      if (must_wait(stream, other, upto)) task.after.push_back(other);
    };
    // Waiting for a stream is waiting for all that it holds by then. The latest task is waited for first, because that
    // is often enough.
    if (i >= commit_) {
      const PerStream& all = i == schedule_.back() ? tail_ : before_commit_;
      std::vector<int> others(at(used_));
      std::iota(others.begin(), others.end(), 0);
      std::sort(others.begin(), others.end(), [&](int a, int b) { return all[at(a)] > all[at(b)]; });
      for (int other : others) wait_for(other, all[at(other)]);
    }
    for (auto d = deps_[at(i)].rbegin(); d != deps_[at(i)].rend(); ++d) wait_for(stream_of_[at(*d)], *d);
    tail_[at(stream)] = i;
    ++load_[at(stream)];
  }

  Plan& plan_;
  const std::vector<int>& schedule_;
  Dependencies deps_;  // ids ascend along the schedule, so a task depends only on smaller ids
  int commit_;
  int limit_ = 1;  // the maximal number of streams on the target
  int used_ = 1;
  // Per task: the stream of an island that runs beside others, or -1 if the task is in no such island.
  std::vector<int> beside_;
  int last_beside_ = 0;                       // the streams of these islands are 1 to this one
  std::map<int, std::vector<Island>> early_;  // these islands, by the task before which they may begin
  // If other tasks may run beside collectives, these have a stream of their own, on which nothing waits for them.
  std::vector<bool> is_exchange_;  // by id
  int exchange_stream_ = -1;
  std::vector<int> chain_, stream_of_, depth_;
  PerStream tail_ = none();
  PerStream before_commit_ = none();  // the tails that every commit follows
  PerStream load_{};
  // seen_[stream][other]: the last task of `other` that `stream` knows to be complete.
  std::vector<PerStream> seen_ = std::vector<PerStream>(kMaxStreams, none());
};

}  // namespace

void assign_streams(Plan& plan) { Streams(plan).run(); }

}  // namespace graphsink
