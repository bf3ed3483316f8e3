// train() and evaluate(). graphsink/_train.py gives them their keywords.
#include <nanobind/stl/function.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/pair.h>

#include <chrono>
#include <cstdio>
#include <memory>
#include <utility>

#include "bindings.h"
#include "interpreter.h"
#include "log.h"

namespace graphsink::python {

namespace {

// A stream that writes to sys.stdout, which is a cell of a notebook or a captured file, and not that of C.
std::FILE* python_stdout() {
  const cookie_io_functions_t functions{.read = nullptr,
                                        .write = [](void*, const char* text, std::size_t size) -> ssize_t {
                                          if (!is_running()) return static_cast<ssize_t>(size);
                                          WithGil gil;
                                          try {
                                            nb::object out = nb::module_::import_("sys").attr("stdout");
                                            if (!out.is_none()) {
                                              const nb::object written =
                                                  nb::bytes(text, size).attr("decode")("utf-8", "replace");
                                              ending_here([&] {
                                                out.attr("write")(written);
                                                out.attr("flush")();
                                              });
                                            }
                                          } catch (nb::python_error& error) {
                                            error.discard_as_unraisable("the progress of gs.train()");
                                          }
                                          return static_cast<ssize_t>(size);
                                        },
                                        .seek = nullptr,
                                        .close = nullptr};
  std::FILE* made = fopencookie(nullptr, "w", functions);
  if (made != nullptr) std::setvbuf(made, nullptr, _IOLBF, 0);
  return made;
}

struct CloseFile {
  void operator()(std::FILE* file) const { std::fclose(file); }
};

// Asked between launches: whether Ctrl-C was pressed, or the user's function wants to stop. Python runs handlers of
// signals only where it is asked to, which is here.
class ShouldStop {
 public:
  ShouldStop(nb::handle function, nb::handle was_interrupted) : interrupt_(keep(was_interrupted)) {
    if (!function.is_none()) function_ = keep(function);
  }

  bool ask() {
    if (is_left_behind()) return true;  // the process ends, and the training before it
    // Taking the GIL costs up to 5 ms where another thread of Python computes.
    const auto now = std::chrono::steady_clock::now();
    if (function_ == nullptr && now - asked_ < std::chrono::milliseconds(20)) return false;
    asked_ = now;
    WithGil gil;
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
    if (nb::cast<bool>(ending_here([&] { return (*interrupt_)(); }))) {
      was_interrupted_ = true;
      return true;
    }
    return function_ != nullptr && nb::cast<bool>(nb::bool_(ending_here([&] { return (*function_)(); })));
  }
  bool has_function() const { return function_ != nullptr; }
  bool was_interrupted() const { return was_interrupted_; }

 private:
  std::shared_ptr<nb::object> function_, interrupt_;
  bool was_interrupted_ = false;
  std::chrono::steady_clock::time_point asked_{};
};

// Calls a function of Python from a thread that runs without the GIL.
std::function<Metrics()> evaluation_of(nb::handle function) {
  if (function.is_none()) return {};
  return [function = keep(function)] {
    WithGil gil;
    const auto found = nb::cast<std::map<std::string, double>>(ending_here([&] { return (*function)(); }));
    return Metrics(found.begin(), found.end());
  };
}

std::function<void(const StepValues&)> on_step_of(nb::handle function) {
  if (function.is_none()) return {};
  return [function = keep(function)](const StepValues& step) {
    WithGil gil;
    nb::list values;
    for (double value : step.values) values.append(value);
    const nb::tuple given(values);
    ending_here([&] { (*function)(step.step, given); });
  };
}

std::vector<StepAction> actions_of(nb::handle actions) {
  std::vector<StepAction> all;
  for (nb::handle each : actions) {
    all.push_back(
        {nb::cast<std::int64_t>(nb::object(each[0])), [function = keep(nb::object(each[1]))](std::int64_t steps) {
           WithGil gil;
           ending_here([&] { (*function)(steps); });
         }});
  }
  return all;
}

void bind_results(nb::module_& m) {
  nb::enum_<TrainEnd>(m, "TrainEnd", "Why a training ended.")
      .value("steps", TrainEnd::steps)
      .value("epochs", TrainEnd::epochs)
      .value("stopped", TrainEnd::stopped)
      .value("patience", TrainEnd::patience)
      .value("should_stop", TrainEnd::should_stop)
      .value("interrupted", TrainEnd::interrupted);
  nb::class_<TrainResult>(m, "TrainResult", "What train() did.")
      .def_ro("end", &TrainResult::end)
      .def_ro("why", &TrainResult::why, "The reason for the end in words.")
      .def_ro("steps", &TrainResult::steps, "Steps that the program has committed, from the very beginning.")
      .def_ro("first", &TrainResult::first, "Steps that it had when this training began: those of the file.")
      .def_ro("launches", &TrainResult::launches)
      .def_ro("steps_per_launch", &TrainResult::steps_per_launch)
      .def_prop_ro(
          "evaluation",
          [](const TrainResult& self) {
            return std::map<std::string, double>(self.evaluation.begin(), self.evaluation.end());
          },
          "The metrics of the last evaluation.")
      .def_prop_ro(
          "saved", [](const TrainResult& self) { return path_object(self.saved.native()); },
          "The absolute path of the last file; empty: there is none.")
      .def_ro("saves", &TrainResult::saves)
      .def_ro("skipped_saves", &TrainResult::skipped_saves);
  nb::enum_<Metric::Kind>(m, "MetricKind", "How the values of the steps of an evaluation become one number.")
      .value("mean", Metric::Kind::mean)
      .value("perplexity", Metric::Kind::perplexity)
      .value("sum", Metric::Kind::sum);
  nb::class_<Metric>(m, "Metric", "What evaluate() makes of a record.")
      .def(
          "__init__",
          [](Metric* self, std::string record, Metric::Kind kind, std::string weight, std::string name) {
            new (self) Metric{std::move(record), kind, std::move(weight), std::move(name)};
          },
          nb::arg("record"), nb::arg("kind").noconvert() = Metric::Kind::mean, nb::kw_only(), nb::arg("weight") = "",
          nb::arg("name") = "",
          "weight: the record of a scalar by which each value counts, for means over batches of different sizes. name: "
          "in what evaluate() returns, by default that of the record.")
      .def_ro("record", &Metric::record)
      .def_ro("kind", &Metric::kind)
      .def_ro("weight", &Metric::weight)
      .def_ro("name", &Metric::name);
}

void bind_save(nb::module_& m) {
  const SaveOptions defaults;
  nb::class_<SaveOptions>(m, "SaveOptions", "Files from which a training goes on.")
      .def(
          "__init__",
          [](SaveOptions* self, const FilePath& folder, std::int64_t every, int keep_newest, int keep_best,
             std::string best, bool best_is_largest, std::size_t most_bytes_per_file, bool resumes, bool writes,
             bool in_background, const std::map<std::string, std::string>& metadata) {
            new (self) SaveOptions{.folder = folder.path,
                                   .every = every,
                                   .keep_newest = keep_newest,
                                   .keep_best = keep_best,
                                   .best = std::move(best),
                                   .best_is_largest = best_is_largest,
                                   .most_bytes_per_file = most_bytes_per_file,
                                   .resumes = resumes,
                                   .writes = writes,
                                   .in_background = in_background};
            self->metadata.insert(metadata.begin(), metadata.end());
          },
          nb::arg("folder"), nb::kw_only(), nb::arg("every") = defaults.every,
          nb::arg("keep_newest") = defaults.keep_newest, nb::arg("keep_best") = defaults.keep_best,
          nb::arg("best") = defaults.best, nb::arg("best_is_largest") = defaults.best_is_largest,
          nb::arg("most_bytes_per_file") = defaults.most_bytes_per_file, nb::arg("resumes") = defaults.resumes,
          nb::arg("writes") = defaults.writes, nb::arg("in_background") = defaults.in_background,
          nb::arg("metadata") = std::map<std::string, std::string>{},
          "folder: where files \"step-000000001200.safetensors\" are written. every: steps from one to the next, 0 for "
          "the end only. keep_newest, keep_best: which files stay, the best by the metric `best`. resumes: goes on "
          "from the newest file of the folder. writes: False on all ranks but one of a training. in_background: a "
          "thread writes the file while steps run.");
  nb::class_<Patience>(m, "Patience", "Ends a training whose evaluations no longer become better.")
      .def(
          "__init__",
          [](Patience* self, std::string metric, int evaluations, bool largest_is_best) {
            new (self) Patience{std::move(metric), evaluations, largest_is_best};
          },
          nb::arg("metric"), nb::arg("evaluations"), nb::kw_only(), nb::arg("largest_is_best") = false);
}

TrainResult run_training(ProgramHandle& program, LoaderHandle& loader, TrainOptions options, ShouldStop& stop,
                         nb::handle progress, const Where& where) {
  const LoaderHandle::Call call(loader, where);
  Loader& batches = loader.open(where);
  std::unique_ptr<std::FILE, CloseFile> cell;
  options.progress = nullptr;
  if (nb::cast<std::string>(progress) == "cell") {
    cell.reset(python_stdout());
    options.progress = cell.get();
  } else if (nb::cast<std::string>(progress) == "terminal") {
    options.progress = stdout;
  }
  // Without an end of its own the training is refused, as in C++.
  const bool has_end = options.steps > 0 || options.epochs > 0 || stop.has_function() ||
                       (options.patience.evaluations > 0 && options.evaluate_every > 0);
  if (has_end) options.should_stop = [&stop] { return stop.ask(); };
  options.ends_on_interrupt = false;
  TrainResult result;
  {
    WithoutGil others_run;
    result = train(*program.program, batches, options, where);
    cell.reset();
  }
  ++program.runs;
  require_not_left_behind();
  if (stop.was_interrupted()) {
    result.end = TrainEnd::interrupted;
    result.why = "interrupted";
  }
  return result;
}

}  // namespace

void bind_train(nb::module_& m) {
  bind_results(m);
  bind_save(m);
  m.def(
      "run_training",
      [](ProgramHandle& program, LoaderHandle& loader, std::int64_t steps, std::int64_t epochs, Mode mode,
         std::int64_t steps_per_launch, std::int64_t longest_launch, const std::vector<std::string>& records,
         nb::handle on_step, nb::handle actions, nb::handle evaluate, std::int64_t evaluate_every,
         const std::optional<Patience>& patience, const std::optional<SaveOptions>& save,
         const std::optional<FilePath>& log_file, std::int64_t log_every, nb::handle progress, nb::handle should_stop,
         nb::handle was_interrupted, nb::handle log) {
        ShouldStop stop(should_stop, was_interrupted);
        TrainOptions options{.steps = steps,
                             .epochs = epochs,
                             .mode = mode,
                             .steps_per_launch = steps_per_launch,
                             .longest_launch = std::chrono::milliseconds(longest_launch),
                             .records = records,
                             .on_step = on_step_of(on_step),
                             .actions = actions_of(actions),
                             .evaluate = evaluation_of(evaluate),
                             .evaluate_every = evaluate_every};
        if (patience) options.patience = *patience;
        if (save) options.save = *save;
        if (log_file) options.log_file = log_file->path;
        options.log_every = log_every;
        options.log = log_function(log);
        return run_training(program, loader, std::move(options), stop, progress, here());
      },
      nb::arg("program"), nb::arg("loader"), nb::arg("steps"), nb::arg("epochs"), nb::arg("mode").noconvert(),
      nb::arg("steps_per_launch"), nb::arg("longest_launch"), nb::arg("records"), nb::arg("on_step").none(),
      nb::arg("actions").sig("list[typing.Any]"), nb::arg("evaluate").none(), nb::arg("evaluate_every"),
      nb::arg("patience").none(), nb::arg("save").none(), nb::arg("log_file").none(), nb::arg("log_every"),
      nb::arg("progress"), nb::arg("should_stop").none(), nb::arg("was_interrupted"), nb::arg("log").none());
  m.def(
      "run_evaluation",
      [](ProgramHandle& program, LoaderHandle& loader, const std::vector<Metric>& metrics, Mode mode) {
        const Where where = here();
        const LoaderHandle::Call call(loader, where);
        Loader& batches = loader.open(where);
        Metrics found;
        {
          WithoutGil others_run;
          found = evaluate(*program.program, batches, metrics, mode, where);
        }
        ++program.runs;
        return std::map<std::string, double>(found.begin(), found.end());
      },
      nb::arg("program"), nb::arg("loader"), nb::arg("metrics"), nb::arg("mode").noconvert());
}

}  // namespace graphsink::python
