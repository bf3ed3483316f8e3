#include "ending.h"

#include <mutex>
#include <vector>

#include "samples.h"

namespace graphsink::python {

namespace {

struct Late {
  std::shared_ptr<void> object;
  nb::object callables;
};

// Never freed, because it may be used last.
struct LateObjects {
  std::mutex mutex;
  std::vector<Late> all;
};
LateObjects& late() {
  static auto* objects = new LateObjects;
  return *objects;
}

}  // namespace

void end_later(std::shared_ptr<void> object, nb::object callables) noexcept {
  const std::lock_guard lock(late().mutex);
  late().all.push_back({std::move(object), std::move(callables)});
}

void end_late_objects() noexcept {
  if (is_in_host_op() || MakingSample::is_for_any()) return;  // which what ends may wait for
  std::vector<Late> all;
  {
    const std::lock_guard lock(late().mutex);
    all.swap(late().all);
  }
  if (all.empty()) return;
  WithoutGil others_run;
  for (Late& each : all) each.object.reset();
}

}  // namespace graphsink::python
