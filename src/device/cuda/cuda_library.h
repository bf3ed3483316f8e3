// Shared libraries of the CUDA toolkit that are opened when the program runs.
#pragma once

#include <string>

namespace graphsink {

// Opens a library of the toolkit, such as "libnvrtc.so.13", and leaves it open for the life of the process. It is
// looked for on the library path, then in the folders of the CUDA libraries that this program has loaded: a toolkit's
// folder is often not on the path, and Python packages keep all of these libraries in a folder of their own. A name
// with a slash is opened as it is. Returns null if it is found nowhere; `problem` then says where it was looked for.
void* open_cuda_library(const std::string& name, std::string& problem);

}  // namespace graphsink
