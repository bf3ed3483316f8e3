// conv2d: columns of the image (im2col) times the filters, and its gradients by the same columns. On the GPU for many
// images at a time; conv_cpu.h does it on the CPU.
#include <numeric>

#include "graphsink/ops.h"
#include "kernels/file_ops.h"
#include "kernels/nn/conv_cpu.h"
#include "kernels/support/dtype.h"
#include "kernels/support/product.h"
#include "kernels/support/tiles.h"

namespace graphsink {
namespace {

constexpr std::int64_t kMostColumns = std::int64_t{64} << 20;  // bytes, unless one image has more

struct ConvPlan : ConvSizes {
  ConvUnits units;           // division of the work on the CPU
  std::int64_t at_once = 1;  // images whose columns are in memory together on the GPU; divides `images`
  PreparedProduct product;   // product on the GPU
  std::size_t columns_bytes = 0, parts_bytes = 0;  // first in the workspace; the product's follows
};

void infer_conv2d(InferArgs& a) {
  a.expect_inputs(2);
  a.expect_same_dtype(2);
  const auto& o = a.attrs<Conv2dOptions>();
  const Shape &x = a.in(0).shape, &w = a.in(1).shape;
  expect_dtype<float, double>(a, 0);
  if (x.rank() != 4 || w.rank() != 4) a.fail("takes [n, c, h, w] and [o, c, kh, kw]", "reshape() the operands");
  if (o.groups < 1 || x[1] != w[1] * o.groups || w[0] % o.groups != 0)
    a.fail("the channels do not fit, in " + std::to_string(o.groups) + " groups",
           "make the channels of the image those of a filter times the groups, and the filters a multiple of them");
  Windows windows = windows_over(a, x, {w[2], w[3]}, o.stride, o.padding, o.dilation);
  // The columns of one image are a tensor of the workspace.
  (void)TensorType{a.in(0).dtype, {x[1], w[2], w[3], windows.y.out, windows.x.out}}.bytes();
  a.out(a.in(0).dtype, {x[0], w[0], windows.y.out, windows.x.out});
}
// Inputs: gradient of the result, filters, image (shape only).
void infer_image_grad(InferArgs& a) {
  a.expect_inputs(3);
  a.expect_input(0, a.outputs_of(infer_conv2d, {a.in(2), a.in(1)})[0]);
  a.out(a.in(0).dtype, a.in(2).shape);
}
// Inputs: image, gradient of the result, filters (shape only).
void infer_filter_grad(InferArgs& a) {
  a.expect_inputs(3);
  a.expect_input(1, a.outputs_of(infer_conv2d, {a.in(0), a.in(2)})[0]);
  a.out(a.in(0).dtype, a.in(2).shape);
}
Access last_is_shape(int operand, int) { return operand == 2 ? Access::shape_only : Access::read; }

ConvPlan plan_of(const PrepareArgs& p, const Shape& x, const Shape& w, const Shape& y) {
  const auto& o = p.attrs.as<Conv2dOptions>();
  ConvPlan plan;
  plan.windows = {{x[2], y[2], w[2], o.stride[0], o.padding[0], o.dilation[0]},
                  {x[3], y[3], w[3], o.stride[1], o.padding[1], o.dilation[1]}};
  plan.images = x[0];
  plan.channels = x[1];
  plan.filters = w[0];
  plan.groups = o.groups;
  plan.is_plain = plan.windows.window_size() == 1 && o.stride == Pair{1, 1} && o.padding == Pair{0, 0};
  return plan;
}

using Operand = ConvOperand;  // as a matrix of the product

// Elements between the matrices of two groups, and of two images. The image is there as columns.
Pair strides_of(const ConvPlan& plan, Operand operand) {
  switch (operand) {
    case Operand::image:
      return {plan.columns_size() / plan.groups, plan.columns_size()};
    case Operand::result:
      return {plan.result_size() / plan.groups, plan.result_size()};
    default:
      return {plan.filter_size() / plan.groups, 0};
  }
}

// Chooses how the work is divided, on the GPU how many images are handled together, and prepares the product of lhs and
// rhs, sizes in `product`. Gradients of the filters are summed over images: by the GPU from parts.
Prepared finish(const PrepareArgs& p, ConvPlan plan, MatrixProduct product, Operand lhs, Operand rhs, Operand out) {
  auto element = static_cast<std::int64_t>(size_of(p.out(0).dtype));
  if (!p.cuda) {
    (void)prepare_product(p, product);  // result not used: the call throws Error above the limits of BLAS
    plan.units = conv_units(plan, out, element);
    auto scratch = static_cast<std::size_t>(plan.units.tiles * plan.units.scratch * element);
    return {std::make_shared<ConvPlan>(std::move(plan)), scratch};
  }
  bool has_parts = out == Operand::filters;
  std::int64_t columns = plan.is_plain ? 0 : plan.columns_size() * element;
  std::int64_t parts = has_parts ? plan.filter_size() * element : 0;
  plan.at_once = std::max<std::int64_t>(1, plan.images);
  if (columns + parts > 0)
    plan.at_once = std::min(plan.at_once, std::max<std::int64_t>(1, kMostColumns / (columns + parts)));
  while (plan.images % plan.at_once != 0) --plan.at_once;
  Pair by_operand[] = {strides_of(plan, lhs), strides_of(plan, rhs), strides_of(plan, out)};
  if (has_parts) by_operand[2][1] = plan.filter_size();
  product.dtype = p.out(0).dtype;
  product.batches.size = plan.groups * plan.at_once;
  bool is_inner_group = plan.groups > plan.at_once;  // the longer one is one call
  for (std::size_t which : {is_inner_group ? std::size_t{1} : 0, is_inner_group ? std::size_t{0} : 1})
    append(product.batches, which == 0 ? plan.groups : plan.at_once,
           {by_operand[0][which], by_operand[1][which], by_operand[2][which]});
  // Where the images are not all handled together, their pieces begin anywhere.
  if (plan.at_once < plan.images) {
    std::int64_t image = plan.is_plain ? plan.image_size() : 0;
    product.alignment = std::gcd(product.alignment, plan.at_once * std::gcd(plan.result_size(), image) * element);
  }
  plan.product = prepare_product(p, product);
  auto rounded = [](std::int64_t bytes) { return static_cast<std::size_t>((bytes + 255) / 256 * 256); };
  plan.columns_bytes = rounded(plan.at_once * columns);
  plan.parts_bytes = rounded(plan.at_once * parts);
  std::size_t workspace = plan.columns_bytes + plan.parts_bytes + plan.product.workspace;
  return {std::make_shared<ConvPlan>(std::move(plan)), workspace};
}

template <auto kernel_f32, auto kernel_f64>
void load(const PrepareArgs& p) {
  p.out(0).dtype == DType::f32 ? load_kernel(p, kernel_f32) : load_kernel(p, kernel_f64);
}

// Filters [o, k] x columns [k, windows], for each group and image.
Prepared prepare_conv2d(const PrepareArgs& p) {
  load<fill_columns<float>, fill_columns<double>>(p);
  ConvPlan plan = plan_of(p, p.in(0).shape, p.in(1).shape, p.out(0).shape);
  MatrixProduct product;
  product.m = plan.filters / plan.groups;
  product.k = plan.column_rows() / plan.groups;
  product.n = plan.windows.windows();
  return finish(p, plan, product, Operand::filters, Operand::image, Operand::result);
}

Prepared prepare_image_grad(const PrepareArgs& p) {
  load<sum_columns<float>, sum_columns<double>>(p);
  ConvPlan plan = plan_of(p, p.in(2).shape, p.in(1).shape, p.in(0).shape);
  MatrixProduct product;
  product.m = plan.column_rows() / plan.groups;
  product.k = plan.filters / plan.groups;
  product.n = plan.windows.windows();
  product.transpose_a = true;
  return finish(p, plan, product, Operand::filters, Operand::result, Operand::image);
}

Prepared prepare_filter_grad(const PrepareArgs& p) {
  load<fill_columns<float>, fill_columns<double>>(p);
  load<sum_images<float>, sum_images<double>>(p);
  ConvPlan plan = plan_of(p, p.in(0).shape, p.in(2).shape, p.in(1).shape);
  MatrixProduct product;
  product.m = plan.filters / plan.groups;
  product.k = plan.windows.windows();
  product.n = plan.column_rows() / plan.groups;
  product.transpose_b = true;
  return finish(p, plan, product, Operand::result, Operand::image, Operand::filters);
}

// The pieces of the workspace.
template <class T>
struct Scratch {
  T* columns;
  T* parts;
  void* product;

  Scratch(const ConvPlan& plan, void* workspace) {
    auto* bytes = static_cast<std::byte*>(workspace);
    columns = reinterpret_cast<T*>(bytes);
    parts = reinterpret_cast<T*>(bytes + plan.columns_bytes);
    product = bytes + plan.columns_bytes + plan.parts_bytes;
  }
};

template <class T>
const T* columns_of(CudaArgs& a, const ConvPlan& plan, const T* images, const Scratch<T>& scratch) {
  if (plan.is_plain) return images;
  im2col(a, plan.windows, plan.at_once * plan.channels, images, scratch.columns);
  return scratch.columns;
}

template <class T>
void forward_on(CudaArgs& a, const ConvPlan& plan) {
  Scratch<T> scratch(plan, a.workspace());
  for (std::int64_t i = 0; i < plan.images; i += plan.at_once) {
    run_product(a, plan.product, a.in<T>(1), columns_of(a, plan, a.in<T>(0) + i * plan.image_size(), scratch),
                a.out<T>(0) + i * plan.result_size(), scratch.product);
  }
}

template <class T>
void image_grad_on(CudaArgs& a, const ConvPlan& plan) {
  Scratch<T> scratch(plan, a.workspace());
  for (std::int64_t i = 0; i < plan.images; i += plan.at_once) {
    T* dx = a.out<T>(0) + i * plan.image_size();
    T* columns = plan.is_plain ? dx : scratch.columns;
    run_product(a, plan.product, a.in<T>(1), a.in<T>(0) + i * plan.result_size(), columns, scratch.product);
    if (!plan.is_plain) col2im(a, plan.windows, plan.at_once * plan.channels, columns, dx);
  }
}

template <class T>
void filter_grad_on(CudaArgs& a, const ConvPlan& plan) {
  Scratch<T> scratch(plan, a.workspace());
  auto add_parts = [&](std::int64_t images, bool adds) {
    a.launch(sum_images<T>, launch_size(plan.filter_size()), scratch.parts, a.out<T>(0), images, plan.filter_size(),
             adds);
  };
  if (plan.images == 0) add_parts(0, false);
  for (std::int64_t i = 0; i < plan.images; i += plan.at_once) {
    const T* columns = columns_of(a, plan, a.in<T>(0) + i * plan.image_size(), scratch);
    run_product(a, plan.product, a.in<T>(1) + i * plan.result_size(), columns, scratch.parts, scratch.product);
    add_parts(plan.at_once, i > 0);
  }
}

// The bodies on the GPU, and tiles on the CPU, by what is computed.
template <Operand out>
void conv_cuda(CudaArgs& a) {
  const auto& plan = a.local<ConvPlan>();
  for_dtype<float, double>(a.out_type(0).dtype, [&]<class T>() {
    if constexpr (out == Operand::result) {
      forward_on<T>(a, plan);
    } else if constexpr (out == Operand::image) {
      image_grad_on<T>(a, plan);
    } else {
      filter_grad_on<T>(a, plan);
    }
  });
}

template <Operand out, class T>
void conv_units_on(const CpuArgs& a, const ConvPlan& plan, std::int64_t first, std::int64_t end) {
  const ConvUnits& u = plan.units;
  T* scratch = static_cast<T*>(a.workspace()) + first * u.scratch;
  for_each_unit(u, first, end, [&](std::int64_t unit) {
    if constexpr (out == Operand::result) {
      convolve(plan, u, unit, a.in<T>(0), a.in<T>(1), scratch, a.out<T>(0));
    } else if constexpr (out == Operand::image) {
      convolve_back(plan, u, unit, a.in<T>(0), a.in<T>(1), scratch, a.out<T>(0));
    } else {
      correlate(plan, u, unit, a.in<T>(0), a.in<T>(1), scratch, a.out<T>(0));
    }
  });
}
template <Operand out>
void run_conv_tiles(const CpuArgs& a, std::int64_t first, std::int64_t end) {
  const auto& plan = a.local<ConvPlan>();
  for_dtype<float, double>(a.out_type(0).dtype, [&]<class T>() {
    if (plan.has_products()) return conv_units_on<out, T>(a, plan, first, end);
    if (first == 0) std::fill_n(a.out<T>(0), a.out_type(0).shape.size(), T(0));
  });
}
template <Operand out>
constexpr Tiles kConvTiles{[](const BodyArgs& a) { return a.local<ConvPlan>().units.tiles; }, run_conv_tiles<out>};

// Each of the three is linear in both operands, and the others are its gradients.
Value image_grad(const Value& g, const Value& w, const Value& x, const GradArgs& a);
Value filter_grad(const Value& x, const Value& g, const Value& w, const GradArgs& a);
Value forward(const Value& x, const Value& w, const GradArgs& a) {
  return conv2d(Arg(x, a.where), w, a.attrs.as<Conv2dOptions>());
}

std::vector<Value> conv2d_grad(const GradArgs& a) {
  const Value &x = a.inputs[0], &w = a.inputs[1], &g = a.grads[0];
  return {a.needed[0] ? image_grad(g, w, x, a) : Value(), a.needed[1] ? filter_grad(x, g, w, a) : Value()};
}
std::vector<Value> image_grad_grad(const GradArgs& a) {
  const Value &g = a.inputs[0], &w = a.inputs[1], &d = a.grads[0];
  return {a.needed[0] ? forward(d, w, a) : Value(), a.needed[1] ? filter_grad(d, g, w, a) : Value(), Value()};
}
std::vector<Value> filter_grad_grad(const GradArgs& a) {
  const Value &x = a.inputs[0], &g = a.inputs[1], &d = a.grads[0];
  return {a.needed[0] ? image_grad(g, d, x, a) : Value(), a.needed[1] ? forward(x, d, a) : Value(), Value()};
}

// The convolution and both gradients multiply as often: once for each element of a window, padding included, of each
// element of the convolution's result.
std::uint64_t conv_flops(const TensorType& result, const TensorType& filters) {
  const Shape& w = filters.shape;
  return 2 * static_cast<std::uint64_t>(result.shape.size() * w[1] * w[2] * w[3]);
}

const OpDef conv2d_op{.name = "conv2d",
                      .infer = infer_conv2d,
                      .traits = {.costly = true},
                      .prepare = prepare_conv2d,
                      .bodies = {kConvTiles<Operand::result>, conv_cuda<Operand::result>},
                      .grad = conv2d_grad,
                      .flops = [](const BodyArgs& a) { return conv_flops(a.out_type(0), a.in_type(1)); }};
const OpDef image_grad_op{.name = "conv2d_image_grad",
                          .infer = infer_image_grad,
                          .access = last_is_shape,
                          .traits = {.costly = true},
                          .prepare = prepare_image_grad,
                          .bodies = {kConvTiles<Operand::image>, conv_cuda<Operand::image>},
                          .grad = image_grad_grad,
                          .flops = [](const BodyArgs& a) { return conv_flops(a.in_type(0), a.in_type(1)); }};
const OpDef filter_grad_op{.name = "conv2d_filter_grad",
                           .infer = infer_filter_grad,
                           .access = last_is_shape,
                           .traits = {.costly = true},
                           .prepare = prepare_filter_grad,
                           .bodies = {kConvTiles<Operand::filters>, conv_cuda<Operand::filters>},
                           .grad = filter_grad_grad,
                           .flops = [](const BodyArgs& a) { return conv_flops(a.in_type(1), a.in_type(2)); }};

Value image_grad(const Value& g, const Value& w, const Value& x, const GradArgs& a) {
  return emit(image_grad_op, {Arg(g, a.where), w, x}, a.attrs)[0];
}
Value filter_grad(const Value& x, const Value& g, const Value& w, const GradArgs& a) {
  return emit(filter_grad_op, {Arg(x, a.where), g, w}, a.attrs)[0];
}

}  // namespace

Value conv2d(Arg x, Arg w, Conv2dOptions options, Placement placement) {
  return emit(conv2d_op, {x, w}, options, placement)[0];
}

std::span<const FileOp> conv_file_ops() {
  static constexpr FileOp ops[] = {file_op<Conv2dOptions>(conv2d_op), file_op<Conv2dOptions>(image_grad_op),
                                   file_op<Conv2dOptions>(filter_grad_op)};
  return ops;
}

}  // namespace graphsink
