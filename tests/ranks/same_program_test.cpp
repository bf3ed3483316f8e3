// Ranks that average gradients run one program: its graph and the values that it begins with are compared.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "graphsink/graphsink.h"
#include "graphsink/ranks.h"
#include "program_fixture.h"
#include "rank_world.h"

namespace graphsink::testing {
namespace same_program_test {

int me() { return world().rank(); }
int bad() { return world().size() - 1; }

// What a rank makes of a training of two layers.
struct Choice {
  double lr = 0.1, weight_decay = 0, clip_norm = 0, scale = 0.5;
  bool adamw = false, sharded = false, relu = false;
  std::uint64_t seed = 1;
  AverageOptions average{};
};

struct Training {
  Training(const Choice& choice, const Comm& comm, const CompileOptions& options)
      : w2("w2", Tensor::kaiming({8, 3}, choice.seed)), program(compile(graph(choice, comm), options)) {}

  Graph graph(const Choice& choice, const Comm& comm) {
    Graph g;
    x = g.feed("x", f32, Shape{4, 6});
    t = g.feed("t", i32, Shape{4});
    const Value first = matmul(x, w1);
    const Value hidden = choice.relu ? relu(first) : tanh(first);
    const Value loss = mul(cross_entropy(matmul(hidden, w2), t), choice.scale);
    update(choice, comm, grad(loss, {w1, w2}));
    g.record("loss", all_reduce(loss, comm, {Reduction::mean}));
    return g;
  }
  void update(const Choice& choice, const Comm& comm, const std::vector<Value>& gradients) {
    const GradientOptions of_gradients{.clip_norm = choice.clip_norm};
    const SgdOptions sgd{.lr = choice.lr, .weight_decay = choice.weight_decay, .gradients = of_gradients};
    if (choice.sharded) {
      apply_sharded(sgd, {w1, w2}, gradients, comm, choice.average);
    } else if (choice.adamw) {
      apply(AdamwOptions{.lr = choice.lr}, {w1, w2}, average(gradients, comm, choice.average));
    } else {
      apply(sgd, {w1, w2}, average(gradients, comm, choice.average));
    }
  }
  // Data of this rank.
  void train(Mode mode, int steps = 2) {
    program.write(x, Tensor::normal({steps, 4, 6}, static_cast<std::uint64_t>(1 + me())));
    program.write(t, Tensor::full(i32, {steps, 4}, me() % 3));
    program.run(mode, {.steps = steps});
    program.sync();
  }

  Variable w1{"w1", Tensor::kaiming({6, 8}, 1)}, w2;
  Value x, t;
  Program program;
};

class SameProgram : public OnRanks {
 protected:
  std::string problem_with(const Choice& choice) {
    return problem_of([&] { Training(choice, world(), {.target = GetParam().device}).train(sink); });
  }
};

INSTANTIATE_TEST_SUITE_P(Devices, SameProgram, ::testing::ValuesIn(rank_ways()), rank_way_name);

// A further graph may have the ops of an earlier one, and other Variables.
TEST_P(SameProgram, IsComparedForEachGraph) {
  if (world().size() == 1) return;
  EXPECT_EQ(problem_with({}), "");
  Choice choice;
  if (me() == bad()) choice.seed = 2;
  EXPECT_TRUE(has(problem_with(choice), "begin with different values: of w2 f32[8, 3], on rank 0 and on rank "));
  EXPECT_EQ(problem_with({}), "");
}

// So may a graph that goes on growing behind a program.
TEST_P(SameProgram, IsComparedForWhatAGraphGetsLater) {
  if (world().size() == 1) return;
  const Variable first("first", Tensor({1.0f})), later("later", Tensor({me() == bad() ? 2.0f : 1.0f}));
  Graph g;
  const auto train = [&](const Variable& variable) {
    const Value gradient = grad(sum(mul(g.value(variable), variable)), {variable})[0];
    (void)apply(SgdOptions{}, {variable}, average(std::vector{gradient}, world()));
    Program program = compile(g);
    return problem_of([&] {
      program.run(sink);
      program.sync();
    });
  };
  EXPECT_EQ(train(first), "");
  EXPECT_TRUE(has(train(later), "begin with different values: of later f32[1], on rank 0 and on rank "));
}

// Every rank names the first op, or the Variable, that differs, as it is on both ranks.
TEST_P(SameProgram, OfOneRankAloneIsRefused) {
  if (world().size() == 1) return;
  struct Row {
    const char* what;
    void (*change)(Choice&);
    std::vector<std::string> named;
  };
  const Row rows[] = {
      {"another learning rate", [](Choice& c) { c.lr = 0.2; }, {"begin with different values", "sgd.lr f32[]"}},
      {"a forgotten broadcast_variables()",
       [](Choice& c) { c.seed = 2; },
       {"begin with different values", "of w2 f32[8, 3]"}},
      {"another optimizer",
       [](Choice& c) { c.adamw = true; },
       {"different updates", "is sgd (momentum 0,", "is variable: f32[6, 8] ("}},
      {"another weight decay",
       [](Choice& c) { c.weight_decay = 0.01; },
       {"different updates", "weight_decay 0,", "weight_decay 0.01,"}},
      {"another clip_norm", [](Choice& c) { c.clip_norm = 1; }, {"different updates", "is gradient_norm of"}},
      {"another activation",
       [](Choice& c) { c.relu = true; },
       {"different updates", "tanh of 3: f32[4, 8] (", "relu of 3: f32[4, 8] ("}},
      {"another number", [](Choice& c) { c.scale = 0.25; }, {"different updates", "constant 0.5", "constant 0.25"}},
      {"other collectives", [](Choice& c) { c.sharded = true; }, {"different collectives"}},
      {"a rank that does not compare",
       [](Choice& c) { c.average.same_program = false; },
       {"different collectives", "(mean, root 0, same program)", "(mean, root 0)"}},
  };
  for (const Row& row : rows) {
    Choice choice;
    if (me() == bad()) row.change(choice);
    const std::string problem = problem_with(choice);
    EXPECT_TRUE(has(problem, "bind: the ranks ")) << row.what << ": " << problem;
    EXPECT_TRUE(has(problem, "rank " + std::to_string(bad()))) << row.what << ": " << problem;
    for (const std::string& text : row.named) EXPECT_TRUE(has(problem, text)) << row.what << ": " << problem;
  }
}

TEST_P(SameProgram, IsComparedWhereStatesAreDivided) {
  if (world().size() == 1) return;
  Choice choice{.sharded = true};
  EXPECT_EQ(problem_with(choice), "");
  choice.scale = 0.75;  // a program that was not compared yet
  if (me() == bad()) choice.lr = 0.2;
  EXPECT_TRUE(has(problem_with(choice), "of sgd.lr f32[]"));
  choice.lr = 0.1;
  if (me() == bad()) choice.seed = 2;
  EXPECT_TRUE(has(problem_with(choice), "of w2 f32[8, 3]"));
}

TEST_P(SameProgram, IsNotAskedForWhereThatIsSaid) {
  for (const bool is_sharded : {false, true}) {
    Choice choice{.sharded = is_sharded, .average = {.same_program = false}};
    if (me() == bad()) {
      choice.relu = true;
      choice.seed = 2;
    }
    EXPECT_EQ(problem_with(choice), "");
  }
}

// Data, what draws from a seed, and what no gradient depends on.
TEST_P(SameProgram, MayDifferInData) {
  const RandomPart part(me()), of_hidden(me(), {.axis = 1, .parts = world().size()});
  const auto seed = static_cast<std::uint64_t>(10 + me());
  const Variable table("table", Tensor::normal({8, 6}, seed));  // that no step writes
  Variable place("place", Tensor::full(i32, {}, me() % 8));     // that a step writes without gradients
  const Variable w("w", Tensor::kaiming({6, 1}, 1));
  Graph g;
  const Value x = g.input("x" + std::to_string(me()), f32, {open(4 + me()), 6});
  // The first uses of a Variable and of a number that the update uses, too.
  if (me() == bad()) g.record("norm", sum(g.value(w) * 0.25));
  const Value row = gather(g.value(table), reshape(g.value(place), {1}));
  const Value noise = g.constant(Tensor::normal({6}, seed));
  if (me() == bad()) g.record("largest", max(x));
  const Value y = matmul((dropout(x, 0.5) + row + noise) * 0.25, w), loss = mean(y * y);
  apply(AdamwOptions{.gradients = {.clip_norm = 1, .accumulate = 2}}, {w}, average(grad(loss, {w}), world()));
  g.assign(place, g.value(place) * 5 - g.value(place) * 4);
  Program program = compile(g, {.seed = static_cast<std::uint32_t>(seed)});
  for (int run = 0; run < 3; ++run) {
    program.write(x, Tensor::normal({3 + (me() + run) % 3, 6}, seed));
    program.run(sink, {.steps = 2});
    program.sync();
  }
}

// A momentum that is written by hand, and on one rank never stored.
TEST_P(SameProgram, AssignsTheSameVariables) {
  if (world().size() == 1) return;
  const Variable w("w", Tensor::kaiming({6, 1}, 1)), momentum("momentum", Tensor(f32, {6, 1}));
  Graph g;
  const Value x = g.input("x", f32, {4, 6});
  const Value next = g.value(momentum) * 0.9 + average(grad(mean(matmul(x, w)), {w}), world())[0];
  g.assign(w, g.value(w) - next * 0.1);
  if (me() != bad()) g.assign(momentum, next);
  Program program = compile(g);
  program.write(x, Tensor::full(f32, {4, 6}, 1.0));
  const std::string problem = problem_of([&] { program.run(sink); });
  EXPECT_TRUE(has(problem, "different updates") && has(problem, "no further one")) << problem;
  EXPECT_TRUE(has(problem, "assign ")) << problem;
}

// A rank that cannot read a value that the others compare tells them so.
TEST_P(SameProgram, IsNotComparedWhereAValueCannotBeRead) {
  if (world().size() == 1) return;
  const Variable w("w", Tensor::kaiming({6, 1}, 1));
  Graph local;
  const Value by = local.input("by", f32, Shape{});
  local.assign(w, check_finite(local.value(w) / by));
  Program failing = compile(local);
  failing.write(by, Tensor::scalar(me() == bad() ? 0.0f : 1.0f));
  failing.run(sink);
  Graph g;
  const Value x = g.input("x", f32, {4, 6});
  apply(SgdOptions{.lr = 0.1}, {w}, average(grad(mean(matmul(x, w)), {w}), world()));
  Program program = compile(g);
  program.write(x, Tensor::full(f32, {4, 6}, 1.0));
  const std::string problem = problem_of([&] { program.run(sink); });
  EXPECT_TRUE(has(problem, me() == bad() ? "check_finite" : "cannot bind its plan")) << problem;
}

TEST_P(SameProgram, HasTheSameOpsOnTheRootOfABroadcast) {
  const Variable w("w", Tensor::full(f32, {3}, 2.0));
  Graph g;
  const Value x = g.input("x", f32, Shape{3});
  apply(SgdOptions{.lr = 1}, {w}, average(grad(sum(mul(broadcast(mul(x, w), world(), bad()), x)), {w}), world()));
  Program program = compile(g);
  program.write(x, Tensor::full(f32, {3}, 1.0 + me()));
  program.run(sink);
  program.sync();
  const int n = world().size();
  EXPECT_FLOAT_EQ(w.read().as<float>()[0], 2.0f - static_cast<float>(n * (n + 1) / 2));
}

// Ranks that have parts of a model compare within the groups that have the same part.
TEST_P(SameProgram, IsThatOfTheRanksWithOnePartOfTheModel) {
  const int n = world().size();
  if (n % 2 != 0) return;
  const Comm model = world().split(me() / 2), data = world().split(me() % 2);
  const auto part = static_cast<std::uint64_t>(model.rank());
  const auto problem = [&](std::uint64_t seed, double scale) {
    const Variable wide("wide", Tensor::kaiming({6, 4}, 1 + part)),
        narrow("narrow", Tensor::kaiming({4, 6}, seed + part));
    Graph g;
    const Value x = g.input("x", f32, Shape{2, 6});
    const Value in = matmul(enter_parallel(x, model), wide);
    const Value hidden = part == 0 ? tanh(in) : gelu(in);
    const Value y = leave_parallel(matmul(hidden, narrow), model);
    apply(SgdOptions{.lr = 0.1}, {wide, narrow}, average(grad(mean(y * y) * scale, {wide, narrow}), data));
    Program program = compile(g);
    program.write(x, Tensor::normal({2, 6}, static_cast<std::uint64_t>(me() / 2)));
    return problem_of([&] {
      program.run(sink);
      program.sync();
    });
  };
  EXPECT_EQ(problem(3, 1.0), "");
  if (data.size() == 1) return;
  const bool is_last = me() / 2 == data.size() - 1;
  const std::string found = problem(is_last ? 7 : 3, 2.0);
  EXPECT_TRUE(has(found, "the ranks of the group of colour " + std::to_string(part) + " begin with different values"))
      << found;
  EXPECT_TRUE(has(found, "of narrow f32[4, 6]")) << found;
}

// A Comm of one rank leaves no trace in a plan.
TEST_P(SameProgram, OfOneRankHasThePlanOfAProgramWithoutRanks) {
  struct Trained {
    std::string plan;
    std::vector<float> bits;
  };
  const auto trained = [&](bool has_comm, bool is_sharded) {
    const Comm one = one_rank();
    Variable w1("w1", Tensor::kaiming({6, 8}, 1)), w2("w2", Tensor::kaiming({8, 3}, 2));
    if (has_comm) broadcast_variables(std::vector{w1, w2}, one);
    Graph g;
    const Value x = g.feed("x", f32, Shape{4, 6}), t = g.feed("t", i32, Shape{4});
    const Value first = tanh(matmul(x, w1));
    const Value hidden = has_comm ? send_receive(first, one, {0}) : first;
    const Value loss = cross_entropy(matmul(hidden, w2), t);
    const std::vector<Value> gradients = grad(loss, {w1, w2});
    const AdamwOptions options{.lr = 1e-2, .gradients = {.clip_norm = 1}};
    const std::vector<Variable> parameters{w1, w2};
    const Where here = Where::current();
    if (is_sharded && has_comm) {
      apply_sharded(options, parameters, gradients, one, {}, here);
    } else {
      apply(options, parameters, has_comm ? average(gradients, one) : gradients, here);
    }
    g.record("loss", has_comm ? all_reduce(loss, one, {Reduction::mean}) : loss);
    Program program = compile(g);
    program.write(x, Tensor::normal({3, 4, 6}, 5));
    program.write(t, Tensor(i32, {3, 4}));
    program.run(sink, {.steps = 3});
    program.sync();
    Trained result{program.explain_json(), {}};
    for (const Variable& parameter : parameters) {
      const Tensor value = parameter.read();
      result.bits.insert(result.bits.end(), value.as<float>().begin(), value.as<float>().end());
    }
    return result;
  };
  const Trained alone = trained(false, false);
  for (const bool is_sharded : {false, true}) {
    const Trained with = trained(true, is_sharded);
    EXPECT_EQ(with.plan, alone.plan) << is_sharded;
    EXPECT_EQ(with.bits, alone.bits) << is_sharded;
  }
}

}  // namespace same_program_test
}  // namespace graphsink::testing
