#include "graphsink/train.h"

#include <algorithm>
#include <deque>
#include <limits>
#include <optional>
#include <utility>

#include "api/program_access.h"
#include "base/log.h"
#include "base/number_text.h"
#include "train/interrupt.h"
#include "train/loader_access.h"
#include "train/saver.h"
#include "train/steps_per_launch.h"
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
  require(!options.save.folder.empty() || (options.save.every == 0 && options.save.keep_best == 0),
          "files are asked for, and no folder", "set SaveOptions::folder", where);
  require(options.save.keep_best == 0 || options.save.every == 0 ||
              (options.evaluate_every > 0 && options.save.every % options.evaluate_every == 0),
          "files are written at steps without an evaluation, so that none of them is known to be good",
          "let SaveOptions::every be a multiple of evaluate_every, or leave out keep_best", where);
  require(options.steps > 0 || options.epochs > 0 || options.should_stop ||
              (options.patience.evaluations > 0 && options.evaluate_every > 0),
          "nothing ends the training",
          "set TrainOptions::steps or epochs, or should_stop, or patience and evaluate_every", where);
  require(!options.on_step || !options.records.empty(),
          "on_step would not be told of steps, because nothing is recorded",
          "name records of scalars in TrainOptions::records", where);
  for (auto name = options.records.begin(); name != options.records.end(); ++name) {
    require(std::find(options.records.begin(), name, *name) == name,
            "TrainOptions::records has \"" + *name + "\" twice", "name each record once", where);
  }
  for (const StepAction& action : options.actions) {
    require(action.every >= 1 && action.act,
            "an action is empty, or comes every " + std::to_string(action.every) + " steps",
            "give a function, and a number of at least 1", where);
  }
}

// A launch that was issued.
struct Issued {
  std::int64_t first = 0, steps = 0;
  LoaderPosition position;  // position of its first batch
};

// Whether ranks have to launch alike: those of NCCL in any case, and all of them where the functions of the user that
// are called between launches wait for other ranks.
bool launches_with_ranks(const Program& program) { return program.plan().has_collectives; }

// TrainOptions::steps_per_launch. It is not found by measurement where each rank would measure something else.
std::int64_t steps_of_launch(bool is_of_ranks, std::int64_t asked) {
  constexpr std::int64_t kOfRanks = 16;
  return asked == 0 && is_of_ranks ? kOfRanks : asked;
}

class Training {
 public:
  Training(Program& program, Loader& loader, const TrainOptions& options, const Where& where)
      : program_(program),
        loader_(loader),
        options_(options),
        where_(where),
        log_(options.log),
        launches_with_ranks_(launches_with_ranks(program)),
        size_(steps_of_launch(launches_with_ranks_, options.steps_per_launch), options.longest_launch),
        interrupt_(options.ends_on_interrupt),
        values_(options.records.size()) {}

  TrainResult run() {
    begin();
    try {
      if (due_at_ == steps_) stop_here();
      while (!is_over()) {
        const std::int64_t until = next_cut();
        if (!launch(until)) continue;
        if (steps_ == until || issued_.size() >= kMostLaunches || recorded_ == result_.first) {
          settle();
        } else {
          look();
        }
        if (steps_ == until) stop_here();
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
    require(loader_.feeds(program_, where_), "the loader feeds another program",
            "pass the loader that was made for this one", where_);
    program_.sync(where_);
    if (!options_.save.folder.empty())
      saver_.emplace(program_, options_.save, loader_.order(where_), options_.log, where_);
    bool is_resumed = false;
    if (auto resumed = saver_ ? saver_->resume() : std::nullopt) {
      loader_.seek(resumed->position, where_);
      state_ = *std::move(resumed);
      result_.evaluation = state_.evaluation;
      if (!state_.evaluation.empty()) evaluated_ = state_.steps;
      is_resumed = true;
    }
    steps_ = recorded_ = result_.first = program_.steps(where_);
    if (state_.is_due) due_at_ = steps_;
    for (const std::string& name : options_.records) {
      (void)program_.records<double>(name, where_);  // those of steps before
      lost_before_.push_back(program_.lost_records(name, where_));
      most_untold_ = std::min(most_untold_, std::max<std::int64_t>(program_.record_capacity(name, where_) - 1, 1));
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
    } else if (options_.patience.evaluations > 0 && state_.evaluations_since >= options_.patience.evaluations) {
      ended(TrainEnd::patience, options_.patience.metric + " was no better in " +
                                    std::to_string(options_.patience.evaluations) + " evaluations than " +
                                    number_text(state_.best.value_or(kInfinity)));
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

  // An exception is on its way out: what was committed is told and saved, if it can be. Who threw it may have been told
  // of a failed step in the place of this, so that the program is asked how many steps it has committed.
  void rescue() noexcept {
    const auto trying = [&](const char* what, const auto& act) {
      try {
        act();
      } catch (const std::exception& e) {
        log_.warn({"a training ended with an Error; ", what, ": ", e.what()});
      } catch (...) {
        log_.warn({"a training ended with an exception; ", what});
      }
    };
    trying("it was also found then", [&] { program_.sync(where_); });
    trying("not all values of steps were handed on", [&] {
      find_place();
      collect(true);
      tell();
    });
    trying("what it has trained last is not saved", [&] {
      train_log_->end();
      if (saver_) saver_->finish(progressed());
    });
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

  // Gives the device a launch that ends at step `until` or before. Returns false where there is none: an epoch ends, or
  // the run has stopped.
  bool launch(std::int64_t until) {
    if (steps_ - recorded_ + size_.steps() > most_untold_) settle();  // its values may have no room beside the others
    if (is_ended_) return false;
    const LoaderPosition position = loader_.position(where_);
    const std::int64_t room = most_untold_ - (steps_ - recorded_);  // a launch may have been prepared with more steps
    const std::int64_t steps = loader_.next(std::min(until - steps_, room), where_);
    if (steps == 0) return false;
    issued_.push_back({steps_, steps, position});
    steps_ += steps;
    if (steps_ == until) due_at_ = until;
    if (size_.is_found()) {
      program_.run(options_.mode, {.steps = steps}, where_);
    } else {
      measure(steps);
    }
    ++result_.launches;
    if (saver_) saver_->launched();
    return true;
  }

  void measure(std::int64_t steps) {
    const Counters before = program_.counters(where_);
    const auto start = std::chrono::steady_clock::now();
    program_.run(options_.mode, {.steps = steps}, where_);
    reporting([&] { program_.sync(where_); });
    const auto took = std::chrono::steady_clock::now() - start;
    const Counters after = program_.counters(where_);
    size_.measured(steps, took, after.captures == before.captures && after.graph_launches > before.graph_launches);
    loader_.set_steps_per_launch(size_.steps(), where_);
  }

  // Waits for all launches.
  void settle() {
    reporting([&] { program_.sync(where_); });
    collect(true);
    const std::int64_t committed = program_.steps(where_);
    require(committed == steps_,
            "the program has committed " + std::to_string(committed) + " steps, of " + std::to_string(steps_),
            "let train() alone run it, and hand on Errors that a call on it throws meanwhile", where_);
    for (std::size_t i = 0; i < values_.size(); ++i) {
      const auto recorded = recorded_ + static_cast<std::int64_t>(values_[i].size());
      require(recorded == steps_,
              "\"" + options_.records[i] + "\" has recorded " + std::to_string(recorded - result_.first) +
                  " numbers in " + std::to_string(steps_ - result_.first) + " steps",
              "name records of scalars in TrainOptions::records, and read them in on_step alone", where_);
    }
    tell();
    recorded_ = steps_;
    issued_.clear();
    train_log_->progress(steps_);
    train_log_->flush();
  }

  // Takes what steps have told so far. Where ranks exchange values only settle() does, after as many
  // launches on each: whether a step that ended the run was seen already would differ from rank to rank, and one that
  // launches on would wait for the others.
  void look() {
    if (launches_with_ranks_) return;
    reporting([&] { (void)program_.poll(where_); });
    if (is_ended_) return settle();
    collect(false);
    tell();
    while (!issued_.empty() && issued_.front().first + issued_.front().steps <= recorded_) issued_.pop_front();
    if (!values_.empty()) train_log_->progress(recorded_);
  }

  // Calls what may tell of a step that failed, or at which the run stopped.
  template <class Call>
  void reporting(const Call& call) {
    try {
      call();
    } catch (const Error& e) {
      if (e.code() != ErrorCode::stopped) throw;
      find_place();
      ended(TrainEnd::stopped, "stop_when() at " + to_string(e.where()) + ": " + e.problem());
    }
  }

  // How many steps were committed, and the loader behind them. Precondition: all launches are over, and what failed in
  // them was reported.
  void find_place() {
    steps_ = program_.steps(where_);
    for (const Issued& launch : issued_) {
      if (steps_ < launch.first || steps_ >= launch.first + launch.steps) continue;
      loader_.seek({launch.position.epoch, launch.position.batch + steps_ - launch.first}, where_);
      break;
    }
    issued_.clear();
  }

  // --- what steps recorded

  // `are_over`: all launches.
  void collect(bool are_over) {
    for (std::size_t i = 0; i < values_.size(); ++i) {
      const std::string& name = options_.records[i];
      for (double value :
           are_over ? program_.records<double>(name, where_) : program_.try_records<double>(name, where_))
        values_[i].push_back(value);
      if (program_.lost_records(name, where_) == lost_before_[i]) continue;
      throw Error("train", where_, "values of \"" + name + "\" were overwritten before they were read",
                  "give the record more room (RecordOptions::capacity)");
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
    due_at_ = steps_;  // until all is done
    const auto is_multiple = [&](std::int64_t every) { return every > 0 && steps_ % every == 0; };
    if (is_multiple(options_.evaluate_every) && evaluated_ != steps_) {
      evaluate();
      if (options_.patience.evaluations > 0) compare_with_best();
    }
    for (const StepAction& action : options_.actions)
      if (is_multiple(action.every)) action.act(steps_);
    due_at_ = -1;
    if (saver_ && is_multiple(options_.save.every) && !is_over()) {
      check_best();
      saver_->save(progressed());
    }
  }

  void evaluate() {
    result_.evaluation = options_.evaluate();
    evaluated_ = steps_;
    train_log_->evaluation(steps_, result_.evaluation);
  }

  void compare_with_best() {
    const double value = metric(options_.patience.metric);
    const bool is_better = options_.patience.largest_is_best ? value > state_.best.value_or(-kInfinity)
                                                             : value < state_.best.value_or(kInfinity);
    if (is_better) state_.best = value;
    state_.evaluations_since = is_better ? 0 : state_.evaluations_since + 1;
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
    state_.is_due = due_at_ == steps_;
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
  const bool launches_with_ranks_;
  StepsPerLaunch size_;
  const Interrupt interrupt_;
  std::optional<Saver> saver_;
  std::optional<TrainLog> train_log_;
  std::deque<Issued> issued_;                                            // launches that may be under way
  std::vector<std::deque<double>> values_;                               // by record: those that were not handed on
  std::vector<std::int64_t> lost_before_;                                // by record
  std::int64_t most_untold_ = std::numeric_limits<std::int64_t>::max();  // steps whose values were not read
  std::int64_t steps_ = 0;                                               // issued, and committed once they are over
  std::int64_t recorded_ = 0;                                            // steps of which the values were handed on
  std::int64_t evaluated_ = -1;                                          // at so many steps, last
  std::int64_t due_at_ = -1;  // steps at which something is to be done, and was not
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
  const Held of_program = ProgramAccess::hold(program, where), of_loader = LoaderAccess::hold(loader, where);
  return Training(program, loader, options, where).run();
}

}  // namespace graphsink
