// cublasSgemm and cublasSgemmStridedBatched against a plain loop, and what their handle keeps.
#include <cublas_v2.h>

#include <array>
#include <limits>
#include <string>

#include "test_support.h"

#define ASSERT_BLAS(call) ASSERT_EQ(CUBLAS_STATUS_SUCCESS, call) << #call

namespace emu_test::gemm_test {
namespace {

constexpr int kM = 5, kN = 3, kK = 7, kBatches = 2;
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

class GemmTest : public EmulatorTest {
 protected:
  void SetUp() override {
    EmulatorTest::SetUp();
    ASSERT_BLAS(cublasCreate(&handle_));
    ASSERT_BLAS(cublasSetStream(handle_, stream_));
  }
  void TearDown() override {
    cublasDestroy(handle_);
    EmulatorTest::TearDown();
  }

  // C = 2 op(A) op(B) + beta C for two batches, with unused elements between the columns and between the batches.
  void check(bool ta, bool tb, float beta, bool captured);

  cublasHandle_t handle_ = nullptr;
};

struct Matrices {
  int rows, ld, stride;
  bool transposed;
  Matrices(int op_rows, int op_cols, bool is_transposed)
      : rows(is_transposed ? op_cols : op_rows),
        ld(rows + 2),
        stride(ld * (is_transposed ? op_rows : op_cols) + 3),
        transposed(is_transposed) {}
  std::size_t size() const { return static_cast<std::size_t>(stride * kBatches); }
  std::size_t at(int batch, int i, int j) const {
    return static_cast<std::size_t>(batch * stride + (transposed ? i * ld + j : j * ld + i));
  }
};

void GemmTest::check(bool ta, bool tb, float beta, bool captured) {
  const Matrices a(kM, kK, ta), b(kK, kN, tb), c(kM, kN, false);
  std::vector<float> left(a.size()), right(b.size()), out(c.size());
  for (std::size_t i = 0; i < left.size(); ++i) left[i] = static_cast<float>(i % 11) - 4;
  for (std::size_t i = 0; i < right.size(); ++i) right[i] = static_cast<float>(i % 8) * 0.5f;
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = beta == 0 ? -1.0f : static_cast<float>(i);
  std::vector<float> expected = out;
  for (int n = 0; n < kBatches; ++n) {
    for (int i = 0; i < kM; ++i) {
      for (int j = 0; j < kN; ++j) {
        float sum = 0;
        for (int k = 0; k < kK; ++k) sum += left[a.at(n, i, k)] * right[b.at(n, k, j)];
        float& element = expected[c.at(n, i, j)];
        element = 2 * sum + (beta == 0 ? 0 : beta * element);
      }
    }
  }
  const float *pa = device(left), *pb = device(right);
  const cublasOperation_t opa = ta ? CUBLAS_OP_T : CUBLAS_OP_N, opb = tb ? CUBLAS_OP_C : CUBLAS_OP_N;
  for (const bool batched : {false, true}) {
    float* pc = device(out);
    if (captured) {
      ASSERT_OK(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeGlobal));
    }
    float alpha = 2, factor = beta;
    if (batched) {
      ASSERT_BLAS(cublasSgemmStridedBatched(handle_, opa, opb, kM, kN, kK, &alpha, pa, a.ld, a.stride, pb, b.ld,
                                            b.stride, &factor, pc, c.ld, c.stride, kBatches));
    } else {
      for (int n = 0; n < kBatches; ++n) {
        ASSERT_BLAS(cublasSgemm(handle_, opa, opb, kM, kN, kK, &alpha, pa + n * a.stride, a.ld, pb + n * b.stride, b.ld,
                                &factor, pc + n * c.stride, c.ld));
      }
    }
    alpha = factor = kNaN;  // both were read by the call
    if (captured) {
      cudaGraph_t graph = nullptr;
      ASSERT_OK(cudaStreamEndCapture(stream_, &graph));
      std::size_t nodes = 0;
      ASSERT_OK(cudaGraphGetNodes(graph, nullptr, &nodes));
      EXPECT_EQ(batched ? 1u : 2u, nodes);
      EXPECT_EQ(out, host(pc, out.size())) << "captured work has run";
      launch_and_destroy(graph);
    }
    ASSERT_OK(cudaStreamSynchronize(stream_));
    EXPECT_EQ(expected, host(pc, out.size())) << ta << tb << beta << captured << batched;
  }
}

TEST_F(GemmTest, MultipliesAsAPlainLoop) {
  for (const bool ta : {false, true}) {
    for (const bool tb : {false, true}) {
      for (const float beta : {0.0f, 0.25f}) {
        check(ta, tb, beta, false);
        check(ta, tb, beta, true);
      }
    }
  }
}

TEST_F(GemmTest, IsLazy) {
  float *ones = device(std::vector<float>(4, 1.0f)), *out = device<float>(4);
  const float one = 1, zero = 0;
  ASSERT_OK(cudaStreamSynchronize(stream_));
  emu::reset_calls();
  ASSERT_BLAS(cublasSgemm(handle_, CUBLAS_OP_N, CUBLAS_OP_N, 2, 2, 2, &one, ones, 2, ones, 2, &zero, out, 2));
  EXPECT_EQ(0u, emu::executed().kernels);
  ASSERT_OK(cudaStreamSynchronize(stream_));
  EXPECT_EQ(1u, emu::executed().kernels);
  EXPECT_EQ(std::vector<float>(4, 2.0f), host(out, 4)) << "C was NaN and is not read";
}

TEST_F(GemmTest, ReadsNothingThatItDoesNotNeed) {
  float* out = device(std::vector<float>(4, 3.0f));
  float* unread = device<float>(4);  // full of NaN
  const float zero = 0, two = 2;
  ASSERT_BLAS(cublasSgemm(handle_, CUBLAS_OP_N, CUBLAS_OP_N, 2, 2, 2, &zero, unread, 2, unread, 2, &two, out, 2));
  ASSERT_BLAS(cublasSgemm(handle_, CUBLAS_OP_N, CUBLAS_OP_N, 2, 2, 0, &two, nullptr, 2, nullptr, 1, &two, out, 2));
  ASSERT_BLAS(cublasSgemm(handle_, CUBLAS_OP_N, CUBLAS_OP_N, 0, 2, 2, &two, nullptr, 1, nullptr, 2, &two, nullptr, 1));
  ASSERT_OK(cudaStreamSynchronize(stream_));
  EXPECT_EQ(std::vector<float>(4, 12.0f), host(out, 4));
}

TEST_F(GemmTest, RefusesWhatDoesNotFit) {
  float *a = device<float>(16), *b = device<float>(16), *c = device<float>(16);
  const float one = 1;
  const auto status = [&](cublasOperation_t ta, int m, int n, int k, const float* alpha, const float* left, int lda,
                          int ldb, float* out, int ldc) {
    return cublasSgemm(handle_, ta, CUBLAS_OP_N, m, n, k, alpha, left, lda, b, ldb, &one, out, ldc);
  };
  EXPECT_EQ(CUBLAS_STATUS_SUCCESS, status(CUBLAS_OP_N, 4, 4, 4, &one, a, 4, 4, c, 4));
  EXPECT_EQ(CUBLAS_STATUS_SUCCESS, status(CUBLAS_OP_T, 4, 4, 2, &one, a, 2, 2, c, 4));
  EXPECT_EQ(CUBLAS_STATUS_INVALID_VALUE, status(CUBLAS_OP_N, -1, 4, 4, &one, a, 4, 4, c, 4));
  EXPECT_EQ(CUBLAS_STATUS_INVALID_VALUE, status(CUBLAS_OP_N, 4, 4, -1, &one, a, 4, 4, c, 4));
  EXPECT_EQ(CUBLAS_STATUS_INVALID_VALUE, status(static_cast<cublasOperation_t>(9), 4, 4, 4, &one, a, 4, 4, c, 4));
  EXPECT_EQ(CUBLAS_STATUS_INVALID_VALUE, status(CUBLAS_OP_N, 4, 4, 4, &one, a, 3, 4, c, 4));
  EXPECT_EQ(CUBLAS_STATUS_INVALID_VALUE, status(CUBLAS_OP_N, 4, 4, 4, &one, a, 4, 3, c, 4));
  EXPECT_EQ(CUBLAS_STATUS_INVALID_VALUE, status(CUBLAS_OP_N, 4, 4, 4, &one, a, 4, 4, c, 3));
  EXPECT_EQ(CUBLAS_STATUS_INVALID_VALUE, status(CUBLAS_OP_N, 4, 4, 4, nullptr, a, 4, 4, c, 4));
  EXPECT_EQ(CUBLAS_STATUS_INVALID_VALUE, status(CUBLAS_OP_N, 4, 4, 4, &one, nullptr, 4, 4, c, 4));
  EXPECT_EQ(CUBLAS_STATUS_INVALID_VALUE, status(CUBLAS_OP_N, 4, 4, 4, &one, a, 4, 4, a, 4)) << "overwrites A";
  EXPECT_EQ(CUBLAS_STATUS_INVALID_VALUE, status(CUBLAS_OP_N, 4, 4, 4, &one, a, 5, 4, c, 4)) << "beyond the allocation";
  EXPECT_EQ(CUBLAS_STATUS_INVALID_VALUE, cublasSgemmStridedBatched(handle_, CUBLAS_OP_N, CUBLAS_OP_N, 2, 2, 2, &one, a,
                                                                   2, 4, b, 2, 4, &one, c, 2, 4, -1));
  EXPECT_EQ(CUBLAS_STATUS_INVALID_VALUE, cublasSgemmStridedBatched(handle_, CUBLAS_OP_N, CUBLAS_OP_N, 2, 2, 2, &one, a,
                                                                   2, 4, b, 2, 4, &one, c, 2, 4, 5))
      << "beyond the allocation";
  EXPECT_EQ(CUBLAS_STATUS_NOT_INITIALIZED,
            cublasSgemm(nullptr, CUBLAS_OP_N, CUBLAS_OP_N, 2, 2, 2, &one, a, 2, b, 2, &one, c, 2));
  ASSERT_OK(cudaStreamSynchronize(stream_));
}

TEST_F(GemmTest, TakesFactorsFromTheDevice) {
  float *ones = device(std::vector<float>(4, 1.0f)), *out = device(std::vector<float>(4, 1.0f));
  float* factors = device(std::vector<float>{3, 10});
  ASSERT_BLAS(cublasSetPointerMode(handle_, CUBLAS_POINTER_MODE_DEVICE));
  ASSERT_BLAS(cublasSgemm(handle_, CUBLAS_OP_N, CUBLAS_OP_N, 2, 2, 2, factors, ones, 2, ones, 2, factors + 1, out, 2));
  ASSERT_OK(cudaStreamSynchronize(stream_));
  EXPECT_EQ(std::vector<float>(4, 16.0f), host(out, 4));
}

TEST_F(GemmTest, RoundsInTheModeOfTf32Only) {
  const float exact = 1.0f + 1.0f / 4096, one = 1, zero = 0;
  float *left = device(std::vector<float>{exact}), *right = device(std::vector<float>{1}), *out = device<float>(1);
  const auto product = [&](cublasMath_t mode) {
    EXPECT_EQ(CUBLAS_STATUS_SUCCESS, cublasSetMathMode(handle_, mode));
    EXPECT_EQ(CUBLAS_STATUS_SUCCESS,
              cublasSgemm(handle_, CUBLAS_OP_N, CUBLAS_OP_N, 1, 1, 1, &one, left, 1, right, 1, &zero, out, 1));
    EXPECT_EQ(cudaSuccess, cudaStreamSynchronize(stream_));
    return host(out, 1)[0];
  };
  EXPECT_EQ(exact, product(CUBLAS_DEFAULT_MATH));
  EXPECT_EQ(exact, product(CUBLAS_PEDANTIC_MATH));
  EXPECT_EQ(1.0f, product(CUBLAS_TF32_TENSOR_OP_MATH));
  EXPECT_EQ(CUBLAS_STATUS_INVALID_VALUE, cublasSetMathMode(handle_, static_cast<cublasMath_t>(7)));
}

TEST_F(GemmTest, KeepsStreamWorkspaceAndModes) {
  char* workspace = device<char>(1024);
  float *ones = device(std::vector<float>(4, 1.0f)), *out = device<float>(4);
  const float one = 1, zero = 0;
  const auto multiply = [&] {
    return cublasSgemm(handle_, CUBLAS_OP_N, CUBLAS_OP_N, 2, 2, 2, &one, ones, 2, ones, 2, &zero, out, 2);
  };
  EXPECT_EQ(CUBLAS_STATUS_INVALID_VALUE, cublasSetWorkspace(handle_, workspace + 16, 512));
  ASSERT_BLAS(cublasSetWorkspace(handle_, workspace, 1024));
  ASSERT_BLAS(cublasSetStream(handle_, stream_));  // takes the workspace away again
  ASSERT_BLAS(multiply());
  ASSERT_OK(cudaStreamSynchronize(stream_));
  EXPECT_EQ('\xFF', host(workspace, 1)[0]);
  ASSERT_BLAS(cublasSetWorkspace(handle_, workspace, 1024));
  ASSERT_BLAS(multiply());
  ASSERT_OK(cudaStreamSynchronize(stream_));
  EXPECT_EQ('\xA5', host(workspace, 1)[0]) << "what lay in the workspace is lost, as on a GPU";
  cudaStream_t stream = nullptr;
  cublasMath_t math;
  cublasPointerMode_t pointers;
  cublasAtomicsMode_t atomics;
  int version = 0;
  ASSERT_BLAS(cublasGetStream(handle_, &stream));
  ASSERT_BLAS(cublasGetMathMode(handle_, &math));
  ASSERT_BLAS(cublasGetPointerMode(handle_, &pointers));
  ASSERT_BLAS(cublasSetAtomicsMode(handle_, CUBLAS_ATOMICS_ALLOWED));
  ASSERT_BLAS(cublasGetAtomicsMode(handle_, &atomics));
  ASSERT_BLAS(cublasGetVersion(handle_, &version));
  EXPECT_EQ(stream_, stream);
  EXPECT_EQ(CUBLAS_DEFAULT_MATH, math);
  EXPECT_EQ(CUBLAS_POINTER_MODE_HOST, pointers);
  EXPECT_EQ(CUBLAS_ATOMICS_ALLOWED, atomics);
  EXPECT_EQ(CUBLAS_VERSION, version);
  EXPECT_EQ(CUBLAS_STATUS_INVALID_VALUE, cublasGetStream(handle_, nullptr));
  EXPECT_EQ("CUBLAS_STATUS_INVALID_VALUE", std::string(cublasGetStatusName(CUBLAS_STATUS_INVALID_VALUE)));
  EXPECT_EQ(CUBLAS_STATUS_NOT_INITIALIZED, cublasDestroy(nullptr));
}

TEST_F(GemmTest, CanFail) {
  cublasHandle_t handle = nullptr;
  emu::fail("cublasCreate_v2", 1, static_cast<cudaError_t>(CUBLAS_STATUS_NOT_INITIALIZED));
  EXPECT_EQ(CUBLAS_STATUS_NOT_INITIALIZED, cublasCreate(&handle));
  EXPECT_EQ(nullptr, handle);
  EXPECT_EQ(CUBLAS_STATUS_INVALID_VALUE, cublasCreate(nullptr));
}

}  // namespace
}  // namespace emu_test::gemm_test
