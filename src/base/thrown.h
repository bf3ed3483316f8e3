// Exception from the body of an op, kept as text for the Error of its step.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <string>
#include <string_view>
#include <utility>

#include "graphsink/error.h"

namespace graphsink {

// Texts in arrays, which cut longer ones. As plain data they can be stored by a host call and read by another thread,
// and need no allocation, which could fail, too.
struct Thrown {
  char problem[480] = "unknown exception";
  char remedy[160] = "mend the cause";  // that of the Error, if it was one
  // device_lost if the Error had it, because another step would fail, too.
  ErrorCode code = ErrorCode::step_failed;
  // If it was an Error: where in `problem` its op begins, and where its own problem does. The line is 0 if it has none.
  std::size_t op_begin = 0, problem_begin = 0;
  std::uint32_t line = 0;
  bool is_own = false;  // an Error without a line, of the op whose body threw it

  // Whether it is an Error that an op with this name and line threw about itself.
  bool is_of(std::string_view op, const Where& where) const {
    constexpr std::string_view kColon = ": ";
    return problem_begin == op_begin + op.size() + kColon.size() && (line == 0 || line == where.line()) &&
           std::string_view(problem).substr(op_begin, op.size()) == op;
  }
};

// For a catch block.
inline Thrown thrown() noexcept {
  Thrown what;
  try {
    throw;
  } catch (const Error& e) {
    const char* file = e.where().file_name();
    if (const char* slash = std::strrchr(file, '/')) file = slash + 1;
    std::size_t used = 0;
    if (e.where().line() > 0) {
      const std::string_view scope = e.where().scope();
      const int length =
          std::snprintf(what.problem, sizeof what.problem, "%s:%u%s%.*s: ", file, unsigned{e.where().line()},
                        scope.empty() ? "" : " in ", static_cast<int>(scope.size()), scope.empty() ? "" : scope.data());
      used = std::min(static_cast<std::size_t>(std::max(length, 0)), sizeof what.problem - 1);
    }
    what.op_begin = used;
    what.problem_begin = std::min(used + e.op().size() + 2, sizeof what.problem - 1);  // behind ": "
    what.line = e.where().line();
    std::snprintf(what.problem + used, sizeof what.problem - used, "%s: %s", e.op().c_str(), e.problem().c_str());
    std::snprintf(what.remedy, sizeof what.remedy, "%s", e.remedy().c_str());
    if (e.code() == ErrorCode::device_lost) what.code = e.code();
  } catch (const std::exception& e) {
    std::snprintf(what.problem, sizeof what.problem, "%s", e.what());
  } catch (...) {
  }
  return what;
}

// The Error of the op whose body threw. An Error that the op has thrown about itself stays as it is.
inline Error body_error(std::string op, const Where& where, const Thrown& what) {
  std::string problem = what.is_own || what.is_of(op, where) ? what.problem + what.problem_begin
                                                             : std::string("its body threw: ") + what.problem;
  return Error(std::move(op), where, std::move(problem), what.remedy, what.code);
}

}  // namespace graphsink
