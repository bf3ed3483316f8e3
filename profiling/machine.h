// The machine that measurements were made on.
#pragma once

#include <graphsink/target.h>

#include <nlohmann/json.hpp>

namespace graphsink::bench {

// cpu, cores, memory_gib, os, compiler, blas (which CPU its code is for), flavour, device, fusion ("on", or why groups
// of element-wise ops run as ops of their own: a step has more kernels then), driver (null without one), load_1min.
nlohmann::json describe_machine(const Target& target);

}  // namespace graphsink::bench
