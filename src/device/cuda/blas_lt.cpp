#include "device/cuda/blas_lt.h"

#include <cublasLt.h>

#include <algorithm>
#include <array>
#include <map>

#include "device/cuda/device.h"
#include "device/cuda/run_once.h"
#include "ir/bound_node.h"
#include "passes/plan_queries.h"

namespace graphsink {
namespace blas_lt {

// cublasLtDestroy() frees memory. A capture in progress must neither forbid this nor be broken by it.
inline cublasStatus_t destroy_library(cublasLtHandle_t library, const Log& log) {
  RelaxedCapture always_allowed(log);
  return cublasLtDestroy(library);
}

template <class T, auto Destroy, CallName kCall>
using BlasHandle = Handle<T, Destroy, kCall, cublasLtGetStatusName>;
using Library = BlasHandle<cublasLtHandle_t, destroy_library, "cublasLtDestroy">;
using Operation = BlasHandle<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy, "cublasLtMatmulDescDestroy">;
using Layout = BlasHandle<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy, "cublasLtMatrixLayoutDestroy">;
using Preference =
    BlasHandle<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy, "cublasLtMatmulPreferenceDestroy">;

// cuBLASLt is column-major: what this library stores as [rows, cols] is the transposed matrix for cuBLASLt. Therefore
// the plan computes out^T = rhs^T x lhs^T.
struct MatmulPlan {
  std::shared_ptr<Library> library;
  Operation operation;
  Layout rhs, lhs, out;
  cublasLtMatmulAlgo_t algorithm = {};
  std::size_t workspace = 0;
  std::size_t alignment = 1;
  bool is_double = false;
};

}  // namespace blas_lt

using blas_lt::MatmulPlan;

namespace {

using blas_lt::Layout;
using blas_lt::Library;
using blas_lt::Operation;
using blas_lt::Preference;

class Checked {
 public:
  Checked(const PrepareArgs& args, const Log& log) : args_(args), log_(log) {}
  const Log& log() const { return log_; }  // for the handles that are created
  void operator()(cublasStatus_t status, const char* call) const {
    if (status == CUBLAS_STATUS_SUCCESS) return;
    throw Error(std::string(args_.op), args_.where, std::string(call) + " returned " + cublasLtGetStatusName(status),
                "see this status in the documentation of cuBLASLt");
  }

 private:
  const PrepareArgs& args_;
  const Log& log_;
};

// `rows` and `cols` describe the matrix as stored, row-major.
Layout make_layout(cudaDataType type, std::int64_t rows, std::int64_t cols, const MatmulSpec& spec,
                   std::int64_t batch_stride, const Checked& check) {
  Layout layout;
  check(cublasLtMatrixLayoutCreate(layout.out(check.log()), type, static_cast<std::uint64_t>(cols),
                                   static_cast<std::uint64_t>(rows), cols),
        "cublasLtMatrixLayoutCreate");
  if (spec.batches > 1) {
    auto batches = static_cast<std::int32_t>(spec.batches);
    check(cublasLtMatrixLayoutSetAttribute(layout.get(), CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &batches, sizeof batches),
          "cublasLtMatrixLayoutSetAttribute");
    check(cublasLtMatrixLayoutSetAttribute(layout.get(), CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &batch_stride,
                                           sizeof batch_stride),
          "cublasLtMatrixLayoutSetAttribute");
  }
  return layout;
}

cudaDataType type_of(DType dtype) {
  switch (dtype) {
    case DType::f16:
      return CUDA_R_16F;
    case DType::bf16:
      return CUDA_R_16BF;
    case DType::f64:
      return CUDA_R_64F;
    default:
      return CUDA_R_32F;
  }
}

void describe_product(const MatmulSpec& spec, MatmulPlan& plan, const Checked& check) {
  cublasComputeType_t compute = plan.is_double ? CUBLAS_COMPUTE_64F
                                : spec.tf32    ? CUBLAS_COMPUTE_32F_FAST_TF32
                                               : CUBLAS_COMPUTE_32F;
  check(cublasLtMatmulDescCreate(plan.operation.out(check.log()), compute, plan.is_double ? CUDA_R_64F : CUDA_R_32F),
        "cublasLtMatmulDescCreate");
  cublasOperation_t first = spec.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N;
  cublasOperation_t second = spec.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N;
  check(cublasLtMatmulDescSetAttribute(plan.operation.get(), CUBLASLT_MATMUL_DESC_TRANSA, &first, sizeof first),
        "cublasLtMatmulDescSetAttribute");
  check(cublasLtMatmulDescSetAttribute(plan.operation.get(), CUBLASLT_MATMUL_DESC_TRANSB, &second, sizeof second),
        "cublasLtMatmulDescSetAttribute");
  const auto& [lhs_stride, rhs_stride, out_stride] = spec.batch_strides;
  cudaDataType type = type_of(spec.dtype);
  plan.rhs = make_layout(type, spec.transpose_b ? spec.n : spec.k, spec.transpose_b ? spec.k : spec.n, spec, rhs_stride,
                         check);
  plan.lhs = make_layout(type, spec.transpose_a ? spec.k : spec.m, spec.transpose_a ? spec.m : spec.k, spec, lhs_stride,
                         check);
  plan.out = make_layout(type_of(spec.out_dtype()), spec.m, spec.n, spec, out_stride, check);
}

// Whether the algorithm divides the sum over k into parts that are too short to be worth the work of adding them. The
// heuristic of cuBLASLt 13.1 puts such algorithms first: for [8, 512] x [512, 128] on an H100, one of 264 parts, which
// took 51 us.
bool has_short_parts(const cublasLtMatmulAlgo_t& algorithm, std::int64_t k, const Checked& check) {
  constexpr std::int64_t kShortest = 32;
  std::int32_t parts = 0;
  std::size_t written = 0;
  check(
      cublasLtMatmulAlgoConfigGetAttribute(&algorithm, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, &parts, sizeof parts, &written),
      "cublasLtMatmulAlgoConfigGetAttribute");
  return parts > 1 && k / parts < kShortest;
}

// Takes the first result of the heuristic without short parts, or the first. Algorithms are not timed, because a choice
// by measured time could differ from run to run.
void choose_algorithm(const MatmulSpec& spec, const PrepareArgs& args, int sm, MatmulPlan& plan, const Checked& check) {
  Preference preference;
  check(cublasLtMatmulPreferenceCreate(preference.out(check.log())), "cublasLtMatmulPreferenceCreate");
  std::size_t limit = (sm >= 90 ? std::size_t{32} : std::size_t{4}) << 20;
  check(cublasLtMatmulPreferenceSetAttribute(preference.get(), CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &limit,
                                             sizeof limit),
        "cublasLtMatmulPreferenceSetAttribute");
  auto alignment = static_cast<std::uint32_t>(spec.alignment);
  for (auto operand : {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
                       CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
    check(cublasLtMatmulPreferenceSetAttribute(preference.get(), operand, &alignment, sizeof alignment),
          "cublasLtMatmulPreferenceSetAttribute");
  }
  std::array<cublasLtMatmulHeuristicResult_t, 8> results = {};
  int found = 0;
  check(cublasLtMatmulAlgoGetHeuristic(plan.library->get(), plan.operation.get(), plan.rhs.get(), plan.lhs.get(),
                                       plan.out.get(), plan.out.get(), preference.get(),
                                       static_cast<int>(results.size()), results.data(), &found),
        "cublasLtMatmulAlgoGetHeuristic");
  const auto end = std::remove_if(results.begin(), results.begin() + found,
                                  [](const auto& result) { return result.state != CUBLAS_STATUS_SUCCESS; });
  if (end == results.begin()) {
    throw Error(std::string(args.op), args.where,
                "cuBLASLt has no algorithm for m, n, k = " + std::to_string(spec.m) + ", " + std::to_string(spec.n) +
                    ", " + std::to_string(spec.k),
                "use other shapes, or the placement gs::on_cpu");
  }
  auto chosen = std::find_if(results.begin(), end,
                             [&](const auto& result) { return !has_short_parts(result.algo, spec.k, check); });
  if (chosen == end) chosen = results.begin();
  plan.algorithm = chosen->algo;
  plan.workspace = chosen->workspaceSize;
}

cublasStatus_t enqueue(const MatmulPlan& plan, const void* lhs, const void* rhs, void* out, void* workspace,
                       cudaStream_t stream) {
  constexpr float kOne = 1, kZero = 0;
  constexpr double kOneDouble = 1, kZeroDouble = 0;
  const void* alpha = plan.is_double ? static_cast<const void*>(&kOneDouble) : &kOne;
  const void* beta = plan.is_double ? static_cast<const void*>(&kZeroDouble) : &kZero;
  return cublasLtMatmul(plan.library->get(), plan.operation.get(), alpha, rhs, plan.rhs.get(), lhs, plan.lhs.get(),
                        beta, out, plan.out.get(), out, plan.out.get(), &plan.algorithm, workspace, plan.workspace,
                        stream);
}

// Runs the product once on scratch memory, so that its kernels are loaded.
void load_kernels(const MatmulSpec& spec, const MatmulPlan& plan, CudaDevice& device, const Checked& check) {
  auto bytes = [&](DType dtype, std::int64_t count, std::int64_t batch_stride) {
    return rounded_block(static_cast<std::size_t>(count + (spec.batches - 1) * batch_stride) * size_of(dtype));
  };
  const auto& [lhs_stride, rhs_stride, out_stride] = spec.batch_strides;
  std::size_t inputs =
      std::max(bytes(spec.dtype, spec.m * spec.k, lhs_stride), bytes(spec.dtype, spec.k * spec.n, rhs_stride));
  std::size_t out = bytes(spec.out_dtype(), spec.m * spec.n, out_stride);
  run_once(device, "a product", inputs + out + plan.workspace, [&](cudaStream_t stream, std::byte* base) {
    check(enqueue(plan, base, base, base + inputs, base + inputs + out, stream), "cublasLtMatmul");
  });
}

std::shared_ptr<const MatmulPlan> plan_matmul(const MatmulSpec& spec, const PrepareArgs& args, CudaDevice& device,
                                              std::shared_ptr<Library>& library) {
  CurrentDevice current(device.calls());
  RelaxedCapture relaxed(device.calls());
  Checked check(args, device.calls().log);
  if (!library) {
    auto made = std::make_shared<Library>();
    check(cublasLtCreate(made->out(check.log())), "cublasLtCreate");
    library = std::move(made);
  }
  auto plan = std::make_shared<MatmulPlan>();
  plan->is_double = spec.dtype == DType::f64;
  plan->alignment = spec.alignment;
  plan->library = library;
  describe_product(spec, *plan, check);
  choose_algorithm(spec, args, device.target().sm, *plan, check);
  return plan;
}

bool is_aligned(const void* pointer, std::size_t bytes) {
  return reinterpret_cast<std::uintptr_t>(pointer) % bytes == 0;
}

}  // namespace

// Holds the cuBLASLt handle of a device and the algorithms that were chosen for it so far.
struct Matmuls {
  struct Chosen {
    std::shared_ptr<const MatmulPlan> plan;
    bool is_loaded = false;  // its kernels are loaded, because it ran once
  };
  std::shared_ptr<blas_lt::Library> library;
  std::map<MatmulSpec, Chosen> products;
};

Prepared prepare_matmul(const MatmulSpec& spec, const PrepareArgs& args) {
  if (spec.m == 0 || spec.n == 0) return {std::make_shared<MatmulPlan>(), 0};
  // PrepareArgs::device is a Device*.
  auto& device = static_cast<CudaDevice&>(*static_cast<Device*>(args.device));
  if (!device.matmuls) device.matmuls = std::make_shared<Matmuls>();
  Matmuls::Chosen& chosen = device.matmuls->products[spec];
  if (!chosen.plan) chosen.plan = plan_matmul(spec, args, device, device.matmuls->library);
  // Kernels must not be loaded during a capture. The first step is not captured and loads the kernels of all products
  // it runs. A product that the first step may skip is loaded here instead.
  if (args.may_be_skipped && !chosen.is_loaded) {
    load_kernels(spec, *chosen.plan, device, Checked(args, device.calls().log));
    chosen.is_loaded = true;
  }
  return {chosen.plan, chosen.plan->workspace};
}

void run_matmul(const CudaArgs& a, const void* data, const void* lhs, const void* rhs, void* out, void* workspace) {
  const auto& plan = *static_cast<const MatmulPlan*>(data);
  if (!plan.operation) return;
  for (const void* operand : {lhs, rhs, static_cast<const void*>(out)}) {
    if (is_aligned(operand, plan.alignment)) continue;
    throw Error(std::string(bound_node(a).op->name), a.where(),
                "an operand of the product is not " + std::to_string(plan.alignment) + "-byte aligned",
                "copy the view first");
  }
  cublasStatus_t status = enqueue(plan, lhs, rhs, out, workspace, a.stream());
  if (status != CUBLAS_STATUS_SUCCESS) {
    throw Error(std::string(bound_node(a).op->name), a.where(),
                std::string("cublasLtMatmul returned ") + cublasLtGetStatusName(status),
                "see this status in the documentation of cuBLASLt");
  }
  a.count_kernel();
}

}  // namespace graphsink
