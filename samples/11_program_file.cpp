// Build in one place, run in another: a program file has a graph and its Variables, and what loads it needs to know
// nothing of either.
//   11_program_file --write FILE     builds a small training and writes it
//   11_program_file FILE [STEPS]     loads a file, runs steps on made-up data, and prints what they record
#include <graphsink/graphsink.h>

#include <iostream>

namespace gs = graphsink;

namespace {

void write(const char* path) {
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

void run(const char* path, int steps) {
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
  program.run(gs::sink, {.steps = steps});
  for (const auto& [name, value] : loaded.records)
    std::cout << name << " after " << program.steps() << " steps: " << program.records<double>(name).back() << "\n";
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc == 3 && std::string(argv[1]) == "--write") {
    write(argv[2]);
  } else if (argc == 2 || argc == 3) {
    run(argv[1], argc == 3 ? std::stoi(argv[2]) : 10);
  } else {
    std::cerr << "usage: 11_program_file --write FILE | FILE [STEPS]\n";
    return 2;
  }
} catch (const std::exception& e) {
  std::cerr << e.what() << "\n";
  return 1;
}
