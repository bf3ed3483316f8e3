// How the ranks of a group agree: on what a plan does, when all have bound it, and on each step, before it commits.
#include <algorithm>
#include <optional>
#include <string>
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

// --- plans

std::string_view name_of(Reduction reduction) {
  return reduction == Reduction::sum ? "sum" : reduction == Reduction::mean ? "mean" : "max";
}

}  // namespace

std::string described(std::string_view op, const CollectiveAttrs& attrs, std::span<const TensorType> types) {
  std::string text =
      std::string(op) + " (" + std::string(name_of(attrs.reduction)) + ", root " + std::to_string(attrs.root);
  if (!attrs.sources.empty()) text += ", sources";
  for (const int source : attrs.sources) text += " " + std::to_string(source);
  text += ") of";
  for (const TensorType& type : types) text += " " + to_string(type);
  return text;
}

namespace {

struct Line {
  std::string what;   // must be equal on all ranks
  std::string place;  // for people
};

// Which ranks agree on the steps, then the collectives of a group, one to a line, with its place behind a tab.
std::string text_of(const Agreement& agreement, const RankGroup& group, const Voters& voters) {
  std::string text = name_of(*voters.all) + "\t\n";
  for (const CollectiveUse& use : agreement.collectives) {
    const auto& attrs = use.attrs.as<CollectiveAttrs>();
    if (attrs.group.get() != &group) continue;
    text += described(use.op->name, attrs, use.types);
    if (use.is_in_body) text += " in a loop or branch";
    text += "\t" + to_string(use.where) + "\n";
  }
  return text;
}

std::vector<Line> lines_of(const std::string& text) {
  std::vector<Line> lines;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t tab = text.find('\t', at), end = text.find('\n', tab);
    lines.push_back({text.substr(at, tab - at), text.substr(tab + 1, end - tab - 1)});
    at = end + 1;
  }
  return lines;
}

std::string described(const std::vector<Line>& lines, std::size_t number) {
  if (number >= lines.size()) return "no further one";
  const Line& line = lines[number];
  return line.what + (line.place.empty() ? "" : " (" + line.place + ")");
}

// The first difference between two ranks; empty if there is none.
std::string difference(const std::vector<Line>& first, const std::vector<Line>& other, const std::string& rank) {
  for (std::size_t i = 1; i < std::max(first.size(), other.size()); ++i)
    if (i >= first.size() || i >= other.size() || first[i].what != other[i].what)
      return "number " + std::to_string(i - 1) + " of rank 0 is " + described(first, i) + ", that of rank " + rank +
             " is " + described(other, i);
  if (first[0].what == other[0].what) return "";
  return "rank 0 agrees on steps with " + first[0].what + ", and rank " + rank + " with " + other[0].what +
         ", because their plans have collectives of other groups, too";
}

// The same for all ranks, each of which gets the same.
std::string difference(const std::vector<std::string>& texts) {
  const std::vector<Line> first = lines_of(texts[0]);
  std::string found;
  for (std::size_t rank = 1; rank < texts.size() && found.empty(); ++rank)
    found = difference(first, lines_of(texts[rank]), std::to_string(rank));
  return found;
}

// A rank that could not bind its plan, as the ranks of a group tell each other: a digit for the ErrorCode, then the
// problem. Empty if all could.
std::string unbound_text(const Error& failure, const RankGroup& group) {
  return std::to_string(static_cast<int>(failure.code())) + "rank " + std::to_string(group.rank()) + group.suffix() +
         " cannot bind its plan: " + failure.op() + ": " + failure.problem();
}

[[noreturn]] void throw_unbound(const std::string& text, const Where& where) {
  throw Error("bind", where, text.substr(1), "see the Error of that rank", static_cast<ErrorCode>(text[0] - '0'));
}

// The first such text of a group; the same for all of its ranks.
std::string first_unbound(RankGroup& group, const std::string& mine, const Where& where) {
  const std::vector<std::string> texts = group.all_texts(mine, {"bind", where});
  const auto found = std::find_if(texts.begin(), texts.end(), [](const std::string& text) { return !text.empty(); });
  return found == texts.end() ? "" : *found;
}

// The ranks of each group tell each other whether their plan is bound, and compare their collectives, for a plan on
// which they have not agreed before: a rank may bind such a plan again whenever it likes. This is done in all groups
// before a rank throws, so that none waits for it, and so that a group hears of failures in those before it.
void agree_on_plan(const Agreement& agreement, const Error* failure, const Where& where) {
  const Voters voters = voters_of(agreement, where);
  std::string unbound, problem;
  for (RankGroup* group : voters.groups) {
    const std::string mine = text_of(agreement, *group, voters);
    if (group->has_agreed_on(mine)) continue;
    if (failure != nullptr && unbound.empty()) unbound = unbound_text(*failure, *group);
    unbound = first_unbound(*group, unbound, where);
    if (!unbound.empty()) continue;
    const std::string found = difference(group->all_texts(mine, {"bind", where}));
    if (found.empty()) {
      group->note_agreement(mine);
    } else if (problem.empty()) {
      problem = "the ranks" + group->suffix() + " have different collectives: " + found;
    }
  }
  if (!unbound.empty()) throw_unbound(unbound, where);
  if (problem.empty()) return;
  throw Error(
      "bind", where, problem,
      "build the same collectives in the same order on all ranks, of equal groups, and write data of the same sizes");
}

Prepared prepare_agree(const PrepareArgs& p) {
  const auto& agreement = p.attrs.as<Agreement>();
  auto voters = std::make_shared<const Voters>(voters_of(agreement, p.where));
  if (p.cuda) return {nccl_wait(agreement, *voters), 0};
  return {std::move(voters), 0};
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
constexpr char kFailed = 'f', kStops = 's', kGoesOn = '-';

// Fails the step if it has failed on another rank, or if the run stops behind it on some ranks alone.
void agree_body(const CpuArgs& a) {
  if (is_dead(a)) return;
  const auto& voters = a.local<Voters>();
  RankGroup& group = *voters.all;
  const Exchange exchange = exchange_of(a);
  const EndOfStep end{voters, exchange};
  const std::optional<std::string> mine = failure(a);
  const char stands = mine ? kFailed : step_of(a).stops ? kStops : kGoesOn;
  const std::string ranks = group.all_letters(stands, exchange);
  const std::size_t bad = ranks.find(kFailed), other = ranks.find_first_not_of(stands);
  if (other == std::string::npos && stands != kFailed) return;
  if (bad == std::string::npos)
    throw Error("agree", Where(),
                to_string(StepError::other_stop, stop_of_rank(static_cast<int>(other), stands == kStops)),
                kStopOfRankRemedy);
  const std::vector<std::string> all = group.all_texts(mine.value_or(""), exchange);
  if (mine) return;  // the Error of a rank that failed says why
  throw Error("agree", Where(), "the step failed on rank " + std::to_string(bad) + group.suffix() + ": " + all[bad],
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
                       agree_on_plan};

}  // namespace graphsink
