// Build in one place, run in another: a program file has a graph and its Variables, and what loads it needs to know
// nothing of either.
//   11_program_file --write FILE
//     builds a small training and writes it
//   11_program_file FILE [STEPS] [--mode MODE] [--save SAVED]
//     loads a file, runs steps on made-up data, prints what they record, and saves what was trained, to go on from
//     there
#include <graphsink/graphsink.h>

#include <algorithm>
#include <iomanip>
#include <iostream>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

namespace gs = graphsink;

namespace {

void write(const std::string& path) {
  gs::Graph g;
  gs::Value x = g.feed("x", gs::f32, {32, 8}), t = g.feed("t", gs::i32, {32});
  gs::Variable w1("w1", gs::Tensor::kaiming({8, 16}, 1)), w2("w2", gs::Tensor::kaiming({16, 4}, 2));
  gs::Value loss = cross_entropy(matmul(relu(matmul(x, w1)), w2), t);
  gs::adamw(loss, {w1, w2}, {.lr = 1e-2});
  g.record("loss", loss);
  gs::write_graph(path, g);
}

// Floats in [-1, 1), which are others for each name, and zeros of other types, which are valid indices.
gs::Tensor made_up(const gs::TensorType& type, std::uint64_t seed) {
  if (!is_float(type.dtype)) return gs::Tensor(type);
  return gs::Tensor::uniform(type.shape, seed, -1.0f, 1.0f).to(type.dtype);
}

gs::Mode mode_of(const std::string& name) {
  for (gs::Mode mode : gs::kAllModes)
    if (name == to_string(mode)) return mode;
  throw std::invalid_argument("there is no mode \"" + name + "\"");
}

void run(const std::string& path, int steps, gs::Mode mode, const std::string& saved) {
  gs::LoadedGraph loaded = gs::read_graph(path);
  gs::Program program = gs::compile(loaded.graph, {.target = gs::cuda_device_count() > 0 ? gs::cuda(0) : gs::cpu()});
  program.set_steps(loaded.step);
  for (const gs::Variable& variable : loaded.variables)
    std::cout << "Variable " << variable.name() << " " << to_string(variable.type()) << "\n";
  std::uint64_t seed = 1;
  for (const auto& [name, value] : loaded.inputs) {
    std::cout << "input " << name << " " << to_string(value.type()) << "\n";
    program.write(value, made_up({value.dtype(), value.shape().examples()}, seed++));
  }
  for (const auto& [name, value] : loaded.feeds) {
    std::cout << "feed " << name << " " << to_string(value.type()) << "\n";
    gs::Shape slices{steps};  // one for each step
    for (std::int64_t size : value.shape().examples().dims()) slices.push_back(size);
    program.write(value, made_up({value.dtype(), slices}, seed++));
  }
  program.run(mode, {.steps = steps});
  std::cout << std::setprecision(std::numeric_limits<double>::max_digits10);  // so that no bit is lost
  for (const auto& [name, value] : loaded.records)
    std::cout << name << " after " << program.steps() << " steps: " << program.records<double>(name).back() << "\n";
  if (saved.empty()) return;
  gs::WriteGraphOptions options;
  options.step = program.steps();
  gs::write_graph(saved, loaded.graph, options);
}

// Removes an option and its value from the arguments, and returns the value, or `otherwise` if it is not there.
std::string take_option(std::vector<std::string>& arguments, const std::string& name, const std::string& otherwise) {
  const auto option = std::find(arguments.begin(), arguments.end(), name);
  if (arguments.end() - option < 2) return otherwise;
  const std::string value = option[1];
  arguments.erase(option, option + 2);
  return value;
}

}  // namespace

int main(int argc, char** argv) try {
  std::vector<std::string> arguments(argv + 1, argv + argc);
  const std::string written = take_option(arguments, "--write", ""), saved = take_option(arguments, "--save", "");
  const gs::Mode mode = mode_of(take_option(arguments, "--mode", "sink"));
  const bool has_unknown = std::any_of(arguments.begin(), arguments.end(), [](const std::string& argument) {
    return argument.starts_with("--");  // or an option without its value
  });
  if (!written.empty() && arguments.empty()) {
    write(written);
  } else if (written.empty() && !has_unknown && (arguments.size() == 1 || arguments.size() == 2)) {
    run(arguments[0], arguments.size() == 2 ? std::stoi(arguments[1]) : 10, mode, saved);
  } else {
    std::cerr << "usage: 11_program_file --write FILE | FILE [STEPS] [--mode MODE] [--save SAVED]\n";
    return 2;
  }
} catch (const std::exception& e) {
  std::cerr << e.what() << "\n";
  return 1;
}
