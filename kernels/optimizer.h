// What the optimizers share: operands are a learning rate and then P tensors for each parameter.
#pragma once

#include "kernels/elementwise.h"
#include "kernels/multi_tensor.h"
#include "kernels/optimizer_ops.h"

namespace graphsink {

// A scalar in device memory, of either float type.
struct FloatRef {
  const void* address;
  bool is_f64;
  HD double get() const {
    return is_f64 ? *static_cast<const double*>(address) : double{*static_cast<const float*>(address)};
  }
};
inline FloatRef learning_rate(const BodyArgs& a) { return {a.in<void>(0), a.in_type(0).dtype == DType::f64}; }

template <int P>
void infer_optimizer(InferArgs& a) {
  if (a.inputs() % P != 1)
    a.fail("takes a learning rate and " + std::to_string(P) + " tensors for each parameter", "pass them");
  if (!is_float(a.in(0).dtype) || a.in(0).shape.size() != 1)
    a.fail("the learning rate is not one float", "pass a number or a scalar Value");
  for (int i = 1; i < a.inputs(); i += P) {
    if (!is_float(a.in(i).dtype)) a.fail("a parameter is not of floats", "leave it out");
    for (int j = 1; j < P; ++j)
      if (a.in(i + j) != a.in(i)) a.fail("a gradient or moment is not of its parameter's type", "give them one type");
  }
}

// An optimizer is a struct of its options: factors<T>(lr, t) are the numbers that all elements share in step t, and
// Factors<T>::update(x) is the step for one element: x[0] is the parameter, x[1] the gradient, the others are state.

// A block handles a chunk: each of its threads a pack of elements, loaded and stored at once.
constexpr std::int64_t kOptimizerChunk = kThreads * kPack;

template <class Update, class T, int P>
__global__ void update_tensors(TensorTable<P> table, FloatRef rate, Update update, const StepBlock* step) {
  wait_for_inputs();
  if (step->ok == 0) return;
  __shared__ typename Update::template Factors<T> factors;
  if (threadIdx.x == 0) factors = update.template factors<T>(rate.get(), step->step + 1);
  __syncthreads();
  Chunk chunk = chunk_of_block(table, kOptimizerChunk);
  std::int64_t first = chunk.begin + std::int64_t{threadIdx.x} * kPack;
  T* operand[P];
  for (int p = 0; p < P; ++p) operand[p] = static_cast<T*>(table.pointers[chunk.tensor][p]) + first;
  if (first + kPack <= chunk.end) {
    Pack<T> packs[P];
    for (int p = 0; p < P; ++p) packs[p] = *reinterpret_cast<const Pack<T>*>(operand[p]);
    for (int j = 0; j < kPack; ++j) {
      T x[P];
      for (int p = 0; p < P; ++p) x[p] = packs[p].elements[j];
      factors.update(x);
      for (int p = 0; p < P; ++p) packs[p].elements[j] = x[p];
    }
    for (int p = 0; p < P; ++p)
      if (p != 1) *reinterpret_cast<Pack<T>*>(operand[p]) = packs[p];  // 1 is the gradient
  } else {
    for (int j = 0; first + j < chunk.end; ++j) {
      T x[P];
      for (int p = 0; p < P; ++p) x[p] = operand[p][j];
      factors.update(x);
      for (int p = 0; p < P; ++p)
        if (p != 1) operand[p][j] = x[p];
    }
  }
}

template <class Update, class T, int P>
void update_all(CudaArgs& a, const Update& update) {
  auto launch = [&](const TensorTable<P>& table, Extent blocks) {
    a.launch(update_tensors<Update, T, P>, blocks, Extent{static_cast<unsigned>(kThreads)}, 0, table, learning_rate(a),
             update, a.step());
  };
  TensorTables<P, decltype(launch)> tables(kOptimizerChunk, launch);
  for (int i = 1; i < a.inputs(); i += P) {
    if (a.in_type(i).dtype != dtype_of<T>()) continue;
    void* pointers[P];
    for (int p = 0; p < P; ++p) pointers[p] = a.in_out<void>(i + p);
    tables.add(pointers, a.in_type(i).shape.size());
  }
  tables.flush();
}

// Without loops over the operands, which would keep compilers from vector code.
template <class T, class Factors, std::size_t... p>
void update_tensor(const Factors& factors, T* const (&operand)[sizeof...(p)], std::int64_t size,
                   std::index_sequence<p...>) {
  for_each_index(size, [=](std::int64_t i) {
    T x[] = {operand[p][i]...};
    factors.update(x);
    ((p == 1 ? void() : void(operand[p][i] = x[p])), ...);
  });
}

template <class Update, class T, int P>
void update_all(const CpuArgs& a, const Update& update) {
  auto factors = update.template factors<T>(learning_rate(a).get(), a.step()->step + 1);
  for (int i = 1; i < a.inputs(); i += P) {
    if (a.in_type(i).dtype != dtype_of<T>()) continue;
    T* operand[P];
    for (int p = 0; p < P; ++p) operand[p] = a.in_out<T>(i + p);
    update_tensor(factors, operand, a.in_type(i).shape.size(), std::make_index_sequence<P>());
  }
}

// Both dtypes may occur.
template <class Update, int P>
void update_any(CudaArgs& a, const Update& update) {
  update_all<Update, float, P>(a, update);
  update_all<Update, double, P>(a, update);
}
template <class Update, int P>
void update_any(const CpuArgs& a, const Update& update) {
  if (a.step()->ok == 0) return;
  update_all<Update, float, P>(a, update);
  update_all<Update, double, P>(a, update);
}

}  // namespace graphsink
