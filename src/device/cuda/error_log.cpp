#include "device/cuda/error_log.h"

#include <algorithm>
#include <charconv>
#include <thread>
#include <utility>

#include "device/cuda/check.h"

namespace graphsink {
namespace {

constexpr std::size_t kMostMessages = 64;

// "cuMemAlloc_v2" becomes "cuMemAlloc": the suffix names a version of the function's interface.
std::string without_version(std::string_view call) {
  const std::size_t suffix = call.rfind("_v");
  const bool is_version = suffix != call.npos && suffix + 2 < call.size() &&
                          std::all_of(call.begin() + static_cast<std::ptrdiff_t>(suffix) + 2, call.end(),
                                      [](char c) { return c >= '0' && c <= '9'; });
  return std::string(is_version ? call.substr(0, suffix) : call);
}

// Reads "Returning 900 (CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED) from cuMemAlloc_v2".
bool read_return(std::string_view message, LoggedFailure& failure) {
  constexpr std::string_view kBegin = "Returning ", kFrom = ") from ";
  if (!message.starts_with(kBegin)) return false;
  const char* const end = message.data() + message.size();
  const auto [rest, error] = std::from_chars(message.data() + kBegin.size(), end, failure.number);
  const std::string_view after(rest, static_cast<std::size_t>(end - rest));
  const std::size_t from = after.find(kFrom);
  if (error != std::errc() || !after.starts_with(" (") || from == after.npos) return false;
  failure.code = after.substr(2, from - 2);
  failure.call = without_version(after.substr(from + kFrom.size()));
  return true;
}

bool is_capture_error(int number) {
  return number >= cudaErrorStreamCaptureUnsupported && number <= cudaErrorStreamCaptureWrongThread &&
         number != cudaErrorStreamCaptureInvalidated;
}

}  // namespace

std::string LoggedFailure::to_string() const {
  std::string all = call;
  if (!code.empty()) all += (all.empty() ? "" : " returned ") + code;
  if (text.empty()) return all;
  return code.empty() ? (all.empty() ? text : all + ": " + text) : all + " (" + text + ")";
}

std::vector<LoggedFailure> read_error_log(const std::vector<std::string>& messages) {
  std::vector<LoggedFailure> failures;
  std::string explanation;  // explanation of the failure that the next message names
  auto add_explanation = [&] {
    if (!explanation.empty()) failures.push_back({"", "", 0, std::exchange(explanation, {})});
  };
  for (std::string_view message : messages) {
    std::vector<std::string_view> fields;
    while (message.starts_with('[') && message.find(']') != message.npos) {
      fields.push_back(message.substr(1, message.find(']') - 1));
      message.remove_prefix(message.find(']') + 1);
    }
    while (message.ends_with('\n') || message.ends_with('\0')) message.remove_suffix(1);
    message.remove_prefix(std::min(message.find_first_not_of(' '), message.size()));
    LoggedFailure failure;
    if (read_return(message, failure)) {
      failure.text = std::exchange(explanation, {});
      if (failure.text.empty()) failure.text = cudaGetErrorString(static_cast<cudaError_t>(failure.number));
      failures.push_back(std::move(failure));
    } else if (fields.size() >= 5) {
      add_explanation();
      failures.push_back({without_version(fields[4]), "", 0, std::string(message)});
    } else {
      add_explanation();
      explanation = message;
    }
  }
  add_explanation();
  return failures;
}

const LoggedFailure* find_cause(const std::vector<LoggedFailure>& failures, cudaError_t last) {
  auto first = [&](auto&& matches) {
    auto found = std::find_if(failures.begin(), failures.end(), matches);
    return found == failures.end() ? nullptr : &*found;
  };
  if (failures.empty()) return nullptr;
  if (auto* found = first([](const LoggedFailure& f) { return is_capture_error(f.number); })) return found;
  auto* broken = first([](const LoggedFailure& f) { return f.number == cudaErrorStreamCaptureInvalidated; });
  if (broken) return broken == failures.data() ? nullptr : broken - 1;
  if (auto* found = first([&](const LoggedFailure& f) { return last != cudaSuccess && f.number == last; }))
    return found;
  return failures.data();
}

// CUDA calls it on every thread of the process. Only the thread that made the listener writes to it.
struct ErrorLog::Listener {
  std::thread::id thread = std::this_thread::get_id();
  std::vector<std::string> messages;  // the first kMostMessages

  static void CUDART_CB hear(void* data, cudaLogLevel level, char* message, std::size_t length) noexcept {
    auto& listener = *static_cast<Listener*>(data);
    if (level != cudaLogLevelError || std::this_thread::get_id() != listener.thread) return;
    if (listener.messages.size() == kMostMessages) return;
    try {
      listener.messages.emplace_back(message, length);
    } catch (...) {  // without memory for the text, the error code alone is reported
      return;
    }
  }
};

ErrorLog::ErrorLog(const Log& log) : log_(log), listener_(std::make_unique<Listener>()) {
  const cudaError_t code = cudaLogsRegisterCallback(Listener::hear, listener_.get(), &handle_);
  if (code == cudaSuccess) return;
  handle_ = nullptr;
  log_failure(log_, "cudaLogsRegisterCallback", cudaGetErrorName(code));
}

ErrorLog::~ErrorLog() {
  const cudaError_t code = handle_ ? cudaLogsUnregisterCallback(handle_) : cudaSuccess;
  if (code == cudaSuccess) return;
  log_failure(log_, "cudaLogsUnregisterCallback", cudaGetErrorName(code));
  (void)listener_.release();  // CUDA may still call it
}

bool ErrorLog::has(cudaError_t code) const {
  const std::vector<LoggedFailure> failures = read_error_log(listener_->messages);
  return std::any_of(failures.begin(), failures.end(), [&](const LoggedFailure& f) { return f.number == code; });
}

std::string ErrorLog::cause(cudaError_t last) const {
  const std::vector<LoggedFailure> failures = read_error_log(listener_->messages);
  const LoggedFailure* found = find_cause(failures, last);
  return found ? found->to_string() : "";
}

}  // namespace graphsink
