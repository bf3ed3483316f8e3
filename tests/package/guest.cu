// A program outside graphsink that is written for nvcc, with kernel<<<...>>>() and extern __shared__, and sinks its
// steps and is fed by a loader. On the software device it chooses seeds and makes a CUDA call fail.
#include <graphsink/capture.h>
#include <graphsink/graphsink.h>

#include <cstdio>
#include <cstdlib>
#include <vector>

#include "guest.cuh"

#ifdef GRAPHSINK_EMULATED
#include <graphsink/emulator/emulator.h>
#endif

namespace gs = graphsink;

static void check(bool is_true, const char* text) {
  if (is_true) return;
  std::fprintf(stderr, "failed: %s\n", text);
  std::exit(1);
}

#define CUDA_CALL(call) check((call) == cudaSuccess, #call)

constexpr int kSize = 100;
constexpr int kThreads = 32;
constexpr int kSteps = 5;

// Each step adds 0 + 1 + ... + 99 = 4950.
static void step(float* total, const float* values, cudaStream_t stream) {
  const int blocks = (kSize + kThreads - 1) / kThreads;
  add_all<float><<<blocks, kThreads, kThreads * sizeof(float), stream>>>(total, values, kSize);
}

static void check_sunk() {
  std::vector<float> numbers;
  for (int i = 0; i < kSize; ++i) numbers.push_back(static_cast<float>(i));
  void *values = nullptr, *total = nullptr;
  cudaStream_t stream = nullptr;
  CUDA_CALL(cudaMalloc(&values, kSize * sizeof(float)));
  CUDA_CALL(cudaMalloc(&total, sizeof(float)));
  CUDA_CALL(cudaStreamCreate(&stream));
  CUDA_CALL(cudaMemcpy(values, numbers.data(), kSize * sizeof(float), cudaMemcpyHostToDevice));
  CUDA_CALL(cudaMemsetAsync(total, 0, sizeof(float), stream));
  {
    gs::SinkCache sinks({.strict = true});
    for (int i = 0; i < kSteps; ++i) {
      sinks.run(stream, gs::Key{},
                [&](cudaStream_t s) { step(static_cast<float*>(total), static_cast<const float*>(values), s); });
    }
    CUDA_CALL(cudaStreamSynchronize(stream));
    check(sinks.report().launches == kSteps - 1, "each step but the first is a launch");
  }
  float sum = 0;
  CUDA_CALL(cudaMemcpy(&sum, total, sizeof sum, cudaMemcpyDeviceToHost));
  check(sum == kSteps * 4950.0f, "each step adds the sum of the numbers once");
  CUDA_CALL(cudaFree(values));
  CUDA_CALL(cudaFree(total));
  CUDA_CALL(cudaStreamDestroy(stream));
}

// The same step on batches of a loader: an epoch has each number once.
static void check_loaded() {
  constexpr int kEpochs = 2;
  std::vector<float> numbers;
  for (int i = 0; i < kSize; ++i) numbers.push_back(static_cast<float>(i));
  void* total = nullptr;
  cudaStream_t stream = nullptr;
  CUDA_CALL(cudaMalloc(&total, sizeof(float)));
  CUDA_CALL(cudaStreamCreate(&stream));
  CUDA_CALL(cudaMemsetAsync(total, 0, sizeof(float), stream));
  {
    gs::StreamLoader loader(stream, gs::tensor_source({{"number", gs::Tensor({kSize}, numbers)}}),
                            gs::sample_order(kSize, {.batch = kThreads, .last_batch = gs::LastBatch::shorter}),
                            {.workers = 2});
    const auto* values = loader.data<float>("number");
    gs::SinkCache sinks({.strict = true});
    for (int epoch = 0; epoch < kEpochs; ++epoch) {
      while (const auto samples = loader.next()) {
        const int size = static_cast<int>(samples);
        sinks.run(stream, gs::Key{samples}, [&](cudaStream_t s) {
          add_all<float><<<1, kThreads, kThreads * sizeof(float), s>>>(static_cast<float*>(total), values, size);
        });
      }
    }
    CUDA_CALL(cudaStreamSynchronize(stream));
    check(sinks.report().keys == 2, "whole batches have one key, the last one has another");
  }
  float sum = 0;
  CUDA_CALL(cudaMemcpy(&sum, total, sizeof sum, cudaMemcpyDeviceToHost));
  check(sum == kEpochs * 4950.0f, "each epoch adds each number once");
  CUDA_CALL(cudaFree(total));
  CUDA_CALL(cudaStreamDestroy(stream));
}

#ifdef GRAPHSINK_EMULATED
static void check_faults() {
  void* memory = nullptr;
  emu::fail("cudaMalloc", 2, cudaErrorMemoryAllocation);
  CUDA_CALL(cudaMalloc(&memory, 4));
  CUDA_CALL(cudaFree(memory));
  check(cudaMalloc(&memory, 4) == cudaErrorMemoryAllocation, "the second allocation fails");
  check(emu::injected()["cudaMalloc"] == 1, "one call was made to fail");
  (void)cudaGetLastError();
}
#endif

int main() {
  if (gs::cuda_device_count() == 0) {
    std::puts("guest: no CUDA device");
    return 0;
  }
#ifdef GRAPHSINK_EMULATED
  for (unsigned seed = 0; seed < 6; ++seed) {
    emu::set_seed(seed);
    check_sunk();
    check_loaded();
  }
  check_faults();
  check(emu::live_objects().device_allocations == 0, "all memory is freed");
#else
  check_sunk();
  check_loaded();
#endif
  std::puts("guest: right");
}
