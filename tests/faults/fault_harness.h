// What the fault loop is made of: the log as text, a watchdog, what a failed release leaves behind, and the names of
// the CUDA functions that the product calls.
#pragma once

#include <signal.h>
#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "emulator.h"

namespace graphsink::testing {

// Everything logged while it lives, instead of on the terminal.
class LogText {
 public:
  LogText() {
    auto sink = std::make_shared<spdlog::sinks::ostream_sink_mt>(text_);
    spdlog::set_default_logger(std::make_shared<spdlog::logger>("", std::move(sink)));
  }
  ~LogText() { spdlog::set_default_logger(before_); }
  LogText(const LogText&) = delete;
  LogText& operator=(const LogText&) = delete;

  std::string take() {
    std::string text = text_.str();
    text_.str("");
    return text;
  }

 private:
  std::ostringstream text_;
  std::shared_ptr<spdlog::logger> before_ = spdlog::default_logger();
};

// Ends the process, saying which case it was in, if one lasts too long or crashes.
class Watchdog {
 public:
  explicit Watchdog(unsigned seconds) : seconds_(seconds) {
    for (int number : {SIGALRM, SIGABRT}) signal(number, report);
  }
  ~Watchdog() {
    alarm(0);
    for (int number : {SIGALRM, SIGABRT}) signal(number, SIG_DFL);
  }
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  void begin(const std::string& what) {
    std::snprintf(current, sizeof current, "%s", what.c_str());
    alarm(seconds_);
  }

 private:
  static void report(int number) {
    const char* why = number == SIGALRM ? "\nhangs: " : "\naborted: ";
    // Nothing else is allowed in a signal handler.
    [[maybe_unused]] auto written = write(STDERR_FILENO, why, std::strlen(why));
    written = write(STDERR_FILENO, current, std::strlen(current));
    written = write(STDERR_FILENO, "\n", 1);
    _exit(1);
  }
  static inline char current[256] = "";
  unsigned seconds_;
};

using FaultCounts = std::map<std::string, std::size_t>;

// Bounds for the objects that releases made to fail have left behind.
struct Leftover {
  emu::LiveObjects least, most;
};
// `is_final`: what could not be unmapped is not tried again.
inline Leftover expected_leftover(const FaultCounts& faults, bool is_final) {
  auto count = [&](const char* name) {
    auto found = faults.find(name);
    return found == faults.end() ? std::size_t{0} : found->second;
  };
  emu::LiveObjects live;
  live.streams = count("cudaStreamDestroy");
  live.events = count("cudaEventDestroy");
  live.graphs = count("cudaGraphDestroy");
  live.execs = count("cudaGraphExecDestroy");
  live.device_allocations = count("cudaFree");
  live.pinned_allocations = count("cudaFreeHost");
  live.blas_handles = count("cublasLtDestroy") + count("cublasLtMatmulDescDestroy") +
                      count("cublasLtMatrixLayoutDestroy") + count("cublasLtMatmulPreferenceDestroy");
  live.log_callbacks = count("cudaLogsUnregisterCallback");
  // A block is held by its handle and by its mapping; addresses stay reserved while anything is mapped there.
  std::size_t unmapped = count("cuMemUnmap"), released = count("cuMemRelease"), freed = count("cuMemAddressFree");
  Leftover leftover{live, live};
  leftover.least.physical_blocks = is_final ? std::max(unmapped, released) : released;
  leftover.most.physical_blocks = unmapped + released;
  leftover.most.device_allocations += live.graphs + live.execs;  // those that such a graph makes
  leftover.least.reservations = is_final && unmapped > 0 ? std::max(freed, std::size_t{1}) : freed;
  leftover.most.reservations = freed + unmapped;
  return leftover;
}

// Empty if `now` is `before` and what is left over; else what is not.
inline std::string leak(const emu::LiveObjects& before, const emu::LiveObjects& now, const Leftover& leftover) {
  std::ostringstream text;
  auto compare = [&](const char* what, std::size_t emu::LiveObjects::*field) {
    std::size_t more = now.*field - before.*field;
    if (more < leftover.least.*field || more > leftover.most.*field)
      text << " " << static_cast<std::ptrdiff_t>(more) << " " << what << " instead of " << leftover.least.*field;
  };
  compare("streams", &emu::LiveObjects::streams);
  compare("events", &emu::LiveObjects::events);
  compare("graphs", &emu::LiveObjects::graphs);
  compare("execs", &emu::LiveObjects::execs);
  compare("device allocations", &emu::LiveObjects::device_allocations);
  compare("pinned allocations", &emu::LiveObjects::pinned_allocations);
  compare("reservations", &emu::LiveObjects::reservations);
  compare("physical blocks", &emu::LiveObjects::physical_blocks);
  compare("cuBLASLt handles", &emu::LiveObjects::blas_handles);
  compare("callbacks of the error log", &emu::LiveObjects::log_callbacks);
  return text.str();
}

// What a command prints, line by line, without what stands before the last blank.
inline std::vector<std::string> last_words_of(const std::string& command) {
  std::vector<std::string> words;
  FILE* output = popen(command.c_str(), "r");
  if (!output) return words;
  for (char line[4096]; std::fgets(line, sizeof line, output);) {
    std::string word(line, std::strcspn(line, "\n"));
    words.push_back(word.erase(0, word.find_last_of(' ') + 1));
  }
  pclose(output);
  return words;
}

// The CUDA functions that static libraries call: their undefined symbols, and the driver's functions, which they get by
// name, hence among their strings. Without the look-ups of errors, which cannot fail.
inline std::set<std::string> called_functions(std::string_view libraries) {
  std::set<std::string> names;
  std::istringstream list{std::string(libraries)};
  for (std::string library; std::getline(list, library, ':');) {
    for (const std::string& name : last_words_of("nm -u '" + library + "' 2>/dev/null")) {
      const bool is_member = name.ends_with(':');  // the file of the archive that the next names belong to
      if (!is_member && (name.starts_with("cuda") || name.starts_with("cublas"))) names.insert(name);
    }
    std::string strings = "readelf -p .rodata.str1.1 -p .rodata.str1.8 -p .rodata '" + library + "' 2>/dev/null";
    for (const std::string& name : last_words_of(strings))
      if (name.starts_with("cuMem") && std::all_of(name.begin(), name.end(), [](char c) { return std::isalpha(c); }))
        names.insert(name);
  }
  for (const char* look_up :
       {"cudaGetLastError", "cudaPeekAtLastError", "cudaGetErrorName", "cudaGetErrorString", "cublasLtGetStatusName"})
    names.erase(look_up);
  return names;
}

}  // namespace graphsink::testing
