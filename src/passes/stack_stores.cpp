#include "passes/stack_stores.h"

#include <algorithm>
#include <map>

#include "base/at.h"

namespace graphsink {

std::vector<StackStore> stores_of(const PlannerIr& ir, int loop) {
  const IrRegion& body = ir.regions[at(ir.nodes[at(loop)].bodies[0])];
  std::map<int, int> positions;
  for (std::size_t p = 0; p < body.nodes.size(); ++p) positions[body.nodes[p]] = static_cast<int>(p);
  // -1 for the state, and for what comes from outside.
  auto position_of = [&](ValueRef v) {
    const auto found = positions.find(v.node);
    return found == positions.end() || is_source(*ir.node(v).op) ? -1 : found->second;
  };
  std::vector<StackStore> early, late;
  for (const IrStacked& stacked : body.stacked) {
    const int position = position_of(stacked.value);
    std::vector<StackStore>& stores = position < 0 ? early : late;
    auto store = std::find_if(stores.begin(), stores.end(), [&](auto& other) { return other.place == stacked.place; });
    if (store == stores.end()) store = stores.insert(store, {stacked.place, {}, {}, position_of(stacked.place)});
    store->values.push_back(stacked.value);
    store->stacks.push_back({loop, stacked.output});
    store->position = std::max(store->position, position);
  }
  early.insert(early.end(), late.begin(), late.end());
  return early;
}

}  // namespace graphsink
