#include "passes/min_cut.h"

#include <algorithm>

#include "base/at.h"

namespace graphsink {

void MinCut::add_edge(int from, int to, std::int64_t capacity) {
  if (from == to || to == kSource || from == kSink || capacity == 0) return;
  edges_.push_back({from, to, capacity});
  edges_.push_back({to, from, 0});
}

void MinCut::index_edges() {
  first_.assign(at(vertices_) + 1, 0);
  for (const Edge& edge : edges_) ++first_[at(edge.from) + 1];
  for (std::size_t v = 0; v < at(vertices_); ++v) first_[v + 1] += first_[v];
  leaving_.resize(edges_.size());
  std::vector<int> fill(first_.begin(), first_.end() - 1);
  for (std::size_t e = 0; e < edges_.size(); ++e) leaving_[at(fill[at(edges_[e].from)]++)] = static_cast<int>(e);
}

bool MinCut::measure_distances() {
  distance_.assign(at(vertices_), -1);
  distance_[kSource] = 0;
  std::vector<int> reached = {kSource};
  for (std::size_t i = 0; i < reached.size(); ++i) {
    int v = reached[i];
    if (v == kSink) return true;
    for (int k = first_[at(v)]; k < first_[at(v) + 1]; ++k) {
      const Edge& edge = edges_[at(leaving_[at(k)])];
      if (edge.left == 0 || distance_[at(edge.to)] >= 0) continue;
      distance_[at(edge.to)] = distance_[at(v)] + 1;
      reached.push_back(edge.to);
    }
  }
  return false;
}

// Augments one shortest path, starting where the previous path was saturated. Returns 0 if there is no path left.
std::int64_t MinCut::push_path() {
  int v = path_.empty() ? kSource : edges_[at(path_.back())].to;
  while (v != kSink) {
    int& k = next_[at(v)];
    while (k < first_[at(v) + 1]) {
      const Edge& edge = edges_[at(leaving_[at(k)])];
      if (edge.left > 0 && distance_[at(edge.to)] == distance_[at(v)] + 1) break;
      ++k;
    }
    if (k < first_[at(v) + 1]) {
      path_.push_back(leaving_[at(k)]);
      v = edges_[at(path_.back())].to;
      continue;
    }
    if (v == kSource) return 0;
    v = edges_[at(path_.back())].from;  // a dead end: go back
    path_.pop_back();
    ++next_[at(v)];
  }
  std::int64_t flow = kInfinite;
  for (int e : path_) flow = std::min(flow, edges_[at(e)].left);
  std::size_t open = path_.size();
  for (std::size_t i = path_.size(); i-- > 0;) {
    edges_[at(path_[i])].left -= flow;
    edges_[at(path_[i] ^ 1)].left += flow;
    if (edges_[at(path_[i])].left == 0) open = i;
  }
  path_.resize(open);
  return flow;
}

std::int64_t MinCut::solve() {
  index_edges();
  std::int64_t total = 0;
  while (measure_distances()) {
    next_.assign(first_.begin(), first_.end() - 1);
    path_.clear();
    while (std::int64_t flow = push_path()) total += flow;
  }
  with_sink_.assign(at(vertices_), false);
  with_sink_[kSink] = true;
  std::vector<int> reached = {kSink};
  for (std::size_t i = 0; i < reached.size(); ++i) {
    int v = reached[i];
    for (int k = first_[at(v)]; k < first_[at(v) + 1]; ++k) {
      int back = leaving_[at(k)];
      int from = edges_[at(back)].to;
      if (edges_[at(back ^ 1)].left == 0 || with_sink_[at(from)]) continue;
      with_sink_[at(from)] = true;
      reached.push_back(from);
    }
  }
  return total;
}

}  // namespace graphsink
