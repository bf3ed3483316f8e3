// The cost of a step, a write and building a graph in C++, as one line of JSON: half of profiling/python_cost.py.
#include <cstdio>
#include <vector>

#include "graphsink/graphsink.h"
#include "profiling/clock.h"

namespace gs = graphsink;

namespace {

constexpr int kCalls = 2000, kNodes = 10'000;

// Microseconds of one call, the median of blocks.
template <class Call>
double us_of(int calls, const Call& call) {
  std::vector<double> blocks;
  for (int block = 0; block < 10; ++block) {
    const auto start = gs::bench::Clock::now();
    for (int i = 0; i < calls; ++i) call();
    blocks.push_back(gs::bench::us_since(start) / calls);
  }
  return gs::bench::spread_of(blocks).median;
}

double us_of_step() {
  gs::Graph g;
  gs::Variable v("v", gs::Tensor::scalar(0.0f));
  g.assign(v, g.value(v) + 1.0f);
  gs::Program program = gs::compile(g);
  program.run();
  program.run();
  program.sync();
  return us_of(kCalls, [&] { program.run(); });
}

double us_of_write() {
  gs::Graph g;
  gs::Value x = g.input("x", gs::f32, {32, 784});
  g.output("y", sum(x));
  gs::Program program = gs::compile(g);
  const gs::Tensor data(gs::f32, {32, 784});
  program.write(x, data);
  return us_of(kCalls / 10, [&] { program.write(x, data); });
}

double us_of_building() {
  return us_of(1, [] {
    gs::Graph g;
    gs::Value x = g.input("x", gs::f32, {1});
    for (int i = 0; i < kNodes; ++i) x = x + 1.0f;
    g.output("y", x);
  });
}

}  // namespace

int main() {
  std::printf("{\"step\": %.4f, \"write\": %.4f, \"build\": %.1f}\n", us_of_step(), us_of_write(), us_of_building());
  return 0;
}
