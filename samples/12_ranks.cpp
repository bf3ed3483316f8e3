// Trains a small network on handwritten digits with several processes, each on a part of every batch:
//   mpirun -n 4 12_ranks
//   torchrun --no-python --nproc-per-node 4 12_ranks
//   mpirun -n 4 12_ranks --nccl     # each process on a GPU of its own, between which NCCL moves the gradients
// Every rank makes the same update, from the mean of the gradients of all ranks.
#include <graphsink/graphsink.h>
#include <graphsink/ranks.h>

#include <cstdlib>
#include <iostream>
#include <string_view>

namespace gs = graphsink;

int main(int argc, char** argv) try {
  const bool has_gpus = argc > 1 && std::string_view(argv[1]) == "--nccl";
  const gs::Comm comm = has_gpus ? gs::nccl_world() : gs::world();
  const std::int64_t batch = 64 / comm.size();  // size of a rank's part

  gs::Graph g;
  const gs::Value x = g.feed("x", gs::f32, {batch, 784}), t = g.feed("t", gs::i32, {batch});
  // Any seed will do: every rank begins with the values of rank 0.
  const gs::Variable w1("w1", gs::Tensor::kaiming({784, 64}, 1 + static_cast<std::uint64_t>(comm.rank())));
  const gs::Variable w2("w2", gs::Tensor::kaiming({64, 10}, 2));
  gs::broadcast_variables({{w1, w2}}, comm);

  const gs::Value loss = cross_entropy(matmul(relu(matmul(x, w1)), w2), t);
  gs::apply(gs::AdamwOptions{.lr = 2e-3}, {w1, w2}, gs::average(gs::grad(loss, {w1, w2}), comm));
  g.record("loss", gs::all_reduce(loss, comm, {.reduction = gs::Reduction::mean}));

  // Each rank takes a GPU of its own, if ranks are numbered machine by machine; else see docs/ranks.md.
  const int gpus = gs::cuda_device_count();
  const gs::DeviceId any = gpus > 0 ? gs::cuda(comm.rank() % gpus) : gs::cpu();
  gs::Program program = gs::compile(g, {.target = has_gpus ? gs::cuda(comm.device()) : any});
  const gs::Digits digits = gs::seeded_digits(4096, 7);
  gs::Loader loader(program, gs::tensor_source({{"image", digits.images}, {"label", digits.labels}}),
                    gs::sample_order(4096, {.batch = batch, .seed = 3, .rank = comm.rank(), .world = comm.size()}),
                    {{"image", x}, {"label", t}}, {.steps_per_launch = 16});
  for (int epoch = 0; epoch < 3; ++epoch)
    while (const std::int64_t steps = loader.next()) program.run(gs::sink, {.steps = steps});

  const std::vector<float> losses = program.records("loss");
  if (comm.rank() > 0) return 0;
  std::cout << program.explain() << comm.size() << (comm.size() == 1 ? " rank: " : " ranks: ") << losses.size()
            << " steps, loss " << losses.front() << " -> " << losses.back() << "\n";
  return std::cout.flush() ? 0 : 2;  // a full disk would lose what was printed
} catch (const gs::Error& e) {
  std::cerr << "error: " << e.what() << std::endl;
  // Under mpirun to return would wait for the other ranks in MPI_Finalize(). Else it sends them what they wait for.
  if (std::getenv("OMPI_COMM_WORLD_SIZE") != nullptr) std::_Exit(2);
  return 2;
}
