// Where this repository's sources lie: for samples and tests that read LICENSE, golden files or ../shared/data.
#pragma once

namespace graphsink {

// A path without a slash at its end: that of the environment variable GRAPHSINK_SOURCE_DIR or, where this is empty or
// not set, the folder in which the program was built. The variable is for programs that run on a machine without the
// sources.
const char* source_dir();

}  // namespace graphsink
