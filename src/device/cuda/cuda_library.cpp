#include "device/cuda/cuda_library.h"

#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>

namespace graphsink {
namespace {

// The folder of the library or program that holds a function, with a slash at its end; empty if it is not known.
std::string folder_of(const void* function) {
  Dl_info found = {};
  if (dladdr(function, &found) == 0 || found.dli_fname == nullptr) return "";
  const std::string file = found.dli_fname;
  const std::size_t slash = file.rfind('/');
  return slash == file.npos ? "" : file.substr(0, slash + 1);
}

}  // namespace

void* open_cuda_library(const std::string& name, std::string& problem) {
  problem.clear();
  if (void* library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL)) return library;
  if (name.find('/') != name.npos) {
    const char* why = dlerror();
    problem = why ? why : name + " cannot be opened";
    return nullptr;
  }
  problem = name + " is not found on the library path";
  for (const void* function :
       {reinterpret_cast<const void*>(&cudaGetDeviceCount), reinterpret_cast<const void*>(&cublasLtCreate)}) {
    const std::string folder = folder_of(function);
    if (folder.empty()) continue;
    if (void* library = dlopen((folder + name).c_str(), RTLD_NOW | RTLD_LOCAL)) {
      problem.clear();
      return library;
    }
    if (problem.find(folder) == problem.npos) problem += ", nor in " + folder;
  }
  return nullptr;
}

}  // namespace graphsink
