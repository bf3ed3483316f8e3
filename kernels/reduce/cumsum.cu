// cumsum: sums of the elements of a line up to each of them. The order of additions depends on shapes alone.
#include "graphsink/ops.h"
#include "kernels/support/block.h"
#include "kernels/support/dtype.h"
#include "kernels/support/lines.h"

namespace graphsink {
namespace {

struct CumsumAttrs {
  int axis;
  CumsumOptions options;
  friend bool operator==(const CumsumAttrs&, const CumsumAttrs&) = default;
};

// A line read from its end if reversed.
struct Walk {
  Lines lines;
  bool exclusive = false, reverse = false;
  HD std::int64_t first(std::int64_t line) const {
    return lines.first(line) + (reverse ? (lines.length - 1) * lines.inner : 0);
  }
  HD std::int64_t step() const { return reverse ? -lines.inner : lines.inner; }
};

template <class T>
__global__ void cumsum_by_thread(const T* x, T* out, Walk walk) {
  wait_for_inputs();
  for (std::int64_t line = thread_index(); line < walk.lines.count(); line += all_threads()) {
    std::int64_t at = walk.first(line);
    Wide<T> sum(0);
    for (std::int64_t k = 0; k < walk.lines.length; ++k, at += walk.step()) {
      Wide<T> before = sum;
      sum = sum + static_cast<Wide<T>>(x[at]);
      out[at] = static_cast<T>(walk.exclusive ? before : sum);
    }
  }
}

// The sum of `x` in the threads before this one, and in all of them. All threads of a block of kThreads make the call.
template <class S>
__device__ inline S sum_before(S x, S& total) {
  __shared__ S of_warp[kThreads / kWarp];
  unsigned lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  S sum = x;
  for (unsigned offset = 1; offset < kWarp; offset *= 2) {
    S other = __shfl_up_sync(kAllLanes, sum, offset);
    if (lane >= offset) sum = other + sum;
  }
  if (lane == kWarp - 1) of_warp[warp] = sum;
  S before = __shfl_up_sync(kAllLanes, sum, 1);
  if (lane == 0) before = S(0);
  __syncthreads();
  S warps_before(0);
  total = S(0);
  for (unsigned w = 0; w < kThreads / kWarp; ++w) {
    if (w == warp) warps_before = total;
    total = total + of_warp[w];
  }
  __syncthreads();  // before of_warp is used again
  return warps_before + before;
}

// A block for each line goes along it in chunks; a thread has neighbouring elements.
template <class T>
__global__ void cumsum_by_block(const T* x, T* out, Walk walk) {
  wait_for_inputs();
  constexpr int kOwn = 4;
  std::int64_t length = walk.lines.length, step = walk.step();
  for (std::int64_t line = blockIdx.x; line < walk.lines.count(); line += gridDim.x) {
    const T* from = x + walk.first(line);
    T* to = out + walk.first(line);
    Wide<T> done(0);
    for (std::int64_t chunk = 0; chunk < length; chunk += kThreads * kOwn) {
      std::int64_t begin = chunk + threadIdx.x * kOwn;
      Wide<T> own[kOwn], sum(0), total;
      for (int j = 0; j < kOwn; ++j) {
        own[j] = begin + j < length ? static_cast<Wide<T>>(from[(begin + j) * step]) : Wide<T>(0);
        sum = sum + own[j];
      }
      sum = done + sum_before(sum, total);
      for (int j = 0; j < kOwn; ++j) {
        Wide<T> before = sum;
        sum = sum + own[j];
        if (begin + j < length) to[(begin + j) * step] = static_cast<T>(walk.exclusive ? before : sum);
      }
      done = done + total;
    }
  }
}

// Short lines want a thread each, and so do lines whose neighbours are read together, if there are many.
bool is_by_thread(const Lines& lines) { return lines.length <= 32 || (lines.inner >= kWarp && lines.count() >= 8192); }

template <class T>
void cumsum_on(CudaArgs& a, const Walk& walk) {
  const Lines& lines = walk.lines;
  if (lines.length == 0) return;
  if (is_by_thread(lines)) {
    LaunchSize launch = launch_size(lines.count());
    return a.launch(cumsum_by_thread<T>, launch.grid, launch.block, 0, a.in<T>(0), a.out<T>(0), walk);
  }
  auto blocks = static_cast<unsigned>(std::min(lines.count(), kMaxBlocks));
  a.launch(cumsum_by_block<T>, Extent{blocks}, Extent{static_cast<unsigned>(kThreads)}, 0, a.in<T>(0), a.out<T>(0),
           walk);
}

// So many lines together whose elements are neighbours; fewer at the end.
template <class T, std::int64_t kTogether>
void scan_lines(const CpuArgs& a, const Walk& walk) {
  using S = std::conditional_t<std::is_same_v<Wide<T>, float>, double, T>;
  std::int64_t inner = walk.lines.inner;
  for (std::int64_t line = 0, count = 0; line < walk.lines.count(); line += count) {
    count = kTogether == 1 ? 1 : std::min(kTogether, inner - line % inner);
    std::int64_t at = walk.first(line);
    S sums[kTogether] = {};
    for (std::int64_t k = 0; k < walk.lines.length; ++k, at += walk.step()) {
      const T* x = a.in<T>(0) + at;
      T* out = a.out<T>(0) + at;
      for (std::int64_t i = 0; i < count; ++i) {
        S sum = sums[i] + static_cast<S>(x[i]);
        out[i] = static_cast<T>(walk.exclusive ? sums[i] : sum);
        sums[i] = sum;
      }
    }
  }
}

// Neighbours together read memory in order.
template <class T>
void cumsum_on(const CpuArgs& a, const Walk& walk) {
  walk.lines.inner == 1 ? scan_lines<T, 1>(a, walk) : scan_lines<T, 64>(a, walk);
}

// Integers wrap.
template <class Body>
void for_number(DType dtype, const Body& body) {
  for_dtype<float, double, half, bfloat16, std::uint32_t, std::uint64_t>(dtype, body);
}

template <class Args>
void cumsum_any(Args& a) {
  const auto& [axis, options] = a.template attrs<CumsumAttrs>();
  Walk walk{lines_of(a.in_type(0).shape, axis), options.exclusive, options.reverse};
  for_number(a.in_type(0).dtype, [&]<class T>() { cumsum_on<T>(a, walk); });
}

void infer_cumsum(InferArgs& a) {
  a.expect_inputs(1);
  expect_dtype<float, double, half, bfloat16, std::uint32_t, std::uint64_t>(a, 0);
  axis_from_front(a, a.attrs<CumsumAttrs>().axis, a.in(0).shape.rank());
  a.out(a.in(0).dtype, a.in(0).shape);
}

Prepared prepare_cumsum(const PrepareArgs& p) {
  for_number(p.in(0).dtype, [&]<class T>() { load_kernels<cumsum_by_thread<T>, cumsum_by_block<T>>(p); });
  return {};
}

std::vector<Value> cumsum_grad(const GradArgs& a) {
  auto [axis, options] = a.attrs.as<CumsumAttrs>();
  options.reverse = !options.reverse;
  return {cumsum(Arg(a.grads[0], a.where), axis, options)};
}

// Elements are written by the thread that has read them.
constexpr Alias kInPlace[] = {{0, 0}};
const OpDef cumsum_op{.name = "cumsum",
                      .infer = infer_cumsum,
                      .in_place = kInPlace,
                      .prepare = prepare_cumsum,
                      .bodies = {cumsum_any<const CpuArgs>, cumsum_any<CudaArgs>},
                      .grad = cumsum_grad};

}  // namespace

Value cumsum(Arg x, int axis, CumsumOptions options, Placement placement) {
  return emit(cumsum_op, {x}, CumsumAttrs{axis, options}, placement)[0];
}

}  // namespace graphsink
