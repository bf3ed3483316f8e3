#include "graphsink/version.h"

#define GRAPHSINK_TEXT_OF(number) #number
#define GRAPHSINK_TEXT(number) GRAPHSINK_TEXT_OF(number)

namespace graphsink {

const char* version() noexcept {
  return GRAPHSINK_TEXT(GRAPHSINK_VERSION_MAJOR) "." GRAPHSINK_TEXT(GRAPHSINK_VERSION_MINOR) "." GRAPHSINK_TEXT(
      GRAPHSINK_VERSION_PATCH);
}

}  // namespace graphsink
