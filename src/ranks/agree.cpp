// How the ranks of a group agree on each step, before it commits, and take turns.
#include <algorithm>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/at.h"
#include "ir/agreement.h"
#include "ir/step_state.h"
#include "ranks/collective.h"
#include "ranks/nccl_comm.h"
#include "ranks/voters.h"

namespace graphsink {
namespace {

// Node-local data of the CPU body.
struct VotersOfPlan : Voters {
  std::uint64_t mark = 0;  // Agreement::mark
};

// On a device, the node-local data are what waits for the other ranks.
Prepared prepare_agree(const PrepareArgs& p) {
  const auto& agreement = p.attrs.as<Agreement>();
  VotersOfPlan voters{voters_of(agreement, p.where)};
  if (p.cuda) return {nccl_wait(agreement, voters), 0};
  voters.mark = agreement.mark;
  return {std::make_shared<const VotersOfPlan>(std::move(voters)), 0};
}

// --- turns

class TurnsOfGroups : public RankTurns {
 public:
  TurnsOfGroups(const Agreement& agreement, const Where& where) : agreement_(agreement) {
    const Voters voters = voters_of(agreement_, where);
    groups_ = voters.groups;
    if (std::find(groups_.begin(), groups_.end(), voters.all) == groups_.end()) groups_.push_back(voters.all);
  }

  void take(const std::shared_ptr<RankUser>& user, const Where& where) const override {
    std::vector<RankGroup*> taken;
    try {
      for (RankGroup* group : groups_)
        if (group->turn().take(user, "run", where)) taken.push_back(group);
    } catch (...) {
      for (RankGroup* group : taken) group->turn().leave(*user);
      throw;
    }
  }
  void leave(const RankUser& user) const override {
    for (RankGroup* group : groups_) group->turn().leave(user);
  }
  std::shared_ptr<const void> hold(const Where& where) const override {
    auto calls = std::make_shared<std::vector<std::unique_ptr<RankTurn::Call>>>();
    for (RankGroup* group : groups_)
      calls->push_back(std::make_unique<RankTurn::Call>(group->turn(), agreement_.collectives.front().op->name, where));
    return calls;
  }

 private:
  const Agreement agreement_;  // keeps the groups
  std::vector<RankGroup*> groups_;
};

std::shared_ptr<const RankTurns> turns_of(const Agreement& agreement, const Where& where) {
  return std::make_shared<TurnsOfGroups>(agreement, where);
}

// --- steps

const StepState& step_of(const BodyArgs& a) {
  return a.inputs() > 0 ? *a.in<StepState>(0) : *static_cast<const StepState*>(a.step());
}

// Why the step failed on this rank; empty if it did not.
std::optional<std::string> failure(const BodyArgs& a) {
  const HostStatus& host = *bound_node(a).status;
  const StepState& step = step_of(a);
  if (host.failed != 0) return host.what.problem;
  if (step.ok != 0) return {};
  return step.error == StepError::unknown ? "an op failed" : to_string(step.error, step.error_index);
}

// Leaves the groups of a step to other programs.
struct EndOfStep {
  const Voters& voters;
  const Exchange& exchange;
  ~EndOfStep() {
    voters.all->end_step(exchange);
    for (RankGroup* group : voters.groups) group->end_step(exchange);
  }
};

// On a device: the step blocks of all ranks.
void infer_agree(InferArgs& a) {
  const Voters voters = voters_of(a.attrs<Agreement>(), Where());
  a.out(DType::u8, {voters.all->size() * static_cast<std::int64_t>(sizeof(StepState))});
}

// How the step stands on a rank.
struct Standing {
  std::uint64_t mark = 0;  // see VotersOfPlan
  std::int32_t step = 0;   // number of the step
  bool failed = false, stops = false;
  std::uint16_t unused = 0;  // so that all bytes are values
};
static_assert(std::has_unique_object_representations_v<Standing>);

// Throws Error if the rank, which has not failed, does not stand as this one. `mark`: the first one of a rank that has
// one.
void require_same(const Standing& mine, const Standing& theirs, int rank, std::uint64_t mark) {
  if (theirs.mark != 0 && theirs.mark != (mine.mark != 0 ? mine.mark : mark))
    throw Error("agree", Where(),
                "rank " + std::to_string(rank) +
                    " runs another program, or one of other sizes, and what they exchanged was mixed",
                "run the same programs in the same order on all ranks");
  if (theirs.step != mine.step)
    throw Error("agree", Where(), to_string(StepError::other_step, step_of_rank(rank, theirs.step)), kStepOfRankRemedy);
  if (theirs.stops != mine.stops)
    throw Error("agree", Where(), to_string(StepError::other_stop, stop_of_rank(rank, mine.stops)), kStopOfRankRemedy);
}

// Fails the step if it has failed on another rank, if that is in another one, or if the run stops behind it on some
// ranks alone.
void agree_body(const CpuArgs& a) {
  if (is_dead(a)) return;
  const auto& voters = a.local<VotersOfPlan>();
  RankGroup& group = *voters.all;
  const Exchange exchange = exchange_of(a);
  const EndOfStep end{voters, exchange};
  const std::optional<std::string> failed = failure(a);
  const StepState& step = step_of(a);
  const Standing mine{voters.mark, step.step, failed.has_value(), step.stops};
  const std::span<const Standing> ranks = group.all_values(mine, exchange);
  const auto bad = std::find_if(ranks.begin(), ranks.end(), [](const Standing& rank) { return rank.failed; });
  const auto number = bad - ranks.begin();
  if (bad == ranks.end()) {
    const auto marked = std::find_if(ranks.begin(), ranks.end(), [](const Standing& rank) { return rank.mark != 0; });
    const std::uint64_t mark = marked == ranks.end() ? 0 : marked->mark;
    for (std::size_t rank = 0; rank < ranks.size(); ++rank)
      require_same(mine, ranks[rank], static_cast<int>(rank), mark);
    return;
  }
  const std::vector<std::string> all = group.all_texts(failed.value_or(""), exchange);
  if (failed) return;  // the Error of a rank that failed says why
  throw Error("agree", Where(),
              "the step failed on rank " + std::to_string(number) + group.suffix() + ": " +
                  all[static_cast<std::size_t>(number)],
              "see the Error of that rank");
}

}  // namespace

void compare_calls(const BodyArgs& a) {
  const Exchange exchange = exchange_of(a);
  if (exchange.program != nullptr) return;
  const BoundNode& node = bound_node(a);
  const std::string mine =
      described(node.op->name, a.attrs<CollectiveAttrs>(), std::span(node.types, at(node.inputs + node.outputs)));
  const std::vector<std::string> all =
      a.attrs<CollectiveAttrs>().group->all_texts(mine, {"a collective of an Eager", exchange.where, nullptr, true});
  for (std::size_t rank = 1; rank < all.size(); ++rank)
    if (all[rank] != all[0])
      throw Error(std::string(exchange.op), exchange.where,
                  "rank 0 has called " + all[0] + ", and rank " + std::to_string(rank) + " " + all[rank],
                  "call the same collectives in the same order on all ranks, with data of the same types");
}

const AgreeOp agree_op{{.name = "agree",
                        .infer = infer_agree,
                        .traits = {.host_effect = true, .call_cost = "a wait for all ranks"},
                        .prepare = prepare_agree,
#ifdef GRAPHSINK_CUDA
                        .bodies = {agree_body, nccl_agree}},
#else
                        .bodies = {agree_body}},
#endif
                       turns_of,
                       agree_on_plan,
                       mark_of_plan};

}  // namespace graphsink
