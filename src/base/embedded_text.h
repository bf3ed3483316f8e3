// Texts of files that the build puts into the library (cmake/embed_text.cmake).
#pragma once

namespace graphsink {

struct EmbeddedText {
  const char* name;
  const char* text;
};

}  // namespace graphsink
