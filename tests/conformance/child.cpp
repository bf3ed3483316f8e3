#include "conformance/child.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <sstream>

extern char** environ;

namespace conformance {
namespace {

using Clock = std::chrono::steady_clock;

constexpr char kDevicePrefix[] = "# device: ";

// Everything the process writes until it closes its end; false when the time is up.
bool read_all(int descriptor, Clock::time_point end, std::string& text) {
  char buffer[4096];
  for (;;) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now()).count();
    pollfd waited{descriptor, POLLIN, 0};
    if (left <= 0 || poll(&waited, 1, static_cast<int>(left)) == 0) return false;
    const ssize_t count = read(descriptor, buffer, sizeof buffer);
    if (count <= 0) return true;
    text.append(buffer, static_cast<std::size_t>(count));
  }
}

// -1 when the process cannot be started. Only the child has the writing end, so that its end is the end of the text.
pid_t start(const std::string& program, const std::string& case_name, int& reading_end) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return -1;
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  std::string option = "--case", name = case_name, self = program;
  char* arguments[] = {self.data(), option.data(), name.data(), nullptr};
  pid_t child = -1;
  if (posix_spawn(&child, program.c_str(), &actions, nullptr, arguments, environ) != 0) child = -1;
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  reading_end = ends[0];
  return child;
}

std::string problem_of(int status, bool in_time) {
  if (!in_time) return "did not end in time";
  if (WIFSIGNALED(status)) return "ended by signal " + std::to_string(WTERMSIG(status));
  if (WEXITSTATUS(status) != 0) return "ended with code " + std::to_string(WEXITSTATUS(status));
  return "";
}

std::string device_of(const std::string& text) {
  const std::size_t begin = text.find(kDevicePrefix);
  if (begin == std::string::npos) return "";
  const std::size_t name = begin + sizeof kDevicePrefix - 1;
  return text.substr(name, text.find('\n', name) - name);
}

}  // namespace

Outcome run_in_child(const std::string& program, const std::string& case_name, std::chrono::milliseconds limit) {
  Outcome outcome;
  int reading_end = -1;
  const pid_t child = start(program, case_name, reading_end);
  std::string text;
  bool in_time = true;
  int status = 0;
  if (child > 0) {
    in_time = read_all(reading_end, Clock::now() + limit, text);
    if (!in_time) kill(child, SIGKILL);
    waitpid(child, &status, 0);
  }
  if (reading_end >= 0) close(reading_end);
  outcome.problem = child > 0 ? problem_of(status, in_time) : "did not start";
  outcome.device = device_of(text);
  std::istringstream lines(text);
  outcome.lines = read_golden(lines)[case_name];
  return outcome;
}

}  // namespace conformance
