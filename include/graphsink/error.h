// Error: the one exception type of the library. Every message names the op (or file), the user's line, what was
// expected and seen, and what to do about it.
#pragma once

#include <cstdint>
#include <source_location>
#include <stdexcept>
#include <string>
#include <string_view>

#include "graphsink/version.h"

// All names of the library. Its pages write gs: `namespace gs = graphsink;`.
namespace GRAPHSINK_PUBLIC graphsink {

// A place in the user's source, and the scope that it belongs to (scope.h). A function of this library that may refuse
// has a last parameter `Where where = Where::current()`, which is the line that calls it.
class Where {
 public:
  constexpr Where() = default;  // no place
  // For code that is called from another language; in the scope of the calling thread. `file` is not copied: it must
  // outlive every Where and every Error.
  Where(const char* file, std::uint32_t line);
  // For the library's own layers: a place that was written to a file. The texts must live until the process ends.
  Where(const char* file, std::uint32_t line, const std::string* scope) noexcept
      : file_(file), line_(line), scope_(scope) {}
  // The line of the call, also where this is the default value of a parameter.
  static Where current(std::source_location here = std::source_location::current()) {
    return {here.file_name(), here.line()};
  }

  constexpr const char* file_name() const noexcept { return file_; }  // as the compiler has it; "" for no place
  constexpr std::uint32_t line() const noexcept { return line_; }     // from 1; 0 where no line is known
  // "encoder/layer3"; empty outside of scopes. Valid until the process ends.
  std::string_view scope() const noexcept { return scope_ ? std::string_view(*scope_) : std::string_view(); }

 private:
  const char* file_ = "";
  std::uint32_t line_ = 0;
  const std::string* scope_ = nullptr;  // null outside of scopes
};

// "train.cpp:12" (the last path component only), or "" for a default-constructed Where.
std::string line_of(const Where& where);
// The same and the scope, if there is one: "train.cpp:12 in encoder/layer3".
std::string to_string(const Where& where);

// Kind of failure that an Error reports, for programs that go on in different ways.
enum class ErrorCode : std::uint8_t {
  misuse,         // a call, an op or its operands are wrong: the program has to be changed
  unavailable,    // the machine or the build lacks what was asked for: a device, a driver, a library, threads
  out_of_memory,  // memory of a device or of the host does not suffice: smaller sizes may fit
  device_lost,    // nothing more can run on the device in this process: restart it from a checkpoint
  step_failed,    // a step committed nothing, because of its numbers or because the body of an op threw
  io,             // a file cannot be read or written, or holds something else than was expected
  stopped,        // the condition of a stop_when() held: that step was committed, and the run ended with it
};
// "out_of_memory".
std::string_view to_string(ErrorCode code);

// what() reads "train.cpp:12: matmul: inner dimensions differ: [32, 784] x [700, 256]; remedy: ...". It is one line:
// control characters, and bytes that are not UTF-8, are escaped in all texts, as "\n" and "\x1b".
class Error : public std::runtime_error {
 public:
  // For ops of your own, too. The texts are those that the functions below return, escaped as in what().
  Error(std::string op, Where where, std::string problem, std::string remedy, ErrorCode code = ErrorCode::misuse);

  // The op, the file or the call that refused.
  const std::string& op() const noexcept { return op_; }
  // The user's line, not ours; line() is 0 where no user line is known.
  const Where& where() const noexcept { return where_; }
  // Description of the problem: what was expected and what was seen, with shapes.
  const std::string& problem() const noexcept { return problem_; }
  // Advice: what the user can do about the problem.
  const std::string& remedy() const noexcept { return remedy_; }
  // Kind of failure, to act on.
  ErrorCode code() const noexcept { return code_; }

 private:
  std::string op_;
  Where where_;
  std::string problem_;
  std::string remedy_;
  ErrorCode code_;
};

}  // namespace graphsink
