// Rows of the op table: products of batches, and ops that move data.
#pragma once

#include "op_reference_data.h"

namespace graphsink::testing {

// Plain matrices on either side, equal batches, and batches that broadcast; none at all, and sums of nothing.
inline OpRow batched_matmul_row(MatmulOptions options) {
  std::vector<Case> cases;
  struct Sizes {
    Shape batch_a, batch_b;
    std::int64_t m, k, n;
  };
  for (const auto& [batch_a, batch_b, m, k, n] : std::initializer_list<Sizes>{{{2}, {2}, 2, 3, 4},
                                                                              {{2, 3}, {}, 5, 3, 4},
                                                                              {{}, {3}, 2, 5, 3},
                                                                              {{3}, {1}, 2, 5, 3},
                                                                              {{1}, {2, 3}, 2, 5, 3},
                                                                              {{4, 1}, {1, 3}, 3, 2, 5},
                                                                              {{2, 1, 3}, {4, 1}, 1, 3, 2},
                                                                              {{0}, {0}, 2, 3, 4},
                                                                              {{0}, {}, 2, 3, 4},
                                                                              {{3}, {3}, 2, 0, 4},
                                                                              {{3}, {}, 0, 2, 4},
                                                                              {{7}, {7}, 33, 17, 9}}) {
    auto shape = [](Shape batch, std::int64_t rows, std::int64_t columns, bool is_transposed) {
      batch.push_back(is_transposed ? columns : rows);
      batch.push_back(is_transposed ? rows : columns);
      return batch;
    };
    cases.push_back({shape(batch_a, m, k, options.transpose_a), shape(batch_b, k, n, options.transpose_b)});
  }
  return {"matmul",
          kFloats,
          cases,
          [=](const auto& in) { return matmul(in[0], in[1], options); },
          [=](const Arrays& in) { return batched_product(in[0], in[1], options.transpose_a, options.transpose_b); },
          true};
}

inline void add_data_rows(std::vector<OpRow>& rows) {
  for (bool transpose_a : {false, true})
    for (bool transpose_b : {false, true})
      rows.push_back(batched_matmul_row({.transpose_a = transpose_a, .transpose_b = transpose_b}));
}

}  // namespace graphsink::testing
