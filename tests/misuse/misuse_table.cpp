// The table of misuses, grouped by theme. A new row goes to the end of its theme.
#include <fstream>

#include "misuse.h"
#include "temporary_directory.h"
#include "test_ops.h"

// Rows use what was moved from: that is their misuse.
namespace graphsink::testing {
namespace {

// --- what rows are made of; each row has a process, and so a graph, of its own

Graph& graph() {
  static Graph g;
  return g;
}
template <class... Dims>
Value of(DType dtype, Dims... dims) {
  return graph().constant(Tensor(dtype, Shape{static_cast<std::int64_t>(dims)...}));
}
template <class... Dims>
Value floats(Dims... dims) {
  return of(f32, dims...);
}
template <class... Dims>
Value ints(Dims... dims) {
  return of(i32, dims...);
}
template <class T>
T moved_from(T from) {
  T to = std::move(from);
  return from;
}

// A parameter f32[3], an input f32[3], and a loss that depends on the parameter.
Variable& w() {
  static Variable variable("w", Tensor({1.0f, 2.0f, 3.0f}));
  return variable;
}
Value x() {
  static Value input = graph().input("x", f32, {3});
  return input;
}
Value loss() { return sum(x() * w()); }
Value predicate() { return sum(x()) > 0.0; }

DeviceId target() { return cuda_device_count() > 0 ? cuda(0) : cpu(); }
Program compiled(CompileOptions options = {}) {
  options.target = target();
  return compile(graph(), options);
}
// Has the input x(), the output "y" and the record "s".
Program program() {
  graph().output("y", relu(x()));
  graph().record("s", sum(x()));
  return compiled();
}
// Compiles what `y` needs, runs it with x = {1, 2, 3} and waits.
void run(const Value& y, CompileOptions options = {}) {
  graph().output("y", y);
  graph().output("x", x());
  Program p = compiled(options);
  p.write(x(), std::vector<float>{1, 2, 3});
  p.run();
  p.sync();
}

TemporaryDirectory& directory() {
  static TemporaryDirectory kept;
  return kept;
}
std::string file(const char* name, std::string_view content) {
  std::ofstream(directory() / name, std::ios::binary) << content;
  return directory() / name;
}
// A safetensors file with this header and so many bytes of data.
std::string checkpoint_file(std::string header, std::size_t bytes) {
  std::string size(8, '\0');
  size[0] = static_cast<char>(header.size());
  return file("c", size + header + std::string(bytes, '\0'));
}
Checkpoint checkpoint_of(const char* name, Tensor tensor) {
  Checkpoint checkpoint;
  checkpoint.tensors.emplace(name, std::move(tensor));
  return checkpoint;
}

// --- ops of users, with and without mistakes

const OpDef no_infer{.name = "no_infer", .cpu = plus_one};
const OpDef no_body{.name = "no_body", .infer = infer_like_first};
void infer_twice_as_long(InferArgs& a) { a.out(a.in(0).dtype, {2 * a.in(0).shape.size()}); }
constexpr Alias kFirst[] = {{0, 0}}, kNoSuchInput[] = {{0, 1}}, kNoSuchOutput[] = {{1, 0}};
const OpDef larger_view{.name = "larger_view", .infer = infer_twice_as_long, .views = kFirst, .cpu = plus_one};
const OpDef view_of_nothing{
    .name = "view_of_nothing", .infer = infer_like_first, .views = kNoSuchInput, .cpu = plus_one};
const OpDef nothing_is_view{
    .name = "nothing_is_view", .infer = infer_like_first, .views = kNoSuchOutput, .cpu = plus_one};
const OpDef wants_attributes{
    .name = "wants_attributes", .infer = [](InferArgs& a) { a.out(f32, {a.attrs<int>()}); }, .cpu = plus_one};
Access write_first(int operand, int) { return operand == 0 ? Access::write : Access::read; }
const OpDef writes{.name = "writes", .infer = [](InferArgs&) {}, .access = write_first, .cpu = [](const CpuArgs&) {}};
const OpDef writes_and_returns{
    .name = "writes_and_returns", .infer = infer_like_first, .access = write_first, .cpu = plus_one};
const OpDef writes_and_prints{.name = "writes_and_prints",
                              .infer = [](InferArgs&) {},
                              .access = write_first,
                              .purity = Purity::host_effect,
                              .cpu = [](const CpuArgs&) {}};

}  // namespace

std::span<const Row> misuses() {
  static const Row kRows[] = {
      // --- handles that refer to nothing: Value
      Row{"DefaultValueAsOperand", "relu", {"default-constructed"}, [] { relu(Value()); }},
      Row{"DefaultValueAsSecondOperand", "add", {"default-constructed"}, [] { x() + Value(); }},
      Row{"DefaultValueInMean", "mean", {"default-constructed"}, [] { mean(Value()); }},
      Row{"DefaultValueInConcat", "concat", {"default-constructed"}, [] { concat({x(), Value()}, 0); }},
      Row{"DefaultValueInStack", nullptr, {"default-constructed"}, [] { stack({Value(), x()}); }},
      Row{"DefaultValueInSplit", "split", {"default-constructed"}, [] { split(Value(), 2, 0); }},
      Row{"DefaultValueInTopK", "top_k", {"default-constructed"}, [] { top_k(Value(), 1); }},
      Row{"DefaultValueInDropout", "dropout", {"default-constructed"}, [] { dropout(Value(), 0.5); }},
      Row{"DefaultValueInRandom", "random_uniform", {"default-constructed"}, [] { random_uniform(Value()); }},
      Row{"DefaultValueInConv", "conv2d", {"default-constructed"}, [] { conv2d(Value(), floats(1, 1, 1, 1)); }},
      Row{"DefaultValueInAttention",
          "attention",
          {"default-constructed"},
          [] { attention(Value(), floats(1, 1, 1, 1), floats(1, 1, 1, 1)); }},
      Row{"DefaultValueAsOutput", "output", {"not a Value"}, [] { graph().output("y", Value()); }},
      Row{"DefaultValueAsRecord", "record", {"not a Value"}, [] { graph().record("y", Value()); }},
      Row{"DefaultValueAssigned", "assign", {"not a Value"}, [] { assign(w(), Value()); }},
      Row{"DefaultValueAsLoss", "grad", {"not a Value"}, [] { grad(Value(), {w()}); }},
      Row{"DefaultValueAsWrt", "grad", {"not a Value"}, [] { grad(loss(), {Value()}); }},
      Row{"DefaultValueAsInput", "write", {"not an input"}, [] { program().write(Value(), Tensor({1.0f})); }},
      Row{"DefaultValueRead", "read", {"another graph"}, [] { program().read(Value()); }},

      // --- handles that refer to nothing: Variable

      // --- handles that refer to nothing: Tensor

      // --- handles that refer to nothing: Graph, Program, Eager

      // --- building a graph
      Row{"TwoGraphs", "add", {"two graphs"}, [] { x() + Graph().constant(Tensor({1.0f})); }},
      Row{"NumbersAlone", "add", {"no operand is a Value", "graph.constant"}, [] { add(1.0, 2.0); }},
      Row{"VariablesAlone", "mul", {"no operand is a Value", "graph.value"}, [] { w() * w(); }},
      Row{"RecordOfVector", "record", {"f32[3]", "mean()"}, [] { graph().record("r", x()); }},
      Row{"RecordOfInteger", "record", {"i32[]", "not one float"}, [] { graph().record("r", ints()); }},
      Row{"RecordOfNumber", "record", {"not a Value"}, [] { graph().record("r", 1.0); }},
      Row{"RecordNameTwice",
          "record",
          {"\"r\"", "was used at misuse_table.cpp:", "another name"},
          [] {
            graph().record("r", sum(x()));
            graph().record("r", sum(x()));
          }},
      Row{"OutputNameTwice",
          "output",
          {"\"y\"", "was used at misuse_table.cpp:", "another name"},
          [] {
            graph().output("y", x());
            graph().output("y", x());
          }},
      Row{"OutputOfAnotherGraph",
          "output",
          {"another graph"},
          [] { graph().output("y", Graph().constant(Tensor({1.0f}))); }},
      Row{"OutputOfAnEager", "output", {"another graph"}, [] { graph().output("y", Eager().tensor({1})); }},
      Row{"AssignNumber", "assign", {"not a Value"}, [] { assign(w(), 1.0); }},
      Row{"AssignVariable", "assign", {"not a Value", "graph.value"}, [] { assign(w(), w()); }},
      Row{"AssignOtherType", "assign", {"\"w\"", "f32[3]", "f32[]"}, [] { assign(w(), sum(x())); }},
      Row{"AssignAfterTheOptimizer",
          "assign",
          {"\"w\"", "optimizer at misuse_table.cpp:", "one place"},
          [] {
            sgd(loss(), {w()});
            assign(w(), x());
          }},
      Row{"ReadAfterTheOptimizer",
          "Variable \"w\"",
          {"optimizer at misuse_table.cpp:", "before"},
          [] {
            sgd(loss(), {w()});
            x() * w();
          }},

      // --- types and shapes of ops
      Row{"AddShapes", "add", {"do not broadcast: f32[2, 3], f32[2]"}, [] { add(floats(2, 3), floats(2)); }},
      Row{"AddDtypes", "add", {"dtypes differ", "cast()"}, [] { add(floats(2), of(f64, 2)); }},
      Row{"AddBooleans", "add", {"takes f32", "bool"}, [] { add(of(boolean, 2), of(boolean, 2)); }},
      Row{"SubShapes", "sub", {"do not broadcast"}, [] { floats(4, 1) - floats(3, 1); }},
      Row{"DivIntegers", "div", {"takes f32", "i32[2]"}, [] { ints(2) / ints(2); }},
      Row{"NegBooleans", "neg", {"takes", "bool"}, [] { -of(boolean, 2); }},
      Row{"ReluIntegers", "relu", {"takes f32", "i32[2]"}, [] { relu(ints(2)); }},
      Row{"ExpIntegers", "exp", {"takes f32", "i32[]"}, [] { exp(ints()); }},
      Row{"PowIntegers", "pow", {"takes f32", "i32[2]"}, [] { pow(ints(2), ints(2)); }},
      Row{"LessShapes", "less", {"do not broadcast"}, [] { floats(2) < floats(3); }},
      Row{"LessDtypes", "less_equal", {"dtypes differ"}, [] { ints(2) <= floats(2); }},
      Row{"EqualDtypes", "equal", {"dtypes differ"}, [] { equal(of(boolean, 2), floats(2)); }},
      Row{"AndOfNumbers", "logical_and", {"bool"}, [] { logical_and(floats(2), floats(2)); }},
      Row{"WhereOfNumbers", "where", {"f32[2]"}, [] { where(floats(2), floats(2), floats(2)); }},
      Row{"WhereDtypes", "where", {"f32[2]", "i32[2]"}, [] { where(of(boolean, 2), floats(2), ints(2)); }},
      Row{"MatmulShapes",
          "matmul",
          {"inner dimensions differ: f32[2, 3], f32[4, 5]"},
          [] { matmul(floats(2, 3), floats(4, 5)); }},
      Row{"MatmulTransposed",
          "matmul",
          {"inner dimensions differ, a transposed"},
          [] { matmul(floats(2, 3), floats(3, 5), true); }},
      Row{"MatmulOfAVector", "matmul", {"takes two matrices"}, [] { matmul(floats(3), floats(3, 5)); }},
      Row{"MatmulBatches", "matmul", {"batches do not broadcast"}, [] { matmul(floats(2, 1, 1), floats(3, 1, 1)); }},
      Row{"SumAxis", "sum", {"there is no axis 2: f32[2, 3]"}, [] { sum(floats(2, 3), {2}); }},
      Row{"SumAxisTwice", "sum", {"axis -1 is named twice"}, [] { sum(floats(2, 3), {1, -1}); }},
      Row{"SumOfBooleans", "sum", {"takes numbers: bool"}, [] { sum(of(boolean, 2)); }},
      Row{"MeanOfIntegers", "mean", {"takes floats: i32"}, [] { mean(ints(2)); }},
      Row{"MaxOfNothing", "max", {"f32[0]"}, [] { max(floats(0)); }},
      Row{"ArgmaxAxis", "argmax", {"axis 1"}, [] { argmax(floats(3), 1); }},
      Row{"TopKOfTooFew", "top_k", {"f32[3]"}, [] { top_k(floats(3), 4); }},
      Row{"CumsumAxis", "cumsum", {"axis 5"}, [] { cumsum(floats(3), 5); }},
      Row{"SoftmaxAxis", "softmax", {"axis 2"}, [] { softmax(floats(3), 2); }},
      Row{"BroadcastLike", "broadcast_like", {"does not broadcast"}, [] { broadcast_like(floats(2), floats(3)); }},
      Row{"SumLike", "sum_like", {"does not broadcast"}, [] { sum_like(floats(2), floats(2, 2)); }},
      Row{"ReshapeCount", "reshape", {"f32[6]", "[4, 2]"}, [] { reshape(floats(6), {4, 2}); }},
      Row{"ReshapeTwoUnknown", "reshape", {"[-1, -1]"}, [] { reshape(floats(6), {-1, -1}); }},
      Row{"ReshapeLike", "reshape_like", {"f32[6]", "f32[5]"}, [] { reshape_like(floats(6), floats(5)); }},
      Row{"SqueezeOfTwo", "squeeze", {"f32[2]"}, [] { squeeze(floats(2), 0); }},
      Row{"UnsqueezeAxis", "unsqueeze", {"axis 3"}, [] { unsqueeze(floats(2), 3); }},
      Row{"TransposeVector", "transpose", {"needs two axes"}, [] { transpose(floats(3)); }},
      Row{"PermuteTwice", "permute", {"f32[2, 3]"}, [] { permute(floats(2, 3), {0, 0}); }},
      Row{"SliceStepZero", "slice", {"f32[3]"}, [] { slice(floats(3), {0}, {3}, {0}); }},
      Row{"SliceTooManyAxes", "slice", {"f32[3]"}, [] { slice(floats(3), {0, 0}, {1, 1}); }},
      Row{"PadAxes", "pad", {"f32[3]"}, [] { pad(floats(3), {1, 1}, {1, 1}); }},
      Row{"PadNegative", "pad", {"f32[3]"}, [] { pad(floats(3), {-1}, {0}); }},
      Row{"ConcatShapes", "concat", {"f32[2, 3]", "f32[2, 4]"}, [] { concat({floats(2, 3), floats(2, 4)}, 0); }},
      Row{"ConcatNothing", "concat", {}, [] { concat({}, 0); }, Line::none},
      Row{"StackShapes", nullptr, {"f32[1, 2]", "f32[1, 3]"}, [] { stack({floats(2), floats(3)}); }},
      Row{"SplitSizes", "split", {"f32[5]"}, [] { split(floats(5), std::vector<std::int64_t>{2, 2}, 0); }},
      Row{"SplitParts", "split", {"f32[5]"}, [] { split(floats(5), 2, 0); }},
      Row{"SplitNoParts", "split", {"f32[5]"}, [] { split(floats(5), 0, 0); }},
      Row{"GatherIndices", "gather", {"f32[2]", "i32"}, [] { gather(floats(5, 3), floats(2)); }},
      Row{"ScatterShapes", "scatter_add", {"f32[5, 3]"}, [] { scatter_add(floats(5, 3), ints(2), floats(2, 4)); }},
      Row{"EmbeddingIndices", "embedding", {"f32[2]", "i32"}, [] { embedding(floats(5, 3), floats(2)); }},
      Row{"EmbeddingTable", "embedding", {"not a matrix"}, [] { embedding(floats(5), ints(2)); }},
      Row{"CrossEntropyCount",
          "cross_entropy",
          {"f32[5, 3]", "i32[4]"},
          [] { cross_entropy(floats(5, 3), ints(4)); }},
      Row{"CrossEntropyTargets", "cross_entropy", {"the targets are not"}, [] { cross_entropy(floats(5, 3), floats(5)); }},
      Row{"Conv2dChannels", "conv2d", {"f32[1, 2, 4, 4]"}, [] { conv2d(floats(1, 2, 4, 4), floats(1, 3, 2, 2)); }},
      Row{"Conv2dGroups",
          "conv2d",
          {"groups"},
          [] { conv2d(floats(1, 4, 4, 4), floats(3, 2, 2, 2), {.groups = 2}); }},
      Row{"Conv2dStride",
          "conv2d",
          {"stride"},
          [] { conv2d(floats(1, 1, 4, 4), floats(1, 1, 2, 2), {.stride = {0, 1}}); }},
      Row{"PoolWindow", "max_pool2d", {"window"}, [] { max_pool2d(floats(1, 1, 4, 4), {0, 2}); }},
      Row{"LayerNormGain", "layer_norm", {"f32[4]"}, [] { layer_norm(floats(2, 3), floats(4), floats(3)); }},
      Row{"AttentionWidth",
          "attention",
          {"f32[1, 1, 2, 4]"},
          [] { attention(floats(1, 1, 2, 3), floats(1, 1, 2, 4), floats(1, 1, 2, 4)); }},
      Row{"DropoutProbability", "dropout", {"[0, 1)"}, [] { dropout(x(), 1.0); }},
      Row{"RandomIntegers", "random_uniform", {"not i32"}, [] { random_uniform(graph(), i32, {3}); }},
      Row{"RandomNaN", "random_normal", {"not finite"}, [] { random_normal(x(), 0.0 / 0.0); }},
      Row{"CheckFiniteOfIntegers", "check_finite", {"takes f32"}, [] { check_finite(ints(3)); }},

      // --- control flow: predicates, types, bodies
      Row{"PredicateIsNoBoolean",
          "if_",
          {"f32[]", "less(a, b)"},
          [] {
            if_(
                sum(x()), [] { return x(); }, [] { return x(); });
          }},
      Row{"PredicateIsAVector",
          "if_",
          {"bool[3]", "not one bool"},
          [] {
            if_(
                x() > 0.0, [] { return x(); }, [] { return x(); });
          }},
      Row{"PredicateIsADefaultValue",
          "if_",
          {"no operand is a Value"},
          [] {
            if_(
                Value(), [] { return x(); }, [] { return x(); });
          }},
      Row{"BranchesDiffer",
          "if_",
          {"f32[3]", "f32[]"},
          [] {
            if_(
                predicate(), [] { return x() * 2.0; }, [] { return sum(x()); });
          }},
      Row{"BranchReturnsNothing",
          "if_",
          {"not a Value of this graph"},
          [] {
            if_(
                predicate(), [] { return x() * 2.0; }, [] { return Value(); });
          }},
      Row{"BranchReturnsAValueOfAnotherGraph",
          "if_",
          {"not a Value of this graph"},
          [] {
            if_(
                predicate(), [] { return x() * 2.0; }, [] { return Graph().constant(Tensor(f32, {3})); });
          }},
      Row{"BranchOfAnEager",
          "if_",
          {"Eager", "control flow of C++"},
          [] {
            if_(
                Eager().tensor({1}), [] { return x(); }, [] { return x(); });
          }},
      Row{"LoopChangesType",
          "while_",
          {"f32[3]", "i32[3]"},
          [] {
            while_(
                {x()}, [](Value s) { return sum(s) < 3.0; }, [](Value s) { return cast(s, i32); });
          }},
      Row{"LoopConditionIsNoBoolean",
          "while_",
          {"f32[]", "less(a, b)"},
          [] {
            while_(
                {x()}, [](Value s) { return sum(s); }, [](Value s) { return s * 2.0; });
          }},
      Row{"LoopStateOfNumbers",
          "while_",
          {"no operand is a Value"},
          [] {
            while_(
                {1.0}, [](Value s) { return s < 3.0; }, [](Value s) { return s * 2.0; });
          }},
      Row{"AssignInABody",
          "assign",
          {"body", "outside"},
          [] {
            while_(
                {x()}, [](Value s) { return sum(s) < 3.0; },
                [](Value s) {
                  assign(w(), s);
                  return s;
                });
          }},
      Row{"OptimizerInABody",
          "sgd",
          {"body", "outside"},
          [] {
            while_(
                {x()}, [](Value s) { return sum(s) < 3.0; },
                [](Value s) {
                  sgd(sum(s * w()), {w()});
                  return s * 2.0;
                });
          }},
      Row{"RandomNumbersInThreeLoops",
          "dropout",
          {"more than two loops"},
          [] {
            auto loop = [](Value v, auto body) {
              return while_(
                  {v}, [](Value s) { return sum(s) < 3.0; }, body)[0];
            };
            loop(x(), [&](Value a) {
              return loop(a, [&](Value b) { return loop(b, [](Value c) { return dropout(c, 0.5); }); });
            });
          }},

      // --- control flow: a Value of another body

      // --- gradients through control flow

      // --- gradients
      Row{"NoGradient",
          "cpu_plus_one",
          {"no gradient", "grad() at misuse_table.cpp:", ".grad"},
          [] { grad(sum(emit(cpu_plus_one, {x() * w()})[0]), {w()}); }},
      Row{"LossIsAVector", "grad", {"f32[3]", "mean()"}, [] { grad(x() * w(), {w()}); }},
      Row{"LossIsAnInteger", "grad", {"i32[]"}, [] { grad(sum(ints(3)), {w()}); }},
      Row{"LossIsANumber", "grad", {"not a Value"}, [] { grad(1.0, {w()}); }},
      Row{"LossIsAVariable", "grad", {"not a Value"}, [] { grad(w(), {w()}); }},
      Row{"WrtIsANumber", "grad", {"not a Value"}, [] { grad(loss(), {1.0}); }},
      Row{"WrtIsAnInteger", "grad", {"i32[3]", "floats"}, [] { grad(loss(), {ints(3)}); }},
      Row{"WrtIsOfAnotherGraph",
          "grad",
          {"not a Value of the loss's graph"},
          [] { grad(loss(), {Graph().constant(Tensor({1.0f}))}); }},
      Row{"GradientOfAnEager",
          "grad",
          {"Eager", "Graph"},
          [] {
            Value v = Eager().tensor({1});
            grad(sum(v), {v});
          }},

      // --- optimizers
      Row{"ParameterTwice", "sgd", {"\"w\"", "given twice"}, [] { sgd(loss(), {w(), w()}); }},
      Row{"ParameterInTwoGroups",
          "adamw",
          {"\"w\"", "given twice"},
          [] { adamw(loss(), std::vector<ParameterGroup>{{{w()}}, {{w()}}}); }},
      Row{"AccumulateNever", "sgd", {"accumulate is 0"}, [] { sgd(loss(), {w()}, {.gradients = {.accumulate = 0}}); }},
      Row{"ParameterAlreadyAssigned",
          "sgd",
          {"\"w\"", "assigned at misuse_table.cpp:"},
          [] {
            Value l = loss();
            assign(w(), x());
            sgd(l, {w()});
          }},
      Row{"TwoOptimizers",
          nullptr,
          {"\"w\"", "optimizer at misuse_table.cpp:"},
          [] {
            Value l = loss();
            sgd(l, {w()});
            adamw(l, {w()});
          }},
      Row{"IntegerParameter",
          "grad",
          {"i32[1]", "floats"},
          [] { sgd(loss(), {Variable("i", Tensor({1}))}); }},
      Row{"LossOfSgdIsAVector", "grad", {"f32[3]", "mean()"}, [] { sgd(x() * w(), {w()}); }},
      Row{"SgdOfAnEager", nullptr, {"Eager"}, [] { sgd(sum(Eager().tensor({1})), {w()}); }},

      // --- ops of users
      Row{"OpWithoutABody", "no_body", {"body"}, [] { run(emit(no_body, {x()})[0]); }},
      Row{"OpWithoutABodyInAnEager", "no_body", {"no body"}, [] { emit(no_body, {Eager().tensor({1})}); }},
      Row{"OpWithoutInputs", "cpu_plus_one", {"no operand"}, [] { emit(cpu_plus_one, {}); }, Line::none},
      Row{"OpWithTooManyInputs",
          "cpu_plus_one",
          {"takes 1 inputs, was given 2"},
          [] { emit(cpu_plus_one, {x(), x()}); }},
      Row{"AttributesOfAnotherType", "attrs", {"not of type"}, [] { emit(wants_attributes, {x()}, 1.0); }, Line::none},
      Row{"WritesWhatIsNoVariable", "writes", {"not a Variable"}, [] { emit(writes, {x()}); }},
      Row{"WritesAVariableTwice",
          nullptr,
          {"\"w\"", "misuse_table.cpp:"},
          [] {
            emit(writes, {graph().value(w()), x()});
            emit(writes, {graph().value(w()), x()});
          }},
      Row{"WritesAVariableAndHasOutputs",
          "writes_and_returns",
          {"outputs"},
          [] { emit(writes_and_returns, {graph().value(w())}); }},
      Row{"WritesAVariableAndHasAnEffect",
          "writes_and_prints",
          {"host effect"},
          [] { emit(writes_and_prints, {graph().value(w())}); }},
      Row{"BodyThrows", "refuse_negative", {"negative input"}, [] { run(emit(cpu_refuse_negative, {-x()})[0]); }},

      // --- programs: compile and write
      Row{"NoSuchDevice", "cuda:97", {"remedy"}, [] { compile(graph(), {.target = cuda(97)}); }, Line::none},
      Row{"WriteOtherShape",
          "write(\"x\")",
          {"takes f32[3], was given f32[2]"},
          [] { program().write(x(), Tensor({1.0f, 2.0f})); }},
      Row{"WriteOtherCount",
          "write(\"x\")",
          {"takes f32[3], was given 4 elements"},
          [] { program().write(x(), std::vector<float>(4)); }},
      Row{"WriteOtherDtype",
          "write(\"x\")",
          {"f32[3]", "i32", "convert"},
          [] { program().write(x(), std::vector<std::int32_t>(3)); }},
      Row{"WriteToWhatIsNoInput", "write", {"not an input"}, [] { program().write(relu(x()), Tensor({1.0f})); }},
      Row{"WriteToAnInputMadeAfterCompile",
          "write",
          {"not an input", "before compile()"},
          [] {
            Program p = program();
            p.write(graph().input("late", f32, {1}), Tensor({1.0f}));
          }},
      Row{"WriteToAnInputOfAnotherGraph",
          "write",
          {"another graph"},
          [] { program().write(Graph().input("x", f32, {3}), Tensor({1.0f, 2.0f, 3.0f})); }},
      Row{"WriteToAnInputOfAnEager",
          "write",
          {"another graph"},
          [] { program().write(Eager().tensor({1}), Tensor({1.0f})); }},
      Row{"WriteNoSlices",
          "write(\"f\")",
          {"at least one slice"},
          [] {
            Value f = graph().feed("f", f32, {3});
            graph().output("f", f * 1.0);
            program().write(f, Tensor(f32, {0, 3}));
          }},
      Row{"WriteHalfASlice",
          "write(\"f\")",
          {"5 elements", "whole slices"},
          [] {
            Value f = graph().feed("f", f32, {3});
            graph().output("f", f * 1.0);
            program().write(f, std::vector<float>(5));
          }},
      Row{"WriteElementsForTwoOpenDimensions",
          "write(\"f\")",
          {"f32[open, open]", "write a Tensor"},
          [] {
            Value f = graph().input("f", f32, {open(2), open(2)});
            graph().output("f", f * 1.0);
            program().write(f, std::vector<float>(6));
          }},
      Row{"WriteAShapeThatAnOpRefuses",
          "add",
          {"do not broadcast: f32[5], f32[3]"},
          [] {
            Value f = graph().input("f", f32, {open(3)});
            graph().output("f", f + x());
            Program p = program();
            p.write(f, std::vector<float>(5));
            p.write(x(), std::vector<float>(3));
            p.run();
          }},

      // --- programs: run and read
      Row{"RunWithoutAnInput",
          "run",
          {"nothing was written to \"x\"", "f32[3]", "write()"},
          [] { program().run(); }},
      Row{"RunZeroSteps", "run", {"0 steps", "at least 1"}, [] { program().run(sink, {.steps = 0}); }},
      Row{"RunNegativeSteps", "run", {"-1 steps", "at least 1"}, [] { program().run(sink, {.steps = -1}); }},
      Row{"RunTooManySteps", "run", {"steps", "2^31"}, [] { program().run(sink, {.steps = std::int64_t{1} << 31}); }},
      Row{"RunMoreStepsThanSlices",
          "run",
          {"\"f\" has 2 slices for 3 steps"},
          [] {
            Value f = graph().feed("f", f32, {3});
            graph().output("f", f * 1.0);
            Program p = program();
            p.write(x(), std::vector<float>(3));
            p.write(f, std::vector<float>(6));
            p.run(sink, {.steps = 3});
          }},
      Row{"ReadUnknownRecord", "read", {"no record \"t\"", "graph.record"}, [] { program().read("t"); }},
      Row{"TryReadUnknownRecord", "read", {"no record \"t\""}, [] { program().try_read("t"); }},
      Row{"ReadUnknownOutput", "read", {"no output \"z\"", "graph.output"}, [] { program().read_output("z"); }},
      Row{"ReadBeforeRun", "read", {"has not run", "run()"}, [] { program().read_output("y"); }},
      Row{"ReadWhatIsNoOutput",
          "read",
          {"not an output", "graph.output"},
          [] {
            Program p = program();
            p.write(x(), std::vector<float>(3));
            p.run();
            p.read(x());
          }},
      Row{"ReadAValueOfAnotherGraph",
          "read",
          {"another graph"},
          [] { program().read(Graph().constant(Tensor({1.0f}))); }},
      Row{"SetNegativeSteps", "set_steps", {"-1 steps"}, [] { program().set_steps(-1); }},
      Row{"SetTooManySteps", "set_steps", {"2^31"}, [] { program().set_steps(std::int64_t{1} << 31); }},
      Row{"GatherOutOfRange", "gather", {"index out of range"}, [] { run(gather(floats(2), cast(x(), i32))); }},
      Row{"EmbeddingOutOfRange",
          "embedding",
          {"index out of range", "step 0"},
          [] { run(embedding(floats(2, 2), cast(x(), i32))); }},
      Row{"ScatterOutOfRange",
          "scatter_add",
          {"index out of range"},
          [] { run(scatter_add(floats(2), cast(x(), i32), x())); }},
      Row{"TargetOutOfRange",
          "cross_entropy",
          {"index out of range"},
          [] { run(cross_entropy(floats(3, 2), cast(x(), i32))); }},
      Row{"NotFinite", "check_finite", {"non-finite"}, [] { run(check_finite(x() / 0.0)); }},
      Row{"NotFiniteAnywhere", "log", {"non-finite"}, [] { run(log(-x()), {.check_finite = true}); }},

      // --- Variables, Tensors and Shapes
      Row{"TensorCount", "Tensor", {"2 values for f32[3]"}, [] { Tensor({3}, std::vector<float>(2)); }, Line::none},
      Row{"TensorNegativeDimension", "Tensor", {"negative"}, [] { Tensor(f32, {-1}); }, Line::none},
      Row{"ShapeOfRankNine", "Shape", {"more than 8"}, [] { Shape({1, 1, 1, 1, 1, 1, 1, 1, 1}); }, Line::none},

      // --- Eager
      Row{"EagerAndGraph", "add", {"two graphs"}, [] { Eager().tensor({1}) + x(); }},
      Row{"TwoEagers", "add", {"two graphs"}, [] { Eager().tensor({1}) + Eager().tensor({1}); }},
      Row{"EagerShapes",
          "matmul",
          {"f32[1]"},
          [] {
            Eager eager;
            matmul(eager.tensor({1}), eager.tensor({1}));
          }},
      Row{"EagerIndexOutOfRange",
          "gather",
          {"index out of range"},
          [] {
            Eager eager(target());
            gather(eager.tensor({1}), eager.tensor(Tensor({5})));
          }},
      Row{"EagerNotFinite",
          "check_finite",
          {"non-finite"},
          [] {
            Eager eager(target());
            check_finite(log(eager.tensor({-1})));
          }},
      Row{"EagerBodyThrows",
          "refuse_negative",
          {"negative input"},
          [] { emit(cpu_refuse_negative, {Eager().tensor({-1})}); }},

      // --- checkpoints
      Row{"CheckpointIsNotThere", nullptr, {"nothing", "cannot be opened"}, [] { read_checkpoint(directory() / "nothing"); }},
      Row{"CheckpointIsADirectory", nullptr, {"not a regular file"}, [] { read_checkpoint(directory().path()); }},
      Row{"CheckpointIsEmpty", nullptr, {"header size"}, [] { read_checkpoint(file("c", "")); }},
      Row{"CheckpointHeaderIsTooLarge", nullptr, {"header size"}, [] { read_checkpoint(file("c", "12345678")); }},
      Row{"CheckpointIsNoJson", nullptr, {"header", "not JSON"}, [] { read_checkpoint(checkpoint_file("{", 0)); }},
      Row{"CheckpointIsNoObject", nullptr, {"not a JSON object"}, [] { read_checkpoint(checkpoint_file("1", 0)); }},
      Row{"CheckpointIsTruncated",
          nullptr,
          {"tensor \"w\"", "data_offsets", "is not within the 3 bytes"},
          [] { read_checkpoint(checkpoint_file(R"({"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 3)); }},
      Row{"CheckpointOfUnknownDtype",
          nullptr,
          {"tensor \"w\", dtype", "seen \"F8\""},
          [] { read_checkpoint(checkpoint_file(R"({"w":{"dtype":"F8","shape":[1],"data_offsets":[0,1]}})", 1)); }},
      Row{"CheckpointOfABadBoolean",
          nullptr,
          {"tensor \"w\"", "neither 0 nor 1"},
          [] {
            std::string header = R"({"w":{"dtype":"BOOL","shape":[1],"data_offsets":[0,1]}})";
            read_checkpoint(file("c", std::string(1, static_cast<char>(header.size())) + std::string(7, '\0') + header + "2"));
          }},
      Row{"CheckpointInAMissingDirectory",
          nullptr,
          {"nowhere"},
          [] { write_checkpoint(directory() / "nowhere" / "c", Checkpoint()); }},
      Row{"CheckpointNameIsTaken",
          nullptr,
          {"__metadata__", "another name"},
          [] { write_checkpoint(directory() / "c", checkpoint_of("__metadata__", Tensor({1.0f}))); }},
      Row{"CheckpointNameIsNoText",
          nullptr,
          {"not UTF-8"},
          [] { write_checkpoint(directory() / "c", checkpoint_of("\xff", Tensor({1.0f}))); }},
      Row{"CheckpointHasNoSuchNumber",
          "the checkpoint",
          {"metadata \"step\": is missing"},
          [] { Checkpoint().number("step"); }},
      Row{"CheckpointNumberIsText",
          "the checkpoint",
          {"metadata \"step\": expected a whole number, seen \"x\""},
          [] {
            Checkpoint checkpoint;
            checkpoint.metadata["step"] = "x";
            checkpoint.number("step");
          }},
      Row{"SnapshotOfTwoOfOneName",
          "snapshot",
          {"two Variables are named \"w\""},
          [] { snapshot(std::vector{w(), Variable("w", Tensor({1.0f}))}); }},
      Row{"RestoreOfWhatIsMissing",
          "the checkpoint",
          {"no tensor \"w\"", "allow_missing"},
          [] { restore(std::vector{w()}, Checkpoint()); }},
      Row{"RestoreOfWhatIsUnused",
          "the checkpoint",
          {"\"v\" belongs to no Variable", "allow_unused"},
          [] { restore({}, checkpoint_of("v", Tensor({1.0f}))); }},
      Row{"RestoreOfAnotherShape",
          "the checkpoint",
          {"\"w\", shape", "f32[3]", "f32[1]"},
          [] { restore(std::vector{w()}, checkpoint_of("w", Tensor({1.0f}))); }},
      Row{"RestoreOfAnotherDtype",
          "the checkpoint",
          {"\"w\", dtype", "f32[3]", "i32[3]", "convert"},
          [] { restore(std::vector{w()}, checkpoint_of("w", Tensor({1, 2, 3}))); }},

      // --- loaders
      Row{"IdxIsNotThere", nullptr, {"nothing"}, [] { read_idx(directory() / "nothing"); }},
      Row{"IdxIsNoIdx", nullptr, {"remedy"}, [] { read_idx(file("idx", "this is no IDX file")); }},
      Row{"IdxIsEmpty", nullptr, {"remedy"}, [] { read_idx(file("idx", "")); }},
      Row{"DigitsAreNotThere", nullptr, {"t10k-images-idx3-ubyte"}, [] { read_digits(directory().path()); }},
      Row{"NoDigits", "seeded_digits", {"0"}, [] { seeded_digits(0, 1); }, Line::none},
      Row{"TextIsNotThere", nullptr, {"nothing"}, [] { read_text(directory() / "nothing"); }},
      Row{"TextIsTooShort", nullptr, {"256"}, [] { read_text(file("text", "short")); }},
      Row{"TokenOutsideTheVocabulary",
          "decode",
          {"1"},
          [] {
            Text text;
            text.vocabulary = "a";
            (void)text.decode({1});
          },
          Line::none},
  };
  return kRows;
}

}  // namespace graphsink::testing
