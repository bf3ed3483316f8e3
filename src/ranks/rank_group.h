// RankGroup: the ranks behind a Comm.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/fork_mark.h"
#include "graphsink/error.h"
#include "ranks/rank_backend.h"
#include "ranks/rank_turn.h"

namespace graphsink {

class NcclComm;

// The caller of an exchange, for errors. `program` is the program in whose step it takes place; null: in no step.
// `has_turn`: it is a part of a call that has the turn in the group, and takes place on any thread. Steps are, too.
// `doing`: what the rank is about to do then; may be empty.
struct Exchange {
  std::string_view op;
  Where where;
  const void* program = nullptr;
  bool has_turn = false;
  std::string_view doing{};
};

class RankGroup;

// The group that a group is a part of. Groups whose origins are equal are one group, on different ranks.
struct GroupOrigin {
  std::shared_ptr<RankGroup> whole;  // null: the group was not made by Comm::split()
  int number = 0;                    // counts the splits of the whole, or the worlds of the process
  int color = 0;
};

// Exchanges wait for all ranks. They may be called on any thread, one at a time. Each throws Error if a rank does not
// come in time, or the backend fails, and from then on at once; and in the step of a program, for all but that program.
class RankGroup {
 public:
  RankGroup(std::unique_ptr<RankBackend> backend, double patience_s, GroupOrigin origin = {});
  ~RankGroup();
  RankGroup(const RankGroup&) = delete;
  RankGroup& operator=(const RankGroup&) = delete;

  int rank() const noexcept { return rank_; }
  int size() const noexcept { return size_; }
  // See RankBackend.
  int local_rank() const { return backend_->local_rank(); }
  const GroupOrigin& origin() const noexcept { return origin_; }
  // Which group it is, for errors: " of the group of colour 2"; empty if it was not made by Comm::split().
  std::string suffix() const;

  // See Comm::split().
  static std::shared_ptr<RankGroup> split(const std::shared_ptr<RankGroup>& whole, int color, int key,
                                          const Exchange& exchange);

  // These move elements, in memory of the caller's. If they throw, it must not be freed before the process ends,
  // because a rank that comes too late still writes there.
  void all_to_all(const void* in, void* out, std::size_t bytes, const Exchange& exchange);
  void all_gather(const void* in, void* out, std::size_t bytes, const Exchange& exchange);
  void broadcast(void* data, std::size_t bytes, int root, const Exchange& exchange);
  void send_receive(const void* in, int to, void* out, int from, std::size_t bytes, const Exchange& exchange);

  // The texts of all ranks, which may differ in length. Throws Error if another rank calls this for another op.
  std::vector<std::string> all_texts(std::string_view text, const Exchange& exchange);
  // The values of all ranks, until the next exchange. In a step.
  template <class T>
  std::span<const T> all_values(const T& mine, const Exchange& exchange) {
    static_assert(std::is_trivially_copyable_v<T>);
    gather({reinterpret_cast<const char*>(&mine), sizeof mine}, sizeof mine, exchange);
    static_assert(alignof(T) <= alignof(std::max_align_t));
    return {reinterpret_cast<const T*>(scratch_->all.data()), static_cast<std::size_t>(size_)};
  }
  // Gives all ranks the bytes of one, part by part.
  void broadcast_parts(void* data, std::size_t bytes, int root, const Exchange& exchange);

  // Who exchanges now. Programs take it, and so do exchanges in no step.
  RankTurn& turn() { return turn_; }
  // The program's step is over: another one may exchange.
  void end_step(const Exchange& exchange);

  // Moves values between GPUs; null: they cross the host. Set before the group is used by others.
  const std::shared_ptr<NcclComm>& nccl() const { return nccl_; }
  void set_nccl(std::shared_ptr<NcclComm> nccl) { nccl_ = std::move(nccl); }
  // See Comm::device().
  int device() const noexcept { return device_; }
  void set_device(int device) { device_ = device; }

  double patience_s() const noexcept { return patience_s_; }
  // Ends a wait of NCCL's, and all later ones, after `patience_s`. `waits_in` is where, for people. Any thread may call
  // it.
  void give_up_nccl(const std::string& waits_in);
  // Throws Error if a wait was given up.
  void require_whole(const Exchange& exchange);

  // Whether all ranks are known to have what the text describes.
  bool has_agreed_on(const std::string& text);
  void note_agreement(const std::string& text);
  // Whether the ranks have compared the values with which what the text describes begins in a graph, given by
  // GraphData::identity.
  bool has_compared(const std::weak_ptr<const void>& graph, const std::string& text);
  void note_compared(const std::weak_ptr<const void>& graph, const std::string& text);

  // How many exchanges this rank has begun so far, NCCL's not counted: for tests.
  std::int64_t exchanges();

 private:
  // Memory of the exchanges whose callers bring none. It outlives them if a rank does not come.
  struct Scratch {
    std::vector<std::byte> mine, all;
    Scratch* kept_before = nullptr;
  };
  // Those of groups that are gone and whose exchanges were given up: a rank that comes late still writes there. They
  // stay until the process ends, where a leak checker finds them.
  struct KeptScratch {
    std::atomic<Scratch*> last = nullptr;
  };

  template <class Begin>
  void wait(const Exchange& exchange, Begin&& begin);
  [[noreturn]] void give_up(const Exchange& exchange, std::string why);
  std::string waited_in(const std::string& mine);
  void gather(std::string_view mine, std::size_t bytes, const Exchange& exchange);
  void claim(const Exchange& exchange);
  // The turn of a call, if the exchange is one; else null.
  std::unique_ptr<RankTurn::Call> turn_of(const Exchange& exchange);

  std::unique_ptr<RankBackend> backend_;
  std::shared_ptr<NcclComm> nccl_;
  std::unique_ptr<Scratch> scratch_;
  int rank_, size_, device_ = -1;
  double patience_s_;
  GroupOrigin origin_;
  ForkMark fork_mark_;
  RankTurn turn_;
  std::mutex mutex_;
  int splits_ = 0;
  const void* program_ = nullptr;      // the one whose step exchanges values now
  std::optional<std::string> broken_;  // why no exchange is possible any more
  std::set<std::string> agreed_on_;
  std::map<std::weak_ptr<const void>, std::set<std::string>, std::owner_less<>> compared_;
  std::int64_t exchanges_ = 0;
};

}  // namespace graphsink
