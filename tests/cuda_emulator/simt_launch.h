// What kernel<<<grid, block, shared, stream>>>(arguments) becomes for the software device; part of simt.h. The script
// plain_cuda.py writes it as ::emu::chevrons(kernel, grid, block, shared, stream)(arguments).
#pragma once

namespace emu {

// A kernel with its launch configuration. The call converts each argument to the type of the kernel's parameter, as any
// call does. As with CUDA the launch has no result: cudaGetLastError() tells an error.
template <class... P>
class Chevrons {
 public:
  Chevrons(void (*kernel)(P...), dim3 grid, dim3 block, std::size_t shared, cudaStream_t stream) : kernel_(kernel) {
    config_.gridDim = grid;
    config_.blockDim = block;
    config_.dynamicSmemBytes = shared;
    config_.stream = stream;
  }
  void operator()(P... arguments) const {
    const void* function = reg(kernel_);
    void* pointers[] = {const_cast<void*>(static_cast<const volatile void*>(&arguments))..., nullptr};
    static_cast<void>(cudaLaunchKernelExC(&config_, function, pointers));
  }

 private:
  void (*kernel_)(P...);
  cudaLaunchConfig_t config_{};
};

template <class... P>
Chevrons<P...> chevrons(void (*kernel)(P...), dim3 grid, dim3 block, std::size_t shared = 0,
                        cudaStream_t stream = nullptr) {
  return {kernel, grid, block, shared, stream};
}

}  // namespace emu
