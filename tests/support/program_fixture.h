// The fixture of the tests of programs. They run on every device of the build, in every mode.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "graphsink/graphsink.h"
#include "test_ops.h"

namespace graphsink::testing {

inline constexpr Mode kModes[] = {interactive_serial, interactive_parallel, sink};

class OnDevice : public ::testing::TestWithParam<DeviceId> {
 protected:
  Program compile(const Graph& g, CompileOptions options = {}) {
    options.target = GetParam();
    return graphsink::compile(g, options);
  }
  bool is_cuda() const { return GetParam().kind == DeviceKind::cuda; }
};

inline std::string device_name(const ::testing::TestParamInfo<DeviceId>& info) {
  return info.param.kind == DeviceKind::cpu ? "cpu" : "cuda";
}

}  // namespace graphsink::testing
