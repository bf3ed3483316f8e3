// Training code with kernels and a stream of its own, whose steps are sunk.
#include <cuda_runtime.h>
#include <graphsink/cuda.h>
#include <graphsink/graphsink.h>

#include <iostream>
#include <numeric>
#include <vector>

namespace gs = graphsink;

constexpr int kBatch = 32;

// y = w x, with w trained so that y becomes 3 x.
__global__ void gradient_of(const float* x, const float* w, float* gradient, int samples) {
  float sum = 0;
  for (int i = 0; i < samples; ++i) sum += (w[0] - 3) * x[i] * x[i];
  gradient[0] = sum / static_cast<float>(samples);
}
__global__ void update(float* w, const float* gradient, const float* rate) { w[0] -= rate[0] * gradient[0]; }
__global__ void update_by_value(float* w, const float* gradient, float rate) { w[0] -= rate * gradient[0]; }
__global__ void scale(const float* x, float* y, float factor) { y[threadIdx.x] = factor * x[threadIdx.x]; }

static float* device_memory(const std::vector<float>& values) {
  float* memory = nullptr;
  const std::size_t bytes = values.size() * sizeof(float);
  if (cudaMalloc(&memory, bytes) != cudaSuccess) throw std::runtime_error("cudaMalloc");
  (void)cudaMemcpy(memory, values.data(), bytes, cudaMemcpyHostToDevice);
  return memory;
}
static float read(const float* memory) {
  float value = 0;
  (void)cudaMemcpy(&value, memory, sizeof value, cudaMemcpyDeviceToHost);
  return value;
}
static bool is_near(float a, float b) { return a > b - 1e-3f && a < b + 1e-3f; }

static std::vector<float> samples_of_a_batch() {
  std::vector<float> x(kBatch);
  std::iota(x.begin(), x.end(), 1.0f);
  for (float& value : x) value /= kBatch;
  return x;
}

// w after a hundred steps and a hundred more, which are one launch.
static bool sinks(cudaStream_t stream) {
  float *x = device_memory(samples_of_a_batch()), *w = device_memory({0}), *gradient = device_memory({0});
  float* rate = device_memory({0.5f});
  // [sink]
  gs::SinkCache sinks({.max_bytes = 16 << 20});
  for (int step = 0; step < 100; ++step) {
    sinks.run(stream, gs::Key{kBatch}, [&](cudaStream_t s) {
      gradient_of<<<1, 1, 0, s>>>(x, w, gradient, kBatch);
      update<<<1, 1, 0, s>>>(w, gradient, rate);  // the learning rate lies in device memory
    });
  }
  std::cout << sinks.report();
  // [sink]
  const bool is_one_launch_a_step = sinks.report().launches == 99;
  // [steps]
  const auto step = [&](cudaStream_t s) {
    gradient_of<<<1, 1, 0, s>>>(x, w, gradient, kBatch);
    update<<<1, 1, 0, s>>>(w, gradient, rate);
  };
  sinks.run(stream, gs::Key{kBatch}, step, {.steps = 100});  // one launch
  // [steps]
  (void)cudaStreamSynchronize(stream);
  const bool is_trained = is_near(read(w), 3);
  for (float* memory : {x, w, gradient, rate}) (void)cudaFree(memory);
  return is_one_launch_a_step && sinks.report().loops == 1 && is_trained;
}

// A launch repeats a number that was passed by value. A check says so.
static bool finds_a_value(cudaStream_t stream) {
  float *x = device_memory(samples_of_a_batch()), *w = device_memory({0}), *gradient = device_memory({0});
  // [check]
  gs::SinkCache sinks({.max_bytes = 16 << 20, .check_every = 10, .log = [](gs::LogLevel, std::string_view) {}});
  float rate = 0.5f;
  for (int step = 0; step < 30; ++step, rate *= 0.9f) {
    sinks.run(stream, gs::Key{kBatch}, [&](cudaStream_t s) {
      gradient_of<<<1, 1, 0, s>>>(x, w, gradient, kBatch);
      update_by_value<<<1, 1, 0, s>>>(w, gradient, rate);  // wrong: launches keep the rate of the capture
    });
  }
  for (const gs::SinkFailure& failure : sinks.report().failures)
    std::cout << failure.problem << "\n  remedy: " << failure.remedy << "\n";
  // [check]
  (void)cudaStreamSynchronize(stream);
  for (float* memory : {x, w, gradient}) (void)cudaFree(memory);
  return sinks.report().refused == 1 && !sinks.report().failures.empty();
}

// What cannot be captured runs as it is, and the report says why.
static bool says_why_not(cudaStream_t stream) {
  float *x = device_memory(samples_of_a_batch()), *w = device_memory({0}), *gradient = device_memory({0});
  gs::SinkCache sinks({.max_bytes = 16 << 20, .log = [](gs::LogLevel, std::string_view) {}});
  // [wait]
  for (int step = 0; step < 3; ++step) {
    sinks.run(stream, gs::Key{"evaluate"}, [&](cudaStream_t s) {
      gradient_of<<<1, 1, 0, s>>>(x, w, gradient, kBatch);
      cudaStreamSynchronize(s);  // wrong: a function only enqueues
    });
  }
  std::cout << sinks.report();
  // [wait]
  for (float* memory : {x, w, gradient}) (void)cudaFree(memory);
  return sinks.report().as_is == 2;
}

// Batches that a loader brings to memory whose address never changes.
static bool loads(cudaStream_t stream) {
  const gs::Tensor inputs = gs::Tensor::full(gs::f32, {320}, 1);
  float *w = device_memory({0}), *gradient = device_memory({0}), *rate = device_memory({0.5f});
  gs::SinkCache sinks;
  // [loader]
  gs::StreamLoader loader(stream, gs::tensor_source({{"x", inputs}}),
                          gs::sample_order(320, {.batch = kBatch, .seed = 1}), {.workers = 4});
  const auto* x = loader.data<float>("x");
  while (auto samples = loader.next()) {  // an epoch
    sinks.run(stream, gs::Key{samples}, [&](cudaStream_t s) {
      gradient_of<<<1, 1, 0, s>>>(x, w, gradient, static_cast<int>(samples));
      update<<<1, 1, 0, s>>>(w, gradient, rate);
    });
  }
  // [loader]
  (void)cudaStreamSynchronize(stream);
  const float trained = read(w);  // 3 (1 - 1/2^10)
  for (float* memory : {w, gradient, rate}) (void)cudaFree(memory);
  return sinks.report().launches == 9 && trained > 2.99f && trained < 3;
}

// A kernel of one's own as a node of a Graph, and the step of a Graph in a function that is sunk.
static bool mixes(cudaStream_t stream) {
  // [external]
  gs::Graph g;
  gs::Value x = g.input("x", gs::f32, {4});
  gs::Value y = gs::external_op(
      {.name = "scale",
       .outputs = {{gs::f32, {4}}},
       .cuda = [](gs::CudaArgs& a) { scale<<<1, 4, 0, a.stream()>>>(a.in<float>(0), a.out<float>(0), 2); }},
      {x})[0];
  g.output("y", y + 1.0);
  gs::Program program = gs::compile(g, {.target = gs::cuda(0)});
  // [external]
  float* z = device_memory({0, 0, 0, 0});
  float* bound = device_memory({0, 0, 0, 0});
  // [enqueue]
  program.bind_memory(x, bound, 4 * sizeof(float));  // x is memory of the code around it: nothing is copied
  gs::SinkCache sinks;
  for (int step = 0; step < 10; ++step) {
    sinks.run(stream, gs::Key{}, [&](cudaStream_t s) {
      program.enqueue(s);  // the step becomes a part of what is captured
      scale<<<1, 4, 0, s>>>(bound, z, 5);
    });
  }
  cudaStreamSynchronize(stream);  // before any other call on the program
  // [enqueue]
  const bool is_right = program.output("y").at(3) == 1 && sinks.report().launches == 9;
  (void)cudaFree(z);
  (void)cudaFree(bound);
  return is_right;
}

int main() try {
  cudaStream_t stream = nullptr;
  (void)cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  const bool are_right[] = {sinks(stream), finds_a_value(stream), says_why_not(stream), loads(stream), mixes(stream)};
  (void)cudaStreamDestroy(stream);
  for (int i = 0; i < 5; ++i) {
    if (!are_right[i]) std::cerr << "part " << i << " is wrong\n";
  }
  return are_right[0] && are_right[1] && are_right[2] && are_right[3] && are_right[4] ? 0 : 1;
} catch (const std::exception& e) {
  std::cerr << "error: " << e.what() << "\n";
  return 2;
}
