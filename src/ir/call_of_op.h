// Calls of functions of an OpDef at times of the library's choice.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "base/thrown.h"
#include "graphsink/error.h"

namespace graphsink {

// Returns what `call` does, which calls the function of the op that is named, as in "OpDef::flops". Whatever it throws
// becomes an Error of the op at `where`.
template <class F>
auto call_of_op(std::string_view op, const Where& where, std::string_view name, F&& call) {
  try {
    return std::forward<F>(call)();
  } catch (...) {
    const Thrown what = thrown();
    throw Error(std::string(op), where, "its " + std::string(name) + " threw: " + what.problem, what.remedy,
                ErrorCode::misuse);
  }
}

}  // namespace graphsink
