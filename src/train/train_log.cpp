#include "train/train_log.h"

#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <new>
#include <string_view>
#include <system_error>

#include "base/json_writer.h"
#include "base/number_text.h"

namespace graphsink {
namespace {

constexpr int kBar = 20;                          // characters
constexpr std::string_view kFirst = R"({"step)";  // with what all lines of metrics begin

std::string bar(std::int64_t done, std::int64_t all) {
  const auto full = static_cast<std::size_t>(kBar * done / all);
  return "[" + std::string(full, '=') + std::string(kBar - full, ' ') + "]";
}

// "1:02:03", "0:12".
std::string duration_text(double seconds) {
  const auto all = static_cast<std::int64_t>(std::min(std::ceil(seconds), 1e9));
  const auto two = [](std::int64_t x) { return (x < 10 ? "0" : "") + std::to_string(x); };
  const std::int64_t hours = all / 3600, minutes = all / 60 % 60;
  return (hours > 0 ? std::to_string(hours) + ":" + two(minutes) : std::to_string(minutes)) + ":" + two(all % 60);
}

// Which of the lines of a log without a terminal this step belongs to: a tenth of the way, or a doubling.
std::int64_t line_number(std::int64_t steps, std::int64_t last) {
  return last > 0 ? steps * 10 / last : std::bit_width(static_cast<std::uint64_t>(steps));
}

std::string text(const Metrics& metrics) {
  std::string text;
  for (const auto& [name, value] : metrics) text += (text.empty() ? "" : "  ") + name + " " + fixed_text(value, 4);
  return text;
}

}  // namespace

TrainLog::TrainLog(const TrainOptions& options, std::int64_t first, std::int64_t last, const Log& log,
                   const Where& where)
    : options_(options),
      first_(first),
      last_(last),
      log_(log),
      is_terminal_(options.progress != nullptr && isatty(fileno(options.progress)) != 0) {
  if (options.log_file.empty()) return;
  try {
    file_.emplace(options.log_file, kFirst);
  } catch (const std::system_error& e) {
    if (e.code() == std::errc::operation_would_block) {
      throw Error(options.log_file.string(), where, "another training writes its lines to this file",
                  "set TrainOptions::log_file to a file of its own, or on one rank alone", ErrorCode::io);
    }
    throw Error(options.log_file.string(), where, "cannot be opened for lines of metrics: " + e.code().message(),
                "check TrainOptions::log_file and the permissions of its folder", ErrorCode::io);
  }
}

TrainLog::~TrainLog() {
  try {
    flush();
  } catch (const std::bad_alloc&) {
    // There is no memory to tell of lines that are lost.
  }
}

void TrainLog::step(std::int64_t step, std::span<const double> values) {
  has_value_ = !values.empty();
  if (has_value_) value_ = values[0];
  if (!file_ || values.empty() || step % options_.log_every != 0) return;
  JsonWriter json;
  json.begin_object();
  json.member("step", step);
  for (std::size_t i = 0; i < values.size(); ++i) json.member(options_.records[i], values[i]);
  json.end_object();
  write(json.take());
}

void TrainLog::progress(std::int64_t steps) {
  if (options_.progress == nullptr || steps == shown_) return;
  const auto now = std::chrono::steady_clock::now();
  const bool is_last = last_ > 0 && steps >= last_;
  const bool is_due = is_terminal_ ? now - shown_at_ > std::chrono::milliseconds(100)
                                   : line_number(steps, last_) > line_number(std::max(shown_, first_), last_);
  if (!is_last && !is_due) return;
  shown_at_ = now;
  show(steps);
}

void TrainLog::show(std::int64_t steps) {
  shown_ = steps;
  const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - start_;
  const double rate = passed.count() > 0 ? static_cast<double>(steps - first_) / passed.count() : 0;
  std::string line = "step " + std::to_string(steps);
  if (last_ > 0) line += "/" + std::to_string(last_);
  if (last_ > 0 && is_terminal_) line += "  " + bar(std::min(steps, last_), last_);
  if (has_value_) line += "  " + options_.records[0] + " " + fixed_text(value_, 3);
  line += "  " + fixed_text(rate, rate < 10 ? 2 : 0) + " steps/s";
  if (last_ > steps && rate > 0) line += "  " + duration_text(static_cast<double>(last_ - steps) / rate) + " left";
  std::fprintf(options_.progress, is_terminal_ ? "\r%s\033[K" : "%s\n", line.c_str());
  std::fflush(options_.progress);
  is_line_open_ = is_terminal_;
}

void TrainLog::evaluation(std::int64_t steps, const Metrics& metrics) {
  note("evaluation at step " + std::to_string(steps) + ": " + text(metrics));
  if (!file_) return;
  JsonWriter json;
  json.begin_object();
  json.member("steps", steps);
  json.key("evaluation");
  json.begin_object();
  for (const auto& [name, value] : metrics) json.member(name, value);
  json.end_object();
  json.end_object();
  write(json.take());
  flush();
}

void TrainLog::note(const std::string& line) {
  if (options_.progress == nullptr) return;
  end();
  std::fprintf(options_.progress, "%s\n", line.c_str());
  std::fflush(options_.progress);
}

void TrainLog::end() {
  if (std::exchange(is_line_open_, false)) std::fputc('\n', options_.progress);
}

void TrainLog::write(const std::string& json) { check(file_->append(json)); }

void TrainLog::flush() {
  if (file_) check(file_->flush());
}

void TrainLog::check(int code) {
  if (code == 0) return;
  log_.warn({options_.log_file.string(),
             " takes no more lines of metrics, and some are lost: ", std::generic_category().message(code)});
  file_.reset();
}

}  // namespace graphsink
