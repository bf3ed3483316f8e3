// Everything but CUDA types.
#pragma once

#if __cplusplus < 202002L
#error "graphsink needs C++20: compile with -std=c++20, or in CMake target_compile_features(TARGET PRIVATE cxx_std_20)"
#else
#include "graphsink/automatic.h"
#include "graphsink/bucket.h"
#include "graphsink/capture.h"
#include "graphsink/checkpoint.h"
#include "graphsink/control.h"
#include "graphsink/error.h"
#include "graphsink/external.h"
#include "graphsink/grad.h"
#include "graphsink/graph.h"
#include "graphsink/loader.h"
#include "graphsink/log.h"
#include "graphsink/memory.h"
#include "graphsink/mode.h"
#include "graphsink/op.h"
#include "graphsink/ops.h"
#include "graphsink/optim.h"
#include "graphsink/options.h"
#include "graphsink/plan_summary.h"
#include "graphsink/program.h"
#include "graphsink/scope.h"
#include "graphsink/select.h"
#include "graphsink/stream.h"
#include "graphsink/target.h"
#include "graphsink/tensor.h"
#include "graphsink/type.h"
#include "graphsink/version.h"
#endif
