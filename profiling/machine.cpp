#include "profiling/machine.h"

#include <cblas.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <regex>
#include <thread>

namespace graphsink::bench {
namespace {

// The first group of the first line of `file` that has a match, else null.
nlohmann::json find_in(const char* file, const char* pattern) {
  std::ifstream in(file);
  std::smatch match;
  for (std::string line; std::getline(in, line);)
    if (std::regex_search(line, match, std::regex(pattern))) return match[1].str();
  return nullptr;
}

// On ARM, Linux names a processor by the numbers of its maker and of its design.
nlohmann::json name_of_processor() {
  nlohmann::json name = find_in("/proc/cpuinfo", "model name\\s*: (.*)");
  const nlohmann::json maker = find_in("/proc/cpuinfo", "CPU implementer\\s*: (.*)");
  const nlohmann::json part = find_in("/proc/cpuinfo", "CPU part\\s*: (.*)");
  if (name.is_null() && maker.is_string() && part.is_string())
    name = "ARM, implementer " + maker.get<std::string>() + ", part " + part.get<std::string>();
  return name;
}

}  // namespace

nlohmann::json describe_machine(const Target& target) {
  utsname system;
  uname(&system);
  double pages = static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGE_SIZE));
  double load = 0;
  if (getloadavg(&load, 1) != 1) load = 0;
  return {{"cpu", name_of_processor()},
          {"cores", std::thread::hardware_concurrency()},
          {"memory_gib", std::round(pages / (1 << 30) * 10) / 10},
          {"os", std::string(system.sysname) + " " + system.release + " " + system.machine},
          {"compiler", std::string("g++ ") + __VERSION__},
          {"blas", std::string("OpenBLAS ") + openblas_get_corename()},
          {"flavour", GRAPHSINK_FLAVOUR},
          {"device", target.name},
          {"fusion", target.separate_memory && !target.compiles_kernels ? "off: " + target.fusion_obstacle : "on"},
          {"driver", find_in("/proc/driver/nvidia/version", "([0-9]+\\.[0-9]+(\\.[0-9]+)?)")},
          {"load_1min", load}};
}

}  // namespace graphsink::bench
