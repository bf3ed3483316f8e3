// arange: the numbers 0, 1, 2, ... of an axis, which may be open.
#include "graphsink/ops.h"
#include "kernels/file_ops.h"
#include "kernels/support/dtype.h"
#include "kernels/support/op_parts.h"

namespace graphsink {
namespace {

struct ArangeAttrs {
  int axis;
  DType dtype;
  static auto fields(auto& s) { return std::tie("axis", s.axis, "dtype", s.dtype); }
};

template <class Body>
void for_counted(DType dtype, const Body& body) {
  for_dtype<float, double, std::int32_t, std::int64_t>(dtype, body);
}

template <class T>
__global__ void count_up(T* out, std::int64_t size) {
  wait_for_inputs();
  for (std::int64_t i = thread_index(); i < size; i += all_threads()) out[i] = static_cast<T>(i);
}

void arange_cuda(CudaArgs& a) {
  std::int64_t size = a.out_type(0).shape.size();
  for_counted(a.out_type(0).dtype, [&]<class T>() { a.launch(count_up<T>, launch_size(size), a.out<T>(0), size); });
}
void arange_cpu(const CpuArgs& a) {
  for_counted(a.out_type(0).dtype, [&]<class T>() {
    T* out = a.out<T>(0);
    for (std::int64_t i = 0; i < a.out_type(0).shape.size(); ++i) out[i] = static_cast<T>(i);
  });
}

void infer_arange(InferArgs& a) {
  a.expect_inputs(1);
  const auto& [axis, dtype] = a.attrs<ArangeAttrs>();
  if (dtype != DType::f32 && dtype != DType::f64 && dtype != DType::i32 && dtype != DType::i64)
    a.fail("makes f32, f64, i32, i64, not " + std::string(to_string(dtype)),
           "cast() the result, if the dtype holds all of its numbers");
  std::int64_t size = a.in(0).shape[axis_from_front(a, axis, a.in(0).shape.rank())];
  std::int64_t most = dtype == DType::f32 ? std::int64_t{1} << 24 : std::numeric_limits<std::int32_t>::max();
  if (dtype != DType::i64 && size > most)
    a.fail("the axis is too long for numbers of " + std::string(to_string(dtype)), "ask for i64");
  a.out(dtype, {size});
}

Prepared prepare_arange(const PrepareArgs& p) {
  for_counted(p.out(0).dtype, [&]<class T>() { load_kernel(p, count_up<T>); });
  return {};
}

const OpDef arange_op{.name = "arange",
                      .infer = infer_arange,
                      .access = only_shape,
                      .traits = {.kernels_wait = true},
                      .prepare = prepare_arange,
                      .bodies = {arange_cpu, arange_cuda}};

}  // namespace

Value arange(Arg like, int axis, DType dtype, Placement placement) {
  return emit(arange_op, {like}, ArangeAttrs{axis, dtype}, placement)[0];
}

std::span<const FileOp> arange_file_ops() {
  static constexpr FileOp ops[] = {file_op<ArangeAttrs>(arange_op)};
  return ops;
}

}  // namespace graphsink
