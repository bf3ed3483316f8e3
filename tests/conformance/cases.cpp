#include "conformance/conformance.h"

namespace conformance {

std::vector<Case> all_cases() {
  std::vector<Case> cases;
  for (const auto part : {unsafe_call_cases, capture_cases, end_capture_cases, captured_call_cases, node_cases,
                          graph_cases, conditional_cases, conditional_run_cases, launch_cases, update_cases,
                          node_update_cases, cluster_cases, error_log_cases, host_cases, argument_cases}) {
    const std::vector<Case> more = part();
    cases.insert(cases.end(), more.begin(), more.end());
  }
  return cases;
}

}  // namespace conformance
