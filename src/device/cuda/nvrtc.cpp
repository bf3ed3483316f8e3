#include "device/cuda/nvrtc.h"

#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>

#include "device/cuda/cuda_library.h"

#if __has_include(<nvrtc.h>)

#include <nvrtc.h>

namespace graphsink {

// Functions of nvrtc.h.
struct Nvrtc::Functions {
  decltype(&nvrtcVersion) version = nullptr;
  decltype(&nvrtcGetErrorString) error_string = nullptr;
  decltype(&nvrtcGetNumSupportedArchs) supported_count = nullptr;
  decltype(&nvrtcGetSupportedArchs) supported = nullptr;
  decltype(&nvrtcCreateProgram) create = nullptr;
  decltype(&nvrtcDestroyProgram) destroy = nullptr;
  decltype(&nvrtcCompileProgram) compile = nullptr;
  decltype(&nvrtcGetProgramLogSize) log_size = nullptr;
  decltype(&nvrtcGetProgramLog) log = nullptr;
  decltype(&nvrtcGetCUBINSize) code_size = nullptr;
  decltype(&nvrtcGetCUBIN) code = nullptr;

  std::string find(const std::string& library);  // returns why it cannot, or ""
  std::string failed(const char* call, nvrtcResult result) const;
  std::string compile_program(nvrtcProgram program, const std::vector<std::string>& options,
                              std::string& machine_code) const;
};

Nvrtc Nvrtc::find() {
  const char* named = std::getenv("GRAPHSINK_NVRTC");
  if (!named) return Nvrtc(kDefaultLibrary);
  if (*named != '\0') return Nvrtc(named);
  Nvrtc none;
  none.obstacle_ = "the environment variable GRAPHSINK_NVRTC is empty";
  return none;
}

Nvrtc::Nvrtc(const std::string& library) {
  auto functions = std::make_shared<Functions>();
  obstacle_ = functions->find(library);
  call_ = functions;
  static_assert(CUDART_VERSION / 1000 == 13, "the number in kDefaultLibrary");
  if (!obstacle_.empty()) return;
  int major = 0, minor = 0;
  if (const nvrtcResult code = call_->version(&major, &minor); code != NVRTC_SUCCESS) {
    obstacle_ = call_->failed("nvrtcVersion", code);
    return;
  }
  version_ = "NVRTC " + std::to_string(major) + "." + std::to_string(minor);
  // Another version may compile exp() to other instructions than the compiler of this library.
  constexpr int kMajor = CUDART_VERSION / 1000, kMinor = CUDART_VERSION % 1000 / 10;
  if (major != kMajor || minor != kMinor) {
    obstacle_ = version_ + " was found, and only " + std::to_string(kMajor) + "." + std::to_string(kMinor) +
                ", with which this library was built, gives the same bits";
  }
}

std::string Nvrtc::Functions::find(const std::string& name) {
  std::string missing;
  void* library = name.empty() ? nullptr : open_cuda_library(name, missing);
  if (!name.empty() && !library) return missing;
  auto set = [&]<class F>(F& function, const char* symbol, void* linked) {
    function = reinterpret_cast<F>(library ? dlsym(library, symbol) : linked);
    if (!function) missing = name + " has no function " + symbol;
  };
#ifdef GRAPHSINK_EMULATED
#define GRAPHSINK_NVRTC_FUNCTION(member, name) set(member, #name, reinterpret_cast<void*>(&name))
#else
#define GRAPHSINK_NVRTC_FUNCTION(member, name) set(member, #name, nullptr)
#endif
  GRAPHSINK_NVRTC_FUNCTION(version, nvrtcVersion);
  GRAPHSINK_NVRTC_FUNCTION(error_string, nvrtcGetErrorString);
  GRAPHSINK_NVRTC_FUNCTION(supported_count, nvrtcGetNumSupportedArchs);
  GRAPHSINK_NVRTC_FUNCTION(supported, nvrtcGetSupportedArchs);
  GRAPHSINK_NVRTC_FUNCTION(create, nvrtcCreateProgram);
  GRAPHSINK_NVRTC_FUNCTION(destroy, nvrtcDestroyProgram);
  GRAPHSINK_NVRTC_FUNCTION(compile, nvrtcCompileProgram);
  GRAPHSINK_NVRTC_FUNCTION(log_size, nvrtcGetProgramLogSize);
  GRAPHSINK_NVRTC_FUNCTION(log, nvrtcGetProgramLog);
  GRAPHSINK_NVRTC_FUNCTION(code_size, nvrtcGetCUBINSize);
  GRAPHSINK_NVRTC_FUNCTION(code, nvrtcGetCUBIN);
#undef GRAPHSINK_NVRTC_FUNCTION
  return missing;
}

std::string Nvrtc::Functions::failed(const char* call, nvrtcResult result) const {
  return std::string(call) + " returned " + error_string(result);
}

std::string Nvrtc::obstacle(int sm) const {
  if (!obstacle_.empty()) return obstacle_;
  int count = 0;
  if (const nvrtcResult code = call_->supported_count(&count); code != NVRTC_SUCCESS)
    return call_->failed("nvrtcGetNumSupportedArchs", code);
  std::vector<int> supported(static_cast<std::size_t>(count));
  if (const nvrtcResult code = call_->supported(supported.data()); code != NVRTC_SUCCESS)
    return call_->failed("nvrtcGetSupportedArchs", code);
  if (std::find(supported.begin(), supported.end(), sm) != supported.end()) return "";
  return version_ + " does not compile for compute capability " + std::to_string(sm / 10) + "." +
         std::to_string(sm % 10);
}

std::string Nvrtc::Functions::compile_program(nvrtcProgram program, const std::vector<std::string>& options,
                                              std::string& machine_code) const {
  std::vector<const char*> texts;
  for (const std::string& option : options) texts.push_back(option.c_str());
  if (const nvrtcResult result = compile(program, static_cast<int>(texts.size()), texts.data());
      result != NVRTC_SUCCESS) {
    std::size_t bytes = 0;
    std::string messages;
    if (log_size(program, &bytes) == NVRTC_SUCCESS && bytes > 1) {
      messages.resize(bytes);
      if (log(program, messages.data()) != NVRTC_SUCCESS) messages.clear();
      messages.resize(messages.find_last_not_of(std::string("\n\0", 2)) + 1);  // with the 0 at its end
    }
    return failed("nvrtcCompileProgram", result) + (messages.empty() ? "" : ": " + messages);
  }
  std::size_t bytes = 0;
  if (const nvrtcResult result = code_size(program, &bytes); result != NVRTC_SUCCESS)
    return failed("nvrtcGetCUBINSize", result);
  machine_code.resize(bytes);
  if (const nvrtcResult result = code(program, machine_code.data()); result != NVRTC_SUCCESS)
    return failed("nvrtcGetCUBIN", result);
  return "";
}

Nvrtc::Compiled Nvrtc::compile(const std::string& text, const char* file_name, std::span<const EmbeddedText> headers,
                               const std::vector<std::string>& options) const {
  std::vector<const char*> names, texts;
  for (const EmbeddedText& header : headers) {
    names.push_back(header.name);
    texts.push_back(header.text);
  }
  nvrtcProgram program = nullptr;
  if (const nvrtcResult code = call_->create(&program, text.c_str(), file_name, static_cast<int>(headers.size()),
                                             texts.data(), names.data());
      code != NVRTC_SUCCESS)
    return {"", call_->failed("nvrtcCreateProgram", code)};
  Compiled compiled;
  compiled.problem = call_->compile_program(program, options, compiled.code);
  call_->destroy(&program);  // fails only for what is no program
  return compiled;
}

}  // namespace graphsink

#else

namespace graphsink {

struct Nvrtc::Functions {};

Nvrtc Nvrtc::find() { return Nvrtc(""); }
Nvrtc::Nvrtc(const std::string&) : obstacle_("the library was built without nvrtc.h") {}
std::string Nvrtc::obstacle(int) const { return obstacle_; }
Nvrtc::Compiled Nvrtc::compile(const std::string&, const char*, std::span<const EmbeddedText>,
                               const std::vector<std::string>&) const {
  return {"", obstacle_};
}

}  // namespace graphsink

#endif
