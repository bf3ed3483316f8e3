#include "device/cuda/nvrtc.h"

#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include <algorithm>

namespace graphsink {

Nvrtc::Nvrtc(const std::string& library) : obstacle_(find(library)) {
  static_assert(CUDART_VERSION / 1000 == 13, "the number in kDefaultLibrary");
  if (!obstacle_.empty()) return;
  int major = 0, minor = 0;
  if (const nvrtcResult code = call_.version(&major, &minor); code != NVRTC_SUCCESS) {
    obstacle_ = failed("nvrtcVersion", code);
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

std::string Nvrtc::find(const std::string& name) {
  void* library = name.empty() ? nullptr : dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!name.empty() && !library) return name + " is not found";
  std::string missing;
  auto set = [&]<class F>(F& function, const char* symbol, void* linked) {
    function = reinterpret_cast<F>(library ? dlsym(library, symbol) : linked);
    if (!function) missing = name + " has no function " + symbol;
  };
#ifdef GRAPHSINK_EMULATED
#define GRAPHSINK_NVRTC_FUNCTION(member, name) set(call_.member, #name, reinterpret_cast<void*>(&name))
#else
#define GRAPHSINK_NVRTC_FUNCTION(member, name) set(call_.member, #name, nullptr)
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

std::string Nvrtc::failed(const char* call, nvrtcResult code) const {
  return std::string(call) + " returned " + call_.error_string(code);
}

std::string Nvrtc::obstacle(int sm) const {
  if (!obstacle_.empty()) return obstacle_;
  int count = 0;
  if (const nvrtcResult code = call_.supported_count(&count); code != NVRTC_SUCCESS)
    return failed("nvrtcGetNumSupportedArchs", code);
  std::vector<int> supported(static_cast<std::size_t>(count));
  if (const nvrtcResult code = call_.supported(supported.data()); code != NVRTC_SUCCESS)
    return failed("nvrtcGetSupportedArchs", code);
  if (std::find(supported.begin(), supported.end(), sm) != supported.end()) return "";
  return version_ + " does not compile for compute capability " + std::to_string(sm / 10) + "." +
         std::to_string(sm % 10);
}

std::string Nvrtc::compile(nvrtcProgram program, const std::vector<std::string>& options, std::string& code) const {
  std::vector<const char*> texts;
  for (const std::string& option : options) texts.push_back(option.c_str());
  if (const nvrtcResult result = call_.compile(program, static_cast<int>(texts.size()), texts.data());
      result != NVRTC_SUCCESS) {
    std::size_t bytes = 0;
    std::string log;
    if (call_.log_size(program, &bytes) == NVRTC_SUCCESS && bytes > 1) {
      log.resize(bytes);
      if (call_.log(program, log.data()) != NVRTC_SUCCESS) log.clear();
      log.resize(log.find_last_not_of(std::string("\n\0", 2)) + 1);  // with the 0 at its end
    }
    return failed("nvrtcCompileProgram", result) + (log.empty() ? "" : ":\n" + log);
  }
  std::size_t bytes = 0;
  if (const nvrtcResult result = call_.code_size(program, &bytes); result != NVRTC_SUCCESS)
    return failed("nvrtcGetCUBINSize", result);
  code.resize(bytes);
  if (const nvrtcResult result = call_.code(program, code.data()); result != NVRTC_SUCCESS)
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
  if (const nvrtcResult code =
          call_.create(&program, text.c_str(), file_name, static_cast<int>(headers.size()), texts.data(), names.data());
      code != NVRTC_SUCCESS)
    return {"", failed("nvrtcCreateProgram", code)};
  Compiled compiled;
  compiled.problem = compile(program, options, compiled.code);
  call_.destroy(&program);  // fails only for what is no program
  return compiled;
}

}  // namespace graphsink
