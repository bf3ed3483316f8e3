// Element-wise ops that are computed block by block: which ones are joined, and that no bit changes by that.
#include <functional>
#include <random>

#include "api/plan_of.h"
#include "base/at.h"
#include "fused_bits.h"
#include "ir/fused.h"
#include "ir/system_ops.h"
#include "plan_text.h"
#include "program_fixture.h"
#include "same_outputs.h"

namespace graphsink::fuse_elementwise_test {
namespace {

using testing::expect_same_bits;
using testing::ops_of;

struct Operands {
  Value x, y, row, column, scalar;  // [rows, 64] twice, [64], [rows, 1], []
};

struct Case {
  const char* name;
  std::function<void(Graph&, const Operands&)> build;
  const char* ops;
};

const Case kCases[] = {
    {"Chain", [](Graph& g, const Operands& o) { g.output("z", tanh(o.x * 2.0 + 1.0)); }, "[mul add tanh]"},
    {"OneOp", [](Graph& g, const Operands& o) { g.output("z", tanh(o.x)); }, "tanh"},
    {"AResultThatIsAnOutputToo",
     [](Graph& g, const Operands& o) {
       Value y = o.x + 1.0;
       g.output("y", y);
       g.output("z", tanh(y));
     },
     "[add tanh]"},
    {"ADiamond",
     [](Graph& g, const Operands& o) {
       Value y = o.x + o.y;
       Value positive = relu(y);
       g.output("z", positive * tanh(y));
     },
     "[add relu tanh mul]"},
    {"OperandsThatAreBroadcast",
     [](Graph& g, const Operands& o) { g.output("z", (o.x + o.row) * o.column - o.scalar); }, "[add mul sub]"},
    {"AnOperandThatIsComputedInAnotherSize",
     [](Graph& g, const Operands& o) { g.output("z", tanh(o.x + o.row * 2.0)); }, "mul [add tanh]"},
    {"AResultThatIsNeededBeforeTheGroupEnds",
     [](Graph& g, const Operands& o) {
       Value y = o.x + 1.0;
       Value positive = relu(y);
       g.output("z", positive + sum(y));
     },
     "[add relu sum] add"},
    {"AResultThatIsNeededInBetween",
     [](Graph& g, const Operands& o) {
       Value y = o.x + 1.0, total = sum(y);
       g.output("z", relu(y) + total);
     },
     "[add sum relu] add"},
    {"TwoGroupsThatMeet",
     [](Graph& g, const Operands& o) {
       Value y = tanh(o.x * 2.0), z = relu(o.y * 3.0);
       g.output("z", y + z);
     },
     "[mul tanh mul relu add]"},
    {"Slices",
     [](Graph& g, const Operands& o) {
       g.output("z", slice(o.x, {0, 0}, {to_end, -1}) + slice(o.x, {0, 1}, {to_end, to_end}));
     },
     "[slice slice add]"},
    {"ASliceOfAResultOfTheGroup",
     [](Graph& g, const Operands& o) {
       Value y = o.x + 1.0;
       g.output("z", y * slice(y, {0, to_end}, {to_end, -1000}, {1, -1}));
     },
     "add [slice mul]"},
    {"APad",
     [](Graph& g, const Operands& o) {
       g.output("z", pad(slice(o.x, {0, 0}, {to_end, -2}), {0, 1}, {0, 1}, 0.5) + o.y);
     },
     "slice [pad add]"},
    {"TheGradientOfASum",
     [](Graph& g, const Operands& o) {
       Value loss = mean(tanh(o.x * o.y));
       g.output("loss", loss);
       g.output("z", grad(loss, {o.x})[0]);
     },
     "[mul tanh mean broadcast_like tanh_grad mul]"},
    {"ComparisonsAndCasts",
     [](Graph& g, const Operands& o) {
       Value positive = greater(o.x, 0.0);
       g.output("z", cast(where(positive, o.y, o.x), f64) + cast(positive, f64));
     },
     "[greater cast where cast add]"},
    {"ASumOfRows", [](Graph& g, const Operands& o) { g.output("z", sum(tanh(o.x * o.y), {1})); }, "[mul tanh sum]"},
    {"AMaximumOfAll", [](Graph& g, const Operands& o) { g.output("z", max(abs(o.x - o.y))); }, "[sub abs max]"},
    {"SeveralReductionsOfRows",
     [](Graph& g, const Operands& o) {
       Value y = o.x * o.row;
       g.output("least", min(y, {1}, {.keep_axes = true}));
       g.output("mean", mean(relu(y), {-1}));
       g.output("product", prod(y, {1}));
     },
     "[mul min relu mean prod]"},
    {"ReductionsOfOtherWidths",
     [](Graph& g, const Operands& o) {
       Value y = o.x + o.column;
       g.output("rows", sum(y, {1}));
       g.output("all", sum(y));
     },
     "[add sum] sum"},
    {"ReductionsThatAreNotOfRows",
     [](Graph& g, const Operands& o) {
       g.output("columns", sum(o.x * 2.0, {0}));
       g.output("input", mean(o.x, {1}));
       g.output("places", argmax(o.y * 2.0, 1));
     },
     "mul sum mean mul argmax"},
    {"AReductionThatIsUsedByTheNextOp",
     [](Graph& g, const Operands& o) {
       Value y = o.x * 2.0;
       g.output("z", exp(y - max(y, {1}, {.keep_axes = true})));
     },
     "[mul max] [sub exp]"},
    {"ComparisonsOfRows",
     [](Graph& g, const Operands& o) {
       g.output("all", all(greater(o.x, -0.9), {1}));
       g.output("any", any(greater(o.y, 0.9), {1}));
     },
     "[greater all] [greater any]"},
    {"ReductionsOfSlices",
     [](Graph& g, const Operands& o) {
       Value y = slice(o.x, {0, 0}, {to_end, -3}) * slice(o.y, {0, 3}, {to_end, to_end});
       g.output("z", sum(y, {1}));
       g.output("y", y);
     },
     "[slice slice mul sum]"},
    {"AnOpOfAnotherKind", [](Graph& g, const Operands& o) { g.output("z", tanh(cumsum(o.x + 1.0, 1)) * 2.0); },
     "add cumsum [tanh mul]"},
    {"RandomNumbers", [](Graph& g, const Operands& o) { g.output("z", dropout(cast(o.x + 1.0, f32), 0.5) * 2.0); },
     nullptr},
    {"InTheBodyOfALoop",
     [](Graph& g, const Operands& o) {
       auto [z] = while_(
           {o.x}, [](Value s) { return sum(s) < 1e3; }, [&](Value s) { return abs(s) * 2.0 + o.y; });
       g.output("z", z);
     },
     nullptr},
    {"AcrossABody",
     [](Graph& g, const Operands& o) {
       Value y = o.x + 1.0;
       Value z = if_(
           sum(o.x) > 0.0, [&] { return relu(y) + 1.0; }, [&] { return tanh(y) * y; });
       g.output("z", z * y);
     },
     nullptr},
    {"ABodyThatReturnsAResultOfTheGroup",
     [](Graph& g, const Operands& o) {
       Value y = o.x + 1.0;
       Value z = if_(
           sum(o.x) > 1e9, [&] { return tanh(o.y); }, [&] { return y; });
       g.output("z", tanh(y) * z);
     },
     nullptr},
    {"AVariableThatIsAssigned",
     [](Graph& g, const Operands& o) {
       Variable v("v", Tensor::full(f32, {}, 2));
       Value was = g.value(v);
       Value next = cast(was, o.x.dtype()) * o.x + o.y;
       assign(v, was * 1.5 + 0.25);
       g.output("z", next);
       g.output("v", was + 1.0);
     },
     nullptr},
};

void build(Graph& g, const Case& c, DType dtype, std::int64_t rows) {
  auto variable = [&](const char* name, const Shape& shape, std::uint64_t seed) {
    return g.value(Variable(name, Tensor::uniform(shape, seed, -1.0f, 1.0f).to(dtype)));
  };
  c.build(g, {variable("x", {rows, 64}, 1), variable("y", {rows, 64}, 2), variable("row", {64}, 3),
              variable("column", {rows, 1}, 4), variable("scalar", {}, 5)});
}

Target compiling_target() {
  Target target = Target::cuda13();
  target.compiles_kernels = true;
  return target;
}

TEST(FuseElementwise, JoinsWhatItMay) {
  for (const Case& c : kCases) {
    if (!c.ops) continue;
    SCOPED_TRACE(c.name);
    Graph g;
    build(g, c, f32, 3);
    EXPECT_EQ(ops_of(plan_of(compile(g, {.target = cpu()}))), c.ops);
  }
}

TEST(FuseElementwise, ChangesNoBits) {
  for (const Case& c : kCases) {
    for (DType dtype : {f32, f64, f16, bf16}) {
      for (std::int64_t rows : {1, 3, 200}) {  // 12,800 elements are several blocks
        SCOPED_TRACE(std::string(c.name) + " " + std::string(to_string(dtype)) + " " + std::to_string(rows));
        expect_same_bits([&](Graph& g) { build(g, c, dtype, rows); });
      }
    }
  }
}

TEST(FuseElementwise, IsForDevicesThatHaveACpuBodyAlone) {
  Graph g;
  build(g, kCases[0], f32, 3);
  EXPECT_EQ(ops_of(make_plan(g, Target::cuda13(), system_ops())), "mul add tanh");
  EXPECT_EQ(ops_of(plan_of(compile(g, {.target = cpu(), .tuning = {.fuse = false}}))), "mul add tanh");
  EXPECT_EQ(ops_of(plan_of(compile(g, {.target = cpu(), .check_finite = true}))).find("["), std::string::npos);
}

// The GPU computes the first two while the host op runs, and the others afterwards.
TEST(FuseElementwise, LeavesWorkBesideTheHostWhereItIs) {
  Graph g;
  Value x = g.input("x", f32, {300}), y = exp(tanh(x));
  Value on_host = emit(testing::cpu_plus_one, {x})[0];
  g.output("y", y * y + on_host);
  EXPECT_EQ(ops_of(make_plan(g, compiling_target(), system_ops())), "[tanh exp] cpu_plus_one [mul add]");
}

// Two chains that have nothing to do with each other, of vectors of so many elements.
Graph two_chains(std::int64_t first, std::int64_t second) {
  Graph g;
  g.output("a", exp(tanh(g.input("x", f32, {first}))));
  g.output("b", abs(g.input("y", f32, {second}) * 2.0));
  return g;
}

// A node of a GPU graph costs more than one of the CPU, so that larger groups are worth one node less there.
TEST(FuseElementwise, PacksSmallGroups) {
  const Target cuda = compiling_target(), host = Target::host();
  auto ops = [](const Graph& g, const Target& target) { return ops_of(make_plan(g, target, system_ops())); };
  EXPECT_EQ(ops(two_chains(256, 256), host), "[tanh exp mul abs]");
  EXPECT_EQ(ops(two_chains(257, 257), host), "[tanh exp] [mul abs]");
  EXPECT_EQ(ops(two_chains(65536, 65536), cuda), "[tanh exp mul abs]");
  EXPECT_EQ(ops(two_chains(65537, 65537), cuda), "[tanh exp] [mul abs]");
  EXPECT_EQ(ops(two_chains(256, 255), host), "[tanh exp] [mul abs]");
}

TEST(FuseElementwise, PacksOpsThatAreAlone) {
  Graph g;
  g.output("a", exp(g.input("x", f32, {8})));
  g.output("b", abs(g.input("y", f32, {8})));
  g.output("c", neg(g.input("z", f32, {8})));
  EXPECT_EQ(ops_of(make_plan(g, Target::host(), system_ops())), "[exp abs neg]");
}

// Tensors of other shapes are read by other offsets, even if they have as many elements.
TEST(FuseElementwise, PacksGroupsOfOneShape) {
  Graph g;
  Value row = g.input("row", f32, {8}), column = g.input("column", f32, {2, 1});
  g.output("a", g.input("x", f32, {16}) * 2.0);
  g.output("b", g.input("y", f32, {2, 8}) + row);
  g.output("c", g.input("z", f32, {2, 8}) * column);
  EXPECT_EQ(ops_of(make_plan(g, Target::host(), system_ops())), "mul [add mul]");
}

TEST(FuseElementwise, PacksNothingThatIsNeededBefore) {
  Graph g;
  Value a = exp(g.input("x", f32, {8}));
  Value summed = cumsum(a, 0);  // needs a, and the second group needs it
  g.output("b", abs(g.input("y", f32, {8}) * summed));
  EXPECT_EQ(ops_of(make_plan(g, Target::host(), system_ops())), "exp cumsum [mul abs]");
}

TEST(FuseElementwise, PacksNothingFromFarAway) {
  for (int between : {13, 14}) {  // and two inputs
    Graph g;
    g.output("a", exp(g.input("x", f32, {8})));
    Value z = g.input("z", f32, {9});
    for (int i = 0; i < between; ++i) z = cumsum(z, 0);
    g.output("z", z);
    g.output("b", abs(g.input("y", f32, {8})));
    const std::string ops = ops_of(make_plan(g, Target::host(), system_ops()));
    EXPECT_EQ(ops.find("[exp abs]") != std::string::npos, between == 13) << ops;
  }
}

// An op that uses the result of another is joined with it first, although an op that could be packed is nearer.
TEST(FuseElementwise, JoinsBeforeItPacks) {
  Graph g;
  Value a = tanh(g.input("x", f32, {8}));
  Value other = exp(g.input("y", f32, {8}));
  g.output("other", cumsum(other, 0));  // before the end of the chain
  g.output("a", abs(a));
  EXPECT_EQ(ops_of(make_plan(g, Target::host(), system_ops())), "exp cumsum [tanh abs]");
}

TEST(FuseElementwise, PacksNothingAcrossBodies) {
  Graph g;
  Value x = g.input("x", f32, {8});
  g.output("a", exp(g.input("y", f32, {8})));
  auto [y] = while_(
      {x}, [](Value s) { return sum(s) < 3.0; }, [](Value s) { return cumsum(abs(s), 0); });
  g.output("b", neg(y));
  const std::string ops = ops_of(make_plan(g, Target::host(), system_ops()));
  EXPECT_EQ(ops.find("[exp abs"), std::string::npos) << ops;
}

TEST(FuseElementwise, PackedGroupsKeepTheirBits) {
  for (std::int64_t rows : {1, 7, 32}) {
    expect_same_bits([rows](Graph& g) {
      for (std::uint64_t i = 0; i < 30; ++i) {
        const std::string name = std::to_string(i);
        Value x = g.value(Variable("x" + name, Tensor::uniform({rows, 8}, i, -2.0f, 2.0f)));
        Value row = g.value(Variable("row" + name, Tensor::uniform({8}, i + 100, -2.0f, 2.0f)));
        g.output("y" + name, i % 3 == 0   ? tanh(x * row)
                             : i % 3 == 1 ? cast(x + 0.5, f64)
                                          : where(greater(x, row), x, row));
      }
    });
  }
}

TEST(FuseElementwise, SaysWhatItJoined) {
  Graph g;
  build(g, kCases[0], f32, 3);
  Plan plan = make_plan(g, Target::host(), system_ops());
  EXPECT_EQ(plan.fusion.ops, 3u);
  EXPECT_EQ(plan.fusion.nodes, 1u);
  EXPECT_EQ(plan.fusion.bytes, 2u * 3 * 64 * 4);
  std::string text = plan.explain();
  EXPECT_NE(text.find("fused: 3 ops in 1 node; 1.5 KiB of their results are not stored"), std::string::npos) << text;
  EXPECT_NE(text.find("\n        mul add tanh\n"), std::string::npos) << text;
}

TEST(FuseElementwise, LongChainsBecomeSeveralGroups) {
  auto make = [](Graph& g) {
    Value x = g.value(Variable("x", Tensor::uniform({5000}, 1)));
    for (int i = 0; i < 100; ++i) x = i % 2 == 0 ? x * 0.75 : x + 0.25;
    g.output("z", x);
  };
  Graph g;
  make(g);
  Plan plan = make_plan(g, Target::host(), system_ops());
  EXPECT_EQ(plan.fusion.ops, 100u);
  EXPECT_EQ(plan.fusion.nodes, (100 + kMaxFusedOps - 1) / kMaxFusedOps);
  expect_same_bits(make);
}

// A sum of products, each of which is computed long after the one before. If the additions were one group, all products
// would be kept until the last is there.
TEST(FuseElementwise, DoesNotKeepOperandsAliveForLong) {
  auto make = [](Graph& g, int nodes_between) {
    Value x = g.input("x", f32, {64, 64}), total = matmul(x, x);
    Value small = g.input("small", f32, {64});
    for (int i = 0; i < 7; ++i) {
      for (int j = 0; j < nodes_between; ++j) small = cumsum(small, 0);
      total = total + matmul(x, x * small);
    }
    g.output("total", total);
  };
  Graph far, near;
  make(far, 20);
  make(near, 1);
  auto arena = [](const Graph& g, bool fuse) {
    return plan_of(compile(g, {.target = cpu(), .tuning = {.fuse = fuse}})).devices[0].arena_bytes;
  };
  EXPECT_EQ(arena(far, true), arena(far, false));
  EXPECT_EQ(make_plan(far, Target::host(), system_ops()).fusion.nodes, 0u);
  EXPECT_EQ(make_plan(near, Target::host(), system_ops()).fusion.nodes, 1u);
}

// A result that takes the memory of an input that a later op of the group reads again.
TEST(FuseElementwise, AnOutputMayOverwriteAnInputThatIsReadLater) {
  auto make = [](Graph& g) {
    Value x = cumsum(g.value(Variable("x", Tensor::uniform({30000}, 1))), 0);  // a value of the arena
    Value y = x + 1.0;
    g.output("sum", sum(cast(y * x, f64)));  // of another size, so that it cannot take that memory
    g.output("total", sum(y));
  };
  Graph g;
  make(g);
  Plan plan = make_plan(g, Target::host(), system_ops());
  const auto node = std::find_if(plan.nodes.begin(), plan.nodes.end(),
                                 [](const PlanNode& n) { return n.attrs.get_if<FusedAttrs>() != nullptr; });
  ASSERT_NE(node, plan.nodes.end());
  ASSERT_EQ(node->operands.size(), at(node->inputs) + 2);
  auto offset = [&](std::size_t operand) { return plan.buffers[at(node->operands[operand])].offset; };
  std::size_t x_at = 0;
  while (node->types[x_at].shape.size() == 1) ++x_at;
  EXPECT_EQ(offset(x_at), offset(at(node->inputs) + 1));
  expect_same_bits(make);
}

// The same where the later op reads the input through a view, which is of another type.
TEST(FuseElementwise, AnOutputMayOverwriteAnInputThatIsReadLaterThroughAView) {
  expect_same_bits([](Graph& g) {
    Value x = cumsum(g.value(Variable("x", Tensor::uniform({100, 1}, 1))), 0), flat = reshape(x, {100});
    Value twice = x + x;
    g.output("twice", twice);
    g.output("z", cast(reshape(twice, {100}) * 1.0, f64));
    Value y = cumsum(g.value(Variable("y", Tensor::uniform({1, 1}, 2))), 0), y_flat = reshape(y, {1});
    Value sum = y + y;
    g.output("sum", sum);
    g.output("w", cast(sum - y_flat, f64));
    g.output("flat", cast(flat, f64));
  });
}

// A square matrix and its mirror image have one type, but an element of the result needs another one of the operand.
TEST(FuseElementwise, AnOutputDoesNotOverwriteAnInputOfWhichItReadsOtherElements) {
  expect_same_bits([](Graph& g) {
    Value x = cumsum(g.value(Variable("x", Tensor::uniform({20000}, 1))), 0);
    g.output("z", cumsum(slice(x, {to_end}, {-30000}, {-1}) * 2.0 + 1.0, 0));
  });
}

// Random expressions of large tensors, in which many results are needed elsewhere, too.
void build_random(Graph& g, unsigned seed) {
  std::mt19937 random(seed);
  auto below = [&](std::size_t n) { return static_cast<std::size_t>(random() % n); };
  const std::int64_t sizes[] = {1, 3, 64, 500, 4096, 4100, 9001};
  const std::int64_t size = sizes[below(std::size(sizes))];
  const DType dtypes[] = {f32, f32, f64, f16, bf16, i32};
  std::vector<Value> values;
  for (std::uint64_t i = 0; i < 3; ++i)
    values.push_back(g.value(Variable("v" + std::to_string(i), Tensor::uniform({size}, i, -2.0f, 2.0f))));
  values.push_back(g.value(Variable("half", Tensor::full(f32, {}, 0.5))));
  if (below(2) == 0) values.push_back(cumsum(values[0] * 0.01, 0));  // in the arena
  auto pick = [&] { return values[values.size() - 1 - below(std::min<std::size_t>(values.size(), 6))]; };
  const std::size_t ops = 3 + below(60);
  for (std::size_t k = 0; k < ops; ++k) {
    Value a = pick(), b = pick();
    Value all = broadcast_like(a, values[0]), next;
    switch (below(10)) {
      case 9:
        next = b - (below(2) == 0 ? max(a * 0.5) : mean(abs(a))) * 0.25;
        break;
      case 0:
        next = cast(cast(a, dtypes[below(std::size(dtypes))]), f32);
        break;
      case 1:
        next = where(greater(a, b), a, b * 0.5);
        break;
      case 2:
        next = tanh(a);
        break;
      case 3:
        next = b + sum(a) * 1e-3;
        break;
      case 4:
        next = clamp(a - b, -1.0, 1.5);
        break;
      case 5:
        next = b + slice(all, {to_end}, {-1 - size}, {-1});
        break;
      case 6:
        next = slice(pad(all * 0.5, {2}, {1}, 0.25), {1}, {1 + size}) + b;
        break;
      default:
        next = below(2) == 0 ? a * b * 0.5 : a + b;
    }
    values.push_back(next);
    if (below(6) == 0) g.output("o" + std::to_string(k), next);
  }
  g.output("last", values.back());
}

TEST(FuseElementwise, RandomExpressionsKeepTheirBits) {
  std::size_t groups = 0;
  for (unsigned seed = 0; seed < 150; ++seed) {
    SCOPED_TRACE(seed);
    expect_same_bits([&](Graph& g) { build_random(g, seed); });
    Graph g;
    build_random(g, seed);
    groups += make_plan(g, Target::host(), system_ops()).fusion.nodes;
  }
  EXPECT_GT(groups, 500u);
}

// Ops of an element and a number each, in any order: on the CPU, several are one loop.
Value with_numbers(Value x, const std::vector<Value>& numbers, unsigned order, int ops, Graph& g) {
  Value kept = x;
  for (int i = 0; i < ops; ++i, order = order * 5 + 3) {
    const Value& number = numbers[order / 8 % numbers.size()];
    switch (order / 2 % 4) {
      case 0:
        x = x * number;
        break;
      case 1:
        x = order % 2 == 0 ? x + number : number + x;
        break;
      case 2:
        x = x - number;
        break;
      case 3:
        x = number - x;
        break;
    }
    if (order % 61 == 0) g.output("between " + std::to_string(i), x);
    if (order % 67 == 0) x = x * x;
    if (order % 13 == 0) kept = x;
  }
  return maximum(x, kept);
}

TEST(FuseElementwise, OpsWithNumbersKeepTheirBits) {
  const std::vector<float> special = {0.0f, -0.0f, 1e-40f, -1e-39f, 3e38f, INFINITY, -INFINITY, 1.0f, -2.5f, 1e-20f};
  for (unsigned order = 0; order < 200; ++order) {
    SCOPED_TRACE(order);
    for (std::int64_t size : {1, 7, 1000}) {
      expect_same_bits([&](Graph& g) {
        std::vector<float> elements;
        for (std::int64_t i = 0; i < size; ++i)
          elements.push_back(i % 3 == 0 ? special[static_cast<std::size_t>(i) % special.size()]
                                        : 0.37f * static_cast<float>(i - 5));
        Value x = g.value(Variable("x", Tensor({size}, elements)));
        std::vector<Value> numbers = {g.constant(Tensor::scalar(0.75f)), g.value(Variable("n", Tensor::scalar(-1.5f))),
                                      g.constant(Tensor::scalar(0.0f)), g.value(Variable("m", Tensor::scalar(3.25f))),
                                      g.constant(Tensor::scalar(-0.0f))};
        g.output("z", with_numbers(x, numbers, order, 3 + static_cast<int>(order % 20), g));
      });
    }
  }
}

// --- reductions of rows

// Results of element-wise ops of these rows, and reductions of them, in each of the ways to combine terms.
void build_reductions(Graph& g, DType dtype, std::int64_t rows, std::int64_t width, bool has_parts) {
  const std::int64_t more = has_parts ? 3 : 0;
  Value x = g.value(Variable("x", Tensor::uniform({rows, width + more}, 1, -1.0f, 1.0f).to(dtype)));
  Value row = g.value(Variable("row", Tensor::uniform({width}, 2, -1.0f, 1.0f).to(dtype)));
  Value column = g.value(Variable("column", Tensor::uniform({rows, 1}, 3, -1.0f, 1.0f).to(dtype)));
  if (has_parts) x = slice(x, {0, 1}, {to_end, -2});
  Value y = x * row + column;
  g.output("sum", sum(y, {1}));
  g.output("mean", mean(abs(y), {-1}, {.keep_axes = true}));
  g.output("max", max(y, {1}));
  g.output("min", min(y, {1}));
  g.output("product", prod(y + 1.0, {1}));
  g.output("logsumexp", logsumexp(y, {1}));
  g.output("any", any(greater(y, 0.99), {1}));
  g.output("all", all(greater(y, -0.99), {1}, {.keep_axes = true}));
}

void expect_same_reductions(DType dtype, std::int64_t rows, std::int64_t width, bool has_parts, int threads) {
  SCOPED_TRACE(std::string(to_string(dtype)) + " " + std::to_string(rows) + " rows of " + std::to_string(width) +
               (has_parts ? " in slices, " : ", ") + std::to_string(threads) + " threads");
  Graph g, same;
  build_reductions(g, dtype, rows, width, has_parts);
  build_reductions(same, dtype, rows, width, has_parts);
  Program separate = compile(g, {.target = cpu(), .tuning = {.fuse = false}});
  Program fused = compile(same, {.target = cpu(), .tuning = {.threads = threads}});
  for (const PlanNode& node : plan_of(fused).nodes)
    EXPECT_TRUE(node.id < 0 || node.attrs.get_if<FusedAttrs>()) << ops_of(plan_of(fused));
  testing::expect_same_outputs(separate, fused);
}

// Blocks begin at rows whose number of elements has nothing to do with the size of blocks. If there are slices, they
// begin at parts, too.
TEST(FuseElementwise, ReductionsOfRowsOfAnyWidthKeepTheirBits) {
  for (DType dtype : {f32, f64, f16, bf16}) {
    for (std::int64_t width : {2, 37, 61, 100})
      for (std::int64_t rows : {1, 5, 300}) expect_same_reductions(dtype, rows, width, false, 0);
    for (std::int64_t width : {2, 3, 4, 12, 48})
      for (std::int64_t rows : {1, 63, 64, 65, 1000}) expect_same_reductions(dtype, rows, width, true, 0);
  }
}

// Several tiles, which threads share. They begin at rows and, if there are slices, at parts.
TEST(FuseElementwise, ReductionsOfManyRowsAreSharedByThreads) {
  for (DType dtype : {f32, f64, f16, bf16}) {
    for (int threads : {1, 3}) {
      expect_same_reductions(dtype, 3000, 67, false, threads);
      expect_same_reductions(dtype, 50000, 3, true, threads);
    }
  }
}

// The exponentials of a matrix, which may be a slice of a larger one, are reduced.
std::string ops_of_rows(std::int64_t rows, std::int64_t width, bool has_parts, DType dtype = f32) {
  Graph g;
  Value x = g.input("x", dtype, {rows, has_parts ? width + 1 : width});
  if (has_parts) x = slice(x, {0, 1}, {to_end, to_end});
  g.output("z", sum(exp(x), {1}));
  return ops_of(make_plan(g, Target::host(), system_ops()));
}

TEST(FuseElementwise, ReducesRowsThatStayInTheCache) {
  // Two results, an input and an output.
  constexpr std::int64_t kMost = kMaxFusedRowBytes / sizeof(float) / 4;
  EXPECT_EQ(ops_of_rows(3, kMost, false), "[exp sum]");
  EXPECT_EQ(ops_of_rows(3, kMost + 1, false), "exp sum");
  EXPECT_EQ(ops_of_rows(3, kMost / 2, false, f64), "[exp sum]");
  EXPECT_EQ(ops_of_rows(3, kMost / 2 + 1, false, f64), "exp sum");
  EXPECT_EQ(ops_of_rows(1, 1 << 20, false), "exp sum");
  // One result more. Parts of 64 elements are whole rows if 64 rows of an odd width are computed together, or all.
  constexpr std::int64_t kMostOfMany = kMaxFusedRowBytes / sizeof(float) / 5 / 64;
  static_assert(kMostOfMany % 2 == 1);
  EXPECT_EQ(ops_of_rows(100, kMostOfMany, true), "[slice exp sum]");
  EXPECT_EQ(ops_of_rows(100, kMostOfMany + 2, true), "[slice exp] sum");
  EXPECT_EQ(ops_of_rows(3, kMostOfMany + 2, true), "[slice exp sum]");
  EXPECT_EQ(ops_of_rows(100, 64, true), "[slice exp sum]");
}

// One of two groups that meet has parts, and so has the group of both.
TEST(FuseElementwise, OneOpWithPartsIsEnough) {
  for (std::int64_t width : {27, 29}) {  // 64 rows, of six results, two inputs and an output
    Graph g;
    Value x = g.input("x", f32, {100, width + 1}), y = g.input("y", f32, {100, width});
    Value first = exp(slice(x, {0, 1}, {to_end, to_end})), second = tanh(y);
    g.output("z", sum(abs(first + second), {1}));
    EXPECT_EQ(ops_of(make_plan(g, Target::host(), system_ops())),
              width == 27 ? "[slice exp tanh add abs sum]" : "[slice exp tanh add abs] sum");
  }
}

// Copies parts. If one is not as OutputPart says, its first element is wrong.
void copy_part(const CpuArgs& a, std::int64_t begin, std::int64_t size, void* out) {
  const std::int64_t all = a.in_type(0).shape.size();
  auto* y = static_cast<float*>(out);
  std::copy_n(a.in<float>(0) + begin, size, y);
  if (begin % kPartElements != 0 || (size % kPartElements != 0 && begin + size != all)) y[0] = 1e6f;
}
const OpDef copy_of_parts{.name = "copy_of_parts", .infer = testing::infer_like_first, .bodies = {copy_part}};

TEST(FuseElementwise, PartsBeginWhereTheyMayWhateverTheWidthIs) {
  for (std::int64_t width : {3, 4, 5, 12, 19, 96}) {
    for (std::int64_t rows : {1, 7, 5000}) {
      SCOPED_TRACE(std::to_string(rows) + " rows of " + std::to_string(width));
      auto make = [=](Graph& g) {
        Value x = g.value(Variable("x", Tensor::uniform({rows, width}, 1, -1.0f, 1.0f)));
        g.output("z", sum(abs(emit(copy_of_parts, {x})[0]), {1}));
      };
      Graph g;
      make(g);
      EXPECT_EQ(ops_of(plan_of(compile(g, {.target = cpu()}))), "[copy_of_parts abs sum]");
      expect_same_bits(make);
    }
  }
}

// A group that reduces rows is not packed with others, even if the results have one shape.
TEST(FuseElementwise, PacksNoReductions) {
  for (bool is_first : {false, true}) {
    auto make = [is_first](Graph& g) {
      auto reduce = [&] { g.output("a", sum(exp(g.value(Variable("x", Tensor::uniform({8, 4}, 1)))), {1})); };
      if (is_first) reduce();
      g.output("b", abs(tanh(g.value(Variable("y", Tensor::uniform({8}, 2))))));
      if (!is_first) reduce();
    };
    Graph g;
    make(g);
    EXPECT_EQ(ops_of(plan_of(compile(g, {.target = cpu()}))),
              is_first ? "[exp sum] [tanh abs]" : "[tanh abs] [exp sum]");
    expect_same_bits(make);
  }
}

// As many bytes as a group may have at most, of the widest dtype.
TEST(FuseElementwise, TheWidestRowsKeepTheirBits) {
  constexpr std::int64_t kMost = kMaxFusedRowBytes / sizeof(double) / 5;
  auto make = [](Graph& g) {
    Value row = g.value(Variable("row", Tensor::uniform({kMost}, 1, -1.0f, 1.0f).to(f64)));
    Value column = g.value(Variable("column", Tensor::uniform({5, 1}, 2, -1.0f, 1.0f).to(f64)));
    g.output("z", sum(where(greater(column, 0.0), row, row), {1}));
    Value x = g.value(Variable("x", Tensor::uniform({5, kMost / 2}, 3, -1.0f, 1.0f).to(f64)));
    g.output("w", sum(abs(tanh(x)) + exp(x), {1}));
  };
  Graph g;
  make(g);
  EXPECT_EQ(ops_of(plan_of(compile(g, {.target = cpu()}))), "greater [where sum] [exp tanh abs add sum]");
  expect_same_bits(make);
}

// What has one term is a copy, not a reduction.
TEST(FuseElementwise, RowsOfOneElementAreNotReduced) {
  Graph g;
  g.output("z", sum(exp(tanh(g.input("x", f32, {7, 1}))), {1}));
  g.output("w", max(exp(abs(g.input("y", f32, {1})))));
  const std::string ops = ops_of(make_plan(g, Target::host(), system_ops()));
  EXPECT_NE(ops.find("[tanh exp] "), std::string::npos) << ops;
  EXPECT_NE(ops.find("[abs exp] "), std::string::npos) << ops;
  expect_same_bits([](Graph& h) {
    h.output("z", sum(exp(tanh(h.value(Variable("x", Tensor::uniform({7, 1}, 1))))), {1}));
    h.output("w", max(exp(abs(h.value(Variable("y", Tensor::uniform({1}, 2)))))));
  });
}

// Rows of several axes, and all of a tensor of several.
TEST(FuseElementwise, RowsMayHaveSeveralAxes) {
  auto make = [](Graph& g) {
    Value x = g.value(Variable("x", Tensor::uniform({5, 1, 6, 7}, 1, -1.0f, 1.0f)));
    Value y = exp(tanh(x));
    g.output("two", sum(y, {-1, 2}, {.keep_axes = true}));
    g.output("three", max(abs(y), {1, 2, 3}));
    Value z = exp(relu(x));
    g.output("one", mean(z, {3}));
    g.output("middle", mean(z, {2}));
    g.output("first", sum(neg(x), {0, 1}));
    g.output("all", min(sin(x)));
  };
  Graph g;
  make(g);
  EXPECT_EQ(ops_of(plan_of(compile(g, {.target = cpu()}))),
            "[tanh exp sum abs max] [relu exp mean] mean neg sum [sin min]");
  expect_same_bits(make);
}

TEST(FuseElementwise, ReductionsInBodiesKeepTheirBits) {
  for (DType dtype : {f32, f64, f16, bf16}) {
    SCOPED_TRACE(to_string(dtype));
    auto make = [dtype](Graph& g) {
      Value x = g.value(Variable("x", Tensor::uniform({50, 37}, 1, 0.5f, 1.0f).to(dtype)));
      Value most = g.value(Variable("most", Tensor::full(f32, {50}, 0).to(dtype)));
      auto [last, sums] = while_(
          {x, most}, [](Value, Value s) { return sum(s) < 40.0; },
          [](Value y, Value s) {
            Value next = tanh(y * 1.25);
            return std::vector<Value>{next, s + max(next * 0.25, {1})};
          });
      g.output("last", last);
      g.output("sums", sums);
    };
    Graph g;
    make(g);
    const std::string ops = ops_of(plan_of(compile(g, {.target = cpu()})));
    EXPECT_NE(ops.find("[mul tanh mul max]"), std::string::npos) << ops;
    expect_same_bits(make);
  }
}

// The result of a reduction is complete only when the group has run.
TEST(FuseElementwise, NoOpUsesAReductionOfItsGroup) {
  std::size_t reductions = 0;
  auto check = [&](const Graph& g) {
    const Plan plan = make_plan(g, Target::host(), system_ops());
    for (const PlanNode& node : plan.nodes) {
      const auto* group = node.attrs.get_if<FusedAttrs>();
      if (!group) continue;
      auto reduces = [&](int op) { return group->ops[at(op)].rows != nullptr; };
      EXPECT_FALSE(reduces(0));
      for (std::size_t k = 0; k < group->ops.size(); ++k) {
        reductions += reduces(static_cast<int>(k));
        for (FusedOperand operand : group->ops[k].operands) EXPECT_FALSE(operand.op >= 0 && reduces(operand.op));
      }
    }
  };
  for (const Case& c : kCases) {
    SCOPED_TRACE(c.name);
    Graph g;
    build(g, c, f32, 3);
    check(g);
  }
  for (unsigned seed = 0; seed < 150; ++seed) {
    SCOPED_TRACE(seed);
    Graph g;
    build_random(g, seed);
    check(g);
  }
  EXPECT_GT(reductions, 50u);
}

// On a GPU, a row is computed by one block at most: long rows are part of a group only if there are many.
TEST(FuseElementwise, KernelsReduceRowsThatKeepTheDeviceBusy) {
  auto ops_of_kernels = [](std::int64_t rows, std::int64_t width) {
    Graph g;
    g.output("z", sum(exp(tanh(g.input("x", f32, {rows, width}))), {1}));
    return ops_of(make_plan(g, compiling_target(), system_ops()));
  };
  EXPECT_EQ(ops_of_kernels(30, 64), "[tanh exp sum]");
  EXPECT_EQ(ops_of_kernels(1, 4096), "[tanh exp sum]");
  EXPECT_EQ(ops_of_kernels(1023, 4097), "[tanh exp] sum");
  EXPECT_EQ(ops_of_kernels(1024, 4097), "[tanh exp sum]");
}

// Without a text there is nothing of which a kernel could be made.
template <bool has_text>
const OpDef user_op{.name = "user_op",
                    .infer = [](InferArgs& a) { a.out(a.in(0).dtype, a.in(0).shape); },
                    .elements = {.text = has_text ? "x" : "",
                                 .type = [](std::span<const TensorType>) -> std::string_view { return "float"; }},
                    .bodies = {[](CudaArgs&) {}}};
TEST(FuseElementwise, AnOpIsJoinedInAKernelIfItHasAText) {
  auto ops_of_kernels = [](const OpDef& op) {
    Graph g;
    g.output("z", tanh(emit(op, {exp(g.input("x", f32, {64}))})[0]));
    return ops_of(make_plan(g, compiling_target(), system_ops()));
  };
  EXPECT_EQ(ops_of_kernels(user_op<true>), "[exp user_op tanh]");
  EXPECT_EQ(ops_of_kernels(user_op<false>), "exp user_op tanh");
}

}  // namespace
}  // namespace graphsink::fuse_elementwise_test
