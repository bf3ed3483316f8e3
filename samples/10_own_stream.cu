// GPU code that was there before, with memory, a stream and kernels of its own, in which a graphsink program takes over
// one part. The program works in that memory, nothing is copied, and its step becomes a part of the code's own CUDA
// graph, between two of the code's kernels.
#include <cuda_runtime.h>
#include <graphsink/graphsink.h>

#include <array>
#include <iostream>
#include <stdexcept>
#include <string>
namespace gs = graphsink;

constexpr int kSize = 4;

__global__ void next_batch(float* x) { x[threadIdx.x] += 1; }
__global__ void add_up(const float* y, float* total) { total[threadIdx.x] += y[threadIdx.x]; }

static void check(cudaError_t status, const char* call) {
  if (status != cudaSuccess) throw std::runtime_error(std::string(call) + ": " + cudaGetErrorString(status));
}
// Memory that begins at a multiple of 256 bytes, as bind_memory() asks for, filled with one number.
static float* allocate(float number) {
  float* memory = nullptr;
  check(cudaMalloc(&memory, kSize * sizeof(float)), "cudaMalloc");
  std::array<float, kSize> data{};
  data.fill(number);
  check(cudaMemcpy(memory, data.data(), sizeof data, cudaMemcpyHostToDevice), "cudaMemcpy");
  return memory;
}

int main() try {
  if (gs::cuda_device_count() == 0) {
    std::cout << "no CUDA device: nothing to show\n";
    return 0;
  }
  float *x_memory = allocate(0), *w_memory = allocate(2), *y_memory = allocate(0), *total = allocate(0);
  cudaStream_t stream = nullptr;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate");

  // The part that graphsink takes over: y = x w, and w, which is trained to make the sum of y 100.
  gs::Graph g;
  gs::Variable w("w", gs::Tensor({0.0f, 0.0f, 0.0f, 0.0f}));
  gs::Value x = g.input("x", gs::f32, {kSize}), y = x * w;
  gs::Value error = sum(y) - 100.0;
  g.record("loss", error * error);
  g.output("y", y);
  sgd(error * error, {w}, {.lr = 1e-4});
  gs::Program program = gs::compile(g, {.target = gs::cuda(0)});
  const std::size_t bytes = kSize * sizeof(float);
  program.bind_memory(x, x_memory, bytes);
  program.bind_memory(y, y_memory, bytes);
  program.bind_memory(w, w_memory, bytes);  // w is 2, which is what lies there

  // One step by itself, in the order of the stream: kernels are loaded and memory is allocated, which no capture may
  // do.
  next_batch<<<1, kSize, 0, stream>>>(x_memory);
  program.enqueue(stream);
  add_up<<<1, kSize, 0, stream>>>(y_memory, total);

  // From here on the three are one CUDA graph.
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;
  check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
  next_batch<<<1, kSize, 0, stream>>>(x_memory);
  program.enqueue(stream);
  add_up<<<1, kSize, 0, stream>>>(y_memory, total);
  check(cudaStreamEndCapture(stream, &graph), "cudaStreamEndCapture");
  check(cudaGraphInstantiate(&exec, graph, 0), "cudaGraphInstantiate");
  for (int launch = 0; launch < 9; ++launch) check(cudaGraphLaunch(exec, stream), "cudaGraphLaunch");
  check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");  // before any other call on the program

  std::array<float, kSize> totals{};
  check(cudaMemcpy(totals.data(), total, sizeof totals, cudaMemcpyDeviceToHost), "cudaMemcpy");
  const std::vector<float> losses = program.records("loss");
  std::cout << losses.size() << " steps, loss " << losses.front() << " -> " << losses.back() << ", w " << w.read()
            << ", sum of y " << totals[0] << "\n";

  check(cudaGraphExecDestroy(exec), "cudaGraphExecDestroy");
  check(cudaGraphDestroy(graph), "cudaGraphDestroy");
  return std::cout.flush() ? 0 : 2;  // a full disk would lose what was printed
} catch (const std::exception& e) {
  std::cerr << "error: " << e.what() << "\n";
  return 2;
}
