// Groups that are parts of others.
#include <string>
#include <utility>

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
  if (color < 0)
    throw Error(std::string(exchange.op), exchange.where, "the colour is " + std::to_string(color),
                "give one of at least 0; a rank that is to be in a group alone gives one that no other gives");
  // MPI would wait without end for a rank that does not come.
  whole->all_texts("", exchange);
  return std::make_shared<RankGroup>(whole->backend_->split(color, key), whole->patience_s_,
                                     GroupOrigin{whole, whole->splits_++, color});
}

Comm Comm::split(int color, int key, Where where) const {
  const Comm part(RankGroup::split(group_, color, key, {"split", where}));
  if (const auto& nccl = group_->nccl()) add_nccl(*part.group(), nccl->api(), nccl->device(), where);
  return part;
}

}  // namespace graphsink
