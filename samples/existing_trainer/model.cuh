// A character transformer with its gradient and its optimizer. All memory is allocated by the constructor.
#pragma once

#include <algorithm>

#include "cuda_support.cuh"
#include "kernels.cuh"
#include "parameters.cuh"

class Blas {
 public:
  explicit Blas(Arena& arena) : workspace_(arena.allocate<char>(kWorkspaceBytes)) { CHECK(cublasCreate(&handle_)); }
  Blas(const Blas&) = delete;
  Blas& operator=(const Blas&) = delete;
  ~Blas() { cublasDestroy(handle_); }

  // Choosing a stream takes cuBLAS's own workspace again, so ours is given anew.
  void use(cudaStream_t stream) {
    CHECK(cublasSetStream(handle_, stream));
    CHECK(cublasSetWorkspace(handle_, workspace_, kWorkspaceBytes));
  }

  // C = op(A) op(B), where op(A) is m x k and op(B) is k x n, all stored by rows. cuBLAS stores by columns, and so
  // computes the transposed product of the transposed operands.
  void multiply(int m, int n, int k, const float* a, bool transposed_a, const float* b, bool transposed_b, float* c) {
    CHECK(cublasSgemm(handle_, op(transposed_b), op(transposed_a), n, m, k, &kOne, b, transposed_b ? k : n, a,
                      transposed_a ? m : k, &kZero, c, n));
  }
  // The same for each of `batches` matrices that lie one after the other.
  void multiply_batches(int batches, int m, int n, int k, const float* a, bool transposed_a, const float* b,
                        bool transposed_b, float* c) {
    const long stride_a = long{m} * k, stride_b = long{k} * n, stride_c = long{m} * n;
    CHECK(cublasSgemmStridedBatched(handle_, op(transposed_b), op(transposed_a), n, m, k, &kOne, b,
                                    transposed_b ? k : n, stride_b, a, transposed_a ? m : k, stride_a, &kZero, c, n,
                                    stride_c, batches));
  }

 private:
  static constexpr std::size_t kWorkspaceBytes = std::size_t{4} << 20;
  static constexpr float kOne = 1, kZero = 0;
  static cublasOperation_t op(bool transposed) { return transposed ? CUBLAS_OP_T : CUBLAS_OP_N; }

  cublasHandle_t handle_ = nullptr;
  void* workspace_;
};

class Model {
 public:
  // Keeps the losses of the first `steps` steps.
  Model(const Shape& shape, const AdamW& optimizer, int steps, std::uint64_t seed, cudaStream_t stream)
      : shape_(shape), optimizer_(optimizer), layout_(shape), steps_(steps), blas_(arena_) {
    allocate();
    const std::vector<float> values = layout_.initial_values(seed);
    const std::size_t bytes = values.size() * sizeof(float);
    CHECK(cudaMemcpyAsync(parameters_, values.data(), bytes, cudaMemcpyHostToDevice, stream));
    CHECK(cudaMemsetAsync(moments1_, 0, bytes, stream));
    CHECK(cudaMemsetAsync(moments2_, 0, bytes, stream));
    CHECK(cudaMemsetAsync(step_, 0, sizeof(int), stream));
    CHECK(cudaStreamSynchronize(stream));
  }

  // Enqueues a whole step on one stream. It allocates nothing and waits for nothing. The batch is read from tokens().
  void train_step(cudaStream_t stream) {
    forward(stream);
    backward(stream);
    update(stream);
  }
  void forward(cudaStream_t stream);
  void backward(cudaStream_t stream);
  void update(cudaStream_t stream);

  int* tokens() { return tokens_; }                // [batch, context + 1], on the device like all that follow
  const float* losses() const { return losses_; }  // one for each step
  float* parameters() { return parameters_; }
  const float* gradients() const { return gradients_; }
  const float* row_losses() const { return row_losses_; }
  const Layout& layout() const { return layout_; }
  std::size_t device_bytes() const { return arena_.used(); }

 private:
  struct Norm {
    float *out, *means, *rstds;
  };
  struct Activations {
    Norm norm1, norm2;
    float *q, *k, *v, *weights, *attended;  // weights: [batch, heads, context, context]
    float *middle, *hidden, *activated, *out;
  };

  void allocate();
  const float* p(long offset) const { return parameters_ + offset; }
  float* g(long offset) { return gradients_ + offset; }
  const float* layer_input(std::size_t i) const { return i == 0 ? embedded_ : activations_[i - 1].out; }
  HeadShape heads() const { return {shape_.batch, shape_.context, shape_.heads, shape_.head_width()}; }

  void forward_layer(std::size_t i, cudaStream_t stream);
  void backward_layer(std::size_t i, cudaStream_t stream);
  void attend(const Activations& a, cudaStream_t stream);
  void attend_backward(const Activations& a, cudaStream_t stream);
  void norm(const Norm& n, const float* in, long gain, long bias, cudaStream_t stream);
  void norm_backward(const Norm& n, const float* in, long gain, long bias, cudaStream_t stream);
  void linear(float* out, const float* in, long weight, int inputs, int outputs);
  void linear_backward(float* d_in, const float* d_out, const float* in, long weight, int inputs, int outputs);
  void bias_gradient(long bias, const float* d_out, int width, cudaStream_t stream);

  Shape shape_;
  AdamW optimizer_;
  Layout layout_;
  int steps_;
  Arena arena_;
  Blas blas_;
  float *parameters_, *gradients_, *moments1_, *moments2_;
  float *embedded_, *logits_, *log_sums_, *row_losses_;
  Norm last_norm_;
  std::vector<Activations> activations_;
  float *wide_, *narrow_, *by_heads_;  // values of the forward pass that the backward pass does not read
  float *d_residual_, *d_narrow_, *d_wide_, *d_weights_, *dq_, *dk_, *dv_;
  float *losses_, *norm_sums_, *clip_;
  int *tokens_, *step_;
};

inline void Model::allocate() {
  const auto rows = static_cast<std::size_t>(shape_.rows()), width = static_cast<std::size_t>(shape_.width);
  const std::size_t narrow = rows * width, count = static_cast<std::size_t>(layout_.count);
  const std::size_t weights = rows * static_cast<std::size_t>(shape_.context * shape_.heads);
  for (float** array : {&parameters_, &gradients_, &moments1_, &moments2_}) *array = arena_.floats(count);
  const auto allocate_norm = [&](Norm& n) {
    n.out = arena_.floats(narrow);
    n.means = arena_.floats(rows);
    n.rstds = arena_.floats(rows);
  };
  activations_.resize(layout_.layers.size());
  for (Activations& a : activations_) {
    allocate_norm(a.norm1);
    allocate_norm(a.norm2);
    for (float** array : {&a.q, &a.k, &a.v, &a.attended, &a.middle, &a.out}) *array = arena_.floats(narrow);
    for (float** array : {&a.hidden, &a.activated}) *array = arena_.floats(4 * narrow);
    a.weights = arena_.floats(weights);
  }
  allocate_norm(last_norm_);
  for (float** array : {&embedded_, &narrow_, &by_heads_, &d_residual_, &d_narrow_, &dq_, &dk_, &dv_}) {
    *array = arena_.floats(narrow);
  }
  for (float** array : {&wide_, &d_wide_}) *array = arena_.floats(4 * narrow);
  d_weights_ = arena_.floats(weights);
  logits_ = arena_.floats(rows * static_cast<std::size_t>(shape_.vocabulary));
  log_sums_ = arena_.floats(rows);
  row_losses_ = arena_.floats(rows);
  losses_ = arena_.floats(static_cast<std::size_t>(steps_));
  norm_sums_ = arena_.floats(kNormBlocks);
  clip_ = arena_.floats(1);
  tokens_ = arena_.allocate<int>(static_cast<std::size_t>(shape_.batch) * static_cast<std::size_t>(shape_.context + 1));
  step_ = arena_.allocate<int>(1);
}

// Parts, forward and backward ----------------------------------------------------------------------------------------

inline void Model::linear(float* out, const float* in, long weight, int inputs, int outputs) {
  blas_.multiply(shape_.rows(), outputs, inputs, in, false, p(weight), true, out);
}

inline void Model::linear_backward(float* d_in, const float* d_out, const float* in, long weight, int inputs,
                                   int outputs) {
  blas_.multiply(shape_.rows(), inputs, outputs, d_out, false, p(weight), false, d_in);
  blas_.multiply(outputs, inputs, shape_.rows(), d_out, true, in, false, g(weight));
}

inline void Model::bias_gradient(long bias, const float* d_out, int width, cudaStream_t stream) {
  bias_backward<<<blocks_for(width, 32), column_block(), column_bytes(1), stream>>>(g(bias), d_out, shape_.rows(),
                                                                                    width);
}

inline void Model::norm(const Norm& n, const float* in, long gain, long bias, cudaStream_t stream) {
  const int rows = shape_.rows();
  layer_norm<<<blocks_for(rows, kWarpsPerBlock), kWarpsPerBlock * 32, 0, stream>>>(n.out, n.means, n.rstds, in, p(gain),
                                                                                   p(bias), rows, shape_.width);
}

// From d_narrow_ to d_residual_, to which it adds.
inline void Model::norm_backward(const Norm& n, const float* in, long gain, long bias, cudaStream_t stream) {
  const int rows = shape_.rows(), width = shape_.width;
  layer_norm_backward_parameters<<<blocks_for(width, 32), column_block(), column_bytes(2), stream>>>(
      g(gain), g(bias), d_narrow_, in, n.means, n.rstds, rows, width);
  layer_norm_backward<<<blocks_for(rows, kWarpsPerBlock), kWarpsPerBlock * 32, 0, stream>>>(
      d_residual_, d_narrow_, in, n.means, n.rstds, p(gain), rows, width);
}

inline void Model::attend(const Activations& a, cudaStream_t stream) {
  const int batches = shape_.batch * shape_.heads, context = shape_.context, width = shape_.head_width();
  const int rows = batches * context;
  const float scale = 1.0f / std::sqrt(static_cast<float>(width));
  blas_.multiply_batches(batches, context, context, width, a.q, false, a.k, true, a.weights);
  causal_softmax<<<blocks_for(rows, kWarpsPerBlock), kWarpsPerBlock * 32, 0, stream>>>(a.weights, scale, rows, context);
  blas_.multiply_batches(batches, context, width, context, a.weights, false, a.v, false, by_heads_);
  merge_heads<<<blocks_for(heads().elements()), kThreads, 0, stream>>>(a.attended, by_heads_, heads());
}

// From d_narrow_ to dq_, dk_ and dv_.
inline void Model::attend_backward(const Activations& a, cudaStream_t stream) {
  const int batches = shape_.batch * shape_.heads, context = shape_.context, width = shape_.head_width();
  const int rows = batches * context;
  const float scale = 1.0f / std::sqrt(static_cast<float>(width));
  merge_heads_backward<<<blocks_for(heads().elements()), kThreads, 0, stream>>>(by_heads_, d_narrow_, heads());
  blas_.multiply_batches(batches, context, context, width, by_heads_, false, a.v, true, d_weights_);
  blas_.multiply_batches(batches, context, width, context, a.weights, true, by_heads_, false, dv_);
  causal_softmax_backward<<<blocks_for(rows, kWarpsPerBlock), kWarpsPerBlock * 32, 0, stream>>>(d_weights_, a.weights,
                                                                                                scale, rows, context);
  blas_.multiply_batches(batches, context, width, context, d_weights_, false, a.k, false, dq_);
  blas_.multiply_batches(batches, context, width, context, d_weights_, true, a.q, false, dk_);
}

inline void Model::forward_layer(std::size_t i, cudaStream_t stream) {
  const Layout::Layer& l = layout_.layers[i];
  const Activations& a = activations_[i];
  const float* in = layer_input(i);
  const int width = shape_.width, narrow = shape_.rows() * width, wide = 4 * narrow;
  norm(a.norm1, in, l.norm1_gain, l.norm1_bias, stream);
  linear(wide_, a.norm1.out, l.qkv, width, 3 * width);
  split_heads<<<blocks_for(narrow), kThreads, 0, stream>>>(a.q, a.k, a.v, wide_, p(l.qkv_bias), heads());
  attend(a, stream);
  linear(narrow_, a.attended, l.projection, width, width);
  add_bias_and_residual<<<blocks_for(narrow), kThreads, 0, stream>>>(a.middle, in, narrow_, p(l.projection_bias),
                                                                     narrow, width);
  norm(a.norm2, a.middle, l.norm2_gain, l.norm2_bias, stream);
  linear(a.hidden, a.norm2.out, l.hidden, width, 4 * width);
  add_bias_and_gelu<<<blocks_for(wide), kThreads, 0, stream>>>(a.activated, a.hidden, p(l.hidden_bias), wide,
                                                               4 * width);
  linear(narrow_, a.activated, l.output, 4 * width, width);
  add_bias_and_residual<<<blocks_for(narrow), kThreads, 0, stream>>>(a.out, a.middle, narrow_, p(l.output_bias), narrow,
                                                                     width);
  CHECK_LAUNCH();
}

// d_residual_ holds the gradient of the layer's output, and in the end that of its input.
inline void Model::backward_layer(std::size_t i, cudaStream_t stream) {
  const Layout::Layer& l = layout_.layers[i];
  const Activations& a = activations_[i];
  const int width = shape_.width, narrow = shape_.rows() * width, wide = 4 * narrow;
  bias_gradient(l.output_bias, d_residual_, width, stream);
  linear_backward(d_wide_, d_residual_, a.activated, l.output, 4 * width, width);
  gelu_backward<<<blocks_for(wide), kThreads, 0, stream>>>(d_wide_, a.hidden, wide);
  bias_gradient(l.hidden_bias, d_wide_, 4 * width, stream);
  linear_backward(d_narrow_, d_wide_, a.norm2.out, l.hidden, width, 4 * width);
  norm_backward(a.norm2, a.middle, l.norm2_gain, l.norm2_bias, stream);

  bias_gradient(l.projection_bias, d_residual_, width, stream);
  linear_backward(d_narrow_, d_residual_, a.attended, l.projection, width, width);
  attend_backward(a, stream);
  split_heads_backward<<<blocks_for(narrow), kThreads, 0, stream>>>(d_wide_, dq_, dk_, dv_, heads());
  bias_gradient(l.qkv_bias, d_wide_, 3 * width, stream);
  linear_backward(d_narrow_, d_wide_, a.norm1.out, l.qkv, width, 3 * width);
  norm_backward(a.norm1, layer_input(i), l.norm1_gain, l.norm1_bias, stream);
  CHECK_LAUNCH();
}

// A step
// ---------------------------------------------------------------------------------------------------------------

inline void Model::forward(cudaStream_t stream) {
  const int rows = shape_.rows(), width = shape_.width;
  blas_.use(stream);
  embed<<<blocks_for(rows * width), kThreads, 0, stream>>>(embedded_, tokens_, p(layout_.tokens), p(layout_.positions),
                                                           rows, shape_.context, width);
  for (std::size_t i = 0; i < activations_.size(); ++i) forward_layer(i, stream);
  norm(last_norm_, layer_input(activations_.size()), layout_.norm_gain, layout_.norm_bias, stream);
  linear(logits_, last_norm_.out, layout_.tokens, width, shape_.vocabulary);  // the table of the embedding
  cross_entropy<<<blocks_for(rows, kWarpsPerBlock), kWarpsPerBlock * 32, 0, stream>>>(
      row_losses_, log_sums_, logits_, tokens_, rows, shape_.context, shape_.vocabulary);
  store_loss<<<1, kThreads, 0, stream>>>(losses_, step_, steps_, row_losses_, rows);
  CHECK_LAUNCH();
}

inline void Model::backward(cudaStream_t stream) {
  const int rows = shape_.rows(), width = shape_.width, vocabulary = shape_.vocabulary;
  blas_.use(stream);
  cross_entropy_backward<<<blocks_for(rows * vocabulary), kThreads, 0, stream>>>(logits_, log_sums_, tokens_, rows,
                                                                                 shape_.context, vocabulary);
  linear_backward(d_narrow_, logits_, last_norm_.out, layout_.tokens, width, vocabulary);
  CHECK(cudaMemsetAsync(d_residual_, 0, sizeof(float) * static_cast<std::size_t>(rows * width), stream));
  norm_backward(last_norm_, layer_input(activations_.size()), layout_.norm_gain, layout_.norm_bias, stream);
  for (std::size_t i = activations_.size(); i-- > 0;) backward_layer(i, stream);
  const int threads = std::min(kThreads, blocks_for(width, 32) * 32);
  embed_backward_tokens<<<vocabulary, threads, 0, stream>>>(g(layout_.tokens), d_residual_, tokens_, rows,
                                                            shape_.context, width);
  embed_backward_positions<<<blocks_for(shape_.context * width), kThreads, 0, stream>>>(
      g(layout_.positions), d_residual_, shape_.batch, shape_.context, width);
  CHECK_LAUNCH();
}

inline void Model::update(cudaStream_t stream) {
  sum_squares<<<kNormBlocks, kThreads, 0, stream>>>(norm_sums_, gradients_, layout_.count);
  clip_factor<<<1, kNormBlocks, 0, stream>>>(clip_, norm_sums_, optimizer_.largest_norm);
  adamw<<<blocks_for(layout_.count), kThreads, 0, stream>>>(parameters_, moments1_, moments2_, gradients_, clip_, step_,
                                                            layout_.matrices, layout_.count, optimizer_);
  advance_step<<<1, 1, 0, stream>>>(step_);
  CHECK_LAUNCH();
}
