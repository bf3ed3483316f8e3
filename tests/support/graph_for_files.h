// The graph from which hostile files are made.
#pragma once

#include <array>

#include "graphsink/graphsink.h"

namespace graphsink::testing {

// A graph that has everything that a file may have.
inline Graph graph_for_files() {
  Graph g;
  Value x = g.input("x", f32, {open(4, multiples_of(4)), 6}), t = g.feed("t", i32, {4});
  Variable w("w", Tensor::uniform({6, 6}, 1)), lr("rate", Tensor::scalar(0.5f));
  Value h = matmul(g.constant(Tensor::uniform({4, 6}, 2)), w);
  auto loop = while_(
      {h, 0.0, 1.0}, [](const Value&, const Value& n, const Value&) { return less(n, 3.0); },
      [&](const Value& state, const Value& n, const Value& m) {
        return std::array{tanh(state) * m, n + 1.0, n};
      },
      {.max_iterations = 4});
  Value branch = if_(
      greater(sum(loop[0]), 0.0), [&] { return loop[0] * 2.0; }, [&] { return loop[0] - 1.0; });
  Value chosen = switch_(g.step(), {[&] { return branch; }, [&] { return relu(branch); }});
  Value dropped = dropout(slice(chosen, {0, 0}, {4, 6}), 0.25);
  Value loss = cross_entropy(dropped, t);
  adamw(loss, {w}, {.lr = lr});
  g.assign(lr, g.value(lr) * 0.5);
  g.record("loss", loss, {.capacity = 16});
  g.stop_when(less(loss, 0.0));
  g.output("size", true_size(x, 0));
  g.output("updated", g.updated(w));
  return g;
}

}  // namespace graphsink::testing
