// Work that a CPU stream records while it is capturing: an array of pre-bound calls.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "device/decide.h"

namespace graphsink {

struct CpuCapturedItem;
using CpuItems = std::vector<CpuCapturedItem>;

// A call (body set), a copy, the beginning of a launch, or control flow over child lists.
struct CpuCapturedItem {
  void (*body)(const CpuArgs&) = nullptr;
  const BoundNode* node = nullptr;
  enum class Kind : std::uint8_t { call, copy, begin, control } kind = Kind::call;
  TaskKind control = TaskKind::call;  // branch, choice or loop, if the kind is control
  void* destination = nullptr;
  const void* source = nullptr;  // source of a copy; LaunchRing of begin; decision of control flow
  std::size_t bytes = 0;
  std::vector<CpuItems> bodies;
};

// Runs the items in order, on the calling thread. A body that throws fails the step; the items behind it run.
void run_items(std::span<const CpuCapturedItem> items);

inline std::int32_t decide(const CpuCapturedItem& control) { return decide(control.control, control.source); }

// Runs tiles [first, end) of a node that has tiles. If one of them throws, the step fails, and of these tiles those
// behind it do not run.
void run_tiles(const BoundNode& node, std::int64_t first, std::int64_t end) noexcept;

// Whether something is to be joined when all tiles of the node have run, and that.
bool joins_tiles(const BoundNode& node);
void join_tiles(const BoundNode& node) noexcept;

// Called in a catch block, after the body of `bad` threw.
void fail_step(const BoundNode& bad) noexcept;

}  // namespace graphsink
