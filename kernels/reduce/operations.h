// The operations of reductions, in a form that kernels that are compiled while the program runs can include, too: see
// scalar.h.
//
// An operation is a type with
//   Term, Value, Result               an element, what terms are combined in, an element of the result
//   Value none()                      of no terms
//   Value add(Value, Term, k)         with term number k
//   Value join(Value, Value)          of two sets of terms
//   Result result(Value)
// and no data, or the divisor alone. Those that are templates of Term alone have their name in kName. For the CPU it
// may have what is faster, see reduction.h:
//   Value add_pair(Value, Term, Term) two terms of a long row
//   Value of_row(n, Term*, k)         n terms that lie side by side, from number k on
#pragma once

#include "kernels/support/extremes.h"
#include "kernels/support/threads.h"

namespace graphsink {

// The sum, divided: f32 is summed in f32 by the kernels and in f64 on the CPU; f16 and bf16 likewise, rounded once, but
// for pairs, which the CPU adds in f32 where it has many terms.
template <class T, class S>
struct Sum {
  using Term = T;
  using Value = S;
  using Result = T;
  S divisor;

  HD static S none() { return S(0); }
  HD static S add(S sum, T x, std::int64_t) { return sum + static_cast<S>(x); }
  static S add_pair(S sum, T x, T y) {
    using Pair = std::conditional_t<sizeof(T) == 2, Wide<T>, S>;
    return sum + static_cast<S>(static_cast<Pair>(x) + static_cast<Pair>(y));
  }
  HD static S join(S a, S b) { return a + b; }
  HD T result(S sum) const { return static_cast<T>(sum / divisor); }
};

template <class T, class Order>
struct Extreme {
  using Term = T;
  using Value = Compared<T>;
  using Result = T;

  HD static Value none() { return Order::template last<Value>(); }
  HD static Value join(Value a, Value b) { return Order::replaces(b, a) ? b : a; }
  HD static Value add(Value most, T x, std::int64_t) { return join(most, static_cast<Value>(x)); }
  HD static T result(Value most) { return static_cast<T>(most); }
};

// Floats are multiplied in f64 on every device: products of some of them overflow long before that of all.
template <class T>
struct Product {
  static constexpr const char* kName = "Product";
  using Term = T;
  using Value = std::conditional_t<std::is_integral_v<T>, T, double>;
  using Result = T;

  HD static Value none() { return Value(1); }
  HD static Value add(Value product, T x, std::int64_t) { return product * static_cast<Value>(x); }
  HD static Value join(Value a, Value b) { return a * b; }
  HD static T result(Value product) { return static_cast<T>(product); }
};

template <class T>
struct Any {
  static constexpr const char* kName = "Any";
  using Term = T;
  using Value = std::int32_t;
  using Result = bool;

  HD static Value none() { return 0; }
  HD static Value add(Value any, T x, std::int64_t) { return any | static_cast<Value>(x); }
  HD static Value join(Value a, Value b) { return a | b; }
  HD static bool result(Value any) { return any != 0; }
};

template <class T>
struct All {
  static constexpr const char* kName = "All";
  using Term = T;
  using Value = std::int32_t;
  using Result = bool;

  HD static Value none() { return 1; }
  HD static Value add(Value all, T x, std::int64_t) { return all & static_cast<Value>(x); }
  HD static Value join(Value a, Value b) { return a & b; }
  HD static bool result(Value all) { return all != 0; }
};

// The largest term so far, and the sum of exp(term - largest). No constructor: blocks share arrays of them.
template <class S>
struct ScaledSum {
  S largest, sum;
};
template <class S>
__device__ inline ScaledSum<S> from_lane_xor(ScaledSum<S> x, int lanes) {
  return {__shfl_xor_sync(kAllLanes, x.largest, lanes), __shfl_xor_sync(kAllLanes, x.sum, lanes)};
}

template <class T>
struct LogSumExp {
  static constexpr const char* kName = "LogSumExp";
  using S = Wide<T>;
  using Term = T;
  using Value = ScaledSum<S>;
  using Result = T;

  HD static Value none() { return {S(-INFINITY), S(0)}; }
  // A NaN is not the larger of two, but makes the sum one. Infinities are not their own difference.
  HD static Value join(Value a, Value b) {
    S largest = b.largest > a.largest ? b.largest : a.largest;
    return {largest, scaled(a, largest) + scaled(b, largest)};
  }
  HD static Value add(Value all, T x, std::int64_t) { return join(all, {static_cast<S>(x), S(1)}); }
  HD static T result(Value all) { return static_cast<T>(all.largest + math::log(all.sum)); }

 private:
  HD static S scaled(Value x, S largest) {
    return x.largest == largest ? x.sum : x.sum * math::exp(x.largest - largest);
  }
};

}  // namespace graphsink
