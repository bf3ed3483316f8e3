// The update of optimizer.h as values: an op with the same operands, which it only reads, and with an output for each
// tensor that the op of the commit writes, in their order. Where there is no update, the outputs are copies.
#pragma once

#include "kernels/optim/optimizer.h"

namespace graphsink {

template <class Update, bool is_16_bit>
void infer_updated(InferArgs& a) {
  constexpr int P = 2 + Update::kStates + (is_16_bit ? 1 : 0);
  infer_optimizer<Update, is_16_bit>(a);
  for (int i = kFirstTensor; i + 1 < a.inputs(); i += P)
    for (int j = 0; j < P; ++j)
      if (j != 1) a.out(a.in(i + j).dtype, a.in(i + j).shape);  // all but the gradient
}

// The addresses of a parameter's tensors, then those of its outputs.
template <class Tensors>
constexpr int kUpdatedPointers = 2 * Tensors::kTensors - 1;

// Computes element i of the outputs.
template <class Tensors, class Factors, std::size_t... s>
HD void update_element(const Tensors& from, const Tensors& to, const Factors& factors, typename Tensors::State scale,
                       bool applies, std::int64_t i, std::index_sequence<s...> each_state) {
  to.parameter[i] = from.parameter[i];
  ((to.states[s][i] = from.states[s][i]), ...);
  if (applies) to.update(factors, scale, i, each_state);
}

// The outputs, `first` elements in, beside the gradient.
template <class Tensors>
HD Tensors outputs_at(void* const* pointers, std::int64_t first) {
  void* outputs[Tensors::kTensors] = {pointers[Tensors::kTensors], pointers[1]};
  for (int s = 0; s < Tensors::kStates; ++s) outputs[2 + s] = pointers[Tensors::kTensors + 1 + s];
  return Tensors::at(outputs, first);
}

template <class Update, class T, class G>
__global__ void updated_tensors(TensorTable<kUpdatedPointers<ParameterTensors<Update, T, G>>> table,
                                UpdateControls controls, Update update) {
  wait_for_inputs();
  using Tensors = ParameterTensors<Update, T, G>;
  using State = typename Tensors::State;
  __shared__ typename Update::template Factors<State> factors;
  if (threadIdx.x == 0) factors = factors_of<State>(update, controls);
  __syncthreads();
  const auto scale = static_cast<State>(*controls.gradient_scale);
  const bool applies = *controls.apply;
  const Chunk chunk = chunk_of_block(table, kOptimizerChunk);
  const Tensors from = Tensors::at(table.pointers[chunk.tensor], chunk.begin);
  const Tensors to = outputs_at<Tensors>(table.pointers[chunk.tensor], chunk.begin);
  for (std::int64_t i = threadIdx.x; i < chunk.end - chunk.begin; i += blockDim.x)
    update_element(from, to, factors, scale, applies, i, typename Tensors::EachState());
}

// The addresses of the tensors of the parameter that is operand i, then those of its outputs.
template <class Tensors>
struct UpdatedPointers {
  void* addresses[kUpdatedPointers<Tensors>];
  UpdatedPointers(const BodyArgs& a, int i) {
    const int output = (i - kFirstTensor) / Tensors::kTensors * (Tensors::kTensors - 1);
    for (int p = 0; p < Tensors::kTensors; ++p) addresses[p] = a.in_out<void>(i + p);
    for (int p = 0; p + 1 < Tensors::kTensors; ++p) addresses[Tensors::kTensors + p] = a.out<void>(output + p);
  }
};

template <class Update, bool is_16_bit>
void updated_cuda(CudaArgs& a) {
  const Update update(a.attrs<typename Update::Attrs>());
  for_each_pair<is_16_bit>([&]<class T, class G>() {
    using Tensors = ParameterTensors<Update, T, G>;
    auto launch = [&](const auto& table, Extent blocks) {
      a.launch(updated_tensors<Update, T, G>, blocks, Extent{static_cast<unsigned>(kThreads)}, 0, table,
               controls_of<Tensors::kTensors>(a), update);
    };
    TensorTables<kUpdatedPointers<Tensors>, decltype(launch)> tables(kOptimizerChunk, launch);
    for (int i = kFirstTensor; i + 1 < a.inputs(); i += Tensors::kTensors) {
      if (a.in_type(i).dtype != dtype_of<T>() || a.in_type(i + 1).dtype != dtype_of<G>()) continue;
      tables.add(UpdatedPointers<Tensors>(a, i).addresses, a.in_type(i).shape.size());
    }
    tables.flush();
  });
}

template <class Update, class T, class G>
void updated_tiles(const CpuArgs& a, const Update& update, std::int64_t first, std::int64_t end) {
  using Tensors = ParameterTensors<Update, T, G>;
  using State = typename Tensors::State;
  const UpdateControls controls = controls_of<Tensors::kTensors>(a);
  const auto factors = factors_of<State>(update, controls);
  const auto scale = static_cast<State>(*controls.gradient_scale);
  const bool applies = *controls.apply;
  for_each_piece<Tensors, T, G>(a, first, end, [&](int parameter, std::int64_t begin, std::int64_t size) {
    const UpdatedPointers<Tensors> pointers(a, parameter);
    const Tensors from = Tensors::at(pointers.addresses, begin), to = outputs_at<Tensors>(pointers.addresses, begin);
    for_each_index(size, [=](std::int64_t k) {
      update_element(from, to, factors, scale, applies, k, typename Tensors::EachState());
    });
  });
}

template <class Update, bool is_16_bit>
void run_updated_tiles(const CpuArgs& a, std::int64_t first, std::int64_t end) {
  const Update update(a.attrs<typename Update::Attrs>());
  for_each_pair<is_16_bit>([&]<class T, class G>() { updated_tiles<Update, T, G>(a, update, first, end); });
}
template <class Update, bool is_16_bit>
constexpr Tiles kUpdatedTiles{count_optimizer_tiles<Update, is_16_bit>, run_updated_tiles<Update, is_16_bit>};

template <class Update, bool is_16_bit>
Prepared prepare_updated(const PrepareArgs& p) {
  for_each_pair<is_16_bit>([&]<class T, class G>() { load_kernel(p, updated_tensors<Update, T, G>); });
  return {};
}

template <class Update, bool is_16_bit>
constexpr OpDef updated_op(std::string_view name) {
  return {.name = name,
          .infer = infer_updated<Update, is_16_bit>,
          .traits = {.kernels_wait = true},
          .prepare = prepare_updated<Update, is_16_bit>,
          .bodies = {kUpdatedTiles<Update, is_16_bit>, updated_cuda<Update, is_16_bit>},
          .grad = kNoGradientOfUpdate};
}

}  // namespace graphsink
