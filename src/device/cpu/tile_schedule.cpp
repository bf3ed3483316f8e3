#include "device/cpu/tile_schedule.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <span>
#include <utility>

#include "base/at.h"
#include "device/cpu/tile_cost.h"
#include "ir/graph_data.h"

namespace graphsink {
namespace {

constexpr std::size_t kMostItems = 64;  // in a phase

// A piece of memory that an item reads or writes.
struct Range {
  std::uintptr_t begin = 0, end = 0;
  bool is_written = false;
};

void add(std::vector<Range>& ranges, const void* memory, std::size_t bytes, bool is_written) {
  const auto begin = reinterpret_cast<std::uintptr_t>(memory);
  if (memory != nullptr && bytes > 0) ranges.push_back({begin, begin + bytes, is_written});
}

std::vector<Range> ranges_of(const CpuCapturedItem& item) {
  std::vector<Range> ranges;
  if (item.kind == CpuCapturedItem::Kind::copy) {
    add(ranges, item.source, item.bytes, false);
    add(ranges, item.destination, item.bytes, true);
    return ranges;
  }
  const BoundNode& node = *item.node;
  for (int i = 0; i < node.inputs + node.outputs; ++i)
    add(ranges, node.pointers[i], node.types[i].bytes(), i >= node.inputs);
  add(ranges, node.workspace, node.workspace_bytes, true);
  return ranges;
}

bool are_independent(const std::vector<Range>& a, const std::vector<Range>& b) {
  for (const Range& x : a)
    for (const Range& y : b)
      if ((x.is_written || y.is_written) && x.begin < y.end && y.begin < x.end) return false;
  return true;
}

// Whether the item may run at the same time as others: it does nothing but compute its outputs.
bool is_plain(const CpuCapturedItem& item) {
  if (item.kind == CpuCapturedItem::Kind::copy) return true;
  if (item.kind != CpuCapturedItem::Kind::call || item.node->id < 0) return false;
  const OpDef& op = *item.node->op;
  return !op.traits.host_effect && !writes_variables(op, static_cast<std::size_t>(item.node->inputs));
}

std::optional<std::int64_t> tiles_of(const CpuCapturedItem& item) { return item.node ? tiles_of(*item.node) : 1; }

double cost_of(const CpuCapturedItem& item) { return item.node ? cost_of(*item.node) : cost_of_copy(item.bytes); }

void run_tiles(const CpuCapturedItem& item, std::int64_t first, std::int64_t end) {
  if (!item.node || !item.node->op->bodies.cpu().tiles.run) return run_items({&item, 1});
  run_tiles(*item.node, first, end);
}

// Items without tiles run as a whole.
bool joins_tiles_of(const CpuCapturedItem& item) {
  return item.node && item.node->op->bodies.cpu().tiles.run && joins_tiles(*item.node);
}

}  // namespace

TileSchedule::TileSchedule(const CpuItems& items, int workers, const Sharing& sharing)
    : items_(items), workers_(workers), sharing_(sharing) {
  std::vector<std::vector<Range>> together;  // memory that each item of the phase touches
  std::size_t first = 0;
  auto end_phase = [&](std::size_t end) {
    if (end > first) add_phase(first, end);
    first = end;
    together.clear();
  };
  for (std::size_t i = 0; i < items.size(); ++i) {
    const CpuCapturedItem& item = items[i];
    if (item.kind != CpuCapturedItem::Kind::call && item.kind != CpuCapturedItem::Kind::copy) {
      end_phase(i);
      add_control(i);
      first = i + 1;
      continue;
    }
    if (!is_plain(item)) {  // a phase of its own
      end_phase(i);
      end_phase(i + 1);
      continue;
    }
    std::vector<Range> ranges = ranges_of(item);
    const bool fits = together.size() < kMostItems &&
                      std::all_of(together.begin(), together.end(),
                                  [&](const std::vector<Range>& other) { return are_independent(other, ranges); });
    if (!fits) end_phase(i);
    together.push_back(std::move(ranges));
  }
  end_phase(items.size());
}

// Cuts the tiles of the items, one after the other, into as many lists of equal cost as there are workers.
void TileSchedule::add_phase(std::size_t first, std::size_t end) {
  double total = 0, largest = 0;
  std::vector<double> costs;
  std::vector<std::int64_t> counts;
  for (std::size_t i = first; i < end; ++i) {
    const std::optional<std::int64_t> tiles = tiles_of(items_[i]);
    if (!tiles) return add_alone(first, end);
    counts.push_back(*tiles);
    costs.push_back(cost_of(items_[i]) / static_cast<double>(*tiles));
    total += cost_of(items_[i]);
    largest = std::max(largest, costs.back());
  }
  if (!is_worth_sharing(total, largest, workers_, sharing_.least_saving)) return add_alone(first, end);
  Entry phase;
  phase.kind = Entry::Kind::phase;
  phase.meets_first = entries_.empty() || entries_.back().kind != Entry::Kind::phase;
  phase.shares.resize(at(workers_));
  double done = 0;
  for (std::size_t i = first; i < end; ++i) {
    const std::int64_t tiles = counts[i - first];
    for (std::int64_t tile = 0; tile < tiles;) {
      const auto worker = std::min(static_cast<int>(done / total * workers_ + 1e-6), workers_ - 1);
      // The tiles up to the end of the worker's part of the whole.
      const double left = total * (worker + 1) / workers_ - done;
      const auto fitting = static_cast<std::int64_t>(left / costs[i - first] + 0.5);
      const std::int64_t until =
          worker == workers_ - 1 ? tiles : std::min(tiles, tile + std::max<std::int64_t>(fitting, 1));
      phase.shares[at(worker)].push_back({&items_[i], tile, until});
      done += costs[i - first] * static_cast<double>(until - tile);
      tile = until;
    }
  }
  entries_.push_back(std::move(phase));
  if (std::any_of(items_.begin() + static_cast<std::ptrdiff_t>(first),
                  items_.begin() + static_cast<std::ptrdiff_t>(end), joins_tiles_of)) {
    Entry join;
    join.kind = Entry::Kind::join;
    join.first = first;
    join.end = end;
    entries_.push_back(std::move(join));
  }
  items_shared_ += static_cast<int>(end - first);
}

void TileSchedule::add_alone(std::size_t first, std::size_t end) {
  if (!entries_.empty() && entries_.back().kind == Entry::Kind::alone && entries_.back().end == first) {
    entries_.back().end = end;
    return;
  }
  Entry alone;
  alone.first = first;
  alone.end = end;
  entries_.push_back(std::move(alone));
}

void TileSchedule::add_control(std::size_t item) {
  const CpuCapturedItem& captured = items_[item];
  Entry control;
  control.kind = Entry::Kind::control;
  control.first = item;
  auto add_body = [&](const CpuItems& body, const Sharing& sharing) {
    control.bodies.push_back(std::make_unique<TileSchedule>(body, workers_, sharing));
    return control.bodies.back()->items_shared();
  };
  int shared = 0;
  if (captured.control == TaskKind::loop && !sharing_.in_loops.empty()) {
    for (double least_saving : sharing_.in_loops)
      shared = std::max(shared, add_body(captured.bodies[0], {least_saving}));
    control.choice = std::make_unique<LoopChoice>(static_cast<int>(control.bodies.size()) + 1);
  } else {
    for (const CpuItems& body : captured.bodies) shared += add_body(body, sharing_);
  }
  if (shared == 0) return add_alone(item, item + 1);
  entries_.push_back(std::move(control));
  items_shared_ += shared;
}

void TileSchedule::run_phase(const Entry& phase, int worker, Workers& workers) const {
  if (phase.meets_first) workers.meet(true);  // worker 0 was alone
  for (const Share& share : phase.shares[at(worker)]) run_tiles(*share.item, share.first, share.end);
  workers.meet();
}

void TileSchedule::run_control(const Entry& entry, int worker, Workers& workers) const {
  if (entry.choice) return run_loop(entry, worker, workers);
  const CpuCapturedItem& control = items_[entry.first];
  auto next = [&] { return workers.agree(worker, [&] { return decide(control); }); };
  std::int32_t body = next();
  while (body >= 0) {
    entry.bodies[at(body)]->run(worker, workers);
    body = control.control == TaskKind::loop ? next() : -1;
  }
}

// While worker 0 runs iterations alone, the others sleep until something else is decided.
void TileSchedule::run_loop(const Entry& entry, int worker, Workers& workers) const {
  constexpr auto now = std::chrono::steady_clock::now;
  const CpuCapturedItem& loop = items_[entry.first];
  const auto alone = static_cast<std::int32_t>(entry.bodies.size());
  LoopChoice& choice = *entry.choice;
  auto next = [&] {
    if (decide(loop) == 0) return static_cast<std::int32_t>(choice.next(now()));
    choice.end(now());
    return -1;
  };
  if (worker == 0) choice.begin(now());
  std::optional<std::int32_t> decided;
  while (true) {
    const std::int32_t way = workers.agree(worker, [&] { return decided ? *std::exchange(decided, {}) : next(); });
    if (way < 0) return;
    if (way < alone) {
      entry.bodies[at(way)]->run(worker, workers);
    } else if (worker == 0) {
      do run_items(loop.bodies[0]);
      while (*(decided = next()) == alone);
    }
  }
}

void TileSchedule::run(int worker, Workers& workers) const {
  for (const Entry& entry : entries_) {
    switch (entry.kind) {
      case Entry::Kind::alone:
        if (worker == 0) run_items(std::span(items_).subspan(entry.first, entry.end - entry.first));
        break;
      case Entry::Kind::phase:
        run_phase(entry, worker, workers);
        break;
      case Entry::Kind::join:
        for (std::size_t i = entry.first; worker == 0 && i < entry.end; ++i)
          if (joins_tiles_of(items_[i])) join_tiles(*items_[i].node);
        break;
      case Entry::Kind::control:
        run_control(entry, worker, workers);
        break;
    }
  }
}

std::size_t TileSchedule::bytes() const {
  std::size_t sum = sizeof *this + entries_.size() * sizeof(Entry);
  for (const Entry& entry : entries_) {
    for (const auto& shares : entry.shares) sum += shares.size() * sizeof(Share);
    for (const auto& body : entry.bodies) sum += body->bytes();
  }
  return sum;
}

}  // namespace graphsink
