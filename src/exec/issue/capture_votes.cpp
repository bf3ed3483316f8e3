#include "exec/issue/capture_votes.h"

#include <algorithm>
#include <string>
#include <vector>

namespace graphsink {

std::int64_t CaptureVotes::least(std::int64_t steps, std::int64_t mine) const {
  const std::vector<std::string> all = ranks_.about_capture(std::to_string(steps) + " " + std::to_string(mine));
  std::int64_t result = mine;
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    std::size_t end = 0;
    const std::int64_t of_rank = std::stoll(all[rank], &end), of_first = std::stoll(all[0]);
    if (of_rank != of_first)
      throw Error("run", Where(),
                  "rank 0 is about to make a launch of " + std::to_string(of_first) + " steps, and rank " +
                      std::to_string(rank) + " one of " + std::to_string(of_rank),
                  "let all ranks run as many steps in each run()");
    result = std::min<std::int64_t>(result, std::stoll(all[rank].substr(end)));
  }
  return result;
}

CaptureFailed CaptureVotes::refused() {
  return {"capture", Where(), "another rank could not capture its step", "see what that rank logs"};
}

}  // namespace graphsink
