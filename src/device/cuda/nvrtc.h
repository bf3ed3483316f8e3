// NVRTC, the compiler for CUDA C++ that a program can call. It is looked for when the program runs, because it is large
// and a program may do without it.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/embedded_text.h"

namespace graphsink {

class Nvrtc {
 public:
  // Looks for the library of this CUDA version, see open_cuda_library(), or for the file that the environment variable
  // GRAPHSINK_NVRTC names; nothing can be compiled if that variable is empty.
  static Nvrtc find();
  // Looks for this library, which stays loaded; see obstacle(). "" stands for the functions of the software CUDA
  // device, where the program is linked with that.
  explicit Nvrtc(const std::string& library);

  // Why nothing can be compiled for this compute capability, or "".
  std::string obstacle(int sm) const;
  // The version of the compiler: other versions may give other bits.
  const std::string& version() const { return version_; }

  // Compiles to machine code. `problem` is "" if it succeeds, else it says what failed, with the compiler's messages.
  // Precondition: there is no obstacle.
  struct Compiled {
    std::string code;
    std::string problem;
  };
  Compiled compile(const std::string& text, const char* file_name, std::span<const EmbeddedText> headers,
                   const std::vector<std::string>& options) const;

 private:
  Nvrtc() = default;

#ifdef GRAPHSINK_EMULATED
  static constexpr const char* kDefaultLibrary = "";
#else
  static constexpr const char* kDefaultLibrary = "libnvrtc.so.13";
#endif
  struct Functions;

  std::shared_ptr<const Functions> call_;
  std::string obstacle_, version_;
};

}  // namespace graphsink
