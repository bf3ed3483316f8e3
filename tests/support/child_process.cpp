#include "child_process.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

extern char** environ;

namespace graphsink::testing {
namespace {

using Clock = std::chrono::steady_clock;

// Reads what the process writes until it closes its end of the pipe. Returns false if the time runs out.
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

// Returns -1 if the process cannot be started. Only the child keeps the writing end, so the text ends when the child
// ends.
pid_t start(std::vector<std::string>& command, int& reading_end) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return -1;
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  std::vector<char*> arguments;
  for (std::string& argument : command) arguments.push_back(argument.data());
  arguments.push_back(nullptr);
  pid_t child = -1;
  if (posix_spawn(&child, command[0].c_str(), &actions, nullptr, arguments.data(), environ) != 0) child = -1;
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

}  // namespace

ChildResult run_child(std::vector<std::string> command, std::chrono::milliseconds limit) {
  ChildResult result;
  int reading_end = -1;
  const pid_t child = start(command, reading_end);
  if (child < 0) {
    result.problem = "did not start";
  } else {
    int status = 0;
    bool in_time = read_all(reading_end, Clock::now() + limit, result.output);
    if (!in_time) kill(child, SIGKILL);
    waitpid(child, &status, 0);
    result.problem = problem_of(status, in_time);
  }
  if (reading_end >= 0) close(reading_end);
  return result;
}

}  // namespace graphsink::testing
