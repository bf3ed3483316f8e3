// matmul: cuBLASLt on the GPU; on the CPU BLAS, one thread for each call.
#include <cblas.h>

#include <limits>

#include "graphsink/ops.h"
#include "kernels/kernel.h"
#ifdef GRAPHSINK_CUDA
#include "device/cuda/blas_lt.h"
#endif

namespace graphsink {
namespace {

struct MatmulAttrs {
  bool transpose_a, transpose_b;
};

struct Sizes {
  std::int64_t m, n, k;
};
Sizes sizes_of(const Shape& a, const Shape& b, const MatmulAttrs& attrs) {
  return {a[attrs.transpose_a ? 1 : 0], b[attrs.transpose_b ? 0 : 1], a[attrs.transpose_a ? 0 : 1]};
}

void infer_matmul(InferArgs& a) {
  a.expect_inputs(2);
  a.expect_same_dtype(2);
  const auto& attrs = a.attrs<MatmulAttrs>();
  if (!is_float(a.in(0).dtype)) a.fail("takes f32, f64", "cast() the operands");
  const Shape &lhs = a.in(0).shape, &rhs = a.in(1).shape;
  if (lhs.rank() != 2 || rhs.rank() != 2) a.fail("takes two matrices", "reshape() the operands");
  Sizes s = sizes_of(lhs, rhs, attrs);
  if (rhs[attrs.transpose_b ? 1 : 0] != s.k) {
    a.fail(std::string("inner dimensions differ") + (attrs.transpose_a ? ", a transposed" : "") +
               (attrs.transpose_b ? ", b transposed" : ""),
           "make the columns of the first the rows of the second");
  }
  a.out(a.in(0).dtype, {s.m, s.n});
}

void cpu_body(const CpuArgs& a) {
  const auto& attrs = a.attrs<MatmulAttrs>();
  Sizes s = sizes_of(a.in_type(0).shape, a.in_type(1).shape, attrs);
  if (s.m == 0 || s.n == 0) return;
  if (s.k == 0) {
    std::fill_n(a.out<std::byte>(0), a.out_type(0).bytes(), std::byte{0});
    return;
  }
  auto m = static_cast<int>(s.m), n = static_cast<int>(s.n), k = static_cast<int>(s.k);
  int row_a = attrs.transpose_a ? m : k, row_b = attrs.transpose_b ? k : n;
  CBLAS_TRANSPOSE order_a = attrs.transpose_a ? CblasTrans : CblasNoTrans;
  CBLAS_TRANSPOSE order_b = attrs.transpose_b ? CblasTrans : CblasNoTrans;
  if (a.out_type(0).dtype == DType::f32) {
    cblas_sgemm(CblasRowMajor, order_a, order_b, m, n, k, 1.0f, a.in<float>(0), row_a, a.in<float>(1), row_b, 0.0f,
                a.out<float>(0), n);
  } else {
    cblas_dgemm(CblasRowMajor, order_a, order_b, m, n, k, 1.0, a.in<double>(0), row_a, a.in<double>(1), row_b, 0.0,
                a.out<double>(0), n);
  }
}

Prepared prepare_cpu(const PrepareArgs& p, const Sizes& s) {
  if (std::max({s.m, s.n, s.k}) > std::numeric_limits<int>::max()) {
    throw Error(std::string(p.op), p.where, "a dimension above 2^31 - 1, the limit of BLAS", "split the operand");
  }
#ifdef OPENBLAS_SEQUENTIAL
  // For the whole process: how a product is split among threads, of which each machine has its own number, shows in
  // bits.
  if (openblas_get_num_threads() > 1) openblas_set_num_threads(1);
#endif
  return {};
}

#ifdef GRAPHSINK_CUDA
__global__ void fill_zeros(std::uint32_t* out, std::int64_t size) {
  wait_for_inputs();
  for (std::int64_t i = thread_index(); i < size; i += all_threads()) out[i] = 0;
}

void cuda_body(CudaArgs& a) {
  Sizes s = sizes_of(a.in_type(0).shape, a.in_type(1).shape, a.attrs<MatmulAttrs>());
  if (s.m == 0 || s.n == 0) return;
  if (s.k == 0) {
    auto words = static_cast<std::int64_t>(a.out_type(0).bytes() / sizeof(std::uint32_t));
    LaunchSize launch = launch_size(words);
    return a.launch(fill_zeros, launch.grid, launch.block, 0, a.out<std::uint32_t>(0), words);
  }
  run_matmul(a, a.in<void>(0), a.in<void>(1), a.out<void>(0));
}
constexpr CudaBody kCuda[] = {{0, cuda_body}};

Prepared prepare_matmul_op(const PrepareArgs& p) {
  const auto& attrs = p.attrs.as<MatmulAttrs>();
  Sizes s = sizes_of(p.in(0).shape, p.in(1).shape, attrs);
  if (!p.cuda) return prepare_cpu(p, s);
  load_kernel(p, fill_zeros);
  if (s.m == 0 || s.n == 0 || s.k == 0) return {};
  return prepare_matmul({p.out(0).dtype, s.m, s.n, s.k, attrs.transpose_a, attrs.transpose_b}, p);
}
#else
constexpr std::span<const CudaBody> kCuda;

Prepared prepare_matmul_op(const PrepareArgs& p) {
  return prepare_cpu(p, sizes_of(p.in(0).shape, p.in(1).shape, p.attrs.as<MatmulAttrs>()));
}
#endif

// Transposes go into the products, so that no gradient needs a transposed copy.
std::vector<Value> matmul_grad(const GradArgs& args) {
  const auto& [transpose_a, transpose_b] = args.attrs.as<MatmulAttrs>();
  Arg a(args.inputs[0], args.where), b(args.inputs[1], args.where), g(args.grads[0], args.where);
  std::vector<Value> result(2);
  if (args.needed[0]) result[0] = transpose_a ? matmul(b, g, transpose_b, true) : matmul(g, b, false, !transpose_b);
  if (args.needed[1]) result[1] = transpose_b ? matmul(g, a, true, transpose_a) : matmul(a, g, !transpose_a, false);
  return result;
}

const OpDef matmul_op{.name = "matmul",
                      .infer = infer_matmul,
                      .prepare = prepare_matmul_op,
                      .cuda = kCuda,
                      .cpu = cpu_body,
                      .grad = matmul_grad};

}  // namespace

Value matmul(Arg a, Arg b, bool transpose_a, bool transpose_b, Label label) {
  return emit(matmul_op, {a, b}, MatmulAttrs{transpose_a, transpose_b}, label)[0];
}

}  // namespace graphsink
