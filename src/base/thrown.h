// Exception from the body of an op, kept as text for the Error of its step.
#pragma once

#include <algorithm>
#include <cstddef>
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
    std::snprintf(what.problem + used, sizeof what.problem - used, "%s: %s", e.op().c_str(), e.problem().c_str());
    std::snprintf(what.remedy, sizeof what.remedy, "%s", e.remedy().c_str());
    if (e.code() == ErrorCode::device_lost) what.code = e.code();
  } catch (const std::exception& e) {
    std::snprintf(what.problem, sizeof what.problem, "%s", e.what());
  } catch (...) {
  }
  return what;
}

inline Error body_error(std::string op, const Where& where, const Thrown& what) {
  return Error(std::move(op), where, std::string("its body threw: ") + what.problem, what.remedy, what.code);
}

}  // namespace graphsink
