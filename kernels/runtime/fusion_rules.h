// The rules by which the planner computes built-in ops together with others. Each stands beside its op.
#pragma once

#include "ir/fusion_rules.h"

namespace graphsink {

extern const FusionRule matmul_rules[3];        // linalg/matmul.cu
extern const FusionRule attention_rules[2];     // nn/attention.cu
extern const FusionRule sum_rules[2];           // reduce/reduce.cu
extern const FusionRule extreme_rules[2];       // reduce/extremes.cu
extern const FusionRule fold_rules[4];          // reduce/fold.cu
extern const FusionRule fused_kernel_rules[9];  // runtime/fused.cu

inline constexpr std::span<const FusionRule> kFusionRules[] = {matmul_rules,  attention_rules, sum_rules,
                                                               extreme_rules, fold_rules,      fused_kernel_rules};

}  // namespace graphsink
