// A custom op with a CUDA body and a CPU body in one file. nvcc compiles it. Without a CUDA toolkit, the build compiles
// it as C++, and the CPU body runs.
#include <graphsink/graphsink.h>
#include <graphsink/kernel.h>

#include <iostream>
namespace gs = graphsink;

struct Axpy {
  float a;
};

template <class T>
__global__ void axpy_kernel(float a, const T* x, const T* y, T* out, std::int64_t size) {
  for (std::int64_t i = gs::thread_index(); i < size; i += gs::all_threads()) out[i] = T(a) * x[i] + y[i];
}

static void infer(gs::InferArgs& a) {
  a.expect_inputs(2);
  a.expect_same_dtype(2);
  gs::expect_dtype<float, double>(a, 0);
  if (!(a.in(0).shape == a.in(1).shape)) a.fail("takes two operands of one shape", "reshape() one of them");
  a.out(a.in(0).dtype, a.in(0).shape);
}

static void cuda_body(gs::CudaArgs& a) {
  std::int64_t size = a.in_type(0).shape.size();
  gs::for_dtype<float, double>(a.in_type(0).dtype, [&]<class T>() {
    a.launch(axpy_kernel<T>, gs::launch_size(size), a.attrs<Axpy>().a, a.in<T>(0), a.in<T>(1), a.out<T>(0), size);
  });
}

static void cpu_body(const gs::CpuArgs& a) {
  gs::for_dtype<float, double>(a.in_type(0).dtype, [&]<class T>() {
    const T *x = a.in<T>(0), *y = a.in<T>(1);
    for (std::int64_t i = 0; i < a.in_type(0).shape.size(); ++i) a.out<T>(0)[i] = T(a.attrs<Axpy>().a) * x[i] + y[i];
  });
}

static const gs::OpDef axpy_op{.name = "axpy",
                               .infer = infer,
                               .prepare = gs::load_kernels<axpy_kernel<float>, axpy_kernel<double>>,
                               .bodies = {cpu_body, cuda_body}};

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
  return std::cout.flush() ? 0 : 2;  // a full disk would lose what was printed
} catch (const gs::Error& e) {
  std::cerr << "error: " << e.what() << "\n";
  return 2;
}
