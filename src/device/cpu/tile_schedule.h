// How the workers of a CPU device share a captured graph: decided once, when the graph is captured.
//
// The items of the graph are put into phases, in their order. All items of a phase are independent of each other. Each
// worker has a fixed list of tiles in each phase, and the workers meet between phases (static scheduling of tiles over
// all workers as in Ma et al. 2020, "Rammer: Enabling Holistic Deep Learning Compiler Optimizations with rTasks").
// What is too small to be shared is left to worker 0, without a meeting. Tiles do not depend on the number of workers,
// so results do not, either.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "device/cpu/captured.h"
#include "device/cpu/workers.h"

namespace graphsink {

class TileSchedule {
 public:
  // The items must exist as long as the schedule. `least_saving`: see is_worth_sharing().
  TileSchedule(const CpuItems& items, int workers, double least_saving);

  // Items in phases. If there are none, run_items() does the same.
  int items_shared() const { return items_shared_; }
  // Called by each of the workers, inside of Workers::run().
  void run(int worker, Workers& workers) const;
  std::size_t bytes() const;

 private:
  // Tiles [first, end) of an item.
  struct Share {
    const CpuCapturedItem* item;
    std::int64_t first, end;
  };
  struct Entry {
    enum class Kind : std::uint8_t {
      alone,    // worker 0 runs the items [first, end)
      phase,    // each worker runs its shares
      join,     // worker 0 joins what the tiles of the items [first, end) left, where there is something to join
      control,  // item `first`, of which all workers run the body that is chosen
    } kind = Kind::alone;
    std::size_t first = 0, end = 0;
    bool meets_first = false;                // of a phase: something before it is not known to be complete
    std::vector<std::vector<Share>> shares;  // of a phase, by worker
    std::vector<std::unique_ptr<TileSchedule>> bodies;
  };

  void add_phase(std::size_t first, std::size_t end);
  void add_alone(std::size_t first, std::size_t end);
  void add_control(std::size_t item);

  const CpuItems& items_;
  const int workers_;
  const double least_saving_;
  std::vector<Entry> entries_;
  int items_shared_ = 0;
};

}  // namespace graphsink
