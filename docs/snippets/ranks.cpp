// Ranks: docs/ranks.md. Started alone it has one rank; by mpirun it has more.
#include <graphsink/graphsink.h>
#include <graphsink/ranks.h>

#include <unistd.h>

#include <filesystem>
#include <functional>
#include <iostream>
#include <string>
#include <vector>
namespace gs = graphsink;

// Data-parallel training, with the state of the optimizer divided among the ranks if `folder` is not empty.
static std::vector<float> train(const std::string& folder) {
  gs::Graph g;
  const gs::Value x = g.feed("x", gs::f32, {8, 16}), t = g.feed("t", gs::i32, {8});
  gs::Variable w("w", gs::Tensor::kaiming({16, 4}, 1)), b("b", gs::Tensor(gs::f32, {4}));
  const auto images = gs::Tensor::uniform({64, 16}, 7, -1.0f, 1.0f);
  const gs::Tensor labels(gs::Shape{64}, std::vector<std::int32_t>(64, 1));
  if (folder.empty()) {
    // [average]
    gs::Comm comm = gs::world();
    gs::broadcast_variables({{w, b}}, comm);              // all ranks begin with the values of rank 0
    gs::Value loss = cross_entropy(matmul(x, w) + b, t);  // of this rank's part of the batch
    std::vector<gs::Value> gradients = gs::grad(loss, {w, b});
    gs::apply(gs::AdamwOptions{.lr = 1e-3}, {w, b}, gs::average(gradients, comm));
    g.record("loss", gs::all_reduce(loss, comm, {.reduction = gs::Reduction::mean}));
    // [average]
    gs::Program program = gs::compile(g);
    program.write(x, gs::Tensor::uniform({20, 8, 16}, 7, -1.0f, 1.0f));
    program.write(t, gs::Tensor(gs::i32, {20, 8}));
    program.run(gs::sink, {.steps = 20});
    return program.records("loss");
  }
  gs::Comm comm = gs::world();
  const gs::RandomPart part(comm.rank());
  gs::Value loss = cross_entropy(matmul(dropout(x, 0.1), w) + b, t);
  gs::apply_sharded(gs::AdamwOptions{.lr = 1e-3}, {w, b}, gs::grad(loss, {w, b}), comm);
  g.record("loss", gs::all_reduce(loss, comm, {.reduction = gs::Reduction::mean}));
  gs::Program program = gs::compile(g);
  const auto source = gs::tensor_source({{"x", images}, {"t", labels}});
  const gs::OrderOptions order{.batch = 8, .seed = 1, .rank = comm.rank(), .world = comm.size()};
  gs::Loader loader(program, source, gs::sample_order(64, order), {{"x", x}, {"t", t}});
  gs::TrainOptions options{.steps = 20, .progress = nullptr};
  // [shards]
  options.save = {.folder = gs::shard_folder(folder, comm, program.variables()), .every = 10, .in_background = false};
  gs::train(program, loader, options);  // run1/rank0-of-4/step-000000000010.safetensors, run1/rank1-of-4/...
  // [shards]
  return program.records("loss");
}

// A block of a model that ranks share.
static std::size_t shared_block() {
  // [groups]
  gs::Comm world = gs::world();
  gs::Comm model = world.split(world.rank() / 2);  // pairs of ranks that share a model
  gs::Comm data = world.split(world.rank() % 2);   // ranks that have the same part of it
  // [groups]
  gs::Graph g;
  gs::Value x = g.input("x", gs::f32, {8, 16});
  gs::Variable gain("gain", gs::Tensor::full(gs::f32, {16}, 1.0)), bias("bias", gs::Tensor(gs::f32, {16}));
  // [parallel]
  gs::Variable widen_columns =
      gs::divided_variable("widen", gs::Tensor::kaiming({16, 32}, 2), 1, model);  // [16, 32 / size]
  gs::Variable narrow_rows =
      gs::divided_variable("narrow", gs::Tensor::kaiming({32, 16}, 9), 0, model);  // [32 / size, 16]
  gs::Value in = gs::enter_parallel(layer_norm(x, gain, bias), model);  // forward x, backward the sum over the ranks
  gs::Value hidden = gelu(matmul(in, widen_columns));                   // some of the hidden elements
  {
    gs::RandomPart part(model.rank(), {.axis = -1, .parts = model.size()});
    hidden = dropout(hidden, 0.1);  // as for one part of all hidden elements
  }
  gs::Value y = x + gs::leave_parallel(matmul(hidden, narrow_rows), model);  // forward the sum, backward as it is
  // [parallel]
  return gs::average(gs::grad(mean(y * y), {gain, bias, widen_columns, narrow_rows}), data).size();
}

// The device of a rank without NCCL.
static gs::DeviceId device_of_rank() {
  // [device]
  gs::Comm comm = gs::world();
  char machine[256] = "";
  gethostname(machine, sizeof machine - 1);
  const auto color = static_cast<int>(std::hash<std::string>()(machine) % (1U << 30));  // equal on one machine
  const int local_rank = comm.split(color).rank(), gpus = gs::cuda_device_count();
  gs::DeviceId device = gpus > 0 ? gs::cuda(local_rank % gpus) : gs::cpu();
  // [device]
  return device;
}

int main() try {
  const std::vector<float> losses = train("");
  std::filesystem::remove_all("run1");
  (void)train("run1");
  const bool goes_down = losses.size() == 20 && losses.back() < losses.front();
  const bool has_device = (device_of_rank().kind == gs::DeviceKind::cuda) == (gs::cuda_device_count() > 0);
  return goes_down && has_device && shared_block() == 4 && std::filesystem::exists("run1") ? 0 : 1;
} catch (const std::exception& e) {
  std::cerr << e.what() << "\n";
  return 1;
}
