// Where a program and its device send messages that cannot be thrown.
#pragma once

#include <initializer_list>
#include <memory>
#include <string_view>

#include "graphsink/log.h"

namespace graphsink {

// A handle: copies log to the same place, and keep it alive. Any thread.
class Log {
 public:
  Log() = default;  // to spdlog's default logger, behind "graphsink: "
  // To `function`, or as above if it is empty.
  explicit Log(LogFunction function)
      : function_(function ? std::make_shared<const LogFunction>(std::move(function)) : nullptr) {}

  // The message is the parts, one after the other.
  void warn(std::initializer_list<std::string_view> parts) const noexcept { write(LogLevel::warning, parts); }
  void error(std::initializer_list<std::string_view> parts) const noexcept { write(LogLevel::error, parts); }

 private:
  void write(LogLevel level, std::initializer_list<std::string_view> parts) const noexcept;

  std::shared_ptr<const LogFunction> function_;
};

}  // namespace graphsink
