// cumsum: sums of the elements of a line up to each of them. The order of additions depends on shapes alone.
#include "graphsink/ops.h"
#include "kernels/file_ops.h"
#include "kernels/support/block.h"
#include "kernels/support/cub.h"
#include "kernels/support/dtype.h"
#include "kernels/support/lines.h"
#include "kernels/support/tiles.h"

namespace graphsink {
namespace {

struct CumsumAttrs {
  int axis;
  CumsumOptions options;
  static auto fields(auto& s) { return std::tie("axis", s.axis, "options", s.options); }
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

// A block goes along the elements [begin, end) of a line; `sum` is that of the elements before. Each thread has kOwn
// elements, which are neighbours.
template <class T>
__device__ inline void sum_stretch(const T* x, T* out, const Walk& walk, std::int64_t line, std::int64_t begin,
                                   std::int64_t end, Wide<T> sum) {
  constexpr int kOwn = 4;
  const T* from = x + walk.first(line);
  T* to = out + walk.first(line);
  std::int64_t step = walk.step();
  for (; begin < end; begin += kThreads * kOwn) {
    std::int64_t first = begin + threadIdx.x * kOwn;
    Wide<T> own[kOwn], own_sum(0), total;
    for (int j = 0; j < kOwn; ++j) {
      own[j] = first + j < end ? static_cast<Wide<T>>(from[(first + j) * step]) : Wide<T>(0);
      own_sum = own_sum + own[j];
    }
    Wide<T> before = sum + sum_before(own_sum, total);
    for (int j = 0; j < kOwn; ++j) {
      Wide<T> up_to = before + own[j];
      if (first + j < end) to[(first + j) * step] = static_cast<T>(walk.exclusive ? before : up_to);
      before = up_to;
    }
    sum = sum + total;
  }
}

// A block for each line.
template <class T>
__global__ void cumsum_by_block(const T* x, T* out, Walk walk) {
  wait_for_inputs();
  for (std::int64_t line = blockIdx.x; line < walk.lines.count(); line += gridDim.x)
    sum_stretch(x, out, walk, line, 0, walk.lines.length, Wide<T>(0));
}

// A long line is cut into chunks, and each chunk has a block. The first kernel adds up each chunk. The second, which is
// cumsum_by_block(), adds up the sums of the chunks before each chunk. The third goes along the chunks.
constexpr std::int64_t kChunk = 16 * kThreads;
struct Chunk {
  std::int64_t line, begin, end;
};
HD std::int64_t chunks_of(const Lines& lines) { return (lines.length + kChunk - 1) / kChunk; }
HD Chunk chunk_at(const Lines& lines, std::int64_t i) {
  std::int64_t line = quotient(i, chunks_of(lines)), begin = (i - line * chunks_of(lines)) * kChunk;
  return {line, begin, begin + kChunk < lines.length ? begin + kChunk : lines.length};
}

template <class T>
__global__ void sum_chunks(const T* x, Wide<T>* sums, Walk walk) {
  wait_for_inputs();
  for (std::int64_t i = blockIdx.x; i < walk.lines.count() * chunks_of(walk.lines); i += gridDim.x) {
    Chunk chunk = chunk_at(walk.lines, i);
    const T* from = x + walk.first(chunk.line);
    Wide<T> sum(0);
    for (std::int64_t k = chunk.begin + threadIdx.x; k < chunk.end; k += kThreads)
      sum = sum + static_cast<Wide<T>>(from[k * walk.step()]);
    sum = block_sum(sum);
    if (threadIdx.x == 0) sums[i] = sum;
    __syncthreads();  // block_sum() needs a barrier between two calls
  }
}
template <class T>
__global__ void cumsum_chunks(const T* x, T* out, const Wide<T>* sums, Walk walk) {
  wait_for_inputs();
  for (std::int64_t i = blockIdx.x; i < walk.lines.count() * chunks_of(walk.lines); i += gridDim.x) {
    Chunk chunk = chunk_at(walk.lines, i);
    sum_stretch(x, out, walk, chunk.line, chunk.begin, chunk.end, sums[i]);
  }
}

// A short line has a thread, and so has each of many lines whose elements are neighbours of those of other lines. Other
// lines have a block each. If they are long and few, many blocks share a line. CUB reads a line only once, but takes a
// call for each line, and its order of additions is not fixed, so it adds up integers only.
enum class Way { by_thread, by_block, by_cub, by_chunks };
template <class T>
Way way_of(const Lines& lines) {
  if (lines.length <= 32 || (lines.inner >= kWarp && lines.count() >= 8192)) return Way::by_thread;
  if (lines.length < 4 * kChunk || lines.count() >= kFewLines) return Way::by_block;
  return std::is_integral_v<T> && lines.count() <= 4 ? Way::by_cub : Way::by_chunks;
}

template <class T>
void cumsum_in_chunks(CudaArgs& a, const Walk& walk) {
  std::int64_t lines = walk.lines.count(), chunks = chunks_of(walk.lines);
  auto* sums = static_cast<Wide<T>*>(a.workspace());
  Extent all{static_cast<unsigned>(std::min(lines * chunks, kMaxBlocks))}, block{static_cast<unsigned>(kThreads)};
  a.launch(sum_chunks<T>, all, block, 0, a.in<T>(0), sums, walk);
  a.launch(cumsum_by_block<Wide<T>>, Extent{static_cast<unsigned>(lines)}, block, 0, sums, sums,
           Walk{{lines, chunks, 1}, true, false});
  a.launch(cumsum_chunks<T>, all, block, 0, a.in<T>(0), a.out<T>(0), sums, walk);
}

template <class T>
void cumsum_on(CudaArgs& a, const Walk& walk) {
  const Lines& lines = walk.lines;
  if (lines.length == 0) return;
  switch (way_of<T>(lines)) {
    case Way::by_thread: {
      return a.launch(cumsum_by_thread<T>, launch_size(lines.count()), a.in<T>(0), a.out<T>(0), walk);
    }
    case Way::by_block: {
      Extent blocks{static_cast<unsigned>(std::min(lines.count(), kMaxBlocks))};
      return a.launch(cumsum_by_block<T>, blocks, Extent{static_cast<unsigned>(kThreads)}, 0, a.in<T>(0), a.out<T>(0),
                      walk);
    }
    case Way::by_cub:
      if constexpr (std::is_integral_v<T>)
        for (std::int64_t line = 0; line < lines.count(); ++line)
          scan<T>(a, a.in<T>(0) + walk.first(line), a.out<T>(0) + walk.first(line), lines.length, walk.step(),
                  walk.exclusive, a.workspace(), a.workspace_bytes());
      return;
    case Way::by_chunks:
      return cumsum_in_chunks<T>(a, walk);
  }
}

// Scans up to kTogether adjacent lines at once, so that memory is read in order; the last group may be smaller.
template <class T, std::int64_t kTogether>
void scan_lines(const CpuArgs& a, const Walk& walk, const RowRange& range) {
  using S = std::conditional_t<std::is_same_v<Wide<T>, float>, double, T>;
  std::int64_t inner = walk.lines.inner;
  for (std::int64_t line = range.first, count = 0; line < range.end; line += count) {
    count = kTogether == 1 ? 1 : std::min({kTogether, inner - line % inner, range.end - line});
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
constexpr std::int64_t kNeighbours = 64;
template <class T>
void cumsum_on(const CpuArgs& a, const Walk& walk, const RowRange& lines) {
  walk.lines.inner == 1 ? scan_lines<T, 1>(a, walk, lines) : scan_lines<T, kNeighbours>(a, walk, lines);
}

// Integers wrap.
template <class Body>
void for_number(DType dtype, const Body& body) {
  for_dtype<float, double, half, bfloat16, std::uint32_t, std::uint64_t>(dtype, body);
}

Walk walk_of(const BodyArgs& a) {
  const auto& [axis, options] = a.attrs<CumsumAttrs>();
  return {lines_of(a.in_type(0).shape, axis), options.exclusive, options.reverse};
}
void cumsum_cuda(CudaArgs& a) {
  const Walk walk = walk_of(a);
  for_number(a.in_type(0).dtype, [&]<class T>() { cumsum_on<T>(a, walk); });
}

// Elements of a line, for the size of tiles, which are whole lines. It is limited where lines are adjacent: tiles of
// fewer than kNeighbours lines would read every cache line several times.
std::int64_t tile_length(const Lines& lines) {
  return lines.inner == 1 ? lines.length : std::min(lines.length, kTileElements / kNeighbours);
}
std::int64_t count_cumsum_tiles(const BodyArgs& a) {
  const Lines lines = walk_of(a).lines;
  return count_row_tiles(lines.count(), tile_length(lines));
}
void run_cumsum_tiles(const CpuArgs& a, std::int64_t first, std::int64_t end) {
  const Walk walk = walk_of(a);
  const RowRange range(first, end, walk.lines.count(), tile_length(walk.lines));
  for_number(a.in_type(0).dtype, [&]<class T>() { cumsum_on<T>(a, walk, range); });
}
constexpr Tiles kCumsumTiles{count_cumsum_tiles, run_cumsum_tiles};

void infer_cumsum(InferArgs& a) {
  a.expect_inputs(1);
  expect_dtype<float, double, half, bfloat16, std::uint32_t, std::uint64_t>(a, 0);
  axis_from_front(a, a.attrs<CumsumAttrs>().axis, a.in(0).shape.rank());
  a.out(a.in(0).dtype, a.in(0).shape);
}

template <class T>
std::size_t prepare_on(const PrepareArgs& p, const Lines& lines, bool exclusive) {
  if (way_of<T>(lines) == Way::by_chunks) {
    load_kernels<sum_chunks<T>, cumsum_by_block<Wide<T>>, cumsum_chunks<T>>(p);
    return static_cast<std::size_t>(lines.count() * chunks_of(lines)) * sizeof(Wide<T>);
  }
  if constexpr (std::is_integral_v<T>)
    if (way_of<T>(lines) == Way::by_cub && lines.count() > 0) return prepare_scan<T>(p, lines.length, exclusive);
  load_kernels<cumsum_by_thread<T>, cumsum_by_block<T>>(p);
  return 0;
}

Prepared prepare_cumsum(const PrepareArgs& p) {
  const auto& [axis, options] = p.attrs.as<CumsumAttrs>();
  Prepared prepared;
  if (!p.cuda) return prepared;
  Lines lines = lines_of(p.in(0).shape, axis);
  for_number(p.in(0).dtype, [&, exclusive = options.exclusive]<class T>() {
    prepared.workspace = prepare_on<T>(p, lines, exclusive);
  });
  return prepared;
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
                      .bodies = {kCumsumTiles, cumsum_cuda},
                      .grad = cumsum_grad};

}  // namespace

Value cumsum(Arg x, int axis, CumsumOptions options, Placement placement) {
  return emit(cumsum_op, {x}, CumsumAttrs{axis, options}, placement)[0];
}

std::span<const FileOp> cumsum_file_ops() {
  static constexpr FileOp ops[] = {file_op<CumsumAttrs>(cumsum_op)};
  return ops;
}

}  // namespace graphsink
