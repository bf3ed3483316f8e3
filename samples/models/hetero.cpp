#include "samples/models/hetero.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace graphsink::models {
namespace {

// --- ops with a CPU body only

struct HashAttrs {
  std::int64_t buckets;
};

std::int64_t sequences(std::int64_t context) { return 2 * context - 3; }

void infer_hash(InferArgs& a) {
  a.expect_inputs(1);
  const TensorType& tokens = a.in(0);
  if (tokens.dtype != i32 || tokens.shape.rank() != 2 || tokens.shape[1] < 3)
    a.fail("expected i32 [batch, context] with at least 3 characters of context", "use more context");
  a.out(i32, {tokens.shape[0], sequences(tokens.shape[1])});
}

// FNV-1a (http://www.isthe.com/chongo/tech/comp/fnv) of each sequence of 2, then of each of 3 characters.
void hash_sequences(const CpuArgs& a) {
  std::int64_t rows = a.in_type(0).shape[0], context = a.in_type(0).shape[1];
  auto buckets = static_cast<std::uint32_t>(a.attrs<HashAttrs>().buckets);
  auto* out = a.out<std::int32_t>(0);
  for (std::int64_t row = 0; row < rows; ++row) {
    const auto* tokens = a.in<std::int32_t>(0) + row * context;
    for (std::int64_t length : {2, 3}) {
      for (std::int64_t i = 0; i + length <= context; ++i) {
        std::uint32_t hash = 2166136261u;
        for (std::int64_t k = 0; k < length; ++k) hash = (hash ^ static_cast<std::uint32_t>(tokens[i + k])) * 16777619u;
        *out++ = static_cast<std::int32_t>(hash % buckets);
      }
    }
  }
}
const OpDef hash_op{.name = "hash_sequences", .infer = infer_hash, .bodies = {hash_sequences}};

// f32 [buckets, 1] and how often each is in i32 indices, added.
void infer_count(InferArgs& a) {
  a.expect_inputs(2);
  a.out(a.in(0).dtype, a.in(0).shape);
}
void count_buckets(const CpuArgs& a) {
  const auto* seen = a.in<float>(0);
  auto* now = a.out<float>(0);
  std::copy_n(seen, a.in_type(0).shape.size(), now);
  const auto* index = a.in<std::int32_t>(1);
  for (std::int64_t i = 0; i < a.in_type(1).shape.size(); ++i) ++now[index[i]];
}
const OpDef count_op{.name = "count_buckets", .infer = infer_count, .bodies = {count_buckets}};

void infer_like_first(InferArgs& a) {
  a.expect_inputs(1);
  a.out(a.in(0).dtype, a.in(0).shape);
}

// Losses [n] to weights [n] of their mean without the highest eighth; of equal losses the first stay.
void trim(const CpuArgs& a) {
  std::int64_t n = a.in_type(0).shape.size(), kept = n - n / 8;
  const auto* loss = a.in<float>(0);
  std::vector<std::int64_t> order(static_cast<std::size_t>(n));
  std::iota(order.begin(), order.end(), std::int64_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::int64_t i, std::int64_t j) { return loss[i] < loss[j]; });
  for (std::int64_t i = 0; i < n; ++i) {
    a.out<float>(0)[order[static_cast<std::size_t>(i)]] = i < kept ? 1.0f / static_cast<float>(kept) : 0.0f;
  }
}
// Which examples are left out does not depend smoothly on their losses.
std::vector<Value> no_gradient(const GradArgs& a) { return std::vector<Value>(a.inputs.size()); }
const OpDef trim_op{.name = "trim", .infer = infer_like_first, .bodies = {trim}, .grad = no_gradient};

// To multiples of 1/256, as if to be stored in 16 bits.
void round_values(const CpuArgs& a) {
  const auto* x = a.in<float>(0);
  for (std::int64_t i = 0; i < a.in_type(0).shape.size(); ++i) a.out<float>(0)[i] = std::nearbyint(x[i] * 256) / 256;
}
// The gradient of the value itself (Bengio et al. 2013, "Estimating or propagating gradients through stochastic
// neurons": the straight-through estimator).
std::vector<Value> straight_through(const GradArgs& a) { return {a.grads[0]}; }
const OpDef round_op{.name = "round", .infer = infer_like_first, .bodies = {round_values}, .grad = straight_through};

// --- the model

struct HeteroParameters {
  Variable table, seen, w1, b1, w2, b2;
};

HeteroParameters make_parameters(std::int64_t vocabulary, const HeteroOptions& o) {
  return {Variable("table", Tensor::uniform({o.buckets, o.width}, o.seed, -0.5f, 0.5f)),
          Variable("seen", Tensor(f32, {o.buckets, 1})),
          Variable("w1", Tensor::kaiming({o.width, o.hidden}, o.seed + 1)),
          Variable("b1", Tensor(f32, {o.hidden})),
          Variable("w2", Tensor::kaiming({o.hidden, vocabulary}, o.seed + 2)),
          Variable("b2", Tensor(f32, {vocabulary}))};
}

// Up to the host and back, then 8 small ops on the device, which leave the scale what it was.
Value round_trip(Value hidden) {
  hidden = emit(round_op, {hidden})[0];
  for (int i = 0; i < 4; ++i) hidden = tanh(hidden * 1.5, on_device);
  return hidden;
}

// i32 [batch, context] -> logits [batch, vocabulary]
Value logits_of(Graph& graph, const Value& tokens, const HeteroParameters& p, const HeteroOptions& o) {
  Value buckets = emit(hash_op, {tokens}, HashAttrs{o.buckets})[0];
  Value seen = graph.value(p.seen);
  Value weight = rsqrt((embedding(seen, buckets) + 1.0) / (mean(seen) + 1.0));
  assign(p.seen, emit(count_op, {seen, buckets})[0]);
  Value features = sum(embedding(p.table, buckets) * weight, {1});
  Value hidden = tanh(matmul(features, p.w1) + p.b1);
  for (int i = 0; i < o.round_trips; ++i) hidden = round_trip(hidden);
  return matmul(hidden, p.w2) + p.b2;
}

// The loss of each example: logits [batch, vocabulary], targets i32 [batch] -> [batch].
Value losses_of(Graph& graph, const Value& logits, const Value& targets) {
  std::int64_t batch = logits.shape()[0], vocabulary = logits.shape()[1];
  Tensor classes(i32, {1, vocabulary});
  std::iota(classes.as<std::int32_t>().begin(), classes.as<std::int32_t>().end(), 0);
  Value is_target = equal(reshape(targets, {batch, 1}), graph.constant(classes));
  return -sum(where(is_target, log_softmax(logits), 0.0), {1});
}

}  // namespace

Model hetero(std::shared_ptr<const Text> text, const HeteroOptions& options) {
  auto places = static_cast<std::int64_t>(text->tokens.size()) - options.context;
  if (places < 1) throw Error("hetero", Where(), "the text is shorter than its context", "give a longer text");
  HeteroParameters p = make_parameters(static_cast<std::int64_t>(text->vocabulary.size()), options);
  Model model;
  model.name = "hetero";
  Value x = model.graph.feed("x", i32, {options.batch, options.context});
  Value t = model.graph.feed("t", i32, {options.batch});
  Value losses = losses_of(model.graph, logits_of(model.graph, x, p, options), t);
  Value loss = sum(losses * emit(trim_op, {losses})[0]);
  Optimizer optimizer = adamw(loss, {p.table, p.w1, p.b1, p.w2, p.b2}, {.lr = options.lr});
  model.graph.record("loss", loss);
  model.variables = {p.table, p.seen, p.w1, p.b1, p.w2, p.b2};
  std::vector<Variable> state = optimizer.variables();
  model.variables.insert(model.variables.end(), state.begin(), state.end());

  // Slices of `length` characters of the text, `offset` behind random places.
  auto slices = [text, places, batch = options.batch, seed = options.seed](std::int64_t first, std::int64_t count,
                                                                           const Shape& shape, std::int64_t offset,
                                                                           std::int64_t length) {
    Tensor tensor(i32, shape);
    auto* to = tensor.as<std::int32_t>().data();
    for (std::int64_t i = first * batch; i < (first + count) * batch; ++i, to += length) {
      std::uint64_t place = random_bits(seed, static_cast<std::uint64_t>(i)) % static_cast<std::uint64_t>(places);
      std::copy_n(text->tokens.data() + static_cast<std::int64_t>(place) + offset, length, to);
    }
    return tensor;
  };
  std::int64_t batch = options.batch, context = options.context;
  model.feeds = {{x,
                  [=](std::int64_t first, std::int64_t count) {
                    return slices(first, count, {count, batch, context}, 0, context);
                  }},
                 {t, [=](std::int64_t first, std::int64_t count) {
                    return slices(first, count, {count, batch}, context, 1);
                  }}};
  return model;
}

}  // namespace graphsink::models
