// The part of a whole for which random ops draw that this thread builds.
#pragma once

#include <cstdint>
#include <tuple>

namespace graphsink {

// Where a tensor lies in the whole of which it is a part, as RandomPart says: the whole is divided along its first
// axis, and along another one if `parts` is not 1. One of the attributes of random ops.
struct PartOfWhole {
  std::int64_t first = 0;   // number of the part along the first axis
  std::int64_t axis = 0;    // the other axis
  std::int64_t number = 0;  // number of the part along it
  std::int64_t parts = 1;   // parts along it
  // Nodes in front of the op that one process, which has the whole, would not have. They do not count in the number of
  // the node, from which it draws.
  std::int64_t rank_nodes = 0;
  // The number from which the node `id` draws.
  std::uint32_t node(int id) const { return static_cast<std::uint32_t>(id) - static_cast<std::uint32_t>(rank_nodes); }
  static auto fields(auto& s) {
    return std::tie("first", s.first, "axis", s.axis, "number", s.number, "parts", s.parts, "rank_nodes", s.rank_nodes);
  }
};

// The part that the RandomParts of this thread name for a tensor with `rank` axes. `axis` is counted from the front,
// or, where the tensor has no such axis, as the user gave it.
PartOfWhole part_of_whole(int rank);

}  // namespace graphsink
