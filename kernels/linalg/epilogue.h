// Steps that follow a product in the same op: a bias for each column, then an activation. Every step is rounded as it
// would be by an op of its own.
#pragma once

#include "kernels/support/activation.h"

namespace graphsink {

struct NoActivation {
  template <class T>
  HD static T apply(T x) {
    return x;
  }
};

// [rows, columns], row-major, or on the CPU a part of such a matrix. `sum` and `out` may be `product`.
template <class T>
struct EpilogueData {
  const T* product;
  const T* bias;  // nullptr: none
  T* sum;         // product plus bias; nullptr: not needed
  T* out;
  std::int64_t rows;
  std::int64_t columns;
  std::int64_t pitch;  // elements from row to row; on the GPU it is `columns`
};

template <class Activation, class T>
HD void finish(T product, const T* bias, T& sum, T& out) {
  sum = bias == nullptr ? product : static_cast<T>(Wide<T>(product) + Wide<T>(*bias));
  out = static_cast<T>(Activation::apply(Wide<T>(sum)));
}

// A thread finishes a pack of elements where rows are whole numbers of packs. Addresses are aligned to 16 bytes.
template <class Activation, class T>
__global__ void finish_product(EpilogueData<T> e) {
  wait_for_inputs();
  std::int64_t size = e.rows * e.columns;
  if (e.columns % kPack != 0) {
    for (std::int64_t i = thread_index(); i < size; i += all_threads()) {
      T sum;
      finish<Activation>(e.product[i], e.bias == nullptr ? nullptr : e.bias + i % e.columns, sum, e.out[i]);
      if (e.sum != nullptr) e.sum[i] = sum;
    }
    return;
  }
  for (std::int64_t p = thread_index(); p < size / kPack; p += all_threads()) {
    auto product = reinterpret_cast<const Pack<T>*>(e.product)[p];
    Pack<T> bias{}, sum, out;
    if (e.bias != nullptr) bias = reinterpret_cast<const Pack<T>*>(e.bias)[p % (e.columns / kPack)];
    for (int j = 0; j < kPack; ++j)
      finish<Activation>(product.elements[j], e.bias == nullptr ? nullptr : &bias.elements[j], sum.elements[j],
                         out.elements[j]);
    if (e.sum != nullptr) reinterpret_cast<Pack<T>*>(e.sum)[p] = sum;
    reinterpret_cast<Pack<T>*>(e.out)[p] = out;
  }
}

template <class Activation, class T>
void run_epilogue(const EpilogueData<T>& e, CudaArgs& a) {
  std::int64_t size = e.rows * e.columns;
  a.launch(finish_product<Activation, T>, launch_size(e.columns % kPack == 0 ? size / kPack : size), e);
}

// Loops of their own for what is there, so that each becomes vector code.
template <class Activation, class T>
void run_epilogue(const EpilogueData<T>& e, const CpuArgs&) {
  for (std::int64_t row = 0; row < e.rows; ++row) {
    std::int64_t first = row * e.pitch;
    const T *product = e.product + first, *bias = e.bias;
    T* out = e.out + first;
    if (bias == nullptr) {
      for_each_index(e.columns,
                     [=](std::int64_t i) { out[i] = static_cast<T>(Activation::apply(Wide<T>(product[i]))); });
    } else if (e.sum == nullptr) {
      for_each_index(e.columns, [=](std::int64_t i) {
        auto sum = static_cast<T>(Wide<T>(product[i]) + Wide<T>(bias[i]));
        out[i] = static_cast<T>(Activation::apply(Wide<T>(sum)));
      });
    } else {
      T* sums = e.sum + first;
      for_each_index(e.columns, [=](std::int64_t i) {
        sums[i] = static_cast<T>(Wide<T>(product[i]) + Wide<T>(bias[i]));
        out[i] = static_cast<T>(Activation::apply(Wide<T>(sums[i])));
      });
    }
  }
}

}  // namespace graphsink
