// The time that the library adds to the bare CUDA calls, in one process and with the same kernel on one element: a
// hand-written launch loop against interactive-serial, a bare cudaGraphLaunch against sink and against
// SinkCache::run(). Prints JSON.
#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>

#include "graphsink/cuda.h"
#include "graphsink/graphsink.h"
#include "profiling/clock.h"

namespace gs = graphsink;
namespace bench = graphsink::bench;

namespace {

constexpr int kSamples = 200;

__global__ void link_kernel(const float* in, float* out) { *out = *in * 0.99999f + 0.00001f; }

void check(cudaError_t code, const char* call) {
  if (code != cudaSuccess)
    throw gs::Error(call, {}, cudaGetErrorString(code), "run it on a machine with a working GPU");
}

void infer(gs::InferArgs& a) {
  a.expect_inputs(1);
  a.out(gs::f32, {});
}
gs::Prepared prepare(const gs::PrepareArgs&) {
  cudaFuncAttributes attributes;
  check(cudaFuncGetAttributes(&attributes, link_kernel), "cudaFuncGetAttributes");
  return {};
}
void cuda_body(gs::CudaArgs& a) { a.launch(link_kernel, {1}, {32}, 0, a.in<float>(0), a.out<float>(0)); }
const gs::OpDef link_op{.name = "link", .infer = infer, .prepare = prepare, .bodies = {cuda_body}};

// The same kernels with nothing around them.
class Bare {
 public:
  explicit Bare(int kernels) : kernels_(kernels) {
    check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
    check(cudaMalloc(&values_, 2 * sizeof(float)), "cudaMalloc");
    check(cudaMemset(values_, 0, 2 * sizeof(float)), "cudaMemset");
    check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    check(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
    loop();
    check(cudaStreamEndCapture(stream_, &graph_), "cudaStreamEndCapture");
    check(cudaGraphInstantiate(&exec_, graph_, 0), "cudaGraphInstantiate");
    check(cudaGraphUpload(exec_, stream_), "cudaGraphUpload");
    sync();
  }
  ~Bare() {
    (void)cudaGraphExecDestroy(exec_);
    (void)cudaGraphDestroy(graph_);
    (void)cudaFree(values_);
    (void)cudaStreamDestroy(stream_);
  }
  Bare(const Bare&) = delete;
  Bare& operator=(const Bare&) = delete;

  void loop() {
    for (int i = 0; i < kernels_; ++i) {
      cudaLaunchConfig_t config = {};
      config.gridDim = dim3(1);
      config.blockDim = dim3(32);
      config.stream = stream_;
      check(cudaLaunchKernelEx(&config, link_kernel, static_cast<const float*>(values_ + i % 2), values_ + (i + 1) % 2),
            "cudaLaunchKernelEx");
    }
  }
  cudaStream_t stream() const { return stream_; }
  void launch() { check(cudaGraphLaunch(exec_, stream_), "cudaGraphLaunch"); }
  void sync() { check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize"); }

 private:
  int kernels_;
  cudaStream_t stream_ = nullptr;
  float* values_ = nullptr;
  cudaGraph_t graph_ = nullptr;
  cudaGraphExec_t exec_ = nullptr;
};

struct Times {
  std::vector<double> enqueue, wall;

  template <class Enqueue, class Sync>
  void sample(const Enqueue& enqueue_all, const Sync& sync, double clock_cost) {
    sync();
    auto start = bench::Clock::now();
    enqueue.push_back(bench::thread_us_of(enqueue_all, clock_cost));
    sync();
    wall.push_back(bench::us_since(start));
  }
  double median_enqueue() const { return bench::spread_of(enqueue).median; }
  double median_wall() const { return bench::spread_of(wall).median; }
};

void print(const char* name, const Times& times, int kernels, const char* end) {
  std::printf("  \"%s\": {\"enqueue_us\": %.3f, \"wall_us\": %.3f, \"enqueue_ns_per_kernel\": %.2f}%s\n", name,
              times.median_enqueue(), times.median_wall(), 1e3 * times.median_enqueue() / kernels, end);
}

int run(int nodes) {
  if (gs::cuda_device_count() == 0) throw gs::Error("launch_baseline", {}, "no CUDA device", "run it where one is");
  gs::Graph g;
  gs::Variable state("state", gs::Tensor::scalar(0.5f));
  gs::Value x = g.value(state);
  for (int i = 0; i < nodes; ++i) x = gs::emit(link_op, {x})[0];
  assign(state, x);
  gs::Program program = gs::compile(g, {.target = gs::cuda(0), .require_whole_graph = true});
  for (int i = 0; i < 3; ++i) program.run(gs::sink);
  program.sync();
  gs::Counters before = program.counters();
  program.run(gs::interactive);
  const auto issued = static_cast<int>(program.counters().kernels - before.kernels);
  const int captured = program.captured()->kernels;

  // As many kernels as the program issues, its own at the beginning and end of the step included.
  Bare bare_loop(issued), bare_graph(captured);
  gs::SinkCache sinks({.strict = true});
  auto run_cached = [&] {
    sinks.run(bare_graph.stream(), gs::Key{captured}, [&](cudaStream_t) { bare_graph.loop(); });
  };
  for (int i = 0; i < 3; ++i) run_cached();
  Times loop, interactive, graph, sink, cached;
  double clock_cost = bench::thread_clock_cost();
  for (int i = 0; i < kSamples; ++i) {
    loop.sample([&] { bare_loop.loop(); }, [&] { bare_loop.sync(); }, clock_cost);
    interactive.sample([&] { program.run(gs::interactive); }, [&] { program.sync(); }, clock_cost);
    graph.sample([&] { bare_graph.launch(); }, [&] { bare_graph.sync(); }, clock_cost);
    sink.sample([&] { program.run(gs::sink); }, [&] { program.sync(); }, clock_cost);
    cached.sample(
        run_cached, [&] { bare_graph.sync(); }, clock_cost);
  }
  std::printf("{\n  \"device\": \"%s\", \"nodes\": %d, \"kernels_interactive\": %d, \"kernels_captured\": %d,\n",
              program.target().name.c_str(), nodes, issued, captured);
  print("bare_loop", loop, issued, ",");
  print("interactive_serial", interactive, issued, ",");
  print("bare_graph_launch", graph, captured, ",");
  print("sink", sink, captured, ",");
  print("sink_cache", cached, captured, ",");
  std::printf("  \"interactive_over_loop\": %.4f, \"sink_over_graph_launch\": %.4f,\n",
              interactive.median_enqueue() / loop.median_enqueue(), sink.median_enqueue() / graph.median_enqueue());
  std::printf("  \"sink_cache_minus_graph_launch_us\": %.3f\n}\n", cached.median_enqueue() - graph.median_enqueue());
  return 0;
}

}  // namespace

int main(int argc, char** argv) try { return run(argc > 1 ? std::atoi(argv[1]) : 1000); } catch (const gs::Error& e) {
  std::fprintf(stderr, "error: %s\n", e.what());
  return 2;
}
