// Preloaded, it stands for OpenBLAS, whose products have other bits on each processor: plain loops with the same
// additions in the same order everywhere, to be compiled without contraction into fused multiply-adds. Rows only.
enum { kNoTranspose = 111 };

#define DEFINE_GEMM(name, T)                                                                                           \
  void name(int order, int transpose_a, int transpose_b, int rows, int columns, int depth, T alpha, const T* a,        \
            int stride_a, const T* b, int stride_b, T beta, T* c, int stride_c) {                                      \
    (void)order;                                                                                                       \
    for (long i = 0; i < rows; ++i) {                                                                                  \
      for (long j = 0; j < columns; ++j) {                                                                             \
        T sum = 0;                                                                                                     \
        for (long k = 0; k < depth; ++k) {                                                                             \
          T x = transpose_a == kNoTranspose ? a[i * stride_a + k] : a[k * stride_a + i];                               \
          T y = transpose_b == kNoTranspose ? b[k * stride_b + j] : b[j * stride_b + k];                               \
          sum += x * y;                                                                                                \
        }                                                                                                              \
        T* result = &c[i * stride_c + j];                                                                              \
        *result = beta == 0 ? alpha * sum : alpha * sum + beta * *result;                                              \
      }                                                                                                                \
    }                                                                                                                  \
  }
DEFINE_GEMM(cblas_sgemm, float)
DEFINE_GEMM(cblas_dgemm, double)
