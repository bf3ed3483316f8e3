#include "graphsink/train.h"

#include <algorithm>
#include <deque>
#include <limits>
#include <optional>
#include <utility>

#include "base/log.h"
#include "base/number_text.h"
#include "train/interrupt.h"
#include "train/launch_size.h"
#include "train/saver.h"
#include "train/train_log.h"

namespace graphsink {
namespace {

// Launches that are under way while the next is prepared: with more, the host would learn too late that a step failed.
constexpr std::size_t kMostLaunches = 8;

void require(bool holds, const std::string& problem, const std::string& remedy, const Where& where) {
  if (!holds) throw Error("train", where, problem, remedy);
}

void check(const TrainOptions& options, const Where& where) {
  const auto not_negative = [&](const char* name, std::int64_t value) {
    require(value >= 0, std::string(name) + " is " + std::to_string(value), "give a number of at least 0", where);
  };
  not_negative("TrainOptions::steps", options.steps);
  not_negative("TrainOptions::epochs", options.epochs);
  not_negative("TrainOptions::steps_per_launch", options.steps_per_launch);
  not_negative("TrainOptions::evaluate_every", options.evaluate_every);
  not_negative("SaveOptions::every", options.save.every);
  not_negative("SaveOptions::keep_best", options.save.keep_best);
  not_negative("Patience::evaluations", options.patience.evaluations);
  require(options.save.keep_newest >= 1, "SaveOptions::keep_newest is " + std::to_string(options.save.keep_newest),
          "keep at least the newest file", where);
  require(options.log_every >= 1, "TrainOptions::log_every is " + std::to_string(options.log_every),
          "give a number of at least 1", where);
  require(options.longest_launch.count() > 0, "TrainOptions::longest_launch is not above 0", "give it some time",
          where);
  require(options.evaluate ||
              (options.evaluate_every == 0 && options.patience.evaluations == 0 && options.save.keep_best == 0),
          "nothing evaluates, and something depends on it",
          "set TrainOptions::evaluate, or leave out evaluate_every, patience and keep_best", where);
  require(options.save.keep_best == 0 || !options.save.best.empty(), "no metric tells the best files",
          "name one of the evaluation in SaveOptions::best", where);
  require(options.steps > 0 || options.epochs > 0 || options.should_stop || options.patience.evaluations > 0,
          "nothing ends the training", "set TrainOptions::steps or epochs, or should_stop, or patience", where);
  for (const StepAction& action : options.actions) {
    require(action.every >= 1 && action.act,
            "an action is empty, or comes every " + std::to_string(action.every) + " steps",
            "give a function, and a number of at least 1", where);
  }
}

// A launch that was issued.
struct Issued {
  std::int64_t first = 0, steps = 0;
  LoaderPosition position;  // of its first batch
};

class Training {
 public:
  Training(Program& program, Loader& loader, const TrainOptions& options, const Where& where)
      : program_(program),
        loader_(loader),
        options_(options),
        where_(where),
        log_(options.log),
        size_(options.steps_per_launch, options.longest_launch),
        interrupt_(options.ends_on_interrupt),
        values_(options.records.size()) {}

  TrainResult run() {
    begin();
    try {
      while (!is_over()) {
        const std::int64_t until = next_cut();
        if (!launch(until)) continue;  // an epoch has ended
        if (steps_ == until || issued_.size() >= kMostLaunches || recorded_ == result_.first) {
          settle();
        } else {
          look();
        }
        if (steps_ == until && !is_ended_) stop_here();
      }
      end();
    } catch (...) {
      rescue();
      throw;
    }
    return std::move(result_);
  }

 private:
  // --- begin and end

  void begin() {
    program_.sync(where_);
    if (!options_.save.folder.empty())
      saver_.emplace(program_, options_.save, loader_.batches(where_), options_.log, where_);
    bool is_resumed = false;
    if (auto resumed = saver_ ? saver_->resume() : std::nullopt) {
      loader_.seek(resumed->position, where_);
      state_ = *std::move(resumed);
      result_.evaluation = state_.evaluation;
      if (!state_.evaluation.empty()) evaluated_ = state_.steps;
      is_resumed = true;
    }
    steps_ = recorded_ = result_.first = program_.steps(where_);
    for (const std::string& name : options_.records) {
      (void)program_.records<double>(name, where_);  // of steps before
      lost_before_.push_back(program_.lost_records(name, where_));
    }
    train_log_.emplace(options_, steps_, last_step(), log_, where_);
    if (is_resumed)
      train_log_->note("goes on at step " + std::to_string(steps_) + " from " + saver_->newest().string());
    loader_.set_steps_per_launch(size_.steps(), where_);
  }

  // The step at which the training ends, as far as that is known; else 0.
  std::int64_t last_step() const {
    if (options_.epochs == 0) return options_.steps;
    const LoaderPosition at = loader_.position(where_);
    const std::int64_t epochs = std::max<std::int64_t>(options_.epochs - at.epoch, 0);
    const std::int64_t last = std::max(steps_ + epochs * loader_.batches(where_) - at.batch, steps_);
    return options_.steps > 0 ? std::min(last, options_.steps) : last;
  }

  bool is_over() {
    if (is_ended_) return true;
    if (options_.steps > 0 && steps_ >= options_.steps) {
      ended(TrainEnd::steps, "all steps are done");
    } else if (options_.epochs > 0 && loader_.position(where_).epoch >= options_.epochs) {
      ended(TrainEnd::epochs, "all epochs are done");
    } else if (interrupt_.was_seen()) {
      ended(TrainEnd::interrupted, "interrupted");
    } else if (options_.should_stop && options_.should_stop()) {
      ended(TrainEnd::should_stop, "should_stop() returned true");
    }
    return is_ended_;
  }

  void ended(TrainEnd end, const std::string& why) {
    result_.end = end;
    result_.why = why;
    is_ended_ = true;
  }

  void end() {
    settle();
    if (options_.evaluate && evaluated_ != steps_) evaluate();
    if (saver_) {
      check_best();
      saver_->finish(progressed());
      result_.saved = saver_->newest();
      result_.saves = saver_->saves();
      result_.skipped_saves = saver_->skipped();
    }
    result_.steps = steps_;
    result_.steps_per_launch = size_.steps();
    train_log_->note("ended at step " + std::to_string(steps_) + ": " + result_.why +
                     (result_.saved.empty() ? "" : "; saved " + result_.saved.string()));
  }

  // An exception is on its way out: what was committed is saved, if it can be.
  void rescue() noexcept {
    try {
      train_log_->end();
      try {
        reporting([&] { program_.sync(where_); });
      } catch (const Error&) {  // a step failed; those before it are committed
      }
      if (!saver_) return;
      saver_->finish(progressed());
    } catch (const std::exception& e) {
      log_.warn({"a training ended with an Error, and what it has trained last is not saved: ", e.what()});
    } catch (...) {
      log_.warn({"a training ended with an exception, and what it has trained last is not saved"});
    }
  }

  // --- launches

  // The number of steps at which the next launches must end.
  std::int64_t next_cut() const {
    std::int64_t cut = options_.steps > 0 ? options_.steps : std::numeric_limits<std::int64_t>::max();
    const auto at_multiple = [&](std::int64_t every) {
      if (every > 0) cut = std::min(cut, (steps_ / every + 1) * every);
    };
    at_multiple(options_.evaluate_every);
    if (saver_) at_multiple(options_.save.every);
    for (const StepAction& action : options_.actions) at_multiple(action.every);
    return cut;
  }

  // Gives the device a launch that ends at step `until` or before. Returns false where an epoch ends.
  bool launch(std::int64_t until) {
    const LoaderPosition position = loader_.position(where_);
    const std::int64_t steps = loader_.next(until - steps_, where_);
    if (steps == 0) return false;
    const auto start = std::chrono::steady_clock::now();
    try {
      program_.run(options_.mode, {.steps = steps}, where_);
    } catch (...) {
      loader_.seek(position, where_);
      throw;
    }
    issued_.push_back({steps_, steps, position});
    steps_ += steps;
    ++result_.launches;
    if (saver_) saver_->launched();
    if (!size_.is_found()) {
      settle();
      size_.measured(steps, std::chrono::steady_clock::now() - start);
      loader_.set_steps_per_launch(size_.steps(), where_);
    }
    return true;
  }

  // Waits for all launches.
  void settle() {
    reporting([&] { program_.sync(where_); });
    collect();
    for (std::size_t i = 0; i < values_.size(); ++i) {
      const auto recorded = recorded_ + static_cast<std::int64_t>(values_[i].size());
      if (recorded == steps_) continue;
      throw Error("train", where_,
                  "\"" + options_.records[i] + "\" has recorded " + std::to_string(recorded - result_.first) +
                      " numbers in " + std::to_string(steps_ - result_.first) + " steps",
                  "name records of scalars in TrainOptions::records");
    }
    tell();
    recorded_ = steps_;
    issued_.clear();
    train_log_->progress(steps_);
    train_log_->flush();
  }

  // Takes what steps have told so far.
  void look() {
    reporting([&] {
      if (program_.poll(where_)) issued_.clear();
    });
    collect();
    tell();
    while (!issued_.empty() && issued_.front().first + issued_.front().steps <= recorded_) issued_.pop_front();
    if (!values_.empty()) train_log_->progress(recorded_);
  }

  // Calls what may tell of a step that failed, or at which the run stopped. Then the loader is where that step was.
  template <class Call>
  void reporting(const Call& call) {
    try {
      call();
    } catch (const Error& e) {
      if (e.code() == ErrorCode::device_lost) throw;
      steps_ = program_.steps(where_);
      loader_.seek(position_at(steps_), where_);
      issued_.clear();
      if (e.code() != ErrorCode::stopped) throw;
      ended(TrainEnd::stopped, "stop_when() at " + to_string(e.where()) + ": " + e.problem());
    }
  }

  LoaderPosition position_at(std::int64_t steps) const {
    for (const Issued& launch : issued_) {
      if (steps < launch.first || steps >= launch.first + launch.steps) continue;
      return {launch.position.epoch, launch.position.batch + steps - launch.first};
    }
    return loader_.position(where_);
  }

  // --- what steps recorded

  void collect() {
    for (std::size_t i = 0; i < values_.size(); ++i) {
      const std::string& name = options_.records[i];
      for (double value : program_.try_records<double>(name, where_)) values_[i].push_back(value);
      if (program_.lost_records(name, where_) == lost_before_[i]) continue;
      throw Error("train", where_, "values of \"" + name + "\" were overwritten before they were read",
                  "give the record more room (RecordOptions::capacity) than 8 launches have steps");
    }
  }

  // Hands on the values of the steps that all records have told.
  void tell() {
    if (values_.empty()) return;
    std::vector<double> values(values_.size());
    while (std::none_of(values_.begin(), values_.end(), [](const auto& queue) { return queue.empty(); })) {
      for (std::size_t i = 0; i < values_.size(); ++i) {
        values[i] = values_[i].front();
        values_[i].pop_front();
      }
      train_log_->step(recorded_, values);
      const std::int64_t step = recorded_++;
      if (options_.on_step) options_.on_step({step, values});
    }
  }

  // --- between launches, at steps that the options name

  void stop_here() {
    const auto is_multiple = [&](std::int64_t every) { return every > 0 && steps_ % every == 0; };
    if (is_multiple(options_.evaluate_every)) evaluate();
    for (const StepAction& action : options_.actions)
      if (is_multiple(action.every)) action.act(steps_);
    if (saver_ && is_multiple(options_.save.every) && !is_over()) {
      check_best();
      saver_->save(progressed());
    }
  }

  void evaluate() {
    result_.evaluation = options_.evaluate();
    evaluated_ = steps_;
    train_log_->evaluation(steps_, result_.evaluation);
    const Patience& patience = options_.patience;
    if (patience.evaluations == 0) return;
    const double value = metric(patience.metric);
    const bool is_better =
        patience.largest_is_best ? value > state_.best.value_or(-kInfinity) : value < state_.best.value_or(kInfinity);
    if (is_better) state_.best = value;
    state_.evaluations_since = is_better ? 0 : state_.evaluations_since + 1;
    if (state_.evaluations_since < patience.evaluations) return;
    ended(TrainEnd::patience, patience.metric + " was no better in " + std::to_string(patience.evaluations) +
                                  " evaluations than " + number_text(state_.best.value_or(value)));
  }

  double metric(const std::string& name) const {
    const auto found = result_.evaluation.find(name);
    if (found != result_.evaluation.end()) return found->second;
    std::string names;
    for (const auto& [known, value] : result_.evaluation) names += (names.empty() ? "\"" : ", \"") + known + "\"";
    throw Error("train", where_, "the evaluation has no metric \"" + name + "\"",
                names.empty() ? "return it from TrainOptions::evaluate" : "it has " + names);
  }

  Progressed progressed() {
    state_.steps = steps_;
    state_.position = loader_.position(where_);
    state_.evaluation = evaluated_ == steps_ ? result_.evaluation : Metrics();
    return state_;
  }

  void check_best() const {
    if (options_.save.keep_best > 0 && evaluated_ == steps_) (void)metric(options_.save.best);
  }

  static constexpr double kInfinity = std::numeric_limits<double>::infinity();

  Program& program_;
  Loader& loader_;
  const TrainOptions& options_;
  const Where where_;
  const Log log_;
  LaunchSize size_;
  const Interrupt interrupt_;
  std::optional<Saver> saver_;
  std::optional<TrainLog> train_log_;
  std::deque<Issued> issued_;               // launches that may be under way
  std::vector<std::deque<double>> values_;  // by record: those that were not handed on
  std::vector<std::int64_t> lost_before_;   // by record
  std::int64_t steps_ = 0;                  // issued, and committed once they are over
  std::int64_t recorded_ = 0;               // of which the values were handed on
  std::int64_t evaluated_ = -1;             // at so many steps, last
  Progressed state_;
  TrainResult result_;
  bool is_ended_ = false;
};

}  // namespace

std::string to_string(TrainEnd end) {
  constexpr const char* kNames[] = {"steps", "epochs", "stopped", "patience", "should_stop", "interrupted"};
  return kNames[static_cast<std::size_t>(end)];
}

TrainResult train(Program& program, Loader& loader, const TrainOptions& options, Where where) {
  check(options, where);
  return Training(program, loader, options, where).run();
}

}  // namespace graphsink
