#include "exec/issue/capture_votes.h"

#include <algorithm>
#include <string>
#include <vector>

namespace graphsink {

std::vector<RankVote> CaptureVotes::equal(const RankVote& mine) const {
  std::vector<RankVote> all = ranks_.votes(mine);
  for (std::size_t rank = 1; rank < all.size(); ++rank)
    if (all[rank].doing != all[0].doing)
      throw Error(
          "run", Where(),
          "rank 0 is about to " + all[0].doing + ", and rank " + std::to_string(rank) + " to " + all[rank].doing,
          "let all ranks make the same runs, of as many steps, in the same modes, and meet new input shapes in "
          "the same ones");
  return all;
}

void CaptureVotes::begin_mode() const {
  (void)equal({"run in mode " + std::string(to_string(mode_)) + " for the first time"});
}

std::int64_t CaptureVotes::least(std::int64_t steps, std::int64_t mine) const {
  const std::string launch = steps == 1 ? "a launch of a step" : "a launch of " + std::to_string(steps) + " steps";
  const std::vector<RankVote> all = equal({"make " + launch + " in mode " + std::string(to_string(mode_)), mine});
  for (const RankVote& vote : all) mine = std::min(mine, vote.number);
  return mine;
}

CaptureFailed CaptureVotes::refused() {
  return {"capture", Where(), "another rank could not capture its step", "see what that rank logs"};
}

}  // namespace graphsink
