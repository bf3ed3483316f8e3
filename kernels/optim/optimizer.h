// Code that the optimizers share. An optimizer is a struct of its options with
//   Attrs                              the op's attributes, of which it is made, as `options`
//   kStates                            tensors of state for each parameter
//   factors<S>(lr, t)                  the numbers that all elements share in update t, counted from 1
//   Factors<S>::update(p, g, states)   the update of one element
#pragma once

#include "kernels/optim/optimizer_ops.h"
#include "kernels/support/elementwise.h"
#include "kernels/support/multi_tensor.h"

namespace graphsink {

// A scalar in device memory, of either float type.
struct FloatRef {
  const void* address;
  bool is_f64;
  HD double get() const {
    return is_f64 ? *static_cast<const double*>(address) : double{*static_cast<const float*>(address)};
  }
};

// The operands before the tensors.
struct UpdateControls {
  const std::int32_t* updates;
  const bool* apply;
  const float* gradient_scale;
  FloatRef learning_rate;
  FloatRef weight_decay;  // address null: that of the attributes
};
inline FloatRef float_operand(const BodyArgs& a, int i) { return {a.in<void>(i), a.in_type(i).dtype == DType::f64}; }

// Whether the operands of an op with P tensors for each parameter end with the weight decay. P is at least 2.
constexpr bool ends_with_weight_decay(int operands, int P) { return (operands - kFirstTensor) % P == 1; }

template <int P>
UpdateControls controls_of(const BodyArgs& a) {
  const bool has_decay = ends_with_weight_decay(a.inputs(), P);
  return {a.in<std::int32_t>(kUpdates), a.in<bool>(kApply), a.in<float>(kGradientScale),
          float_operand(a, kLearningRate), has_decay ? float_operand(a, a.inputs() - 1) : FloatRef{nullptr, false}};
}

// The numbers that all elements share in this update.
template <class S, class Update>
HD auto factors_of(Update update, const UpdateControls& controls) {
  if (controls.weight_decay.address != nullptr) update.options.weight_decay = controls.weight_decay.get();
  return update.template factors<S>(controls.learning_rate.get(), *controls.updates + 1);
}

// Type of the states of a parameter of dtype T. A 16-bit parameter has a master copy behind its states: the update is
// computed there.
template <class T>
using StateOf = std::conditional_t<std::is_same_v<T, double>, double, float>;
template <class T>
constexpr bool has_master = sizeof(T) < sizeof(float);
constexpr DType state_dtype(DType dtype) { return dtype == DType::f64 ? DType::f64 : DType::f32; }

template <class Update, bool is_16_bit>
void infer_optimizer(InferArgs& a) {
  constexpr int P = 2 + Update::kStates + (is_16_bit ? 1 : 0);
  const bool has_decay = a.inputs() > kFirstTensor && ends_with_weight_decay(a.inputs(), P);
  const int end = a.inputs() - (has_decay ? 1 : 0);
  if (end < kFirstTensor || (end - kFirstTensor) % P != 0)
    a.fail("takes " + std::to_string(P) + " tensors for each parameter", "pass them");
  auto expect_number = [&](int i, const std::string& name) {
    if (!is_float(a.in(i).dtype) || is_half(a.in(i).dtype) || a.in(i).shape.size() != 1)
      a.fail(name + " is not one float", "pass a number or a scalar Value");
  };
  expect_one(a, kUpdates, DType::i32);
  expect_one(a, kApply, DType::boolean);
  expect_one(a, kGradientScale, DType::f32);
  expect_number(kLearningRate, "the learning rate");
  if (has_decay) expect_number(end, "the weight decay");
  for (int i = kFirstTensor; i < end; i += P) {
    const TensorType& parameter = a.in(i);
    TensorType state{state_dtype(parameter.dtype), parameter.shape};
    if (!is_float(parameter.dtype)) a.fail("a parameter is not of floats", "leave it out");
    if (is_half(parameter.dtype) != is_16_bit)
      a.fail("16-bit parameters are mixed with others", "give each kind its own op");
    if (a.in(i + 1) != parameter && a.in(i + 1) != state)
      a.fail("a gradient is not of its parameter's type", "give it that type");
    for (int j = 2; j < P; ++j)
      if (a.in(i + j) != state) a.fail("a state is not " + to_string(state), "give it that type");
  }
}

template <class Update, bool is_16_bit>
Access optimizer_access(int operand, int operands) {
  constexpr int P = 2 + Update::kStates + (is_16_bit ? 1 : 0);
  const bool is_decay = operand == operands - 1 && ends_with_weight_decay(operands, P);
  const bool is_gradient = (operand - kFirstTensor) % P == 1;
  return operand < kFirstTensor || is_decay || is_gradient ? Access::read : Access::write;
}

// The tensors of one parameter, and what one element of them does in an update.
template <class Update, class T, class G>
struct ParameterTensors {
  using State = StateOf<T>;
  static constexpr int kStates = Update::kStates + (has_master<T> ? 1 : 0);
  static constexpr int kTensors = 2 + kStates;
  using EachState = std::make_index_sequence<kStates>;

  T* parameter;
  const G* gradient;
  State* states[kStates > 0 ? kStates : 1];

  // From addresses, `first` elements in.
  static HD ParameterTensors at(void* const* pointers, std::int64_t first) {
    ParameterTensors x{static_cast<T*>(pointers[0]) + first, static_cast<const G*>(pointers[1]) + first, {}};
    for (int s = 0; s < kStates; ++s) x.states[s] = static_cast<State*>(pointers[2 + s]) + first;
    return x;
  }

  // Without loops over the states, which would keep compilers from vector code.
  template <class Factors, std::size_t... s>
  HD void update(const Factors& factors, State scale, std::int64_t i, std::index_sequence<s...>) const {
    State x[kStates > 0 ? kStates : 1] = {states[s][i]...};
    State value;
    if constexpr (has_master<T>) {
      value = x[kStates - 1];
    } else {
      value = parameter[i];
    }
    factors.update(value, static_cast<State>(gradient[i]) * scale, x);
    if constexpr (has_master<T>) x[kStates - 1] = value;
    parameter[i] = static_cast<T>(value);
    ((states[s][i] = x[s]), ...);
  }
};

// A block handles a chunk: each of its threads a pack of elements, loaded and stored at once.
constexpr std::int64_t kOptimizerChunk = kThreads * kPack;

template <class Update, class T, class G>
__global__ void update_tensors(TensorTable<ParameterTensors<Update, T, G>::kTensors> table, UpdateControls controls,
                               Update update, const StepBlock* step) {
  wait_for_inputs();
  if (step->ok == 0 || !*controls.apply) return;
  using Tensors = ParameterTensors<Update, T, G>;
  using State = typename Tensors::State;
  __shared__ typename Update::template Factors<State> factors;
  if (threadIdx.x == 0) factors = factors_of<State>(update, controls);
  __syncthreads();
  auto scale = static_cast<State>(*controls.gradient_scale);
  Chunk chunk = chunk_of_block(table, kOptimizerChunk);
  std::int64_t first = chunk.begin + std::int64_t{threadIdx.x} * kPack;
  Tensors memory = Tensors::at(table.pointers[chunk.tensor], first);
  if (first + kPack > chunk.end) {
    for (int j = 0; first + j < chunk.end; ++j) memory.update(factors, scale, j, typename Tensors::EachState());
    return;
  }
  auto parameter = *reinterpret_cast<const Pack<T>*>(memory.parameter);
  auto gradient = *reinterpret_cast<const Pack<G>*>(memory.gradient);
  Pack<State> states[Tensors::kStates > 0 ? Tensors::kStates : 1];
  Tensors registers{parameter.elements, gradient.elements, {}};
  for (int s = 0; s < Tensors::kStates; ++s) {
    states[s] = *reinterpret_cast<const Pack<State>*>(memory.states[s]);
    registers.states[s] = states[s].elements;
  }
  for (int j = 0; j < kPack; ++j) registers.update(factors, scale, j, typename Tensors::EachState());
  *reinterpret_cast<Pack<T>*>(memory.parameter) = parameter;
  for (int s = 0; s < Tensors::kStates; ++s) *reinterpret_cast<Pack<State>*>(memory.states[s]) = states[s];
}

// Calls f(pointers, elements) for every parameter of these dtypes.
template <class Tensors, class T, class G, class F>
void for_each_parameter(const BodyArgs& a, const F& f) {
  for (int i = kFirstTensor; i + 1 < a.inputs(); i += Tensors::kTensors) {
    if (a.in_type(i).dtype != dtype_of<T>() || a.in_type(i + 1).dtype != dtype_of<G>()) continue;
    void* pointers[Tensors::kTensors];
    for (int p = 0; p < Tensors::kTensors; ++p) pointers[p] = a.in_out<void>(i + p);
    f(pointers, a.in_type(i).shape.size());
  }
}

template <class Update, class T, class G>
void update_all(CudaArgs& a, const Update& update) {
  using Tensors = ParameterTensors<Update, T, G>;
  auto launch = [&](const auto& table, Extent blocks) {
    a.launch(update_tensors<Update, T, G>, blocks, Extent{static_cast<unsigned>(kThreads)}, 0, table,
             controls_of<Tensors::kTensors>(a), update, a.step());
  };
  TensorTables<Tensors::kTensors, decltype(launch)> tables(kOptimizerChunk, launch);
  for_each_parameter<Tensors, T, G>(a, [&](auto& pointers, std::int64_t size) { tables.add(pointers, size); });
  tables.flush();
}

// Tiles of the CPU body: those of the first parameter, then those of the second, and so on.
inline std::int64_t tiles_of_parameter(const TensorType& parameter) {
  return (parameter.shape.size() + kTileElements - 1) / kTileElements;
}

template <class Update, bool is_16_bit>
std::int64_t count_optimizer_tiles(const BodyArgs& a) {
  constexpr int P = 2 + Update::kStates + (is_16_bit ? 1 : 0);
  std::int64_t tiles = 0;
  for (int i = kFirstTensor; i + 1 < a.inputs(); i += P) tiles += tiles_of_parameter(a.in_type(i));
  return std::max<std::int64_t>(1, tiles);
}

// Calls f(parameter, begin, size) for what tiles `first` to `end` have of each parameter of these dtypes, where
// `parameter` is the operand.
template <class Tensors, class T, class G, class F>
void for_each_piece(const BodyArgs& a, std::int64_t first, std::int64_t end, const F& f) {
  std::int64_t tile = 0;  // the first of the parameter
  for (int i = kFirstTensor; i + 1 < a.inputs() && tile < end; i += Tensors::kTensors) {
    const std::int64_t begin = std::max<std::int64_t>(first - tile, 0) * kTileElements;
    const std::int64_t size = std::min((end - tile) * kTileElements, a.in_type(i).shape.size()) - begin;
    tile += tiles_of_parameter(a.in_type(i));
    if (size > 0 && a.in_type(i).dtype == dtype_of<T>() && a.in_type(i + 1).dtype == dtype_of<G>()) f(i, begin, size);
  }
}

template <class Update, class T, class G>
void update_tiles(const CpuArgs& a, const Update& update, std::int64_t first, std::int64_t end) {
  using Tensors = ParameterTensors<Update, T, G>;
  using State = typename Tensors::State;
  UpdateControls controls = controls_of<Tensors::kTensors>(a);
  if (a.step()->ok == 0 || !*controls.apply) return;
  auto factors = factors_of<State>(update, controls);
  auto scale = static_cast<State>(*controls.gradient_scale);
  for_each_piece<Tensors, T, G>(a, first, end, [&](int parameter, std::int64_t begin, std::int64_t size) {
    void* pointers[Tensors::kTensors];
    for (int p = 0; p < Tensors::kTensors; ++p) pointers[p] = a.in_out<void>(parameter + p);
    Tensors memory = Tensors::at(pointers, begin);
    for_each_index(size, [=](std::int64_t k) { memory.update(factors, scale, k, typename Tensors::EachState()); });
  });
}

// f.operator()<T, G>() for each pair of dtypes that a parameter and its gradient may have.
template <bool is_16_bit, class F>
void for_each_pair(const F& f) {
  if constexpr (is_16_bit) {
    f.template operator()<half, half>();
    f.template operator()<half, float>();
    f.template operator()<bfloat16, bfloat16>();
    f.template operator()<bfloat16, float>();
  } else {
    f.template operator()<float, float>();
    f.template operator()<double, double>();
  }
}

// Two ops for each optimizer, as their numbers of tensors differ. Update::Attrs has the options, from which Update is
// made.
template <class Update, bool is_16_bit>
void optimizer_cuda(CudaArgs& a) {
  Update update(a.attrs<typename Update::Attrs>());
  for_each_pair<is_16_bit>([&]<class T, class G>() { update_all<Update, T, G>(a, update); });
}
template <class Update, bool is_16_bit>
void run_optimizer_tiles(const CpuArgs& a, std::int64_t first, std::int64_t end) {
  Update update(a.attrs<typename Update::Attrs>());
  for_each_pair<is_16_bit>([&]<class T, class G>() { update_tiles<Update, T, G>(a, update, first, end); });
}
template <class Update, bool is_16_bit>
constexpr Tiles kOptimizerTiles{count_optimizer_tiles<Update, is_16_bit>, run_optimizer_tiles<Update, is_16_bit>};

template <class Update, bool is_16_bit>
Prepared prepare_optimizer(const PrepareArgs& p) {
  for_each_pair<is_16_bit>([&]<class T, class G>() { load_kernel(p, update_tensors<Update, T, G>); });
  return {};
}

template <class Update, bool is_16_bit>
constexpr OpDef optimizer_op(std::string_view name) {
  return {.name = name,
          .infer = infer_optimizer<Update, is_16_bit>,
          .access = optimizer_access<Update, is_16_bit>,
          .traits = {.kernels_wait = true},
          .prepare = prepare_optimizer<Update, is_16_bit>,
          .bodies = {kOptimizerTiles<Update, is_16_bit>, optimizer_cuda<Update, is_16_bit>}};
}

}  // namespace graphsink
