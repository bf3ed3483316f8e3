#include "handles.h"

#include <mutex>
#include <utility>
#include <vector>

#include "host_op.h"

namespace graphsink::python {

namespace {

struct Ended {
  std::unique_ptr<Program> program;
  nb::object callables;  // which its steps call until it has ended
};

// Programs that somebody has dropped in the function of a host op. Never freed, because it may be used last.
struct Late {
  std::mutex mutex;
  std::vector<Ended> programs;
};
Late& late() {
  static auto* all = new Late;
  return *all;
}

// Without the GIL, which the functions of the program's ops need while it waits for them.
void end(std::unique_ptr<Program> program) noexcept {
  nb::gil_scoped_release others_run;
  program.reset();
}

}  // namespace

void ProgramHandle::close() noexcept {
  outputs.clear();
  if (program == nullptr) return;
  // The Program stays, moved from, so that calls throw Error.
  auto ended = std::make_unique<Program>(std::move(*program));
  if (!is_in_host_op()) return end(std::move(ended));
  const std::lock_guard lock(late().mutex);
  late().programs.push_back({std::move(ended), callables});
}

std::uint64_t ProgramHandle::work(const Where& where) const {
  Counters given;
  {
    nb::gil_scoped_release others_run;
    given = program->counters(where);
  }
  // Data on its way to inputs is not among these. A step in a graph of the caller's is none of them: its call is.
  return runs + given.kernels + given.graph_launches + given.host_nodes;
}

void close_late_programs() noexcept {
  if (is_in_host_op()) return;
  std::vector<Ended> all;
  {
    const std::lock_guard lock(late().mutex);
    all.swap(late().programs);
  }
  for (Ended& each : all) end(std::move(each.program));
}

}  // namespace graphsink::python
