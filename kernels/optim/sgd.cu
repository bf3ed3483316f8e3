// sgd: parameter -= lr * gradient, plain or with momentum (Sutskever et al. 2013, "On the importance of initialization
// and momentum in deep learning", in the form that keeps the learning rate out of the velocity).
#include "kernels/file_ops.h"
#include "kernels/optim/optimizer.h"
#include "kernels/optim/updated_values.h"

namespace graphsink {
namespace {

struct Sgd {
  using Attrs = SgdAttrs;
  static constexpr int kStates = 0;
  SgdAttrs options;
  explicit Sgd(const SgdAttrs& attrs) : options(attrs) {}

  template <class S>
  struct Factors {
    S lr, weight_decay;
    HD void update(S& p, S g, S*) const { p -= lr * (g + weight_decay * p); }
  };
  template <class S>
  HD Factors<S> factors(double lr, std::int32_t) const {
    return {static_cast<S>(lr), static_cast<S>(options.weight_decay)};
  }
};

struct Momentum {
  using Attrs = SgdAttrs;
  static constexpr int kStates = 1;
  SgdAttrs options;
  explicit Momentum(const SgdAttrs& attrs) : options(attrs) {}

  template <class S>
  struct Factors {
    S lr, momentum, weight_decay;
    bool nesterov;
    HD void update(S& p, S g, S* velocity) const {
      g += weight_decay * p;
      velocity[0] = momentum * velocity[0] + g;
      p -= lr * (nesterov ? g + momentum * velocity[0] : velocity[0]);
    }
  };
  template <class S>
  HD Factors<S> factors(double lr, std::int32_t) const {
    return {static_cast<S>(lr), static_cast<S>(options.momentum), static_cast<S>(options.weight_decay),
            options.nesterov};
  }
};

}  // namespace

const OpDef sgd_op = optimizer_op<Sgd, false>("sgd");
const OpDef sgd_16_op = optimizer_op<Sgd, true>("sgd");
const OpDef momentum_op = optimizer_op<Momentum, false>("momentum");
const OpDef momentum_16_op = optimizer_op<Momentum, true>("momentum");
const OpDef updated_sgd_op = updated_op<Sgd, false>("updated_sgd");
const OpDef updated_sgd_16_op = updated_op<Sgd, true>("updated_sgd");
const OpDef updated_momentum_op = updated_op<Momentum, false>("updated_momentum");
const OpDef updated_momentum_16_op = updated_op<Momentum, true>("updated_momentum");

std::span<const FileOp> sgd_file_ops() {
  static constexpr FileOp ops[] = {file_op<SgdAttrs>(sgd_op),
                                   {&sgd_16_op, attrs_io<SgdAttrs>, 1, "sgd_16"},
                                   file_op<SgdAttrs>(momentum_op),
                                   {&momentum_16_op, attrs_io<SgdAttrs>, 1, "momentum_16"},
                                   file_op<SgdAttrs>(updated_sgd_op),
                                   {&updated_sgd_16_op, attrs_io<SgdAttrs>, 1, "updated_sgd_16"},
                                   file_op<SgdAttrs>(updated_momentum_op),
                                   {&updated_momentum_16_op, attrs_io<SgdAttrs>, 1, "updated_momentum_16"}};
  return ops;
}

}  // namespace graphsink
