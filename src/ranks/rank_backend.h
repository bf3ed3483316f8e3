// RankBackend: what moves bytes between the ranks of a group.
#pragma once

#include <cstddef>

namespace graphsink {

// Each function but the first two begins an exchange of all ranks and returns at once; the memory is used until
// is_done() returns true. There is one exchange at a time. Throws Error where the exchange is refused.
class RankBackend {
 public:
  virtual ~RankBackend() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  // Part n of `in`, of so many bytes each, goes to rank n, and `out` has the parts of all ranks in their order.
  virtual void all_to_all(const void* in, void* out, std::size_t bytes) = 0;
  // `out` has the `bytes` of all ranks, in their order.
  virtual void all_gather(const void* in, void* out, std::size_t bytes) = 0;
  virtual void broadcast(void* data, std::size_t bytes, int root) = 0;
  virtual bool is_done() = 0;
};

}  // namespace graphsink
