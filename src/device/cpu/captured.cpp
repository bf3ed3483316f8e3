#include "device/cpu/captured.h"

#include <atomic>
#include <cstring>

#include "base/at.h"
#include "device/launch_ring.h"

namespace graphsink {
namespace {

void run_control(const CpuCapturedItem& item) {
  switch (item.kind) {
    case CpuCapturedItem::Kind::copy:
      if (item.bytes > 0) std::memcpy(item.destination, item.source, item.bytes);
      break;
    case CpuCapturedItem::Kind::begin:
      begin_launch(*static_cast<const LaunchRing*>(item.source));
      break;
    case CpuCapturedItem::Kind::control:
      if (item.control == TaskKind::loop) {
        while (decide(item) == 0) run_items(item.bodies[0]);
      } else {
        run_items(item.bodies[at(decide(item))]);
      }
      break;
    case CpuCapturedItem::Kind::call:
      break;
  }
}

}  // namespace

void fail_step(const BoundNode& bad) noexcept {
  bad.status->take_exception(bad);
  std::atomic_ref(bad.step->ok).store(0);
  std::int32_t none = -1;
  if (std::atomic_ref(bad.step->error_node).compare_exchange_strong(none, bad.id))
    bad.step->error_step = bad.step->step;
}

void run_tiles(const BoundNode& node, std::int64_t first, std::int64_t end) noexcept {
  try {
    node.op->bodies.cpu().tiles.run(CpuArgs(node), first, end);
  } catch (...) {
    fail_step(node);
  }
}

bool joins_tiles(const BoundNode& node) { return node.op->bodies.cpu().tiles.join && node.workspace_bytes > 0; }

void join_tiles(const BoundNode& node) noexcept {
  try {
    node.op->bodies.cpu().tiles.join(CpuArgs(node));
  } catch (...) {
    fail_step(node);
  }
}

void run_items(std::span<const CpuCapturedItem> items) {
  std::size_t i = 0;
  while (i < items.size()) {
    try {
      for (; i < items.size(); ++i) {
        const CpuCapturedItem& item = items[i];
        if (item.body) {
          item.body(CpuArgs(*item.node));
        } else {
          run_control(item);
        }
      }
    } catch (...) {
      fail_step(*items[i].node);
      ++i;  // the rest runs, as it would when issued one by one, and commits nothing
    }
  }
}

}  // namespace graphsink
