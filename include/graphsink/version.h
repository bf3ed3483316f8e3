// The version of graphsink, and what marks its public symbols.
#pragma once

// Version of these headers, its first number.
#define GRAPHSINK_VERSION_MAJOR 0
// The second number. Before 1.0, versions that differ in it are not compatible.
#define GRAPHSINK_VERSION_MINOR 2
// The third number: versions that differ in it alone are compatible.
#define GRAPHSINK_VERSION_PATCH 0

// Stands in front of the name of the namespace in every public header: what is declared there is visible outside of the
// shared library, and nothing else is.
#if defined(__GNUC__)
#define GRAPHSINK_PUBLIC [[gnu::visibility("default")]]
#else
#define GRAPHSINK_PUBLIC
#endif

namespace GRAPHSINK_PUBLIC graphsink {

// The version of the library that the program runs with, for example "0.2.0".
const char* version() noexcept;

}  // namespace graphsink
