// Sums over axes, as sum, mean and sum_like share them. The order of additions depends on shapes alone. f32 is summed
// in f32 by the kernels and in f64 on the CPU; f16 and bf16 likewise, rounded once.
#pragma once

#include "kernels/block.h"
#include "kernels/dtype.h"
#include "kernels/layout.h"

namespace graphsink {

// Element o of the result is the sum of x[outputs.find(o) + terms.find(k)] over all k, divided by `divisor`.
struct Reduction {
  Layout<1> outputs;
  Layout<1> terms;
};

template <class T>
__global__ void sum_by_thread(const T* x, T* out, Reduction r, Wide<T> divisor) {
  wait_for_inputs();
  for (std::int64_t o = thread_index(); o < r.outputs.size; o += all_threads()) {
    const T* first = x + r.outputs.find(o);
    Wide<T> sum(0);
    for (std::int64_t k = 0; k < r.terms.size; ++k) sum += first[r.terms.find(k)];
    out[o] = static_cast<T>(sum / divisor);
  }
}

template <class T>
__global__ void sum_by_warp(const T* x, T* out, Reduction r, Wide<T> divisor) {
  wait_for_inputs();
  std::int64_t lane = threadIdx.x % kWarp;
  for (std::int64_t o = thread_index() / kWarp; o < r.outputs.size; o += all_threads() / kWarp) {
    const T* first = x + r.outputs.find(o);
    Wide<T> sum(0);
    for (std::int64_t k = lane; k < r.terms.size; k += kWarp) sum += first[r.terms.find(k)];
    sum = warp_sum(sum);
    if (lane == 0) out[o] = static_cast<T>(sum / divisor);
  }
}

// Block b sums part b % parts of the terms of element b / parts.
template <class In, class Out>
__global__ void sum_by_block(const In* x, Out* out, Reduction r, int parts, Wide<In> divisor) {
  wait_for_inputs();
  std::int64_t per_part = (r.terms.size + parts - 1) / parts;
  std::int64_t begin = blockIdx.x % parts * per_part;
  std::int64_t end = begin + per_part < r.terms.size ? begin + per_part : r.terms.size;
  const In* first = x + r.outputs.find(blockIdx.x / parts);
  Wide<In> sum(0);
  for (std::int64_t k = begin + threadIdx.x; k < end; k += blockDim.x) sum += first[r.terms.find(k)];
  sum = block_sum(sum);
  if (threadIdx.x == 0) out[blockIdx.x] = static_cast<Out>(sum / divisor);
}

struct SumPlan {
  void (*cpu)(const SumPlan&, const CpuArgs&) = nullptr;
  void (*cuda)(const SumPlan&, CudaArgs&) = nullptr;
  Reduction reduction;
  double divisor = 1;
  enum class By { thread, warp, block } by = By::thread;
  int parts = 1;            // per element, when a block is not enough
  std::size_t partial = 0;  // bytes of the sum of a part
};

// Short sums want a thread each, a few long ones all the threads there are.
inline void choose_kernel(SumPlan& plan) {
  const auto& [outputs, terms] = plan.reduction;
  bool is_row_wise = outputs.rank > 0 && outputs.step(0) == 1;  // neighbouring threads read neighbouring elements
  if (terms.size <= 32 || (is_row_wise && outputs.size >= 8192)) {
    plan.by = SumPlan::By::thread;
  } else if (terms.size <= 256 || outputs.size >= 1024) {
    plan.by = SumPlan::By::warp;
  } else {
    plan.by = SumPlan::By::block;
    if (terms.size >= 32768 && outputs.size <= 64) plan.parts = static_cast<int>(std::min(terms.size / 4096, kThreads));
  }
}

template <class T>
void sum_cuda(const SumPlan& plan, CudaArgs& a) {
  const auto& [outputs, terms] = plan.reduction;
  const T* x = a.in<T>(0);
  T* out = a.out<T>(0);
  auto divisor = static_cast<Wide<T>>(plan.divisor);
  if (plan.by == SumPlan::By::thread) {
    LaunchSize launch = launch_size(outputs.size);
    return a.launch(sum_by_thread<T>, launch.grid, launch.block, 0, x, out, plan.reduction, divisor);
  }
  if (plan.by == SumPlan::By::warp) {
    LaunchSize launch = launch_size(outputs.size * kWarp);
    return a.launch(sum_by_warp<T>, launch.grid, launch.block, 0, x, out, plan.reduction, divisor);
  }
  Extent block{static_cast<unsigned>(kThreads)};
  if (plan.parts == 1) {
    return a.launch(sum_by_block<T, T>, Extent{static_cast<unsigned>(outputs.size)}, block, 0, x, out, plan.reduction,
                    1, divisor);
  }
  auto* partial = static_cast<Wide<T>*>(a.workspace());
  a.launch(sum_by_block<T, Wide<T>>, Extent{static_cast<unsigned>(outputs.size * plan.parts)}, block, 0, x, partial,
           plan.reduction, plan.parts, Wide<T>(1));
  Reduction rest;
  rest.outputs.size = outputs.size;
  append(rest.outputs, outputs.size, {plan.parts});
  rest.terms.size = plan.parts;
  append(rest.terms, plan.parts, {1});
  a.launch(sum_by_block<Wide<T>, T>, Extent{static_cast<unsigned>(outputs.size)}, block, 0, partial, out, rest, 1,
           divisor);
}

template <class T>
using Sum = std::conditional_t<std::is_same_v<Wide<T>, float>, double, T>;

// f(offset of the first term, terms, stride) for each row of terms.
template <class F>
void for_each_row(const Layout<1>& terms, const F& f) {
  std::int64_t row = terms.row();
  for (std::int64_t k = 0; k < terms.size; k += row) f(terms.find(k), row, terms.step(0));
}

template <class T>
Sum<T> sum_terms(const T* first, const Layout<1>& terms) {
  constexpr int kChains = 8;  // independent sums, so that additions need not wait for one another
  Sum<T> chains[kChains] = {};
  for_each_row(terms, [&](std::int64_t offset, std::int64_t row, std::int64_t stride) {
    const T* x = first + offset;
    std::int64_t k = 0;
    for (; k + kChains <= row; k += kChains)
      for (int j = 0; j < kChains; ++j) chains[j] += x[(k + j) * stride];
    for (; k < row; ++k) chains[0] += x[k * stride];
  });
  Sum<T> sum(0);
  for (Sum<T> chain : chains) sum += chain;
  return sum;
}

template <class T>
void sum_cpu(const SumPlan& plan, const CpuArgs& a) {
  const auto& [outputs, terms] = plan.reduction;
  auto divisor = static_cast<Sum<T>>(plan.divisor);
  T* out = a.out<T>(0);
  if (outputs.rank == 0 || outputs.step(0) != 1) {
    for (std::int64_t o = 0; o < outputs.size; ++o)
      out[o] = static_cast<T>(sum_terms(a.in<T>(0) + outputs.find(o), terms) / divisor);
    return;
  }
  constexpr std::int64_t kColumns = 32;  // neighbouring elements, summed together to read memory in order
  std::int64_t row = outputs.row();
  for (std::int64_t o = 0; o < outputs.size; o += row) {
    const T* first = a.in<T>(0) + outputs.find(o);
    for (std::int64_t c = 0; c < row; c += kColumns) {
      std::int64_t columns = std::min(kColumns, row - c);
      Sum<T> sums[kColumns] = {};
      for_each_row(terms, [&](std::int64_t offset, std::int64_t rows, std::int64_t stride) {
        for (const T* x = first + c + offset; rows > 0; --rows, x += stride)
          for (std::int64_t j = 0; j < columns; ++j) sums[j] += x[j];
      });
      for (std::int64_t j = 0; j < columns; ++j) out[o + c + j] = static_cast<T>(sums[j] / divisor);
    }
  }
}

template <class T>
void choose_type(const PrepareArgs& p, SumPlan& plan) {
  load_kernel(p, sum_by_thread<T>);
  load_kernel(p, sum_by_warp<T>);
  load_kernel(p, sum_by_block<T, T>);
  load_kernel(p, sum_by_block<T, Wide<T>>);
  load_kernel(p, sum_by_block<Wide<T>, T>);
  plan.cpu = sum_cpu<T>;
  plan.cuda = sum_cuda<T>;
  plan.partial = sizeof(Wide<T>);
}

inline Prepared prepare_reduction(const PrepareArgs& p, const bool (&is_reduced)[Shape::kMaxRank], bool is_mean) {
  SumPlan plan;
  const Shape& shape = p.in(0).shape;
  std::int64_t strides[Shape::kMaxRank] = {};
  std::int64_t stride = 1;
  for (int d = shape.rank() - 1; d >= 0; --d) {
    strides[d] = stride;
    stride *= shape[d];
  }
  for (int d = 0; d < shape.rank(); ++d) {
    Layout<1>& layout = is_reduced[d] ? plan.reduction.terms : plan.reduction.outputs;
    layout.size *= shape[d];
    if (shape.size() > 0) append(layout, shape[d], {strides[d]});
  }
  if (is_mean) plan.divisor = static_cast<double>(plan.reduction.terms.size);
  choose_kernel(plan);
  for_dtype<float, double, half, bfloat16, std::uint32_t, std::uint64_t>(p.in(0).dtype,
                                                                         [&]<class T>() { choose_type<T>(p, plan); });
  std::size_t partial = static_cast<std::size_t>(plan.reduction.outputs.size * plan.parts) * plan.partial;
  return {std::make_shared<SumPlan>(plan), plan.parts > 1 && p.cuda ? partial : 0};
}

inline void sum_cpu_body(const CpuArgs& a) {
  const auto& plan = a.local<SumPlan>();
  plan.cpu(plan, a);
}
inline void sum_cuda_body(CudaArgs& a) {
  const auto& plan = a.local<SumPlan>();
  plan.cuda(plan, a);
}
inline constexpr CudaBody kSumCuda[] = {{0, sum_cuda_body}};

}  // namespace graphsink
