#include "graphsink/memory.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "base/at.h"
#include "base/number_text.h"
#include "base/printable.h"
#include "passes/passes.h"

namespace graphsink {
namespace {

constexpr std::size_t kLargest = 10;

// The node and operand that describe a buffer of an arena in the report: the node that writes it, or else one that
// reads it.
struct Maker {
  const PlanNode* node = nullptr;
  std::size_t operand = 0;
  bool is_output = false;
};

class Reporter {
 public:
  Reporter(const Plan& plan, const PlanFacts& facts, std::span<const std::size_t> feed_bytes)
      : plan_(plan), facts_(facts), feed_bytes_(feed_bytes) {
    for (const PlanSource& source : plan.sources) sources_[source.node] = &source;
  }

  MemoryReport run() {
    report_.device = plan_.target().id;
    report_.arena = report_.packed = plan_.devices[0].arena_bytes;
    report_.copies = plan_.devices[0].invariant_bytes;
    for (std::size_t i = 1; i < plan_.devices.size(); ++i) {
      const PlanDevice& device = plan_.devices[i];
      report_.further_devices.push_back({device.target.id, device.arena_bytes, 0, 0, 0, device.invariant_bytes});
    }
    report_.host_arena = host_arena_bytes(plan_, facts_);
    report_.invariant_copies = plan_.host_invariant_bytes;
    report_.values = plan_.value_bytes;
    report_.live = live_bytes(plan_);
    report_.records = rounded_block(ring_bytes(plan_));
    add_workspaces();
    find_makers();
    for (std::size_t i = 0; i < plan_.buffers.size(); ++i) add(static_cast<int>(i));
    for (std::size_t i = 0; i < plan_.feeds.size(); ++i) {
      report_.feeds += feed_bytes_[i];
      candidates_.push_back({feed_bytes_[i], -1, plan_.feeds[i].source});
    }
    for (const FurtherMemory& device : report_.further_devices) report_.further += device.bytes();
    take_largest();
    return std::move(report_);
  }

 private:
  struct Candidate {
    std::size_t bytes = 0;
    int buffer = -1;
    int feed = -1;  // index of the feed if the bytes are its slices, else -1
  };

  // Where bytes for this purpose are counted that lie on a device.
  std::size_t& sum_of(int device, std::size_t MemoryReport::*here, std::size_t FurtherMemory::*there) {
    return device == 0 ? report_.*here : report_.further_devices[at(device - 1)].*there;
  }

  void add_workspaces() {
    const Workspaces needed = workspaces(plan_, facts_);
    for (std::size_t stream = 0; stream < needed.device.size(); ++stream) {
      if (needed.device[stream] == 0) continue;
      sum_of(plan_.stream_devices[stream], &MemoryReport::workspaces, &FurtherMemory::workspaces) +=
          rounded_block(needed.device[stream]);
    }
  }

  void find_makers() {
    makers_.resize(plan_.buffers.size());
    for (const PlanNode& node : plan_.nodes) {
      for (std::size_t i = 0; i < node.operands.size(); ++i) {
        if (node.operands[i] < 0) continue;
        Maker& maker = makers_[at(node.operands[i])];
        bool is_output = i >= at(node.inputs);
        if (!maker.node || (is_output && !maker.is_output)) maker = {&node, i, is_output};
      }
    }
  }

  void add(int buffer) {
    const Buffer& b = plan_.buffers[at(buffer)];
    std::size_t bytes = rounded_block(b.bytes);
    switch (b.storage) {
      case Storage::arena:
      case Storage::host_arena:
      case Storage::invariant:
      case Storage::invariant_there:
        break;
      case Storage::input:
        report_.inputs += bytes;
        break;
      case Storage::constant:
        if (!constants_.emplace(b.device, b.index).second) return;  // a view of it was counted
        sum_of(b.device, &MemoryReport::constants, &FurtherMemory::constants) += bytes;
        break;
      case Storage::variable:
        sum_of(b.device, &MemoryReport::variables, &FurtherMemory::variables) += bytes;
        break;
      default:
        return;  // a few bytes of the step block, or memory of the graph
    }
    candidates_.push_back({bytes, buffer, -1});
  }

  void take_largest() {
    auto count = std::min(kLargest, candidates_.size());
    auto end = candidates_.begin() + static_cast<std::ptrdiff_t>(count);
    std::partial_sort(candidates_.begin(), end, candidates_.end(), [](const Candidate& a, const Candidate& b) {
      return std::tuple(b.bytes, a.buffer, a.feed) < std::tuple(a.bytes, b.buffer, b.feed);
    });
    for (auto it = candidates_.begin(); it != end; ++it) report_.largest.push_back(describe(*it));
  }

  ValueMemory describe(const Candidate& candidate) const {
    if (candidate.feed >= 0) return of_source("feed", candidate.feed, candidate.bytes);
    const Buffer& b = plan_.buffers[at(candidate.buffer)];
    switch (b.storage) {
      case Storage::input:
        return of_source("input", b.index, candidate.bytes);
      case Storage::constant:
        return of_source("constant", b.index, candidate.bytes);
      case Storage::variable: {
        const Variable& variable = plan_.variables[at(b.index)];
        return {"variable \"" + variable.name() + "\"", variable.type(), candidate.bytes, Where()};
      }
      default:
        return of_arena(candidate);
    }
  }

  ValueMemory of_source(const std::string& kind, int node, std::size_t bytes) const {
    const PlanSource& source = *sources_.at(node);
    return {source.name.empty() ? kind : kind + " \"" + source.name + "\"", source.type, bytes, source.where};
  }

  ValueMemory of_arena(const Candidate& candidate) const {
    for (const PlanFeed& feed : plan_.feeds)
      if (feed.buffer == candidate.buffer) return of_source("slice of feed", feed.source, candidate.bytes);
    const Maker& maker = makers_[at(candidate.buffer)];
    if (!maker.node)
      return {"copy", TensorType{DType::u8, {static_cast<std::int64_t>(candidate.bytes)}}, candidate.bytes, Where()};
    std::string name(maker.node->op->name);
    return {maker.is_output ? name : "copy for " + name, maker.node->types[maker.operand], candidate.bytes,
            maker.node->where};
  }

  const Plan& plan_;
  const PlanFacts& facts_;
  std::span<const std::size_t> feed_bytes_;
  std::map<int, const PlanSource*> sources_;
  std::vector<Maker> makers_;  // per buffer
  std::vector<Candidate> candidates_;
  std::set<std::pair<int, int>> constants_;  // devices and nodes of those that were counted
  MemoryReport report_;
};

void add_line(std::string& text, const char* what, std::size_t bytes, const std::string& more = {}) {
  if (bytes == 0) return;
  char line[64];
  std::snprintf(line, sizeof line, "  %-12s%12s", what, bytes_text(bytes).c_str());
  text += line + (more.empty() ? "" : "  " + more) + "\n";
}

}  // namespace

std::size_t ring_bytes(const Plan& plan) {
  std::size_t bytes = 0;
  for (const PlanRecord& record : plan.records)
    bytes += static_cast<std::size_t>(record.capacity * record.type.shape.size()) * sizeof(double);
  return bytes;
}

MemoryReport memory_report(const Plan& plan, const PlanFacts& facts, std::span<const std::size_t> feed_bytes) {
  return Reporter(plan, facts, feed_bytes).run();
}

MemoryReport memory_report(const Plan& plan, const PlanFacts& facts) {
  std::vector<std::size_t> slices;
  for (const PlanFeed& feed : plan.feeds) slices.push_back(rounded_block(plan.buffers[at(feed.buffer)].bytes));
  return memory_report(plan, facts, slices);
}

std::string bytes_text(std::size_t bytes) {
  auto value = static_cast<double>(bytes);
  if (bytes < 1024) return std::to_string(bytes) + " B";
  if (bytes < (1u << 20)) return fixed_text(value / 1024, 1) + " KiB";
  if (bytes < std::size_t{10} << 30) return fixed_text(value / (1 << 20), 1) + " MiB";
  return fixed_text(value / (1 << 30), 1) + " GiB";
}

std::string to_string(const MemoryReport& report) {
  std::string text = "memory on " + to_string(report.device) + ": " + bytes_text(report.device_bytes()) + ", and " +
                     bytes_text(report.host_bytes()) + " of the host\n";
  add_line(text, "arena", report.arena,
           bytes_text(report.packed) + " for " + bytes_text(report.values) + " of values, of which " +
               bytes_text(report.live) + " are live at once");
  add_line(text, "variables", report.variables);
  add_line(text, "inputs", report.inputs);
  add_line(text, "feeds", report.feeds);
  add_line(text, "constants", report.constants);
  add_line(text, "workspaces", report.workspaces);
  add_line(text, "control", report.control);
  add_line(text, "copies", report.copies, "of Variables of further devices");
  for (const FurtherMemory& device : report.further_devices) {
    std::string parts;
    auto add = [&](std::size_t bytes, const char* what) {
      if (bytes > 0) parts += (parts.empty() ? "" : ", ") + bytes_text(bytes) + " " + what;
    };
    add(device.arena, "of the arena");
    add(device.variables, "of Variables");
    add(device.constants, "of constants");
    add(device.workspaces, "of workspaces");
    add(device.copies, "of copies");
    add_line(text, "further", device.bytes(), "on " + to_string(device.device) + ": " + parts);
  }
  add_line(text, "records", report.records, "of the host");
  add_line(text, "host arena", report.host_arena, "of the host");
  add_line(text, "invariant copies", report.invariant_copies, "of the host");
  add_line(text, "staging", report.staging, "of the host");
  add_line(text, "status", report.status, "of the host");
  if (!report.largest.empty()) text += "largest values\n";
  for (const ValueMemory& value : report.largest) {
    char line[128];
    std::snprintf(line, sizeof line, "%12s  %-22s  %-20s", bytes_text(value.bytes).c_str(),
                  shortened(printable(value.name)).c_str(), to_string(value.type).c_str());
    std::string where = to_string(value.where);
    text += line + (where.empty() ? "" : "  " + where);
    text.erase(text.find_last_not_of(' ') + 1);
    text += "\n";
  }
  return text;
}

}  // namespace graphsink
