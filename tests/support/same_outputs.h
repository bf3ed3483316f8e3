// Programs that must give the same results, such as one with fusion and one without.
#pragma once

#include <gtest/gtest.h>

#include <cstring>

#include "api/plan_of.h"
#include "graphsink/graphsink.h"
#include "program_fixture.h"

namespace graphsink::testing {

// Runs both in all modes, one after the other, and compares the bits of all outputs.
inline void expect_same_outputs(Program& a, Program& b) {
  for (Mode mode : kModes) {
    a.run(mode);
    b.run(mode);
    for (const PlanOutput& output : plan_of(b).outputs) {
      const Tensor x = a.output(output.name), y = b.output(output.name);
      ASSERT_EQ(x.type(), y.type());
      ASSERT_EQ(std::memcmp(x.data(), y.data(), x.bytes()), 0) << output.name << " " << to_string(mode);
    }
  }
}

}  // namespace graphsink::testing
