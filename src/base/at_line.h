// The user's line for Errors of code that does not know it.
#pragma once

#include <utility>

#include "graphsink/error.h"

namespace graphsink {

// Returns call(). An Error without a place gets `where`, the line of the user's call; its type is then Error.
template <class F>
decltype(auto) at_line(const Where& where, F&& call) {
  try {
    return std::forward<F>(call)();
  } catch (const Error& e) {
    const bool has_place = e.where().line() > 0 || *e.where().file_name() != '\0';
    if (has_place) throw;
    throw Error(e.op(), where, e.problem(), e.remedy(), e.code());
  }
}

}  // namespace graphsink
