// sgd: parameter -= lr * gradient.
#include "kernels/optimizer.h"

namespace graphsink {
namespace {

struct Sgd {
  template <class T>
  struct Factors {
    T lr;
    // x: parameter, gradient.
    HD void update(T (&x)[2]) const { x[0] -= lr * x[1]; }
  };
  template <class T>
  HD Factors<T> factors(double lr, std::int32_t) const {
    return {static_cast<T>(lr)};
  }
};

Access sgd_access(int operand, int) { return operand % 2 == 1 ? Access::write : Access::read; }

template <class Args>
void sgd_body(Args& a) {
  update_any<Sgd, 2>(a, Sgd());
}
constexpr CudaBody kCuda[] = {{0, sgd_body<CudaArgs>}};

}  // namespace

const OpDef sgd_op{.name = "sgd",
                   .infer = infer_optimizer<2>,
                   .access = sgd_access,
                   .prepare = load_kernels<update_tensors<Sgd, float, 2>, update_tensors<Sgd, double, 2>>,
                   .cuda = kCuda,
                   .cpu = sgd_body<const CpuArgs>};

}  // namespace graphsink
