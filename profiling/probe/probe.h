// The common parts of the probes. A probe asks a GPU questions, each in a process of its own with a time-out, because
// an answer may be a crash or a call that never returns. It prints lines "question  key  value"; the last line of each
// question is ENDED.
#pragma once

#include <cuda_runtime.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

extern char** environ;

namespace probe {

using Clock = std::chrono::steady_clock;

inline const char* question = "?";

inline void say(const char* key, const char* format, ...) {
  va_list list;
  va_start(list, format);
  std::printf("%-22s %-44s ", question, key);
  std::vprintf(format, list);
  std::printf("\n");
  std::fflush(stdout);
  va_end(list);
}
inline void code(const char* key, cudaError_t c) { say(key, "%d %s", int(c), cudaGetErrorName(c)); }

// Ends the question where a call fails that it is not about.
inline void need(cudaError_t c, const char* what) {
  if (c == cudaSuccess) return;
  say("STOPPED at", "%s: %d %s", what, int(c), cudaGetErrorName(c));
  _exit(3);
}
#define NEED(call) ::probe::need(call, #call)

template <class F>
double us_of(const F& f, int repeats = 1) {
  auto start = Clock::now();
  for (int i = 0; i < repeats; ++i) f();
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count() / repeats;
}
template <class F>
double median_us(const F& f, int samples = 51) {
  std::vector<double> all;
  for (int i = 0; i < samples; ++i) all.push_back(us_of(f));
  std::nth_element(all.begin(), all.begin() + samples / 2, all.end());
  return all[samples / 2];
}

inline cudaStream_t stream() {
  cudaStream_t s;
  NEED(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
  return s;
}
// A number in device memory.
inline int* number(int value) {
  int* x;
  NEED(cudaMalloc(&x, sizeof *x));
  NEED(cudaMemcpy(x, &value, sizeof value, cudaMemcpyDefault));
  return x;
}
inline int get(const int* x) {
  int value = -1;
  NEED(cudaMemcpy(&value, x, sizeof value, cudaMemcpyDefault));
  return value;
}
inline const char* status_of(cudaStream_t s) {
  cudaStreamCaptureStatus status;
  if (cudaStreamIsCapturing(s, &status) != cudaSuccess) return "error";
  if (status == cudaStreamCaptureStatusNone) return "none";
  return status == cudaStreamCaptureStatusActive ? "active" : "invalidated";
}
inline cudaGraphExec_t instantiate(cudaGraph_t graph) {
  cudaGraphExec_t exec = nullptr;
  NEED(cudaGraphInstantiate(&exec, graph, 0));
  return exec;
}

// A function of the driver, whose library is not linked; null where it does not have it.
template <class F>
F driver_function(const char* name, unsigned version) {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found;
  if (cudaGetDriverEntryPointByVersion(name, &function, version, cudaEnableDefault, &found) != cudaSuccess)
    return nullptr;
  return found == cudaDriverEntryPointSuccess ? reinterpret_cast<F>(function) : nullptr;
}

struct Question {
  const char* name;
  void (*ask)();
  int seconds;
};

// Runs one question in a child process, and says how it ended.
inline bool ask_in_child(const Question& q, char* program) {
  char* arguments[] = {program, const_cast<char*>(q.name), nullptr};
  pid_t child = -1;
  auto start = Clock::now();
  std::fflush(stdout);
  if (posix_spawn(&child, "/proc/self/exe", nullptr, nullptr, arguments, environ) != 0) return false;
  int status = 0;
  bool ended = false;
  while (!(ended = waitpid(child, &status, WNOHANG) == child) && Clock::now() - start < std::chrono::seconds(q.seconds))
    usleep(5000);
  if (!ended) {
    kill(child, SIGKILL);
    waitpid(child, &status, 0);
  }
  const char* how = "well";
  if (!ended) {
    how = "by its time-out";
  } else if (WIFSIGNALED(status)) {
    how = "BY A SIGNAL";
  } else if (WEXITSTATUS(status) != 0) {
    how = "early";
  }
  double seconds = std::chrono::duration<double>(Clock::now() - start).count();
  std::printf("%-22s %-44s %s, %.1f s\n", q.name, "ENDED", how, seconds);
  return true;
}

// The main function of a probe. Without an argument it asks all, with one the question of this name, in this process.
inline int ask_all(int argc, char** argv, const std::vector<Question>& questions) {
  for (const Question& q : questions) {
    if (argc < 2) {
      if (!ask_in_child(q, argv[0])) return 2;
    } else if (std::strcmp(q.name, argv[1]) == 0) {
      question = q.name;
      q.ask();
      std::fflush(stdout);
      _exit(0);  // without tidying up: a lost device must not hang the end
    }
  }
  return argc < 2 ? 0 : 2;
}

}  // namespace probe
