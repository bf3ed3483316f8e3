// What the body of an op threw, as it goes into the Error of its step.
#pragma once

#include <exception>
#include <string>

#include "graphsink/error.h"

namespace graphsink {

struct Thrown {
  std::string problem = "unknown exception";
  std::string remedy = "mend the cause";
};

// For a catch block. Without memory for a text it is left out.
inline Thrown thrown() noexcept {
  Thrown result;
  try {
    throw;
  } catch (const Error& e) {
    std::string place = to_string(e.where());
    result = {(place.empty() ? "" : place + ": ") + e.op() + ": " + e.problem(), e.remedy()};
  } catch (const std::exception& e) {
    result.problem = e.what();
  } catch (...) {
  }
  return result;
}

}  // namespace graphsink
