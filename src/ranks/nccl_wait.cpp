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
  explicit NcclWait(const Agreement& agreement) : first_(agreement.collectives.front()) {
    for (const CollectiveUse& use : agreement.collectives) {
      const auto& group = use.attrs.as<CollectiveAttrs>().group;
      if (std::find(groups_.begin(), groups_.end(), group) == groups_.end()) groups_.push_back(group);
      patience_s_ = std::min(patience_s_, group->patience_s());
    }
    const std::string place = to_string(first_.where);
    step_ = std::string(first_.op->name) + (place.empty() ? "" : " (" + place + ")");
    const std::size_t more = agreement.collectives.size() - 1;
    if (more > 0) step_ += " and " + std::to_string(more) + (more == 1 ? " further one" : " further ones");
  }

  bool have_captured(bool has_captured) const override {
    const std::vector<std::string> all = groups_[0]->all_texts(has_captured ? "1" : "0", {"capture", first_.where});
    return std::find(all.begin(), all.end(), "0") == all.end();
  }
  std::chrono::nanoseconds patience() const override {
    return std::chrono::nanoseconds(static_cast<std::int64_t>(patience_s_ * 1e9));
  }
  void give_up() const override {
    for (const auto& group : groups_)
      group->give_up_nccl("rank " + std::to_string(group->rank()) + " of " + std::to_string(group->size()) +
                          " has waited " + std::to_string(static_cast<std::int64_t>(patience_s_ * 1000)) +
                          " ms in the collectives of a step, " + step_ +
                          ", for a rank that did not come: it has ended, hangs, or is at another collective");
  }
  void require_whole() const override {
    for (const auto& group : groups_) group->require_whole({first_.op->name, first_.where});
  }

 private:
  const CollectiveUse first_;
  std::vector<std::shared_ptr<RankGroup>> groups_;
  double patience_s_ = 1e9;  // seconds, the least of the groups
  std::string step_;
};

}  // namespace

std::shared_ptr<const RankWait> nccl_wait(const Agreement& agreement) { return std::make_shared<NcclWait>(agreement); }

}  // namespace graphsink
