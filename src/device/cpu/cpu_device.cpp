#include "device/cpu/cpu_device.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <optional>
#include <thread>

#include "base/at.h"
#include "base/flush_denormals.h"
#include "device/cpu/cpu_memory.h"
#include "device/cpu/feed_memory.h"
#include "device/cpu/schedule_choice.h"
#include "device/cpu/tile_cost.h"
#include "device/cpu/tile_schedule.h"
#include "device/decide.h"
#include "graphsink/memory.h"
#include "passes/plan_queries.h"

namespace graphsink {
namespace {

CpuQueue& queue_of(Stream& stream) { return static_cast<CpuQueue&>(stream); }

void count(const CpuItems& items, CaptureInfo& info) {
  for (const CpuCapturedItem& item : items) {
    info.bytes += sizeof item;
    if (item.kind == CpuCapturedItem::Kind::call) ++info.kernels;
    if (item.kind == CpuCapturedItem::Kind::copy) ++info.copies;
    if (!item.bodies.empty()) ++info.conditional_nodes;
    for (const CpuItems& body : item.bodies) count(body, info);
  }
}

// Threads share what is large enough, or less of it, or the calling thread does all, whatever is the fastest.
class CpuCapturedGraph : public CapturedGraph {
 public:
  // The workers must exist as long as the graph. `shares_all`: they share all that they can, always.
  CpuCapturedGraph(CpuItems captured, Workers& workers, bool shares_all)
      : items_(std::move(captured)), workers_(workers) {
    count(items_, info_);
    if (workers.count() == 1) return;
    if (shares_all) {
      add_schedule({kNoSaving});
      return;
    }
    const std::vector<double> in_loops = {kLeastSaving, kLeastSavingOfDistantCores};
    if (add_schedule({kLeastSaving, in_loops}) == 0) return;
    add_schedule({kLeastSavingOfDistantCores, in_loops});
    shares_in_loops_ = add_schedule({std::numeric_limits<double>::infinity(), in_loops}) > 0;
    choice_.emplace(static_cast<int>(schedules_.size()) + 1);
  }
  CaptureInfo info() const override { return info_; }

  // One call at a time.
  void run() {
    if (schedules_.empty()) return run_items(items_);
    if (!choice_) return void(run(0));
    // Loops choose for themselves, and go on doing so in a launch that takes long. So it is not left to one thread.
    const bool is_long = shares_in_loops_ && last_ >= LoopChoice::kWindow;
    const std::size_t chosen = at(choice_->next());
    const std::size_t way = is_long ? std::min(chosen, schedules_.size() - 1) : chosen;
    const auto begin = std::chrono::steady_clock::now();
    const bool is_measured = run(way) && way == chosen;
    last_ = std::chrono::steady_clock::now() - begin;
    if (is_measured) choice_->took(std::chrono::duration<double>(last_).count());
  }

 private:
  // Returns how many items it shares.
  int add_schedule(const TileSchedule::Sharing& sharing) {
    auto schedule = std::make_unique<TileSchedule>(items_, workers_.count(), sharing);
    const int shared = schedules_.empty() ? 0 : schedules_.back()->items_shared();  // the same items if as many
    const int items = schedule->items_shared();
    if (items == 0 || items == shared) return items;
    if (schedules_.empty()) info_.shared = items;
    info_.bytes += schedule->bytes();
    schedules_.push_back(std::move(schedule));
    return items;
  }

  // By a schedule or, behind these, on the calling thread. If another launch of the device has the workers, or the
  // system has no threads for them, the calling thread does all; the results are the same. Then it returns false.
  bool run(std::size_t way) {
    const bool is_shared = way < schedules_.size();
    if (is_shared && workers_.run([&](int worker) { schedules_[way]->run(worker, workers_); })) return true;
    run_items(items_);
    return !is_shared;
  }

  CpuItems items_;
  Workers& workers_;
  std::vector<std::unique_ptr<TileSchedule>> schedules_;  // one schedule per degree of sharing, most sharing first
  std::optional<ScheduleChoice> choice_;                  // picks a schedule, or none (one thread runs all)
  bool shares_in_loops_ = false;
  std::chrono::steady_clock::duration last_{};  // time of the last launch
  CaptureInfo info_;
};

// The cores that this process may use.
int usable_cores() {
  cpu_set_t cores;
  if (sched_getaffinity(0, sizeof cores, &cores) == 0) return std::max(1, CPU_COUNT(&cores));
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

}  // namespace

CpuDevice::CpuDevice(const Log& log, const CpuOptions& options)
    : options_(options),
      workers_(options.threads > 0 ? options.threads : usable_cores(), this, options.flush_denormals, log),
      helpers_(workers_.count(), this, options.flush_denormals, log) {
  target_ = Target::host();
  // A stream is a thread: more of them than cores only take turns. Two at least, so that every machine tests them.
  target_.max_streams = std::clamp(static_cast<int>(std::thread::hardware_concurrency()), 2, kMaxStreams);
}

Memory CpuDevice::allocate(std::size_t bytes) { return allocate_counted(bytes, held_, &HeldBytes::device); }

Memory CpuDevice::allocate_host(std::size_t bytes) { return allocate_counted(bytes, held_, &HeldBytes::host); }

std::unique_ptr<Arena> CpuDevice::reserve() { return reserve_arena(held_); }

std::unique_ptr<FeedMemory> CpuDevice::make_feed_memory() {
  return make_cpu_feed_memory(held_, counters_.host_copied_bytes);
}

Counters CpuDevice::counters() const {
  Counters counters = counters_;
  counters.device_bytes = held_->device;
  counters.host_bytes = held_->host;
  return counters;
}

void CpuDevice::push(CpuQueue& queue, const CpuTask& task) {
  ++counters_.api_calls;
  queue.push(task);
}

void CpuDevice::wait(Stream& stream) {
  CpuQueue& queue = queue_of(stream);
  queue.wait_for(queue.pushed());
}

void CpuDevice::make_wait(Stream& later, Stream& earlier) {
  CpuQueue& queue = queue_of(later);
  if (queue.captured) return;  // one list, in issue order
  push(queue, {[](const CpuTask& t) {
                 static_cast<CpuQueue*>(t.second)->wait_for_other(*static_cast<const CpuProgress*>(t.first), t.number);
               },
               &queue.keep_progress_of(queue_of(earlier)), &queue, queue_of(earlier).pushed()});
}

void CpuDevice::begin(Stream& stream, const LaunchRing& ring) {
  CpuQueue& queue = queue_of(stream);
  if (queue.captured) {
    CpuCapturedItem item;
    item.kind = CpuCapturedItem::Kind::begin;
    item.source = &ring;
    queue.captured->push_back(std::move(item));
    return;
  }
  push(queue, {[](const CpuTask& t) { begin_launch(*static_cast<const LaunchRing*>(t.first)); }, &ring});
}

std::int64_t CpuDevice::tiles_to_share(const Stream& stream, const BoundNode& node) const {
  if (!stream.shares_nodes || helpers_.threads() == 1) return 1;
  const std::int64_t tiles = tiles_of(node).value_or(1);
  if (tiles == 1) return 1;
  const double cost = cost_of(node);
  const double least_saving = options_.share_all ? kNoSaving : kLeastSaving;
  return is_worth_sharing(cost, cost / static_cast<double>(tiles), helpers_.threads(), least_saving) ? tiles : 1;
}

void CpuDevice::call(Stream& stream, const BoundNode& node) {
  CpuQueue& queue = queue_of(stream);
  if (queue.captured) {
    CpuCapturedItem item;
    item.body = body_for(*node.op, DeviceKind::cpu)->cpu;
    item.node = &node;
    queue.captured->push_back(std::move(item));
    return;
  }
  ++counters_.kernels;
  if (const std::int64_t tiles = tiles_to_share(queue, node); tiles > 1) {
    ++counters_.shared;
    return push(queue, {[](const CpuTask& t) {
                          const auto& bound = *static_cast<const BoundNode*>(t.first);
                          static_cast<CpuQueue*>(t.second)->helpers().share(
                              static_cast<std::int64_t>(t.number),
                              [&](std::int64_t first, std::int64_t end) { run_tiles(bound, first, end); });
                          if (joins_tiles(bound)) join_tiles(bound);
                        },
                        &node, &queue, static_cast<std::uint64_t>(tiles)});
  }
  push(queue, {[](const CpuTask& t) {
                 const auto& bound = *static_cast<const BoundNode*>(t.first);
                 try {
                   body_for(*bound.op, DeviceKind::cpu)->cpu(CpuArgs(bound));
                 } catch (...) {
                   fail_step(bound);
                 }
               },
               &node});
}

void CpuDevice::call_now(const BoundNode& node) {
  const InBody body(node.status);
  const FlushDenormals denormals(options_.flush_denormals);
  body_for(*node.op, DeviceKind::cpu)->cpu(CpuArgs(node));
}

void CpuDevice::copy(Stream& stream, void* destination, const void* source, std::size_t bytes) {
  CpuQueue& queue = queue_of(stream);
  if (queue.captured) {
    CpuCapturedItem item;
    item.kind = CpuCapturedItem::Kind::copy;
    item.destination = destination;
    item.source = source;
    item.bytes = bytes;
    queue.captured->push_back(std::move(item));
    return;
  }
  ++counters_.copies;
  if (bytes == 0) return;  // an empty tensor has no address
  push(queue, {[](const CpuTask& t) { std::memcpy(t.second, t.first, t.number); }, source, destination, bytes});
}

void CpuDevice::upload(Stream& stream, void* destination, const void* source, std::size_t bytes) {
  CpuQueue& queue = queue_of(stream);
  if (bytes == 0) return;
  counters_.host_copied_bytes += bytes;
  if (!queue.is_done() && bytes <= CpuSlots::kLargest) {
    ++counters_.copies;
    CpuSlots::Slot& slot = *staging_.free_slot(bytes);
    std::memcpy(slot.memory.get(), source, bytes);
    queue.push(
        {[](const CpuTask& t) { std::memcpy(t.second, t.first, t.number); }, slot.memory.get(), destination, bytes});
    return CpuSlots::release(slot, queue);
  }
  queue.wait_for(queue.pushed());
  std::memcpy(destination, source, bytes);
}

void CpuDevice::control(Streams streams, TaskKind kind, const void* decision, std::size_t count, const Bodies& bodies) {
  CpuQueue& queue = queue_of(*streams[0]);
  if (!queue.captured) {
    auto read = [&] {
      queue.wait_for(queue.pushed());
      return decision;
    };
    return drive(streams, kind, read, bodies);
  }
  CpuItems* around = queue.captured;
  CpuCapturedItem item;
  item.kind = CpuCapturedItem::Kind::control;
  item.control = kind;
  item.source = decision;
  item.bodies.resize(count);
  for (std::size_t i = 0; i < count; ++i) {
    for (Stream* stream : streams) queue_of(*stream).captured = &item.bodies[i];
    bodies(i, streams);
  }
  for (Stream* stream : streams) queue_of(*stream).captured = around;
  around->push_back(std::move(item));
}

void CpuDevice::begin_capture(Streams streams) {
  items_ = std::make_unique<CpuItems>();
  for (Stream* stream : streams) queue_of(*stream).captured = items_.get();
}

std::unique_ptr<CapturedGraph> CpuDevice::end_capture(Streams streams, std::unique_ptr<CapturedGraph>) {
  for (Stream* stream : streams) queue_of(*stream).captured = nullptr;
  ++counters_.captures;
  return std::make_unique<CpuCapturedGraph>(std::move(*std::exchange(items_, nullptr)), workers_, options_.share_all);
}

std::unique_ptr<Stream> CpuDevice::borrow_stream(void*) {
  throw Error("stream", Where(), "a CUDA stream was given, and the program runs on the CPU",
              "leave the stream out, or compile for a CUDA device");
}

void CpuDevice::leave_capture(Streams streams) noexcept {
  for (Stream* stream : streams) queue_of(*stream).captured = nullptr;
  items_.reset();
}

void CpuDevice::launch(Stream& stream, CapturedGraph& graph, std::int64_t steps) {
  CpuQueue& queue = queue_of(stream);
  CaptureInfo info = graph.info();
  ++counters_.graph_launches;
  counters_.kernels += static_cast<std::uint64_t>(steps * info.kernels);
  counters_.copies += static_cast<std::uint64_t>(steps * info.copies);
  push(queue, {[](const CpuTask& t) { static_cast<CpuCapturedGraph*>(t.second)->run(); }, nullptr,
               &static_cast<CpuCapturedGraph&>(graph)});
}

}  // namespace graphsink
