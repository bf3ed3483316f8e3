#include "ranks/voters.h"

#include <algorithm>
#include <utility>

#include "ranks/collective.h"

namespace graphsink {
namespace {

// The group itself behind all of which it is a part, the largest first.
std::vector<RankGroup*> wholes_of(RankGroup* group) {
  std::vector<RankGroup*> all;
  for (; group != nullptr; group = group->origin().whole.get()) all.insert(all.begin(), group);
  return all;
}

// Numbers that are equal on all ranks of the group, and differ from those of other groups.
std::vector<std::int64_t> path_of(RankGroup* group) {
  const std::vector<RankGroup*> wholes = wholes_of(group);
  std::vector<std::int64_t> path{wholes[0]->origin().number};
  for (std::size_t i = 1; i < wholes.size(); ++i) {
    path.push_back(wholes[i]->origin().number);
    path.push_back(wholes[i]->origin().color);
  }
  return path;
}

void add_once(std::vector<RankGroup*>& all, RankGroup* group) {
  if (std::find(all.begin(), all.end(), group) == all.end()) all.push_back(group);
}

}  // namespace

std::string name_of(const RankGroup& group) {
  std::string name = std::to_string(group.size()) + " ranks";
  const GroupOrigin* from = &group.origin();
  for (; from->whole != nullptr; from = &from->whole->origin())
    name += " of the group of colour " + std::to_string(from->color) + " of split " + std::to_string(from->number);
  return name + " of world " + std::to_string(from->number);
}

Voters voters_of(const Agreement& agreement, const Where& where) {
  Voters voters;
  for (const CollectiveUse& use : agreement.collectives)
    add_once(voters.groups, use.attrs.as<CollectiveAttrs>().group.get());
  std::vector<RankGroup*> roots, common = wholes_of(voters.groups.front());
  for (RankGroup* group : voters.groups) {
    const std::vector<RankGroup*> wholes = wholes_of(group);
    add_once(roots, wholes.front());
    const auto end = std::mismatch(common.begin(), common.end(), wholes.begin(), wholes.end()).first;
    common.erase(end, common.end());
  }
  const auto has_other_size = [&](RankGroup* root) { return root->size() != roots.front()->size(); };
  if (common.empty() && std::any_of(roots.begin(), roots.end(), has_other_size))
    throw Error("bind", where, "the collectives of a step use groups that are not parts of one group of ranks",
                "make all groups by split() of one Comm");
  // Different Comms of world() have the same ranks.
  std::sort(roots.begin(), roots.end(),
            [](RankGroup* a, RankGroup* b) { return a->origin().number < b->origin().number; });
  voters.all = common.empty() ? roots.front() : common.back();
  std::stable_sort(voters.groups.begin(), voters.groups.end(),
                   [&](RankGroup* a, RankGroup* b) { return path_of(a) < path_of(b); });
  return voters;
}

}  // namespace graphsink
