// The workloads of the fault loop, small, and one run of them.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "child_graph.h"
#include "device/cuda/handle.h"
#include "graphsink/cuda.h"
#include "graphsink/graphsink.h"
#include "samples/models/mlp.h"
#include "samples/models/synthetic.h"
#include "test_ops.h"

namespace graphsink::testing {

constexpr int kSteps = 6;        // of an undisturbed run
constexpr int kSecondShape = 4;  // from this step on open dimensions are larger

struct Input {
  Value value;
  std::function<Tensor(int step)> data;  // in the shape of that step
  bool is_feed = true;
};

// A fresh model: Variables hold their first values. Every one records "loss" and has the output "y".
struct Workload {
  explicit Workload(std::string its_name) : name(std::move(its_name)) {}

  std::string name;
  Graph graph;
  std::vector<Input> inputs;
  std::vector<Variable> variables;
  bool has_open_shape = false;
  bool stages = false;       // its feeds are written by Program::stage()
  bool has_streams = false;  // its plan uses several
  bool has_host_op = false;
  std::vector<DeviceId> further_devices;  // of the program
  int devices = 1;                        // how many answer; with two, the second is the thread's current one
  int stride = 1;                         // of the calls that fail
};

inline std::uint64_t seed_of(int step) { return static_cast<std::uint64_t>(step) + 7; }
inline std::int64_t batch_of(int step) { return step < kSecondShape ? 4 : 5; }

inline Workload chain_workload() {
  models::Model model = models::chain(20);
  Workload w("chain");
  w.graph = model.graph;
  w.variables = model.variables;
  w.graph.output("y", w.graph.value(model.variables[0]));
  return w;
}

// The chain, on a machine where the program's device is not the current one.
inline Workload two_devices_workload() {
  Workload w = chain_workload();
  w.name = "two devices";
  w.stride = 3;
  w.devices = 2;
  return w;
}

inline Workload mlp_workload() {
  Workload w("mlp");
  w.has_open_shape = true;
  w.stages = true;
  models::Mlp mlp(6, 5, 3, 1);
  Value x = w.graph.feed("x", f32, {open(4), 6});
  Value t = w.graph.feed("t", i32, {open(4)});
  Value logits = mlp.logits(x);
  Value loss = cross_entropy(logits, t);
  w.graph.output("y", logits);
  Optimizer optimizer = adamw(loss, {mlp.w1, mlp.w2, mlp.w3}, {.lr = 0.05});
  w.graph.record("loss", loss);
  w.inputs = {{x,
               [](int step) {
                 return Tensor::uniform({batch_of(step), 6}, seed_of(step));
               }},
              {t, [](int step) {
                 Tensor labels(i32, {batch_of(step)});
                 for (auto& label : labels.as<std::int32_t>()) label = step % 3;
                 return labels;
               }}};
  w.variables = {mlp.w1, mlp.w2, mlp.w3, optimizer.lr};
  w.variables.insert(w.variables.end(), optimizer.state.begin(), optimizer.state.end());
  return w;
}

// Work on two devices of one program.
inline Workload further_device_workload() {
  Workload w("further device");
  w.stride = 3;
  w.devices = 2;
  w.further_devices = {cuda(1)};
  Variable state("state", Tensor({1.0f, 2.0f}));
  Value x = w.graph.feed("x", f32, {2});
  Value there = tanh(mul(x, state, on_device(1)), on_device(1));
  Value next = add(w.graph.value(state) * 0.5, there, on_device) + w.graph.constant(Tensor({0.25f, 0.5f}));
  assign(state, next);
  w.graph.output("y", there);
  w.graph.record("loss", sum(next, {}, {}, on_device));
  w.inputs = {{x, [](int step) { return Tensor::uniform({2}, seed_of(step)); }}};
  w.variables = {state};
  return w;
}

// A CPU op between CUDA ops, an input and a constant, and one that reads the input, whose copy is no part of the step.
// Its commit is two kernels: an optimizer's and that of the store.
inline Workload host_op_workload() {
  Workload w("host op");
  w.has_open_shape = true;
  w.has_host_op = true;
  Variable scale("scale", Tensor({0.5f, 2.0f})), total("total", Tensor::scalar(0.0f));
  Value x = w.graph.feed("x", f32, {open(4), 2});
  Value b = w.graph.input("b", f32, {2});
  Value y = emit(cpu_plus_one, {x * scale + b})[0] * w.graph.constant(Tensor({0.25f, 0.125f}));
  Value loss = sum(y * y) + sum(emit(cpu_plus_one, {b})[0]);
  w.graph.output("y", y);
  assign(total, w.graph.value(total) + loss);
  Value own = sum(w.graph.value(scale) * w.graph.value(scale));
  sgd(own, {scale}, {.lr = 0.01});
  w.graph.record("loss", loss);
  w.inputs = {{x,
               [](int step) {
                 return Tensor::uniform({batch_of(step), 2}, seed_of(step));
               }},
              {b,
               [](int) {
                 return Tensor({0.5f, -0.5f});
               },
               false}};
  w.variables = {scale, total};
  return w;
}

// A loop, a branch, a choice, and branches of the plan on several streams.
inline Workload control_workload() {
  Workload w("control");
  w.has_streams = true;
  w.stride = 3;
  Variable state("state", Tensor::scalar(0.5f));
  Value x = w.graph.feed("x", f32, {});
  Value i0 = w.graph.constant(Tensor::scalar<std::int32_t>(0));
  auto [u, count] = while_(
      {x, i0}, [](Value, Value i) { return i < 2.0; },
      [](Value v, Value i) {
        return std::array{v * 0.5 + 1.0, i + 1};
      });
  Value chosen = if_(
      u > 1.5, [u = u] { return u * 3.0; }, [u = u] { return u - 1.0; });
  Value left = x, right = w.graph.value(state);
  for (int i = 0; i < 4; ++i) left = left * 0.75 + 0.5, right = right * 0.5 - 0.25;
  Value kept = switch_(count, {[u = u] { return u; }, [u = u] { return u + 1.0; }, [u = u] { return u * 0.5; }});
  Value next = left + right + chosen + kept;
  assign(state, next);
  w.graph.output("y", next);
  w.graph.record("loss", next);
  w.inputs = {{x, [](int step) { return Tensor::scalar(0.25f * static_cast<float>(step)); }}};
  w.variables = {state};
  return w;
}

// A loop that the host drives beside the rest of a launch.
inline Workload host_loop_workload() {
  Workload w("host loop");
  w.stride = 3;
  Variable state("state", Tensor({0.5f, 1.0f}));
  Value x = w.graph.feed("x", f32, {2});
  auto [looped] = while_(
      {x * 1.0}, [](Value v) { return sum(v) < 6.0; }, [](Value v) { return emit(cpu_plus_one, {v})[0]; });
  Value next = tanh(w.graph.value(state) * 0.75) + looped;
  assign(state, next);
  w.graph.output("y", next);
  w.graph.record("loss", sum(next));
  w.inputs = {{x, [](int step) { return Tensor::uniform({2}, seed_of(step)); }}};
  w.variables = {state};
  return w;
}

// An op whose body enqueues a graph of its own, which becomes a child graph of the capture.
struct OwnGraph {
  std::shared_ptr<GraphHandle> graph = std::make_shared<GraphHandle>();
  std::shared_ptr<GraphExecHandle> exec = std::make_shared<GraphExecHandle>();

  OwnGraph() {
    StreamHandle stream;
    cudaGraphInstantiateParams params = {};
    if (cudaStreamCreateWithFlags(stream.out(), cudaStreamNonBlocking) != cudaSuccess ||
        cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeThreadLocal) != cudaSuccess ||
        cudaStreamEndCapture(stream.get(), graph->out()) != cudaSuccess ||
        cudaGraphInstantiateWithParams(exec->out(), graph->get(), &params) != cudaSuccess)
      throw std::runtime_error("no graph");
  }
};
inline void run_own_graph(CudaArgs& a) {
  const auto& own = a.attrs<OwnGraph>();
  const GraphCall made = enqueue_graph(a.stream(), own.graph->get(), own.exec->get());
  check_cuda(made.code, made.call, a);
  check_cuda(cudaMemcpyAsync(a.out<void>(0), a.in<void>(0), a.in_type(0).bytes(), cudaMemcpyDefault, a.stream()),
             "cudaMemcpyAsync", a);
}
inline const OpDef own_graph{.name = "own_graph", .infer = infer_like_first, .bodies = {run_own_graph}};

// That op behind a batch of products.
inline Workload child_graph_workload() {
  Workload w("child graph");
  w.stride = 3;
  Variable state("state", Tensor({1.0f, 2.0f}));
  Value halves = w.graph.constant(Tensor::full(f32, {2, 1, 1}, 0.5));
  Value products = matmul(reshape(w.graph.value(state), {2, 1, 1}), halves);
  Value next = emit(own_graph, {reshape(products, {2})}, OwnGraph())[0] + 1.0;
  assign(state, next);
  w.graph.output("y", next);
  w.graph.record("loss", sum(next));
  w.variables = {state};
  return w;
}

// A workload and its program, from compile() to the destructor.
class Session {
 public:
  explicit Session(Workload workload) : work(std::move(workload)) {}

  void compile() {
    program.emplace(graphsink::compile(work.graph, {.target = cuda(0),
                                                    .further_devices = work.further_devices,
                                                    .tuning = {.programmatic_launch = true, .capture_after = 1},
                                                    .limits = {.shape_cache_shapes = 1}}));
  }
  void feed(int step) {
    for (const Input& input : work.inputs) {
      if (work.stages && input.is_feed) {
        write_staged(input, step, 1);
      } else {
        program->write(input.value, input.data(step));
      }
    }
  }
  // The slices of steps [first, first + count), in memory of Program::stage().
  void write_staged(const Input& input, int first, std::int64_t count) {
    StagedSlices slices = program->stage(input.value, count, input.data(first).shape());
    for (std::int64_t i = 0; i < count; ++i) {
      const Tensor slice = input.data(first + static_cast<int>(i));
      std::memcpy(slices.bytes(i).data(), slice.data(), slice.bytes());
    }
    program->write(std::move(slices));
  }
  // The same for steps [first, first + 3) of one run.
  void feed_three(int first) {
    for (const Input& input : work.inputs) {
      Tensor slice = input.data(first);
      if (!input.is_feed) {
        program->write(input.value, slice);
        continue;
      }
      if (work.stages) {
        write_staged(input, first, 3);
        continue;
      }
      Shape shape{3};
      for (std::int64_t dim : slice.shape().dims()) shape.push_back(dim);
      Tensor slices(slice.dtype(), shape);
      for (int i = 0; i < 3; ++i) {
        slice = input.data(first + i);
        std::memcpy(slices.data() + static_cast<std::size_t>(i) * slice.bytes(), slice.data(), slice.bytes());
      }
      program->write(input.value, slices);
    }
  }
  void run(Mode mode, int steps = 1) {
    program->run(mode, {.steps = steps});
    program->sync();
  }
  void read_losses() {
    for (float loss : program->records("loss")) losses.push_back(loss);
  }
  std::vector<Tensor> read_variables() const {
    std::vector<Tensor> values;
    for (const Variable& variable : work.variables) values.push_back(variable.read());
    return values;
  }
  void write_variables(const std::vector<Tensor>& values) {
    for (std::size_t i = 0; i < values.size(); ++i) work.variables[i].write(values[i]);
  }

  // Memory of the caller's, which holds the value of the first Variable.
  void allocate_callers() {
    Tensor value = work.variables[0].read();
    void* memory = nullptr;
    cudaMalloc(&memory, value.bytes());
    callers = std::shared_ptr<void>(memory, [](void* address) { cudaFree(address); });
    cudaMemcpy(memory, value.data(), value.bytes(), cudaMemcpyHostToDevice);
  }

  Workload work;
  std::shared_ptr<void> callers;
  std::optional<Program> program;
  std::vector<float> losses;  // read so far
  std::vector<Tensor> saved;  // of the Variables
};

// What a run that nothing disturbs gives.
struct Reference {
  std::vector<float> losses;
  std::vector<std::vector<Tensor>> states;  // before each step, and at last after all
};
inline Reference undisturbed(Workload workload) {
  Session session(std::move(workload));
  Reference reference;
  session.compile();
  for (int step = 0; step < kSteps; ++step) {
    reference.states.push_back(session.read_variables());
    session.feed(step);
    session.run(interactive);
  }
  reference.states.push_back(session.read_variables());
  session.read_losses();
  reference.losses = session.losses;
  return reference;
}

inline bool same_bits(const Tensor& a, const Tensor& b) {
  return a.type() == b.type() && std::memcmp(a.data(), b.data(), a.bytes()) == 0;
}

}  // namespace graphsink::testing
