// NVRTC, and libraries of kernels. A host compiler compiles the source with run_time_simt.h before it; what a program
// takes for machine code is the name of that compiler and a shared library. There is none by default, because compiling
// takes a third of a second: see set_compiler().
#include <nvrtc.h>

#include <dlfcn.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string_view>

#include "emulator.h"
#include "run_time_headers.h"
#include "runtime.h"
#include "simt.h"

struct _nvrtcProgram {
  std::string text, file_name;
  std::vector<std::pair<std::string, std::string>> headers;  // name, text
  std::string log, code;
};

struct CUlib_st {
  int file = -1;  // in memory; the dynamic linker tells libraries apart by the numbers of their files
  void* shared_library = nullptr;
  std::vector<const void*> kernels;  // those that were asked for
};

namespace emu {
namespace {

namespace files = std::filesystem;

// The path of the compiler, or "".
std::string find_compiler(const std::string& name) {
  if (name.empty()) return "";
  if (name.find('/') != std::string::npos) return ::access(name.c_str(), X_OK) == 0 ? name : "";
  const char* folders = std::getenv("PATH");
  std::string path = folders == nullptr ? "" : folders;
  for (std::size_t begin = 0; begin <= path.size();) {
    const std::size_t end = std::min(path.find(':', begin), path.size());
    const std::string candidate = path.substr(begin, end - begin) + "/" + name;
    if (::access(candidate.c_str(), X_OK) == 0) return candidate;
    begin = end + 1;
  }
  return "";
}

// Code of another compiler, or of the same after an update, is not taken.
std::string identity_of(const std::string& compiler) {
  std::error_code error;
  const auto time = files::last_write_time(compiler, error).time_since_epoch().count();
  return "software device, " + compiler + ", " + std::to_string(time) + "\n";
}

// As api() for NVRTC: same counters and faults, no last error. A compilation does not keep others from the device.
nvrtcResult nvrtc(const char* name, auto&& body) {
  const InCall in_call;
  Runtime& r = runtime();
  Lock lock(r.mutex);
  const std::string compiler = find_compiler(r.compiler);
  if (compiler.empty()) return NVRTC_ERROR_BUILTIN_OPERATION_FAILURE;
  const cudaError_t refused = enter_call(r, name, When::kAlways);
  lock.unlock();
  const nvrtcResult result = refused == cudaSuccess ? body(compiler) : NVRTC_ERROR_INTERNAL_ERROR;
  lock.lock();
  leave_untracked(r, name, result);
  return result;
}

bool is_known(const std::string& option) {
  for (const char* known : {"-std=c++20", "-fmad=false", "-default-device"})
    if (option == known) return true;
  return option.rfind("-arch=sm_", 0) == 0;
}

std::string read_file(const files::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// Runs a program, whose output goes to a file. Returns whether it succeeded.
bool run(const std::vector<std::string>& command, const files::path& output) {
  std::vector<char*> arguments;
  for (const std::string& argument : command) arguments.push_back(const_cast<char*>(argument.c_str()));
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, output.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  posix_spawn_file_actions_adddup2(&actions, STDOUT_FILENO, STDERR_FILENO);
  pid_t child = -1;
  const bool is_started = posix_spawn(&child, arguments[0], &actions, nullptr, arguments.data(), environ) == 0;
  posix_spawn_file_actions_destroy(&actions);
  int status = -1;
  while (is_started && ::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return is_started && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

// For each kernel a function that describes it.
std::string with_signatures(const _nvrtcProgram& program) {
  constexpr std::string_view kBegin = "extern \"C\" __global__ void ";
  std::string text = "#include \"run_time_simt.h\"\n#line 1 \"" + program.file_name + "\"\n" + program.text + "\n";
  for (std::size_t at = program.text.find(kBegin); at != std::string::npos; at = program.text.find(kBegin, at)) {
    at += kBegin.size();
    const std::string name = program.text.substr(at, program.text.find('(', at) - at);
    text.append(kBegin).append("emu_describe_").append(name);
    text.append("(emu::KernelSignature* signature) { *signature = emu::signature_of(&").append(name).append("); }\n");
  }
  return text;
}

nvrtcResult compile_in(const files::path& folder, const std::string& compiler, _nvrtcProgram& program) {
  auto write = [&](const std::string& name, const std::string& text) {
    files::create_directories((folder / name).parent_path());
    std::ofstream(folder / name, std::ios::binary) << text;
  };
  for (const auto& [name, text] : program.headers) write(name, text);
  for (const EmbeddedText& header : run_time_headers()) write(header.name, header.text);
  write("kernel.cpp", with_signatures(program));
  // Headers of the program are found by their names in quotes only, so those of the standard library are the
  // compiler's.
  const bool is_compiled = run(
      {compiler, "-std=c++20", "-O1", "-fPIC", "-shared", "-fvisibility=hidden", "-ffp-contract=off", "-fno-math-errno",
       "-fno-trapping-math", "-iquote", folder, "-o", folder / "kernel.so", folder / "kernel.cpp"},
      folder / "log");
  program.log = read_file(folder / "log");
  if (!is_compiled) return NVRTC_ERROR_COMPILATION;
  program.code = identity_of(compiler) + read_file(folder / "kernel.so");
  return NVRTC_SUCCESS;
}

nvrtcResult compile(const std::string& compiler, _nvrtcProgram& program) {
  std::string folder = (files::temp_directory_path() / "emu_nvrtc.XXXXXX").string();
  if (::mkdtemp(folder.data()) == nullptr) return NVRTC_ERROR_OUT_OF_MEMORY;
  const nvrtcResult result = compile_in(folder, compiler, program);
  std::error_code error;
  files::remove_all(folder, error);
  return result;
}

// Opens a shared library from memory. Returns whether that succeeded.
bool open_code(const std::string& code, CUlib_st& library) {
  library.file = ::memfd_create("kernels", MFD_CLOEXEC);
  if (library.file < 0) return false;
  if (::write(library.file, code.data(), code.size()) == static_cast<ssize_t>(code.size()))
    library.shared_library = dlopen(("/proc/self/fd/" + std::to_string(library.file)).c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library.shared_library == nullptr) ::close(library.file);
  return library.shared_library != nullptr;
}

unsigned long long shuffle_xor(unsigned mask, unsigned long long bits, int lane_mask, const char* file, int line) {
  return __shfl_xor_sync(mask, bits, lane_mask, warpSize, file, line);
}

// The bytes of machine code in memory, whose size CUDA reads from themselves: nvrtcGetCUBIN() puts it in front.
constexpr std::string_view kMagic = "emucubin";
std::string with_size(const std::string& code) {
  const std::size_t bytes = code.size();
  std::string all(kMagic);
  all.append(reinterpret_cast<const char*>(&bytes), sizeof bytes);
  return all + code;
}

}  // namespace

void set_compiler(const std::string& name) {
  Runtime& r = runtime();
  const Lock lock(r.mutex);
  r.compiler = name;
}

}  // namespace emu

using emu::api;
using emu::Lock;
using emu::nvrtc;
using emu::Runtime;

nvrtcResult nvrtcVersion(int* major, int* minor) {
  return nvrtc("nvrtcVersion", [&](const std::string&) {
    *major = CUDART_VERSION / 1000;
    *minor = CUDART_VERSION % 1000 / 10;
    return NVRTC_SUCCESS;
  });
}

const char* nvrtcGetErrorString(nvrtcResult result) {
  switch (result) {
    case NVRTC_SUCCESS:
      return "NVRTC_SUCCESS";
    case NVRTC_ERROR_INVALID_PROGRAM:
      return "NVRTC_ERROR_INVALID_PROGRAM";
    case NVRTC_ERROR_INVALID_OPTION:
      return "NVRTC_ERROR_INVALID_OPTION";
    case NVRTC_ERROR_COMPILATION:
      return "NVRTC_ERROR_COMPILATION";
    case NVRTC_ERROR_BUILTIN_OPERATION_FAILURE:
      return "NVRTC_ERROR_BUILTIN_OPERATION_FAILURE";
    default:
      return "NVRTC_ERROR_INTERNAL_ERROR";
  }
}

nvrtcResult nvrtcGetNumSupportedArchs(int* count) {
  return nvrtc("nvrtcGetNumSupportedArchs", [&](const std::string&) {
    *count = 1;
    return NVRTC_SUCCESS;
  });
}

nvrtcResult nvrtcGetSupportedArchs(int* supported) {
  return nvrtc("nvrtcGetSupportedArchs", [&](const std::string&) {
    *supported = 90;
    return NVRTC_SUCCESS;
  });
}

nvrtcResult nvrtcCreateProgram(nvrtcProgram* program, const char* text, const char* file_name, int count,
                               const char* const* headers, const char* const* names) {
  return nvrtc("nvrtcCreateProgram", [&](const std::string&) {
    *program = new _nvrtcProgram{text, file_name == nullptr ? "default_program" : file_name, {}, {}, {}};
    for (int i = 0; i < count; ++i) (*program)->headers.emplace_back(names[i], headers[i]);
    return NVRTC_SUCCESS;
  });
}

nvrtcResult nvrtcDestroyProgram(nvrtcProgram* program) {
  delete *program;
  *program = nullptr;
  return nvrtc("nvrtcDestroyProgram", [&](const std::string&) { return NVRTC_SUCCESS; });
}

nvrtcResult nvrtcCompileProgram(nvrtcProgram program, int count, const char* const* options) {
  return nvrtc("nvrtcCompileProgram", [&](const std::string& compiler) {
    for (int i = 0; i < count; ++i)
      if (!emu::is_known(options[i])) return NVRTC_ERROR_INVALID_OPTION;
    return emu::compile(compiler, *program);
  });
}

nvrtcResult nvrtcGetProgramLogSize(nvrtcProgram program, size_t* bytes) {
  return nvrtc("nvrtcGetProgramLogSize", [&](const std::string&) {
    *bytes = program->log.size() + 1;
    return NVRTC_SUCCESS;
  });
}

nvrtcResult nvrtcGetProgramLog(nvrtcProgram program, char* log) {
  return nvrtc("nvrtcGetProgramLog", [&](const std::string&) {
    std::memcpy(log, program->log.c_str(), program->log.size() + 1);
    return NVRTC_SUCCESS;
  });
}

nvrtcResult nvrtcGetCUBINSize(nvrtcProgram program, size_t* bytes) {
  return nvrtc("nvrtcGetCUBINSize", [&](const std::string&) {
    *bytes = emu::with_size(program->code).size();
    return NVRTC_SUCCESS;
  });
}

nvrtcResult nvrtcGetCUBIN(nvrtcProgram program, char* code) {
  return nvrtc("nvrtcGetCUBIN", [&](const std::string&) {
    const std::string all = emu::with_size(program->code);
    std::memcpy(code, all.data(), all.size());
    return NVRTC_SUCCESS;
  });
}

cudaError_t cudaLibraryLoadData(cudaLibrary_t* library, const void* code, cudaJitOption*, void**, unsigned,
                                cudaLibraryOption*, void**, unsigned) {
  return api("cudaLibraryLoadData", [&](Runtime& r, Lock&) -> cudaError_t {
    if (library == nullptr || code == nullptr) return cudaErrorInvalidValue;
    const auto* bytes = static_cast<const char*>(code);
    if (std::memcmp(bytes, emu::kMagic.data(), emu::kMagic.size()) != 0) return cudaErrorInvalidKernelImage;
    std::size_t size = 0;
    std::memcpy(&size, bytes + emu::kMagic.size(), sizeof size);
    const std::string all(bytes + emu::kMagic.size() + sizeof size, size);
    const std::string identity = emu::identity_of(emu::find_compiler(r.compiler));
    if (all.rfind(identity, 0) != 0) return cudaErrorInvalidKernelImage;
    CUlib_st opened;
    if (!emu::open_code(all.substr(identity.size()), opened)) return cudaErrorInvalidKernelImage;
    const void* const places[] = {&threadIdx,  // emu::Builtins
                                  &blockIdx,
                                  &blockDim,
                                  &gridDim,
                                  reinterpret_cast<const void*>(&cudaGridDependencySynchronize),
                                  reinterpret_cast<const void*>(&emu::block_barrier),
                                  reinterpret_cast<const void*>(&emu::shuffle_xor)};
    reinterpret_cast<void (*)(const void*)>(dlsym(opened.shared_library, "emu_set_builtins"))(places);
    *library = new CUlib_st(std::move(opened));
    r.libraries.insert(*library);
    return cudaSuccess;
  });
}

cudaError_t cudaLibraryGetKernel(cudaKernel_t* kernel, cudaLibrary_t library, const char* name) {
  return api("cudaLibraryGetKernel", [&](Runtime&, Lock&) -> cudaError_t {
    if (kernel == nullptr || library == nullptr || name == nullptr) return cudaErrorInvalidValue;
    void* function = dlsym(library->shared_library, name);
    void* describe = dlsym(library->shared_library, (std::string("emu_describe_") + name).c_str());
    if (function == nullptr || describe == nullptr) return cudaErrorSymbolNotFound;
    emu::KernelSignature signature{};
    reinterpret_cast<void (*)(emu::KernelSignature*)>(describe)(&signature);
    emu::register_kernel(function, signature);
    library->kernels.push_back(function);
    *kernel = reinterpret_cast<cudaKernel_t>(function);
    return cudaSuccess;
  });
}

cudaError_t cudaLibraryUnload(cudaLibrary_t library) {
  return api("cudaLibraryUnload", [&](Runtime& r, Lock&) -> cudaError_t {
    if (library == nullptr) return cudaErrorInvalidResourceHandle;
    {
      const std::lock_guard guard(r.kernel_mutex);
      for (const void* kernel : library->kernels) r.kernels.erase(kernel);
    }
    dlclose(library->shared_library);
    ::close(library->file);
    r.libraries.erase(library);
    delete library;
    return cudaSuccess;
  });
}
