// How long single ops take: for each name of a list, a graph with this op alone, whose inputs lie in memory already,
// runs step after step. peers/op_bench.py has the same list for PyTorch, and makes the same inputs.
#include <cmath>
#include <cstdio>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "graphsink/graphsink.h"
#include "profiling/clock.h"
#include "samples/cli.h"

namespace graphsink::bench {
namespace {

using nlohmann::json;

constexpr double kWindowUs = 20e3;

struct Options {
  std::string device = "cpu";
  std::vector<std::string> ops;
  std::int64_t size = 1024;
  int windows = 5;
  int threads = 1;
  bool list = false;
};

// Number i of a sequence of pseudo-random numbers in [0, 1). The same formula is in op_bench.py.
double random_number(std::uint32_t i, std::uint32_t sequence) {
  std::uint32_t h = (i + 1u + sequence * 7919u) * 2654435761u;
  h ^= h >> 15;
  h *= 2246822519u;
  h ^= h >> 13;
  return h * 0x1p-32;
}

// A graph under construction, and the data of its inputs.
struct Trial {
  Graph graph;
  std::vector<std::pair<Value, Tensor>> inputs;
  std::int64_t n;

  explicit Trial(std::int64_t size) : n(size) {}

  // Numbers from [low, high).
  Value floats(const Shape& shape, double low = -3, double high = 3, DType dtype = f32) {
    Tensor tensor(f64, shape);
    auto data = tensor.as<double>();
    auto sequence = static_cast<std::uint32_t>(inputs.size());
    for (std::size_t i = 0; i < data.size(); ++i)
      data[i] = low + (high - low) * random_number(static_cast<std::uint32_t>(i), sequence);
    return add(tensor.to(dtype));
  }
  Value matrix(double low = -3, double high = 3, DType dtype = f32) { return floats({n, n}, low, high, dtype); }
  // Integers from [0, end).
  Value indices(const Shape& shape, std::int64_t end) {
    Tensor tensor(i32, shape);
    auto data = tensor.as<std::int32_t>();
    auto sequence = static_cast<std::uint32_t>(inputs.size());
    for (std::size_t i = 0; i < data.size(); ++i) {
      double x = static_cast<double>(end) * random_number(static_cast<std::uint32_t>(i), sequence);
      data[i] = static_cast<std::int32_t>(x);
    }
    return add(tensor);
  }

  void output(const Value& value) { graph.output("y" + std::to_string(outputs++), value); }
  // The gradients of the sum of all elements, too.
  void output_gradients(const Value& value, const std::vector<Value>& wrt) {
    output(value);
    std::vector<Arg> args(wrt.begin(), wrt.end());
    for (const Value& gradient : grad(sum(value), args)) output(gradient);
  }

  int outputs = 0;

 private:
  Value add(Tensor tensor) {
    Value value = graph.input("x" + std::to_string(inputs.size()), tensor.dtype(), tensor.shape());
    inputs.emplace_back(value, std::move(tensor));
    return value;
  }
};

struct Case {
  std::string_view name;
  std::function<void(Trial&)> build;
};

// Element-wise, of a matrix with elements from [low, high).
template <class F>
Case of_matrix(std::string_view name, F f, double low = -3, double high = 3, DType dtype = f32) {
  return {name, [=](Trial& t) { t.output(f(t.matrix(low, high, dtype))); }};
}
template <class F>
Case of_two(std::string_view name, F f, double low = -3, double high = 3, DType dtype = f32) {
  return {name, [=](Trial& t) {
            Value a = t.matrix(low, high, dtype), b = t.matrix(low, high, dtype);
            t.output(f(a, b));
          }};
}

std::vector<Case> elementwise_cases() {
  auto plus = [](Value a, Value b) { return add(a, b); };
  auto logarithm = [](Value x) { return log(x); };
  auto exponential = [](Value x) { return exp(x); };
  auto sine = [](Value x) { return sin(x); };
  auto to_the = [](double exponent) { return [=](Value x) { return pow(x, exponent); }; };
  return {of_two("add", plus),
          of_two("add_f16", plus, -3, 3, f16),
          of_two("add_bf16", plus, -3, 3, bf16),
          of_two("mul", [](Value a, Value b) { return mul(a, b); }),
          of_two(
              "div", [](Value a, Value b) { return div(a, b); }, 0.5, 3),
          of_two("maximum", [](Value a, Value b) { return maximum(a, b); }),
          of_two("where", [](Value a, Value b) { return where(a < b, a, b); }),
          of_matrix("pow_2.5", to_the(2.5), 0.1, 3),
          of_matrix("pow_2", to_the(2)),
          of_two(
              "pow", [](Value a, Value b) { return pow(a, b); }, 0.1, 3),
          of_matrix("exp", exponential),
          of_matrix("exp_f64", exponential, -3, 3, f64),
          of_matrix("log", logarithm, 0.1, 3),
          of_matrix("log_f64", logarithm, 0.1, 3, f64),
          of_matrix("sin", sine),
          of_matrix("sin_f64", sine, -3, 3, f64),
          of_matrix("cos", [](Value x) { return cos(x); }),
          of_matrix("tanh", [](Value x) { return tanh(x); }),
          of_matrix("sigmoid", [](Value x) { return sigmoid(x); }),
          of_matrix("gelu", [](Value x) { return gelu(x); }),
          of_matrix("silu", [](Value x) { return silu(x); }),
          of_matrix("erf", [](Value x) { return erf(x); }),
          of_matrix(
              "sqrt", [](Value x) { return sqrt(x); }, 0.1, 3),
          of_matrix("relu", [](Value x) { return relu(x); }),
          of_matrix("cast_bf16", [](Value x) { return cast(x, bf16); }),
          of_matrix("cast_f16", [](Value x) { return cast(x, f16); })};
}

std::vector<Case> reduction_cases() {
  auto sums = [](std::vector<int> axes) { return [=](Value x) { return sum(x, axes); }; };
  auto maxima = [](std::vector<int> axes) { return [=](Value x) { return max(x, axes); }; };
  return {of_matrix("sum", sums({})),
          of_matrix("sum_axis0", sums({0})),
          of_matrix("sum_axis1", sums({1})),
          of_matrix("sum_bf16", sums({}), -3, 3, bf16),
          of_matrix("sum_f64", sums({}), -3, 3, f64),
          of_matrix("max_axis0", maxima({0})),
          of_matrix("max_axis1", maxima({1})),
          of_matrix("argmax_axis1", [](Value x) { return argmax(x, 1); }),
          of_matrix("softmax", [](Value x) { return softmax(x); }),
          of_matrix("softmax_axis0", [](Value x) { return softmax(x, 0); }),
          of_matrix("log_softmax", [](Value x) { return log_softmax(x); }),
          {"softmax_grad",
           [](Trial& t) {
             Value x = t.matrix();
             t.output_gradients(mul(softmax(x), t.matrix()), {x});
           }},
          {"cross_entropy",
           [](Trial& t) {
             Value x = t.matrix();
             t.output(cross_entropy(x, t.indices({t.n}, t.n)));
           }},
          {"cross_entropy_grad",
           [](Trial& t) {
             Value x = t.matrix();
             t.output_gradients(cross_entropy(x, t.indices({t.n}, t.n)), {x});
           }},
          {"layer_norm", [](Trial& t) {
             Value x = t.matrix(), gain = t.floats({t.n});
             t.output(layer_norm(x, gain, t.floats({t.n})));
           }}};
}

std::vector<Case> other_cases() {
  auto attend = [](Trial& t) {
    Shape shape{1, 8, t.n / 4, 64};
    Value q = t.floats(shape), k = t.floats(shape);
    return attention(q, k, t.floats(shape));
  };
  return {of_matrix("transpose", [](Value x) { return transpose(x); }),
          of_two("concat",
                 [](Value a, Value b) {
                   return concat({a, b}, 1);
                 }),
          {"gather_axis1",
           [](Trial& t) {
             Value x = t.matrix();
             t.output(gather(x, t.indices({t.n}, t.n), 1));
           }},
          {"embedding",
           [](Trial& t) {
             Value x = t.matrix();
             t.output(embedding(x, t.indices({t.n}, t.n)));
           }},
          of_matrix("max_pool2d",
                    [](Value x) {
                      return max_pool2d(x, {2, 2});
                    }),
          {"max_pool2d_grad",
           [](Trial& t) {
             Value x = t.matrix();
             t.output_gradients(max_pool2d(x, {2, 2}), {x});
           }},
          of_matrix("avg_pool2d",
                    [](Value x) {
                      return avg_pool2d(x, {2, 2});
                    }),
          {"conv2d",
           [](Trial& t) {
             Value x = t.floats({4, 16, t.n / 16, t.n / 16});
             t.output(conv2d(x, t.floats({32, 16, 3, 3}), {.padding = {1, 1}}));
           }},
          {"matmul_512",
           [](Trial& t) {
             Value a = t.floats({t.n / 2, t.n / 2});
             t.output(matmul(a, t.floats({t.n / 2, t.n / 2})));
           }},
          {"attention", [=](Trial& t) { t.output(attend(t)); }}};
}

std::vector<Case> all_cases() {
  std::vector<Case> cases;
  for (auto* part : {elementwise_cases, reduction_cases, other_cases})
    for (Case& one : part()) cases.push_back(std::move(one));
  return cases;
}

// The mean of all outputs and of their absolute values, by which peers are compared.
std::pair<double, double> means_of(Program& program, int outputs) {
  double sum = 0, absolute = 0;
  std::int64_t count = 0;
  for (int output = 0; output < outputs; ++output) {
    Tensor y = program.output("y" + std::to_string(output));
    count += y.shape().size();
    for (std::int64_t i = 0; i < y.shape().size(); ++i) {
      sum += y.at(i);
      absolute += std::abs(y.at(i));
    }
  }
  return {sum / static_cast<double>(count), absolute / static_cast<double>(count)};
}

double us_of(Program& program, std::int64_t steps) {
  const auto begun = Clock::now();
  program.run(sink, {.steps = steps});
  program.sync();
  return us_since(begun);
}

json measure(const Options& options, DeviceId device, const Case& measured) {
  Trial trial(options.size);
  measured.build(trial);
  Program program = compile(trial.graph, {.target = device, .tuning = {.threads = options.threads}});
  for (const auto& [value, tensor] : trial.inputs) program.write(value, tensor);
  program.run(sink, {.steps = 3});
  auto [mean, mean_absolute] = means_of(program, trial.outputs);
  std::int64_t steps = 1;
  for (double us = us_of(program, steps); us < kWindowUs; us = us_of(program, steps))
    steps = static_cast<std::int64_t>(std::ceil(static_cast<double>(steps) * std::min(10.0, 1.3 * kWindowUs / us)));
  std::vector<double> windows, processor;
  for (int i = 0; i < options.windows; ++i) {
    double begun = process_us();
    windows.push_back(us_of(program, steps) / static_cast<double>(steps));
    processor.push_back((process_us() - begun) / static_cast<double>(steps));
  }
  Spread us = spread_of(windows);
  return {{"op", measured.name},
          {"size", options.size},
          {"us", {{"min", us.min}, {"median", us.median}, {"max", us.max}}},
          {"cpu_us", spread_of(processor).median},
          {"mean", mean},
          {"mean_absolute", mean_absolute}};
}

int run(const Options& options) {
  const std::vector<Case> cases = all_cases();
  for (const std::string& name : options.ops) {
    auto has_name = [&](const Case& one) { return one.name == name; };
    if (std::none_of(cases.begin(), cases.end(), has_name))
      throw Error("op_times", Where(), "there is no op " + name, "name those that --list prints");
  }
  DeviceId device = cli::device_of(options.device);
  for (const Case& one : cases) {
    if (!options.ops.empty() && std::find(options.ops.begin(), options.ops.end(), one.name) == options.ops.end())
      continue;
    std::puts(options.list ? std::string(one.name).c_str() : measure(options, device, one).dump().c_str());
    cli::require_printed();
  }
  return 0;
}

}  // namespace
}  // namespace graphsink::bench

int main(int argc, char** argv) {
  using namespace graphsink;
  bench::Options options;
  CLI::App app("Measures how long single ops take, in microseconds; prints a line of JSON for each.");
  app.add_option("--device", options.device, "auto, cpu or cuda:N")->capture_default_str();
  app.add_option("--ops", options.ops, "names, separated by commas; default: all")->delimiter(',');
  app.add_option("--size", options.size, "rows and columns of matrices")
      ->check(cli::whole_number(64, 8192))
      ->capture_default_str();
  app.add_option("--windows", options.windows, "of 20 ms each, of which the median counts")
      ->check(cli::whole_number(1, 1000))
      ->capture_default_str();
  app.add_option("--threads", options.threads, "of the CPU; 0: as many as there are cores")
      ->check(cli::whole_number(0, 1024))
      ->capture_default_str();
  app.add_flag("--list", options.list, "print the names only");
  return cli::run_program(app, argc, argv, [&] { return bench::run(options); });
}
