// Ops that read and write parts of other tensors in place of copies: where they may, and that nothing but the number of
// kernels changes.
#include <functional>

#include "api/plan_of.h"
#include "ir/strided.h"
#include "plan_text.h"
#include "program_fixture.h"
#include "same_outputs.h"

namespace graphsink::avoid_copies_test {
namespace {

using testing::device_name;
using testing::expect_same_outputs;
using testing::OnDevice;
using testing::ops_of;

constexpr std::int64_t kBatch = 2, kTime = 5, kHeads = 3, kWidth = 4, kChannels = kHeads * kWidth;

// What a model computes of x [batch, time, 3 * channels].
using Build = std::function<void(Graph&, const Value& x)>;

Value heads_of(const Value& x) { return permute(reshape(x, {-1, kTime, kHeads, kWidth}), {0, 2, 1, 3}); }
Value rows_of(const Value& heads) { return reshape(permute(heads, {0, 2, 1, 3}), {-1, kTime, kChannels}); }

// q, k and v side by side in each row, as GPT-2 has them.
Value side_by_side(const Value& x) {
  std::vector<Value> parts = split(x, 3, -1);
  return rows_of(attention(heads_of(parts[0]), heads_of(parts[1]), heads_of(parts[2]), {.causal = true}));
}
// The axis of the three in front.
Value in_front(const Value& x) {
  Value qkv = permute(reshape(x, {-1, kTime, 3, kHeads, kWidth}), {2, 0, 3, 1, 4});
  std::vector<Value> parts = split(qkv, 3, 0);
  for (Value& part : parts) part = squeeze(part, 0);
  return rows_of(attention(parts[0], parts[1], parts[2]));
}
void with_gradients(Graph& g, const Value& x, const Value& y) {
  g.output("y", y);
  g.output("gradient", grad(sum(y * y * 0.5), {x})[0]);
}

struct Case {
  const char* name;
  Build build;
  const char* ops;  // on the CPU; x is a Variable
};

const Case kCases[] = {
    {"SideBySide", [](Graph& g, const Value& x) { g.output("y", side_by_side(x)); }, "strided_attention"},
    {"SideBySideWithGradients", [](Graph& g, const Value& x) { with_gradients(g, x, side_by_side(x)); },
     "strided_attention [mul mul broadcast_like mul mul add] strided_attention_grad"},
    {"InFront", [](Graph& g, const Value& x) { g.output("y", in_front(x)); }, "strided_attention"},
    {"InFrontWithGradients", [](Graph& g, const Value& x) { with_gradients(g, x, in_front(x)); },
     "strided_attention [mul mul broadcast_like mul mul add] strided_attention_grad"},
    {"Slices",
     [](Graph& g, const Value& x) {
       auto part = [&](std::int64_t i) {
         return heads_of(slice(x, {0, 0, i * kChannels}, {kBatch, kTime, (i + 1) * kChannels}));
       };
       g.output("y", attention(part(0), part(1), part(2)));
     },
     "strided_attention"},
    {"SlicesWithSteps",
     [](Graph& g, const Value& x) {
       Value q = permute(reshape(x, {kBatch, kTime, 3 * kHeads, kWidth}), {0, 2, 1, 3});
       q = slice(q, {0, 1}, {kBatch, 3 * kHeads}, {1, 2});
       g.output("y", attention(q, q, q));
     },
     "strided_attention"},
    {"NegativeStepsAreCopied",
     [](Graph& g, const Value& x) {
       Value q = reshape(x, {kBatch, kTime, 3 * kHeads, kWidth});
       q = slice(permute(q, {0, 2, 1, 3}), {0, -1}, {kBatch, to_end}, {1, -1});
       g.output("y", attention(q, q, q));
     },
     "permute slice attention"},
    {"HeadsOfOneVectorEach",
     [](Graph& g, const Value& x) {
       Value q = transpose(reshape(x, {kBatch, 1, kTime, 3 * kChannels}));  // [batch, 1, 3 * channels, time]
       g.output("y", attention(q, q, q));
     },
     "transpose attention"},
    {"AWholeQueryIsReadAsItIs",
     [](Graph& g, const Value& x) {
       Value q = reshape(x, {kBatch, 1, kTime, 3 * kChannels});
       g.output("y", attention(q, q, q));
     },
     "attention"},
    // The copy is needed anyway, but the op reads what it was made of.
    {"AnOperandThatIsAnOutput",
     [](Graph& g, const Value& x) {
       Value q = heads_of(split(x, 3, -1)[0]);
       g.output("y", attention(q, q, q));
       g.output("q", q);
     },
     "split permute strided_attention"},
    {"AResultThatIsAnOutput",
     [](Graph& g, const Value& x) {
       std::vector<Value> parts = split(x, 3, -1);
       Value heads = attention(heads_of(parts[0]), heads_of(parts[1]), heads_of(parts[2]));
       g.output("heads", heads);
       g.output("y", rows_of(heads));
     },
     "strided_attention permute"},
    {"AResultThatOthersRead",
     [](Graph& g, const Value& x) {
       Value q = reshape(x, {kBatch, 1, kTime, 3 * kChannels});
       Value y = attention(q, q, q);
       g.output("y", permute(y, {2, 0, 1, 3}) * 2.0);
       g.output("sum", sum(y));
     },
     nullptr},
    {"AResultInTwoOrders",
     [](Graph& g, const Value& x) {
       Value q = reshape(x, {kBatch, kHeads, kTime, -1});
       Value y = attention(q, q, q);
       g.output("a", permute(y, {2, 0, 1, 3}));
       g.output("b", permute(y, {0, 2, 1, 3}));
     },
     "attention permute permute"},
    {"AResultWhoseVectorsAreTorn",
     [](Graph& g, const Value& x) {
       Value q = reshape(x, {kBatch, kHeads, kTime, -1});
       g.output("y", transpose(attention(q, q, q)));
     },
     "attention transpose"},
    {"AttentionOfAttention",
     [](Graph& g, const Value& x) {
       Value y = heads_of(side_by_side(x));
       with_gradients(g, x, rows_of(attention(y, y, y)));
     },
     nullptr},
    {"ConcatWithAnother",
     [](Graph& g, const Value& x) {
       Value y = side_by_side(x);
       g.output("y", concat({y, x}, -1));
     },
     "strided_attention concat"},
    {"ConcatOfOneTwice",
     [](Graph& g, const Value& x) {
       Value y = side_by_side(x);
       g.output("y", concat({y, y}, -1));
     },
     "strided_attention concat"},
    {"ConcatOfTwo",
     [](Graph& g, const Value& x) {
       g.output("y", concat({side_by_side(x), in_front(x)}, -1));
     },
     "strided_attention strided_attention concat"},
    // The gradients of q and k alone are what makes up the result.
    {"GradientsInAnotherOrder",
     [](Graph& g, const Value& x) {
       std::vector<Value> parts = split(x, 3, -1);
       for (Value& part : parts) part = heads_of(part);
       Value loss = sum(attention(parts[0], parts[1], parts[2]));
       std::vector<Value> grads = grad(loss, {parts[1], parts[0], parts[2]});
       g.output("y", concat({grads[0], grads[1]}, 3));
       g.output("v", grads[2]);
     },
     nullptr},
    {"BesideABranchThatNothingNeeds",
     [](Graph& g, const Value& x) {
       if_(
           sum(x) > 0.0,
           [&] {
             return permute(x, {0, 2, 1}) * 2.0;
           },
           [&] {
             return permute(x, {0, 2, 1});
           });
       g.output("y", side_by_side(x));
     },
     "strided_attention"},
    {"InABody",
     [](Graph& g, const Value& x) {
       Value parts = split(x, 3, -1)[1];
       auto [y, i] = while_(
           {parts, g.constant(Tensor({0.0}))}, [](Value, Value n) { return sum(n) < 3.0; },
           [&](Value s, Value n) {
             Value heads = heads_of(s), keys = heads_of(split(x, 3, -1)[2]);
             return std::vector<Value>{rows_of(attention(heads, keys, keys)), n + 1.0};
           });
       g.output("y", y);
     },
     nullptr},
    {"IntoABody",
     [](Graph& g, const Value& x) {
       Value y = attention(heads_of(split(x, 3, -1)[0]), heads_of(split(x, 3, -1)[1]), heads_of(split(x, 3, -1)[2]));
       g.output("y", if_(
                         sum(x) > 0.0, [&] { return rows_of(y) * 2.0; }, [&] { return split(x, 3, -1)[0]; }));
     },
     nullptr},
    {"IntoTwoBodies",
     [](Graph& g, const Value& x) {
       Value y = attention(heads_of(split(x, 3, -1)[0]), heads_of(split(x, 3, -1)[1]), heads_of(split(x, 3, -1)[2]));
       g.output("y", if_(
                         sum(x) > 0.0,
                         [&] {
                           return permute(y, {0, 2, 1, 3}) * 2.0;
                         },
                         [&] {
                           return permute(y, {0, 2, 1, 3});
                         }));
     },
     nullptr},
    {"TheResultOfABody",
     [](Graph& g, const Value& x) {
       Value y = attention(heads_of(split(x, 3, -1)[0]), heads_of(split(x, 3, -1)[1]), heads_of(split(x, 3, -1)[2]));
       g.output("y", if_(
                         sum(x) > 0.0, [&] { return rows_of(y); }, [&] { return split(x, 3, -1)[0]; }));
     },
     nullptr},
    {"TheStateOfALoop",
     [](Graph& g, const Value& x) {
       Value y = attention(heads_of(split(x, 3, -1)[0]), heads_of(split(x, 3, -1)[1]), heads_of(split(x, 3, -1)[2]));
       auto [state, i] = while_(
           {split(x, 3, -1)[0], g.constant(Tensor({0.0}))}, [](Value, Value n) { return sum(n) < 3.0; },
           [&](Value, Value n) {
             return std::vector<Value>{rows_of(y), n + 1.0};
           });
       g.output("state", state);
       g.output("i", i);
     },
     nullptr},
    {"OutOfABody",
     [](Graph& g, const Value& x) {
       Value y = if_(
           sum(x) > 0.0,
           [&] {
             return attention(heads_of(split(x, 3, -1)[0]), heads_of(split(x, 3, -1)[1]), heads_of(split(x, 3, -1)[1]));
           },
           [&] { return heads_of(split(x, 3, -1)[0]); });
       g.output("y", rows_of(y));
     },
     nullptr},
};

class AvoidCopiesCase : public OnDevice {};

void build(Graph& g, const Case& c, DType dtype) {
  c.build(g, g.value(Variable("x", Tensor::uniform({kBatch, kTime, 3 * kChannels}, 1, -1.0f, 1.0f).to(dtype))));
}

TEST(AvoidCopies, WhereItMay) {
  for (const Case& c : kCases) {
    if (!c.ops) continue;
    SCOPED_TRACE(c.name);
    Graph g;
    build(g, c, f32);
    EXPECT_EQ(ops_of(plan_of(compile(g, {.target = cpu()}))), c.ops);
  }
}

TEST_P(AvoidCopiesCase, ChangesNoBits) {
  for (const Case& c : kCases) {
    for (DType dtype : {f32, f64}) {
      SCOPED_TRACE(std::string(c.name) + " " + std::string(to_string(dtype)));
      Graph g;
      build(g, c, dtype);
      Program copies = compile(g, {.tuning = {.fuse = false}}), in_place = compile(g);
      expect_same_outputs(copies, in_place);
    }
  }
}

// A part of a large tensor is copied, so that the rest of that does not stay in memory until the part is read.
TEST(AvoidCopies, SmallPartsOfTensorsAreCopied) {
  for (std::int64_t parts : {4, 5}) {
    Graph g;
    Value x = g.value(Variable("x", Tensor::uniform({2, 3, 5, 4 * parts}, 1)));
    Value q = split(x, static_cast<int>(parts), -1)[1];
    g.output("y", attention(q, q, q));
    EXPECT_EQ(ops_of(plan_of(compile(g, {.target = cpu()}))), parts == 4 ? "strided_attention" : "split attention");
  }
}

TEST_P(AvoidCopiesCase, OpsOnTwoDevicesStayApart) {
  Graph g;
  Value x = g.value(Variable("x", Tensor::uniform({kBatch, kTime, kChannels}, 1)));
  Value q = heads_of(x);
  Value y = attention(q, q, q, {}, on_cpu);
  g.output("y", permute(y, {0, 2, 1, 3}));
  EXPECT_EQ(ops_of(plan_of(compile(g))), is_cuda() ? "permute attention permute" : "strided_attention");
}

TEST_P(AvoidCopiesCase, EmptyTensors) {
  for (const Shape& shape : {Shape{0, 3, 12}, Shape{2, 0, 12}, Shape{2, 3, 0}}) {
    Graph g;
    Value x = g.value(Variable("x", Tensor(f32, shape)));
    Value q = permute(reshape(x, {shape[0], shape[1], 3, shape[2] / 3}), {0, 2, 1, 3});
    Value y = permute(attention(q, q, q), {0, 2, 1, 3});
    g.output("y", y);
    g.output("gradient", grad(sum(y), {x})[0]);
    Program program = compile(g);
    program.run(sink);
    EXPECT_EQ(program.output("y").bytes(), 0u);
  }
}

TEST(AvoidCopies, Explained) {
  Graph g;
  build(g, kCases[1], f32);
  Program program = compile(g, {.target = cpu()});
  // split, concat, and permutes of q, k, v, the result and their gradients.
  EXPECT_EQ(plan_of(program).avoided_copies.ops, 10u);
  EXPECT_EQ(plan_of(program).avoided_copies.bytes, 4u * kBatch * kTime * kChannels * (3 + 3 + 8));
  EXPECT_NE(program.explain().find("without copies: 10 ops that only moved elements"), std::string::npos)
      << program.explain();
  EXPECT_EQ(plan_of(compile(g, {.target = cpu(), .tuning = {.fuse = false}})).avoided_copies.ops, 0u);
}

TEST(Strided, AWholeTensor) {
  const Strided whole = Strided::whole({2, 3, 4}, 7);
  EXPECT_EQ(whole.shape, (Shape{2, 3, 4}));
  EXPECT_EQ(whole.first, 0);
  EXPECT_EQ(whole.tensor, 7);
  EXPECT_EQ(whole.strides[0], 12);
  EXPECT_EQ(whole.strides[1], 4);
  EXPECT_EQ(whole.strides[2], 1);
}

INSTANTIATE_TEST_SUITE_P(Devices, AvoidCopiesCase, ::testing::ValuesIn(testing::devices()), device_name);

}  // namespace
}  // namespace graphsink::avoid_copies_test
