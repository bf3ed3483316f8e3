#include "graphsink/data_loader.h"

#include <algorithm>
#include <cmath>
#include <condition_variable>
#include <deque>
#include <exception>
#include <limits>
#include <mutex>
#include <utility>

#include "base/fork_mark.h"
#include "base/number_text.h"
#include "base/thread.h"
#include "train/launch.h"

namespace graphsink {
namespace {

constexpr int kMostWorkers = 256;

}  // namespace

using namespace data_loading;

class Loader::Impl {
 public:
  Impl(Program& program, std::shared_ptr<const Source> source, SampleOrder order,
       std::vector<std::pair<std::string, Value>> feeds, const LoaderOptions& options, const Where& where)
      : program_(program), source_(std::move(source)), order_(std::move(order)), options_(options) {
    require(source_ != nullptr, "no source", "pass what one of the functions of source.h returns", where);
    set_steps_per_launch(options.steps_per_launch, where);
    require(options.workers >= 0 && options.workers <= kMostWorkers, "workers is " + std::to_string(options.workers),
            "give a number from 0, where next() reads the samples itself, to " + std::to_string(kMostWorkers), where);
    require(options.ahead >= 1, "ahead is " + std::to_string(options.ahead),
            "let at least one launch be prepared ahead; workers = 0 prepares none", where);
    require(!feeds.empty(), "no feeds", "name a field of the source for each feed of the graph", where);
    batch_size_ = static_cast<std::int64_t>(order_.batch(0, 0, where).samples.size());
    last_batch_ = static_cast<std::int64_t>(order_.batch(0, order_.batches() - 1, where).samples.size());
    for (auto& [name, feed] : feeds) add(name, std::move(feed), where);
    require(options.prepare || parts_.size() == source_->fields().size(),
            std::to_string(parts_.size()) + " feeds for " + std::to_string(source_->fields().size()) +
                " fields of the source",
            "name a feed for each field, or prepare the samples by a function", where);
    if (options.mask) check_mask(where);
    report_.workers = options.workers;
    make_readers(where);
    start_workers(where);
  }

  ~Impl() { end_workers(); }
  bool is_in_child() const { return fork_mark_.is_in_child(); }

  std::int64_t next(std::int64_t most, const Where& where) {
    fork_mark_.require_parent("Loader::next", where);
    if (most < 1) throw Error("Loader::next", where, "at most " + std::to_string(most) + " steps", "ask for a step");
    if (std::exchange(epoch_ended_, false)) return 0;
    if (!began_) began_ = Clock::now();
    plan_ahead(where);
    Launch& launch = *launches_.front();
    const std::int64_t end = make(launch, std::min(most, launch.size() - launch.given));
    if (end == launch.given) {
      const std::exception_ptr error = launch.error;
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

  void set_steps_per_launch(std::int64_t steps, const Where& where) {
    require(steps >= 1, "steps_per_launch is " + std::to_string(steps), "give at least one step to a launch", where);
    if (std::exchange(steps_per_launch_, steps) == steps || launches_.empty()) return;
    const bool epoch_ended = epoch_ended_;
    restart(position_);
    epoch_ended_ = epoch_ended;
  }

  bool feeds(const Program& program) const { return &program == &program_; }
  std::int64_t batches() const { return order_.batches(); }
  LoaderPosition position() const { return position_; }

  void seek(const LoaderPosition& position, const Where& where) {
    fork_mark_.require_parent("Loader::seek", where);
    if (position.epoch < 0 || position.batch < 0 || position.batch >= order_.batches()) {
      throw Error("Loader::seek", where,
                  "there is no batch " + std::to_string(position.batch) + " of epoch " + std::to_string(position.epoch),
                  "an epoch has batches 0 to " + std::to_string(order_.batches() - 1));
    }
    restart(position);
  }

  LoaderReport report(const Where& where) const {
    fork_mark_.require_parent("Loader::report", where);
    const std::lock_guard lock(mutex_);
    LoaderReport report = report_;
    report.read_seconds = seconds_.read;
    report.prepared_seconds = seconds_.prepared;
    report.obstacle = obstacle_;
    return report;
  }

 private:
  static void require(bool holds, const std::string& problem, const std::string& remedy, const Where& where) {
    if (!holds) throw Error("Loader", where, problem, remedy);
  }

  void add(const std::string& name, Value feed, const Where& where) {
    const TensorType type = feed.type(where);
    Part part{std::move(feed), {type.dtype, {}}, 0};
    const std::string what = "the feed for \"" + name + "\" is " + to_string(type);
    require(type.shape.rank() >= 1 && (type.shape.is_open(0) || type.shape[0] == batch_size_),
            what + ", and a batch has " + std::to_string(batch_size_) + " samples",
            "make the feed [batch, ...], or set OrderOptions::batch", where);
    require(type.shape.is_open(0) || last_batch_ == batch_size_,
            what + ", and the last batch has " + std::to_string(last_batch_) + " samples",
            "let the first axis of the feed be open, or choose another OrderOptions::last_batch", where);
    std::vector<std::int64_t> rest;
    for (int d = 1; d < type.shape.rank(); ++d) {
      require(!type.shape.is_open(d), what + ", whose axis " + std::to_string(d) + " is open",
              "only the first axis, which counts samples, may be open", where);
      rest.push_back(type.shape[d]);
    }
    part.type.shape = Shape(std::span<const std::int64_t>(rest));
    require_new(part.feed, name, where);
    if (!options_.prepare) {
      const std::vector<Field>& fields = source_->fields();
      const auto field = std::find_if(fields.begin(), fields.end(), [&](const Field& f) { return f.name == name; });
      require(field != fields.end(), "the source has no field \"" + name + "\"", "it has " + names_of(fields), where);
      require(field->type == part.type, "the field \"" + name + "\" is " + to_string(field->type) + ", and " + what,
              "give both one type, or prepare the samples by a function", where);
      part.field = static_cast<std::size_t>(field - fields.begin());
      require(std::none_of(parts_.begin(), parts_.end(), [&](const Part& p) { return p.field == part.field; }),
              "the field \"" + name + "\" has two feeds", "name a feed for each field", where);
    }
    // Throws Error unless it is a feed of the program.
    (void)program_.stage(part.feed, 1, slice_of(part.type.shape, batch_size_), where);
    parts_.push_back(std::move(part));
  }

  void make_readers(const Where& where) {
    const int readers = std::max(options_.workers, 1);
    try {
      readers_.reserve(static_cast<std::size_t>(readers));
      for (int i = 0; i < readers; ++i) readers_.emplace_back(*source_, parts_, options_.prepare, options_.seed, where);
    } catch (const std::exception&) {  // std::bad_alloc, or std::length_error
      throw Error("Loader", where,
                  "there is no memory for a sample for each of " + std::to_string(readers) + " threads",
                  "use fewer workers or smaller samples", ErrorCode::out_of_memory);
    }
  }

  void start_workers(const Where& where) {
    try {
      for (int i = 0; i < options_.workers; ++i)
        workers_.emplace_back([this, &reader = readers_[static_cast<std::size_t>(i)]] { work(reader); });
    } catch (const std::exception& e) {
      end_workers();
      throw Error("Loader", where,
                  "the system has no thread for worker " + std::to_string(workers_.size() + 1) + " of " +
                      std::to_string(options_.workers) + ": " + e.what(),
                  "use fewer workers, or raise the limit of the process on threads or memory", ErrorCode::unavailable);
    }
  }

  void end_workers() {
    {
      const std::lock_guard lock(mutex_);
      is_ended_ = true;
    }
    may_take_.notify_all();
    for (Thread& worker : workers_) worker.join();
  }

  static std::string names_of(const std::vector<Field>& fields) {
    std::string names;
    for (const Field& field : fields) names += (names.empty() ? "\"" : ", \"") + field.name + "\"";
    return names;
  }

  void require_new(const Value& feed, const std::string& name, const Where& where) const {
    const bool is_used = std::any_of(parts_.begin(), parts_.end(), [&](const Part& part) {
      return part.feed.node() == feed.node() && part.feed.output() == feed.output();
    });
    require(!is_used, "the feed for \"" + name + "\" is that of another field", "name another feed for each field",
            where);
  }

  void check_mask(const Where& where) const {
    const TensorType type = options_.mask->type(where);
    require((type.dtype == DType::f32 || type.dtype == DType::boolean) && type.shape.rank() == 1 &&
                (type.shape.is_open(0) || type.shape[0] == batch_size_),
            "the mask is " + to_string(type) + ", and a batch has " + std::to_string(batch_size_) + " samples",
            "make it a feed of f32 or booleans of shape [batch]", where);
    require_new(*options_.mask, "the mask", where);
    (void)program_.stage(*options_.mask, 1, Shape{batch_size_}, where);
  }

  // --- launches, on the thread of the program

  // Stages the launch that next() returns, and those that workers prepare meanwhile.
  void plan_ahead(const Where& where) {
    const std::size_t wanted = workers_.empty() ? 1 : 1 + static_cast<std::size_t>(options_.ahead);
    while (launches_.size() < wanted) {
      auto launch = std::make_shared<Launch>();
      launch->begin = planned_;
      LoaderPosition at_batch = planned_;
      while (static_cast<std::int64_t>(launch->batches.size()) < steps_per_launch_ &&
             at_batch.batch < order_.batches()) {
        Batch batch = order_.batch(at_batch.epoch, at_batch.batch, where);
        if (!launch->batches.empty() && batch.samples.size() != launch->batches[0].samples.size()) break;
        launch->batches.push_back(std::move(batch));
        ++at_batch.batch;
      }
      launch->ends_epoch = at_batch.batch == order_.batches();
      try {
        stage(*launch, where);
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

  void stage(Launch& launch, const Where& where) {
    const std::int64_t steps = launch.size();
    launch.missing.assign(static_cast<std::size_t>(steps), launch.batch_size());
    for (const Part& part : parts_) {
      launch.slices.push_back(program_.stage(part.feed, steps, slice_of(part.type.shape, launch.batch_size()), where));
      const StagedSlices& slices = launch.slices.back();
      std::byte* first = slices.bytes(0).data();
      launch.places.push_back({first, steps > 1 ? slices.bytes(1).data() - first : 0});
    }
    if (!options_.mask) return;
    StagedSlices mask = program_.stage(*options_.mask, steps, Shape{launch.batch_size()}, where);
    for (std::int64_t step = 0; step < steps; ++step) {
      const std::int64_t real = launch.batches[static_cast<std::size_t>(step)].real;
      for (std::int64_t row = 0; row < launch.batch_size(); ++row) {
        if (mask.type().dtype == DType::f32) {
          mask.slice<float>(step)[static_cast<std::size_t>(row)] = row < real ? 1.0f : 0.0f;
        } else {
          mask.slice<bool>(step)[static_cast<std::size_t>(row)] = row < real;
        }
      }
    }
    launch.slices.push_back(std::move(mask));
  }

  static Shape slice_of(const Shape& sample, std::int64_t batch) {
    std::vector<std::int64_t> dims{batch};
    dims.insert(dims.end(), sample.dims().begin(), sample.dims().end());
    return Shape(std::span<const std::int64_t>(dims));
  }

  // Waits until `steps` batches of the launch are made behind those that were given, or makes them; starved, it may be
  // content with fewer. Returns the end of those that can be given. It is where they begin if the next one failed.
  std::int64_t make(Launch& launch, std::int64_t steps) {
    const std::int64_t end = launch.given + steps;
    const Clock::time_point start = Clock::now();
    if (workers_.empty()) {
      while (launch.failed < 0 && launch.ready < end) make_sample(launch, readers_[0], launch.taken++);
      report_.waited_seconds += seconds_since(start);
      return std::min(launch.usable(), end);
    }
    std::unique_lock lock(mutex_);
    for (const auto& each : launches_) report_.ready += each->ready - each->given;
    if (launch.ready < end) {
      ++report_.starved;
      const std::int64_t needed = options_.when_starved == WhenStarved::wait ? end : launch.given + 1;
      is_ready_.wait(lock, [&] { return launch.ready >= needed; });
      report_.shrunk += launch.ready < end;
      report_.waited_seconds += seconds_since(start);
    }
    return std::min(launch.usable(), end);
  }

  // Writes the batches up to `end` to the program.
  std::int64_t give(Launch& launch, std::int64_t end, const Where& where) {
    const std::int64_t steps = end - launch.given;
    try {
      for (StagedSlices& slices : launch.slices) program_.write(slices.take(steps, where), where);
    } catch (...) {
      restart(position_);  // some may be written
      throw;
    }
    launch.given = end;
    position_ = {launch.begin.epoch, launch.begin.batch + end};
    if (end == launch.size() && launch.ends_epoch) position_ = {launch.begin.epoch + 1, 0};
    return steps;
  }

  // The next launch begins there; what was staged is dropped.
  void restart(const LoaderPosition& position) {
    const std::lock_guard lock(mutex_);
    waiting_.clear();
    launches_.clear();  // a worker keeps the one of its sample
    position_ = planned_ = position;
    epoch_ended_ = false;
  }

  // --- samples, on any thread

  void hand_out(const std::shared_ptr<Launch>& launch) {
    {
      const std::lock_guard lock(mutex_);
      waiting_.push_back(launch);
    }
    may_take_.notify_all();
  }

  void work(Reader& reader) {
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

  void make_sample(Launch& launch, Reader& reader, std::int64_t number) {
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
      launch.error = error;
    }
    if (launch.made(number)) is_ready_.notify_all();
  }

  Program& program_;
  const std::shared_ptr<const Source> source_;
  const SampleOrder order_;
  const LoaderOptions options_;
  std::int64_t batch_size_ = 0, last_batch_ = 0;  // sizes of the first and the last batch of an epoch
  std::vector<Part> parts_;
  const ForkMark fork_mark_;

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

Loader::Loader(Program& program, std::shared_ptr<const Source> source, SampleOrder order,
               std::vector<std::pair<std::string, Value>> feeds, const LoaderOptions& options, Where where)
    : impl_(new Impl(program, std::move(source), std::move(order), std::move(feeds), options, where)) {}
void Loader::Close::operator()(Impl* impl) const noexcept {
  // A child of fork() has neither the threads nor what they waited for: nothing of it can be destroyed there.
  if (!impl->is_in_child()) delete impl;
}
Loader::Loader(Loader&&) noexcept = default;
Loader& Loader::operator=(Loader&&) noexcept = default;
Loader::~Loader() = default;

std::int64_t Loader::next(Where where) { return impl(where).next(std::numeric_limits<std::int64_t>::max(), where); }
std::int64_t Loader::next(std::int64_t most, Where where) { return impl(where).next(most, where); }
void Loader::set_steps_per_launch(std::int64_t steps, Where where) { impl(where).set_steps_per_launch(steps, where); }
bool Loader::feeds(const Program& program, Where where) const { return impl(where).feeds(program); }
std::int64_t Loader::batches(Where where) const { return impl(where).batches(); }
LoaderPosition Loader::position(Where where) const { return impl(where).position(); }
void Loader::seek(const LoaderPosition& position, Where where) { impl(where).seek(position, where); }
LoaderReport Loader::report(Where where) const { return impl(where).report(where); }

Loader::Impl& Loader::impl(const Where& where) const {
  if (!impl_) throw Error("Loader", where, "a moved-from Loader", "use the Loader that it was moved to");
  return *impl_;
}

double idle_share(const LoaderReport& report) {
  return report.seconds > 0 ? std::min(report.waited_seconds / report.seconds, 1.0) : 0;
}

int workers_to_keep_up(const LoaderReport& report) {
  const double work = report.read_seconds + report.prepared_seconds, steps = report.seconds - report.waited_seconds;
  if (work <= 0) return 1;
  return steps > work / kMostWorkers ? std::max(static_cast<int>(std::ceil(work / steps)), 1) : kMostWorkers;
}

std::string to_string(const LoaderReport& report) {
  const auto share = [](double x) { return number_text(std::round(x * 1000) / 10) + " %"; };
  std::string text =
      std::to_string(report.launches) + " launches with " + std::to_string(report.batches) + " batches of " +
      std::to_string(report.samples) + " samples in " + number_text(report.seconds) + " s\nreading took " +
      number_text(report.read_seconds) + " s, preparing " + number_text(report.prepared_seconds) + " s of " +
      (report.workers == 0 ? "the thread that calls next()" : std::to_string(report.workers) + " workers") +
      "\nthe device was without data for at most " + share(idle_share(report)) + " of the time";
  if (report.workers == 0) {
    text += "\nworkers would read beside the launches";
  } else if (report.launches > 0) {
    text +=
        "; " + std::to_string(report.starved) + " launches were starved, " + std::to_string(report.shrunk) +
        " of them shrunk; " +
        number_text(std::round(10.0 * static_cast<double>(report.ready) / static_cast<double>(report.launches)) / 10) +
        " batches were ready on average";
    if (report.starved * 10 > report.launches) {
      const int more = workers_to_keep_up(report) - report.workers;
      text += report.prepared_seconds > report.read_seconds ? "\npreparing limits: " : "\nreading limits: ";
      text += more > 0 ? std::to_string(more) + " more workers would keep up, if there are cores left"
                       : "more launches ahead would even out what samples take";
    }
  }
  if (!report.obstacle.empty()) text += "\nfewer launches than asked for were ahead: " + report.obstacle;
  return text;
}

}  // namespace graphsink
