// RankBackend: what moves bytes between the ranks of a group.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "graphsink/error.h"

namespace graphsink {

// Exchanges of different kinds do not meet: a rank that compares texts does not take the elements of another for them.
enum class Channel { texts, elements };

// The functions that take a channel begin an exchange of all ranks and return at once; the memory is used until
// is_done() returns true. There is one exchange at a time. Throws Error where the exchange fails.
class RankBackend {
 public:
  virtual ~RankBackend() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  // The number of this rank on its machine, where whoever started it has said so; -1: nobody has.
  virtual int local_rank() const { return -1; }
  // Part n of `in`, of so many bytes each, goes to rank n, and `out` has the parts of all ranks in their order.
  virtual void all_to_all(Channel channel, const void* in, void* out, std::size_t bytes) = 0;
  // `out` has the `bytes` of all ranks, in their order.
  virtual void all_gather(Channel channel, const void* in, void* out, std::size_t bytes) = 0;
  virtual void broadcast(Channel channel, void* data, std::size_t bytes, int root) = 0;
  // Sends the bytes of `in` to rank `to`, and receives as many from rank `from`. Either may be -1, for none.
  virtual void send_receive(Channel channel, const void* in, int to, void* out, int from, std::size_t bytes) {
    (void)channel, (void)in, (void)to, (void)out, (void)from, (void)bytes;
    throw Error("send_receive", Where(), "ranks of this kind of Comm cannot send to single ones",
                "use a Comm of world()", ErrorCode::unavailable);
  }
  virtual bool is_done() = 0;
  // Nobody will wait for the exchange any more, nor end it in order. Tells that to the other ranks in a few words, and
  // waits so many seconds at most for theirs. Returns what each said so far: nothing from this one, and from those that
  // do not wait.
  virtual std::vector<std::optional<std::string>> give_up(const std::string& words, double seconds) = 0;
  // Whether a wait was given up, in this group or in another one of the process: what waits for ranks need not end.
  virtual bool has_given_up() const { return false; }
  // Returns the group of the ranks that give the colour of this one, ordered by their keys, then by their ranks:
  // `members`. All ranks call it, when all have come: it may wait for them without end.
  virtual std::unique_ptr<RankBackend> split(int color, int key, const std::vector<int>& members) {
    (void)color, (void)key, (void)members;
    throw Error("split", Where(), "this kind of Comm cannot be divided into groups", "split a Comm of world()",
                ErrorCode::unavailable);
  }
};

}  // namespace graphsink
