#include "device/cuda/blas_lt.h"

#include <cublasLt.h>

#include <algorithm>
#include <map>

#include <spdlog/spdlog.h>

#include "device/cuda/device.h"

namespace graphsink {
namespace {

constexpr std::uintptr_t kAlignment = 256;  // of operands: what cuBLASLt takes for granted unless told otherwise

// It frees memory.
cublasStatus_t destroy_library(cublasLtHandle_t library) {
  RelaxedCapture always_allowed;
  return cublasLtDestroy(library);
}

template <class T, auto Destroy, CallName kCall>
using BlasHandle = Handle<T, Destroy, kCall, cublasLtGetStatusName>;
using Library = BlasHandle<cublasLtHandle_t, destroy_library, "cublasLtDestroy">;
using Operation = BlasHandle<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy, "cublasLtMatmulDescDestroy">;
using Layout = BlasHandle<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy, "cublasLtMatrixLayoutDestroy">;
using Preference =
    BlasHandle<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy, "cublasLtMatmulPreferenceDestroy">;

// cuBLASLt is column-major: what is [rows, cols] to us is its transpose there. So it computes out^T = rhs^T x lhs^T.
struct MatmulPlan {
  std::shared_ptr<Library> library;
  Operation operation;
  Layout rhs, lhs, out;
  cublasLtMatmulAlgo_t algorithm = {};
  std::size_t workspace = 0;
  bool is_double = false;
};

class Checked {
 public:
  explicit Checked(const PrepareArgs& args) : args_(args) {}
  void operator()(cublasStatus_t status, const char* call) const {
    if (status == CUBLAS_STATUS_SUCCESS) return;
    throw Error(std::string(args_.op), args_.where, std::string(call) + " returned " + cublasLtGetStatusName(status),
                "see this status in the documentation of cuBLASLt");
  }

 private:
  const PrepareArgs& args_;
};

// `rows` and `cols` as stored, row-major.
Layout make_layout(cudaDataType type, std::int64_t rows, std::int64_t cols, const Checked& check) {
  Layout layout;
  check(cublasLtMatrixLayoutCreate(layout.out(), type, static_cast<std::uint64_t>(cols),
                                   static_cast<std::uint64_t>(rows), cols),
        "cublasLtMatrixLayoutCreate");
  return layout;
}

void describe_product(const MatmulSpec& spec, MatmulPlan& plan, const Checked& check) {
  cudaDataType type = plan.is_double ? CUDA_R_64F : CUDA_R_32F;
  cublasComputeType_t compute = plan.is_double ? CUBLAS_COMPUTE_64F : CUBLAS_COMPUTE_32F;
  check(cublasLtMatmulDescCreate(plan.operation.out(), compute, type), "cublasLtMatmulDescCreate");
  cublasOperation_t first = spec.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N;
  cublasOperation_t second = spec.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N;
  check(cublasLtMatmulDescSetAttribute(plan.operation.get(), CUBLASLT_MATMUL_DESC_TRANSA, &first, sizeof first),
        "cublasLtMatmulDescSetAttribute");
  check(cublasLtMatmulDescSetAttribute(plan.operation.get(), CUBLASLT_MATMUL_DESC_TRANSB, &second, sizeof second),
        "cublasLtMatmulDescSetAttribute");
  plan.rhs = make_layout(type, spec.transpose_b ? spec.n : spec.k, spec.transpose_b ? spec.k : spec.n, check);
  plan.lhs = make_layout(type, spec.transpose_a ? spec.k : spec.m, spec.transpose_a ? spec.m : spec.k, check);
  plan.out = make_layout(type, spec.m, spec.n, check);
}

// The first answer of the heuristic: a choice that is never measured is the same in every run.
void choose_algorithm(const MatmulSpec& spec, const PrepareArgs& args, int sm, MatmulPlan& plan, const Checked& check) {
  Preference preference;
  check(cublasLtMatmulPreferenceCreate(preference.out()), "cublasLtMatmulPreferenceCreate");
  std::size_t limit = (sm >= 90 ? std::size_t{32} : std::size_t{4}) << 20;
  check(cublasLtMatmulPreferenceSetAttribute(preference.get(), CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &limit,
                                             sizeof limit),
        "cublasLtMatmulPreferenceSetAttribute");
  cublasLtMatmulHeuristicResult_t result = {};
  int found = 0;
  check(cublasLtMatmulAlgoGetHeuristic(plan.library->get(), plan.operation.get(), plan.rhs.get(), plan.lhs.get(),
                                       plan.out.get(), plan.out.get(), preference.get(), 1, &result, &found),
        "cublasLtMatmulAlgoGetHeuristic");
  if (found == 0 || result.state != CUBLAS_STATUS_SUCCESS) {
    throw Error(std::string(args.op), args.where,
                "cuBLASLt has no algorithm for m, n, k = " + std::to_string(spec.m) + ", " + std::to_string(spec.n) +
                    ", " + std::to_string(spec.k),
                "use other shapes, or the label gs::on_cpu");
  }
  plan.algorithm = result.algo;
  plan.workspace = result.workspaceSize;
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

// Runs the product once on scratch memory, so that its kernels are loaded: a branch not taken in the first step would
// otherwise meet them for the first time while recording. Where there is no room for that, the first use loads them.
void load_kernels(const MatmulSpec& spec, const MatmulPlan& plan, CudaDevice& device, const Checked& check) {
  std::size_t element = size_of(spec.dtype);
  auto bytes = [&](std::int64_t count) { return static_cast<std::size_t>(count) * element; };
  Memory inputs, out, workspace;
  try {
    inputs = device.allocate(bytes(std::max(spec.m, spec.n) * spec.k));
    out = device.allocate(bytes(spec.m * spec.n));
    workspace = device.allocate(plan.workspace);
  } catch (const Error& e) {
    if (device.calls().is_lost()) throw;
    spdlog::warn("graphsink: the kernels of a product are loaded by its first use: {}", e.what());
    return;
  }
  cudaStream_t stream = device.setup_stream().get();
  check(enqueue(plan, inputs.get(), inputs.get(), out.get(), workspace.get(), stream), "cublasLtMatmul");
  device.calls().check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
}

std::shared_ptr<const MatmulPlan> plan_matmul(const MatmulSpec& spec, const PrepareArgs& args, CudaDevice& device,
                                              std::shared_ptr<Library>& library) {
  CurrentDevice current(device.calls());
  RelaxedCapture relaxed(device.calls());
  Checked check(args);
  if (!library) {
    auto made = std::make_shared<Library>();
    check(cublasLtCreate(made->out()), "cublasLtCreate");
    library = std::move(made);
  }
  auto plan = std::make_shared<MatmulPlan>();
  plan->is_double = spec.dtype == DType::f64;
  plan->library = library;
  describe_product(spec, *plan, check);
  choose_algorithm(spec, args, device.target().sm, *plan, check);
  load_kernels(spec, *plan, device, check);
  return plan;
}

bool is_aligned(const void* pointer) { return reinterpret_cast<std::uintptr_t>(pointer) % kAlignment == 0; }

}  // namespace

// What a device has chosen so far.
struct Matmuls {
  std::shared_ptr<Library> library;
  std::map<MatmulSpec, std::shared_ptr<const MatmulPlan>> plans;
};

Prepared prepare_matmul(const MatmulSpec& spec, const PrepareArgs& args) {
  if (spec.m == 0 || spec.n == 0) return {std::make_shared<MatmulPlan>(), 0};
  // PrepareArgs::device is a Device*.
  auto& device = static_cast<CudaDevice&>(*static_cast<Device*>(args.device));
  if (!device.matmuls) device.matmuls = std::make_shared<Matmuls>();
  auto& plan = device.matmuls->plans[spec];
  if (!plan) plan = plan_matmul(spec, args, device, device.matmuls->library);
  return {plan, plan->workspace};
}

void run_matmul(const CudaArgs& a, const void* lhs, const void* rhs, void* out) {
  const auto& plan = a.local<MatmulPlan>();
  if (!plan.operation) return;
  if (!is_aligned(lhs) || !is_aligned(rhs) || !is_aligned(out)) {
    throw Error(std::string(a.node().op->name), a.node().where, "an operand of the product is not 256-byte aligned",
                "copy the view first");
  }
  cublasStatus_t status = enqueue(plan, lhs, rhs, out, a.workspace(), a.stream());
  if (status != CUBLAS_STATUS_SUCCESS) {
    throw Error(std::string(a.node().op->name), a.node().where,
                std::string("cublasLtMatmul returned ") + cublasLtGetStatusName(status),
                "see this status in the documentation of cuBLASLt");
  }
  a.count_kernel();
}

}  // namespace graphsink
