// What a project outside graphsink does with an op of its own: y = x^n with a CPU body, a CUDA body, a gradient and a
// trait. It is trained with in every mode; then it runs on a stream and in memory that graphsink does not own.
#include <graphsink/graphsink.h>
#include <graphsink/kernel.h>

#include <cmath>
#include <iostream>
#include <span>
#include <string>
#include <vector>

namespace gs = graphsink;

namespace {

struct Power {
  int n = 1;
  bool operator==(const Power&) const = default;  // so that equal nodes are computed once
};

// x^n as n - 1 products: the same bits on every device.
template <class T>
__host__ __device__ T power_of(T x, int n) {
  T result = x;
  for (int i = 1; i < n; ++i) result *= x;
  return result;
}

template <class T>
__global__ void power_kernel(const T* x, T* y, int n, std::int64_t size) {
  for (std::int64_t i = gs::thread_index(); i < size; i += gs::all_threads()) y[i] = power_of(x[i], n);
}

void infer(gs::InferArgs& a) {
  a.expect_inputs(1);
  gs::expect_dtype<float, double>(a, 0);
  a.out(a.in(0).dtype, a.in(0).shape);
}

void cpu_body(const gs::CpuArgs& a) {
  gs::for_dtype<float, double>(a.in_type(0).dtype, [&]<class T>() {
    for (std::int64_t i = 0; i < a.in_type(0).shape.size(); ++i)
      a.out<T>(0)[i] = power_of(a.in<T>(0)[i], a.attrs<Power>().n);
  });
}

void cuda_body(gs::CudaArgs& a) {
  std::int64_t size = a.in_type(0).shape.size();
  gs::LaunchSize launch = gs::launch_size(size);
  gs::for_dtype<float, double>(a.in_type(0).dtype, [&]<class T>() {
    a.launch(power_kernel<T>, launch.grid, launch.block, 0, a.in<T>(0), a.out<T>(0), a.attrs<Power>().n, size);
  });
}

std::vector<gs::Value> gradient(const gs::GradArgs& a);

const gs::OpDef power_op{.name = "power",
                         .infer = infer,
                         .prepare = gs::load_kernels<power_kernel<float>, power_kernel<double>>,
                         .bodies = {cpu_body, cuda_body},
                         .grad = gradient};
// The same, for a library whose calls cannot be captured.
const gs::OpDef uncapturable_power_op{.name = "uncapturable_power",
                                      .infer = infer,
                                      .traits = {.capturable = false},
                                      .prepare = gs::load_kernels<power_kernel<float>, power_kernel<double>>,
                                      .bodies = {cpu_body, cuda_body},
                                      .grad = gradient};

gs::Value power(const gs::Arg& x, int n, const gs::OpDef& op = power_op) { return gs::emit(op, {x}, Power{n})[0]; }

// n x^(n-1) times the gradient of the result.
std::vector<gs::Value> gradient(const gs::GradArgs& a) {
  int n = a.attrs.as<Power>().n;
  return {n == 1 ? a.grads[0] : a.grads[0] * power(a.inputs[0], n - 1) * static_cast<double>(n)};
}

bool all_passed = true;
void check(bool holds, const std::string& what) {
  if (!holds) std::cerr << "FAILED: " << what << "\n";
  all_passed = all_passed && holds;
}

struct Result {
  std::vector<float> losses;
  std::vector<float> w;
  bool operator==(const Result&) const = default;
};

// Finds w with w^3 = t.
Result train(gs::DeviceId device, gs::Mode mode, const gs::OpDef& op) {
  gs::Graph g;
  gs::Variable w("w", gs::Tensor({1.0f, 1.5f, 2.0f}));
  gs::Value t = g.input("t", gs::f32, {3});
  gs::Value error = power(g.value(w), 3, op) - t;
  gs::Value loss = gs::sum(error * error);
  gs::sgd(loss, {w}, {.lr = 0.001f});
  g.record("loss", loss);
  gs::Program step = gs::compile(g, {.target = device});
  step.write(t, gs::Tensor({1.0f, 8.0f, 27.0f}));
  for (int i = 0; i < 10; ++i) step.run(mode, {.steps = 20});

  bool is_driven_by_host =
      step.explain().find("uncapturable_power is issued by the host (own_op.cu:") != std::string::npos;
  bool is_expected = device != gs::cpu() && &op == &uncapturable_power_op;
  check(is_driven_by_host == is_expected, "explain() of " + to_string(device) + ":\n" + step.explain());
  gs::Tensor found = w.read();
  std::span<const float> values = found.as<float>();
  return {step.read<float>("loss"), {values.begin(), values.end()}};
}

void train_in_every_mode(gs::DeviceId device, const gs::OpDef& op) {
  const std::string where = std::string(op.name) + " on " + to_string(device);
  Result expected = train(device, gs::interactive_serial, op);
  check(expected.losses.size() == 200 && expected.losses.back() < 0.01f * expected.losses.front(),
        where + ": the loss falls");
  for (int i = 0; i < 3; ++i)
    check(std::abs(expected.w[static_cast<std::size_t>(i)] - static_cast<float>(i + 1)) < 0.3f, where + ": w is found");
  for (gs::Mode mode : {gs::interactive_parallel, gs::sink})
    check(train(device, mode, op) == expected, where + ": " + std::string(to_string(mode)) + " has the same bits");
}

// d/dx of x^4 + x is 4 x^3 + 1.
void check_gradient(gs::DeviceId device) {
  gs::Graph g;
  gs::Value x = g.input("x", gs::f64, {2});
  g.output("y", gs::grad(gs::sum(power(x, 4) + power(x, 1)), {x})[0]);
  gs::Program program = gs::compile(g, {.target = device});
  program.write(x, gs::Tensor({-1.5, 3.0}));
  program.run(gs::sink);
  gs::Tensor y = program.read_output("y");
  check(y.at(0) == -12.5 && y.at(1) == 109.0, "the gradient on " + to_string(device));
}

#ifdef GRAPHSINK_CUDA
void check_call(cudaError_t code, const char* call) { check(code == cudaSuccess, call); }
#define CHECK_CUDA(call) check_call(call, #call)

// y = x^3 + w, w = w + x: all three are device memory of this program's, and nothing waits but the end.
void run_as_a_guest() {
  constexpr int kRuns = 20, kSize = 64;
  constexpr std::size_t kBytes = kSize * sizeof(float);
  float *x_there, *y_there, *w_there, *given, *got;
  for (float** memory : {&x_there, &y_there, &w_there})
    CHECK_CUDA(cudaMalloc(reinterpret_cast<void**>(memory), kBytes));
  for (float** memory : {&given, &got})
    CHECK_CUDA(cudaHostAlloc(reinterpret_cast<void**>(memory), kRuns * kBytes, cudaHostAllocDefault));
  cudaStream_t stream;
  CHECK_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  for (int i = 0; i < kRuns * kSize; ++i) given[i] = 0.01f * static_cast<float>(i);
  CHECK_CUDA(cudaMemsetAsync(w_there, 0, kBytes, stream));
  {
    gs::Graph g;
    gs::Variable w("w", gs::Tensor(gs::f32, {kSize}));
    gs::Value x = g.input("x", gs::f32, {kSize});
    gs::Value y = power(x, 3) + w;
    g.output("y", y);
    assign(w, w + x);
    gs::Program program = gs::compile(g, {.target = gs::cuda(0)});
    program.bind_memory(x, x_there, kBytes);
    program.bind_memory(y, y_there, kBytes);
    program.bind_memory(w, w_there, kBytes);
    for (int run = 0; run < kRuns; ++run) {
      CHECK_CUDA(cudaMemcpyAsync(x_there, given + run * kSize, kBytes, cudaMemcpyHostToDevice, stream));
      program.run(gs::sink, {.stream = stream});
      CHECK_CUDA(cudaMemcpyAsync(got + run * kSize, y_there, kBytes, cudaMemcpyDeviceToHost, stream));
    }
    CHECK_CUDA(cudaStreamSynchronize(stream));
    program.sync();
    check(program.counters().graph_launches == kRuns - 1, "every run but the first is a launch");
  }
  std::vector<float> w(kSize), w_got(kSize);
  bool is_equal = true;
  for (int i = 0; i < kRuns * kSize; ++i) {
    float& sum = w[static_cast<std::size_t>(i % kSize)];
    is_equal = is_equal && got[i] == power_of(given[i], 3) + sum;
    sum += given[i];
  }
  check(is_equal, "outputs in memory of the caller's");
  CHECK_CUDA(cudaMemcpy(w_got.data(), w_there, kBytes, cudaMemcpyDeviceToHost));
  check(w_got == w, "a Variable in memory of the caller's, after the program has ended");
  CHECK_CUDA(cudaStreamDestroy(stream));
  for (float* memory : {x_there, y_there, w_there}) CHECK_CUDA(cudaFree(memory));
  for (float* memory : {given, got}) CHECK_CUDA(cudaFreeHost(memory));
}
#else
void run_as_a_guest() {}
#endif

}  // namespace

int main() try {
  std::vector<gs::DeviceId> devices{gs::cpu()};
  if (gs::cuda_device_count() > 0) devices.push_back(gs::cuda(0));
  for (gs::DeviceId device : devices) {
    for (const gs::OpDef* op : {&power_op, &uncapturable_power_op}) train_in_every_mode(device, *op);
    check_gradient(device);
  }
  if (devices.size() > 1) run_as_a_guest();
  if (all_passed) std::cout << "own op: all checks passed, CUDA devices found: " << devices.size() - 1 << "\n";
  return all_passed ? 0 : 1;
} catch (const gs::Error& e) {
  std::cerr << "error: " << e.what() << "\n";
  return 2;
}
