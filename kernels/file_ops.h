// The ops of each source file that nodes of a graph may have. A new op needs an entry in the list of its file.
#pragma once

#include <span>

#include "graphsink/file_op.h"

namespace graphsink {

std::span<const FileOp> binary_file_ops();
std::span<const FileOp> cast_file_ops();
std::span<const FileOp> clamp_file_ops();
std::span<const FileOp> compare_file_ops();
std::span<const FileOp> unary_file_ops();
std::span<const FileOp> where_file_ops();
std::span<const FileOp> matmul_file_ops();
std::span<const FileOp> arange_file_ops();
std::span<const FileOp> broadcast_file_ops();
std::span<const FileOp> concat_file_ops();
std::span<const FileOp> dim_file_ops();
std::span<const FileOp> gather_file_ops();
std::span<const FileOp> nonzero_file_ops();
std::span<const FileOp> one_hot_file_ops();
std::span<const FileOp> reshape_file_ops();
std::span<const FileOp> scatter_file_ops();
std::span<const FileOp> slice_file_ops();
std::span<const FileOp> sort_file_ops();
std::span<const FileOp> take_along_file_ops();
std::span<const FileOp> top_k_file_ops();
std::span<const FileOp> transpose_file_ops();
std::span<const FileOp> triangle_file_ops();
std::span<const FileOp> attention_file_ops();
std::span<const FileOp> conv_file_ops();
std::span<const FileOp> cross_entropy_file_ops();
std::span<const FileOp> norm_file_ops();
std::span<const FileOp> pool_file_ops();
std::span<const FileOp> softmax_file_ops();
std::span<const FileOp> adamw_file_ops();
std::span<const FileOp> gradients_file_ops();
std::span<const FileOp> sgd_file_ops();
std::span<const FileOp> random_file_ops();
std::span<const FileOp> cumsum_file_ops();
std::span<const FileOp> extremes_file_ops();
std::span<const FileOp> fold_file_ops();
std::span<const FileOp> reduce_file_ops();
std::span<const FileOp> check_finite_file_ops();
std::span<const FileOp> stack_file_ops();
std::span<const FileOp> switch_index_file_ops();
std::span<const FileOp> while_limit_file_ops();

}  // namespace graphsink
