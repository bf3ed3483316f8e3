// What it takes to refuse a hostile file.
#pragma once

#include <gtest/gtest.h>
#include <malloc.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstddef>
#include <functional>

#include "graphsink/error.h"

namespace graphsink::testing {

// The bytes by which a child process grows while `read` throws its Error. It is a failure of the test if it throws
// none. Meaningless under a sanitizer (kSanitized), whose own memory is counted, too.
inline std::size_t memory_of_refusal(const std::function<void()>& read) {
  const auto peak_kib = [] {
    rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_maxrss;
  };
  malloc_trim(0);  // what this process has freed would be used by the child without being counted
  int ends[2];
  EXPECT_EQ(pipe(ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    const long before = peak_kib();
    long used = -1;
    try {
      read();
    } catch (const Error&) {
      used = peak_kib() - before;
    }
    _exit(write(ends[1], &used, sizeof used) == sizeof used ? 0 : 1);
  }
  long used = -1;
  EXPECT_EQ(::read(ends[0], &used, sizeof used), static_cast<ssize_t>(sizeof used));
  EXPECT_GE(used, 0) << "it was not refused";
  close(ends[0]);
  close(ends[1]);
  EXPECT_EQ(waitpid(child, nullptr, 0), child);
  return static_cast<std::size_t>(used) * 1024;
}

}  // namespace graphsink::testing
