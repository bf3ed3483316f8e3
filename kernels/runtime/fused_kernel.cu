// Groups of element-wise ops on CUDA devices: one kernel that is compiled for the group (fused_source.h).
#include "graphsink/kernel.h"
#include "kernels/runtime/fused_source.h"
#include "kernels/runtime/system_parts.h"

namespace graphsink {
namespace {

struct FusedKernel {
  std::shared_ptr<const RunTimeKernel> kernel;
  Extent grid, block;
  std::vector<std::int64_t> words;  // FusedKernelSource::words
};

// The parameters of a kernel are at most 4 KiB.
constexpr std::size_t kMostWords = 4096 / sizeof(std::uint64_t);

}  // namespace

#ifdef GRAPHSINK_CAN_LAUNCH

Prepared prepare_fused_kernel(const PrepareArgs& p) {
  FusedKernelSource made = fused_kernel_source(p.attrs.as<FusedAttrs>(), p.types);
  if (p.types.size() + 1 + made.words.size() > kMostWords)
    throw Error(std::string(p.op), p.where,
                "its operands are broadcast in too many ways for the parameters of a kernel",
                "set Tuning::fuse to false");
  auto kernel = load_kernel(made.source, p);
  return {std::make_shared<FusedKernel>(FusedKernel{std::move(kernel), made.grid, made.block, std::move(made.words)})};
}

void run_fused_kernel(CudaArgs& a) {
  const auto& fused = a.local<FusedKernel>();
  std::uint64_t words[kMostWords];
  std::size_t count = 0;
  for (int i = 0; i < a.inputs(); ++i) words[count++] = reinterpret_cast<std::uintptr_t>(a.in<void>(i));
  if (count == 0) words[count++] = 0;
  for (int j = 0; j < a.outputs(); ++j) words[count++] = reinterpret_cast<std::uintptr_t>(a.out<void>(j));
  for (std::int64_t word : fused.words) words[count++] = static_cast<std::uint64_t>(word);
  launch(a, *fused.kernel, fused.grid, fused.block, words);
}

#else  // a build without CUDA, where no CUDA body ever runs

Prepared prepare_fused_kernel(const PrepareArgs&) { return {}; }
void run_fused_kernel(CudaArgs&) {}

#endif

}  // namespace graphsink
