// The values that a program records, from the ring that its steps write to the user.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/function_ref.h"
#include "base/log.h"
#include "exec/memory/allocator.h"
#include "ir/plan.h"

namespace graphsink {

class Records {
 public:
  explicit Records(const Log& log) : log_(log) {}

  // Makes the rings of a program whose plans have the records of `plan`. Throws Error where there is no memory.
  void allocate(const Plan& plan, DeviceMemory& device, Allocator& allocator, const Where& where);
  // The rings, one behind the other, in host memory that the device writes.
  void* ring() const { return memory_.get(); }

  // Throws Error if there is no record of that name.
  void require(std::string_view name, const Where& where) { (void)find(name, where); }
  // Calls get(values) with those stored since the last call, of `recorded` steps in all (Progress::records). `may_run`:
  // steps may be storing further values meanwhile. Values that were overwritten before they were taken are counted as
  // lost. If `get` throws, none are taken.
  void take(std::string_view name, std::uint32_t& recorded, bool may_run,
            FunctionRef<void(const std::vector<double>&)> get, const Where& where);
  std::int64_t capacity(std::string_view name, const Where& where) { return find(name, where).capacity; }
  std::int64_t lost(std::string_view name, const Where& where) { return find(name, where).lost; }
  // The values of all records of steps [first, end), as far as the rings hold them, with the records' names. No step
  // may be running.
  std::vector<std::pair<std::string, Tensor>> stored(std::uint32_t first, std::uint32_t end) const;

 private:
  struct Record {
    std::string name;
    double* ring = nullptr;
    std::uint32_t capacity = 0;  // values
    std::uint32_t elements = 1;  // elements of each value
    std::uint32_t read = 0;      // values taken so far, or lost; modulo 2^32
    std::int64_t lost = 0;

    // The elements of value `number`.
    double* place(std::uint32_t number) const { return ring + std::size_t{number % capacity} * elements; }
  };
  Record& find(std::string_view name, const Where& where);
  void note_lost(Record& record, std::uint32_t count);

  Log log_;
  Memory memory_;
  std::vector<Record> records_;
};

}  // namespace graphsink
