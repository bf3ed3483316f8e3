// cublasLtMatmul against a plain reference.
#include <cublasLt.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <type_traits>

#include "test_support.h"

#define ASSERT_BLAS(call) ASSERT_EQ(CUBLAS_STATUS_SUCCESS, call) << #call

namespace emu_test::blas_test {
namespace {

struct Shape {
  std::uint64_t rows, cols;
  bool transposed;
  std::uint64_t stored_rows() const { return transposed ? cols : rows; }
  std::uint64_t stored_cols() const { return transposed ? rows : cols; }
};

class BlasTest : public EmulatorTest {
 protected:
  void SetUp() override {
    EmulatorTest::SetUp();
    ASSERT_BLAS(cublasLtCreate(&handle_));
    ASSERT_BLAS(cublasLtMatmulPreferenceCreate(&preference_));
    ASSERT_BLAS(cublasLtMatmulPreferenceSetAttribute(preference_, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &bytes_,
                                                     sizeof bytes_));
  }
  void TearDown() override {
    for (const cublasLtMatrixLayout_t layout : layouts_) cublasLtMatrixLayoutDestroy(layout);
    cublasLtMatmulPreferenceDestroy(preference_);
    if (operation_ != nullptr) cublasLtMatmulDescDestroy(operation_);
    cublasLtDestroy(handle_);
    EmulatorTest::TearDown();
  }

  template <class T>
  cublasLtMatrixLayout_t layout(std::uint64_t rows, std::uint64_t cols, cublasLtOrder_t order, int batches = 1) {
    cublasLtMatrixLayout_t made = nullptr;
    const cudaDataType type = std::is_same_v<T, double>          ? CUDA_R_64F
                              : std::is_same_v<T, __half>        ? CUDA_R_16F
                              : std::is_same_v<T, __nv_bfloat16> ? CUDA_R_16BF
                                                                 : CUDA_R_32F;
    const auto ld = static_cast<std::int64_t>(order == CUBLASLT_ORDER_ROW ? cols : rows);
    EXPECT_EQ(CUBLAS_STATUS_SUCCESS, cublasLtMatrixLayoutCreate(&made, type, rows, cols, ld));
    set(made, CUBLASLT_MATRIX_LAYOUT_ORDER, order);
    set(made, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, batches);
    set(made, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, static_cast<std::int64_t>(rows * cols));
    layouts_.push_back(made);
    return made;
  }
  template <class T>
  void set(cublasLtMatrixLayout_t made, cublasLtMatrixLayoutAttribute_t attribute, T value) {
    EXPECT_EQ(CUBLAS_STATUS_SUCCESS, cublasLtMatrixLayoutSetAttribute(made, attribute, &value, sizeof value));
  }
  template <class T>
  void operation(bool ta, bool tb) {
    if (operation_ != nullptr) cublasLtMatmulDescDestroy(operation_);
    const bool single = std::is_same_v<T, float>;
    ASSERT_BLAS(cublasLtMatmulDescCreate(&operation_, single ? CUBLAS_COMPUTE_32F : CUBLAS_COMPUTE_64F,
                                         single ? CUDA_R_32F : CUDA_R_64F));
    const cublasOperation_t a = ta ? CUBLAS_OP_T : CUBLAS_OP_N, b = tb ? CUBLAS_OP_T : CUBLAS_OP_N;
    ASSERT_BLAS(cublasLtMatmulDescSetAttribute(operation_, CUBLASLT_MATMUL_DESC_TRANSA, &a, sizeof a));
    ASSERT_BLAS(cublasLtMatmulDescSetAttribute(operation_, CUBLASLT_MATMUL_DESC_TRANSB, &b, sizeof b));
  }

  template <class T>
  void check(bool ta, bool tb, cublasLtOrder_t order, bool captured, bool device_factors);

  cublasLtHandle_t handle_ = nullptr;
  cublasLtMatmulPreference_t preference_ = nullptr;
  cublasLtMatmulDesc_t operation_ = nullptr;
  std::uint64_t bytes_ = 4096;
  std::vector<cublasLtMatrixLayout_t> layouts_;
};

// Position of op(matrix)(i, j) in memory.
std::size_t position(const Shape& shape, cublasLtOrder_t order, std::uint64_t i, std::uint64_t j) {
  if (shape.transposed) std::swap(i, j);
  return order == CUBLASLT_ORDER_ROW ? i * shape.stored_cols() + j : j * shape.stored_rows() + i;
}

template <class T>
void BlasTest::check(bool ta, bool tb, cublasLtOrder_t order, bool captured, bool device_factors) {
  const Shape a{5, 7, ta}, b{7, 3, tb}, d{5, 3, false};
  const int batches = 2;
  std::vector<T> left(batches * 35), right(batches * 21), add(batches * 15), expected(batches * 15);
  for (std::size_t i = 0; i < left.size(); ++i) left[i] = static_cast<T>(i % 11) - 4;
  for (std::size_t i = 0; i < right.size(); ++i) right[i] = static_cast<T>(i % 8) * T(0.5);
  for (std::size_t i = 0; i < add.size(); ++i) add[i] = static_cast<T>(i);
  const T alpha = 2, beta = T(0.25);
  for (int n = 0; n < batches; ++n) {
    for (std::uint64_t i = 0; i < 5; ++i) {
      for (std::uint64_t j = 0; j < 3; ++j) {
        T sum = 0;
        for (std::uint64_t k = 0; k < 7; ++k) {
          sum += left[n * 35 + position(a, order, i, k)] * right[n * 21 + position(b, order, k, j)];
        }
        const std::size_t at = n * 15 + position(d, order, i, j);
        expected[at] = alpha * sum + beta * add[at];
      }
    }
  }
  operation<T>(ta, tb);
  const T *factor = &alpha, *addend_factor = &beta;
  if (device_factors) {
    const cublasLtPointerMode_t mode = CUBLASLT_POINTER_MODE_DEVICE;
    ASSERT_BLAS(cublasLtMatmulDescSetAttribute(operation_, CUBLASLT_MATMUL_DESC_POINTER_MODE, &mode, sizeof mode));
    factor = device(std::vector<T>{alpha});
    addend_factor = device(std::vector<T>{beta});
  }
  const auto la = layout<T>(a.stored_rows(), a.stored_cols(), order, batches);
  const auto lb = layout<T>(b.stored_rows(), b.stored_cols(), order, batches);
  const auto ld = layout<T>(5, 3, order, batches);
  cublasLtMatmulHeuristicResult_t chosen;
  int found = 0;
  ASSERT_BLAS(cublasLtMatmulAlgoGetHeuristic(handle_, operation_, la, lb, ld, ld, preference_, 1, &chosen, &found));
  ASSERT_EQ(1, found);
  T *pa = device(left), *pb = device(right), *pd = device(add);
  char* workspace = device<char>(bytes_);
  if (captured) {
    ASSERT_OK(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal));
  }
  ASSERT_BLAS(cublasLtMatmul(handle_, operation_, factor, pa, la, pb, lb, addend_factor, pd, ld, pd, ld, &chosen.algo,
                             workspace, bytes_, stream_));
  cudaGraph_t graph = nullptr;
  if (captured) {
    ASSERT_OK(cudaStreamEndCapture(stream_, &graph));
    launch_and_destroy(graph);
  }
  ASSERT_OK(cudaStreamSynchronize(stream_));
  EXPECT_EQ(expected, host(pd, expected.size())) << ta << tb << order;
  EXPECT_EQ('\xA5', host(workspace, 1)[0]) << "what lay in the workspace is lost, as on a GPU";
}

TEST_F(BlasTest, MultipliesAsTheReference) {
  for (const bool ta : {false, true}) {
    for (const bool tb : {false, true}) {
      for (const cublasLtOrder_t order : {CUBLASLT_ORDER_ROW, CUBLASLT_ORDER_COL}) {
        for (const bool device_factors : {false, true}) {
          check<float>(ta, tb, order, false, device_factors);
          check<double>(ta, tb, order, true, device_factors);
        }
      }
    }
  }
}

TEST_F(BlasTest, RefusesWhatDoesNotFit) {
  operation<float>(false, false);
  const auto a = layout<float>(4, 4, CUBLASLT_ORDER_ROW), wrong = layout<float>(5, 4, CUBLASLT_ORDER_ROW);
  cublasLtMatmulHeuristicResult_t chosen;
  int found = 0;
  EXPECT_EQ(CUBLAS_STATUS_INVALID_VALUE,
            cublasLtMatmulAlgoGetHeuristic(handle_, operation_, a, wrong, a, a, preference_, 1, &chosen, &found));
  ASSERT_BLAS(cublasLtMatmulAlgoGetHeuristic(handle_, operation_, a, a, a, a, preference_, 1, &chosen, &found));
  float *pa = device<float>(17), *pb = device<float>(17), *pd = device<float>(17);
  char* workspace = device<char>(bytes_);
  const float one = 1, zero = 0;
  const auto multiply = [&](const float* left, float* out, char* space, std::size_t bytes) {
    return cublasLtMatmul(handle_, operation_, &one, left, a, pb, a, &zero, nullptr, a, out, a, &chosen.algo, space,
                          bytes, stream_);
  };
  EXPECT_EQ(CUBLAS_STATUS_SUCCESS, multiply(pa, pd, workspace, bytes_));
  EXPECT_EQ(CUBLAS_STATUS_INVALID_VALUE, multiply(pa + 1, pd, workspace, bytes_));  // alignment asked for: 256
  EXPECT_EQ(CUBLAS_STATUS_INVALID_VALUE, multiply(pa, pd, nullptr, 0));             // needs its workspace
  EXPECT_EQ(CUBLAS_STATUS_INVALID_VALUE, multiply(pa, pd, workspace + 8, bytes_ - 8));
  EXPECT_EQ(CUBLAS_STATUS_INVALID_VALUE, multiply(pa, pa, workspace, bytes_));  // overwrites its operand
  set(a, CUBLASLT_MATRIX_LAYOUT_LD, std::int64_t{3});
  EXPECT_EQ(CUBLAS_STATUS_INVALID_VALUE, multiply(pa, pd, workspace, bytes_));
  set(a, CUBLASLT_MATRIX_LAYOUT_LD, std::int64_t{5});
  EXPECT_EQ(CUBLAS_STATUS_INVALID_VALUE, multiply(pa, pd, workspace, bytes_));  // beyond the allocation
  const cublasLtEpilogue_t relu = CUBLASLT_EPILOGUE_RELU;
  EXPECT_EQ(CUBLAS_STATUS_NOT_SUPPORTED,
            cublasLtMatmulDescSetAttribute(operation_, CUBLASLT_MATMUL_DESC_EPILOGUE, &relu, sizeof relu));
  ASSERT_OK(cudaStreamSynchronize(stream_));
}

// A sum of 2049 ones, which f16 and bf16 can neither hold nor reach.
TEST_F(BlasTest, HalvesAreSummedInSingle) {
  operation<float>(false, false);
  constexpr std::uint64_t kTerms = 2049;
  const auto sum = [&]<class In, class Out>(In one, Out) {
    const auto a = layout<In>(1, kTerms, CUBLASLT_ORDER_ROW), b = layout<In>(kTerms, 1, CUBLASLT_ORDER_ROW);
    const auto d = layout<Out>(1, 1, CUBLASLT_ORDER_ROW);
    In* ones = device(std::vector<In>(kTerms, one));
    Out* out = device<Out>(1);
    const float alpha = 1, beta = 0;
    EXPECT_EQ(CUBLAS_STATUS_SUCCESS, cublasLtMatmul(handle_, operation_, &alpha, ones, a, ones, b, &beta, nullptr, d,
                                                    out, d, nullptr, nullptr, 0, stream_));
    EXPECT_EQ(cudaSuccess, cudaStreamSynchronize(stream_));
    return static_cast<float>(host(out, 1)[0]);
  };
  EXPECT_EQ(2049, sum(__float2half(1), 0.0f));
  EXPECT_EQ(2048, sum(__float2half(1), __half{}));
  EXPECT_EQ(2049, sum(__float2bfloat16(1), 0.0f));
  EXPECT_EQ(2048, sum(__float2bfloat16(1), __nv_bfloat16{}));
}

TEST_F(BlasTest, OffersAnAlgorithmOfManyPartsFirst) {
  operation<float>(false, false);
  const auto a = layout<float>(2, 64, CUBLASLT_ORDER_ROW), b = layout<float>(64, 2, CUBLASLT_ORDER_ROW),
             d = layout<float>(2, 2, CUBLASLT_ORDER_ROW);
  cublasLtMatmulHeuristicResult_t chosen[3];
  int found = 0;
  ASSERT_BLAS(cublasLtMatmulAlgoGetHeuristic(handle_, operation_, a, b, d, d, preference_, 3, chosen, &found));
  ASSERT_EQ(found, 2);
  const int expected[] = {8, 1};
  for (int i = 0; i < found; ++i) {
    std::int32_t parts = 0;
    std::size_t written = 0;
    ASSERT_BLAS(cublasLtMatmulAlgoConfigGetAttribute(&chosen[i].algo, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, &parts,
                                                     sizeof parts, &written));
    EXPECT_EQ(parts, expected[i]);
    EXPECT_EQ(written, sizeof parts);
  }
}

TEST_F(BlasTest, RefusesTypesThatDoNotFit) {
  const auto single = layout<float>(4, 4, CUBLASLT_ORDER_ROW), half = layout<__half>(4, 4, CUBLASLT_ORDER_ROW),
             brain = layout<__nv_bfloat16>(4, 4, CUBLASLT_ORDER_ROW);
  cublasLtMatmulHeuristicResult_t chosen;
  int found = 0;
  const auto choose = [&](cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t d) {
    return cublasLtMatmulAlgoGetHeuristic(handle_, operation_, a, b, d, d, preference_, 1, &chosen, &found);
  };
  operation<float>(false, false);
  EXPECT_EQ(CUBLAS_STATUS_SUCCESS, choose(half, half, single));
  EXPECT_EQ(CUBLAS_STATUS_NOT_SUPPORTED, choose(half, brain, single));
  EXPECT_EQ(CUBLAS_STATUS_NOT_SUPPORTED, choose(half, half, brain));
  EXPECT_EQ(CUBLAS_STATUS_NOT_SUPPORTED, choose(single, single, half));
  operation<double>(false, false);
  EXPECT_EQ(CUBLAS_STATUS_NOT_SUPPORTED, choose(half, half, single));
  EXPECT_EQ(CUBLAS_STATUS_NOT_SUPPORTED, choose(single, single, single));
}

TEST_F(BlasTest, DoesNotReadCWhenBetaIsZeroAndCountsFaults) {
  operation<float>(false, false);
  const auto a = layout<float>(2, 2, CUBLASLT_ORDER_ROW);
  float* ones = device(std::vector<float>(4, 1.0f));
  float* out = device<float>(4);  // full of NaN
  const float one = 1, zero = 0;
  emu::fail("cublasLtMatmul", 1, static_cast<cudaError_t>(CUBLAS_STATUS_ALLOC_FAILED));
  const auto multiply = [&] {
    return cublasLtMatmul(handle_, operation_, &one, ones, a, ones, a, &zero, out, a, out, a, nullptr, nullptr, 0,
                          stream_);
  };
  EXPECT_EQ(CUBLAS_STATUS_ALLOC_FAILED, multiply());
  ASSERT_BLAS(multiply());
  ASSERT_OK(cudaStreamSynchronize(stream_));
  EXPECT_EQ(std::vector<float>(4, 2.0f), host(out, 4));
}

}  // namespace
}  // namespace emu_test::blas_test
