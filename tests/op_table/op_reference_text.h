// The ops of text models in plain C++ and f64.
#pragma once

#include "op_reference.h"

namespace graphsink::testing {

Array softmax_of(const Array& x, int axis, bool is_log);
Array norm_of(const Array& x, const Array& gain, const Array* bias, double epsilon);
Array attention_of(const Array& q, const Array& k, const Array& v, bool is_causal, double scale);
}  // namespace graphsink::testing
