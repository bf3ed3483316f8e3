// Matrix products for CPU bodies. They call BLAS, with one thread per call.
#pragma once

#include <cblas.h>

namespace graphsink {

// Makes OpenBLAS use one thread, in the whole process. How a product is split among threads affects the bits of the
// result, and the number of threads differs between machines. The application may set another number at any time, so
// multiply() calls it for each product: where nothing is to do, it reads one number.
inline void use_one_blas_thread() {
#ifdef OPENBLAS_SEQUENTIAL
  if (openblas_get_num_threads() > 1) openblas_set_num_threads(1);
#endif
}

// One operand of multiply(), which computes c = alpha * a b + beta * c. All matrices are row-major: a is [m, k], or [k,
// m] if transposed; b is [k, n], or [n, k] if transposed. `row` is the distance between rows, in elements.
template <class T>
struct BlasMatrix {
  const T* data;
  int row;
  bool is_transposed = false;
  CBLAS_TRANSPOSE order() const { return is_transposed ? CblasTrans : CblasNoTrans; }
};
// With as many threads as OpenBLAS is set to use.
inline void multiply_by_threads(int m, int n, int k, float alpha, BlasMatrix<float> a, BlasMatrix<float> b, float beta,
                                float* c, int row) {
  cblas_sgemm(CblasRowMajor, a.order(), b.order(), m, n, k, alpha, a.data, a.row, b.data, b.row, beta, c, row);
}
inline void multiply_by_threads(int m, int n, int k, double alpha, BlasMatrix<double> a, BlasMatrix<double> b,
                                double beta, double* c, int row) {
  cblas_dgemm(CblasRowMajor, a.order(), b.order(), m, n, k, alpha, a.data, a.row, b.data, b.row, beta, c, row);
}
template <class T>
void multiply(int m, int n, int k, T alpha, BlasMatrix<T> a, BlasMatrix<T> b, T beta, T* c, int row) {
  use_one_blas_thread();
  multiply_by_threads(m, n, k, alpha, a, b, beta, c, row);
}

}  // namespace graphsink
