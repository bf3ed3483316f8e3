// Matrix products of CPU bodies: BLAS, one thread for each call.
#pragma once

#include <cblas.h>

namespace graphsink {

// For the whole process: how a product is split among threads, of which each machine has its own number, shows in
// bits. From prepare().
inline void use_one_blas_thread() {
#ifdef OPENBLAS_SEQUENTIAL
  if (openblas_get_num_threads() > 1) openblas_set_num_threads(1);
#endif
}

// c = alpha * a b + beta * c, row-major; a is [m, k], or [k, m] if transposed, b is [k, n] or [n, k]. Each has its
// distance between rows.
template <class T>
struct BlasMatrix {
  const T* data;
  int row;
  bool is_transposed = false;
  CBLAS_TRANSPOSE order() const { return is_transposed ? CblasTrans : CblasNoTrans; }
};
inline void multiply(int m, int n, int k, float alpha, BlasMatrix<float> a, BlasMatrix<float> b, float beta, float* c,
                     int row) {
  cblas_sgemm(CblasRowMajor, a.order(), b.order(), m, n, k, alpha, a.data, a.row, b.data, b.row, beta, c, row);
}
inline void multiply(int m, int n, int k, double alpha, BlasMatrix<double> a, BlasMatrix<double> b, double beta,
                     double* c, int row) {
  cblas_dgemm(CblasRowMajor, a.order(), b.order(), m, n, k, alpha, a.data, a.row, b.data, b.row, beta, c, row);
}

}  // namespace graphsink
