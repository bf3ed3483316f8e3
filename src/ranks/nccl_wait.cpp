// How long the collectives of a step on a device wait for the other ranks.
#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "ranks/collective.h"
#include "ranks/nccl_comm.h"

namespace graphsink {
namespace {

class NcclWait : public RankWait {
 public:
  NcclWait(const Agreement& agreement, const Voters& voters)
      : agreement_(agreement), all_(*voters.all), groups_(voters.groups) {
    std::erase(groups_, &all_);
    groups_.insert(groups_.begin(), &all_);
    for (const RankGroup* group : groups_) patience_s_ = std::min(patience_s_, group->patience_s());
    const std::string place = to_string(first().where);
    step_ = "the collectives of a step, " + std::string(first().op->name) + (place.empty() ? "" : " (" + place + ")");
    const std::size_t more = agreement.collectives.size() - 1;
    if (more > 0) step_ += " and " + std::to_string(more) + (more == 1 ? " further one" : " further ones");
  }

  // A vote is sent as its number and what the rank does, with a blank between them.
  std::vector<RankVote> votes(const RankVote& mine) const override {
    std::vector<RankVote> votes;
    const Exchange exchange{"run", first().where, nullptr, true, mine.doing};
    for (const std::string& text : all_.all_texts(std::to_string(mine.number) + " " + mine.doing, exchange))
      votes.push_back({text.substr(text.find(' ') + 1), std::stoll(text)});
    return votes;
  }
  std::chrono::nanoseconds patience() const override {
    return std::chrono::nanoseconds(static_cast<std::int64_t>(patience_s_ * 1e9));
  }
  void give_up(const std::string& run) const override {
    for (RankGroup* group : groups_)
      if (const auto& nccl = group->nccl()) nccl->give_up();
    const std::string waits_in = step_ + (run.empty() ? "" : ", " + run);
    // First the group that agrees on the step, so that what the others have left undone is not committed.
    for (RankGroup* group : groups_) group->give_up_nccl(waits_in);
  }
  const std::uint32_t* given_up() const override { return comm().given_up(); }
  const NcclComm& comm() const { return *all_.nccl(); }
  std::vector<const NcclComm*> further_comms() const {
    std::vector<const NcclComm*> comms;
    for (const RankGroup* group : groups_)
      if (group != &all_) comms.push_back(group->nccl().get());
    return comms;
  }
  void require_whole() const override {
    for (RankGroup* group : groups_) group->require_whole({first().op->name, first().where});
  }

 private:
  const CollectiveUse& first() const { return agreement_.collectives.front(); }

  const Agreement agreement_;  // keeps the groups
  RankGroup& all_;
  std::vector<RankGroup*> groups_;
  double patience_s_ = 1e9;  // seconds, the least of the groups
  std::string step_;
};

}  // namespace

std::shared_ptr<const RankWait> nccl_wait(const Agreement& agreement, const Voters& voters) {
  return std::make_shared<NcclWait>(agreement, voters);
}

const NcclComm& comm_of(const RankWait& wait) { return static_cast<const NcclWait&>(wait).comm(); }
std::vector<const NcclComm*> further_comms_of(const RankWait& wait) {
  return static_cast<const NcclWait&>(wait).further_comms();
}

}  // namespace graphsink
