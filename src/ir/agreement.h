// Agreement: the collectives of a plan, which all ranks of a group must have in common to run it together.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "graphsink/attrs.h"
#include "graphsink/error.h"
#include "graphsink/op.h"
#include "graphsink/type.h"

namespace graphsink {

// A collective of a plan.
struct CollectiveUse {
  const OpDef* op = nullptr;
  Attrs attrs;
  std::vector<TensorType> types;  // types of the inputs, then of the outputs
  Where where;
  int id = -1;              // number of the node in the user's graph
  bool is_in_body = false;  // in the body of a loop or branch
};

// Attributes of the node of OpTraits::agree: the collectives of the plan, in the order in which they run. The CPU body
// of the op has no output; input 0 is a copy of the step block where the target has memory of its own. A CUDA body has
// one output and no input: it gathers the step blocks of all ranks.
struct Agreement {
  std::vector<CollectiveUse> collectives;
  std::uint64_t mark = 0;  // AgreeOp::mark, of a plan that a program runs
};

// A program whose steps exchange values between ranks.
class RankUser {
 public:
  virtual ~RankUser() = default;
  // Waits until all steps that were given to the device have ended, on the thread that gave them to it.
  virtual void finish_steps() = 0;
};

// The groups of ranks of a plan, in which programs and calls take turns: exchanges have the order of the calls on the
// thread that uses a group. A program has its turn from its run until it was waited for. All of these throw Error for
// another thread.
class RankTurns {
 public:
  virtual ~RankTurns() = default;
  // The turn of `user` begins, when the steps of those before have ended.
  virtual void take(const std::shared_ptr<RankUser>& user, const Where& where) const = 0;
  // The host has waited for the steps of `user`. Never throws Error.
  virtual void leave(const RankUser& user) const = 0;
  // A call beside the steps of programs, when those before have ended: until its result is gone.
  virtual std::shared_ptr<const void> hold(const Where& where) const = 0;
};

struct GraphData;

// OpTraits::agree of all ops that run is one.
struct AgreeOp : OpDef {
  std::shared_ptr<const RankTurns> (*turns)(const Agreement& agreement, const Where& where) = nullptr;
  // Compares a plan of the graph with those of the other ranks, for which it waits, unless they have agreed on such a
  // plan before. Every rank calls it when it has bound the plan, or could not because of `failure`, else null. Throws
  // Error if a rank could not, or if the plans differ.
  void (*agree_on_plan)(const Agreement& agreement, const GraphData& graph, const Error* failure,
                        const Where& where) = nullptr;
  // By which steps of a plan of the graph are told from those of other plans: the same on all ranks that have agreed on
  // it. 0: they are not told apart.
  std::uint64_t (*mark)(const Agreement& agreement, const GraphData& graph) = nullptr;
};

// The other ranks hear what a rank is about to do, such as "run in mode sink for the first time", and a number.
struct RankVote {
  std::string doing;
  std::int64_t number = 0;
};

// The other ranks, for the program that exchanges values with them on a device: Prepared::data of the node of
// OpTraits::agree there, as a pointer to this.
class RankWait {
 public:
  virtual ~RankWait() = default;
  // Returns the votes of all ranks, in their order. All of them call it as often. Waits for them. Throws Error if one
  // does not come.
  virtual std::vector<RankVote> votes(const RankVote& mine) const = 0;
  // How long a step waits for the other ranks.
  virtual std::chrono::nanoseconds patience() const = 0;
  // For a thread that sees that a step has not ended in time. Its collectives end, with anything as their results.
  // `run`: how the program runs, for people, such as "in mode sink".
  virtual void give_up(const std::string& run) const = 0;
  // In host memory that the device can read: not 0 once give_up() was called, before the collectives end.
  virtual const std::uint32_t* given_up() const = 0;
  // Throws Error if a wait was given up: nobody knows what the other ranks have received.
  virtual void require_whole() const = 0;
};

}  // namespace graphsink
