// Messages of what happened and cannot be thrown: a capture that failed, so that a step runs op by op; a release that
// failed; errors met by destructors.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>

#include "graphsink/version.h"

namespace GRAPHSINK_PUBLIC graphsink {

// An error is that a destroyed program keeps its memory, because the device may still be using it; all else is a
// warning.
enum class LogLevel : std::uint8_t { warning, error };

// Takes a message, one line without an end of line, whose control characters are escaped as in an Error; the view is
// valid during the call. Called on the thread that meets the failure, also in destructors of Programs, and of Variables
// that outlive theirs: it must stay callable until all of them are gone, take calls of several threads at once, and
// call nothing of graphsink. If it throws, the exception is dropped, and the message goes to spdlog.
using LogFunction = std::function<void(LogLevel level, std::string_view message)>;

}  // namespace graphsink
