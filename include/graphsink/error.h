// Error: the one exception type of the library. Every message names the op (or file), the user's line, what was
// expected and seen, and what to do about it.
#pragma once

#include <source_location>
#include <stdexcept>
#include <string>

namespace graphsink {

// A place in the user's source. file_name() points to static storage, so copies never dangle.
using Where = std::source_location;

// "train.cpp:12" (the last path component only), or "" for a default-constructed Where.
std::string to_string(const Where& where);

// what() reads "train.cpp:12: matmul: inner dimensions differ: [32, 784] x [700, 256]; remedy: ...".
class Error : public std::runtime_error {
 public:
  Error(std::string op, Where where, std::string problem, std::string remedy);

  // The op, the file or the call that refused.
  const std::string& op() const noexcept { return op_; }
  // The user's line, not ours; line() is 0 where no user line is known.
  const Where& where() const noexcept { return where_; }
  // What was expected and what was seen, with shapes.
  const std::string& problem() const noexcept { return problem_; }
  // What the user can do about it.
  const std::string& remedy() const noexcept { return remedy_; }

 private:
  std::string op_;
  Where where_;
  std::string problem_;
  std::string remedy_;
};

}  // namespace graphsink
