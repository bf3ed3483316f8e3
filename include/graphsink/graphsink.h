// Everything but CUDA types.
#pragma once

#include "graphsink/automatic.h"
#include "graphsink/checkpoint.h"
#include "graphsink/control.h"
#include "graphsink/error.h"
#include "graphsink/grad.h"
#include "graphsink/graph.h"
#include "graphsink/loader.h"
#include "graphsink/log.h"
#include "graphsink/memory.h"
#include "graphsink/op.h"
#include "graphsink/ops.h"
#include "graphsink/optim.h"
#include "graphsink/plan.h"
#include "graphsink/program.h"
#include "graphsink/tensor.h"
#include "graphsink/type.h"
