// The cheapest way to part a directed graph in two.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "base/at.h"

namespace graphsink {

// A minimum cut between a source and a sink: the vertices are parted so that the capacities of all edges that lead from
// the source's side to the sink's are the least in sum. If there are several such cuts, this is the one with the fewest
// vertices on the sink's side. By maximum flow along shortest paths (Y. Dinitz, 1970).
class MinCut {
 public:
  static constexpr int kSource = 0;
  static constexpr int kSink = 1;
  static constexpr std::int64_t kInfinite = std::numeric_limits<std::int64_t>::max() / 4;

  int add_vertex() { return vertices_++; }
  void add_edge(int from, int to, std::int64_t capacity);
  // The capacity of the cut. Once, after all edges.
  std::int64_t solve();
  // After solve().
  bool is_with_sink(int vertex) const { return with_sink_[at(vertex)]; }

 private:
  struct Edge {
    int from;
    int to;
    std::int64_t left;  // capacity that is not used; edge i ^ 1 leads back
  };

  void index_edges();
  bool measure_distances();
  std::int64_t push_path();

  int vertices_ = 2;
  std::vector<Edge> edges_;
  std::vector<int> first_, leaving_;  // edges that leave vertex v: leaving_[first_[v]] up to first_[v + 1]
  std::vector<int> distance_, next_;  // from the source; the edge to try next
  std::vector<int> path_;             // edges
  std::vector<bool> with_sink_;
};

}  // namespace graphsink
