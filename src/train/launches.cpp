#include "train/launches.h"

#include <algorithm>
#include <utility>

namespace graphsink::data_loading {

constexpr auto kCallsWhileWaiting = std::chrono::milliseconds(50);  // time between calls of while_waiting

void demand(bool holds, const char* loader, const std::string& problem, const std::string& remedy, const Where& where) {
  if (!holds) throw Error(loader, where, problem, remedy);
}

void check_options(const char* loader, const Source* source, const LoaderOptions& options, const Where& where) {
  demand(source != nullptr, loader, "no source", "pass what one of the functions of source.h returns", where);
  demand(options.workers >= 0 && options.workers <= kMostWorkers, loader,
         "workers is " + std::to_string(options.workers),
         "give a number from 0, where next() reads the samples itself, to " + std::to_string(kMostWorkers), where);
  demand(options.ahead >= 1, loader, "ahead is " + std::to_string(options.ahead),
         "let at least one launch be prepared ahead; workers = 0 prepares none", where);
}

Shape slice_of(const Shape& sample, std::int64_t batch, const Where& where) {
  std::vector<std::int64_t> dims{batch};
  const auto of_sample = sample.dims(where);
  dims.insert(dims.end(), of_sample.begin(), of_sample.end());
  return Shape(std::span<const std::int64_t>(dims), where);
}

std::string names_of(const std::vector<Field>& fields) {
  std::string names;
  for (const Field& field : fields) names += (names.empty() ? "\"" : ", \"") + field.name + "\"";
  return names;
}

Launches::Launches(const char* loader, Receiver& receiver, std::shared_ptr<const Source> source, SampleOrder order,
                   std::vector<Part> parts, const LoaderOptions& options, const Where& where)
    : loader_(loader),
      receiver_(receiver),
      source_(std::move(source)),
      order_(std::move(order)),
      options_(options),
      parts_(std::move(parts)) {
  require(order_.size() <= source_->size(),
          "the order is of " + std::to_string(order_.size()) + " samples, and the source has " +
              std::to_string(source_->size()),
          "make the order for as many samples as the source has, or for fewer", where);
  set_steps_per_launch(options.steps_per_launch, where);
  report_.workers = options.workers;
  make_readers(where);
  start_workers(where);
}

void Launches::require(bool holds, const std::string& problem, const std::string& remedy, const Where& where) const {
  demand(holds, loader_, problem, remedy, where);
}

void Launches::require_not_in_next(const char* call, const Where& where) const {
  if (!is_in_next_) return;
  throw Error(std::string(loader_) + "::" + call, where,
              "was called in a function that next() calls: `while_waiting`, `prepare` or the source",
              "call it when next() has returned; an exception in `while_waiting` ends its wait");
}

std::int64_t Launches::next(std::int64_t most, const Where& where) {
  require_parent("next", where);
  const Held call = hold(where);
  require_not_in_next("next", where);
  const struct Inside {
    explicit Inside(bool& mark) : is_inside(mark) { is_inside = true; }
    ~Inside() { is_inside = false; }
    bool& is_inside;
  } inside(is_in_next_);
  if (most < 1)
    throw Error(std::string(loader_) + "::next", where, "at most " + std::to_string(most) + " steps", "ask for a step");
  if (std::exchange(epoch_ended_, false)) return 0;
  if (!began_) began_ = Clock::now();
  plan_ahead(where);
  Launch& launch = *launches_.front();
  const std::int64_t end = make(launch, std::min(most, launch.size() - launch.given));
  if (end == launch.given) {
    const std::exception_ptr error = take_error(launch);
    restart(position_);  // others may have failed for the same reason
    std::rethrow_exception(error);
  }
  const std::int64_t steps = give(launch, end, where);
  ++report_.launches;
  report_.batches += steps;
  report_.samples += steps * launch.batch_size();
  report_.seconds = seconds_since(*began_);
  if (launch.given == launch.size()) {
    epoch_ended_ = launch.ends_epoch;
    launches_.pop_front();
  }
  return steps;
}

// From here on no worker has a part in what is thrown, and none can be the last to let go of it while a caller reads
// it.
std::exception_ptr Launches::take_error(Launch& launch) {
  const std::lock_guard lock(mutex_);
  return std::exchange(launch.error, nullptr);
}

void Launches::set_steps_per_launch(std::int64_t steps, const Where& where) {
  const Held call = hold(where);
  require_not_in_next("set_steps_per_launch", where);
  require(steps >= 1, "steps_per_launch is " + std::to_string(steps), "give at least one step to a launch", where);
  if (std::exchange(steps_per_launch_, steps) == steps || launches_.empty()) return;
  const bool epoch_ended = epoch_ended_;
  restart(position_);
  epoch_ended_ = epoch_ended;
}

void Launches::seek(const LoaderPosition& position, const Where& where) {
  require_parent("seek", where);
  const Held call = hold(where);
  require_not_in_next("seek", where);
  if (position.epoch < 0 || position.batch < 0 || position.batch >= order_.batches()) {
    throw Error(std::string(loader_) + "::seek", where,
                "there is no batch " + std::to_string(position.batch) + " of epoch " + std::to_string(position.epoch),
                "an epoch has batches 0 to " + std::to_string(order_.batches() - 1));
  }
  restart(position);
}

LoaderPosition Launches::position(const Where& where) const {
  const Held call = hold(where);
  return position_;
}

LoaderReport Launches::report(const Where& where) const {
  require_parent("report", where);
  const Held call = hold(where);
  const std::lock_guard lock(mutex_);
  LoaderReport report = report_;
  report.read_seconds = seconds_.read;
  report.prepared_seconds = seconds_.prepared;
  report.obstacle = obstacle_;
  return report;
}

LaunchMemory* Launches::made_ahead() {
  if (launches_.empty()) return nullptr;
  const Launch& launch = *launches_.front();
  const std::lock_guard lock(mutex_);
  return launch.failed < 0 && launch.ready == launch.size() ? launch.memory.get() : nullptr;
}

void Launches::make_readers(const Where& where) {
  const int readers = std::max(options_.workers, 1);
  try {
    readers_.reserve(static_cast<std::size_t>(readers));
    for (int i = 0; i < readers; ++i) readers_.emplace_back(*source_, parts_, options_.prepare, options_.seed, where);
  } catch (const std::exception&) {  // std::bad_alloc, or std::length_error
    throw Error(loader_, where, "there is no memory for a sample for each of " + std::to_string(readers) + " threads",
                "use fewer workers or smaller samples", ErrorCode::out_of_memory);
  }
}

void Launches::start_workers(const Where& where) {
  try {
    for (int i = 0; i < options_.workers; ++i)
      workers_.emplace_back([this, &reader = readers_[static_cast<std::size_t>(i)]] { work(reader); });
  } catch (const std::exception& e) {
    end_workers();
    throw Error(loader_, where,
                "the system has no thread for worker " + std::to_string(workers_.size() + 1) + " of " +
                    std::to_string(options_.workers) + ": " + e.what(),
                "use fewer workers, or raise the limit of the process on threads or memory", ErrorCode::unavailable);
  }
}

void Launches::end_workers() {
  {
    const std::lock_guard lock(mutex_);
    is_ended_ = true;
  }
  may_take_.notify_all();
  for (Thread& worker : workers_) worker.join();
}

// Stages the launch that next() returns, and those that workers prepare meanwhile.
void Launches::plan_ahead(const Where& where) {
  const std::size_t wanted = workers_.empty() ? 1 : 1 + static_cast<std::size_t>(options_.ahead);
  while (launches_.size() < wanted) {
    auto launch = std::make_shared<Launch>();
    launch->begin = planned_;
    LoaderPosition at_batch = planned_;
    while (static_cast<std::int64_t>(launch->batches.size()) < steps_per_launch_ && at_batch.batch < order_.batches()) {
      Batch batch = order_.batch(at_batch.epoch, at_batch.batch, where);
      if (!launch->batches.empty() && batch.samples.size() != launch->batches[0].samples.size()) break;
      launch->batches.push_back(std::move(batch));
      ++at_batch.batch;
    }
    launch->ends_epoch = at_batch.batch == order_.batches();
    try {
      launch->missing.assign(launch->batches.size(), launch->batch_size());
      launch->memory = receiver_.stage(*launch, where);
    } catch (const std::exception& e) {
      if (launches_.empty()) throw;
      obstacle_ = e.what();
      return;  // those in front go first
    }
    launches_.push_back(launch);
    planned_ = launch->ends_epoch ? LoaderPosition{at_batch.epoch + 1, 0} : at_batch;
    if (!workers_.empty()) hand_out(launch);
  }
}

// Waits until `steps` batches of the launch are made behind those that were given, or makes them; starved, it may be
// content with fewer. Returns the end of those that can be given. It is where they begin if the next one failed.
std::int64_t Launches::make(Launch& launch, std::int64_t steps) {
  const std::int64_t end = launch.given + steps;
  if (workers_.empty()) {
    const Lap waited(report_.waited_seconds);
    Clock::time_point called = Clock::now();
    while (launch.failed < 0 && launch.ready < end) {
      make_sample(launch, readers_[0], launch.taken++);
      if (!options_.while_waiting || Clock::now() - called < kCallsWhileWaiting) continue;
      options_.while_waiting();
      called = Clock::now();
    }
    return std::min(launch.usable(), end);
  }
  std::unique_lock lock(mutex_);
  std::int64_t ready = 0;
  for (const auto& each : launches_) ready += each->ready - each->given;
  if (launch.ready < end) {
    launch.is_starved = true;
    const Lap waited(report_.waited_seconds);
    const std::int64_t needed = options_.when_starved == WhenStarved::wait ? end : launch.given + 1;
    wait_for(launch, needed, lock);
    report_.shrunk += launch.ready < end;
  }
  report_.starved += std::exchange(launch.is_starved, false);
  report_.ready += ready;
  return std::min(launch.usable(), end);
}

// Waits until the launch has so many batches.
void Launches::wait_for(const Launch& launch, std::int64_t batches, std::unique_lock<std::mutex>& lock) {
  const auto are_there = [&] { return launch.ready >= batches; };
  if (!options_.while_waiting) return is_ready_.wait(lock, are_there);
  while (!is_ready_.wait_for(lock, kCallsWhileWaiting, are_there)) {
    lock.unlock();
    options_.while_waiting();
    lock.lock();
  }
}

// Hands over the batches up to `end`.
std::int64_t Launches::give(Launch& launch, std::int64_t end, const Where& where) {
  const std::int64_t steps = end - launch.given;
  try {
    launch.memory->give(steps, where);
  } catch (...) {
    restart(position_);  // some of it may be there
    throw;
  }
  launch.given = end;
  position_ = {launch.begin.epoch, launch.begin.batch + end};
  if (end == launch.size() && launch.ends_epoch) position_ = {launch.begin.epoch + 1, 0};
  return steps;
}

// The next launch begins there; what was staged is dropped.
void Launches::restart(const LoaderPosition& position) {
  const std::lock_guard lock(mutex_);
  waiting_.clear();
  launches_.clear();  // a worker keeps the one of its sample
  position_ = planned_ = position;
  epoch_ended_ = false;
}

void Launches::hand_out(const std::shared_ptr<Launch>& launch) {
  {
    const std::lock_guard lock(mutex_);
    waiting_.push_back(launch);
  }
  may_take_.notify_all();
}

void Launches::work(Reader& reader) {
  std::unique_lock lock(mutex_);
  while (true) {
    may_take_.wait(lock, [&] { return is_ended_ || !waiting_.empty(); });
    if (is_ended_) return;
    std::shared_ptr<Launch> launch = waiting_.front();
    const std::int64_t number = launch->taken++;
    if (launch->taken == launch->samples()) waiting_.pop_front();
    lock.unlock();
    make_sample(*launch, reader, number);
    launch.reset();
    lock.lock();
  }
}

void Launches::make_sample(Launch& launch, Reader& reader, std::int64_t number) {
  Seconds took;
  std::exception_ptr error;
  try {
    took = reader.read(launch, number);
  } catch (...) {
    error = std::current_exception();
  }
  const std::lock_guard lock(mutex_);
  seconds_.read += took.read;
  seconds_.prepared += took.prepared;
  // The error of the first sample, whichever thread was faster.
  if (error && (launch.failed < 0 || number < launch.failed)) {
    launch.failed = number;
    launch.error = std::move(error);
  }
  if (launch.made(number)) is_ready_.notify_all();
}

}  // namespace graphsink::data_loading
