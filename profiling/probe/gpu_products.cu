// gpu_products: which kernels cuBLASLt takes for the products of the bench's workloads and what they cost in a graph,
// with and without a split of the sum; what it costs a kernel to read what the host wrote; and, in node_ids.cu, by
// which ids CUPTI knows the nodes in the bodies of loops.
#include <cublasLt.h>

#include <cstdint>
#include <optional>

#include "graphs.h"
#include "node_ids.h"

namespace probe {
namespace {

// --- products

// out[m, n] = a x b, stored by rows: a is [m, k], or [k, m] if transposed; b is [k, n], or [n, k].
struct Shape {
  int m, n, k;
  bool transpose_a = false, transpose_b = false;
};

std::string title(const Shape& p) {
  auto matrix = [](int rows, int columns, bool is_transposed) {
    std::string text = "[" + std::to_string(is_transposed ? columns : rows) + "," +
                       std::to_string(is_transposed ? rows : columns) + "]";
    return is_transposed ? text + "^T" : text;
  };
  return matrix(p.m, p.n, false) + " = " + matrix(p.m, p.k, p.transpose_a) + " x " + matrix(p.k, p.n, p.transpose_b);
}

void need_lt(cublasStatus_t status, const char* what) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  say("STOPPED at", "%s: %s", what, cublasLtGetStatusName(status));
  _exit(3);
}
#define NEED_LT(call) need_lt(call, #call)

// The library and the operands of all products, as src/device/cuda/blas_lt.cpp has them.
struct Lt {
  cublasLtHandle_t handle = nullptr;
  std::size_t most_workspace = 0;
  void *a = nullptr, *b = nullptr, *out = nullptr, *workspace = nullptr;

  Lt() {
    int major = 0;
    NEED(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0));
    most_workspace = std::size_t{major >= 9 ? 32u : 4u} << 20;
    NEED_LT(cublasLtCreate(&handle));
    constexpr std::size_t kBytes = 16 << 20;  // more than any operand
    for (void** memory : {&a, &b, &out}) {
      NEED(cudaMalloc(memory, kBytes));
      NEED(cudaMemset(*memory, 0x3c, kBytes));  // each number 0.0115
    }
    NEED(cudaMalloc(&workspace, most_workspace));
    NEED(cudaDeviceSynchronize());
  }
};

constexpr int kMostSuggestions = 8;
// A result of the heuristic. Its type in cublasLt.h has no name, and nvcc 13.0 cannot have vectors of that.
struct Suggestion {
  cublasLtMatmulHeuristicResult_t result = {};
};

class Product {
 public:
  Product(const Lt& lt, const Shape& p) : lt_(lt) {
    // cuBLASLt stores by columns, so it computes out^T = b^T x a^T.
    NEED_LT(cublasLtMatmulDescCreate(&operation_, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    cublasOperation_t first = p.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasOperation_t second = p.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N;
    NEED_LT(cublasLtMatmulDescSetAttribute(operation_, CUBLASLT_MATMUL_DESC_TRANSA, &first, sizeof first));
    NEED_LT(cublasLtMatmulDescSetAttribute(operation_, CUBLASLT_MATMUL_DESC_TRANSB, &second, sizeof second));
    b_ = layout(p.transpose_b ? p.n : p.k, p.transpose_b ? p.k : p.n);
    a_ = layout(p.transpose_a ? p.k : p.m, p.transpose_a ? p.m : p.k);
    out_ = layout(p.m, p.n);
  }

  // The suggestions of cuBLASLt, the best first. `reductions`: the ways of joining the parts of a sum that it may
  // choose.
  std::vector<Suggestion> suggestions(int most, std::optional<std::uint32_t> reductions) const {
    cublasLtMatmulPreference_t preference;
    NEED_LT(cublasLtMatmulPreferenceCreate(&preference));
    set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, lt_.most_workspace);
    for (auto operand : {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
                         CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES})
      set(preference, operand, std::uint32_t{256});
    if (reductions) set(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, *reductions);
    cublasLtMatmulHeuristicResult_t found[kMostSuggestions] = {};
    int count = 0;
    cublasStatus_t status =
        cublasLtMatmulAlgoGetHeuristic(lt_.handle, operation_, b_, a_, out_, out_, preference, most, found, &count);
    NEED_LT(cublasLtMatmulPreferenceDestroy(preference));
    std::vector<Suggestion> all;
    for (int i = 0; status == CUBLAS_STATUS_SUCCESS && i < count; ++i) all.push_back({found[i]});
    return all;
  }

  cublasStatus_t run(const Suggestion& by, cudaStream_t s) const {
    float one = 1, zero = 0;
    return cublasLtMatmul(lt_.handle, operation_, &one, lt_.b, b_, lt_.a, a_, &zero, lt_.out, out_, lt_.out, out_,
                          &by.result.algo, lt_.workspace, by.result.workspaceSize, s);
  }

 private:
  static cublasLtMatrixLayout_t layout(int rows, int columns) {
    cublasLtMatrixLayout_t made = nullptr;
    NEED_LT(cublasLtMatrixLayoutCreate(&made, CUDA_R_32F, std::uint64_t(columns), std::uint64_t(rows), columns));
    return made;
  }
  template <class T>
  static void set(cublasLtMatmulPreference_t preference, cublasLtMatmulPreferenceAttributes_t what, T value) {
    NEED_LT(cublasLtMatmulPreferenceSetAttribute(preference, what, &value, sizeof value));
  }

  const Lt& lt_;
  cublasLtMatmulDesc_t operation_ = nullptr;
  cublasLtMatrixLayout_t a_ = nullptr, b_ = nullptr, out_ = nullptr;
};

template <class T>
int config(const Suggestion& by, cublasLtMatmulAlgoConfigAttributes_t what) {
  T value = 0;
  std::size_t written = 0;
  cublasStatus_t status = cublasLtMatmulAlgoConfigGetAttribute(&by.result.algo, what, &value, sizeof value, &written);
  return status == CUBLAS_STATUS_SUCCESS ? int(value) : -1;
}

// Times a suggestion and says what it is. Returns the microseconds, or nothing if it does not run.
std::optional<double> try_suggestion(const Product& product, const Suggestion& by, const std::string& key,
                                     cudaStream_t s) {
  // The first run loads the kernels.
  cublasStatus_t status = by.result.state != CUBLAS_STATUS_SUCCESS ? by.result.state : product.run(by, s);
  if (status != CUBLAS_STATUS_SUCCESS) {
    say(key.c_str(), "%s", cublasLtGetStatusName(status));
    return std::nullopt;
  }
  NEED(cudaStreamSynchronize(s));
  cudaGraph_t graph = capture(s, [&] { NEED_LT(product.run(by, s)); });
  std::string kernels;
  std::vector<cudaGraphNode_t> nodes = nodes_of(graph);
  for (cudaGraphNode_t node : nodes) kernels += (kernels.empty() ? "" : " + ") + name_of(node).substr(0, 72);
  NEED(cudaGraphDestroy(graph));
  double us = us_in_chain(s, [&] { NEED_LT(product.run(by, s)); });
  say(key.c_str(),
      "%.2f us, algorithm %d, tile %d, stages %d, split %d, reduction %d, cluster %d, inner %d, swizzle %d, custom %d, "
      "waves %.3f, workspace %zu, %zu nodes: %s",
      us, config<std::int32_t>(by, CUBLASLT_ALGO_CONFIG_ID), config<std::uint32_t>(by, CUBLASLT_ALGO_CONFIG_TILE_ID),
      config<std::uint32_t>(by, CUBLASLT_ALGO_CONFIG_STAGES_ID),
      config<std::int32_t>(by, CUBLASLT_ALGO_CONFIG_SPLITK_NUM),
      config<std::uint32_t>(by, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME),
      config<std::uint16_t>(by, CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID),
      config<std::uint16_t>(by, CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID),
      config<std::uint32_t>(by, CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING),
      config<std::uint32_t>(by, CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION), double(by.result.wavesCount),
      by.result.workspaceSize, nodes.size(), kernels.c_str());
  return us;
}

// Whether src/device/cuda/blas_lt.cpp passes a suggestion over: it divides the sum into parts that are too short.
bool has_short_parts(const Suggestion& by, int k) {
  int parts = config<std::int32_t>(by, CUBLASLT_ALGO_CONFIG_SPLITK_NUM);
  return parts > 1 && k / parts < 32;
}

// (1) and (2): what cuBLASLt suggests for each shape, freely and if it may not split the sum, and how long each takes.
void ask_products(const std::vector<Shape>& shapes) {
  struct Time {
    double us;
    std::string which;
  };
  Lt lt;
  cudaStream_t s = stream();
  for (const Shape& shape : shapes) {
    Product product(lt, shape);
    const std::string name = title(shape);
    std::vector<Time> times;
    const Time* taken = nullptr;
    times.reserve(kMostSuggestions + 1);
    auto try_all = [&](const char* what, const std::vector<Suggestion>& found) {
      if (found.empty()) say((name + what).c_str(), "no algorithm");
      for (std::size_t i = 0; i < found.size(); ++i) {
        std::string which = what + std::to_string(i);
        auto us = try_suggestion(product, found[i], name + which, s);
        if (!us) continue;
        times.push_back({*us, which});
        if (taken == nullptr && !has_short_parts(found[i], shape.k)) taken = &times.back();
      }
    };
    try_all(" #", product.suggestions(kMostSuggestions, std::nullopt));
    if (taken == nullptr && !times.empty()) taken = &times.front();
    try_all(" unsplit #", product.suggestions(1, std::uint32_t{CUBLASLT_REDUCTION_SCHEME_NONE}));
    if (times.empty()) continue;
    auto best = std::min_element(times.begin(), times.end(), [](const Time& x, const Time& y) { return x.us < y.us; });
    if (taken == nullptr) taken = &times.front();
    say((name + " best").c_str(),
        "%.2f us,%s; first %.2f us; graphsink takes%s, %.2f us, %.2f times as long as the best", best->us,
        best->which.c_str(), times[0].us, taken->which.c_str(), taken->us, taken->us / best->us);
  }
}

// The products in f32 of the workloads of graphsink-bench at full size, forward and backward.
void products_of_lstm() {  // lstm-scan has the same, but the one of a single step's weights
  ask_products({{8, 128, 512, false, true},
                {8, 512, 128},
                {128, 512, 8, true, false},
                {256, 512, 128},
                {256, 128, 512, false, true},
                {128, 512, 256, true, false},
                {256, 65, 128},
                {256, 128, 65, false, true},
                {128, 65, 256, true, false}});
}
void products_of_mlp() {
  ask_products({{32, 256, 784},
                {32, 256, 256},
                {32, 10, 256},
                {32, 256, 10, false, true},
                {256, 10, 32, true, false},
                {32, 256, 256, false, true},
                {256, 256, 32, true, false},
                {784, 256, 32, true, false}});
}
void products_of_gpt() {
  ask_products({{512, 384, 128},
                {512, 128, 128},
                {512, 512, 128},
                {512, 128, 512},
                {512, 65, 128, false, true},
                {512, 128, 65},
                {65, 128, 512, true, false},
                {512, 512, 128, false, true},
                {512, 128, 512, false, true},
                {512, 128, 128, false, true},
                {512, 128, 384, false, true},
                {512, 128, 512, true, false},
                {128, 512, 512, true, false},
                {128, 128, 512, true, false},
                {128, 384, 512, true, false}});
}
void products_of_charmlp() {  // and the single rows of generate
  ask_products({{64, 128, 128},
                {64, 65, 128},
                {64, 128, 65, false, true},
                {128, 65, 64, true, false},
                {64, 128, 128, false, true},
                {128, 128, 64, true, false},
                {1, 128, 128},
                {1, 65, 128}});
}

// --- (3) reading what the host wrote

enum class Reads { none, dependent, independent, vectors, warp };
enum class Tells { device, host, host_behind_a_fence, host_released };

// Reads `kCount` words or vectors of mapped host memory and stores what came out of them.
template <Reads kReads, int kCount, Tells kTells>
__global__ void read_mapped(const volatile std::uint32_t* in, volatile std::uint32_t* host, std::uint32_t* device) {
  std::uint32_t result = 0;
  if constexpr (kReads == Reads::dependent) {
    for (int i = 0; i < kCount; ++i) result = in[result];  // each word is the place of the next one
  } else if constexpr (kReads == Reads::independent) {
    std::uint32_t words[kCount];
#pragma unroll
    for (int i = 0; i < kCount; ++i) words[i] = in[i];
#pragma unroll
    for (int i = 0; i < kCount; ++i) result += words[i];
  } else if constexpr (kReads == Reads::vectors) {
    uint4 words[kCount];
#pragma unroll
    for (int i = 0; i < kCount; ++i)
      words[i] = __ldcv(reinterpret_cast<const uint4*>(const_cast<std::uint32_t*>(in)) + i);
#pragma unroll
    for (int i = 0; i < kCount; ++i) result += words[i].x + words[i].y + words[i].z + words[i].w;
  } else if constexpr (kReads == Reads::warp) {
    result = __reduce_add_sync(0xffffffffu, in[threadIdx.x]);
  }
  if (threadIdx.x != 0) return;
  if constexpr (kTells == Tells::device) *device = result;
  if constexpr (kTells == Tells::host_behind_a_fence) __threadfence_system();
  if constexpr (kTells == Tells::host || kTells == Tells::host_behind_a_fence) *host = result;
  if constexpr (kTells == Tells::host_released)
    asm volatile("st.release.sys.u32 [%0], %1;" ::"l"(host), "r"(result) : "memory");
}

struct Mapped {
  std::uint32_t *in = nullptr, *host = nullptr, *device = nullptr;
  cudaStream_t s = stream();
};

template <Reads kReads, int kCount>
void ask_read(const Mapped& mapped, const char* what) {
  constexpr int kThreads = kReads == Reads::warp ? 32 : 1;
  auto us = [&](auto* kernel) {
    return us_in_chain(mapped.s, [&] { kernel<<<1, kThreads, 0, mapped.s>>>(mapped.in, mapped.host, mapped.device); });
  };
  say(what,
      "%.2f us if it stores to the device, %.2f us to the host, %.2f us behind a fence, %.2f us by a release store",
      us(read_mapped<kReads, kCount, Tells::device>), us(read_mapped<kReads, kCount, Tells::host>),
      us(read_mapped<kReads, kCount, Tells::host_behind_a_fence>),
      us(read_mapped<kReads, kCount, Tells::host_released>));
}

void mapped_reads() {
  Mapped mapped;
  void *in = nullptr, *host = nullptr;
  NEED(cudaHostAlloc(&in, 4096, cudaHostAllocMapped));
  NEED(cudaHostAlloc(&host, 4096, cudaHostAllocMapped));
  for (std::uint32_t i = 0; i < 1024; ++i) static_cast<std::uint32_t*>(in)[i] = (i + 1) % 1024;
  NEED(cudaHostGetDevicePointer(reinterpret_cast<void**>(&mapped.in), in, 0));
  NEED(cudaHostGetDevicePointer(reinterpret_cast<void**>(&mapped.host), host, 0));
  NEED(cudaMalloc(&mapped.device, 4096));
  ask_read<Reads::none, 0>(mapped, "no load");
  ask_read<Reads::dependent, 1>(mapped, "1 load of 4 bytes");
  ask_read<Reads::dependent, 2>(mapped, "2 dependent loads of 4 bytes");
  ask_read<Reads::dependent, 4>(mapped, "4 dependent loads of 4 bytes");
  ask_read<Reads::dependent, 8>(mapped, "8 dependent loads of 4 bytes");
  ask_read<Reads::independent, 2>(mapped, "2 independent loads of 4 bytes");
  ask_read<Reads::independent, 4>(mapped, "4 independent loads of 4 bytes");
  ask_read<Reads::independent, 8>(mapped, "8 independent loads of 4 bytes");
  // The widest load has 16 bytes; before compute capability 10.0 there is none of 32.
  ask_read<Reads::vectors, 1>(mapped, "1 load of 16 bytes");
  ask_read<Reads::vectors, 2>(mapped, "2 loads of 16 bytes, in one sector");
  ask_read<Reads::warp, 1>(mapped, "1 load of 4 bytes by each of 32 threads");
  for (std::size_t bytes : {64, 4096}) {
    double us = us_in_chain(mapped.s,
                            [&] { NEED(cudaMemcpyAsync(mapped.device, in, bytes, cudaMemcpyHostToDevice, mapped.s)); });
    say(("a copy node of " + std::to_string(bytes) + " bytes").c_str(), "%.2f us", us);
  }
}

}  // namespace
}  // namespace probe

int main(int argc, char** argv) {
  using namespace probe;
  return ask_all(argc, argv,
                 {{"products_of_lstm", products_of_lstm, 40},
                  {"mapped_reads", mapped_reads, 20},
                  {"ids_in_bodies", ids_in_bodies, 20},
                  {"products_of_mlp", products_of_mlp, 30},
                  {"products_of_gpt", products_of_gpt, 40},
                  {"products_of_charmlp", products_of_charmlp, 30}});
}
