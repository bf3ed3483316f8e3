// Where a program and its device send messages that cannot be thrown.
#pragma once

#include <initializer_list>
#include <memory>
#include <string_view>

#include "graphsink/log.h"
#include "graphsink/version.h"

namespace graphsink {

// A handle: copies log to the same place and keep it alive. May be used by any thread.
// It is visible outside of the shared library, because graphsink_ranks, a library of its own, logs with it.
class GRAPHSINK_PUBLIC Log {
 public:
  Log() = default;  // logs to spdlog's default logger; messages begin with "graphsink: "
  // Logs to `function`, or to spdlog's default logger if it is empty.
  explicit Log(LogFunction function)
      : function_(function ? std::make_shared<const LogFunction>(std::move(function)) : nullptr) {}

  // The message is the concatenation of the parts.
  void warn(std::initializer_list<std::string_view> parts) const noexcept { write(LogLevel::warning, parts); }
  void error(std::initializer_list<std::string_view> parts) const noexcept { write(LogLevel::error, parts); }

 private:
  void write(LogLevel level, std::initializer_list<std::string_view> parts) const noexcept;

  std::shared_ptr<const LogFunction> function_;
};

}  // namespace graphsink
