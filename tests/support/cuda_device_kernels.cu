#include "cuda_device_kernels.h"

#include <cuda_runtime.h>

#include <utility>

#include "graphsink/cuda.h"
#include "graphsink/device_functions.h"
#include "ir/step_state.h"

namespace graphsink::testing {
namespace {

void infer_nothing(InferArgs&) {}

template <class... P, class... A>
void launch_one(CudaArgs& a, void (*kernel)(P...), A... arguments) {
  a.launch(kernel, {1, 1, 1}, {1, 1, 1}, 0, arguments...);
}

__global__ void affine_kernel(float* x, Affine f, int delay) {
  float seen = *static_cast<volatile float*>(x);
  for (int i = 0; i < delay; ++i) seen = *static_cast<volatile float*>(x);
  *x = f.factor * seen + f.offset;
}
__global__ void add_kernel(const float* x, float value, float* y) { *y = *x + value; }
__global__ void increase_kernel(float* x, bool is_waiting) {
  if (is_waiting) wait_for_inputs();
  *x += 1;
}
__global__ void double_kernel(float* x, bool is_waiting) {
  if (is_waiting) wait_for_inputs();
  *x *= 2;
}
template <bool is_waiting>
void increase_and_double(CudaArgs& a) {
  launch_one(a, increase_kernel, a.in_out<float>(0), is_waiting);
  launch_one(a, double_kernel, a.in_out<float>(0), is_waiting);
}
__global__ void copy_kernel(const float* x, float* y, const void*) { *y = *x; }
__global__ void positive_kernel(const std::int32_t* counter, bool* flag) { *flag = *counter > 0; }
__global__ void odd_kernel(const std::int32_t* counter, bool* flag) { *flag = *counter % 2 != 0; }
__global__ void count_down_kernel(std::int32_t* counter) { --*counter; }
__global__ void set_count_kernel(std::int32_t* counter, int value) { *counter = value; }
__global__ void add_slice_kernel(std::int64_t* sum, FeedTables tables, const StepState* block) {
  const auto* ring = static_cast<const std::byte*>(tables.rings[0]);
  *sum += *reinterpret_cast<const std::int64_t*>(ring + tables.strides[0] * block->slice);
}
__global__ void next_slice_kernel(StepState* block) { block->more = ++block->slice < block->end_slice; }

void add_from_host(CudaArgs& a) {
  launch_one(a, add_kernel, a.in<float>(0), *a.attrs<HostFloat>().value, a.out<float>(0));
}
void take_wrong_body(CudaArgs&) { throw Error("affine", Where(), "the body of another architecture was taken", ""); }

}  // namespace

// The device must take the newest body that it can run, at whatever position in the list.
const OpDef affine = {
    .name = "affine",
    .infer = infer_nothing,
    .bodies = {{[](CudaArgs& a) { launch_one(a, affine_kernel, a.in_out<float>(0), a.attrs<Affine>(), 0); }, 50},
               take_wrong_body,
               {take_wrong_body, 9999}}};
const OpDef add_host_float = {.name = "add_host_float",
                              .infer = [](InferArgs& a) { a.out(a.in(0).dtype, a.in(0).shape); },
                              .bodies = {add_from_host}};
const OpDef library_adds_host_float = {.name = "library_adds_host_float",
                                       .infer = [](InferArgs& a) { a.out(a.in(0).dtype, a.in(0).shape); },
                                       .bodies = {[](CudaArgs& a) {
                                         add_from_host(a);
                                         a.count_kernel();
                                       }}};
const OpDef adds_four_numbers = {.name = "adds_four_numbers",
                                 .infer = [](InferArgs& a) { a.out(a.in(0).dtype, a.in(0).shape); },
                                 .bodies = {[](CudaArgs& a) {
                                   const float* x = a.in<float>(0);
                                   for (float number : {1.0f, 2.0f, 4.0f, 8.0f})
                                     launch_one(a, add_kernel, std::exchange(x, a.out<float>(0)), number,
                                                a.out<float>(0));
                                 }}};
const OpDef waits_for_inputs = {.name = "waits_for_inputs",
                                .infer = infer_nothing,
                                .traits = {.kernels_wait = true},
                                .bodies = {increase_and_double<true>}};
const OpDef claims_to_wait = {.name = "claims_to_wait",
                              .infer = infer_nothing,
                              .traits = {.kernels_wait = true},
                              .bodies = {increase_and_double<false>}};
const OpDef takes_address = {.name = "takes_address",
                             .infer = [](InferArgs& a) { a.out(a.in(0).dtype, a.in(0).shape); },
                             .bodies = {[](CudaArgs& a) {
                               launch_one(a, copy_kernel, a.in<float>(0), a.out<float>(0),
                                          static_cast<const void*>(a.local<void*>()));
                             }}};
const OpDef slow_affine = {
    .name = "slow_affine",
    .infer = infer_nothing,
    .bodies = {[](CudaArgs& a) { launch_one(a, affine_kernel, a.in_out<float>(0), a.attrs<Affine>(), 20000); }}};
const OpDef is_positive = {
    .name = "is_positive",
    .infer = infer_nothing,
    .bodies = {[](CudaArgs& a) { launch_one(a, positive_kernel, a.in<std::int32_t>(0), a.in_out<bool>(1)); }}};
const OpDef is_odd = {.name = "is_odd", .infer = infer_nothing, .bodies = {[](CudaArgs& a) {
                                                                  launch_one(a, odd_kernel, a.in<std::int32_t>(0),
                                                                             a.in_out<bool>(1));
                                                                }}};
const OpDef count_down = {.name = "count_down",
                          .infer = infer_nothing,
                          .bodies = {[](CudaArgs& a) { launch_one(a, count_down_kernel, a.in_out<std::int32_t>(0)); }}};
const OpDef set_count = {
    .name = "set_count",
    .infer = infer_nothing,
    .bodies = {[](CudaArgs& a) { launch_one(a, set_count_kernel, a.in_out<std::int32_t>(0), a.attrs<int>()); }}};
const OpDef add_slice = {
    .name = "add_slice", .infer = infer_nothing, .bodies = {[](CudaArgs& a) {
                                                   launch_one(a, add_slice_kernel, a.in_out<std::int64_t>(0),
                                                              a.attrs<FeedTables>(),
                                                              static_cast<const StepState*>(a.step()));
                                                 }}};
const OpDef next_slice = {.name = "next_slice", .infer = infer_nothing, .bodies = {[](CudaArgs& a) {
                                                                          launch_one(a, next_slice_kernel,
                                                                                     static_cast<StepState*>(a.step()));
                                                                        }}};
const OpDef allocates = {.name = "allocates", .infer = infer_nothing, .bodies = {[](CudaArgs&) {
                                                                        void* memory = nullptr;
                                                                        if (cudaMalloc(&memory, 256) == cudaSuccess)
                                                                          (void)cudaFree(memory);
                                                                      }}};
const OpDef waits = {
    .name = "waits", .infer = infer_nothing, .bodies = {[](CudaArgs& a) { (void)cudaStreamSynchronize(a.stream()); }}};
const OpDef launches_too_much = {.name = "launches_too_much",
                                 .infer = infer_nothing,
                                 .bodies = {[](CudaArgs& a) {
                                   cudaLaunchConfig_t config = {};
                                   config.gridDim = dim3(1);
                                   config.blockDim = dim3(4096);
                                   config.stream = a.stream();
                                   (void)cudaLaunchKernelEx(&config, count_down_kernel, a.in_out<std::int32_t>(0));
                                 }}};
const OpDef launches_too_much_checked = {
    .name = "launches_too_much_checked",
    .infer = infer_nothing,
    .bodies = {[](CudaArgs& a) {
      a.launch(count_down_kernel, {1, 1, 1}, {4096, 1, 1}, 0, a.in_out<std::int32_t>(0));
    }}};

}  // namespace graphsink::testing
