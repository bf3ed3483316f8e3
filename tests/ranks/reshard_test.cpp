// Checkpoints of divided optimizers go on with another number of ranks, or with none, without losing a bit.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "graphsink/graphsink.h"
#include "graphsink/ranks.h"
#include "rank_checkpoints.h"
#include "rank_world.h"

namespace graphsink::testing {
namespace reshard_test {

constexpr std::int64_t kRows = 12, kSteps = 5;

// A model, its optimizer and its program. All ranks of `comm` see one batch, and may divide the state of the optimizer.
struct Training {
  Training(DType dtype, std::uint64_t seed, const Comm& comm, bool divides)
      : w1("w1", Tensor::kaiming({5, 7}, seed).to(dtype)),
        w2("w2", Tensor::kaiming({7, 3}, seed + 1)),
        program(built(w1, w2, comm, divides)) {}

  static Program built(const Variable& w1, const Variable& w2, const Comm& comm, bool divides) {
    Graph g;
    const Value x = g.input("x", f32, Shape{kRows, 5}), t = g.input("t", i32, Shape{kRows});
    const Value hidden = tanh(matmul(x, cast(g.value(w1), f32)));
    const std::vector<Value> gradients = grad(cross_entropy(matmul(hidden, w2), t), {w1, w2});
    const AdamwOptions options{.lr = 1e-2};
    if (divides) {
      (void)apply_sharded(options, {w1, w2}, gradients, comm);
    } else {
      (void)apply(options, {w1, w2}, average(gradients, comm));
    }
    Program program = compile(g, {.target = cpu()});
    program.write(x, Tensor::normal({kRows, 5}, 11));
    Tensor targets(i32, {kRows});
    std::int32_t next = 0;
    for (std::int32_t& target : targets.as<std::int32_t>()) target = next++ % 3;
    program.write(t, targets);
    return program;
  }

  Checkpoint after(std::int64_t steps) {
    program.run(sink, {.steps = steps});
    program.sync();
    return snapshot(program);
  }

  Variable w1, w2;
  Program program;
};

Training whole(const Comm& comm, DType dtype, std::uint64_t seed) { return Training(dtype, seed, comm, false); }
Training divided(const Comm& comm, DType dtype, std::uint64_t seed) { return Training(dtype, seed, comm, true); }

class Reshard : public ::testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(Types, Reshard, ::testing::Values(f32, bf16),
                         [](const auto& info) { return std::string(to_string(info.param)); });

TEST_P(Reshard, FromManyRanksToOneAndBack) {
  Training one = whole(world(), GetParam(), 1), many = divided(world(), GetParam(), 1);
  const Checkpoint of_one = one.after(kSteps), mine = many.after(kSteps);
  const std::vector<Checkpoint> all = of_all(mine, world());
  expect_equal(reshard(all, one.program.variables()), of_one);
  expect_equal(reshard({&of_one, 1}, many.program.variables()), mine);
  expect_equal(reshard(all, many.program.variables()), mine);
}

// Half of the ranks go on from the files of all, and take the steps that they take without dividing the state.
TEST_P(Reshard, FewerRanksGoOn) {
  if (world().size() < 2) return;  // there are no fewer
  Training one = whole(world(), GetParam(), 1), many = divided(world(), GetParam(), 1);
  const Checkpoint of_one = one.after(kSteps);
  const std::vector<Checkpoint> all = of_all(many.after(kSteps), world());
  const Comm half = world().split(world().rank() % 2);
  Training fewer = divided(half, GetParam(), 7), same = whole(half, GetParam(), 7);  // begin with other values
  (void)restore(same.program, of_one);
  const Checkpoint start = reshard(all, fewer.program.variables());
  const Restored restored = restore(fewer.program, start);
  EXPECT_TRUE(restored.missing.empty() && restored.unused.empty());
  const std::vector<Checkpoint> after = of_all(fewer.after(kSteps), half);
  expect_equal(reshard(after, same.program.variables()), same.after(kSteps));
}

TEST(ReshardRefuses, WhatIsNotTheFilesOfAllRanks) {
  Training many = divided(world(), f32, 1);
  std::vector<Checkpoint> all = of_all(many.after(1), world());
  const std::vector<Variable> variables = whole(one_rank(), f32, 1).program.variables();
  EXPECT_TRUE(has(problem_of([&] { (void)reshard({}, variables); }), "no checkpoint"));
  if (world().size() == 1) return;
  all[1].source = "b.safetensors";
  std::vector<Checkpoint> older = all;
  older[1].metadata["step"] = "0";
  EXPECT_EQ(problem_of([&] { (void)reshard(older, variables); }),
            "reshard: checkpoint 0 (" + all[0].source + ") is of step 1, and checkpoint 1 (b.safetensors) of step 0");
  std::vector<Checkpoint> swapped = all;
  std::swap(swapped[0].tensors, swapped[1].tensors);
  for (const std::vector<Variable>& of : {variables, many.program.variables()}) {
    std::vector<Checkpoint> fewer(all.begin(), all.end() - 1);
    const std::string problem = problem_of([&] { (void)reshard(fewer, of); });
    EXPECT_TRUE(has(problem, "shard0") && has(problem, "as one of " + std::to_string(fewer.size()) + " shards"))
        << problem;
  }
  // The shards of rank 1 in the place of those of rank 0 find no place, and restore() says so.
  const Checkpoint odd = reshard(swapped, variables);
  EXPECT_TRUE(odd.tensors.contains("w1.shard1.adamw.m"));
  Training one = whole(one_rank(), f32, 1);
  EXPECT_THROW((void)restore(one.program, odd), Error);
}

TEST(ReshardRefuses, ATensorThatDiffersBetweenRanks) {
  const Variable mean("mean", Tensor({1.0f}));
  std::vector<Checkpoint> all(2, snapshot(std::vector<Variable>{mean}));
  all[1].tensors.at("mean").as<float>()[0] = 2;
  EXPECT_EQ(problem_of([&] { (void)reshard(all, std::vector<Variable>{mean}); }),
            "reshard: \"mean\" is another one in checkpoint 1 than in checkpoint 0");
}

// A name that ends as the names of shards do is one like others.
TEST(ReshardKeeps, NamesOfUsers) {
  const Variable w("emb.shard1", Tensor({1.0f, 2.0f, 3.0f})), shard("emb.shard1.shard1.adamw.m", Tensor({3.0f, 0.0f}));
  const Checkpoint parameter = snapshot(std::vector<Variable>{w});
  std::vector<Checkpoint> all(3, parameter);
  for (std::size_t rank = 0; rank < 3; ++rank)
    all[rank].tensors.emplace("emb.shard1.shard" + std::to_string(rank) + ".adamw.m",
                              Tensor({static_cast<float>(rank + 1)}));
  const Checkpoint second_of_two = reshard(all, std::vector<Variable>{w, shard});
  EXPECT_EQ(second_of_two.tensors.at("emb.shard1").type(), w.type());
  const Tensor& part = second_of_two.tensors.at("emb.shard1.shard1.adamw.m");
  EXPECT_EQ(std::vector<float>(part.as<float>().begin(), part.as<float>().end()), (std::vector<float>{3, 0}));
}

// A tensor for which there is no Variable is not lost without a word.
TEST(ReshardKeeps, WhatNoVariableTakes) {
  Training many = divided(world(), f32, 1);
  std::vector<Checkpoint> all = of_all(snapshot(many.program), world());
  all.back().tensors.emplace("extra", Tensor::scalar(1.0f));
  EXPECT_TRUE(reshard(all, many.program.variables()).tensors.contains("extra"));
}

}  // namespace reshard_test
}  // namespace graphsink::testing
