// Tensors that one rank sends to one other.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "graphsink/graphsink.h"
#include "graphsink/ranks.h"
#include "program_fixture.h"
#include "rank_world.h"

namespace graphsink::testing {
namespace send_receive_test {

int me() { return world().rank(); }
int ranks() { return world().size(); }

// Each rank gets what the one before it has.
std::vector<int> ring() {
  std::vector<int> sources;
  for (int rank = 0; rank < ranks(); ++rank) sources.push_back((rank + ranks() - 1) % ranks());
  return sources;
}
std::vector<int> line() {
  std::vector<int> sources = ring();
  sources[0] = -1;
  return sources;
}

class SendReceive : public OnRanks {
 protected:
  // What this rank gets, in each mode, and the gradient of the sum of rank + 1 times it over all ranks.
  void expect(const std::vector<int>& sources, double received, double gradient) {
    Graph g;
    const Value x = g.input("x", f32, Shape{3});
    const Value y = send_receive(x, world(), sources);
    g.output("y", y);
    g.output("dx", grad(sum(mul(y, 1.0 + me())), {x})[0]);
    Program program = compile(g);
    program.write(x, Tensor::full(f32, {3}, 10.0 + me()));
    for (const Mode mode : kAllModes) {
      program.run(mode, {.steps = 2});
      for (std::int64_t i = 0; i < 3; ++i) {
        EXPECT_EQ(program.output("y").at(i), received) << to_string(mode);
        EXPECT_EQ(program.output("dx").at(i), gradient) << to_string(mode);
      }
    }
  }
};
INSTANTIATE_TEST_SUITE_P(Devices, SendReceive, ::testing::ValuesIn(rank_ways()), rank_way_name);

TEST_P(SendReceive, PassesOnInARing) {
  expect(ring(), 10.0 + (me() + ranks() - 1) % ranks(), 1.0 + (me() + 1) % ranks());
}

TEST_P(SendReceive, GivesZerosWhereNobodySends) {
  expect(line(), me() == 0 ? 0 : 9.0 + me(), me() == ranks() - 1 ? 0 : 2.0 + me());
  expect(std::vector<int>(static_cast<std::size_t>(ranks()), -1), 0, 0);
}

TEST_P(SendReceive, SendsToItself) {
  std::vector<int> sources;
  for (int rank = 0; rank < ranks(); ++rank) sources.push_back(rank);
  expect(sources, 10.0 + me(), 1.0 + me());
}

// A sum that goes around the ring, in a loop.
TEST_P(SendReceive, RunsInLoops) {
  Graph g;
  const Value x = g.input("x", f32, Shape{1});
  const auto state = scan({x, x}, {},
                          [](const Values& s, const Values&) {
                            const Value passed = send_receive(s[0], world(), ring());
                            return Scan{{passed, add(s[1], passed)}, {}};
                          },
                          {.iterations = ranks() - 1 > 0 ? ranks() - 1 : 1})
                         .state;
  g.output("y", state[1]);
  Program program = compile(g);
  program.write(x, Tensor::full(f32, {1}, 1.0 + me()));
  double expected = ranks() == 1 ? 2 : 0;
  for (int rank = 0; rank < ranks() && ranks() > 1; ++rank) expected += 1 + rank;
  for (const Mode mode : kAllModes) {
    program.run(mode);
    EXPECT_EQ(program.output("y").at(0), expected) << to_string(mode);
  }
}

TEST_P(SendReceive, OtherSourcesOnOneRankAreNamed) {
  if (ranks() == 1) return;
  Graph g;
  const Value x = g.input("x", f32, Shape{3});
  g.output("y", send_receive(x, world(), me() == 1 ? line() : ring()));
  Program program = compile(g);
  program.write(x, Tensor(f32, {3}));
  try {
    program.run(sink);
    ADD_FAILURE();
  } catch (const Error& e) {
    EXPECT_NE(e.problem().find("that of rank 1 is send_receive (sum, root 0, sources -1 0"), std::string::npos)
        << e.what();
  }
}

TEST(SendReceiveRefuses, SourcesThatAreNotThere) {
  Graph g;
  const Value x = g.input("x", f32, Shape{3});
  const auto problem = [&](const std::vector<int>& sources) -> std::string {
    try {
      (void)send_receive(x, world(), sources);
    } catch (const Error& e) {
      return e.problem();
    }
    return "";
  };
  const auto has = [](const std::string& text, const char* part) { return text.find(part) != std::string::npos; };
  std::vector<int> sources(static_cast<std::size_t>(ranks()), -1);
  sources[0] = ranks();
  EXPECT_TRUE(has(problem(sources), "there is no rank"));
  sources[0] = -2;
  EXPECT_TRUE(has(problem(sources), "there is no rank -2"));
  sources.push_back(0);
  EXPECT_TRUE(has(problem(sources), "sources for"));
  if (ranks() > 1) {
    EXPECT_TRUE(has(problem(std::vector<int>(static_cast<std::size_t>(ranks()), 0)), "the source of several"));
  }
}

}  // namespace send_receive_test
}  // namespace graphsink::testing
