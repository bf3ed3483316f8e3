#include "base/log.h"

#include <string>

#include <spdlog/spdlog.h>

#include "base/printable.h"

namespace graphsink {

void Log::write(LogLevel level, std::initializer_list<std::string_view> parts) const noexcept {
  try {  // destructors call this
    std::string message;
    for (std::string_view part : parts) message += part;
    message = printable(message);
    if (function_) {
      try {
        return (*function_)(level, message);
      } catch (...) {
      }
    }
    spdlog::log(level == LogLevel::error ? spdlog::level::err : spdlog::level::warn, "graphsink: {}", message);
  } catch (...) {  // no memory even for the message
  }
}

}  // namespace graphsink
