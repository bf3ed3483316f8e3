#include "capture/error_log.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <thread>

namespace graphsink {
namespace {

// "[time][thread][source][severity][function] text" becomes "function: text". (CUDA Programming Guide, Error Log
// Management, Output)
std::string without_prefix(std::string_view message) {
  std::string_view function;
  while (message.starts_with('[') && message.find(']') != message.npos) {
    function = message.substr(1, message.find(']') - 1);
    message.remove_prefix(message.find(']') + 1);
  }
  while (message.ends_with('\n') || message.ends_with('\0')) message.remove_suffix(1);
  message.remove_prefix(std::min(message.find_first_not_of(' '), message.size()));
  return function.empty() ? std::string(message) : std::string(function) + ": " + std::string(message);
}

}  // namespace

// CUDA calls it on every thread of the process. Only the one that made it writes.
struct ErrorLog::Listener {
  std::thread::id thread = std::this_thread::get_id();
  std::array<char, 1024> first{};  // longer messages are cut
  std::size_t length = 0;

  static void CUDART_CB hear(void* data, cudaLogLevel level, char* message, std::size_t length) noexcept {
    auto& listener = *static_cast<Listener*>(data);
    if (level != cudaLogLevelError || std::this_thread::get_id() != listener.thread || listener.length > 0) return;
    listener.length = std::min(length, listener.first.size());
    std::copy_n(message, listener.length, listener.first.begin());
  }
};

ErrorLog::ErrorLog() : listener_(std::make_unique<Listener>()) {
  if (cudaLogsRegisterCallback(Listener::hear, listener_.get(), &handle_) == cudaSuccess) return;
  handle_ = nullptr;
  (void)cudaGetLastError();
}

ErrorLog::~ErrorLog() {
  if (!handle_ || cudaLogsUnregisterCallback(handle_) == cudaSuccess) return;
  (void)cudaGetLastError();
  (void)listener_.release();  // CUDA may still call it
}

std::string ErrorLog::first() const { return without_prefix({listener_->first.data(), listener_->length}); }

}  // namespace graphsink
