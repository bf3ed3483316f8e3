// The mistake that the replay audit is for: a value of the host that a recording keeps.
#include <gtest/gtest.h>

#include "cuda_device_kernels.h"
#include "graphsink/graphsink.h"

namespace graphsink {
namespace {

TEST(CudaGuards, AuditFindsAFrozenHostValue) {
  Graph g;
  Value x = g.input("x", f32, {1});
  auto value = std::make_shared<float>(1.0f);
  g.output("y", emit(testing::add_host_float, {x}, testing::HostFloat{value})[0]);
  Program p = compile(g, {.target = cuda(0), .guards = {.replay_every = 3}});
  p.write(x, std::vector<float>{10});
  p.run(sink);
  p.run(sink);
  *value = 2.0f;
  try {
    p.run(sink);
    FAIL() << "the difference was not reported";
  } catch (const Error& e) {
    EXPECT_EQ(e.op(), "replay audit");
    EXPECT_NE(e.problem().find("output \"y\" differs between op by op and sunk: element 0 is 12.000000 and 11.000000"),
              std::string::npos)
        << e.problem();
  }
}

}  // namespace
}  // namespace graphsink
