// adamw: Loshchilov & Hutter 2019, "Decoupled weight decay regularization", algorithm 2. Its schedule multiplier and
// step size are one number here, lr, which hence scales the decay as well.
#include "kernels/optimizer.h"

namespace graphsink {
namespace {

struct Adamw {
  double beta1, beta2, eps, weight_decay;

  template <class T>
  struct Factors {
    T lr, beta1, beta2, eps, weight_decay;
    T correction1, correction2;  // 1 - beta^t
    // x: parameter, gradient, first moment, second moment.
    HD void update(T (&x)[4]) const {
      x[2] = beta1 * x[2] + (T(1) - beta1) * x[1];
      x[3] = beta2 * x[3] + (T(1) - beta2) * (x[1] * x[1]);
      T m = x[2] / correction1, v = x[3] / correction2;
      x[0] -= lr * (m / (math::sqrt(v) + eps) + weight_decay * x[0]);
    }
  };
  // Of step t, counted from 1.
  template <class T>
  HD Factors<T> factors(double lr, std::int32_t t) const {
    return {static_cast<T>(lr),
            static_cast<T>(beta1),
            static_cast<T>(beta2),
            static_cast<T>(eps),
            static_cast<T>(weight_decay),
            static_cast<T>(1 - math::pow(beta1, t)),
            static_cast<T>(1 - math::pow(beta2, t))};
  }
};

Access adamw_access(int operand, int) {
  return operand == 0 || operand % 4 == 2 ? Access::read : Access::write;  // the learning rate and gradients
}

template <class Args>
void adamw_body(Args& a) {
  const auto& attrs = a.template attrs<AdamwAttrs>();
  update_any<Adamw, 4>(a, Adamw{attrs.beta1, attrs.beta2, attrs.eps, attrs.weight_decay});
}
constexpr CudaBody kCuda[] = {{0, adamw_body<CudaArgs>}};

}  // namespace

const OpDef adamw_op{.name = "adamw",
                     .infer = infer_optimizer<4>,
                     .access = adamw_access,
                     .prepare = load_kernels<update_tensors<Adamw, float, 4>, update_tensors<Adamw, double, 4>>,
                     .cuda = kCuda,
                     .cpu = adamw_body<const CpuArgs>};

}  // namespace graphsink
