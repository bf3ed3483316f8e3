// What a project outside graphsink adds: ops with bodies for the CPU and for CUDA, a gradient, attributes and a trait;
// and a program that works in memory of its caller's, on a stream of its caller's.
#include <graphsink/graphsink.h>
#include <graphsink/kernel.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <string>
#include <tuple>
#include <vector>

namespace gs = graphsink;

// --- the ops

struct Power {
  int n;
  static auto fields(auto& s) { return std::tie("n", s.n); }
};

__host__ __device__ inline float power_of(float x, int n) {
  float y = 1;
  for (int i = 0; i < n; ++i) y *= x;
  return y;
}

__global__ void power_kernel(int n, const float* x, float* y, std::int64_t size) {
  for (std::int64_t i = gs::thread_index(); i < size; i += gs::all_threads()) y[i] = power_of(x[i], n);
}

static void power_infer(gs::InferArgs& a) {
  a.expect_inputs(1);
  gs::expect_dtype<float>(a, 0);
  if (a.attrs<Power>().n < 0) a.fail("takes no negative power", "divide 1 by the positive power");
  a.out(a.in(0).dtype, a.in(0).shape);
}

static void power_cpu(const gs::CpuArgs& a) {
  for (std::int64_t i = 0; i < a.in_type(0).shape.size(); ++i)
    a.out<float>(0)[i] = power_of(a.in<float>(0)[i], a.attrs<Power>().n);
}

static void power_cuda(gs::CudaArgs& a) {
  std::int64_t size = a.in_type(0).shape.size();
  a.launch(power_kernel, gs::launch_size(size), a.attrs<Power>().n, a.in<float>(0), a.out<float>(0), size);
}

// Waits for the device, which no capture allows.
static void power_cuda_and_wait(gs::CudaArgs& a) {
  power_cuda(a);
#ifdef GRAPHSINK_CAN_LAUNCH
  gs::check_cuda(cudaStreamSynchronize(a.stream()), "cudaStreamSynchronize", a);
#endif
}

static std::vector<gs::Value> power_grad(const gs::GradArgs& a);

static const gs::OpDef power_op{.name = "power",
                                .infer = power_infer,
                                .prepare = gs::load_kernels<power_kernel>,
                                .bodies = {power_cpu, power_cuda},
                                .grad = power_grad};
static const gs::OpDef power_and_wait_op{.name = "power_and_wait",
                                         .infer = power_infer,
                                         .traits = {.capturable = false},
                                         .prepare = gs::load_kernels<power_kernel>,
                                         .bodies = {power_cpu, power_cuda_and_wait},
                                         .grad = power_grad};

static gs::Value power(const gs::Arg& x, int n) { return gs::emit(power_op, {x}, Power{n})[0]; }
static gs::Value power_and_wait(const gs::Arg& x, int n) { return gs::emit(power_and_wait_op, {x}, Power{n})[0]; }

static std::vector<gs::Value> power_grad(const gs::GradArgs& a) {
  int n = a.attrs.as<Power>().n;
  if (n == 0) return {gs::Value()};
  return {a.grads[0] * (power(a.inputs[0], n - 1) * n)};
}

// --- the checks

static void check(bool is_true, const std::string& text) {
  if (is_true) return;
  std::cerr << "failed: " << text << "\n";
  std::exit(1);
}

static bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

// Whether the floats are those of the formula, but for what f32 rounds.
template <class Formula>
static bool are(const gs::Tensor& values, const std::vector<float>& x, const Formula& formula) {
  for (std::size_t i = 0; i < x.size(); ++i) {
    double wanted = formula(double{x[i]});
    if (!(std::abs(values.at(static_cast<std::int64_t>(i)) - wanted) <= 1e-5 * (1 + std::abs(wanted)))) return false;
  }
  return true;
}

static const std::vector<float> kX{-2.0f, -0.5f, 0.0f, 0.3f, 1.0f, 1.7f};
constexpr std::int64_t kSize = 6;

static void check_values(gs::DeviceId device, gs::Mode mode, const std::string& where) {
  gs::Graph g;
  gs::Value x = g.input("x", gs::f32, {kSize});
  gs::Value y = power(x, 5), waited = power_and_wait(x, 4);
  g.output("y", y);
  g.output("dy", gs::grad(gs::sum(y), {x})[0]);
  g.output("waited", waited);
  g.output("dwaited", gs::grad(gs::sum(waited), {x})[0]);
  gs::Program program = gs::compile(g, {.target = device});
  program.write(x, kX);
  program.run(mode, {.steps = 3});
  check(are(program.output("y"), kX, [](double v) { return std::pow(v, 5); }), where + ": power is x^5");
  check(are(program.output("dy"), kX, [](double v) { return 5 * std::pow(v, 4); }), where + ": its gradient is 5 x^4");
  check(are(program.output("waited"), kX, [](double v) { return std::pow(v, 4); }), where + ": power_and_wait is x^4");
  check(are(program.output("dwaited"), kX, [](double v) { return 4 * std::pow(v, 3); }),
        where + ": its gradient is 4 x^3");
}

// The plan names the op that cannot be captured, the reason and this file; only a program on a GPU has launches.
static void check_plan(gs::DeviceId device, bool has_launches, const std::string& where) {
  gs::Graph g;
  gs::Value x = g.input("x", gs::f32, {kSize});
  g.output("y", power_and_wait(power(x, 2), 2) + 1.0);
  std::string plan = gs::compile(g, {.target = device}).explain();
  std::size_t reason = plan.find("power_and_wait is issued by the host");
  check((reason != std::string::npos) == has_launches, where + ": who issues power_and_wait, in\n" + plan);
  if (!has_launches) return;
  std::string rest = plan.substr(reason);
  check(has(rest, "its OpDef declares it as not capturable") && has(rest, "own_op.cu:"),
        where + ": the reason and the line, in\n" + plan);
}

// All bits that 20 steps of training leave behind: each step's loss, then the weights.
static std::vector<float> train(gs::DeviceId device, gs::Mode mode, const std::string& where) {
  gs::Graph g;
  gs::Value x = g.input("x", gs::f32, {kSize}), wanted = g.input("wanted", gs::f32, {kSize});
  gs::Variable w("w", gs::Tensor({0.5f, 0.6f, 0.7f, 0.8f, 0.9f, 1.1f}));
  gs::Value error = power(g.value(w), 3) * x - power_and_wait(wanted, 1);
  gs::Value loss = gs::mean(error * error);
  gs::sgd(loss, {w}, {.lr = 0.05});
  g.record("loss", loss);
  gs::Program program = gs::compile(g, {.target = device});
  program.write(x, kX);
  program.write(wanted, std::vector<float>{-4.0f, -1.0f, 0.0f, 0.6f, 2.0f, 3.4f});
  program.run(mode, {.steps = 20});
  std::vector<float> bits = program.records("loss");
  check(bits.size() == 20, where + ": 20 steps record 20 losses");
  check(bits.back() < 0.5f * bits.front(), where + ": training halves the loss");
  gs::Tensor weights = w.read();
  for (std::int64_t i = 0; i < kSize; ++i) bits.push_back(static_cast<float>(weights.at(i)));
  return bits;
}

static void check_device(gs::DeviceId device, bool has_launches, const std::string& name) {
  check_plan(device, has_launches, name);
  std::vector<float> first;
  for (gs::Mode mode : {gs::interactive_serial, gs::interactive_parallel, gs::sink}) {
    std::string where = name + ", " + std::string(to_string(mode));
    check_values(device, mode, where);
    std::vector<float> bits = train(device, mode, where);
    if (first.empty()) first = bits;
    check(std::memcmp(first.data(), bits.data(), bits.size() * sizeof(float)) == 0,
          where + ": the bits of " + std::string(to_string(gs::interactive_serial)));
  }
}

#ifdef GRAPHSINK_CAN_LAUNCH

static void cuda_call(cudaError_t code, const char* what) {
  check(code == cudaSuccess, std::string(what) + ": " + cudaGetErrorString(code));
}
#define CUDA_CALL(call) cuda_call(call, #call)

// Input, output and Variable lie in memory of ours; copies and runs are ordered by a stream of ours alone, and nothing
// waits for the program in between.
static void check_borrowed() {
  constexpr std::size_t kBytes = kSize * sizeof(float);
  constexpr int kRuns = 20;
  cudaStream_t stream = nullptr;
  CUDA_CALL(cudaStreamCreate(&stream));
  void *in = nullptr, *out = nullptr, *state = nullptr, *pinned = nullptr;
  CUDA_CALL(cudaMalloc(&in, kBytes));
  CUDA_CALL(cudaMalloc(&out, kBytes));
  CUDA_CALL(cudaMalloc(&state, kBytes));
  // For each run: the input, the output and the Variable.
  CUDA_CALL(cudaHostAlloc(&pinned, 3 * kRuns * kBytes, 0));
  float* host = static_cast<float*>(pinned);
  {
    gs::Graph g;
    gs::Value x = g.input("x", gs::f32, {kSize});
    gs::Variable total("total", gs::Tensor({9.0f, 9.0f, 9.0f, 9.0f, 9.0f, 9.0f}));
    gs::Value y = power(x, 3);
    g.output("y", y);
    assign(total, total + y);
    gs::Program program = gs::compile(g, {.target = gs::cuda(0)});
    program.bind_memory(x, in, kBytes);
    program.bind_memory(y, out, kBytes);
    program.bind_memory(total, state, kBytes);
    CUDA_CALL(cudaMemsetAsync(state, 0, kBytes, stream));  // the Variable's value is what its memory holds
    for (int run = 0; run < kRuns; ++run) {
      float* mine = host + 3 * kSize * run;
      for (std::int64_t i = 0; i < kSize; ++i) mine[i] = static_cast<float>(run + i);
      CUDA_CALL(cudaMemcpyAsync(in, mine, kBytes, cudaMemcpyHostToDevice, stream));
      program.run(run % 2 == 0 ? gs::sink : gs::interactive_parallel, {.stream = stream});
      CUDA_CALL(cudaMemcpyAsync(mine + kSize, out, kBytes, cudaMemcpyDeviceToHost, stream));
      CUDA_CALL(cudaMemcpyAsync(mine + 2 * kSize, state, kBytes, cudaMemcpyDeviceToHost, stream));
    }
    CUDA_CALL(cudaStreamSynchronize(stream));
    std::vector<float> sum(kSize, 0.0f);
    for (int run = 0; run < kRuns; ++run) {
      const float* mine = host + 3 * kSize * run;
      for (std::size_t i = 0; i < kSize; ++i) {
        float wanted = power_of(static_cast<float>(run) + static_cast<float>(i), 3);  // whole numbers: exact
        sum[i] += wanted;
        std::string where = "run " + std::to_string(run) + " on our stream, element " + std::to_string(i);
        check(mine[kSize + i] == wanted, where + ": the output in our memory is x^3");
        check(mine[2 * kSize + i] == sum[i], where + ": the Variable in our memory is the sum so far");
      }
    }
    program.sync();
  }
  CUDA_CALL(cudaFreeHost(pinned));
  for (void* memory : {in, out, state}) CUDA_CALL(cudaFree(memory));
  CUDA_CALL(cudaStreamDestroy(stream));
}

// Code of ours with a step of a program in between, captured and launched as one.
static void check_sunk() {
  constexpr std::size_t kBytes = kSize * sizeof(float);
  constexpr int kRuns = 6;
  cudaStream_t stream = nullptr;
  CUDA_CALL(cudaStreamCreate(&stream));
  void *in = nullptr, *out = nullptr;
  CUDA_CALL(cudaMalloc(&in, kBytes));
  CUDA_CALL(cudaMalloc(&out, kBytes));
  {
    gs::Graph g;
    gs::Value x = g.input("x", gs::f32, {kSize});
    gs::Value y = gs::external_op(
        {.name = "copied",
         .outputs = {{gs::f32, {kSize}}},
         .cuda =
             [](gs::CudaArgs& a) {
               CUDA_CALL(cudaMemcpyAsync(a.out<void>(0), a.in<void>(0), kBytes, cudaMemcpyDeviceToDevice, a.stream()));
             }},
        {power(x, 3) + 1.0})[0];
    g.output("y", y);
    gs::Program program = gs::compile(g, {.target = gs::cuda(0)});
    program.bind_memory(x, in, kBytes);
    program.bind_memory(y, out, kBytes);
    gs::SinkCache sinks({.strict = true});
    for (int run = 0; run < kRuns; ++run) {
      sinks.run(stream, gs::Key{in, out}, [&](cudaStream_t s) {
        (void)cudaMemsetAsync(in, 0, kBytes, s);
        program.enqueue(s);
      });
    }
    CUDA_CALL(cudaStreamSynchronize(stream));
    float values[kSize] = {};
    CUDA_CALL(cudaMemcpy(values, out, kBytes, cudaMemcpyDeviceToHost));
    for (float value : values) check(value == 1.0f, "a step in a SinkCache computes 0^3 + 1");
    check(sinks.report().launches == kRuns - 1, "each run but the first is a launch\n" + to_string(sinks.report()));
    check(program.steps() == kRuns, "each launch is a step");
  }
  for (void* memory : {in, out}) CUDA_CALL(cudaFree(memory));
  CUDA_CALL(cudaStreamDestroy(stream));
}

#endif

int main() try {
  std::string version = std::to_string(GRAPHSINK_VERSION_MAJOR) + "." + std::to_string(GRAPHSINK_VERSION_MINOR) + "." +
                        std::to_string(GRAPHSINK_VERSION_PATCH);
  check(gs::version() == version, "the library is of the version of its headers");
  check(gs::cuda_device_count() >= 0, "CUDA devices can be counted in any build");
  std::string devices = "cpu";
  check_device(gs::cpu(), false, "cpu");
#ifdef GRAPHSINK_CAN_LAUNCH
  if (gs::cuda_device_count() > 0) {
    devices += " and cuda";
    check_device(gs::cuda(0), true, "cuda");
    check_borrowed();
    check_sunk();
  }
#endif
  std::cout << "own ops on " << devices << "\n";
} catch (const gs::Error& e) {
  std::cerr << "error: " << e.what() << "\n";
  return 1;
}
