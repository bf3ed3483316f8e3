// gpu_open_questions: what the first run on a GPU left open. Which calls tell the device of a stream that is being
// captured, which calls break a capture, what launches and nodes cost, what cuBLASLt records, and whether NVRTC and
// nvcc agree on bits.
#include <cublasLt.h>
#include <cuda.h>
#include <dlfcn.h>

#include <array>
#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "probe.h"

namespace probe {
namespace {

__global__ void add_one(int* x) { *x += 1; }
__global__ void set_condition(const int* left, cudaGraphConditionalHandle h) { cudaGraphSetConditional(h, *left > 0); }
__global__ void count_down(int* left, cudaGraphConditionalHandle h) {
  cudaGraphSetConditional(h, --*left > 0 ? 1u : 0u);
}
__global__ void count_down_and_add(int* left, int* x, cudaGraphConditionalHandle h) {
  *x += 1;
  cudaGraphSetConditional(h, --*left > 0 ? 1u : 0u);
}
__global__ void decide(unsigned value, cudaGraphConditionalHandle h) { cudaGraphSetConditional(h, value); }
__global__ void spin(long long nanoseconds) {
  long long begin, now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begin));
  do {
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  } while (now - begin < nanoseconds);
}

// While it lives, this thread may make calls that would break a capture.
class Relaxed {
 public:
  explicit Relaxed(bool wanted) : wanted_(wanted) {
    if (wanted_) NEED(cudaThreadExchangeStreamCaptureMode(&mode_));
  }
  ~Relaxed() {
    if (wanted_) NEED(cudaThreadExchangeStreamCaptureMode(&mode_));
  }
  Relaxed(const Relaxed&) = delete;
  Relaxed& operator=(const Relaxed&) = delete;

 private:
  bool wanted_;
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

// (1) Which calls tell the device of a stream that is being captured. Each in a capture of its own.
void device_of_capture() {
  struct Call {
    const char* name;
    std::function<std::string(cudaStream_t)> run;
  };
  auto answer = [](int result, const std::string& value) { return std::to_string(result) + ", " + value; };
  auto device_of = [](CUcontext context) {
    auto push = driver_function<decltype(&cuCtxPushCurrent)>("cuCtxPushCurrent", 4000);
    auto pop = driver_function<decltype(&cuCtxPopCurrent)>("cuCtxPopCurrent", 4000);
    auto get_device = driver_function<CUresult (*)(CUdevice*)>("cuCtxGetDevice", 2000);
    CUdevice device = -1;
    CUresult pushed = push(context), asked = get_device(&device), popped = pop(&context);
    return "device " + std::to_string(device) + " by codes " + std::to_string(pushed) + " " + std::to_string(asked) +
           " " + std::to_string(popped);
  };
  const std::vector<Call> calls = {
      {"cuStreamGetCtx",
       [&](cudaStream_t s) {
         auto f = driver_function<CUresult (*)(CUstream, CUcontext*)>("cuStreamGetCtx", 9020);
         CUcontext context = nullptr;
         if (f == nullptr) return std::string("missing");
         CUresult result = f(s, &context);
         return answer(result, result == CUDA_SUCCESS ? device_of(context) : "");
       }},
      {"cuStreamGetCtx_v2",
       [&](cudaStream_t s) {
         auto f = driver_function<CUresult (*)(CUstream, CUcontext*, void**)>("cuStreamGetCtx", 12050);
         CUcontext context = nullptr;
         void* green = nullptr;
         if (f == nullptr) return std::string("missing");
         CUresult result = f(s, &context, &green);
         return answer(result, result == CUDA_SUCCESS ? device_of(context) : "");
       }},
      {"cudaStreamGetId",
       [&](cudaStream_t s) {
         unsigned long long id = 0;
         cudaError_t result = cudaStreamGetId(s, &id);
         return answer(result, std::to_string(id));
       }},
      {"cudaStreamGetPriority",
       [&](cudaStream_t s) {
         int priority = 99;
         cudaError_t result = cudaStreamGetPriority(s, &priority);
         return answer(result, std::to_string(priority));
       }},
      {"cudaStreamGetFlags",
       [&](cudaStream_t s) {
         unsigned flags = 99;
         cudaError_t result = cudaStreamGetFlags(s, &flags);
         return answer(result, std::to_string(flags));
       }},
      {"cudaStreamGetAttribute(priority)",
       [&](cudaStream_t s) {
         cudaLaunchAttributeValue value = {};
         cudaError_t result = cudaStreamGetAttribute(s, cudaLaunchAttributePriority, &value);
         return answer(result, std::to_string(value.priority));
       }},
      {"cudaStreamGetAttribute(synchronization)",
       [&](cudaStream_t s) {
         cudaLaunchAttributeValue value = {};
         cudaError_t result = cudaStreamGetAttribute(s, cudaLaunchAttributeSynchronizationPolicy, &value);
         return answer(result, std::to_string(int(value.syncPolicy)));
       }},
      {"cudaStreamGetDevice",
       [&](cudaStream_t s) {
         int device = -1;
         cudaError_t result = cudaStreamGetDevice(s, &device);
         return answer(result, std::to_string(device));
       }},
      {"cuStreamGetDevice",
       [&](cudaStream_t s) {
         auto f = driver_function<CUresult (*)(CUstream, CUdevice*)>("cuStreamGetDevice", 12080);
         CUdevice device = -1;
         if (f == nullptr) return std::string("missing");
         CUresult result = f(s, &device);
         return answer(result, std::to_string(device));
       }},
      {"context of the last kernel node", [&](cudaStream_t s) {
         cudaStreamCaptureStatus status;
         cudaGraph_t graph = nullptr;
         const cudaGraphNode_t* nodes = nullptr;
         size_t count = 0;
         cudaError_t asked = cudaStreamGetCaptureInfo(s, &status, nullptr, &graph, &nodes, nullptr, &count);
         auto f = driver_function<decltype(&cuGraphKernelNodeGetParams)>("cuGraphKernelNodeGetParams", 12000);
         CUDA_KERNEL_NODE_PARAMS params = {};
         if (asked != cudaSuccess || count == 0 || f == nullptr) return answer(asked, "no node");
         CUresult result = f(nodes[0], &params);
         return answer(result, params.ctx != nullptr ? device_of(params.ctx) : "no context");
       }}};
  int* x = number(0);
  (void)driver_function<CUresult (*)(CUdevice*)>("cuCtxGetDevice", 2000);
  for (cudaStreamCaptureMode mode : {cudaStreamCaptureModeThreadLocal, cudaStreamCaptureModeGlobal})
    for (const Call& call : calls)
      for (bool relaxed : {false, true}) {
        cudaStream_t s = stream();
        NEED(cudaStreamBeginCapture(s, mode));
        add_one<<<1, 1, 0, s>>>(x);
        std::string told;
        {
          Relaxed guard(relaxed);
          told = call.run(s);
        }
        const char* status = status_of(s);
        cudaGraph_t graph = nullptr;
        cudaError_t ended = cudaStreamEndCapture(s, &graph);
        (void)cudaGetLastError();
        std::string key = std::string(call.name) + (mode == cudaStreamCaptureModeGlobal ? ", global" : "") +
                          (relaxed ? ", relaxed" : "");
        say(key.c_str(), "%s; status %s, end %d", told.c_str(), status, int(ended));
      }
}

// The objects of the calls of question 2, which no capture knows.
struct Objects {
  int* x = number(0);
  cudaStream_t other = stream();
  cudaEvent_t event = nullptr, pending = nullptr;
  cudaGraph_t graph = nullptr, same = nullptr;
  cudaGraphExec_t exec = nullptr;
  void* memory = nullptr;
  cudaLibrary_t library = nullptr;

  Objects() {
    for (cudaGraph_t* made : {&graph, &same}) {
      NEED(cudaStreamBeginCapture(other, cudaStreamCaptureModeThreadLocal));
      for (int i = 0; i < 3; ++i) add_one<<<1, 1, 0, other>>>(x);
      NEED(cudaStreamEndCapture(other, made));
    }
    exec = instantiate(graph);
    NEED(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    NEED(cudaEventRecord(event, other));
    NEED(cudaMalloc(&memory, 1 << 20));
    static const char ptx[] = ".version 8.0\n.target sm_75\n.address_size 64\n.visible .entry nothing() { ret; }\n";
    NEED(cudaLibraryLoadData(&library, ptx, nullptr, nullptr, 0, nullptr, nullptr, 0));
    NEED(cudaStreamSynchronize(other));
  }
};
using UnsafeCall = cudaError_t (*)(Objects&);

void print_capture(const char* where, bool relaxed, cudaError_t called, const char* status, cudaError_t ended) {
  std::string key = std::string(where) + (relaxed ? ", relaxed" : "");
  say(key.c_str(), "%d %s; status %s, end %d", int(called), cudaGetErrorName(called), status, int(ended));
}

// (2) A call while this thread captures (thread-local mode), while another thread does (global mode), and in no
// capture.
void ask_unsafe(UnsafeCall call) {
  int* x = number(0);
  {
    Objects objects;
    code("no capture", call(objects));
    (void)cudaGetLastError();
  }
  for (cudaStreamCaptureMode mode : {cudaStreamCaptureModeThreadLocal, cudaStreamCaptureModeGlobal})
    for (bool relaxed : {false, true}) {
      Objects objects;
      cudaStream_t s = stream();
      NEED(cudaStreamBeginCapture(s, mode));
      add_one<<<1, 1, 0, s>>>(x);
      cudaError_t called;
      {
        Relaxed guard(relaxed);
        called = call(objects);
      }
      const char* status = status_of(s);
      cudaGraph_t graph = nullptr;
      cudaError_t ended = cudaStreamEndCapture(s, &graph);
      (void)cudaGetLastError();
      print_capture(mode == cudaStreamCaptureModeGlobal ? "this thread captures, global" : "this thread captures",
                    relaxed, called, status, ended);
    }
  for (bool relaxed : {false, true}) {
    Objects objects;
    std::mutex mutex;
    std::condition_variable changed;
    int phase = 0;
    const char* status = "?";
    cudaError_t ended = cudaSuccess;
    auto go_on = [&](int to) {
      std::lock_guard lock(mutex);
      phase = to;
      changed.notify_all();
    };
    auto wait_for = [&](int wanted) {
      std::unique_lock lock(mutex);
      changed.wait(lock, [&] { return phase >= wanted; });
    };
    std::thread capturing([&] {
      cudaStream_t s = stream();
      NEED(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal));
      add_one<<<1, 1, 0, s>>>(x);
      go_on(1);
      wait_for(2);
      status = status_of(s);
      cudaGraph_t graph = nullptr;
      ended = cudaStreamEndCapture(s, &graph);
      (void)cudaGetLastError();
    });
    wait_for(1);
    cudaError_t called;
    {
      Relaxed guard(relaxed);
      called = call(objects);
    }
    (void)cudaGetLastError();
    go_on(2);
    capturing.join();
    print_capture("another thread captures, global", relaxed, called, status, ended);
  }
}
void exec_destroy() {
  ask_unsafe([](Objects& o) { return cudaGraphExecDestroy(o.exec); });
}
void event_query() {
  ask_unsafe([](Objects& o) { return cudaEventQuery(o.event); });
}
void free_memory() {
  ask_unsafe([](Objects& o) { return cudaFree(o.memory); });
}
void stream_destroy() {
  ask_unsafe([](Objects& o) { return cudaStreamDestroy(o.other); });
}
void event_destroy() {
  ask_unsafe([](Objects& o) { return cudaEventDestroy(o.event); });
}
void graph_destroy() {
  ask_unsafe([](Objects& o) { return cudaGraphDestroy(o.same); });
}
void exec_update() {
  ask_unsafe([](Objects& o) {
    cudaGraphExecUpdateResultInfo info = {};
    return cudaGraphExecUpdate(o.exec, o.same, &info);
  });
}
void graph_instantiate() {
  ask_unsafe([](Objects& o) {
    cudaGraphExec_t exec = nullptr;
    return cudaGraphInstantiate(&exec, o.same, 0);
  });
}
void graph_upload() {
  ask_unsafe([](Objects& o) { return cudaGraphUpload(o.exec, o.other); });
}
void library_unload() {
  ask_unsafe([](Objects& o) { return cudaLibraryUnload(o.library); });
}

// (3) A launch into a stream that is being captured, against a child node that is added by hand.
void launch_in_capture() {
  int* x = number(0);
  for (cudaStreamCaptureMode mode :
       {cudaStreamCaptureModeGlobal, cudaStreamCaptureModeThreadLocal, cudaStreamCaptureModeRelaxed}) {
    Objects objects;
    cudaStream_t s = stream();
    NEED(cudaStreamBeginCapture(s, mode));
    add_one<<<1, 1, 0, s>>>(x);
    cudaError_t called = cudaGraphLaunch(objects.exec, s);
    const char* status = status_of(s);
    cudaGraph_t graph = nullptr;
    cudaError_t ended = cudaStreamEndCapture(s, &graph);
    (void)cudaGetLastError();
    std::string key = "cudaGraphLaunch, mode " + std::to_string(int(mode));
    say(key.c_str(), "%d %s; status %s, end %d", int(called), cudaGetErrorName(called), status, int(ended));
  }
  struct Way {
    const char* name;
    cudaGraphChildGraphNodeOwnership ownership;
  };
  for (Way way : {Way{"child node, cloned", cudaGraphChildGraphOwnershipClone},
                  Way{"child node, moved", cudaGraphChildGraphOwnershipMove}}) {
    Objects objects;
    cudaStream_t s = stream();
    NEED(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal));
    add_one<<<1, 1, 0, s>>>(objects.x);
    cudaStreamCaptureStatus status;
    cudaGraph_t graph = nullptr;
    const cudaGraphNode_t* nodes = nullptr;
    const cudaGraphEdgeData* edges = nullptr;
    size_t count = 0;
    NEED(cudaStreamGetCaptureInfo(s, &status, nullptr, &graph, &nodes, &edges, &count));
    cudaGraphNodeParams params = {};
    params.type = cudaGraphNodeTypeGraph;
    params.graph.graph = objects.same;
    params.graph.ownership = way.ownership;
    cudaGraphNode_t child = nullptr;
    cudaError_t added = cudaGraphAddNode(&child, graph, nodes, edges, count, &params);
    cudaError_t moved = added != cudaSuccess ? added
                                             : cudaStreamUpdateCaptureDependencies(s, &child, nullptr, 1,
                                                                                   cudaStreamSetCaptureDependencies);
    add_one<<<1, 1, 0, s>>>(objects.x);
    const char* state = status_of(s);
    cudaError_t ended = cudaStreamEndCapture(s, &graph);
    cudaGraphExec_t exec = nullptr;
    cudaError_t made = ended == cudaSuccess ? cudaGraphInstantiate(&exec, graph, 0) : ended;
    cudaError_t ran = made;
    if (made == cudaSuccess) {
      NEED(cudaGraphLaunch(exec, s));
      ran = cudaStreamSynchronize(s);
    }
    (void)cudaGetLastError();
    say(way.name, "add %d, dependencies %d, status %s, end %d, instantiate %d, run %d, sum %d of 5", int(added),
        int(moved), state, int(ended), int(made), int(ran), ran == cudaSuccess ? get(objects.x) : -1);
  }
}

// A product by cuBLASLt, with the algorithm that it suggests first. Matrices are stored by columns.
struct Product {
  cublasLtHandle_t lt = nullptr;
  cublasLtMatmulDesc_t operation = nullptr;
  cublasLtMatrixLayout_t a = nullptr, b = nullptr, c = nullptr;
  cublasLtMatmulHeuristicResult_t found = {};
  void *workspace = nullptr, *x = nullptr, *y = nullptr, *out = nullptr;

  bool make(cudaDataType type, std::size_t bytes, int m, int n, int k) {
    cublasLtCreate(&lt);
    cublasLtMatmulDescCreate(&operation, CUBLAS_COMPUTE_32F, CUDA_R_32F);
    cublasLtMatrixLayoutCreate(&a, type, m, k, m), cublasLtMatrixLayoutCreate(&b, type, k, n, k);
    cublasLtMatrixLayoutCreate(&c, type, m, n, m);
    cublasLtMatmulPreference_t preference;
    cublasLtMatmulPreferenceCreate(&preference);
    std::size_t limit = 32 << 20;
    cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &limit, sizeof limit);
    int count = 0;
    auto status = cublasLtMatmulAlgoGetHeuristic(lt, operation, a, b, c, c, preference, 1, &found, &count);
    NEED(cudaMalloc(&workspace, limit));
    NEED(cudaMalloc(&x, bytes * std::size_t(m) * std::size_t(k)));
    NEED(cudaMalloc(&y, bytes * std::size_t(k) * std::size_t(n)));
    NEED(cudaMalloc(&out, bytes * std::size_t(m) * std::size_t(n)));
    return status == CUBLAS_STATUS_SUCCESS && count > 0;
  }
  cublasStatus_t run(cudaStream_t s) {
    float one = 1, zero = 0;
    return cublasLtMatmul(lt, operation, &one, x, a, y, b, &zero, out, c, out, c, &found.algo, workspace,
                          found.workspaceSize, s);
  }
};

struct Argument {
  std::size_t offset = 0;
  std::vector<unsigned char> bytes;
};
struct Kernel {
  std::string name, how;
  int clusters = 1, cluster_code = 0;
  std::vector<Argument> arguments;
};

// The kernels of a graph, with the bytes of their arguments.
std::vector<Kernel> kernels_of(cudaGraph_t graph) {
  auto params_of = driver_function<decltype(&cuGraphKernelNodeGetParams)>("cuGraphKernelNodeGetParams", 12000);
  auto of_function = driver_function<decltype(&cuFuncGetParamInfo)>("cuFuncGetParamInfo", 12040);
  auto of_kernel = driver_function<decltype(&cuKernelGetParamInfo)>("cuKernelGetParamInfo", 12040);
  auto name_of_function = driver_function<decltype(&cuFuncGetName)>("cuFuncGetName", 12030);
  auto name_of_kernel = driver_function<decltype(&cuKernelGetName)>("cuKernelGetName", 12030);
  std::size_t count = 0;
  NEED(cudaGraphGetNodes(graph, nullptr, &count));
  std::vector<cudaGraphNode_t> nodes(count);
  NEED(cudaGraphGetNodes(graph, nodes.data(), &count));
  std::vector<Kernel> kernels;
  for (cudaGraphNode_t node : nodes) {
    cudaGraphNodeType type;
    NEED(cudaGraphNodeGetType(node, &type));
    if (type != cudaGraphNodeTypeKernel) continue;
    Kernel kernel;
    cudaLaunchAttributeValue value = {};
    kernel.cluster_code = cudaGraphKernelNodeGetAttribute(node, cudaLaunchAttributeClusterDimension, &value);
    if (kernel.cluster_code == 0) kernel.clusters = int(value.clusterDim.x * value.clusterDim.y * value.clusterDim.z);
    (void)cudaGetLastError();
    CUDA_KERNEL_NODE_PARAMS params = {};
    CUresult asked = params_of(node, &params);
    const char* name = nullptr;
    if (params.kern != nullptr) {
      name_of_kernel(&name, params.kern);
    } else {
      name_of_function(&name, params.func);
    }
    kernel.name = name != nullptr ? name : "?";
    std::size_t offset = 0, size = 0;
    CUresult last = CUDA_SUCCESS;
    auto info = [&](std::size_t i) {
      return params.kern != nullptr ? of_kernel(params.kern, i, &offset, &size)
                                    : of_function(params.func, i, &offset, &size);
    };
    for (std::size_t i = 0; params.kernelParams != nullptr && (last = info(i)) == CUDA_SUCCESS; ++i) {
      auto* begin = static_cast<const unsigned char*>(params.kernelParams[i]);
      kernel.arguments.push_back({offset, std::vector<unsigned char>(begin, begin + size)});
    }
    // Or all arguments in one block of bytes.
    const unsigned char* block = nullptr;
    for (void** entry = params.extra; entry != nullptr && *entry != CU_LAUNCH_PARAM_END; entry += 2) {
      if (*entry == CU_LAUNCH_PARAM_BUFFER_POINTER) block = static_cast<const unsigned char*>(entry[1]);
      if (*entry == CU_LAUNCH_PARAM_BUFFER_SIZE) size = *static_cast<std::size_t*>(entry[1]);
    }
    if (block != nullptr) kernel.arguments.push_back({0, std::vector<unsigned char>(block, block + size)});
    kernel.how = std::string(params.kern != nullptr ? "kernel" : "function") + ", GetParams " + std::to_string(asked) +
                 ", kernelParams " + (params.kernelParams != nullptr ? "yes" : "no") + ", extra " +
                 (params.extra != nullptr ? "yes" : "no") + ", GetParamInfo ended with " + std::to_string(last);
    kernels.push_back(std::move(kernel));
  }
  return kernels;
}

// Leaves other bytes on the stack, where a library may build arguments that it does not fill.
__attribute__((noinline)) void scribble(unsigned char with) {
  volatile unsigned char bytes[64 << 10];
  for (volatile unsigned char& byte : bytes) byte = with;
}

// (4) What cuBLASLt records for the same product twice: clusters, and which bytes of arguments differ.
void product_arguments() {
  struct Kind {
    const char* name;
    cudaDataType type;
    std::size_t bytes;
  };
  for (Kind kind : {Kind{"f32", CUDA_R_32F, 4}, Kind{"bf16", CUDA_R_16BF, 2}})
    for (auto [m, n, k] : {std::array{64, 64, 64}, std::array{256, 10, 32}, std::array{512, 512, 512}}) {
      Product product;
      std::string title =
          std::string(kind.name) + " " + std::to_string(m) + "x" + std::to_string(n) + "x" + std::to_string(k);
      if (!product.make(kind.type, kind.bytes, m, n, k)) {
        say(title.c_str(), "no algorithm");
        continue;
      }
      cudaStream_t s = stream();
      product.run(s);
      NEED(cudaStreamSynchronize(s));
      std::vector<std::vector<Kernel>> captures;
      for (unsigned char bytes : {0x00, 0xff, 0x5a}) {
        scribble(bytes);
        NEED(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal));
        product.run(s);
        cudaGraph_t graph = nullptr;
        NEED(cudaStreamEndCapture(s, &graph));
        captures.push_back(kernels_of(graph));
      }
      for (std::size_t i = 0; i < captures[0].size(); ++i) {
        const Kernel& first = captures[0][i];
        say((title + ", kernel " + std::to_string(i)).c_str(), "%s; %s; clusters of %d (code %d)", first.name.c_str(),
            first.how.c_str(), first.clusters, first.cluster_code);
        for (std::size_t a = 0; a < first.arguments.size(); ++a) {
          const Argument& argument = first.arguments[a];
          std::string differ;
          int count = 0;
          for (std::size_t byte = 0; byte < argument.bytes.size(); ++byte) {
            bool is_same = true;
            for (const auto& other : captures)
              is_same &= i < other.size() && a < other[i].arguments.size() &&
                         byte < other[i].arguments[a].bytes.size() &&
                         other[i].arguments[a].bytes[byte] == argument.bytes[byte];
            if (!is_same && ++count <= 40) differ += " " + std::to_string(byte);
          }
          say(("  argument " + std::to_string(a)).c_str(), "%zu bytes at %zu; %d differ%s%s", argument.bytes.size(),
              argument.offset, count, count > 0 ? ", at" : "", differ.c_str());
        }
      }
    }
}

// (5) Which launch blocks while earlier ones cannot end. A host node holds them up for at most 1 s.
std::atomic<bool> gate{false};
void CUDART_CB wait_for_gate(void*) {
  for (int i = 0; i < 1000 && !gate; ++i) usleep(1000);
}

cudaGraphExec_t gated_graph(cudaStream_t s, int* x, int kernels, int host_nodes) {
  NEED(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal));
  for (int i = 0; i < kernels; ++i) add_one<<<1, 1, 0, s>>>(x);
  for (int i = 0; i < host_nodes; ++i) NEED(cudaLaunchHostFunc(s, wait_for_gate, nullptr));
  cudaGraph_t graph = nullptr;
  NEED(cudaStreamEndCapture(s, &graph));
  return instantiate(graph);
}

// Says which launch was the first that took more than 0.2 s.
void find_blocking(const char* what, int most, const std::function<void(int)>& launch) {
  double total = 0;
  int blocked = 0;
  for (int i = 1; i <= most && blocked == 0; ++i) {
    double us = us_of([&] { launch(i); });
    if (us > 200e3) {
      blocked = i;
    } else {
      total += us;
    }
  }
  gate = true;
  NEED(cudaDeviceSynchronize());
  gate = false;
  if (blocked > 0) {
    say(what, "launch %d blocks; those before took %.1f us each", blocked, total / std::max(1, blocked - 1));
  } else {
    say(what, "none of %d blocks; %.1f us each", most, total / most);
  }
}

void held_up_launches() {
  int* x = number(0);
  cudaStream_t s = stream(), other = stream();
  for (int kernels : {0, 1, 10, 100})
    for (int host_nodes : {1, 4}) {
      cudaGraphExec_t exec = gated_graph(s, x, kernels, host_nodes);
      gate = true;
      NEED(cudaGraphLaunch(exec, s));
      NEED(cudaStreamSynchronize(s));
      gate = false;
      std::string name = std::to_string(kernels) + " kernels, " + std::to_string(host_nodes) + " host nodes";
      find_blocking(name.c_str(), 300, [&](int) { NEED(cudaGraphLaunch(exec, s)); });
    }
  cudaGraphExec_t gated = gated_graph(s, x, 1, 1), second = gated_graph(s, x, 1, 1), plain = gated_graph(s, x, 10, 0);
  for (cudaGraphExec_t exec : {gated, second, plain}) {
    gate = true;
    NEED(cudaGraphLaunch(exec, s));
    NEED(cudaStreamSynchronize(s));
    gate = false;
  }
  find_blocking("two graphs with a host node in turns", 300,
                [&](int i) { NEED(cudaGraphLaunch(i % 2 ? gated : second, s)); });
  find_blocking("plain graphs behind one with a host node", 3000,
                [&](int i) { NEED(cudaGraphLaunch(i == 1 ? gated : plain, s)); });
  find_blocking("plain graphs on another stream", 3000,
                [&](int i) { i == 1 ? NEED(cudaGraphLaunch(gated, s)) : NEED(cudaGraphLaunch(plain, other)); });
  find_blocking("kernels behind a graph with a host node", 3000, [&](int i) {
    if (i == 1) {
      NEED(cudaGraphLaunch(gated, s));
    } else {
      add_one<<<1, 1, 0, s>>>(x);
    }
  });
  find_blocking("plain graphs behind a kernel of 1 s", 3000, [&](int i) {
    if (i == 1) {
      spin<<<1, 1, 0, s>>>(1'000'000'000LL);
    } else {
      NEED(cudaGraphLaunch(plain, s));
    }
  });
  find_blocking("kernels behind a kernel of 1 s", 3000, [&](int i) {
    if (i == 1) {
      spin<<<1, 1, 0, s>>>(1'000'000'000LL);
    } else {
      add_one<<<1, 1, 0, s>>>(x);
    }
  });
}

double us_a_launch(cudaStream_t s, const std::function<void()>& fill) {
  NEED(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal));
  fill();
  cudaGraph_t graph = nullptr;
  NEED(cudaStreamEndCapture(s, &graph));
  cudaGraphExec_t exec = instantiate(graph);
  for (int i = 0; i < 5; ++i) NEED(cudaGraphLaunch(exec, s));
  NEED(cudaStreamSynchronize(s));
  double us = median_us(
      [&] {
        NEED(cudaGraphLaunch(exec, s));
        NEED(cudaStreamSynchronize(s));
      },
      51);
  NEED(cudaGraphExecDestroy(exec));
  return us;
}

// Adds a conditional node behind what the stream captured, whose body `fill` captures.
cudaGraphConditionalHandle add_conditional(cudaStream_t s, cudaStream_t inner, cudaGraphConditionalNodeType type,
                                           const std::function<void(cudaGraphConditionalHandle)>& before,
                                           const std::function<void(cudaGraphConditionalHandle)>& fill) {
  cudaStreamCaptureStatus status;
  cudaGraph_t graph = nullptr;
  NEED(cudaStreamGetCaptureInfo(s, &status, nullptr, &graph, nullptr, nullptr, nullptr));
  cudaGraphConditionalHandle handle;
  NEED(cudaGraphConditionalHandleCreate(&handle, graph, 0, 0));
  before(handle);
  const cudaGraphNode_t* nodes = nullptr;
  const cudaGraphEdgeData* edges = nullptr;
  std::size_t count = 0;
  NEED(cudaStreamGetCaptureInfo(s, &status, nullptr, &graph, &nodes, &edges, &count));
  cudaGraphNodeParams params = {};
  params.type = cudaGraphNodeTypeConditional;
  params.conditional.handle = handle;
  params.conditional.type = type;
  params.conditional.size = 1;
  cudaGraphNode_t node;
  NEED(cudaGraphAddNode(&node, graph, nodes, edges, count, &params));
  NEED(cudaStreamBeginCaptureToGraph(inner, params.conditional.phGraph_out[0], nullptr, nullptr, 0,
                                     cudaStreamCaptureModeThreadLocal));
  fill(handle);
  cudaGraph_t body = nullptr;
  NEED(cudaStreamEndCapture(inner, &body));
  NEED(cudaStreamUpdateCaptureDependencies(s, &node, nullptr, 1, cudaStreamSetCaptureDependencies));
  return handle;
}

// (6) What nodes cost: host functions in a row, iterations of a WHILE node, IF nodes.
void node_costs() {
  int *x = number(0), *left = number(0);
  cudaStream_t s = stream(), inner = stream();
  static std::atomic<int> calls{0};
  auto host = [&] {
    NEED(cudaLaunchHostFunc(
        s, [](void*) { ++calls; }, nullptr));
  };
  auto kernel = [&](cudaStream_t on) { add_one<<<1, 1, 0, on>>>(x); };
  double base = us_a_launch(s, [&] { kernel(s), kernel(s); });
  say("2 kernels", "%.1f us", base);
  for (int n : {1, 2, 4, 10}) {
    double row = us_a_launch(s, [&] {
      kernel(s);
      for (int i = 0; i < n; ++i) host();
      kernel(s);
    });
    double alternating = us_a_launch(s, [&] {
      kernel(s);
      for (int i = 0; i < n; ++i) host(), kernel(s);
    });
    say((std::to_string(n) + " host nodes").c_str(),
        "in a row %.1f us (%.1f us each), between kernels %.1f us (%.1f us each)", row, (row - base) / n, alternating,
        (alternating - base) / n);
  }
  // A WHILE node: the condition set by a kernel of its own, or by the last kernel of the body.
  for (int kernels : {1, 2, 5, 10})
    for (bool own : {true, false}) {
      if (kernels == 1 && own) continue;
      NEED(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal));
      add_conditional(
          s, inner, cudaGraphCondTypeWhile,
          [&](cudaGraphConditionalHandle h) { set_condition<<<1, 1, 0, s>>>(left, h); },
          [&](cudaGraphConditionalHandle h) {
            for (int i = 0; i < kernels - 1; ++i) kernel(inner);
            if (own) {
              count_down<<<1, 1, 0, inner>>>(left, h);
            } else {
              count_down_and_add<<<1, 1, 0, inner>>>(left, x, h);
            }
          });
      cudaGraph_t graph = nullptr;
      NEED(cudaStreamEndCapture(s, &graph));
      cudaGraphExec_t exec = instantiate(graph);
      NEED(cudaGraphUpload(exec, s));
      auto run = [&](int times) {
        NEED(cudaMemcpyAsync(left, &times, 4, cudaMemcpyDefault, s));
        NEED(cudaStreamSynchronize(s));
        return us_of([&] {
          NEED(cudaGraphLaunch(exec, s));
          NEED(cudaStreamSynchronize(s));
        });
      };
      run(10);
      std::vector<double> each, once;
      for (int i = 0; i < 7; ++i) once.push_back(run(1)), each.push_back((run(1001) - once.back()) / 1000);
      std::sort(each.begin(), each.end()), std::sort(once.begin(), once.end());
      say(("WHILE, body of " + std::to_string(kernels) + " kernels").c_str(),
          "%s: %.3f us an iteration, one iteration %.2f us",
          own ? "the last one only sets the condition" : "the last one computes and sets the condition", each[3],
          once[3]);
    }
  for (unsigned taken : {0u, 1u})
    for (int n : {1, 5, 10}) {
      double with = us_a_launch(s, [&] {
        kernel(s);
        for (int i = 0; i < n; ++i)
          add_conditional(
              s, inner, cudaGraphCondTypeIf, [&](cudaGraphConditionalHandle h) { decide<<<1, 1, 0, s>>>(taken, h); },
              [&](cudaGraphConditionalHandle) { kernel(inner); });
        kernel(s);
      });
      double without = us_a_launch(s, [&] {
        kernel(s);
        for (int i = 0; i < n; ++i) {
          kernel(s);  // in place of decide
          if (taken != 0) kernel(s);
        }
        kernel(s);
      });
      say((std::to_string(n) + " IF nodes, " + (taken != 0 ? "taken" : "not taken")).c_str(),
          "%.1f us, the same kernels without them %.1f us: %.2f us each", with, without, (with - without) / n);
    }
}

// (7) The functions of which NVRTC and nvcc have to give the same bits.
__device__ float apply(int which, float x) {
  switch (which) {
    case 0:
      return sinf(x);
    case 1:
      return cosf(x);
    case 2:
      return tanhf(x);
    case 3:
      return expf(x);
    case 4:
      return logf(fabsf(x));
    case 5:
      return erff(x);
    case 6:
      return powf(fabsf(x), 2.5f);
    default:
      return x;
  }
}
__device__ double apply(int which, double x) {
  switch (which) {
    case 0:
      return sin(x);
    case 1:
      return cos(x);
    case 2:
      return tanh(x);
    case 3:
      return exp(x);
    case 4:
      return log(fabs(x));
    case 5:
      return erf(x);
    case 6:
      return pow(fabs(x), 2.5);
    default:
      return x;
  }
}
template <class T>
__global__ void apply_all(int which, const T* in, T* out, int n) {
  int i = int(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < n) out[i] = apply(which, in[i]);
}
constexpr const char* kFunctions[] = {"sin", "cos", "tanh", "exp", "log", "erf", "pow 2.5"};
// The same, as a text for NVRTC.
constexpr const char kSource[] = R"(
template <class T> struct F;
template <> struct F<float> { static float of(int which, float x) {
  switch (which) { case 0: return sinf(x); case 1: return cosf(x); case 2: return tanhf(x); case 3: return expf(x);
    case 4: return logf(fabsf(x)); case 5: return erff(x); case 6: return powf(fabsf(x), 2.5f); default: return x; } } };
template <> struct F<double> { static double of(int which, double x) {
  switch (which) { case 0: return sin(x); case 1: return cos(x); case 2: return tanh(x); case 3: return exp(x);
    case 4: return log(fabs(x)); case 5: return erf(x); case 6: return pow(fabs(x), 2.5); default: return x; } } };
extern "C" __global__ void apply_f32(int which, const float* in, float* out, int n) {
  int i = int(blockIdx.x * blockDim.x + threadIdx.x); if (i < n) out[i] = F<float>::of(which, in[i]); }
extern "C" __global__ void apply_f64(int which, const double* in, double* out, int n) {
  int i = int(blockIdx.x * blockDim.x + threadIdx.x); if (i < n) out[i] = F<double>::of(which, in[i]); }
)";

// Compiles kSource; an empty result says why not.
std::vector<char> compiled_by_nvrtc() {
  void* handle = dlopen("libnvrtc.so.13", RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    say("NVRTC", "%s", dlerror());
    return {};
  }
  using Program = void*;
  auto create =
      reinterpret_cast<int (*)(Program*, const char*, const char*, int, const char* const*, const char* const*)>(
          dlsym(handle, "nvrtcCreateProgram"));
  auto compile = reinterpret_cast<int (*)(Program, int, const char* const*)>(dlsym(handle, "nvrtcCompileProgram"));
  auto size_of = reinterpret_cast<int (*)(Program, std::size_t*)>(dlsym(handle, "nvrtcGetCUBINSize"));
  auto cubin_of = reinterpret_cast<int (*)(Program, char*)>(dlsym(handle, "nvrtcGetCUBIN"));
  auto log_size = reinterpret_cast<int (*)(Program, std::size_t*)>(dlsym(handle, "nvrtcGetProgramLogSize"));
  auto log_of = reinterpret_cast<int (*)(Program, char*)>(dlsym(handle, "nvrtcGetProgramLog"));
  cudaDeviceProp properties;
  NEED(cudaGetDeviceProperties(&properties, 0));
  std::string architecture = "-arch=sm_" + std::to_string(10 * properties.major + properties.minor);
  const char* options[] = {"-std=c++20", architecture.c_str(), "-fmad=false", "-default-device"};
  Program program = nullptr;
  int created = create(&program, kSource, "functions.cu", 0, nullptr, nullptr), compiled = compile(program, 4, options);
  if (created != 0 || compiled != 0) {
    std::size_t size = 0;
    log_size(program, &size);
    std::string log(size, ' ');
    log_of(program, log.data());
    say("NVRTC", "%d %d %s", created, compiled, log.substr(0, 600).c_str());
    return {};
  }
  std::size_t size = 0;
  size_of(program, &size);
  std::vector<char> cubin(size);
  cubin_of(program, cubin.data());
  say("NVRTC", "%s: %zu bytes of machine code", architecture.c_str(), size);
  return cubin;
}

template <class T, class Bits>
void compare_bits(const char* type, cudaKernel_t theirs) {
  constexpr int kCount = 1000000;
  T *in, *ours_out, *theirs_out;
  for (T** memory : {&in, &ours_out, &theirs_out}) NEED(cudaMalloc(memory, kCount * sizeof(T)));
  std::vector<T> values(kCount), ours(kCount), other(kCount);
  for (double range : {1.0, 20.0, 1e5}) {
    unsigned long long state = 88172645463325252ull;
    for (T& value : values) {
      state ^= state << 13, state ^= state >> 7, state ^= state << 17;
      value = T((double(state >> 11) * 0x1p-53 * 2 - 1) * range);
    }
    NEED(cudaMemcpy(in, values.data(), kCount * sizeof(T), cudaMemcpyDefault));
    for (int which = 0; which < int(std::size(kFunctions)); ++which) {
      int count = kCount;
      apply_all<T><<<(kCount + 255) / 256, 256>>>(which, in, ours_out, count);
      NEED(cudaGetLastError());
      void* arguments[] = {&which, &in, &theirs_out, &count};
      NEED(cudaLaunchKernel(reinterpret_cast<const void*>(theirs), dim3((kCount + 255) / 256), dim3(256), arguments, 0,
                            nullptr));
      NEED(cudaMemcpy(ours.data(), ours_out, kCount * sizeof(T), cudaMemcpyDefault));
      NEED(cudaMemcpy(other.data(), theirs_out, kCount * sizeof(T), cudaMemcpyDefault));
      int differ = 0;
      long long most = 0;
      double where = 0;
      for (int i = 0; i < kCount; ++i) {
        Bits a, b;
        std::memcpy(&a, &ours[i], sizeof a), std::memcpy(&b, &other[i], sizeof b);
        if (a == b) continue;
        ++differ;
        long long distance = std::llabs((long long)(a) - (long long)(b));
        if (distance > most) most = distance, where = double(values[i]);
      }
      std::string key = std::string(type) + " " + kFunctions[which] + ", inputs up to " + std::to_string(int(range));
      if (differ == 0) {
        say(key.c_str(), "0 of %d differ", kCount);
      } else {
        say(key.c_str(), "%d of %d DIFFER, by up to %lld units at %.17g", differ, kCount, most, where);
      }
    }
  }
}

void function_bits() {
  std::vector<char> cubin = compiled_by_nvrtc();
  if (cubin.empty()) return;
  cudaLibrary_t library;
  NEED(cudaLibraryLoadData(&library, cubin.data(), nullptr, nullptr, 0, nullptr, nullptr, 0));
  cudaKernel_t f32, f64;
  NEED(cudaLibraryGetKernel(&f32, library, "apply_f32"));
  NEED(cudaLibraryGetKernel(&f64, library, "apply_f64"));
  compare_bits<float, int>("f32", f32);
  compare_bits<double, long long>("f64", f64);
}

}  // namespace
}  // namespace probe

int main(int argc, char** argv) {
  using namespace probe;
  return ask_all(argc, argv,
                 {{"device_of_capture", device_of_capture, 15},
                  {"exec_destroy", exec_destroy, 10},
                  {"event_query", event_query, 10},
                  {"free", free_memory, 10},
                  {"stream_destroy", stream_destroy, 10},
                  {"event_destroy", event_destroy, 10},
                  {"graph_destroy", graph_destroy, 10},
                  {"exec_update", exec_update, 10},
                  {"instantiate", graph_instantiate, 10},
                  {"upload", graph_upload, 10},
                  {"library_unload", library_unload, 10},
                  {"launch_in_capture", launch_in_capture, 10},
                  {"product_arguments", product_arguments, 25},
                  {"held_up_launches", held_up_launches, 60},
                  {"node_costs", node_costs, 25},
                  {"function_bits", function_bits, 30}});
}
