// TrainLog: what a training tells of itself while it runs: lines of JSON in a file, and its progress on a terminal.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <span>
#include <string>

#include "base/log.h"
#include "graphsink/train.h"
#include "train/line_file.h"

namespace graphsink {

class TrainLog {
 public:
  // `options` must outlive this. The training begins at step `first` and ends at step `last`; 0: nobody knows when.
  // Throws Error if the file cannot be opened.
  TrainLog(const TrainOptions& options, std::int64_t first, std::int64_t last, const Log& log, const Where& where);
  ~TrainLog();  // flush()
  TrainLog(const TrainLog&) = delete;
  TrainLog& operator=(const TrainLog&) = delete;

  // Step number `step` was committed with these values of the records.
  void step(std::int64_t step, std::span<const double> values);
  // The program has committed so many steps; the last ones may be shown.
  void progress(std::int64_t steps);
  void evaluation(std::int64_t steps, const Metrics& metrics);
  // Brings the lines so far to the file.
  void flush();
  // A line of its own.
  void note(const std::string& line);
  // Ends the line of the progress.
  void end();

 private:
  void write(const std::string& json);
  // `code` is that of an error, behind which the file takes no more lines, or 0.
  void check(int code);
  void show(std::int64_t steps);

  const TrainOptions& options_;
  const std::int64_t first_, last_;
  const Log log_;
  std::optional<LineFile> file_;
  const bool is_terminal_;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::chrono::steady_clock::time_point shown_at_{};
  std::int64_t shown_ = -1;  // at so many steps the progress was shown last
  bool is_line_open_ = false;
  double value_ = 0;  // value of the first record, in the last step
  bool has_value_ = false;
};

}  // namespace graphsink
