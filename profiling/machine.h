// The machine that measurements were made on.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace graphsink::bench {

// cpu, cores, memory_gib, os, compiler, blas (which CPU its code is for), flavour, device, driver (null without one),
// load_1min.
nlohmann::json describe_machine(const std::string& device_name);

}  // namespace graphsink::bench
