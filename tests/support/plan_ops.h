// Ops for the device in plans that never run.
#pragma once

#include "test_ops.h"

namespace graphsink::testing {

inline void body_that_never_runs(CudaArgs&) {}

inline const OpDef planned_waits{
    .name = "waits", .infer = infer_like_first, .traits = {.capturable = false}, .bodies = {body_that_never_runs}};
inline const OpDef planned_outside{.name = "outside",
                                   .infer = infer_like_first,
                                   .traits = {.allowed_in_bodies = false},
                                   .bodies = {body_that_never_runs}};

}  // namespace graphsink::testing
