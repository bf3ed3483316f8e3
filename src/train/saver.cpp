#include "train/saver.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <set>
#include <system_error>

#include "base/absolute_path.h"
#include "base/number_text.h"
#include "graphsink/loader.h"

namespace graphsink {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "step-", kSuffix = ".safetensors";
constexpr std::size_t kDigits = 12;
// Names in the metadata.
constexpr const char *kEpoch = "loader.epoch", *kBatch = "loader.batch", *kBatches = "loader.batches",
                     *kSamples = "loader.samples", *kMetric = "metric.", *kBest = "patience.best",
                     *kSince = "patience.since", *kDue = "train.due";

// The steps of a file of this name; nothing for files of other names.
std::optional<std::int64_t> steps_of(const std::string& name) {
  std::int64_t steps = 0;
  if (name.size() != kPrefix.size() + kDigits + kSuffix.size() || !name.starts_with(kPrefix) ||
      !name.ends_with(kSuffix))
    return {};
  const char *begin = name.data() + kPrefix.size(), *end = begin + kDigits;
  const auto [stop, code] = std::from_chars(begin, end, steps);
  return stop == end && code == std::errc() && *begin != '-' ? std::optional(steps) : std::nullopt;
}

// A number in the metadata; nothing if there is none of this name.
std::optional<double> number_in(const Checkpoint& checkpoint, const std::string& name, const Where& where) {
  const auto found = checkpoint.metadata.find(name);
  double number = 0;
  if (found == checkpoint.metadata.end()) return {};
  const std::string& text = found->second;
  const auto [stop, code] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (code == std::errc() && stop == text.data() + text.size()) return number;
  throw Error(checkpoint.source, where, "metadata \"" + name + "\": expected a number, seen \"" + text + "\"",
              "remove the file, or choose another SaveOptions::folder", ErrorCode::io);
}

// Tells the samples of a batch from those of another order.
std::string mark_of(const SampleOrder& order, const LoaderPosition& position) {
  const std::vector<std::int64_t> samples = order.batch(position.epoch, position.batch).samples;
  return checksum(samples.data(), samples.size() * sizeof samples[0]);
}

// Names in the metadata that belong to a training.
bool is_reserved(const std::string& name) {
  const std::string group = name.substr(0, name.find('.') + 1);
  return name == "step" || name == "total_size" || group == "loader." || group == "metric." || group == "patience." ||
         group == "train.";
}

// The process may go to another folder meanwhile.
SaveOptions with_absolute_folder(SaveOptions options) {
  options.folder = absolute_path(options.folder);
  return options;
}

std::string message_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& e) {
    return e.what();
  } catch (...) {
    return "an exception of an unknown type";
  }
}

}  // namespace

fs::path newest_checkpoint(const fs::path& folder) {
  std::error_code code;
  fs::path newest;
  std::int64_t most = -1;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, code)) {
    const std::int64_t steps = steps_of(entry.path().filename().string()).value_or(-1);
    if (steps > most) newest = entry.path();
    most = std::max(most, steps);
  }
  return newest;
}

Saver::Saver(Program& program, const SaveOptions& options, SampleOrder order, const LogFunction& log,
             const Where& where)
    : program_(program),
      options_(with_absolute_folder(options)),
      order_(std::move(order)),
      log_function_(log),
      log_(log),
      where_(where),
      copies_in_background_(options.in_background) {
  if (options_.writes) make_folder();
  copies_.variables = program_.variables(where);
  std::set<std::string> names;
  for (const Variable& variable : copies_.variables) {
    if (names.insert(variable.name()).second) continue;
    throw Error("train", where, "two Variables are named \"" + variable.name() + "\"",
                "give each a name of its own, or make each in a Scope of its own");
  }
  for (const auto& [name, text] : options_.metadata) {
    if (!is_reserved(name)) continue;
    throw Error(
        "train", where, "SaveOptions::metadata has \"" + name + "\", a name of the training's own",
        "give it a name that is not \"step\" or \"total_size\", and does not begin with loader, metric, patience or "
        "train and a dot");
  }
  list_files();
  if (files_.empty() || options_.resumes) return;
  throw Error(options_.folder.string(), where, "holds files of another training",
              "set SaveOptions::resumes to go on with it, or choose another folder");
}

void Saver::make_folder() {
  std::error_code code;
  fs::create_directories(options_.folder, code);
  if (code) {
    throw Error(options_.folder.string(), where_, "the folder cannot be made: " + code.message(),
                "check SaveOptions::folder and the permissions of what it lies in", ErrorCode::io);
  }
  require_writable(path_of(0), where_);
  lock_.emplace(options_.folder, log_, where_);
}

Saver::~Saver() {
  if (thread_.joinable()) thread_.join();
}

fs::path Saver::path_of(std::int64_t steps) const {
  const std::string number = std::to_string(steps);
  std::string name(kPrefix);
  name += std::string(kDigits - std::min(kDigits, number.size()), '0') + number;
  return options_.folder / (name += kSuffix);
}

void Saver::list_files() {
  std::error_code code;
  if (!options_.writes && !fs::exists(options_.folder, code) && !code) return;  // the other one has not made it yet
  for (const fs::directory_entry& entry : fs::directory_iterator(options_.folder, code)) {
    if (const auto steps = steps_of(entry.path().filename().string())) files_.push_back({entry.path(), *steps});
  }
  if (code) {
    throw Error(options_.folder.string(), where_, "the folder cannot be read: " + code.message(),
                "check its permissions", ErrorCode::io);
  }
  std::sort(files_.begin(), files_.end(), [](const File& a, const File& b) { return a.steps < b.steps; });
}

std::optional<Progressed> Saver::resume() {
  std::optional<Checkpoint> newest;
  for (std::size_t i = files_.size(); i-- > 0;) {
    try {
      Checkpoint checkpoint =
          newest ? read_checkpoint_metadata(files_[i].path, where_) : read_checkpoint(files_[i].path, where_);
      if (!options_.best.empty()) files_[i].best = number_in(checkpoint, kMetric + options_.best, where_);
      if (!newest) newest = std::move(checkpoint);
      if (options_.best.empty()) break;  // nothing is asked of the others
    } catch (const Error& e) {
      // Not one can be read, or the process that writes may go on from this one.
      if ((i == 0 || !options_.writes) && !newest) throw;
      log_.warn({"a file of the training is not used: ", e.what()});
      files_.erase(files_.begin() + static_cast<std::ptrdiff_t>(i));
    }
  }
  if (!newest) return {};
  for (const File& file : files_)
    if (file.best) (void)is_among_best(*file.best);
  Progressed progressed;
  const std::int64_t batches = newest->number(kBatches, where_);
  if (batches != order_.batches()) {
    throw Error(
        newest->source, where_,
        "an epoch had " + std::to_string(batches) + " batches, and the loader has " + std::to_string(order_.batches()),
        "give the loader the same source and order, or choose another SaveOptions::folder", ErrorCode::io);
  }
  progressed.steps = newest->number("step", where_);
  progressed.position = {newest->number(kEpoch, where_), newest->number(kBatch, where_)};
  compare_samples(*newest, progressed.position);
  progressed.best = number_in(*newest, kBest, where_);
  progressed.is_due = newest->metadata.contains(kDue);
  progressed.evaluations_since = newest->number(kSince, where_);
  const std::string prefix = kMetric;
  for (const auto& [name, text] : newest->metadata)
    if (name.starts_with(prefix)) progressed.evaluation[name.substr(prefix.size())] = *number_in(*newest, name, where_);
  files_.back().is_evaluated = !progressed.evaluation.empty();
  files_.back().is_due = progressed.is_due;
  restore(program_, *newest, {}, where_);
  return progressed;
}

// Only who writes: a rank of several has other samples than the one whose file it reads.
void Saver::compare_samples(const Checkpoint& checkpoint, const LoaderPosition& position) {
  const auto found = checkpoint.metadata.find(kSamples);
  if (!options_.writes || found == checkpoint.metadata.end() || found->second == mark_of(order_, position)) return;
  log_.warn({checkpoint.source,
             ": the next batch has other samples than when this was saved, as the loader's order is another one: the "
             "training goes on, and ends with other numbers than without the interruption; for the same ones give the "
             "order the same options and sizes"});
}

std::map<std::string, std::string, std::less<>> Saver::metadata_of(const Progressed& progressed) const {
  auto metadata = options_.metadata;
  metadata["step"] = std::to_string(progressed.steps);
  metadata[kEpoch] = std::to_string(progressed.position.epoch);
  metadata[kBatch] = std::to_string(progressed.position.batch);
  metadata[kBatches] = std::to_string(order_.batches());
  metadata[kSamples] = mark_of(order_, progressed.position);
  metadata[kSince] = std::to_string(progressed.evaluations_since);
  if (progressed.is_due) metadata[kDue] = "1";
  if (progressed.best) metadata[kBest] = number_text(*progressed.best);
  for (const auto& [name, value] : progressed.evaluation) metadata[kMetric + name] = number_text(value);
  return metadata;
}

bool Saver::is_better(double a, double b) const { return options_.best_is_largest ? a > b : a < b; }

bool Saver::is_among_best(double value) {
  if (std::isnan(value)) return false;
  best_.insert(std::upper_bound(best_.begin(), best_.end(), value, [&](double a, double b) { return is_better(a, b); }),
               value);
  if (best_.size() <= static_cast<std::size_t>(options_.keep_best)) return true;
  best_.pop_back();
  return std::find(best_.begin(), best_.end(), value) != best_.end();
}

void Saver::save(const Progressed& progressed) {
  if (!options_.writes) return;
  const auto found = progressed.evaluation.find(options_.best);
  const bool stays = options_.keep_best > 0 && found != progressed.evaluation.end() && is_among_best(found->second);
  if (!stays && !is_written_) {
    ++skipped_;
    log_.warn({"no file is written for step ", std::to_string(progressed.steps), ": that of step ",
               std::to_string(writing_.steps), " is still being written; save less often, or to a faster disk"});
    return;
  }
  join();
  if (copies_in_background_ && copy_on_device(progressed)) return;
  try {
    write(snapshot(program_, where_), progressed);
  } catch (...) {
    error_ = std::current_exception();
  }
  join();
}

bool Saver::copy_on_device(const Progressed& progressed) {
  try {
    if (!copies_.program) {
      Graph g;
      for (const Variable& variable : copies_.variables) {
        copies_.values.push_back(g.value(variable, where_));
        g.output(std::to_string(copies_.values.size()), copies_.values.back());
      }
      copies_.program =
          compile(g, {.target = program_.target(where_).id, .tuning = {.threads = 1}, .log = log_function_}, where_);
    }
    copies_.program->run(interactive_serial, {}, where_);
  } catch (const Error& e) {
    if (e.code() == ErrorCode::device_lost) throw;
    log_.warn(
        {"the training waits while its files are written, because the device cannot copy its Variables: ", e.what()});
    copies_in_background_ = false;
    copies_.program.reset();
    return false;
  }
  copied_ = progressed;
  return true;
}

void Saver::launched() {
  if (!copied_) return;
  writing_ = *std::exchange(copied_, {});
  is_written_ = false;
  try {
    thread_ = Thread([this] { write_copies(); });
  } catch (const std::exception& e) {
    log_.warn({"the training waits while a file is written, because the system has no thread: ", e.what()});
    write_copies();
  }
}

void Saver::write_copies() {
  try {
    Checkpoint checkpoint;
    for (std::size_t i = 0; i < copies_.variables.size(); ++i)
      checkpoint.tensors[copies_.variables[i].name()] = copies_.program->output(copies_.values[i], where_);
    write(std::move(checkpoint), writing_);
  } catch (...) {
    error_ = std::current_exception();
  }
  is_written_ = true;
}

void Saver::write(Checkpoint checkpoint, const Progressed& progressed) {
  checkpoint.metadata = metadata_of(progressed);
  const fs::path path = path_of(progressed.steps);
  write_checkpoint(path, checkpoint, {.most_bytes_per_file = options_.most_bytes_per_file}, where_);
  ++saves_;
  std::optional<double> best;
  if (const auto found = progressed.evaluation.find(options_.best); found != progressed.evaluation.end())
    best = found->second;
  std::erase_if(files_, [&](const File& file) { return file.steps >= progressed.steps; });
  files_.push_back({path, progressed.steps, best, !progressed.evaluation.empty(), progressed.is_due});
  remove_others();
}

// Removes the files that are neither among the newest nor among the best.
void Saver::remove_others() {
  std::vector<const File*> best;
  for (const File& file : files_)
    if (file.best && !std::isnan(*file.best)) best.push_back(&file);
  std::stable_sort(best.begin(), best.end(),
                   [&](const File* a, const File* b) { return is_better(*a->best, *b->best); });
  best.resize(std::min(best.size(), static_cast<std::size_t>(options_.keep_best)));
  std::set<fs::path> stay;
  for (const File* file : best) stay.insert(file->path);
  const auto newest = std::min(files_.size(), static_cast<std::size_t>(options_.keep_newest));
  for (auto file = files_.end() - static_cast<std::ptrdiff_t>(newest); file != files_.end(); ++file)
    stay.insert(file->path);
  std::erase_if(files_, [&](const File& file) {
    if (stay.contains(file.path)) return false;
    try {
      remove_checkpoint(file.path, where_);
    } catch (const Error& e) {
      log_.warn({"an old file of the training stays: ", e.what()});
    }
    return true;
  });
}

void Saver::join() {
  if (thread_.joinable()) thread_.join();
  if (error_) log_.warn({"a file of the training could not be written: ", message_of(std::exchange(error_, nullptr))});
}

void Saver::finish(const Progressed& progressed) {
  if (!options_.writes) return;
  launched();
  join();
  const File* last = files_.empty() ? nullptr : &files_.back();
  const bool is_there = last && last->steps == progressed.steps && last->is_due == progressed.is_due &&
                        (last->is_evaluated || progressed.evaluation.empty());
  if (!is_there) write(snapshot(program_, where_), progressed);
}

fs::path Saver::newest() const { return files_.empty() ? fs::path() : files_.back().path; }

}  // namespace graphsink
