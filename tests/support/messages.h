// Helpers for the messages of errors that a call throws.
#pragma once

#include <string>
#include <string_view>

#include "graphsink/error.h"

namespace graphsink::testing {

template <class F>
std::string message_of(F&& action) {
  try {
    action();
  } catch (const Error& e) {
    return e.what();
  }
  return "nothing was thrown";
}

inline bool contains(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

}  // namespace graphsink::testing
