// Saver: the files from which a training goes on.
#pragma once

#include <atomic>
#include <exception>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/log.h"
#include "base/thread.h"
#include "graphsink/checkpoint.h"
#include "graphsink/train.h"
#include "train/folder_lock.h"

namespace graphsink {

// The contents of a file beside the Variables: a training that goes on needs all of it.
struct Progressed {
  std::int64_t steps = 0;
  LoaderPosition position{};
  Metrics evaluation{};                // at this step; empty: there was none
  std::optional<double> best{};        // best value of Patience::metric
  std::int64_t evaluations_since = 0;  // that were no better
  bool is_due = false;                 // an action or evaluation at this step has not been done
};

// In the background a second program on the same Variables copies them, as its outputs: the device does that behind the
// launches in front, and the next launch waits for it there. Then a thread reads the copies and writes the file. It
// uses that program while it writes, and the training's thread at all other times.
class Saver {
 public:
  // `order` of the loader. Makes the folder, if it is to write, and keeps it locked. Throws Error if it
  // cannot be written to, if another Saver writes there, and for Variables of one name.
  Saver(Program& program, const SaveOptions& options, SampleOrder order, const LogFunction& log, const Where& where);
  ~Saver();  // waits for the thread
  Saver(const Saver&) = delete;
  Saver& operator=(const Saver&) = delete;

  // Restores the program from the newest file that can be read, and returns what belongs to it. Nothing if there is no
  // file. Throws Error if a file does not fit the program or the loader.
  std::optional<Progressed> resume();

  // These do nothing if SaveOptions::writes is false. All steps are over. Copies their state, which the thread writes
  // once launched() was called, or writes it now.
  void save(const Progressed& progressed);
  // The next launch was given to the device, which copies the Variables in front of it.
  void launched();
  // The training ends in this state: waits until its file is there, or writes it now. Throws the Error of that.
  void finish(const Progressed& progressed);

  // The path of the last file that is there; empty: none.
  std::filesystem::path newest() const;
  std::int64_t saves() const { return saves_; }
  std::int64_t skipped() const { return skipped_; }

 private:
  struct File {
    std::filesystem::path path;
    std::int64_t steps = 0;
    std::optional<double> best{};  // its value of SaveOptions::best
    bool is_evaluated = false, is_due = false;
  };
  // A second program, whose outputs are the Variables.
  struct Copies {
    std::vector<Variable> variables;
    std::vector<Value> values;
    std::optional<Program> program;
  };

  std::filesystem::path path_of(std::int64_t steps) const;
  // Logs that the file was saved before another batch than the loader gives there.
  void compare_samples(const Checkpoint& checkpoint, const LoaderPosition& position);
  std::map<std::string, std::string, std::less<>> metadata_of(const Progressed& progressed) const;
  void make_folder();
  void list_files();
  bool is_better(double a, double b) const;
  bool is_among_best(double value);                   // one that stays; notes it
  bool copy_on_device(const Progressed& progressed);  // false: it cannot
  void write_copies();                                // on the thread
  void write(Checkpoint checkpoint, const Progressed& progressed);
  void remove_others();
  void join();  // the thread, and logs what it could not write

  Program& program_;
  const SaveOptions options_;
  const SampleOrder order_;
  const LogFunction log_function_;
  const Log log_;
  const Where where_;
  std::optional<FolderLock> lock_;  // if it writes
  Copies copies_;
  bool copies_in_background_;
  std::vector<double> best_;          // values of SaveOptions::best that were seen, the best first
  std::optional<Progressed> copied_;  // state that copies_ hold, and no thread has begun to write

  // The thread uses these while it writes.
  Progressed writing_;
  std::vector<File> files_;   // by their steps
  std::exception_ptr error_;  // why the last file could not be written
  std::int64_t saves_ = 0;

  std::int64_t skipped_ = 0;
  std::atomic<bool> is_written_ = true;
  Thread thread_;
};

}  // namespace graphsink
