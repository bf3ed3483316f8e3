#include "handles.h"

#include <utility>

namespace graphsink::python {

void ProgramHandle::close() noexcept {
  outputs.clear();
  // The Program stays, moved from, so that calls throw Error.
  if (program != nullptr) end(std::move(*program), callables);
}

std::uint64_t ProgramHandle::work(const Where& where) const {
  Counters given;
  {
    WithoutGil others_run;
    given = program->counters(where);
  }
  // Data on its way to inputs is not among these. A step in a graph of the caller's is none of them: its call is.
  return runs + given.kernels + given.graph_launches + given.host_nodes;
}

}  // namespace graphsink::python
