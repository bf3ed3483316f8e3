// Ops on gradients before an update: their norm, their sum over micro-steps, and the decision to update.
#include <limits>

#include "kernels/file_ops.h"
#include "kernels/optim/optimizer.h"
#include "kernels/support/block.h"
#include "kernels/support/dtype.h"
#include "kernels/support/multi_tensor.h"
#include "kernels/support/row.h"

namespace graphsink {
namespace {

// f.operator()<T>() for each dtype that a gradient may have.
template <class F>
void for_each_float(const F& f) {
  f.template operator()<float>();
  f.template operator()<double>();
  f.template operator()<half>();
  f.template operator()<bfloat16>();
}

// --- gradient_norm: sums of squares of chunks, then their sum, in an order that depends on the shapes alone. In f64:
// the squares of floats overflow long before the floats do.

constexpr std::int64_t kNormChunk = kThreads * 16;

std::int64_t chunks_of(std::int64_t size) { return (size + kNormChunk - 1) / kNormChunk; }

template <class T>
__global__ void square_chunks(TensorTable<1> table, double* partial) {
  wait_for_inputs();
  Chunk chunk = chunk_of_block(table, kNormChunk);
  const T* x = static_cast<const T*>(table.pointers[chunk.tensor][0]);
  double sum = 0;
  for (std::int64_t i = chunk.begin + threadIdx.x; i < chunk.end; i += blockDim.x) {
    auto value = static_cast<double>(x[i]);
    sum += value * value;
  }
  sum = block_sum(sum);
  if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

// One block.
__global__ void root_of_sum(const double* partial, std::int64_t count, float* norm) {
  wait_for_inputs();
  double sum = 0;
  for (std::int64_t i = threadIdx.x; i < count; i += blockDim.x) sum += partial[i];
  sum = block_sum(sum);
  if (threadIdx.x == 0) *norm = static_cast<float>(math::sqrt(sum));
}

void norm_cuda(CudaArgs& a) {
  auto* partial = static_cast<double*>(a.workspace());
  std::int64_t done = 0;
  for_each_float([&]<class T>() {
    auto launch = [&](const TensorTable<1>& table, Extent blocks) {
      a.launch(square_chunks<T>, blocks, Extent{static_cast<unsigned>(kThreads)}, 0, table, partial + done);
      done += blocks.x;
    };
    TensorTables<1, decltype(launch)> tables(kNormChunk, launch);
    for (int i = 0; i < a.inputs(); ++i) {
      if (a.in_type(i).dtype == dtype_of<T>()) tables.add({const_cast<T*>(a.in<T>(i))}, a.in_type(i).shape.size());
    }
    tables.flush();
  });
  a.launch(root_of_sum, Extent{}, Extent{static_cast<unsigned>(kThreads)}, 0, partial, done, a.out<float>(0));
}

void norm_cpu(const CpuArgs& a) {
  double sum = 0;
  for_each_float([&]<class T>() {
    for (int i = 0; i < a.inputs(); ++i) {
      if (a.in_type(i).dtype != dtype_of<T>()) continue;
      const T* x = a.in<T>(i);
      sum += chained_sum(a.in_type(i).shape.size(), [=](std::int64_t k) {
        auto value = static_cast<double>(x[k]);
        return value * value;
      });
    }
  });
  *a.out<float>(0) = static_cast<float>(std::sqrt(sum));
}

void infer_norm(InferArgs& a) {
  for (int i = 0; i < a.inputs(); ++i) expect_dtype<float, double, half, bfloat16>(a, i);
  a.out(DType::f32, {});
}

Prepared prepare_norm(const PrepareArgs& p) {
  load_kernel(p, root_of_sum);
  for_each_float([&]<class T>() { load_kernel(p, square_chunks<T>); });
  std::int64_t chunks = 0;
  for (int i = 0; i < p.inputs; ++i) chunks += chunks_of(p.in(i).shape.size());
  return {nullptr, p.cuda ? static_cast<std::size_t>(chunks) * sizeof(double) : 0};
}

// --- accumulate: sum_i = (the first micro-step ? 0 : sum so far) + gradient.

template <class G>
__global__ void add_gradients(TensorTable<3> table, const std::int32_t* step, int steps) {
  wait_for_inputs();
  Chunk chunk = chunk_of_block(table, kNormChunk);
  const auto* before = static_cast<const Wide<G>*>(table.pointers[chunk.tensor][0]);
  const auto* gradient = static_cast<const G*>(table.pointers[chunk.tensor][1]);
  auto* sum = static_cast<Wide<G>*>(table.pointers[chunk.tensor][2]);
  bool is_first = *step % steps == 0;
  for (std::int64_t i = chunk.begin + threadIdx.x; i < chunk.end; i += blockDim.x)
    sum[i] = (is_first ? Wide<G>(0) : before[i]) + static_cast<Wide<G>>(gradient[i]);
}

template <class G, class F>
void for_each_sum(const BodyArgs& a, const F& f) {
  for (int i = 0; i < a.outputs(); ++i) {
    if (a.in_type(2 + 2 * i).dtype != dtype_of<G>()) continue;
    f({a.in_out<void>(1 + 2 * i), a.in_out<void>(2 + 2 * i), a.out<void>(i)}, a.out_type(i).shape.size());
  }
}

void accumulate_cuda(CudaArgs& a) {
  int steps = a.attrs<AccumulateAttrs>().steps;
  for_each_float([&]<class G>() {
    auto launch = [&](const TensorTable<3>& table, Extent blocks) {
      a.launch(add_gradients<G>, blocks, Extent{static_cast<unsigned>(kThreads)}, 0, table, a.in<std::int32_t>(0),
               steps);
    };
    TensorTables<3, decltype(launch)> tables(kNormChunk, launch);
    for_each_sum<G>(a, [&](void* const(&pointers)[3], std::int64_t size) { tables.add(pointers, size); });
    tables.flush();
  });
}

void accumulate_cpu(const CpuArgs& a) {
  bool is_first = *a.in<std::int32_t>(0) % a.attrs<AccumulateAttrs>().steps == 0;
  for_each_float([&]<class G>() {
    for_each_sum<G>(a, [&](void* const(&pointers)[3], std::int64_t size) {
      const auto* before = static_cast<const Wide<G>*>(pointers[0]);
      const auto* gradient = static_cast<const G*>(pointers[1]);
      auto* sum = static_cast<Wide<G>*>(pointers[2]);
      for_each_index(size, [=](std::int64_t i) {
        sum[i] = (is_first ? Wide<G>(0) : before[i]) + static_cast<Wide<G>>(gradient[i]);
      });
    });
  });
}

void infer_accumulate(InferArgs& a) {
  if (a.inputs() < 3 || a.inputs() % 2 == 0) a.fail("takes the step, then sums and gradients", "pass them in pairs");
  if (a.attrs<AccumulateAttrs>().steps < 1) a.fail("accumulates over no steps", "give at least 1");
  expect_one(a, 0, DType::i32);
  for (int i = 1; i + 1 < a.inputs(); i += 2) {
    expect_dtype<float, double, half, bfloat16>(a, i + 1);
    DType wide = a.in(i + 1).dtype == DType::f64 ? DType::f64 : DType::f32;
    if (a.in(i) != TensorType{wide, a.in(i + 1).shape})
      a.fail("a sum and its gradient are not of one shape", "give them one shape, the sum in f32 or f64");
    a.out(wide, a.in(i).shape);
  }
}

Prepared prepare_accumulate(const PrepareArgs& p) {
  for_each_float([&]<class G>() { load_kernel(p, add_gradients<G>); });
  return {};
}

// --- control_update

struct Decision {
  bool* apply;
  float* scale;
  float* norm;
  bool* overflowed;
};

// `norm` is that of the sum of gradients so far, 0 where nobody asked for it. A limit that is not a number makes the
// update not a number, and so does a norm that is none, where there is a limit.
HD void decide(const ControlAttrs& attrs, std::int32_t step, float norm, float loss_scale, float clip,
               const Decision& to) {
  bool is_last = step % attrs.accumulate == attrs.accumulate - 1;
  float unscale = 1.0f / (loss_scale * static_cast<float>(attrs.accumulate));
  float mean_norm = norm * unscale;
  bool overflowed = attrs.skips_overflow && !math::is_finite(mean_norm);
  *to.apply = is_last && !overflowed;
  *to.overflowed = is_last && overflowed;
  *to.norm = mean_norm;
  const bool is_above = clip > 0 && mean_norm > clip, limits = clip > 0 && math::is_finite(clip);
  const float of_none = clip != clip ? clip : limits && mean_norm != mean_norm ? mean_norm : unscale;
  *to.scale = is_above ? unscale * (clip / mean_norm) : of_none;
}

// A null pointer: there is no such operand.
struct ControlOperands {
  const std::int32_t* step;
  const float* norm;
  const float* loss_scale;
  FloatRef clip_norm;
};

// As f32. A limit that is too small for f32 stays one: 0 would be no limit.
HD float limit_of(double clip) {
  constexpr float kLeast = std::numeric_limits<float>::min();
  return clip > 0 && clip < kLeast ? kLeast : static_cast<float>(clip);
}

HD void decide(const ControlAttrs& attrs, const ControlOperands& from, const Decision& to) {
  const double clip = from.clip_norm.address == nullptr ? attrs.clip_norm : from.clip_norm.get();
  decide(attrs, *from.step, from.norm == nullptr ? 0.0f : *from.norm,
         from.loss_scale == nullptr ? 1.0f : *from.loss_scale, limit_of(clip), to);
}

__global__ void decide_update(ControlAttrs attrs, ControlOperands from, Decision to) {
  wait_for_inputs();
  decide(attrs, from, to);
}

Decision decision_of(const BodyArgs& a) { return {a.out<bool>(0), a.out<float>(1), a.out<float>(2), a.out<bool>(3)}; }
const float* scalar(const BodyArgs& a, int i) { return a.in_type(i).shape.size() == 0 ? nullptr : a.in<float>(i); }

ControlOperands control_operands(const BodyArgs& a) {
  return {a.in<std::int32_t>(0), scalar(a, 1), scalar(a, 2), a.inputs() > 3 ? float_operand(a, 3) : FloatRef{}};
}

void control_cuda(CudaArgs& a) {
  a.launch(decide_update, Extent{}, Extent{}, 0, a.attrs<ControlAttrs>(), control_operands(a), decision_of(a));
}
void control_cpu(const CpuArgs& a) { decide(a.attrs<ControlAttrs>(), control_operands(a), decision_of(a)); }
void infer_control(InferArgs& a) {
  if (a.inputs() != 4) a.expect_inputs(3);
  if (a.attrs<ControlAttrs>().accumulate < 1) a.fail("accumulates over no steps", "give at least 1");
  expect_one(a, 0, DType::i32);
  for (int i = 1; i < 3; ++i)
    if (a.in(i).shape.size() != 0) expect_one(a, i, DType::f32);
  if (a.inputs() == 4 && a.in(3).dtype != DType::f64) expect_one(a, 3, DType::f32);
  if (a.inputs() == 4 && a.in(3).dtype == DType::f64) expect_one(a, 3, DType::f64);
  a.out(DType::boolean, {});
  a.out(DType::f32, {});
  a.out(DType::f32, {});
  a.out(DType::boolean, {});
}

// --- count_update

// The last two are null without a loss scale.
struct UpdateCounts {
  std::int32_t* updates;
  float* loss_scale;
  std::int32_t* since_change;
};

HD void count(const LossScaleAttrs& attrs, bool applied, bool overflowed, const UpdateCounts& to) {
  if (applied) ++*to.updates;
  if (to.loss_scale == nullptr) return;
  if (overflowed) {
    *to.loss_scale *= static_cast<float>(attrs.backoff);
    *to.since_change = 0;
  } else if (applied && ++*to.since_change >= attrs.interval) {
    float grown = *to.loss_scale * static_cast<float>(attrs.growth);
    if (math::is_finite(grown)) *to.loss_scale = grown;
    *to.since_change = 0;
  }
}

HD void count_from(const LossScaleAttrs& attrs, bool applied, bool overflowed, const UpdateCounts& from,
                   const UpdateCounts& to) {
  *to.updates = *from.updates;
  if (to.loss_scale != nullptr) {
    *to.loss_scale = *from.loss_scale;
    *to.since_change = *from.since_change;
  }
  count(attrs, applied, overflowed, to);
}

__global__ void count_one_update(LossScaleAttrs attrs, const bool* applied, const bool* overflowed, UpdateCounts to,
                                 const StepBlock* step) {
  wait_for_inputs();
  if (step->ok != 0) count(attrs, *applied, *overflowed, to);
}

UpdateCounts counts_of(const BodyArgs& a) {
  bool is_scaled = a.inputs() == 5;
  return {a.in_out<std::int32_t>(2), is_scaled ? a.in_out<float>(3) : nullptr,
          is_scaled ? a.in_out<std::int32_t>(4) : nullptr};
}
void count_cuda(CudaArgs& a) {
  a.launch(count_one_update, Extent{}, Extent{}, 0, a.attrs<LossScaleAttrs>(), a.in<bool>(0), a.in<bool>(1),
           counts_of(a), a.step());
}
void count_cpu(const CpuArgs& a) {
  if (a.step()->ok != 0) count(a.attrs<LossScaleAttrs>(), *a.in<bool>(0), *a.in<bool>(1), counts_of(a));
}
void infer_count(InferArgs& a) {
  if (a.inputs() != 5) a.expect_inputs(3);
  constexpr DType kDTypes[] = {DType::boolean, DType::boolean, DType::i32, DType::f32, DType::i32};
  for (int i = 0; i < a.inputs(); ++i) expect_one(a, i, kDTypes[i]);
}

// The same as values.

__global__ void updated_counts(LossScaleAttrs attrs, const bool* applied, const bool* overflowed, UpdateCounts from,
                               UpdateCounts to) {
  wait_for_inputs();
  count_from(attrs, *applied, *overflowed, from, to);
}

UpdateCounts count_outputs(const BodyArgs& a) {
  bool is_scaled = a.inputs() == 5;
  return {a.out<std::int32_t>(0), is_scaled ? a.out<float>(1) : nullptr, is_scaled ? a.out<std::int32_t>(2) : nullptr};
}
void updated_counts_cuda(CudaArgs& a) {
  a.launch(updated_counts, Extent{}, Extent{}, 0, a.attrs<LossScaleAttrs>(), a.in<bool>(0), a.in<bool>(1), counts_of(a),
           count_outputs(a));
}
void updated_counts_cpu(const CpuArgs& a) {
  count_from(a.attrs<LossScaleAttrs>(), *a.in<bool>(0), *a.in<bool>(1), counts_of(a), count_outputs(a));
}
void infer_updated_counts(InferArgs& a) {
  infer_count(a);
  for (int i = 2; i < a.inputs(); ++i) a.out(a.in(i).dtype, a.in(i).shape);
}
Access count_access(int operand, int) { return operand < 2 ? Access::read : Access::write; }

}  // namespace

const OpDef gradient_norm_op{.name = "gradient_norm",
                             .infer = infer_norm,
                             .traits = {.kernels_wait = true},
                             .prepare = prepare_norm,
                             .bodies = {norm_cpu, norm_cuda},
                             .grad = kNoGradientOfUpdate};
const OpDef accumulate_op{.name = "accumulate",
                          .infer = infer_accumulate,
                          .traits = {.kernels_wait = true},
                          .prepare = prepare_accumulate,
                          .bodies = {accumulate_cpu, accumulate_cuda},
                          .grad = kNoGradientOfUpdate};
const OpDef control_update_op{.name = "control_update",
                              .infer = infer_control,
                              .traits = {.kernels_wait = true},
                              .prepare = load_kernels<decide_update>,
                              .bodies = {control_cpu, control_cuda},
                              .grad = kNoGradientOfUpdate};
const OpDef count_update_op{.name = "count_update",
                            .infer = infer_count,
                            .access = count_access,
                            .traits = {.kernels_wait = true},
                            .prepare = load_kernels<count_one_update>,
                            .bodies = {count_cpu, count_cuda}};
const OpDef updated_counts_op{.name = "updated_counts",
                              .infer = infer_updated_counts,
                              .traits = {.kernels_wait = true},
                              .prepare = load_kernels<updated_counts>,
                              .bodies = {updated_counts_cpu, updated_counts_cuda},
                              .grad = kNoGradientOfUpdate};

std::span<const FileOp> gradients_file_ops() {
  static constexpr FileOp ops[] = {file_op(gradient_norm_op), file_op<AccumulateAttrs>(accumulate_op),
                                   file_op<ControlAttrs>(control_update_op), file_op<LossScaleAttrs>(count_update_op),
                                   file_op<LossScaleAttrs>(updated_counts_op)};
  return ops;
}

}  // namespace graphsink
