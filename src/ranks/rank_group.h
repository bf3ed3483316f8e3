// RankGroup: the ranks behind a Comm.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "graphsink/error.h"
#include "ranks/rank_backend.h"

namespace graphsink {

// The caller of an exchange, for errors.
struct Exchange {
  std::string_view op;
  Where where;
};

// Exchanges wait for all ranks. They may be called on any thread, one at a time. Each throws Error if a rank does not
// come in time, and from then on at once.
class RankGroup {
 public:
  RankGroup(std::unique_ptr<RankBackend> backend, double patience_s);

  int rank() const noexcept { return rank_; }
  int size() const noexcept { return size_; }

  void all_to_all(const void* in, void* out, std::size_t bytes, const Exchange& exchange);
  void all_gather(const void* in, void* out, std::size_t bytes, const Exchange& exchange);
  void broadcast(void* data, std::size_t bytes, int root, const Exchange& exchange);

  // The texts of all ranks, which may differ in length.
  std::vector<std::string> all_texts(const std::string& text, const Exchange& exchange);

 private:
  template <class Begin>
  void wait(const Exchange& exchange, Begin&& begin);

  std::unique_ptr<RankBackend> backend_;
  int rank_, size_;
  double patience_s_;
  std::mutex mutex_;
  std::optional<std::string> broken_;  // why no exchange is possible any more
};

}  // namespace graphsink
