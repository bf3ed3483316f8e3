// adamw: Loshchilov & Hutter 2019, "Decoupled weight decay regularization", algorithm 2. Its schedule multiplier and
// step size are one number here, lr, which hence scales the decay as well.
#include "kernels/file_ops.h"
#include "kernels/optim/optimizer.h"
#include "kernels/optim/updated_values.h"

namespace graphsink {
namespace {

struct Adamw {
  using Attrs = AdamwAttrs;
  static constexpr int kStates = 2;
  AdamwAttrs options;
  explicit Adamw(const AdamwAttrs& attrs) : options(attrs) {}

  template <class S>
  struct Factors {
    S lr, beta1, beta2, eps, weight_decay;
    S share1, share2;            // 1 - beta, rounded once: in f32, 1 - float(0.999) is 1.3e-5 of it off
    S correction1, correction2;  // 1 - beta^t
    HD void update(S& p, S g, S* moments) const {
      moments[0] = beta1 * moments[0] + share1 * g;
      moments[1] = beta2 * moments[1] + share2 * (g * g);
      S m = moments[0] / correction1, v = moments[1] / correction2;
      p -= lr * (m / (math::sqrt(v) + eps) + weight_decay * p);
    }
  };
  template <class S>
  HD Factors<S> factors(double lr, std::int32_t t) const {
    return {static_cast<S>(lr),
            static_cast<S>(options.beta1),
            static_cast<S>(options.beta2),
            static_cast<S>(options.eps),
            static_cast<S>(options.weight_decay),
            static_cast<S>(1 - options.beta1),
            static_cast<S>(1 - options.beta2),
            static_cast<S>(1 - math::pow(options.beta1, t)),
            static_cast<S>(1 - math::pow(options.beta2, t))};
  }
};

}  // namespace

const OpDef adamw_op = optimizer_op<Adamw, false>("adamw");
const OpDef adamw_16_op = optimizer_op<Adamw, true>("adamw");
const OpDef updated_adamw_op = updated_op<Adamw, false>("updated_adamw");
const OpDef updated_adamw_16_op = updated_op<Adamw, true>("updated_adamw");

std::span<const FileOp> adamw_file_ops() {
  static constexpr FileOp ops[] = {file_op<AdamwAttrs>(adamw_op),
                                   {&adamw_16_op, attrs_io<AdamwAttrs>, 1, "adamw_16"},
                                   file_op<AdamwAttrs>(updated_adamw_op),
                                   {&updated_adamw_16_op, attrs_io<AdamwAttrs>, 1, "updated_adamw_16"}};
  return ops;
}

}  // namespace graphsink
