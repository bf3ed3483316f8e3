#include "base/log.h"

#include <atomic>
#include <cstdio>
#include <memory>
#include <string>

#include <spdlog/spdlog.h>

#include "base/printable.h"

namespace graphsink {
namespace {

std::atomic<bool> spdlog_is_over = false;

// Static objects may end behind spdlog's: then nothing of it may be used. Objects of this kind end before it does.
class UseOfSpdlog {
 public:
  UseOfSpdlog() { (void)spdlog::default_logger_raw(); }  // makes what spdlog's end takes down
  ~UseOfSpdlog() { spdlog_is_over = true; }
};

// The logger of the application's choice. It may have left none: spdlog::shutdown(), drop_all() and
// set_default_logger(nullptr) do so.
std::shared_ptr<spdlog::logger> default_logger() {
  if (spdlog_is_over) return nullptr;
  static const UseOfSpdlog use;
  return spdlog::default_logger();
}

void write_by_default(LogLevel level, const std::string& message) {
  if (const auto logger = default_logger()) {
    logger->log(level == LogLevel::error ? spdlog::level::err : spdlog::level::warn, "graphsink: {}", message);
  } else {
    std::fprintf(stderr, "graphsink: %s\n", message.c_str());
  }
}

}  // namespace

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
    write_by_default(level, message);
  } catch (...) {  // no memory even for the message
  }
}

}  // namespace graphsink
