// The application may set the number of threads of OpenBLAS, which is one for the process, while it has programs.
#include <cblas.h>
#include <gtest/gtest.h>

#include "graphsink/graphsink.h"
#include "test_ops.h"

namespace graphsink::blas_threads_test {
namespace {

#ifdef OPENBLAS_SEQUENTIAL

template <class Build>
void expect_one_thread(const Build& build) {
  for (Mode mode : kAllModes) {
    SCOPED_TRACE(to_string(mode));
    Graph g;
    g.output("y", build(g));
    Program p = compile(g, {.target = cpu(), .tuning = {.threads = 2}});
    p.run(mode);
    p.sync();
    openblas_set_num_threads(2);
    p.run(mode);
    p.sync();
    EXPECT_EQ(openblas_get_num_threads(), 1) << "the products of the second run were split among threads";
  }
  openblas_set_num_threads(1);
}

TEST(BlasThreads, ThatTheApplicationSetsDoNotSplitAProduct) {
  for (DType dtype : {f32, f64, f16}) {
    SCOPED_TRACE(to_string(dtype));
    expect_one_thread([&](Graph& g) {
      const Value x = g.value(Variable("x", Tensor::full(dtype, {48, 48}, 1)));
      return matmul(x, x);
    });
  }
}

TEST(BlasThreads, ThatTheApplicationSetsDoNotSplitAnAttention) {
  expect_one_thread([](Graph& g) {
    const Value x = g.value(Variable("x", Tensor::full(f32, {1, 2, 16, 8}, 1)));
    return attention(x, x, x);
  });
}

#endif

}  // namespace
}  // namespace graphsink::blas_threads_test
