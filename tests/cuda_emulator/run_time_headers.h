// The headers of kernels that are compiled at run time, as text (cmake/embed_text.cmake).
#pragma once

#include <span>

namespace emu {

struct EmbeddedText {
  const char* name;
  const char* text;
};
std::span<const EmbeddedText> run_time_headers();

}  // namespace emu
