// How the workers of a CPU device share a captured graph: decided once, when the graph is captured.
//
// The items of the graph are put into phases, in their order. All items of a phase are independent of each other. Each
// worker has a fixed list of tiles in each phase, and the workers meet between phases (static scheduling of tiles over
// all workers as in Ma et al. 2020, "Rammer: Enabling Holistic Deep Learning Compiler Optimizations with rTasks"). Work
// that is too small to be shared is left to worker 0, without a meeting. Tiles do not depend on the number of workers,
// so results do not, either.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "device/cpu/captured.h"
#include "device/cpu/loop_choice.h"
#include "device/cpu/workers.h"

namespace graphsink {

class TileSchedule {
 public:
  // Rule of sharing: work is shared if that saves at least `least_saving` ns, see is_worth_sharing(). Iterations of a
  // loop are shared by the least saving of `in_loops` that is the fastest, or are left to worker 0. Loops in loops, and
  // all loops if `in_loops` is empty, use the least saving around them.
  struct Sharing {
    double least_saving;
    std::vector<double> in_loops{};
  };

  // The items must exist as long as the schedule.
  TileSchedule(const CpuItems& items, int workers, const Sharing& sharing);

  // Items in phases, as far as the first way of each loop. If there are none, run_items() does the same.
  int items_shared() const { return items_shared_; }
  // Called by each of the workers, inside of Workers::run(); one run at a time.
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
    // For a phase: whether workers meet first, because something before it is not known to be complete.
    bool meets_first = false;
    // For a phase: its shares, by worker.
    std::vector<std::vector<Share>> shares;
    // For control: schedules of its bodies; for a loop with a choice, schedules of its one body, by way.
    std::vector<std::unique_ptr<TileSchedule>> bodies;
    std::unique_ptr<LoopChoice> choice{};  // for worker 0; the last way is that it runs the body alone
  };

  void add_phase(std::size_t first, std::size_t end);
  void add_alone(std::size_t first, std::size_t end);
  void add_control(std::size_t item);
  void run_phase(const Entry& phase, int worker, Workers& workers) const;
  void run_control(const Entry& control, int worker, Workers& workers) const;
  void run_loop(const Entry& loop, int worker, Workers& workers) const;

  const CpuItems& items_;
  const int workers_;
  const Sharing sharing_;
  std::vector<Entry> entries_;
  int items_shared_ = 0;
};

}  // namespace graphsink
