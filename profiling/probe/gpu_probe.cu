// gpu_probe: what only a GPU can say about costs, captures, bodies of loops, updates of graphs and cuBLASLt.
#include <cublasLt.h>
#include <dlfcn.h>

#include <atomic>
#include <functional>
#include <string>
#include <thread>

#include "probe.h"

namespace probe {
namespace {

__global__ void add_one(int* x) { *x += 1; }
__global__ void add_one_waiting(int* x) {
  cudaGridDependencySynchronize();
  *x += 1;
}
__global__ void __cluster_dims__(2, 1, 1) add_one_cluster(int* x) {
  if (blockIdx.x == 0 && threadIdx.x == 0) *x += 1;
}
__global__ void set_condition(const int* left, cudaGraphConditionalHandle h) { cudaGraphSetConditional(h, *left > 0); }
__global__ void count_down(int* left, cudaGraphConditionalHandle h) {
  cudaGraphSetConditional(h, --*left > 0 ? 1u : 0u);
}
__global__ void ticks(long long* out, int n) {
  long long last = 0;
  for (int i = 0; i < n; ++i) {
    long long now;
    do {
      asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    } while (now == last);
    out[i] = last = now;
  }
}

void launch_attr(void (*kernel)(int*), cudaStream_t s, int* x, bool programmatic, unsigned blocks = 1) {
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(blocks);
  config.blockDim = dim3(1);
  config.stream = s;
  cudaLaunchAttribute attribute = {};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  config.attrs = &attribute;
  config.numAttrs = programmatic ? 1 : 0;
  NEED(cudaLaunchKernelEx(&config, kernel, x));
}
cudaGraph_t chain(cudaStream_t s, int* x, int n, bool programmatic = false) {
  NEED(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal));
  for (int i = 0; i < n; ++i) launch_attr(programmatic ? add_one_waiting : add_one, s, x, programmatic && i > 0);
  cudaGraph_t graph = nullptr;
  NEED(cudaStreamEndCapture(s, &graph));
  return graph;
}
// A WHILE node that runs `fill`'s body *left times. Returns the code of instantiation.
template <class F>
cudaError_t loop(cudaStream_t s, cudaStream_t inner, int* left, const F& fill, cudaGraphExec_t& exec,
                 cudaGraph_t& graph) {
  NEED(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal));
  cudaStreamCaptureStatus status;
  NEED(cudaStreamGetCaptureInfo(s, &status, nullptr, &graph, nullptr, nullptr, nullptr));
  cudaGraphConditionalHandle handle;
  NEED(cudaGraphConditionalHandleCreate(&handle, graph, 0, 0));
  set_condition<<<1, 1, 0, s>>>(left, handle);
  const cudaGraphNode_t* nodes = nullptr;
  const cudaGraphEdgeData* edges = nullptr;
  size_t count = 0;
  NEED(cudaStreamGetCaptureInfo(s, &status, nullptr, &graph, &nodes, &edges, &count));
  cudaGraphNodeParams params = {};
  params.type = cudaGraphNodeTypeConditional;
  params.conditional.handle = handle;
  params.conditional.type = cudaGraphCondTypeWhile;
  params.conditional.size = 1;
  cudaGraphNode_t node;
  NEED(cudaGraphAddNode(&node, graph, nodes, edges, count, &params));
  NEED(cudaStreamBeginCaptureToGraph(inner, params.conditional.phGraph_out[0], nullptr, nullptr, 0,
                                     cudaStreamCaptureModeThreadLocal));
  fill(inner);
  count_down<<<1, 1, 0, inner>>>(left, handle);
  cudaGraph_t body = nullptr;
  NEED(cudaStreamEndCapture(inner, &body));
  NEED(cudaStreamUpdateCaptureDependencies(s, &node, nullptr, 1, cudaStreamSetCaptureDependencies));
  NEED(cudaStreamEndCapture(s, &graph));
  cudaError_t result = cudaGraphInstantiate(&exec, graph, 0);
  (void)cudaGetLastError();
  return result;
}

void device() {
  double init = us_of([] { NEED(cudaFree(nullptr)); });
  cudaDeviceProp p;
  double properties = us_of([&] { NEED(cudaGetDeviceProperties(&p, 0)); });
  int driver = 0, runtime = 0, hmm = 0, tables = 0, clock = 0;
  cudaDriverGetVersion(&driver), cudaRuntimeGetVersion(&runtime);
  cudaDeviceGetAttribute(&hmm, cudaDevAttrPageableMemoryAccess, 0);
  cudaDeviceGetAttribute(&tables, cudaDevAttrPageableMemoryAccessUsesHostPageTables, 0);
  cudaDeviceGetAttribute(&clock, cudaDevAttrClockRate, 0);
  say("name, sm, SMs, L2 MiB", "%s, %d.%d, %d, %d", p.name, p.major, p.minor, p.multiProcessorCount,
      int(p.l2CacheSize >> 20));
  say("driver, runtime", "%d, %d", driver, runtime);
  say("pageable access, host page tables", "%d, %d", hmm, tables);
  say("us: context, GetDeviceProperties", "%.0f, %.0f", init, properties);
  void* memory;
  say("us: cudaMalloc 256, again", "%.1f, %.1f", us_of([&] { cudaMalloc(&memory, 256); }),
      us_of([&] { cudaMalloc(&memory, 256); }));
  say("us: cudaMalloc 64 MiB", "%.1f", us_of([&] { cudaMalloc(&memory, 64 << 20); }));
  say("us: cudaHostAlloc 4 KiB, again", "%.1f, %.1f",
      us_of([&] { cudaHostAlloc(&memory, 4096, cudaHostAllocMapped | cudaHostAllocPortable); }),
      us_of([&] { cudaHostAlloc(&memory, 4096, cudaHostAllocMapped | cudaHostAllocPortable); }));
  cudaStream_t s;
  say("us: stream, event", "%.1f, %.1f", us_of([&] { cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking); }),
      us_of([] {
        cudaEvent_t e;
        cudaEventCreateWithFlags(&e, cudaEventDisableTiming);
      }));
  cublasLtHandle_t lt;
  say("us: cublasLtCreate, again", "%.0f, %.0f", us_of([&] { cublasLtCreate(&lt); }),
      us_of([&] { cublasLtCreate(&lt); }));
}

void libraries() {
  for (const char* name :
       {"libcudart.so.13", "libcublasLt.so.13", "libnvrtc.so.13", "libnvrtc-builtins.so.13.0", "libcupti.so.13"}) {
    void* handle = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    std::string path = handle ? "found" : dlerror();
    if (handle) {
      // Which file it is.
      FILE* maps = std::fopen("/proc/self/maps", "r");
      char line[4096];
      std::string stem(name, std::strchr(name, '.') - name);
      while (std::fgets(line, sizeof line, maps))
        if (std::strstr(line, (stem + ".").c_str())) {
          path = std::strchr(line, '/');
          path.pop_back();
          break;
        }
      std::fclose(maps);
    }
    say(name, "%s", path.c_str());
    if (!handle || !std::strstr(name, "nvrtc.so")) continue;
    auto version = reinterpret_cast<int (*)(int*, int*)>(dlsym(handle, "nvrtcVersion"));
    int major = 0, minor = 0;
    if (version) version(&major, &minor);
    say("NVRTC version", "%d.%d", major, minor);
  }
  say("cublasLt version", "%zu", cublasLtGetVersion());
}

// Answers of a capture of this thread to calls that the fact sheet does not list.
void destroy_in_capture() {
  int* x = number(0);
  cudaStream_t s = stream(), other = stream();
  for (int what = 0; what < 3; ++what) {
    cudaGraph_t graph = chain(other, x, 3);
    cudaGraphExec_t exec = instantiate(graph);
    NEED(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal));
    add_one<<<1, 1, 0, s>>>(x);
    if (what == 0) code("cudaGraphExecDestroy", cudaGraphExecDestroy(exec));
    if (what == 1) code("cudaGraphDestroy of 3 kernels", cudaGraphDestroy(graph));
    if (what == 2) code("cudaGraphLaunch on another stream", cudaGraphLaunch(exec, other));
    say("  status of the capture", "%s", status_of(s));
    cudaGraph_t captured = nullptr;
    code("  cudaStreamEndCapture", cudaStreamEndCapture(s, &captured));
    (void)cudaGetLastError();
  }
}

void error_log() {
  static std::thread::id here = std::this_thread::get_id();
  cudaLogsCallbackHandle handle = nullptr;
  code("cudaLogsRegisterCallback", cudaLogsRegisterCallback(
                                       [](void*, cudaLogLevel level, char* message, size_t length) {
                                         say("  message", "level %d, %s thread: \"%.*s\"", int(level),
                                             std::this_thread::get_id() == here ? "this" : "another", int(length),
                                             message);
                                       },
                                       nullptr, &handle));
  int* x = number(0);
  cudaStream_t s = stream();
  struct Call {
    const char* name;
    void (*run)(cudaStream_t);
  };
  const Call calls[] = {
      {"cudaMalloc",
       [](cudaStream_t) {
         void* m;
         (void)cudaMalloc(&m, 16);
       }},
      {"cudaStreamSynchronize", [](cudaStream_t s) { (void)cudaStreamSynchronize(s); }},
      {"a kernel on the legacy stream", [](cudaStream_t) { add_one<<<1, 1>>>(nullptr); }},
      {"cudaStreamBeginCapture twice",
       [](cudaStream_t s) { (void)cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal); }},
      {"blocks of 4096 threads", [](cudaStream_t s) { add_one<<<1, 4096, 0, s>>>(nullptr); }},
  };
  cudaStream_t blocking;
  NEED(cudaStreamCreate(&blocking));
  for (const Call& call : calls) {
    cudaStream_t on = std::strstr(call.name, "legacy") ? blocking : s;
    NEED(cudaStreamBeginCapture(on, cudaStreamCaptureModeThreadLocal));
    say("CALL", "%s", call.name);
    call.run(on);
    say("  last error, status", "%s, %s", cudaGetErrorName(cudaGetLastError()), status_of(on));
    cudaGraph_t g = nullptr;
    code("  cudaStreamEndCapture", cudaStreamEndCapture(on, &g));
    (void)cudaGetLastError();
  }
  say("CALL", "cudaStreamQuery of a busy stream");
  cudaStream_t busy = stream();
  long long* out;
  NEED(cudaMalloc(&out, 8 * 1000000));
  ticks<<<1, 1, 0, busy>>>(out, 100000);
  code("  cudaStreamQuery", cudaStreamQuery(busy));
  code("  cudaPeekAtLastError afterwards", cudaPeekAtLastError());
  NEED(cudaStreamSynchronize(busy));
  (void)x;
}

void bodies() {
  cudaStream_t s = stream(), inner = stream();
  int *x = number(0), *left = number(3);
  cudaGraph_t step = chain(s, x, 2);
  struct Body {
    const char* name;
    std::function<void(cudaStream_t)> fill;
  };
  (void)step;
  auto check = [&](const char* name, auto fill, int per_iteration) {
    cudaGraphExec_t exec = nullptr;
    cudaGraph_t graph = nullptr;
    int three = 3, zero = 0;
    NEED(cudaMemcpy(left, &three, 4, cudaMemcpyDefault));
    NEED(cudaMemcpy(x, &zero, 4, cudaMemcpyDefault));
    cudaError_t made = loop(s, inner, left, fill, exec, graph);
    say(name, "instantiate %d %s", int(made), cudaGetErrorName(made));
    if (made != cudaSuccess) return;
    NEED(cudaGraphLaunch(exec, s));
    cudaError_t ran = cudaStreamSynchronize(s);
    say("  run, sum", "%s, %d of %d", cudaGetErrorName(ran), ran == cudaSuccess ? get(x) : -1, 3 * per_iteration);
    NEED(cudaGraphExecDestroy(exec));
    NEED(cudaGraphDestroy(graph));
  };
  check(
      "a kernel", [&](cudaStream_t b) { add_one<<<1, 1, 0, b>>>(x); }, 1);
  check(
      "kernels launched programmatically",
      [&](cudaStream_t b) {
        launch_attr(add_one_waiting, b, x, false);
        launch_attr(add_one_waiting, b, x, true);
        launch_attr(add_one_waiting, b, x, true);
      },
      3);
  check(
      "a kernel of clusters", [&](cudaStream_t b) { launch_attr(add_one_cluster, b, x, false, 2); }, 1);
  check(
      "a child graph",
      [&](cudaStream_t b) {
        cudaStreamCaptureStatus status;
        cudaGraph_t g;
        const cudaGraphNode_t* n;
        const cudaGraphEdgeData* e;
        size_t c;
        NEED(cudaStreamGetCaptureInfo(b, &status, nullptr, &g, &n, &e, &c));
        cudaGraphNode_t child;
        NEED(cudaGraphAddChildGraphNode(&child, g, n, c, step));
        NEED(cudaStreamUpdateCaptureDependencies(b, &child, nullptr, 1, cudaStreamSetCaptureDependencies));
      },
      2);
  cudaStream_t beside = stream();
  cudaEvent_t event;
  NEED(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  check(
      "a stream that waits and does nothing",
      [&](cudaStream_t b) {
        add_one<<<1, 1, 0, b>>>(x);
        NEED(cudaEventRecord(event, b));
        NEED(cudaStreamWaitEvent(beside, event, 0));
        add_one<<<1, 1, 0, b>>>(x);
      },
      2);
}

__global__ void cluster_size(int* out) {
  unsigned n;
  asm volatile("mov.u32 %0, %%cluster_nctaid.x;" : "=r"(n));
  if (blockIdx.x == 0 && threadIdx.x == 0) *out = int(n);
}
// Others have seen that cudaGraphExecUpdate() succeeds and keeps the old cluster dimensions.
void cluster_update() {
  int* x = number(-1);
  cudaStream_t s = stream();
  auto graph_of = [&](unsigned clusters) {
    NEED(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal));
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(8), config.blockDim = dim3(32), config.stream = s;
    cudaLaunchAttribute attribute = {};
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim.x = clusters, attribute.val.clusterDim.y = attribute.val.clusterDim.z = 1;
    config.attrs = &attribute, config.numAttrs = clusters > 0 ? 1 : 0;
    NEED(cudaLaunchKernelEx(&config, cluster_size, x));
    cudaGraph_t graph;
    NEED(cudaStreamEndCapture(s, &graph));
    return graph;
  };
  for (unsigned from : {0u, 1u, 2u, 4u})
    for (unsigned to : {0u, 1u, 2u, 4u}) {
      if (from == to) continue;
      cudaGraphExec_t exec = instantiate(graph_of(from));
      cudaGraphExecUpdateResultInfo info = {};
      cudaError_t updated = cudaGraphExecUpdate(exec, graph_of(to), &info);
      (void)cudaGetLastError();
      if (updated == cudaSuccess) {
        NEED(cudaGraphLaunch(exec, s));
        NEED(cudaStreamSynchronize(s));
      }
      std::string key = "clusters of " + std::to_string(from) + " become " + std::to_string(to);
      say(key.c_str(), "%s, result %d, ran with %d%s", cudaGetErrorName(updated), int(info.result),
          updated == cudaSuccess ? get(x) : -1,
          updated == cudaSuccess && get(x) != int(std::max(to, 1u)) ? "  WRONG" : "");
    }
}

struct Product {
  cublasLtHandle_t lt = nullptr;
  cublasLtMatmulDesc_t operation = nullptr;
  cublasLtMatrixLayout_t a = nullptr, c = nullptr;
  cublasLtMatmulHeuristicResult_t found = {};
  void* workspace = nullptr;
  bool make(cudaDataType type, cublasComputeType_t compute, int n) {
    cublasLtCreate(&lt);
    cublasLtMatmulDescCreate(&operation, compute, CUDA_R_32F);
    cublasLtMatrixLayoutCreate(&a, type, n, n, n), cublasLtMatrixLayoutCreate(&c, type, n, n, n);
    cublasLtMatmulPreference_t preference;
    cublasLtMatmulPreferenceCreate(&preference);
    size_t limit = 32 << 20;
    cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &limit, sizeof limit);
    int count = 0;
    auto status = cublasLtMatmulAlgoGetHeuristic(lt, operation, a, a, c, c, preference, 1, &found, &count);
    NEED(cudaMalloc(&workspace, limit));
    return status == CUBLAS_STATUS_SUCCESS && count > 0;
  }
  cublasStatus_t run(const void* x, const void* y, void* out, cudaStream_t s) {
    float one = 1, zero = 0;
    return cublasLtMatmul(lt, operation, &one, x, a, y, a, &zero, out, c, out, c, &found.algo, workspace,
                          found.workspaceSize, s);
  }
};

void products() {
  struct Kind {
    const char* name;
    cudaDataType type;
    cublasComputeType_t compute;
    size_t size;
  };
  const Kind kinds[] = {{"f32", CUDA_R_32F, CUBLAS_COMPUTE_32F, 4},
                        {"tf32", CUDA_R_32F, CUBLAS_COMPUTE_32F_FAST_TF32, 4},
                        {"bf16", CUDA_R_16BF, CUBLAS_COMPUTE_32F, 2},
                        {"f16", CUDA_R_16F, CUBLAS_COMPUTE_32F, 2}};
  for (const Kind& kind : kinds)
    for (int n : {64, 512, 4096}) {
      Product p;
      std::string name = std::string(kind.name) + " " + std::to_string(n);
      if (!p.make(kind.type, kind.compute, n)) {
        say(name.c_str(), "no algorithm");
        continue;
      }
      size_t bytes = size_t(n) * n * kind.size;
      char *x, *y, *out, *out2;
      for (char** m : {&x, &y, &out, &out2}) NEED(cudaMalloc(m, bytes));
      std::vector<char> data(bytes);
      unsigned seed = 1;
      for (size_t i = 0; i < bytes; ++i) data[i] = char((seed = seed * 1664525u + 1013904223u) >> 24);
      if (kind.size == 4)
        for (size_t i = 0; i < bytes / 4; ++i) reinterpret_cast<float*>(data.data())[i] = float(int(i * 7 % 11) - 5);
      else
        for (size_t i = 0; i < bytes / 2; ++i)
          reinterpret_cast<unsigned short*>(data.data())[i] =
              kind.type == CUDA_R_16BF ? (0x3f80 + i % 3 * 0x20) : (0x3c00 + i % 3 * 0x100);
      NEED(cudaMemcpy(x, data.data(), bytes, cudaMemcpyDefault));
      NEED(cudaMemcpy(y, data.data(), bytes, cudaMemcpyDefault));
      cudaStream_t s = stream(), inner = stream();
      double first = us_of([&] {
        p.run(x, y, out, s);
        NEED(cudaStreamSynchronize(s));
      });
      double host = median_us([&] { p.run(x, y, out, s); });
      NEED(cudaStreamSynchronize(s));
      std::vector<char> wanted(bytes), seen(bytes);
      NEED(cudaMemcpy(wanted.data(), out, bytes, cudaMemcpyDefault));
      // The same product, captured.
      NEED(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal));
      cublasStatus_t captured = p.run(x, y, out, s);
      cudaGraph_t graph = nullptr, other = nullptr;
      cudaError_t ended = cudaStreamEndCapture(s, &graph);
      size_t count = 0, edges = 0, kernels = 0, programmatic = 0, clusters = 0;
      NEED(cudaGraphGetNodes(graph, nullptr, &count));
      std::vector<cudaGraphNode_t> nodes(count);
      NEED(cudaGraphGetNodes(graph, nodes.data(), &count));
      for (auto node : nodes) {
        cudaGraphNodeType type;
        cudaGraphNodeGetType(node, &type);
        if (type != cudaGraphNodeTypeKernel) continue;
        ++kernels;
        cudaLaunchAttributeValue value = {};
        if (cudaGraphKernelNodeGetAttribute(node, cudaLaunchAttributeClusterDimension, &value) == cudaSuccess &&
            value.clusterDim.x * value.clusterDim.y * value.clusterDim.z > 1)
          ++clusters;
      }
      (void)cudaGetLastError();
      NEED(cudaGraphGetEdges(graph, nullptr, nullptr, nullptr, &edges));
      std::vector<cudaGraphNode_t> from(edges), to(edges);
      std::vector<cudaGraphEdgeData> how(edges);
      if (edges) NEED(cudaGraphGetEdges(graph, from.data(), to.data(), how.data(), &edges));
      for (auto& e : how) programmatic += e.type == cudaGraphDependencyTypeProgrammatic;
      say(name.c_str(),
          "first %.0f us, host %.1f us, status %d/%d, %zu nodes, %zu kernels (%zu of clusters), %zu edges (%zu "
          "programmatic), workspace %zu",
          first, host, int(captured), int(ended), count, kernels, clusters, edges, programmatic, p.found.workspaceSize);
      // Update: other addresses; what the executable graph computes then.
      cudaGraphExec_t exec = instantiate(graph);
      NEED(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal));
      p.run(x, y, out2, s);
      NEED(cudaStreamEndCapture(s, &other));
      NEED(cudaMemset(out2, 0, bytes));
      cudaGraphExecUpdateResultInfo info = {};
      cudaError_t updated = cudaGraphExecUpdate(exec, other, &info);
      (void)cudaGetLastError();
      NEED(cudaDeviceSynchronize());
      if (updated == cudaSuccess) NEED(cudaGraphLaunch(exec, s));
      NEED(cudaStreamSynchronize(s));
      NEED(cudaMemcpy(seen.data(), out2, bytes, cudaMemcpyDefault));
      say("  cudaGraphExecUpdate", "%s, result %d, values %s", cudaGetErrorName(updated), int(info.result),
          updated != cudaSuccess ? "-"
          : seen == wanted       ? "right"
                                 : "WRONG");
      // In the body of a loop.
      int* left = number(2);
      NEED(cudaMemset(out, 0, bytes));
      NEED(cudaDeviceSynchronize());
      cudaGraphExec_t body = nullptr;
      cudaGraph_t holder = nullptr;
      cudaError_t made = loop(
          s, inner, left, [&](cudaStream_t b) { p.run(x, y, out, b); }, body, holder);
      std::string result = "not run";
      if (made == cudaSuccess) {
        NEED(cudaGraphLaunch(body, s));
        NEED(cudaStreamSynchronize(s));
        NEED(cudaMemcpy(seen.data(), out, bytes, cudaMemcpyDefault));
        result = seen == wanted ? "right" : "WRONG";
      }
      say("  in a WHILE body", "instantiate %s, values %s", cudaGetErrorName(made), result.c_str());
      for (char* m : {x, y, out, out2}) cudaFree(m);
    }
}

void costs() {
  int* x = number(0);
  cudaStream_t s = stream(), inner = stream();
  long long* out;
  NEED(cudaMallocManaged(&out, 64 * 8));
  NEED(cudaFree(out));
  NEED(cudaMalloc(&out, 1000 * 8));
  ticks<<<1, 1, 0, s>>>(out, 1000);
  NEED(cudaStreamSynchronize(s));
  std::vector<long long> t(1000);
  NEED(cudaMemcpy(t.data(), out, 8000, cudaMemcpyDefault));
  long long least = 1 << 30;
  for (int i = 1; i < 1000; ++i) least = std::min(least, t[i] - t[i - 1]);
  say("ns: smallest step of globaltimer, mean", "%lld, %.1f", least, double(t[999] - t[0]) / 999);
  cudaEvent_t event;
  NEED(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  auto sync = [&] { NEED(cudaStreamSynchronize(s)); };
  auto each = [&](const char* name, auto f) {
    sync();
    double us = us_of(f, 500);
    sync();
    say(name, "%.3f us a call", us);
  };
  each("cudaLaunchKernelEx", [&] { launch_attr(add_one, s, x, false); });
  each("cudaEventRecord", [&] { NEED(cudaEventRecord(event, s)); });
  each("cudaStreamIsCapturing", [&] {
    cudaStreamCaptureStatus c;
    NEED(cudaStreamIsCapturing(s, &c));
  });
  each("cudaStreamQuery", [&] { (void)cudaStreamQuery(s); });
  each("cudaThreadExchangeStreamCaptureMode x 2", [&] {
    cudaStreamCaptureMode m = cudaStreamCaptureModeRelaxed;
    cudaThreadExchangeStreamCaptureMode(&m);
    cudaThreadExchangeStreamCaptureMode(&m);
  });
  each("cudaPointerGetAttributes", [&] {
    cudaPointerAttributes a;
    NEED(cudaPointerGetAttributes(&a, x));
  });
  (void)cudaGetLastError();
  for (int n : {1, 3, 10, 30, 100, 300, 1000}) {
    for (bool programmatic : {false, true}) {
      cudaGraph_t graph = chain(s, x, n, programmatic);
      double made = 0;
      cudaGraphExec_t exec = nullptr;
      made = us_of([&] {
        exec = instantiate(graph);
        NEED(cudaGraphUpload(exec, s));
      });
      for (int i = 0; i < 5; ++i) NEED(cudaGraphLaunch(exec, s));
      sync();
      double enqueue = median_us(
                 [&] {
                   NEED(cudaGraphLaunch(exec, s));
                   sync();
                 },
                 21),
             host = 0;
      std::vector<double> hosts;
      for (int i = 0; i < 101; ++i) {
        hosts.push_back(us_of([&] { NEED(cudaGraphLaunch(exec, s)); }));
        sync();
      }
      std::sort(hosts.begin(), hosts.end());
      host = hosts[50];
      double back_to_back = us_of([&] {
                              for (int i = 0; i < 200; ++i) NEED(cudaGraphLaunch(exec, s));
                              sync();
                            }) /
                            200;
      say(("graph of " + std::to_string(n) + (programmatic ? " kernels, pdl" : " kernels")).c_str(),
          "instantiate+upload %.0f us, launch %.2f us, launch+sync %.1f us, in a row %.2f us (%.3f us a kernel)", made,
          host, enqueue, back_to_back, back_to_back / n);
    }
  }
  int* left = number(0);
  for (int kernels : {1, 10}) {
    cudaGraphExec_t exec = nullptr;
    cudaGraph_t graph = nullptr;
    NEED(loop(
        s, inner, left,
        [&](cudaStream_t b) {
          for (int i = 0; i < kernels; ++i) add_one<<<1, 1, 0, b>>>(x);
        },
        exec, graph));
    NEED(cudaGraphUpload(exec, s));
    auto run = [&](int times) {
      NEED(cudaMemcpyAsync(left, &times, 4, cudaMemcpyDefault, s));
      sync();
      return us_of([&] {
        NEED(cudaGraphLaunch(exec, s));
        sync();
      });
    };
    run(10);
    double few = run(1), many = run(1001);
    say(("WHILE around " + std::to_string(kernels) + " kernels").c_str(),
        "%.2f us for one iteration, %.3f us for each further one", few, (many - few) / 1000);
  }
  {
    static std::atomic<int> calls{0};
    NEED(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal));
    for (int i = 0; i < 10; ++i) {
      add_one<<<1, 1, 0, s>>>(x);
      NEED(cudaLaunchHostFunc(
          s, [](void*) { ++calls; }, nullptr));
    }
    cudaGraph_t graph = nullptr;
    NEED(cudaStreamEndCapture(s, &graph));
    cudaGraphExec_t exec = instantiate(graph);
    for (int i = 0; i < 3; ++i) NEED(cudaGraphLaunch(exec, s));
    sync();
    say("host node behind a kernel, 10 times", "%.1f us each",
        median_us(
            [&] {
              NEED(cudaGraphLaunch(exec, s));
              sync();
            },
            21) /
            10);
  }
}

// Whether a launch blocks while an earlier launch of the same executable graph is held up by the host.
void held_up() {
  int* x = number(0);
  cudaStream_t s = stream();
  static std::atomic<bool> open{false};
  NEED(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal));
  add_one<<<1, 1, 0, s>>>(x);
  NEED(cudaLaunchHostFunc(
      s,
      [](void*) {
        for (int i = 0; i < 3000 && !open; ++i) usleep(1000);
      },
      nullptr));
  add_one<<<1, 1, 0, s>>>(x);
  cudaGraph_t graph = nullptr;
  NEED(cudaStreamEndCapture(s, &graph));
  cudaGraphExec_t exec = instantiate(graph);
  open = true;
  NEED(cudaGraphLaunch(exec, s));
  NEED(cudaStreamSynchronize(s));
  open = false;
  for (int i = 1; i <= 300; ++i) {
    double us = us_of([&] { NEED(cudaGraphLaunch(exec, s)); });
    if (i <= 3 || us > 1000) say(("launch " + std::to_string(i)).c_str(), "%.0f us", us);
    if (us > 1e6) break;
  }
  open = true;
  NEED(cudaStreamSynchronize(s));
  say("sum", "%d", get(x));
}

}  // namespace
}  // namespace probe

int main(int argc, char** argv) {
  using namespace probe;
  return ask_all(argc, argv,
                 {{"device", device, 20},
                  {"libraries", libraries, 20},
                  {"destroy_in_capture", destroy_in_capture, 10},
                  {"error_log", error_log, 10},
                  {"bodies", bodies, 15},
                  {"cluster_update", cluster_update, 10},
                  {"held_up", held_up, 20},
                  {"costs", costs, 25},
                  {"products", products, 40}});
}
