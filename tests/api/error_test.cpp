// The messages that a user reads when something is wrong. The table has one row for each message.
#include "graphsink/error.h"

#include <gtest/gtest.h>

#include <functional>

#include "graphsink/graphsink.h"
#include "messages.h"
#include "test_ops.h"

namespace graphsink::error_test {
namespace {

struct Row {
  const char* name;
  std::function<void()> act;
  std::vector<const char*> words;  // what the message must contain, besides this file's line
  ErrorCode code = ErrorCode::misuse;
};

void PrintTo(const Row& row, std::ostream* out) { *out << row.name; }

Graph trained(Variable w) {
  Graph g;
  Value x = g.feed("x", f32, {4, 3});
  sgd(mean(matmul(x, w)), {w}, {.lr = 0.1});
  return g;
}

// Asks for an exbibyte of workspace.
const OpDef hungry{.name = "hungry",
                   .infer = testing::infer_like_first,
                   .prepare =
                       [](const PrepareArgs&) {
                         return Prepared{nullptr, std::size_t{1} << 60};
                       },
                   .bodies = {testing::plus_one}};

const Row kRows[] = {
    {"MatmulShapes",
     [] {
       Graph g;
       matmul(g.feed("x", f32, {32, 784}), g.feed("y", f32, {700, 256}));
     },
     {"matmul", "[32, 784]", "[700, 256]", "remedy"}},
    {"BroadcastShapes",
     [] {
       Graph g;
       g.feed("x", f32, {3, 4}) + g.feed("y", f32, {3, 5});
     },
     {"add", "[3, 4]", "[3, 5]", "remedy"}},
    {"Dtypes",
     [] {
       Graph g;
       add(g.feed("x", f32, {3}), g.feed("y", i32, {3}));
     },
     {"add", "f32[3]", "i32[3]", "cast"}},
    {"TwoGraphs",
     [] {
       Graph g, h;
       add(g.feed("x", f32, {3}), h.feed("y", f32, {3}));
     },
     {"add", "two graphs", "remedy"}},
    {"NoGraph",
     [] {
       Variable a("a", Tensor({1.0f})), b("b", Tensor({1.0f}));
       add(a, b);
     },
     {"add", "no operand is a Value", "graph.value"}},
    {"NameNotUtf8",
     [] { Variable("layer\xff", Tensor({1.0f})); },
     {"Variable \"layer\\xff\"", "is not UTF-8", "give a name in UTF-8"}},
    {"ScopeWithoutAName", [] { Scope scope(""); }, {"Scope", "its name is empty", "layer3"}},
    {"ScopeNotUtf8", [] { Scope scope("layer\xff"); }, {"Scope", "\"layer\\xff\" is not UTF-8", "UTF-8"}},
    {"DefaultValue", [] { relu(Value()); }, {"relu", "default-constructed"}},
    {"MissingInput",
     [] {
       Graph g;
       Value x = g.input("pixels", f32, {2});
       g.output("y", relu(x));
       compile(g).run();
     },
     {"\"pixels\"", "f32[2]", "write()"}},
    {"WrongInputShape",
     [] {
       Graph g;
       Value x = g.input("pixels", f32, {2});
       g.output("y", relu(x));
       compile(g).write(x, std::vector<float>{1, 2, 3});
     },
     {"\"pixels\"", "f32[2]", "3 elements"}},
    {"WrongInputDtype",
     [] {
       Graph g;
       Value x = g.input("pixels", f32, {2});
       g.output("y", relu(x));
       compile(g).write(x, std::vector<std::int32_t>{1, 2});
     },
     {"\"pixels\"", "f32[2]", "i32", "convert"}},
    {"TooFewSlices",
     [] {
       Graph g;
       Value x = g.feed("x", f32, {2});
       g.record("s", sum(x));
       Program p = compile(g);
       p.write(x, std::vector<float>(6));
       p.run(sink, {.steps = 5});
     },
     {"\"x\"", "3 slices", "5 steps"}},
    {"NoRoomForTheArena",
     [] {
       Graph g;
       g.record("s", sum(tanh(g.feed("x", f32, {1 << 24, 1 << 20}))));
       compile(g).bind();
     },
     {"no room for the arena (65536.0 GiB)", "out of memory", "its largest values are", "tanh f32[16777216, 1048576]",
      "error_test.cpp:", "use smaller batches"},
     ErrorCode::out_of_memory},
    {"NoRoomForAnInput",
     [] {
       Graph g;
       g.record("s", sum(g.input("pixels", f32, {1 << 24, 1 << 20})));
       compile(g).bind();
     },
     {"no room for an input", "out of memory", "input \"pixels\" f32[16777216, 1048576] 65536.0 GiB",
      "use smaller shapes"},
     ErrorCode::out_of_memory},
    {"NoRoomForWorkspaces",
     [] {
       Graph g;
       g.output("y", emit(hungry, {g.feed("x", f32, {64})})[0]);
       compile(g).bind();
     },
     {"no room for the workspaces", "out of memory", "the program needs 1073741824.0 GiB", "use smaller batches"},
     ErrorCode::out_of_memory},
    {"NoGradient",
     [] {
       Graph g;
       Variable w("w", Tensor({1.0f}));
       Value x = g.feed("x", f32, {1});
       grad(sum(emit(testing::cpu_plus_one, {x * w})[0]), {w});
     },
     {"cpu_plus_one", "no gradient", ".grad"}},
    {"GradOfVector",
     [] {
       Graph g;
       Value x = g.feed("x", f32, {3});
       grad(relu(x), {x});
     },
     {"grad", "f32[3]", "mean()"}},
    {"RecordOfManyElements",
     [] {
       Graph g;
       g.record("r", relu(g.feed("x", f32, {5000})));
     },
     {"record", "f32[5000]", "mean()"}},
    {"NameTwice",
     [] {
       Graph g;
       Value x = g.feed("x", f32, {});
       g.record("r", x);
       g.record("r", x);
     },
     {"record", "\"r\"", "another name"}},
    {"AssignType",
     [] {
       Graph g;
       Variable w("w", Tensor({1.0f}));
       assign(w, g.feed("x", f32, {3}) * 1.0);
     },
     {"assign", "\"w\"", "f32[1]", "f32[3]"}},
    {"LoopChangesType",
     [] {
       Graph g;
       Value x = g.feed("x", f32, {1});
       while_(
           {x}, [](Value s) { return sum(s) < 3.0; }, [&](Value s) { return cast(s, i32); });
     },
     {"while_", "f32[1]", "i32[1]"}},
    {"BranchesDiffer",
     [] {
       Graph g;
       Value x = g.feed("x", f32, {1});
       if_(
           sum(x) < 3.0, [&] { return x * 2.0; }, [&] { return sum(x); });
     },
     {"if_", "f32[1]", "f32[]"}},
    {"PredicateIsNotBool",
     [] {
       Graph g;
       Value x = g.feed("x", f32, {});
       if_(
           x, [&] { return x; }, [&] { return x; });
     },
     {"if_", "f32[]", "less(a, b)"}},
    {"ValueOfAnEndedBody",
     [] {
       Graph g;
       Value x = g.feed("x", f32, {}), inner;
       if_(
           x < 3.0, [&] { return inner = x * 2.0; }, [&] { return x * 1.0; });
       relu(inner);
     },
     {"relu", "body", "return it"}},
    {"ReadAfterOptimizer",
     [] {
       Variable w("w", Tensor(f32, {3, 2}));
       Graph g = trained(w);
       g.value(w);
     },
     {"\"w\"", "optimizer", "before"}},
    {"TwoOptimizers",
     [] {
       Graph g;
       Variable w("w", Tensor({1.0f}));
       Value loss = sum(g.feed("x", f32, {1}) * w);
       assign(w, g.value(w) * 2.0);
       sgd(loss, {w});
     },
     {"\"w\"", "one place"}},
    {"UnknownRecord",
     [] {
       Graph g;
       g.record("loss", sum(g.feed("x", f32, {1})));
       compile(g).records("los");
     },
     {"\"los\"", "graph.record"}},
    {"NotAnOutput",
     [] {
       Graph g;
       Value x = g.input("x", f32, {1});
       Value y = relu(x);
       g.output("z", y * 2.0);
       Program p = compile(g);
       p.write(x, std::vector<float>{1});
       p.run();
       p.output(y);
     },
     {"not an output", "graph.output"}},
    {"ReadBeforeRun",
     [] {
       Graph g;
       g.output("y", relu(g.input("x", f32, {1})));
       compile(g).output("y");
     },
     {"has not run", "run()"}},
    {"ZeroSteps",
     [] {
       Graph g;
       g.record("s", sum(g.feed("x", f32, {1})));
       compile(g).run(sink, {.steps = 0});
     },
     {"0 steps", "at least 1"}},
    {"VariableType",
     [] {
       Variable("w", Tensor({1.0f})).write(Tensor({1.0f, 2.0f}));
     },
     {"\"w\"", "f32[1]", "f32[2]"}},
    {"NoSuchDevice",
     [] {
       Graph g;
       g.record("s", sum(g.feed("x", f32, {1})));
       compile(g, {.target = cuda(97)});
     },
     {"cuda:97", "remedy"},
     ErrorCode::unavailable},
    {"EmbeddingIndices",
     [] {
       Graph g;
       embedding(g.feed("table", f32, {5, 3}), g.feed("i", f32, {2}));
     },
     {"embedding", "f32[2]", "i32"}},
    {"CrossEntropyTargets",
     [] {
       Graph g;
       cross_entropy(g.feed("logits", f32, {5, 3}), g.feed("t", i32, {4}));
     },
     {"cross_entropy", "f32[5, 3]", "i32[4]"}},
    {"ReshapeCount",
     [] {
       Graph g;
       reshape(g.feed("x", f32, {6}), {4, 2});
     },
     {"reshape", "f32[6]", "[4, 2]"}},
    {"SumAxis",
     [] {
       Graph g;
       sum(g.feed("x", f32, {6}), {1});
     },
     {"sum", "f32[6]", "axis"}},
    {"ReplayEvery", [] { compile(Graph(), {.guards = {.replay_every = -1}}); }, {"compile", "replay_every is -1"}},
    {"HostOpPatience",
     [] { compile(Graph(), {.limits = {.host_op_patience = std::chrono::milliseconds(-5)}}); },
     {"compile", "host_op_patience is -5"}},
    {"HostOpPatienceForever",
     [] { compile(Graph(), {.limits = {.host_op_patience = std::chrono::milliseconds::max()}}); },
     {"compile", "100 years"}},
    {"EagerHasNoHistory",
     [] {
       Eager eager;
       Value x = eager.tensor({1});
       grad(sum(x), {x});
     },
     {"grad", "Eager", "Graph"}},
};

class Message : public ::testing::TestWithParam<Row> {};
INSTANTIATE_TEST_SUITE_P(All, Message, ::testing::ValuesIn(kRows),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_P(Message, NamesTheOpWhatWasSeenAndTheRemedy) {
  try {
    GetParam().act();
    FAIL() << "no error";
  } catch (const Error& e) {
    for (const char* word : GetParam().words) {
      EXPECT_NE(std::string(e.what()).find(word), std::string::npos) << "no \"" << word << "\" in: " << e.what();
    }
    EXPECT_FALSE(e.remedy().empty());
    EXPECT_EQ(e.code(), GetParam().code) << to_string(e.code());
  }
}

TEST(Message, NamesTheUsersLine) {
  Graph g;
  Value x = g.feed("x", f32, {3}), y = g.feed("y", f32, {4});
  unsigned line = 0;
  try {
    line = __LINE__ + 1;
    x* y;
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.where().line(), line);
    EXPECT_NE(std::string(e.what()).find("error_test.cpp:" + std::to_string(line)), std::string::npos) << e.what();
  }
}

TEST(Message, ARefusedRunChangesNothing) {
  Graph g;
  Value x = g.feed("x", f32, {1});
  Variable w("w", Tensor({1.0f}));
  assign(w, g.value(w) + x);
  Program p = compile(g);
  EXPECT_THROW(p.run(), Error);
  p.write(x, std::vector<float>{1, 2});
  EXPECT_THROW(p.run(sink, {.steps = 3}), Error);
  EXPECT_EQ(p.steps(), 0);
  EXPECT_EQ(w.read().at(0), 1.0);
  p.run(sink, {.steps = 2});
  EXPECT_EQ(w.read().at(0), 4.0);
}

// A binding for another language passes places like this one.
TEST(Message, NamesAPlaceThatWasGiven) {
  Graph g;
  const Where place("models/train.py", 7);
  Value x = g.input("x", f32, {3}), y = g.input("y", f32, {4});
  std::string message = testing::message_of([&] { add(Arg(x, place), y); });
  EXPECT_TRUE(testing::contains(message, "train.py:7: add")) << message;
  EXPECT_EQ(to_string(Where()), "");
}

}  // namespace
}  // namespace graphsink::error_test
