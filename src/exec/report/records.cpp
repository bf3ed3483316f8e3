#include "exec/report/records.h"

#include <algorithm>
#include <atomic>

#include "graphsink/memory.h"
#include "passes/explain.h"
#include "passes/plan_queries.h"

namespace graphsink {

void Records::allocate(const Plan& plan, DeviceMemory& device, Allocator& allocator, const Where& where) {
  std::size_t bytes = ring_bytes(plan);
  memory_ = allocator.allocate(
      "the rings of " + count_text(plan.records.size(), "record") + " (" + bytes_text(bytes) + ")",
      "give record() a smaller capacity, record fewer values", where, [&] { return device.allocate_host(bytes); });
  auto* ring = static_cast<double*>(memory_.get());
  for (const PlanRecord& record : plan.records) {
    const std::int64_t elements = record.type.shape.size();
    records_.push_back(
        {record.name, ring, static_cast<std::uint32_t>(record.capacity), static_cast<std::uint32_t>(elements)});
    ring += record.capacity * elements;
  }
}

Records::Record& Records::find(std::string_view name, const Where& where) {
  for (Record& record : records_)
    if (record.name == name) return record;
  std::string names;
  for (const Record& record : records_) names += (names.empty() ? "\"" : ", \"") + record.name + "\"";
  throw Error("records", where,
              "no record \"" + std::string(name) + "\": the program has " + (names.empty() ? "none" : names),
              "call graph.record(name, value) before compile(); of what a function of @gs.program returns in a dict, "
              "scalars of floats are recorded");
}

void Records::take(std::string_view name, std::uint32_t& recorded, bool may_run,
                   FunctionRef<void(const std::vector<double>&)> get, const Where& where) {
  Record& taken = find(name, where);
  std::atomic_ref written(recorded);
  std::uint32_t end = written.load(std::memory_order_acquire);
  std::uint32_t unread = end - taken.read, count = std::min(unread, taken.capacity);
  std::uint32_t first = end - count;
  const std::size_t elements = taken.elements;
  std::vector<double> values;
  values.reserve(count * elements);
  for (std::uint32_t i = 0; i < count; ++i) {
    double* value = taken.place(first + i);
    for (std::size_t k = 0; k < elements; ++k)
      values.push_back(std::atomic_ref(value[k]).load(std::memory_order_acquire));
  }
  if (may_run) {
    // Steps that ended since the first load, and the step in progress, may have overwritten the oldest values.
    std::uint32_t oldest = written.load(std::memory_order_relaxed) + 1 - taken.capacity;
    auto lost = static_cast<std::int32_t>(oldest - first);
    if (lost > 0) values.erase(values.begin(), values.begin() + std::min<std::int64_t>(lost, count) * taken.elements);
  }
  get(values);
  taken.read = end;
  note_lost(taken, unread - static_cast<std::uint32_t>(values.size() / elements));
}

void Records::note_lost(Record& record, std::uint32_t count) {
  if (count > 0 && record.lost == 0) {
    log_.warn({"record \"", record.name, "\": ", std::to_string(count), " values were lost, newer ones overwrote them ",
               "before they were read; call records() more often, or give record() a capacity of more than ",
               std::to_string(record.capacity)});
  }
  record.lost += count;
}

std::vector<std::pair<std::string, Tensor>> Records::stored(std::uint32_t first, std::uint32_t end) const {
  std::vector<std::pair<std::string, Tensor>> result;
  for (const Record& record : records_) {
    std::uint32_t count = std::min(end - first, record.capacity);
    std::vector<double> values;
    for (std::uint32_t k = end - count; k != end; ++k)
      values.insert(values.end(), record.place(k), record.place(k) + record.elements);
    result.emplace_back(record.name, Tensor({static_cast<std::int64_t>(values.size())}, values));
  }
  return result;
}

}  // namespace graphsink
