// Where this repository's sources lie: for samples and tests that read LICENSE, golden files or ../shared/data.
#pragma once

namespace graphsink {

// An absolute path without a slash at its end, fixed when the program was built.
const char* source_dir();

}  // namespace graphsink
