#include "conformance/child.h"

#include <sstream>

#include "support/child_process.h"

namespace conformance {
namespace {

constexpr char kDevicePrefix[] = "# device: ";

std::string device_of(const std::string& text) {
  const std::size_t begin = text.find(kDevicePrefix);
  if (begin == std::string::npos) return "";
  const std::size_t name = begin + sizeof kDevicePrefix - 1;
  return text.substr(name, text.find('\n', name) - name);
}

}  // namespace

Outcome run_in_child(const std::string& program, const std::string& case_name, std::chrono::milliseconds limit) {
  graphsink::testing::ChildResult child = graphsink::testing::run_child({program, "--case", case_name}, limit);
  Outcome outcome;
  outcome.problem = child.problem;
  outcome.device = device_of(child.output);
  std::istringstream lines(child.output);
  outcome.lines = read_golden(lines)[case_name];
  return outcome;
}

}  // namespace conformance
