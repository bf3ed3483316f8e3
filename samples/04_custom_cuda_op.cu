// An op of one's own with a CUDA body and a CPU body, in one file. nvcc compiles it; without a CUDA toolkit the build
// compiles it as C++, and the CPU body runs.
#include <graphsink/cuda.h>
#include <graphsink/graphsink.h>

#include <iostream>
namespace gs = graphsink;

struct Axpy {
  float a;
};

__global__ void axpy_kernel(float a, const float* x, const float* y, float* out, std::int64_t size) {
  for (std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < size;
       i += std::int64_t{gridDim.x} * blockDim.x)
    out[i] = a * x[i] + y[i];
}

static void infer(gs::InferArgs& a) {
  a.expect_inputs(2);
  a.expect_same_dtype(2);
  bool is_float = a.in(0).dtype == gs::f32;
  if (!is_float || !(a.in(0).shape == a.in(1).shape)) a.fail("takes two f32 of one shape", "cast() or reshape() them");
  a.out(gs::f32, a.in(0).shape);
}

// A kernel's first use must not fall into a recording: it is loaded here.
static gs::Prepared prepare([[maybe_unused]] const gs::PrepareArgs& p) {
#ifdef GRAPHSINK_CAN_LAUNCH
  cudaFuncAttributes attributes;
  if (p.cuda && cudaFuncGetAttributes(&attributes, axpy_kernel) != cudaSuccess)
    throw gs::Error(std::string(p.op), p.where, "its kernel cannot be loaded", "build for this device's architecture");
#endif
  return {};
}

static void cuda_body(gs::CudaArgs& a) {
  std::int64_t size = a.in_type(0).shape.size();
  auto blocks = static_cast<unsigned>((size + 255) / 256);
  a.launch(axpy_kernel, {blocks}, {256}, 0, a.attrs<Axpy>().a, a.in<float>(0), a.in<float>(1), a.out<float>(0), size);
}

static void cpu_body(const gs::CpuArgs& a) {
  const auto *x = a.in<float>(0), *y = a.in<float>(1);
  for (std::int64_t i = 0; i < a.in_type(0).shape.size(); ++i) a.out<float>(0)[i] = a.attrs<Axpy>().a * x[i] + y[i];
}

static const gs::OpDef axpy_op{.name = "axpy", .infer = infer, .prepare = prepare, .bodies = {cpu_body, cuda_body}};

static gs::Value axpy(float a, const gs::Arg& x, const gs::Arg& y) { return gs::emit(axpy_op, {x, y}, Axpy{a})[0]; }

int main() try {
  gs::Graph g;
  gs::Variable total("total", gs::Tensor({0.0f, 0.0f, 0.0f}));
  gs::Value x = g.input("x", gs::f32, {3});
  assign(total, axpy(2.0f, x, total));

  gs::Program program = gs::compile(g, {.target = gs::cuda_device_count() > 0 ? gs::cuda(0) : gs::cpu()});
  std::cout << program.explain();
  program.write(x, gs::Tensor({1.0f, 2.0f, 3.0f}));
  program.run(gs::interactive);
  program.run(gs::sink, {.steps = 4});
  program.sync();
  std::cout << "5 steps of total = 2 x + total: " << total.read() << "\n";
  return std::cout.flush() ? 0 : 2;  // what is printed to a full disk is lost
} catch (const gs::Error& e) {
  std::cerr << "error: " << e.what() << "\n";
  return 2;
}
