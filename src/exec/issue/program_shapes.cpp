#include "exec/issue/program_shapes.h"

#include <algorithm>
#include <limits>
#include <string>

#include "base/at.h"
#include "passes/explain.h"
#include "passes/plan_queries.h"

namespace graphsink {
namespace {

std::vector<Mode> candidates(const Plan& plan) {
  if (plan.split_islands.empty()) return {sink, interactive_serial};
  return {sink, split_sink, interactive_serial};
}

}  // namespace

ShapeEntry::ShapeEntry(std::size_t its_number, std::shared_ptr<const Plan> plan,
                       std::shared_ptr<const PreparedNodes> nodes, const Addresses& addresses, Devices devices,
                       bool begins_interactive, Captures& spares_of_program)
    : number(its_number),
      bound(std::move(plan), std::move(nodes), addresses, devices),
      spares(spares_of_program),
      chooser(candidates(bound.plan()), begins_interactive),
      ranks(bound.rank_wait()) {
  captures.islands.resize(bound.plan().islands.size());
  captures.split_islands.resize(bound.islands_of(split_sink).size());
  if (bound.plan().unrolled_steps > 1)
    captures.unrolled.resize(Captures::unrolled_place(bound.plan().unrolled_steps) + 1);
  for (const Sequence& sequence : bound.plan().sequences) captures.bodies.emplace_back(sequence.islands.size());
}

bool ShapeEntry::is_captured(Mode mode) const {
  auto are_captured = [](const std::vector<Island>& islands, const std::vector<CaptureSlot>& slots) {
    for (std::size_t i = 0; i < islands.size(); ++i)
      if (islands[i].sunk && !slots[i].is_captured()) return false;
    return true;
  };
  if (!are_captured(bound.islands_of(mode), mode == split_sink ? captures.split_islands : captures.islands))
    return false;
  for (std::size_t i = 0; i < captures.bodies.size(); ++i)
    if (!are_captured(plan().sequences[i].islands, captures.bodies[i])) return false;
  return true;
}

PlanFacts ShapeEntry::facts(const CapturePolicy& policy) const {
  PlanFacts facts = bound.facts();
  if (policy.wants_times() && times.interactive_steps > 0 && captures.is_empty()) {
    facts.reasons.push_back({"these input shapes", Where(), "not captured yet: " + policy.reason(times),
                             "one launch for each op", "run more steps with them, or set Tuning::capture_after"});
  }
  auto add = [&](const CaptureSlot& slot, const char* what, const char* cost) {
    if (!slot.has_failed()) return;
    const CaptureFailed& why = *slot.failure();
    facts.reasons.push_back({what, why.where(), why.problem(), cost, why.remedy()});
  };
  captures.for_each_slot_of_a_step([&](const CaptureSlot& slot) { add(slot, kOpByOp, "one launch for each op"); });
  add(captures.loop, kStepByStep, "one launch for each step");
  const auto failed = std::find_if(captures.unrolled.begin(), captures.unrolled.end(),
                                   [](const CaptureSlot& slot) { return slot.has_failed(); });
  if (failed != captures.unrolled.end()) add(*failed, kStepByStep, "launches of fewer steps");
  if (unrolled_steps > 0 && unrolled_steps < plan().unrolled_steps)
    facts.reasons.push_back({"the most steps of a launch are " + std::to_string(unrolled_steps), Where(),
                             "another rank has no room for more", "more launches",
                             "give all ranks the same plan and Limits::unrolled_nodes"});
  facts.op_by_op = why_not_launched(sink);
  if (!plan().split_islands.empty()) facts.split_op_by_op = why_not_launched(split_sink);
  facts.is_step_by_step = captures.loop.has_failed();
  facts.unrolled_steps = unrolled_steps > 0 ? unrolled_steps : plan().unrolled_steps;
  while (facts.unrolled_steps > 1 && captures.unrolled[Captures::unrolled_place(facts.unrolled_steps)].has_failed())
    facts.unrolled_steps /= 2;
  return facts;
}

std::string ShapeEntry::why_not_launched(Mode mode) const {
  auto why = [](const std::vector<CaptureSlot>& slots) {
    for (const CaptureSlot& slot : slots)
      if (slot.has_failed()) return slot.failure()->problem();
    return std::string();
  };
  std::string found = why(mode == split_sink ? captures.split_islands : captures.islands);
  for (std::size_t i = 0; i < captures.bodies.size() && found.empty(); ++i) found = why(captures.bodies[i]);
  return found;
}

std::optional<CaptureInfo> ShapeEntry::captured(bool several_steps) const {
  const CaptureSlot& loop = captures.loop;
  if (several_steps) {
    if (loop.is_captured()) return loop.graph().info();
    const auto longest = std::find_if(captures.unrolled.rbegin(), captures.unrolled.rend(),
                                      [](const CaptureSlot& slot) { return slot.is_captured(); });
    return longest != captures.unrolled.rend() ? std::optional(longest->graph().info()) : std::nullopt;
  }
  std::optional<CaptureInfo> sum;
  auto add = [&](const std::vector<CaptureSlot>& slots) {
    for (const CaptureSlot& slot : slots) {
      if (!slot.is_captured()) continue;
      if (!sum) sum.emplace();
      *sum += slot.graph().info();
    }
  };
  add(captures.islands);
  const std::vector<Island>& islands = plan().islands;
  const bool sinks = std::any_of(islands.begin(), islands.end(), [](const Island& island) { return island.sunk; });
  if (sinks && !sum) return std::nullopt;  // the bodies were captured for split_sink
  for (const auto& slots : captures.bodies) add(slots);
  return sum;
}

void Captures::for_each_slot_of_a_step(FunctionRef<void(const CaptureSlot&)> visit) const {
  auto visit_all = [&](const std::vector<CaptureSlot>& slots) {
    for (const CaptureSlot& slot : slots) visit(slot);
  };
  visit_all(islands);
  visit_all(split_islands);
  for (const auto& slots : bodies) visit_all(slots);
}

void Captures::for_each_slot(FunctionRef<void(const CaptureSlot&)> visit) const {
  for_each_slot_of_a_step(visit);
  visit(loop);
  for (const CaptureSlot& slot : unrolled) visit(slot);
}

void Captures::for_each(FunctionRef<void(const CapturedGraph&)> visit) const {
  for_each_slot([&](const CaptureSlot& slot) {
    if (slot.is_captured()) visit(slot.graph());
  });
}

bool Captures::is_empty() const {
  bool found = false;
  for_each([&](const CapturedGraph&) { found = true; });
  return !found;
}

std::size_t Captures::bytes() const {
  std::size_t sum = 0;
  for_each([&](const CapturedGraph& graph) { sum += graph.info().bytes; });
  return sum;
}

std::size_t ShapeEntry::bytes() const { return sizeof *this + bound.bytes() + captures.bytes(); }

void ProgramShapes::select(const InputShapes& shapes) {
  current_ = cache_.find(shapes);
  unbound_.reset();
  prepared_.reset();
}

const Plan& ProgramShapes::plan(FunctionRef<Plan()> make) {
  if (current_) return current_->plan();
  if (!unbound_) unbound_ = std::make_shared<const Plan>(make());
  return *unbound_;
}

PlanFacts ProgramShapes::facts() const {
  PlanFacts facts = current_ ? current_->facts(policy_) : prepared_ ? facts_of(*prepared_) : PlanFacts();
  if (policy_.is_asked()) {
    ShapeCacheFacts& cache = facts.shape_cache.emplace();
    cache_.for_each([&](const ShapeEntry& entry) { cache.captured += !entry.captures.is_empty(); });
    cache.shapes = size();
    cache.bytes = bytes();
    cache.evicted = evicted();
  }
  return facts;
}

void ProgramShapes::prepare(Devices devices) {
  if (!prepared_) prepared_ = std::make_shared<const PreparedNodes>(graphsink::prepare(*unbound_, devices));
}

std::unique_ptr<ShapeEntry> ProgramShapes::bind(const Addresses& addresses, Devices devices) {
  return std::make_unique<ShapeEntry>(cache_.next_number(), unbound_, prepared_, addresses, devices,
                                      policy_.is_slower_sunk(), spares_);
}

void ProgramShapes::add(const InputShapes& shapes, std::unique_ptr<ShapeEntry> entry) {
  current_ = &cache_.add(shapes, std::move(entry));
  unbound_.reset();
  prepared_.reset();
}

void ProgramShapes::trim(const LaunchQueue& launches, bool is_done) {
  std::size_t kept = size(), bytes = this->bytes();
  auto is_busy = [&](const ShapeEntry& entry) {
    if (&entry == current_ || entry.is_in_callers_graph) return true;
    return !is_done && !launches.is_over(entry.last_launch);
  };
  const auto last = [&](ShapeEntry& entry) {
    if (!entry.captures.is_empty()) spares_ = std::move(entry.captures);
  };
  const std::size_t dropped = kept_ ? cache_.trim_to(*kept_, is_busy, last) : cache_.trim(is_busy, last);
  if (this->bytes() > cache_.most_bytes()) spares_ = {};
  if (dropped == 0 || std::exchange(has_said_full_, true)) return;
  log_.warn({"the shape cache is full: ", count_text(kept, "set"), " of input shapes take ", bytes_text(bytes), ", so ",
             std::to_string(dropped), ", used least recently, ", dropped == 1 ? "was" : "were",
             " dropped; shapes that come back are planned and captured again; raise ",
             kept > cache_.most_slots() ? "Limits::shape_cache_shapes" : "Limits::shape_cache_bytes",
             ", or pad inputs to fewer shapes"});
}

std::int64_t ProgramShapes::with_room() const {
  constexpr std::size_t kMost = std::numeric_limits<std::int64_t>::max();
  return static_cast<std::int64_t>(std::min(cache_.is_within_limits() ? cache_.most_slots() : cache_.fitting(), kMost));
}

void ProgramShapes::drop_all() {
  current_ = nullptr;
  unbound_.reset();
  prepared_.reset();
  drop_others();
}

void ProgramShapes::drop_others() {
  spares_ = {};
  cache_.clear([&](const ShapeEntry& entry) { return &entry == current_ || entry.is_in_callers_graph; });
}

bool ProgramShapes::is_in_callers_graph() const {
  bool found = false;
  cache_.for_each([&](const ShapeEntry& entry) { found = found || entry.is_in_callers_graph; });
  return found;
}

}  // namespace graphsink
