#include "kernels/file_ops.h"

#include <vector>

namespace graphsink {

std::vector<FileOp> built_in_ops() {
  std::vector<FileOp> ops;
  for (const auto of_file :
       {binary_file_ops,    cast_file_ops,         clamp_file_ops,     compare_file_ops,      unary_file_ops,
        where_file_ops,     matmul_file_ops,       arange_file_ops,    broadcast_file_ops,    concat_file_ops,
        dim_file_ops,       gather_file_ops,       nonzero_file_ops,   one_hot_file_ops,      reshape_file_ops,
        scatter_file_ops,   slice_file_ops,        sort_file_ops,      take_along_file_ops,   top_k_file_ops,
        transpose_file_ops, triangle_file_ops,     attention_file_ops, conv_file_ops,         cross_entropy_file_ops,
        norm_file_ops,      pool_file_ops,         softmax_file_ops,   adamw_file_ops,        gradients_file_ops,
        sgd_file_ops,       random_file_ops,       cumsum_file_ops,    extremes_file_ops,     fold_file_ops,
        reduce_file_ops,    check_finite_file_ops, stack_file_ops,     switch_index_file_ops, while_limit_file_ops}) {
    const std::span<const FileOp> more = of_file();
    ops.insert(ops.end(), more.begin(), more.end());
  }
  return ops;
}

}  // namespace graphsink
