// What tests of single failing CUDA calls start from.
#pragma once

#include <gtest/gtest.h>

#include "emulator.h"
#include "graphsink/graphsink.h"
#include "messages.h"

namespace graphsink::testing {

class Fault : public ::testing::Test {
 protected:
  void TearDown() override {
    emu::reset();
    emu::release_memory();
  }
};

// Its commit has two kernels, one of sgd and one of the store of `total`; a third ends the step.
struct TwoKernelCommit {
  static constexpr int kLastKernels = 3;
  Graph g;
  Value x = g.feed("x", f32, {1});
  Variable scale{"scale", Tensor({2.0f})}, total{"total", Tensor({0.0f})};
  Program p;
  TwoKernelCommit() : p(build()) { p.write(x, std::vector<float>{1}); }

  Program build() {
    Value y = x * scale;
    assign(total, g.value(total) + y);
    sgd(sum(y), {scale}, {.lr = 0.5});
    g.record("loss", sum(y));
    return compile(g, {.target = cuda(0)});
  }
  // How many kernels one interactive step launches.
  int kernels() {
    emu::reset_calls();
    p.run(interactive);
    p.sync();
    return static_cast<int>(emu::calls("cudaLaunchKernelExC"));
  }
};

}  // namespace graphsink::testing
