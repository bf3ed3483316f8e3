// Groups that are parts of others.
#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "base/at.h"
#include "graphsink/ranks.h"
#include "ranks/nccl_comm.h"
#include "ranks/rank_group.h"

namespace graphsink {
namespace {

struct SplitChoice {
  int color = 0, key = 0;
};

}  // namespace

std::string RankGroup::suffix() const {
  if (origin_.whole == nullptr) return "";
  return " of the group of colour " + std::to_string(origin_.color) + origin_.whole->suffix();
}

std::shared_ptr<RankGroup> RankGroup::split(const std::shared_ptr<RankGroup>& whole, int color, int key,
                                            const Exchange& exchange) {
  // MPI would wait without end for a rank that does not come.
  const SplitChoice mine{color, key};
  std::vector<SplitChoice> choices;
  for (const std::string& text : whole->all_texts({reinterpret_cast<const char*>(&mine), sizeof mine}, exchange))
    std::memcpy(&choices.emplace_back(), text.data(), sizeof mine);
  std::vector<int> members;
  for (std::size_t rank = 0; rank < choices.size(); ++rank) {
    if (choices[rank].color < 0)
      throw Error(std::string(exchange.op), exchange.where,
                  "the colour of rank " + std::to_string(rank) + " is " + std::to_string(choices[rank].color),
                  "give one of at least 0; a rank that is to be in a group alone gives one that no other gives");
    if (choices[rank].color == color) members.push_back(static_cast<int>(rank));
  }
  std::stable_sort(members.begin(), members.end(),
                   [&](int a, int b) { return choices[at(a)].key < choices[at(b)].key; });
  return std::make_shared<RankGroup>(whole->backend_->split(color, key, members), whole->patience_s_,
                                     GroupOrigin{whole, whole->splits_++, color});
}

Comm Comm::split(int color, int key, Where where) const {
  const Comm part(RankGroup::split(group_, color, key, {"split", where}));
  part.group()->set_device(group_->device());
  if (const auto& nccl = group_->nccl()) add_nccl(*part.group(), nccl->api(), nccl->device(), where);
  return part;
}

}  // namespace graphsink
