// Groups that are parts of others.
#include <string>
#include <utility>
#include <vector>

#include "graphsink/ranks.h"
#include "ranks/nccl_comm.h"
#include "ranks/rank_group.h"

namespace graphsink {

std::string RankGroup::suffix() const {
  if (origin_.whole == nullptr) return "";
  return " of the group of colour " + std::to_string(origin_.color) + origin_.whole->suffix();
}

std::shared_ptr<RankGroup> RankGroup::split(const std::shared_ptr<RankGroup>& whole, int color, int key,
                                            const Exchange& exchange) {
  // MPI would wait without end for a rank that does not come.
  const std::vector<std::string> colors = whole->all_texts(std::to_string(color), exchange);
  for (std::size_t rank = 0; rank < colors.size(); ++rank)
    if (colors[rank].starts_with('-'))
      throw Error(std::string(exchange.op), exchange.where,
                  "the colour of rank " + std::to_string(rank) + " is " + colors[rank],
                  "give one of at least 0; a rank that is to be in a group alone gives one that no other gives");
  return std::make_shared<RankGroup>(whole->backend_->split(color, key), whole->patience_s_,
                                     GroupOrigin{whole, whole->splits_++, color});
}

Comm Comm::split(int color, int key, Where where) const {
  const Comm part(RankGroup::split(group_, color, key, {"split", where}));
  part.group()->set_device(group_->device());
  if (const auto& nccl = group_->nccl()) add_nccl(*part.group(), nccl->api(), nccl->device(), where);
  return part;
}

}  // namespace graphsink
