// The kernels of the transformer. Matrices are stored by rows. Sums have a fixed order and nothing is added atomically,
// so equal inputs give equal bits.
#pragma once

#include <cuda_runtime.h>

constexpr int kThreads = 256;      // of a block whose threads each compute one element
constexpr int kWarpsPerBlock = 4;  // of a block whose warps each compute one row
constexpr float kEpsilon = 1e-5f;  // of the layer norm

inline int blocks_for(long count, int threads = kThreads) { return static_cast<int>((count + threads - 1) / threads); }

__device__ inline int global_thread() { return static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x); }
__device__ inline int row_of_warp() { return global_thread() / 32; }
__device__ inline int lane() { return static_cast<int>(threadIdx.x % 32); }

// Every lane gets the result.
__device__ inline float warp_sum(float value) {
  for (int offset = 16; offset > 0; offset /= 2) value += __shfl_xor_sync(0xffffffffu, value, offset);
  return value;
}
__device__ inline float warp_max(float value) {
  for (int offset = 16; offset > 0; offset /= 2) value = fmaxf(value, __shfl_xor_sync(0xffffffffu, value, offset));
  return value;
}

// The first thread of the block gets the result. Call it once in a kernel.
__device__ inline float block_sum(float value) {
  __shared__ float sums[32];
  value = warp_sum(value);
  if (lane() == 0) sums[threadIdx.x / 32] = value;
  __syncthreads();
  const int warps = static_cast<int>(blockDim.x / 32);
  return threadIdx.x < 32 ? warp_sum(lane() < warps ? sums[lane()] : 0.0f) : 0.0f;
}

// Embedding ----------------------------------------------------------------------------------------------------------

// `tokens` has context + 1 columns: the inputs of a row are the first of them, the targets the last.
__device__ inline int input_token(const int* tokens, int row, int context) {
  return tokens[row / context * (context + 1) + row % context];
}
__device__ inline int target_token(const int* tokens, int row, int context) {
  return tokens[row / context * (context + 1) + row % context + 1];
}

__global__ void embed(float* out, const int* tokens, const float* token_table, const float* position_table, int rows,
                      int context, int width) {
  const int i = global_thread();
  if (i >= rows * width) return;
  const int row = i / width, column = i % width;
  const int token = input_token(tokens, row, context);
  out[i] = token_table[token * width + column] + position_table[row % context * width + column];
}

// One block for each token of the vocabulary. It adds to the gradient, because the logits use the same table and their
// part is there already.
__global__ void embed_backward_tokens(float* d_table, const float* d_out, const int* tokens, int rows, int context,
                                      int width) {
  const int token = static_cast<int>(blockIdx.x);
  for (int column = static_cast<int>(threadIdx.x); column < width; column += static_cast<int>(blockDim.x)) {
    float sum = 0;
    for (int row = 0; row < rows; ++row) {
      if (input_token(tokens, row, context) == token) sum += d_out[row * width + column];
    }
    d_table[token * width + column] += sum;
  }
}

__global__ void embed_backward_positions(float* d_table, const float* d_out, int batch, int context, int width) {
  const int i = global_thread();
  if (i >= context * width) return;
  float sum = 0;
  for (int b = 0; b < batch; ++b) sum += d_out[b * context * width + i];
  d_table[i] = sum;
}

// Layer norm: one warp for each row ----------------------------------------------------------------------------------

__global__ void __launch_bounds__(kWarpsPerBlock * 32)
    layer_norm(float* __restrict__ out, float* __restrict__ means, float* __restrict__ rstds,
               const float* __restrict__ in, const float* __restrict__ gain, const float* __restrict__ bias, int rows,
               int width) {
  const int row = row_of_warp();
  if (row >= rows) return;
  const float* x = in + row * width;
  float sum = 0;
  for (int i = lane(); i < width; i += 32) sum += x[i];
  const float mean = warp_sum(sum) / static_cast<float>(width);
  float squares = 0;
  for (int i = lane(); i < width; i += 32) squares += (x[i] - mean) * (x[i] - mean);
  const float rstd = rsqrtf(warp_sum(squares) / static_cast<float>(width) + kEpsilon);
  for (int i = lane(); i < width; i += 32) out[row * width + i] = (x[i] - mean) * rstd * gain[i] + bias[i];
  if (lane() == 0) {
    means[row] = mean;
    rstds[row] = rstd;
  }
}

// Adds to d_in, which holds the gradient that came past the norm.
__global__ void __launch_bounds__(kWarpsPerBlock * 32)
    layer_norm_backward(float* __restrict__ d_in, const float* __restrict__ d_out, const float* __restrict__ in,
                        const float* __restrict__ means, const float* __restrict__ rstds,
                        const float* __restrict__ gain, int rows, int width) {
  const int row = row_of_warp();
  if (row >= rows) return;
  const float *x = in + row * width, *dy = d_out + row * width;
  const float mean = means[row], rstd = rstds[row];
  float sum = 0, dot = 0;
  for (int i = lane(); i < width; i += 32) {
    const float d_normal = dy[i] * gain[i];
    sum += d_normal;
    dot += d_normal * (x[i] - mean) * rstd;
  }
  sum = warp_sum(sum) / static_cast<float>(width);
  dot = warp_sum(dot) / static_cast<float>(width);
  for (int i = lane(); i < width; i += 32) {
    const float normal = (x[i] - mean) * rstd;
    d_in[row * width + i] += rstd * (dy[i] * gain[i] - sum - normal * dot);
  }
}

// Sums of columns: blocks of 32 columns by kRowLanes rows, which share dynamic memory ---------------------------------

constexpr int kRowLanes = 8;
inline dim3 column_block() { return dim3(32, kRowLanes); }
inline std::size_t column_bytes(int sums) { return sizeof(float) * 32 * kRowLanes * static_cast<std::size_t>(sums); }

__device__ inline float sum_of_lanes(const float* partial) {
  float sum = 0;
  for (int i = 0; i < kRowLanes; ++i) sum += partial[i * 32 + static_cast<int>(threadIdx.x)];
  return sum;
}

// d_bias[column] = the sum of d_out over the rows.
__global__ void bias_backward(float* d_bias, const float* d_out, int rows, int width) {
  extern __shared__ float partial[];
  const int column = static_cast<int>(blockIdx.x * 32 + threadIdx.x);
  float sum = 0;
  if (column < width) {
    for (int row = static_cast<int>(threadIdx.y); row < rows; row += kRowLanes) sum += d_out[row * width + column];
  }
  partial[threadIdx.y * 32 + threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y == 0 && column < width) d_bias[column] = sum_of_lanes(partial);
}

__global__ void layer_norm_backward_parameters(float* d_gain, float* d_bias, const float* d_out, const float* in,
                                               const float* means, const float* rstds, int rows, int width) {
  extern __shared__ float partial[];
  const int column = static_cast<int>(blockIdx.x * 32 + threadIdx.x);
  float gain = 0, bias = 0;
  if (column < width) {
    for (int row = static_cast<int>(threadIdx.y); row < rows; row += kRowLanes) {
      const float d = d_out[row * width + column];
      gain += d * (in[row * width + column] - means[row]) * rstds[row];
      bias += d;
    }
  }
  float* other = partial + 32 * kRowLanes;
  partial[threadIdx.y * 32 + threadIdx.x] = gain;
  other[threadIdx.y * 32 + threadIdx.x] = bias;
  __syncthreads();
  if (threadIdx.y != 0 || column >= width) return;
  d_gain[column] = sum_of_lanes(partial);
  d_bias[column] = sum_of_lanes(other);
}

// Attention ----------------------------------------------------------------------------------------------------------

struct HeadShape {
  int batch, context, heads, head_width;
  __host__ __device__ int elements() const { return batch * context * heads * head_width; }
};

// Where element i of a [batch, heads, context, head_width] tensor lies in a [batch, context, heads, head_width] one.
__device__ inline int by_position(const HeadShape& s, int i) {
  const int e = i % s.head_width, t = i / s.head_width % s.context;
  const int h = i / s.head_width / s.context % s.heads, b = i / s.head_width / s.context / s.heads;
  return ((b * s.context + t) * s.heads + h) * s.head_width + e;
}

// The same place in `qkv`, whose rows hold queries (part 0), keys (1) and values (2) one after the other.
__device__ inline int in_qkv(const HeadShape& s, int i, int part) {
  const int width = s.heads * s.head_width, place = by_position(s, i);
  return place / width * 3 * width + part * width + place % width;
}

__global__ void split_heads(float* q, float* k, float* v, const float* qkv, const float* bias, HeadShape shape) {
  const int i = global_thread();
  if (i >= shape.elements()) return;
  const int width = shape.heads * shape.head_width, column = by_position(shape, i) % width;
  q[i] = qkv[in_qkv(shape, i, 0)] + bias[column];
  k[i] = qkv[in_qkv(shape, i, 1)] + bias[width + column];
  v[i] = qkv[in_qkv(shape, i, 2)] + bias[2 * width + column];
}

__global__ void split_heads_backward(float* d_qkv, const float* dq, const float* dk, const float* dv, HeadShape shape) {
  const int i = global_thread();
  if (i >= shape.elements()) return;
  d_qkv[in_qkv(shape, i, 0)] = dq[i];
  d_qkv[in_qkv(shape, i, 1)] = dk[i];
  d_qkv[in_qkv(shape, i, 2)] = dv[i];
}

__global__ void merge_heads(float* out, const float* by_heads, HeadShape shape) {
  const int i = global_thread();
  if (i < shape.elements()) out[by_position(shape, i)] = by_heads[i];
}

__global__ void merge_heads_backward(float* d_by_heads, const float* d_out, HeadShape shape) {
  const int i = global_thread();
  if (i < shape.elements()) d_by_heads[i] = d_out[by_position(shape, i)];
}

// In place: scores of all positions become weights of those not after the row's own.
__global__ void __launch_bounds__(kWarpsPerBlock * 32)
    causal_softmax(float* scores, float scale, int rows, int context) {
  const int row = row_of_warp();
  if (row >= rows) return;
  const int last = row % context;
  float* x = scores + row * context;
  float largest = -INFINITY;
  for (int i = lane(); i <= last; i += 32) largest = fmaxf(largest, x[i]);
  largest = warp_max(largest);
  float sum = 0;
  for (int i = lane(); i <= last; i += 32) sum += expf(scale * (x[i] - largest));
  const float factor = 1.0f / warp_sum(sum);
  for (int i = lane(); i < context; i += 32) x[i] = i <= last ? expf(scale * (x[i] - largest)) * factor : 0.0f;
}

// In place: the gradient of the weights becomes that of the scores.
__global__ void __launch_bounds__(kWarpsPerBlock * 32)
    causal_softmax_backward(float* d_weights, const float* weights, float scale, int rows, int context) {
  const int row = row_of_warp();
  if (row >= rows) return;
  const int last = row % context;
  float* d = d_weights + row * context;
  const float* p = weights + row * context;
  float dot = 0;
  for (int i = lane(); i <= last; i += 32) dot += p[i] * d[i];
  dot = warp_sum(dot);
  for (int i = lane(); i < context; i += 32) d[i] = i <= last ? scale * p[i] * (d[i] - dot) : 0.0f;
}

// Elementwise --------------------------------------------------------------------------------------------------------

__global__ void add_bias_and_residual(float* out, const float* residual, const float* x, const float* bias, int count,
                                      int width) {
  const int i = global_thread();
  if (i < count) out[i] = residual[i] + x[i] + bias[i % width];
}

constexpr float kGeluScale = 0.7978845608f;  // sqrt(2 / pi)
constexpr float kGeluCubic = 0.044715f;

// x becomes x + bias, which the gradient needs.
__global__ void add_bias_and_gelu(float* out, float* x, const float* bias, int count, int width) {
  const int i = global_thread();
  if (i >= count) return;
  const float u = x[i] + bias[i % width];
  x[i] = u;
  out[i] = 0.5f * u * (1.0f + tanhf(kGeluScale * (u + kGeluCubic * u * u * u)));
}

// In place: the gradient of the output becomes that of the input x.
__global__ void gelu_backward(float* d, const float* x, int count) {
  const int i = global_thread();
  if (i >= count) return;
  const float u = x[i], t = tanhf(kGeluScale * (u + kGeluCubic * u * u * u));
  const float d_inner = kGeluScale * (1.0f + 3.0f * kGeluCubic * u * u);
  d[i] *= 0.5f * (1.0f + t) + 0.5f * u * (1.0f - t * t) * d_inner;
}

// Loss ---------------------------------------------------------------------------------------------------------------

__global__ void __launch_bounds__(kWarpsPerBlock * 32)
    cross_entropy(float* row_losses, float* log_sums, const float* logits, const int* tokens, int rows, int context,
                  int vocabulary) {
  const int row = row_of_warp();
  if (row >= rows) return;
  const float* x = logits + row * vocabulary;
  float largest = -INFINITY;
  for (int i = lane(); i < vocabulary; i += 32) largest = fmaxf(largest, x[i]);
  largest = warp_max(largest);
  float sum = 0;
  for (int i = lane(); i < vocabulary; i += 32) sum += expf(x[i] - largest);
  sum = warp_sum(sum);
  if (lane() != 0) return;
  log_sums[row] = largest + logf(sum);
  row_losses[row] = log_sums[row] - x[target_token(tokens, row, context)];
}

// In place: logits become the gradient of the mean loss.
__global__ void cross_entropy_backward(float* logits, const float* log_sums, const int* tokens, int rows, int context,
                                       int vocabulary) {
  const int i = global_thread();
  if (i >= rows * vocabulary) return;
  const int row = i / vocabulary, token = i % vocabulary;
  const float truth = token == target_token(tokens, row, context) ? 1.0f : 0.0f;
  logits[i] = (expf(logits[i] - log_sums[row]) - truth) / static_cast<float>(rows);
}

// One block stores the mean loss at the place of the current step.
__global__ void store_loss(float* losses, const int* step, int capacity, const float* row_losses, int rows) {
  float sum = 0;
  for (int row = static_cast<int>(threadIdx.x); row < rows; row += static_cast<int>(blockDim.x)) sum += row_losses[row];
  sum = block_sum(sum);
  if (threadIdx.x == 0 && *step < capacity) losses[*step] = sum / static_cast<float>(rows);
}

// Update -------------------------------------------------------------------------------------------------------------

constexpr int kNormBlocks = 32;

struct AdamW {
  float learning_rate = 3e-3f;
  float beta1 = 0.9f, beta2 = 0.99f, epsilon = 1e-8f, weight_decay = 0.1f;
  float largest_norm = 1.0f;  // of the gradient
  int warmup_steps = 10, total_steps = 100;
};

__global__ void sum_squares(float* sums, const float* gradient, long count) {
  float sum = 0;
  const long stride = static_cast<long>(gridDim.x) * blockDim.x;
  for (long i = global_thread(); i < count; i += stride) sum += gradient[i] * gradient[i];
  sum = block_sum(sum);
  if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

// One warp computes the factor by which a gradient that is too long is shortened.
__global__ void clip_factor(float* factor, const float* sums, float largest_norm) {
  const float norm = sqrtf(warp_sum(sums[lane()]));
  if (lane() == 0) *factor = norm > largest_norm ? largest_norm / norm : 1.0f;
}

// Rises over the warm-up, then falls to a tenth along half a cosine.
__device__ inline float learning_rate_at(const AdamW& o, int step) {
  if (step < o.warmup_steps) return o.learning_rate * static_cast<float>(step + 1) / static_cast<float>(o.warmup_steps);
  const int rest = o.total_steps - o.warmup_steps;
  const float done =
      rest > 0 ? fminf(1.0f, static_cast<float>(step - o.warmup_steps) / static_cast<float>(rest)) : 1.0f;
  return o.learning_rate * (0.1f + 0.45f * (1.0f + cosf(3.14159265f * done)));
}

// The first `decayed` parameters decay: the matrices.
__global__ void adamw(float* __restrict__ parameters, float* __restrict__ means, float* __restrict__ squares,
                      const float* __restrict__ gradient, const float* clip, const int* step, long decayed, long count,
                      AdamW o) {
  const long i = static_cast<long>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= count) return;
  const float t = static_cast<float>(*step + 1), rate = learning_rate_at(o, *step);
  const float g = gradient[i] * *clip;
  const float mean = o.beta1 * means[i] + (1.0f - o.beta1) * g;
  const float square = o.beta2 * squares[i] + (1.0f - o.beta2) * g * g;
  means[i] = mean;
  squares[i] = square;
  const float corrected = mean / (1.0f - powf(o.beta1, t));
  const float root = sqrtf(square / (1.0f - powf(o.beta2, t)));
  const float decay = i < decayed ? o.weight_decay * parameters[i] : 0.0f;
  parameters[i] -= rate * (corrected / (root + o.epsilon) + decay);
}

__global__ void advance_step(int* step) { ++*step; }
