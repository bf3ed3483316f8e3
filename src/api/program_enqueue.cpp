// Steps that become a part of a CUDA graph of the caller's.
#include <algorithm>
#include <string>

#include "api/program_impl.h"
#include "passes/plan_queries.h"

namespace graphsink {
namespace {

// The first op that reads what run() copies between devices: "plus_one (train.cpp:12)".
std::string reader_of_copies(const Plan& plan) {
  auto is_copy = [&](int buffer) {
    return std::ranges::any_of(plan.invariant_copies, [&](auto& copy) { return copy.destination == buffer; });
  };
  for (const PlanNode& node : plan.nodes) {
    if (std::ranges::none_of(node.operands, is_copy)) continue;
    const std::string place = to_string(node.where);
    return std::string(node.op->name) + (place.empty() ? "" : " (" + place + ")");
  }
  return "an op";
}

}  // namespace

Stream& Program::Impl::callers_stream(const char* call, cudaStream_t stream, const Where& where) {
  try {
    return session_.borrowed_stream(stream);
  } catch (const Error& e) {
    throw Error(call, where, "the stream of the caller: " + e.problem(), e.remedy(), e.code());
  }
}

void Program::Impl::require_enqueue(const Where& where) {
  const ShapeEntry* entry = shapes_.current();
  if (!entry || !entry->has_run()) {
    throw Error(
        "enqueue", where,
        "the program has not run with these input shapes, so kernels would have to be loaded during the capture",
        "call enqueue() or run() once before the capture begins");
  }
  if (has_result_sizes_) {
    throw Error("enqueue", where,
                "a result has a size that depends on data, for which run() plans anew when it changes; the launches of "
                "a graph of yours cannot",
                "give results whose sizes depend on data upper bounds");
  }
  const Plan& plan = entry->plan();
  if (!plan.feeds.empty()) {
    throw Error(
        "enqueue", where,
        "the graph has feeds, of which each step of run() reads another slice; the launches of a graph of yours "
        "are not counted",
        "use inputs, and copy each batch into their memory, see Program::bind_memory()");
  }
  require_whole("enqueue", "the stream is being captured", where);
  if (!plan.invariant_copies.empty()) {
    const std::string reader = reader_of_copies(plan);
    throw Error("enqueue", where,
                reader + " reads a Variable or an input of another device, of which run() makes a copy",
                "place the op where the Variable or input lives, or the Variable where the op runs");
  }
  inputs_.check(plan, 1, where);
}

void Program::Impl::enqueue(cudaStream_t stream, const std::shared_ptr<Impl>& self, const Where& where) {
  require_caller("enqueue", where);
  Stream& callers = callers_stream("enqueue", stream, where);
  if (!device().is_captured_by_others(callers)) return run(sink, {.steps = 1, .stream = stream}, where);
  require_enqueue(where);
  std::optional<RunGate::Inside> inside;
  variables_.enter_run(inside);
  settle();
  // Launches of the caller's graph are not ordered with what the program has given to streams of its own.
  session_.for_each_stream([](DeviceQueue& of, Stream& own) { of.wait(own); });
  try {
    runner_.enqueue(*shapes_.current(), callers, self);
  } catch (const Error& e) {
    throw Error("enqueue", where, e.op() + ": " + e.problem(), e.remedy() + "; end the capture, and destroy its graph",
                e.code());
  }
  is_in_callers_graph_ = true;
  status_.set_has_outputs(true);
}

}  // namespace graphsink
