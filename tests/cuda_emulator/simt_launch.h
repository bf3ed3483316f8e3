// What kernel<<<grid, block, shared, stream>>>(arguments) and (void*)kernel become for the software device; part of
// simt.h. The script plain_cuda.py writes them as EMU_KERNEL(kernel)(grid, block, shared, stream)(arguments) and
// (void*)::emu::known(kernel).
#pragma once

namespace emu {

// A kernel with its launch configuration. The call converts each argument to the type of the kernel's parameter, as any
// call does. As with CUDA the launch has no result: cudaGetLastError() tells an error.
template <class... P>
class TypedLaunch {
 public:
  TypedLaunch(void (*kernel)(P...), const cudaLaunchConfig_t& config) : kernel_(kernel), config_(config) {}
  void operator()(P... arguments) const {
    const void* function = reg(kernel_);
    void* pointers[] = {const_cast<void*>(static_cast<const volatile void*>(&arguments))..., nullptr};
    static_cast<void>(cudaLaunchKernel(function, config_.gridDim, config_.blockDim, pointers, config_.dynamicSmemBytes,
                                       config_.stream));
  }

 private:
  void (*kernel_)(P...);
  cudaLaunchConfig_t config_;
};

// A kernel that is known only by its arguments: a template without its own, or one of several of that name. What runs
// is a kernel that calls it, another one for each launch in the source and each list of types.
template <class Call>
class DeducedLaunch {
 public:
  DeducedLaunch(const Call& call, const cudaLaunchConfig_t& config) : call_(call), config_(config) {}
  template <class... A>
  void operator()(A... arguments) const {
    static_assert(std::is_invocable_v<Call, A...>, "no kernel of this name takes these arguments");
    TypedLaunch<Call, A...>([](Call call, A... copies) { call(copies...); }, config_)(call_, arguments...);
  }

 private:
  Call call_;
  cudaLaunchConfig_t config_;
};

// The parameters of a function that is named without its arguments.
struct Address {
  template <class... P>
  auto operator()(void (*kernel)(P...)) const {
    return [kernel](const cudaLaunchConfig_t& config) { return TypedLaunch<P...>(kernel, config); };
  }
};

template <class Name, class Call>
struct LaunchedKernel {
  Name name;
  Call call;
  auto operator()(dim3 grid, dim3 block, std::size_t shared = 0, cudaStream_t stream = nullptr) const {
    cudaLaunchConfig_t config{};
    config.gridDim = grid;
    config.blockDim = block;
    config.dynamicSmemBytes = shared;
    config.stream = stream;
    if constexpr (std::is_invocable_v<Name, Address>) {
      return name(Address())(config);
    } else {
      return DeducedLaunch<Call>(call, config);
    }
  }
};
template <class Name, class Call>
LaunchedKernel(Name, Call) -> LaunchedKernel<Name, Call>;

template <class T>
inline constexpr bool kIsKernel = false;
template <class... P>
inline constexpr bool kIsKernel<void (*)(P...)> = (std::is_trivially_copyable_v<P> && ...) &&
                                                  (!std::is_reference_v<P> && ...);

// The script plain_cuda.py writes this around a name that the program turns into a void*. If it is a kernel, the device
// knows it from here on.
template <class T>
T&& known(T&& named) {
  if constexpr (kIsKernel<std::decay_t<T>>) reg(static_cast<std::decay_t<T>>(named));
  return static_cast<T&&>(named);
}

}  // namespace emu

// Only one of the two lambdas is ever called.
#define EMU_KERNEL(...)                                                                                      \
  ::emu::LaunchedKernel {                                                                                    \
    [&](auto use) -> decltype(use(__VA_ARGS__)) { return use(__VA_ARGS__); },                                \
        [&](auto... argument) -> decltype((__VA_ARGS__)(argument...)) { return (__VA_ARGS__)(argument...); } \
  }
