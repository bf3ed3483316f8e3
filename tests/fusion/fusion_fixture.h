// What the tests of kernels for groups of element-wise ops on CUDA devices share.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <functional>
#include <string>

#include "graphsink/graphsink.h"
#include "ir/plan.h"
#include "temporary_directory.h"
#ifdef GRAPHSINK_EMULATED
#include "emulator.h"
#endif

namespace graphsink::testing {

// What stands for NVRTC on the software device. "" is none.
inline void set_compiler([[maybe_unused]] const char* name = GRAPHSINK_HOST_COMPILER) {
#ifdef GRAPHSINK_EMULATED
  emu::set_compiler(name);
#endif
}

// Programs can compile kernels, and keep them in a folder of the test.
class Fusion : public ::testing::Test {
 protected:
  void SetUp() override {
    if (cuda_device_count() == 0) GTEST_SKIP() << "no CUDA device answers";
    set_compiler();
    setenv("GRAPHSINK_KERNEL_CACHE", folder_.path().c_str(), 1);
  }
  void TearDown() override {
    unsetenv("GRAPHSINK_KERNEL_CACHE");
    set_compiler("");
  }

  TemporaryDirectory folder_;
};

// Runs the graph in all modes with and without groups, and expects the same bits in all outputs. `make` builds it
// twice, so that each has Variables of its own. Returns the plan with groups.
Plan expect_same_bits(const std::function<void(Graph&)>& make, DeviceId target = cuda(0));

}  // namespace graphsink::testing
