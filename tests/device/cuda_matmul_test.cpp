// Matrix products of the CUDA device.
#include <gtest/gtest.h>

#include <algorithm>

#include "cuda_device_fixture.h"
#include "device/cuda/blas_lt.h"
#include "graphsink/graphsink.h"
#ifdef GRAPHSINK_EMULATED
#include <cublasLt.h>

#include "emulator.h"
#include "ir/bound_node.h"
#endif

namespace graphsink::testing::cuda_matmul_test {
namespace {

struct MatmulCase {
  MatmulSpec spec;
};

const OpDef product = {
    .name = "product",
    .prepare = [](const PrepareArgs& a) { return prepare_matmul(a.attrs.as<MatmulCase>().spec, a); },
};
void run_product(CudaArgs& a) {
  run_matmul(a, bound_node(a).local, a.in<void>(0), a.in<void>(1), a.in_out<void>(2), a.workspace());
}

class MatmulTest : public CudaDeviceTest {
 protected:
  template <class T>
  void check(const MatmulSpec& spec) {
    auto elements = [](std::int64_t rows, std::int64_t cols) { return static_cast<std::size_t>(rows * cols); };
    std::vector<T> lhs(elements(spec.m, spec.k)), rhs(elements(spec.k, spec.n)), seen(elements(spec.m, spec.n));
    for (std::size_t i = 0; i < lhs.size(); ++i) lhs[i] = static_cast<T>(static_cast<int>(i * 7 % 11) - 5);
    for (std::size_t i = 0; i < rhs.size(); ++i) rhs[i] = static_cast<T>(static_cast<int>(i * 5 % 13) - 6);
    Memory a = filled(lhs), b = filled(rhs), out = filled(seen);

    OpDef op = product;
    op.bodies = {run_product};
    BoundNode bound = node(op, {a.get(), b.get(), out.get()}, MatmulCase{spec});
    Attrs attrs = MatmulCase{spec};
    Prepared prepared = op.prepare({op.name, bound.where, {}, 2, attrs, true, device_.get()});
    EXPECT_LE(prepared.workspace, std::size_t{32} << 20);
    Memory workspace = device_->allocate(prepared.workspace);
    bound.local = prepared.data.get();
    bound.workspace = workspace.get();
    auto expect_right = [&] {
      device_->copy(*stream_, seen.data(), out.get(), seen.size() * sizeof(T));
      device_->wait(*stream_);
      for (std::int64_t i = 0; i < spec.m; ++i) {
        for (std::int64_t j = 0; j < spec.n; ++j) {
          T sum = 0;  // of small whole numbers: exact in any order
          for (std::int64_t l = 0; l < spec.k; ++l) {
            sum += lhs[elements(1, spec.transpose_a ? l * spec.m + i : i * spec.k + l)] *
                   rhs[elements(1, spec.transpose_b ? j * spec.k + l : l * spec.n + j)];
          }
          ASSERT_EQ(seen[elements(1, i * spec.n + j)], sum) << i << ", " << j;
        }
      }
    };
    device_->call(*stream_, bound);  // before it is captured: a capture must not load kernels
    expect_right();
    auto captured = capture([&](Stream& s) { device_->call(s, bound); });
    std::fill(seen.begin(), seen.end(), T{-1});
    device_->upload(*stream_, out.get(), seen.data(), seen.size() * sizeof(T));
    device_->launch(*stream_, *captured);
    expect_right();
  }
  template <class T>
  Memory filled(const std::vector<T>& values) {
    Memory memory = device_->allocate(values.size() * sizeof(T));
    device_->upload(*stream_, memory.get(), values.data(), values.size() * sizeof(T));
    return memory;
  }
};

TEST_F(MatmulTest, AgreesWithTheDefinition) {
  for (bool a : {false, true}) {
    for (bool b : {false, true}) {
      for (DType dtype : {f32, f64}) {
        SCOPED_TRACE(std::string(to_string(dtype)) + (a ? ", lhs transposed" : "") + (b ? ", rhs transposed" : ""));
        MatmulSpec spec{dtype, 5, 7, 3, a, b};
        dtype == f64 ? check<double>(spec) : check<float>(spec);
        spec = {dtype, 1, 33, 17, a, b};
        dtype == f64 ? check<double>(spec) : check<float>(spec);
      }
    }
  }
}

TEST_F(MatmulTest, AnEmptyProductDoesNothing) { check<float>({f32, 0, 4, 3, false, false}); }

TEST_F(MatmulTest, UnalignedOperandsAreRefused) {
  Memory memory = device_->allocate(4096);
  auto* data = static_cast<float*>(memory.get());
  OpDef op = product;
  op.bodies = {run_product};
  Attrs attrs = MatmulCase{{f32, 2, 2, 2, false, false}};
  BoundNode bound = node(op, {data + 1, data + 256, data + 512}, attrs);
  Prepared prepared = op.prepare({op.name, bound.where, {}, 2, attrs, true, device_.get()});
  bound.local = prepared.data.get();
  auto issue = [&](Stream& s) { device_->call(s, bound); };
  std::string message = message_of([&] { issue(*stream_); });
  EXPECT_TRUE(contains(message, "product: an operand of the product is not 256-byte aligned")) << message;
  EXPECT_THROW(capture(issue), CaptureFailed);
  message = message_of([&] { capture(issue); });
  EXPECT_TRUE(contains(message, "product: an operand of the product is not 256-byte aligned")) << message;
  expect_usable();
}

#ifdef GRAPHSINK_EMULATED

// The software device's heuristic puts an algorithm first that adds up 8 terms at a time. 2^24 + 1 is rounded to 2^24,
// but 2^24 + 8 is not.
TEST_F(MatmulTest, AnAlgorithmOfShortPartsIsNotTaken) {
  Tensor terms = Tensor::full(f32, {1, 64}, 1.0);
  terms.as<float>()[0] = 0x1p24f;
  Graph g;
  g.output("sum", matmul(g.constant(terms), g.constant(Tensor::full(f32, {64, 1}, 1.0))));
  Program p = compile(g, {.target = cuda(0)});
  p.run(interactive);
  EXPECT_EQ(p.output("sum").at(0), 0x1p24);
}

class MatmulFaultTest : public MatmulTest {
 protected:
  void TearDown() override { emu::reset(); }
  Prepared prepare(const MatmulSpec& spec, bool may_be_skipped = true) {
    Attrs attrs = MatmulCase{spec};
    return product.prepare({product.name, Where(), {}, 2, attrs, true, device_.get(), may_be_skipped});
  }
};

TEST_F(MatmulFaultTest, AFailingCallOfCublasLtIsNamed) {
  std::int64_t n = 3;  // a new product each time: what was prepared once is kept
  for (std::string call : {"cublasLtCreate", "cublasLtMatmulDescCreate", "cublasLtMatrixLayoutCreate",
                           "cublasLtMatmulAlgoGetHeuristic", "cublasLtMatmul"}) {
    emu::fail(call, 1, static_cast<cudaError_t>(CUBLAS_STATUS_NOT_SUPPORTED));
    ++n;
    std::string message = message_of([&] { prepare({f32, n, n, n, false, false}); });
    EXPECT_TRUE(contains(message, "product: " + call + " returned CUBLAS_STATUS_NOT_SUPPORTED")) << message;
    check<float>({f32, n, n, n, false, false});
  }
}

TEST_F(MatmulFaultTest, AFailingProductIsNamed) {
  Memory memory = device_->allocate(4096);
  OpDef op = product;
  op.bodies = {run_product};
  MatmulSpec spec{f32, 2, 2, 2, false, false};
  BoundNode bound = node(op, {memory.get(), memory.get(), memory.get()}, MatmulCase{spec});
  Prepared prepared = prepare(spec);
  bound.local = prepared.data.get();
  emu::fail("cublasLtMatmul", 1, static_cast<cudaError_t>(CUBLAS_STATUS_EXECUTION_FAILED));
  std::string message = message_of([&] { device_->call(*stream_, bound); });
  EXPECT_TRUE(contains(message, "product: cublasLtMatmul returned CUBLAS_STATUS_EXECUTION_FAILED")) << message;
}

TEST_F(MatmulFaultTest, WithoutRoomForATrialItsKernelsAreLoadedLater) {
  emu::fail("cudaMalloc", 1, cudaErrorMemoryAllocation);
  EXPECT_NO_THROW(prepare({f32, 5, 5, 5, false, false}));
  check<float>({f32, 5, 5, 5, false, false});
}

TEST_F(MatmulFaultTest, OnlyWhatTheFirstStepMaySkipIsTriedAndOnlyOnce) {
  auto trials_of = [&](bool may_be_skipped) {
    emu::reset_calls();
    prepare({f32, 8, 8, 8, false, false}, may_be_skipped);
    EXPECT_EQ(emu::calls("cudaMalloc"), emu::calls("cublasLtMatmul"));
    return emu::calls("cublasLtMatmul");
  };
  EXPECT_EQ(trials_of(false), 0u);
  EXPECT_EQ(trials_of(true), 1u);
  EXPECT_EQ(trials_of(true), 0u);
}

TEST_F(MatmulFaultTest, AProgramTriesTheProductsOfItsBodies) {
  Graph g;
  Value x = g.input("x", f32, {4, 4}), w = g.input("w", f32, {4, 2});
  Value y = if_(
      sum(x) > 0.0, [&] { return x * 2.0; }, [&] { return x + matmul(x, x); });
  g.output("y", matmul(y, w));
  emu::reset_calls();
  Program p = compile(g, {.target = cuda(0)});
  p.write(x, Tensor::full(f32, {4, 4}, 1));
  p.write(w, Tensor::full(f32, {4, 2}, 1));
  p.run(interactive);
  EXPECT_EQ(p.output("y").at(0), 8);
  EXPECT_EQ(emu::calls("cublasLtMatmul"), 2u) << "the trial of the branch not taken, and the last product";
}

// An error of the trial belongs to this op, not to whatever waits next.
TEST_F(MatmulFaultTest, PrepareWaitsForItsTrial) {
  emu::reset_calls();
  prepare({f32, 6, 6, 6, false, false});
  auto waits = static_cast<int>(emu::calls("cudaStreamSynchronize"));
  emu::reset_calls();
  emu::fail("cudaStreamSynchronize", waits, cudaErrorIllegalAddress);
  EXPECT_THROW(prepare({f32, 7, 7, 7, false, false}), Error);
  EXPECT_EQ(emu::calls("cublasLtMatmul"), 1u) << "the last wait is for the product";
}

#endif

}  // namespace
}  // namespace graphsink::testing::cuda_matmul_test
