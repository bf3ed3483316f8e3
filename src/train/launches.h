// Launches: what loaders of all kinds have in common. Plans the launches of an order, has their samples made, by
// workers or by the caller, and hands them over in turn.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/fork_mark.h"
#include "base/one_thread.h"
#include "base/thread.h"
#include "train/launch.h"

namespace graphsink::data_loading {

inline constexpr int kMostWorkers = 256;

// Takes what a loader makes: a Program, or memory of a device.
class Receiver {
 public:
  // Memory for the batches of a launch, which are planned; fills Launch::places. On the thread of the loader.
  virtual std::unique_ptr<LaunchMemory> stage(Launch& launch, const Where& where) = 0;

 protected:
  ~Receiver() = default;
};

// Throws Error, in the name of the loader, where the condition does not hold.
void demand(bool holds, const char* loader, const std::string& problem, const std::string& remedy, const Where& where);
// Throws Error for no source, and for options out of their ranges.
void check_options(const char* loader, const Source* source, const LoaderOptions& options, const Where& where);
// Shape of a batch of samples.
Shape slice_of(const Shape& sample, std::int64_t batch, const Where& where);
std::string names_of(const std::vector<Field>& fields);  // "\"image\", \"label\""

class Launches {
 public:
  // `loader` is its name in messages. The options were checked. The receiver must outlive this object; it is used from
  // the first call of next() on.
  Launches(const char* loader, Receiver& receiver, std::shared_ptr<const Source> source, SampleOrder order,
           std::vector<Part> parts, const LoaderOptions& options, const Where& where);
  ~Launches() { end_workers(); }
  Launches(const Launches&) = delete;
  Launches& operator=(const Launches&) = delete;

  bool is_in_child() const { return fork_mark_.is_in_child(); }
  // Throws Error in a child of fork(). `call`: name of the member.
  void require_parent(const char* call, const Where& where) const {
    fork_mark_.require_parent(std::string(loader_) + "::" + call, where);
  }
  // As Loader has them.
  std::int64_t next(std::int64_t most, const Where& where);
  void set_steps_per_launch(std::int64_t steps, const Where& where);
  const SampleOrder& order() const { return order_; }
  const std::vector<Part>& parts() const { return parts_; }
  LoaderPosition position(const Where& where) const;
  void seek(const LoaderPosition& position, const Where& where);
  LoaderReport report(const Where& where) const;
  // A call of the loader, for as long as it lives. Throws Error while another thread is in one.
  Held hold(const Where& where) const { return {one_thread_, OneThread::Call(*one_thread_, loader_, where)}; }

  // The memory of the launch that next() returns next, if all of that is made and none of it failed; else null.
  LaunchMemory* made_ahead();

 private:
  // Throws Error in what next() calls, such as `while_waiting`.
  void require_not_in_next(const char* call, const Where& where) const;
  void require(bool holds, const std::string& problem, const std::string& remedy, const Where& where) const;
  void make_readers(const Where& where);
  void start_workers(const Where& where);
  void end_workers();

  // On the thread of the loader.
  void plan_ahead(const Where& where);
  std::int64_t make(Launch& launch, std::int64_t steps);
  std::int64_t give(Launch& launch, std::int64_t end, const Where& where);
  void restart(const LoaderPosition& position);
  std::exception_ptr take_error(Launch& launch);
  void wait_for(const Launch& launch, std::int64_t batches, std::unique_lock<std::mutex>& lock);

  // On any thread.
  void hand_out(const std::shared_ptr<Launch>& launch);
  void work(Reader& reader);
  void make_sample(Launch& launch, Reader& reader, std::int64_t number);

  const char* const loader_;
  Receiver& receiver_;
  const std::shared_ptr<const Source> source_;
  const SampleOrder order_;
  const LoaderOptions options_;
  const std::vector<Part> parts_;
  const ForkMark fork_mark_;
  const std::shared_ptr<OneThread> one_thread_ = std::make_shared<OneThread>();
  bool is_in_next_ = false;

  std::deque<std::shared_ptr<Launch>> launches_;  // staged, in the order in which next() returns them
  LoaderPosition position_, planned_;
  std::int64_t steps_per_launch_ = 1;
  std::optional<Clock::time_point> began_;  // when next() was called first
  bool epoch_ended_ = false;                // next() has returned the last launch of an epoch
  std::string obstacle_;                    // see LoaderReport
  std::vector<Reader> readers_;             // for each worker, or for next()

  mutable std::mutex mutex_;
  std::condition_variable may_take_, is_ready_;
  std::deque<std::shared_ptr<Launch>> waiting_;  // those with samples that no worker has taken
  bool is_ended_ = false;
  Seconds seconds_;
  LoaderReport report_;
  std::vector<Thread> workers_;
};

}  // namespace graphsink::data_loading
