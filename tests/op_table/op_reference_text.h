// The ops of text models in plain C++ and f64.
#pragma once

#include "op_reference.h"

namespace graphsink::testing {

Array softmax_of(const Array& x, int axis, bool is_log);
Array norm_of(const Array& x, const Array& gain, const Array* bias, double epsilon);
// x [n, c, ...] with mean 0 and variance 1 in each of the groups of channels of a sample, or, without groups, in each
// channel.
Array channel_norm_of(const Array& x, std::int64_t groups, const Array& gain, const Array& bias, double epsilon);
// The scores, without a softmax, are changed by `score`(query, key, score).
using ChangeScore = std::function<double(std::int64_t head, std::int64_t query, std::int64_t key, double score)>;
Array attention_of(const Array& q, const Array& k, const Array& v, double scale, const ChangeScore& change);
Array attention_of(const Array& q, const Array& k, const Array& v, bool is_causal, double scale);
}  // namespace graphsink::testing
