// The table of misuses, grouped by theme. A new row goes to the end of its theme.
#include <cmath>
#include <fstream>

#include "ir/plan.h"
#include "ir/system_ops.h"
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
// Slices of a feed "f" of a program that is gone.
StagedSlices staged(std::int64_t slices, std::optional<Shape> shape = {}, Where where = Where::current()) {
  const Value f = graph().feed("f", f32, {3}, where);
  Program p = program();
  return shape ? p.stage(f, slices, *shape, where) : p.stage(f, slices, where);
}
// A program() of which a step fails, while nobody has asked yet.
Program with_failed_step(Where where = Where::current()) {
  graph().output("rows", gather(Arg(floats(2), where), cast(x(), i32)));
  Program p = program();
  p.write(x(), std::vector<float>{1, 2, 3});
  p.run();
  return p;
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

const OpDef no_infer{.name = "no_infer", .bodies = {plus_one}};
const OpDef no_body{.name = "no_body", .infer = infer_like_first};
void infer_twice_as_long(InferArgs& a) { a.out(a.in(0).dtype, {2 * a.in(0).shape.size()}); }
constexpr Alias kFirst[] = {{0, 0}}, kNoSuchInput[] = {{0, 1}}, kNoSuchOutput[] = {{1, 0}};
void plus_two(const CpuArgs& a) { a.out<float>(0)[0] = a.in<float>(0)[0] + 2; }
const OpDef two_bodies{.name = "two_bodies", .infer = infer_like_first, .bodies = {plus_one, plus_two}};
const OpDef turned{
    .name = "turned", .infer = infer_like_first, .bodies = {plus_one}, .moves = [](const MoveArgs&, int) {
      AxisMap map;
      map.axes[0].of_whole = 7;
      return map;
    }};
void infer_flat(InferArgs& a) { a.out(a.in(0).dtype, {1, 2, 12}); }
const OpDef flattened{
    .name = "flattened", .infer = infer_flat, .bodies = {plus_one}, .moves = [](const MoveArgs&, int) {
      return AxisMap();
    }};
const OpDef larger_view{.name = "larger_view", .infer = infer_twice_as_long, .views = kFirst, .bodies = {plus_one}};
const OpDef view_of_nothing{
    .name = "view_of_nothing", .infer = infer_like_first, .views = kNoSuchInput, .bodies = {plus_one}};
const OpDef nothing_is_view{
    .name = "nothing_is_view", .infer = infer_like_first, .views = kNoSuchOutput, .bodies = {plus_one}};
// Not larger than an input of one element.
const OpDef in_place_of_nothing{
    .name = "in_place_of_nothing", .infer = infer_like_first, .in_place = kNoSuchInput, .bodies = {plus_one}};
const OpDef nothing_is_in_place{
    .name = "nothing_is_in_place", .infer = infer_like_first, .in_place = kNoSuchOutput, .bodies = {plus_one}};
constexpr Alias kNegative[] = {{0, -1}};
const OpDef negative_in_place{
    .name = "negative_in_place", .infer = infer_like_first, .in_place = kNegative, .bodies = {plus_one}};
const OpDef fewer_than_no_tiles{.name = "fewer_than_no_tiles",
                                .infer = infer_like_first,
                                .bodies = {Tiles{[](const BodyArgs&) { return std::int64_t{-1}; },
                                                 [](const CpuArgs&, std::int64_t, std::int64_t) {}}}};
void run_fewer_than_no_tiles(Mode mode, Where where = Where::current()) {
  graph().output("y", emit(fewer_than_no_tiles, {Arg(x(), where)})[0]);
  Program p = compile(graph(), {.target = cpu(), .tuning = {.threads = 2}, .guards = {.share_all = true}});
  p.write(x(), std::vector<float>{1, 2, 3});
  p.run(mode);
  p.sync();
}
void infer_squared(InferArgs& a) { a.out(a.in(0).dtype, {a.in(0).shape.size() * a.in(0).shape.size()}); }
const OpDef squared_view{.name = "squared_view", .infer = infer_squared, .views = kFirst, .bodies = {plus_one}};
const OpDef wants_attributes{
    .name = "wants_attributes", .infer = [](InferArgs& a) { a.out(f32, {a.attrs<int>()}); }, .bodies = {plus_one}};
Access write_first(int operand, int) { return operand == 0 ? Access::write : Access::read; }
const OpDef writes{
    .name = "writes", .infer = [](InferArgs&) {}, .access = write_first, .bodies = {[](const CpuArgs&) {}}};
const OpDef writes_and_returns{
    .name = "writes_and_returns", .infer = infer_like_first, .access = write_first, .bodies = {plus_one}};
const OpDef writes_and_prints{.name = "writes_and_prints",
                              .infer = [](InferArgs&) {},
                              .access = write_first,
                              .traits = {.host_effect = true},
                              .bodies = {[](const CpuArgs&) {}}};

const OpDef writes_uncaptured{.name = "writes_uncaptured",
                              .infer = [](InferArgs&) {},
                              .access = write_first,
                              .traits = {.capturable = false},
                              .bodies = {[](const CpuArgs&) {}}};

// An op of two inputs with a gradient.
constexpr OpDef two_inputs(std::vector<Value> (*grad)(const GradArgs&)) {
  return {.name = "two_inputs",
          .infer = [](InferArgs& a) { a.out(a.in(0).dtype, a.in(0).shape); },
          .bodies = {plus_one},
          .grad = grad};
}
const OpDef one_gradient = two_inputs([](const GradArgs& a) { return std::vector{a.grads[0]}; });
const OpDef three_gradients = two_inputs([](const GradArgs& a) { return std::vector(3, a.grads[0]); });
const OpDef scalar_gradients = two_inputs([](const GradArgs& a) { return std::vector(2, sum(a.grads[0])); });
const OpDef int_gradients = two_inputs([](const GradArgs& a) { return std::vector(2, cast(a.grads[0], i32)); });
const OpDef foreign_gradients =
    two_inputs([](const GradArgs&) { return std::vector(2, Graph().constant(Tensor(f32, {3}))); });
void grad_through(const OpDef& op, Where where = Where::current()) {
  Value y = emit(op, {Arg(x() * w(), where), Arg(x() * w(), where)})[0];
  grad(sum(y), {w()});
}

// --- control flow: bodies that keep a Value for later

Value kept;
Value keep(Value value) { return kept = std::move(value); }
Scan scan_nothing(const Values& state, const Values&) { return {state, {}}; }
// A branch that has ended, and of which a body kept a Value.
void branch_that_keeps() {
  if_(
      predicate(), [] { return keep(x() * 2.0); }, [] { return x() * 1.0; });
}

}  // namespace

std::span<const Row> misuses() {
  static const Row kRows[] = {
      // --- handles that refer to nothing: Value
      Row{"TypeOfDefaultValue", "Value", {"default-constructed"}, [] { Value().type(); }},
      Row{"DtypeOfDefaultValue", "Value", {"default-constructed"}, [] { Value().dtype(); }},
      Row{"ShapeOfDefaultValue", "Value", {"default-constructed"}, [] { Value().shape(); }},
      Row{"ShapeOfMovedFromValue", "Value", {"moved-from"}, [] { moved_from(floats(2)).shape(); }},
      Row{"DefaultValueAsOperand", "relu", {"default-constructed"}, [] { relu(Value()); }},
      Row{"DefaultValueAsSecondOperand", "add", {"default-constructed"}, [] { x() + Value(); }},
      Row{"MovedFromValueAsOperand", "tanh", {"moved-from"}, [] { tanh(moved_from(floats(2))); }},
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
      Row{"DefaultValueRead", "output", {"another graph"}, [] { program().output(Value()); }},
      Row{"DefaultValueReadByAnEager", "Eager::read", {"default-constructed"}, [] { Eager::read(Value()); }},
      Row{"DefaultValueAsLossOfSgd", "sgd", {"not a Value"}, [] { sgd(Value(), {w()}); }},
      Row{"DefaultValueAsScaledLoss",
          "adamw",
          {"not a Value"},
          [] { adamw(Value(), {w()}, {.gradients = {.loss_scale = LossScale{}}}); }},

      // --- handles that refer to nothing: Variable
      Row{"NameOfDefaultVariable", "Variable", {"refers to nothing"}, [] { Variable().name(); }},
      Row{"TypeOfDefaultVariable", "Variable", {"refers to nothing"}, [] { Variable().type(); }},
      Row{"ReadOfDefaultVariable", "Variable", {"refers to nothing"}, [] { Variable().read(); }},
      Row{"WriteOfDefaultVariable", "Variable", {"refers to nothing"}, [] { Variable().write(Tensor({1.0f})); }},
      Row{"ReadOfMovedFromVariable", "Variable", {"moved from"}, [] { moved_from(w()).read(); }},
      Row{"WriteOfMovedFromVariable", "Variable", {"moved from"}, [] { moved_from(w()).write(Tensor({1.0f})); }},
      Row{"DefaultVariableAsOperand", "mul", {"refers to nothing"}, [] { x() * Variable(); }},
      Row{"DefaultVariableAsFirstOperand", "mul", {"refers to nothing"}, [] { Variable() * x(); }},
      Row{"DefaultVariableBesideANumber", "add", {"refers to nothing"}, [] { Variable() + 1.0; }},
      Row{"DefaultVariableInAGraph", "Variable", {"refers to nothing"}, [] { graph().value(Variable()); }},
      Row{"DefaultVariableAsOutput", "Variable", {"refers to nothing"}, [] { graph().output("y", Variable()); }},
      Row{"DefaultVariableAssigned", "assign", {"refers to nothing"}, [] { assign(Variable(), x()); }},
      Row{"DefaultVariableAsWrt", "Variable", {"refers to nothing"}, [] { grad(loss(), {Variable()}); }},
      Row{"DefaultVariableAsParameter", "sgd", {"refers to nothing"}, [] { sgd(loss(), {Variable()}); }},
      Row{"TwoDefaultParameters", "adamw", {"refers to nothing"}, [] { adamw(loss(), {Variable(), Variable()}); }},
      Row{"DefaultVariableAsLearningRate", "Variable", {"refers to nothing"}, [] { sgd(loss(), {w()}, {Variable()}); }},
      Row{"DefaultVariableInAnEager", "relu", {"refers to nothing"}, [] { Eager().tensor({1}) + relu(Variable()); }},
      Row{"SnapshotOfADefaultVariable",
          "snapshot",
          {"refers to nothing"},
          [] { snapshot(std::vector<Variable>{Variable()}); }},
      Row{"RestoreOfADefaultVariable",
          "restore",
          {"refers to nothing"},
          [] { restore(std::vector<Variable>{Variable()}, Checkpoint()); }},
      Row{"WriteOfAScheduledLearningRate",
          "Variable",
          {"the lr of an optimizer whose learning rate is a schedule"},
          [] {
            Optimizer opt = sgd(loss(), {w()}, {.lr = cosine_schedule(graph(), {.steps = 10})});
            opt.lr.write(Tensor({0.1f}));
          }},
      Row{"ReadOfALearningRateThatAGroupDoesNotHave",
          "Variable",
          {"the lr of an optimizer"},
          [] { sgd(loss(), {w()}).group_lr[0].read(); }},

      // --- handles that refer to nothing: Tensor
      Row{"TypeOfDefaultTensor", "Tensor", {"default-constructed"}, [] { Tensor().type(); }},
      Row{"DtypeOfDefaultTensor", "Tensor", {"default-constructed"}, [] { Tensor().dtype(); }},
      Row{"ShapeOfDefaultTensor", "Tensor", {"default-constructed"}, [] { Tensor().shape(); }},
      Row{"BytesOfDefaultTensor", "Tensor", {"default-constructed"}, [] { Tensor().bytes(); }},
      Row{"DataOfDefaultTensor", "Tensor", {"default-constructed"}, [] { Tensor().data(); }},
      Row{"ElementsOfDefaultTensor", "Tensor", {"default-constructed"}, [] { Tensor().as<float>(); }},
      Row{"ElementOfDefaultTensor", "Tensor", {"default-constructed"}, [] { Tensor().at(0); }},
      Row{"ConversionOfDefaultTensor", "Tensor", {"default-constructed"}, [] { Tensor().to(f64); }},
      Row{"ElementsOfMovedFromTensor", "Tensor", {"moved-from"}, [] { moved_from(Tensor({1.0f})).as<float>(); }},
      Row{"ElementOfMovedFromTensor", "Tensor", {"moved-from"}, [] { moved_from(Tensor({1.0f})).at(0); }},
      Row{"DefaultTensorAsConstant", "constant", {"default-constructed"}, [] { graph().constant(Tensor()); }},
      Row{"DefaultTensorInAVariable", "Variable \"v\"", {"default-constructed"}, [] { Variable("v", Tensor()); }},
      Row{"DefaultTensorWrittenToAVariable", "Variable \"w\"", {"default"}, [] { w().write(Tensor()); }},
      Row{"MovedFromTensorWrittenToAVariable",
          "Variable \"w\"",
          {"moved-from"},
          [] { w().write(moved_from(Tensor({1.0f, 2.0f, 3.0f}))); }},
      Row{"DefaultTensorWrittenToAnInput", "write", {"default"}, [] { program().write(x(), Tensor()); }},
      Row{"MovedFromTensorWrittenToAnInput",
          "write",
          {"moved-from"},
          [] { program().write(x(), moved_from(Tensor({1.0f, 2.0f, 3.0f}))); }},
      Row{"DefaultTensorInAnEager", "Eager", {"default-constructed"}, [] { Eager().tensor(Tensor()); }},
      Row{"DefaultTensorInACheckpoint",
          nullptr,
          {"tensor \"v\"", "default-constructed", "remedy"},
          [] { write_checkpoint(directory() / "c", checkpoint_of("v", Tensor())); }},
      Row{"MovedFromTensorInACheckpoint",
          nullptr,
          {"tensor \"v\"", "moved from"},
          [] { write_checkpoint(directory() / "c", checkpoint_of("v", moved_from(Tensor({1.0f})))); }},
      Row{"DefaultTensorRestored",
          "the checkpoint",
          {"tensor \"w\"", "default-constructed"},
          [] { restore(std::vector{w()}, checkpoint_of("w", Tensor())); }},

      // --- handles that refer to nothing: Graph, Program, Eager
      Row{"InputOfMovedFromGraph", "Graph", {"moved-from"}, [] { moved_from(Graph()).input("x", f32, {3}); }},
      Row{"FeedOfMovedFromGraph", "Graph", {"moved-from"}, [] { moved_from(Graph()).feed("x", f32, {3}); }},
      Row{"ConstantOfMovedFromGraph", "Graph", {"moved-from"}, [] { moved_from(Graph()).constant(Tensor({1.0f})); }},
      Row{"ValueOfMovedFromGraph", "Graph", {"moved-from"}, [] { moved_from(Graph()).value(w()); }},
      Row{"StepOfMovedFromGraph", "Graph", {"moved-from"}, [] { moved_from(Graph()).step(); }},
      Row{"RecordOfMovedFromGraph", "Graph", {"moved-from"}, [] { moved_from(Graph()).record("s", sum(x())); }},
      Row{"OutputOfMovedFromGraph", "Graph", {"moved-from"}, [] { moved_from(Graph()).output("y", x()); }},
      Row{"CompileOfMovedFromGraph", "Graph", {"moved-from"}, [] { compile(moved_from(Graph())); }},
      Row{"RandomOfMovedFromGraph", "Graph", {"moved-from"}, [] { random_uniform(moved_from(Graph()), f32, {3}); }},
      Row{"ScheduleOfMovedFromGraph", "Graph", {"moved-from"}, [] { cosine_schedule(moved_from(Graph()), {}); }},
      Row{"PlanOfMovedFromProgram", "Program", {"moved-from"}, [] { moved_from(program()).plan(); }},
      Row{"ExplainMovedFromProgram", "Program", {"moved-from"}, [] { moved_from(program()).explain(); }},
      Row{"ExplainJsonOfMovedFromProgram", "Program", {"moved-from"}, [] { moved_from(program()).explain_json(); }},
      Row{"MemoryOfMovedFromProgram", "Program", {"moved-from"}, [] { moved_from(program()).memory(); }},
      Row{"WriteToMovedFromProgram",
          "Program",
          {"moved-from"},
          [] { moved_from(program()).write(x(), Tensor({1.0f, 2.0f, 3.0f})); }},
      Row{"WriteElementsToMovedFromProgram",
          "Program",
          {"moved-from"},
          [] { moved_from(program()).write(x(), std::vector<float>(3)); }},
      Row{"BindMovedFromProgram", "Program", {"moved-from"}, [] { moved_from(program()).bind(); }},
      Row{"RunMovedFromProgram", "Program", {"moved-from"}, [] { moved_from(program()).run(); }},
      Row{"SyncMovedFromProgram", "Program", {"moved-from"}, [] { moved_from(program()).sync(); }},
      Row{"PollMovedFromProgram", "Program", {"moved-from"}, [] { moved_from(program()).poll(); }},
      Row{"ReadMovedFromProgram", "Program", {"moved-from"}, [] { moved_from(program()).records("s"); }},
      Row{"TryReadMovedFromProgram", "Program", {"moved-from"}, [] { moved_from(program()).try_records("s"); }},
      Row{"ReadOutputOfMovedFromProgram", "Program", {"moved-from"}, [] { moved_from(program()).output("y"); }},
      Row{"ReadValueOfMovedFromProgram", "Program", {"moved-from"}, [] { moved_from(program()).output(x()); }},
      Row{"SetSeedOfMovedFromProgram", "Program", {"moved-from"}, [] { moved_from(program()).set_seed(1); }},
      Row{"StepsOfMovedFromProgram", "Program", {"moved-from"}, [] { moved_from(program()).steps(); }},
      Row{"SetStepsOfMovedFromProgram", "Program", {"moved-from"}, [] { moved_from(program()).set_steps(1); }},
      Row{"CountersOfMovedFromProgram", "Program", {"moved-from"}, [] { moved_from(program()).counters(); }},
      Row{"ReportOfMovedFromProgram", "Program", {"moved-from"}, [] { moved_from(program()).automatic_report(); }},
      Row{"CaptureOfMovedFromProgram", "Program", {"moved-from"}, [] { moved_from(program()).captured(); }},
      Row{"ArenaOfMovedFromProgram", "Program", {"moved-from"}, [] { moved_from(program()).arena_bytes(); }},
      Row{"TargetOfMovedFromProgram", "Program", {"moved-from"}, [] { moved_from(program()).target(); }},
      Row{"TensorOfMovedFromEager", "Eager", {"moved-from"}, [] { moved_from(Eager()).tensor({1}); }},

      Row{"StageOfMovedFromProgram", "Program", {"moved-from"}, [] { moved_from(program()).stage(x(), 1); }},
      Row{"StagedOfMovedFromProgram",
          "Program",
          {"moved-from"},
          [] { moved_from(program()).write(StagedSlices()); }},

      // --- slices of Program::stage()
      Row{"StageOfAnInput", "stage(\"x\")", {"no slices", "feed()"}, [] { program().stage(x(), 1); }},
      Row{"StageOfNoInput", "stage", {"not an input or feed"}, [] { program().stage(relu(x()), 1); }},
      Row{"StageOfAnotherGraph",
          "stage",
          {"another graph"},
          [] { program().stage(Graph().feed("f", f32, {3}), 1); }},
      Row{"StageNoSlices", "stage(\"f\")", {"0 slices", "one slice for each step"}, [] { staged(0); }},
      Row{"StageTooManySlices", "stage(\"f\")", {"slices of 12 B", "fewer"}, [] { staged(INT64_MAX); }},
      Row{"StageAWrongShape",
          "stage(\"f\")",
          {"f32[3]", "f32[4]", "shape of one slice"},
          [] { staged(2, Shape{4}); }},
      Row{"StageAnOpenShape", "stage(\"f\")", {"f32[3]", "open"}, [] { staged(2, graph().input("o", f32, {open(3)}).shape()); }},
      Row{"SliceBehindTheLast", "StagedSlices", {"slice 2 of 2", "from 0"}, [] { (void)staged(2).slice<float>(2); }},
      Row{"SliceBeforeTheFirst", "StagedSlices", {"slice -1 of 2"}, [] { (void)staged(2).bytes(-1); }},
      Row{"SliceOfAnotherType", "StagedSlices", {"f32[3]", "i32"}, [] { (void)staged(2).slice<int>(0); }},
      Row{"SliceOfNone", "StagedSlices", {"slice 0 of 0", "stage()"}, [] { (void)StagedSlices().slice<float>(0); }},
      Row{"StagedTwice",
          "write",
          {"no slices", "once"},
          [] {
            const Value f = graph().feed("f", f32, {3});
            Program p = program();
            StagedSlices slices = p.stage(f, 1);
            p.write(std::move(slices));
            p.write(std::move(slices));
          }},
      Row{"StagedOfAnotherProgram", "write", {"another program"}, [] {
            StagedSlices slices = staged(2);
            compiled().write(std::move(slices));
          }},

      // --- building a graph
      Row{"TwoGraphs", "add", {"two graphs"}, [] { x() + Graph().constant(Tensor({1.0f})); }},
      Row{"NumbersAlone", "add", {"no operand is a Value", "graph.constant"}, [] { add(1.0, 2.0); }},
      Row{"VariablesAlone", "mul", {"no operand is a Value", "graph.value"}, [] { w() * w(); }},
      Row{"RecordOfTooManyElements",
          "record",
          {"f32[4097]", "from 1 to 4096", "mean()"},
          [] { graph().record("r", floats(4097)); }},
      Row{"RecordOfNothing", "record", {"f32[0]", "from 1 to 4096"}, [] { graph().record("r", floats(0)); }},
      Row{"RecordOfOpenVector",
          "record",
          {"f32[open(3)]", "a fixed number"},
          [] { graph().record("r", graph().input("open", f32, {open(3)})); }},
      Row{"RecordCapacityOfVectors",
          "record",
          {"a capacity of 1048577 values", "from 1 to 1048576"},
          [] { graph().record("r", floats(1024), {.capacity = (1 << 20) + 1}); }},
      Row{"RecordCapacityThatIsRoundedUp",
          "record",
          {"from 1 to 268435456"},
          [] { graph().record("r", x(), {.capacity = (1 << 28) + 1}); }},
      Row{"StopOfNumber", "stop_when", {"not a Value"}, [] { graph().stop_when(1.0); }},
      Row{"StopOfFloats", "stop_when", {"f32[4096]", "not a boolean scalar"}, [] { graph().stop_when(floats(4096)); }},
      Row{"StopOfTooManyConditions",
          "stop_when",
          {"8 conditions", "logical_or()"},
          [] {
            for (int i = 0; i < 9; ++i) graph().stop_when(all(x() < 0.0));
          }},
      Row{"RecordOfInteger", "record", {"i32[]", "not floats"}, [] { graph().record("r", ints()); }},
      Row{"RecordOfNumber", "record", {"not a Value"}, [] { graph().record("r", 1.0); }},
      Row{"RecordNameTwice",
          "record",
          {"\"r\"", "was used at misuse_table.cpp:", "another name"},
          [] {
            graph().record("r", sum(x()));
            graph().record("r", sum(x()));
          }},
      Row{"InputNameTwice",
          "feed",
          {"\"twice\"", "was used at misuse_table.cpp:", "another name"},
          [] {
            graph().input("twice", f32, {2});
            graph().feed("twice", f32, {3});
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
      Row{"AssignNumber", "assign", {"which graph", "g.assign("}, [] { assign(w(), 1.0); }},
      Row{"AssignVariable", "assign", {"which graph", "g.assign("}, [] { assign(w(), w()); }},
      Row{"AssignOtherType", "assign", {"\"w\"", "f32[3]", "f32[]"}, [] { assign(w(), sum(x())); }},
      Row{"AssignValueOfAnEager", "assign", {"Eager", "write()"}, [] { assign(w(), Eager().tensor({1, 2, 3})); }},
      Row{"AssignAfterTheOptimizer",
          "assign",
          {"\"w\"", "optimizer at misuse_table.cpp:", "one place"},
          [] {
            sgd(loss(), {w()});
            assign(w(), x());
          }},
      Row{"ReadAfterTheOptimizer",
          "Variable \"w\"",
          {"optimizer at misuse_table.cpp:", "before", "updated(variable)"},
          [] {
            sgd(loss(), {w()});
            x() * w();
          }},

      Row{"UpdatedBeforeTheOptimizer",
          "updated",
          {"nothing in this graph has updated \"w\"", "behind the optimizer or assign()"},
          [] { graph().updated(w()); }},

      // --- types and shapes of ops
      Row{"AddShapes", "add", {"do not broadcast: f32[2, 3], f32[2]"}, [] { add(floats(2, 3), floats(2)); }},
      Row{"AddDtypes", "add", {"dtypes differ", "cast()", "holds both"}, [] { add(floats(2), of(f64, 2)); }},
      Row{"AddBooleans", "add", {"takes f32", "bool"}, [] { add(of(boolean, 2), of(boolean, 2)); }},
      Row{"SubShapes", "sub", {"do not broadcast"}, [] { floats(4, 1) - floats(3, 1); }},
      Row{"DivIntegers", "div", {"takes f32", "i32[2]"}, [] { ints(2) / ints(2); }},
      Row{"NegBooleans", "neg", {"takes", "bool"}, [] { -of(boolean, 2); }},
      Row{"ReluIntegers", "relu", {"takes f32", "i32[2]"}, [] { relu(ints(2)); }},
      Row{"ExpIntegers", "exp", {"takes f32", "i32[]"}, [] { exp(ints()); }},
      Row{"PowIntegers", "pow", {"takes f32", "i32[2]"}, [] { pow(ints(2), ints(2)); }},
      Row{"LessShapes", "less", {"do not broadcast"}, [] { (void)(floats(2) < floats(3)); }},
      Row{"LessDtypes", "less_equal", {"dtypes differ"}, [] { (void)(ints(2) <= floats(2)); }},
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
          [] { matmul(floats(2, 3), floats(3, 5), {.transpose_a = true}); }},
      Row{"MatmulOfAVector", "matmul", {"takes two matrices"}, [] { matmul(floats(3), floats(3, 5)); }},
      Row{"MatmulBatches", "matmul", {"batches do not broadcast"}, [] { matmul(floats(2, 1, 1), floats(3, 1, 1)); }},
      Row{"SumAxis", "sum", {"there is no axis 2: f32[2, 3]"}, [] { sum(floats(2, 3), {2}); }},
      Row{"SumAxisTwice", "sum", {"axis -1 is named twice"}, [] { sum(floats(2, 3), {1, -1}); }},
      Row{"SumOfBooleans", "sum", {"takes f32, f64, f16, bf16, i32, i64: bool[2]"}, [] { sum(of(boolean, 2)); }},
      Row{"MeanOfIntegers", "mean", {"takes f32, f64, f16, bf16: i32"}, [] { mean(ints(2)); }},
      Row{"MaxOfNothing", "max", {"f32[0]"}, [] { max(floats(0)); }},
      Row{"ArgmaxAxis", "argmax", {"axis 1"}, [] { argmax(floats(3), 1); }},
      Row{"TopKOfTooFew", "top_k", {"f32[3]"}, [] { top_k(floats(3), 4); }},
      Row{"SortAxis", "sort", {"there is no axis 1: f32[3]"}, [] { sort(floats(3), 1); }},
      Row{"SortOfBooleans", "sort", {"takes", "bool[3]"}, [] { sort(of(boolean, 3)); }},
      Row{"ClampBounds", "clamp", {"bounds are 3 and 2"}, [] { clamp(floats(3), 3, 2); }},
      Row{"ClampBelowNan", "clamp", {"the upper bound is nan", "pass a number"}, [] { clamp(floats(3), 2, std::nan("")); }},
      Row{"ClampBoundOfAnotherDtype", "clamp", {"0.5", "i32"}, [] { clamp(ints(3), 0, 0.5); }},
      Row{"ClampBetweenNans", "clamp", {"the lower bound is nan", "pass a number"}, [] { clamp(floats(3), std::nan(""), 1); }},
      Row{"VarOfIntegers", "var", {"not of floats: i32[2]"}, [] { var(ints(2)); }},
      Row{"VarCorrection", "var", {"correction 3", "elements, 3"}, [] { var(floats(3), {}, {.correction = 3}); }},
      Row{"VarAxis", "var", {"there is no axis 4"}, [] { var(floats(3), {4}); }},
      Row{"ProdOfBooleans", "prod", {"takes", "bool[2]"}, [] { prod(of(boolean, 2)); }},
      Row{"AnyOfNumbers", "any", {"takes bool: f32[2]"}, [] { any(floats(2)); }},
      Row{"AllAxis", "all", {"there is no axis 1"}, [] { all(of(boolean, 2), {1}); }},
      Row{"LogSumExpOfIntegers", "logsumexp", {"takes f32", "i32[2]"}, [] { logsumexp(ints(2)); }},
      Row{"ArangeOfAnAxisThatIsNotThere", "arange", {"there is no axis 1"}, [] { arange(floats(2), 1); }},
      Row{"ArangeOfHalves", "arange", {"not f16"}, [] { arange(floats(2), 0, f16); }},
      Row{"ArangeStepOfZero", "arange", {"step is 0"}, [] { arange(Graph(), f32, 0, 1, 0); }},
      Row{"ArangeOfFractions", "arange", {"0.5", "i32"}, [] { arange(Graph(), i32, 0, 2, 0.5); }},
      Row{"ArangeBeyondItsDtype", "arange", {"256", "u8"}, [] { arange(Graph(), u8, 250, 257); }},
      Row{"OneHotOfFloats", "one_hot", {"indices are not i32: f32[2]"}, [] { one_hot(floats(2), 3); }},
      Row{"UniqueBooleans",
          "unique",
          {"takes f32, f64, f16, bf16, i32, i64, u8: bool[2, 3]", "u8"},
          [] { unique(of(boolean, 2, 3)); }},
      Row{"OneHotOfLongs", "one_hot", {"indices are not i32: i64[2]", "clamp"}, [] { one_hot(of(i64, 2), 3); }},
      Row{"OneHotOfNoClasses", "one_hot", {"0 classes"}, [] { one_hot(ints(2), 0); }},
      Row{"TrilOfAVector", "tril", {"needs two axes: f32[3]"}, [] { tril(floats(3)); }},
      Row{"TakeAlongShapes",
          "take_along_axis",
          {"differ beside axis 1: f32[2, 3], i32[3, 1]"},
          [] { take_along_axis(floats(2, 3), ints(3, 1), 1); }},
      Row{"TakeAlongLongs", "take_along_axis", {"clamp"}, [] { take_along_axis(floats(2), of(i64, 2), 0); }},
      Row{"TakeAlongFloats", "take_along_axis", {"not i32"}, [] { take_along_axis(floats(2), floats(2), 0); }},
      Row{"BatchNormOfAVector", "batch_norm", {"no channels: f32[3]"}, [] { batch_norm(floats(3), floats(3), floats(3)); }},
      Row{"BatchNormGain",
          "batch_norm",
          {"gain", "f32[2, 3], f32[2]"},
          [] { batch_norm(floats(2, 3), floats(2), floats(3)); }},
      Row{"GroupNormGroups",
          "group_norm",
          {"3 channels are not 2 groups"},
          [] { group_norm(floats(2, 3), 2, floats(3), floats(3)); }},
      Row{"AttentionMask",
          "attention",
          {"does not broadcast", "f32[1, 1, 3, 3]"},
          [] {
            Value q = reshape(floats(3, 4), {1, 1, 3, 4});
            attention(q, q, q, of(boolean, 2));
          }},
      Row{"AttentionHeadsWithAMask",
          "attention",
          {"do not fit together", "f32[1, 2, 3, 2]", "f32[1, 1, 3, 2]"},
          [] {
            Value q = reshape(floats(3, 4), {1, 2, 3, 2}), k = reshape(floats(3, 2), {1, 1, 3, 2});
            attention(q, k, k, of(boolean, 3));
          }},
      Row{"AttentionBiasDtype",
          "attention",
          {"mask or bias is i32[3]"},
          [] {
            Value q = reshape(floats(3, 4), {1, 1, 3, 4});
            attention(q, q, q, ints(3));
          }},
      Row{"RandintOfNothing", "randint", {"[3, 3)"}, [] { randint(floats(2), 3, 3); }},
      Row{"RandintOfTooMany", "randint", {"2^32"}, [] { randint(floats(2), 0, std::int64_t{1} << 33, i64); }},
      Row{"RandintBeyondItsDtype", "randint", {"i32 does not hold"}, [] { randint(floats(2), 0, std::int64_t{1} << 32); }},
      Row{"RandintOfFloats", "randint", {"not f32"}, [] { randint(floats(2), 0, 3, f32); }},
      Row{"BernoulliOfTwo", "bernoulli", {"probability is 2"}, [] { bernoulli(Graph(), {3}, 2); }},
      Row{"BernoulliOfIntegers", "bernoulli", {"i32[2]"}, [] { bernoulli(ints(2)); }},
      Row{"StopGradientOfNothing", "stop_gradient", {"default-constructed"}, [] { stop_gradient(Value()); }},
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
      Row{"ConcatNumbers", "concat", {"no operand is a Value"}, [] { concat({1.0, 2.0}, 0); }},
      Row{"ConcatNothing", "concat", {"no values"}, [] { concat({}, 0); }},
      Row{"StackNothing", "stack", {"no values"}, [] { stack({}); }},
      Row{"StackShapes", nullptr, {"f32[1, 2]", "f32[1, 3]"}, [] { stack({floats(2), floats(3)}); }},
      Row{"SplitSizes", "split", {"f32[5]"}, [] { split(floats(5), std::vector<std::int64_t>{2, 2}, 0); }},
      Row{"SplitParts", "split", {"f32[5]"}, [] { split(floats(5), 2, 0); }},
      Row{"SplitNoParts", "split", {"f32[5]"}, [] { split(floats(5), 0, 0); }},
      Row{"GatherIndices", "gather", {"f32[2]", "i32"}, [] { gather(floats(5, 3), floats(2)); }},
      Row{"GatherLongIndices",
          "gather",
          {"i64[2]", "cast(clamp(indices, -1, 2147483647), i32)"},
          [] { gather(floats(5, 3), of(i64, 2)); }},
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
      Row{"DropoutNegative", "dropout", {"[0, 1)"}, [] { dropout(x(), -0.5); }},
      Row{"DropoutNaN", "dropout", {"[0, 1)"}, [] { dropout(x(), 0.0 / 0.0); }},
      Row{"DropoutProbability", "dropout", {": f32[3]; remedy: pass one in [0, 1)"}, [] { dropout(x(), 1.0); }},
      Row{"RandomIntegers", "random_uniform", {"not i32"}, [] { random_uniform(graph(), i32, {3}); }},
      Row{"RandomNaN", "random_normal", {"the mean is", "a finite number"}, [] { random_normal(x(), 0.0 / 0.0); }},
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
          {"Eager", "control flow of your language"},
          [] {
            if_(
                Eager().tensor({1}), [] { return x(); }, [] { return x(); });
          }},
      Row{"ChoiceByAFloat", "switch_", {"f32[]", "not one i32, i64 or u8"}, [] { switch_(sum(x()), {[] { return x(); }}); }},
      Row{"ChoiceByAVector", "switch_", {"i32[3]", "not one i32, i64 or u8", "reduce it"}, [] { switch_(ints(3), {[] { return x(); }}); }},
      Row{"ChoiceByANumber", "switch_", {"no operand is a Value"}, [] { switch_(1, {[] { return x(); }}); }},
      Row{"ChoiceOfNothing",
          "switch_",
          {"no bodies"},
          [] { switch_(argmax(x(), 0), std::vector<std::function<Value()>>()); }},
      Row{"ChoicesDiffer",
          "switch_",
          {"f32[3]", "body 2 f32[]"},
          [] {
            switch_(argmax(x(), 0), {[] { return x(); }, [] { return x() * 2.0; }, [] { return sum(x()); }});
          }},
      Row{"ChoiceReturnsNothing",
          "switch_",
          {"not a Value of this graph"},
          [] { switch_(argmax(x(), 0), {[] { return Value(); }}); }},
      Row{"ChoiceOfAnEager",
          "switch_",
          {"Eager", "control flow of your language"},
          [] { switch_(argmax(Eager().tensor({1}), 0), {[] { return x(); }}); }},
      Row{"ScanWithoutIterations", "scan", {"there are 0 iterations"}, [] { scan({x()}, {}, scan_nothing); }},
      Row{"ScanOfNothing", "scan", {"no operand is a Value"}, [] { scan({}, {}, scan_nothing, {.iterations = 3}); }},
      Row{"ScanOfAScalar", "scan", {"f32[]", "a first axis"}, [] { scan({}, {sum(x())}, scan_nothing); }},
      Row{"ScanOfDifferentLengths",
          "scan",
          {"f32[6]", "3 iterations"},
          [] {
            scan({}, {x(), concat({x(), x()}, 0)}, scan_nothing);
          }},
      Row{"ScanOfOtherLengths", "scan", {"f32[3]", "5 iterations"}, [] { scan({}, {x()}, scan_nothing, {.iterations = 5}); }},
      Row{"ScanThatLosesItsState",
          "scan",
          {"returned 0 Values, the state has 1"},
          [] {
            scan({x()}, {x()}, [](const Values&, const Values&) { return Scan{}; });
          }},
      Row{"ScanThatChangesItsState",
          "scan",
          {"f32[3]", "f32[]"},
          [] {
            scan({x()}, {x()}, [](const Values&, const Values& in) { return Scan{{in[0]}, {}}; });
          }},
      Row{"ScanThatKeepsNothing",
          "scan",
          {"not a Value of this graph"},
          [] {
            scan({x()}, {x()}, [](const Values& s, const Values&) { return Scan{s, {Value()}}; });
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
      Row{"LoopConditionIsADefaultValue",
          "while_",
          {"not a Value of this graph"},
          [] {
            while_(
                {x()}, [](Value) { return Value(); }, [](Value s) { return s * 2.0; });
          }},
      Row{"LoopStateIsADefaultValue",
          "while_",
          {"not a Value of this graph"},
          [] {
            while_(
                {x(), Value()}, [](Value s, Value) { return sum(s) < 3.0; },
                [](Value s, Value t) {
                  return std::array{s, t};
                });
          }},
      Row{"LoopStateOfAnotherGraph",
          "while_",
          {"not a Value of this graph"},
          [] {
            while_(
                {x(), Graph().constant(Tensor({1.0f}))}, [](Value s, Value) { return sum(s) < 3.0; },
                [](Value s, Value t) {
                  return std::array{s, t};
                });
          }},
      Row{"LoopWithoutAState",
          "while_",
          {"the state is empty"},
          [] {
            while_(
                Values(), [](const Values&) { return predicate(); }, [](const Values& s) { return s; });
          }},
      Row{"LoopStateOfNumbers",
          "while_",
          {"no operand is a Value"},
          [] {
            while_(
                {1.0}, [](Value s) { return s < 3.0; }, [](Value s) { return s * 2.0; });
          }},
      Row{"AssignOtherTypeInABody",
          "assign",
          {"\"w\"", "f32[3]", "f32[]"},
          [] {
            while_(
                {x()}, [](Value s) { return sum(s) < 3.0; },
                [](Value s) {
                  assign(w(), sum(s));
                  return s;
                });
          }},
      Row{"RecordAVariableAssignedInABody",
          "output",
          {"mul at misuse_table.cpp:", "if_ at misuse_table.cpp:", "return it"},
          [] {
            auto assigns = [] {
              assign(w(), x() * 2.0);
              graph().output("w", w());
              return x() * 2.0;
            };
            if_(predicate(), assigns, assigns);
          }},
      Row{"TwoOptimizersInABody",
          "adamw",
          {"\"w\" was already assigned at misuse_table.cpp:", "one place"},
          [] {
            while_(
                {x()}, [](Value s) { return sum(s) < 3.0; },
                [](Value s) {
                  sgd(sum(s * w()), {w()});
                  adamw(sum(s * w()), {w()});
                  return s * 2.0;
                });
          }},
      Row{"OptimizerInALoopThatRecomputes",
          "sgd",
          {"updates parameters in the body of the loop at misuse_table.cpp:", "recompute"},
          [] {
            while_(
                {x()}, [](Value s) { return sum(s) < 3.0; },
                [](Value s) {
                  sgd(sum(s * w()), {w()});
                  return s * 2.0;
                },
                {.max_iterations = 9, .recompute = true});
          }},
      Row{"VariableOfTheBody",
          "while_",
          {"assign other Variables whenever they are called", "\"new\"", "outside of the loop"},
          [] {
            while_(
                {x()}, [](Value s) { return sum(s) < 3.0; },
                [](Value s) {
                  assign(Variable("new", Tensor(f32, {3})), s);
                  return s * 2.0;
                });
          }},
      Row{"RandomNumbersInThreeLoops",
          "dropout",
          {"more than two loops", "misuse_table.cpp:", "outside the innermost"},
          [] {
            auto loop = [](Value v, auto body) {
              return while_(
                  {v}, [](Value s) { return sum(s) < 3.0; }, body)[0];
            };
            loop(x(), [&](Value a) {
              return loop(a, [&](Value b) { return loop(b, [](Value c) { return dropout(c, 0.5); }); });
            });
          }},

      Row{"RandomNumbersInALoopThatRecomputes",
          "dropout",
          {"more than two loops", " (two, because of recompute)", "leave recompute out"},
          [] {
            auto body = [](const Values& state, const Values&) { return Scan{{dropout(state[0], 0.5)}, {}}; };
            while_(
                {x()}, [](Value s) { return sum(s) < 3.0; },
                [&](Value s) {
                  return scan({s}, {}, body, {.iterations = 9, .recompute = true}).state[0];
                });
          }},
      Row{"RandomNumbersInARecomputedWhile",
          "random_normal",
          {"misuse_table.cpp:", " (two, because of recompute)"},
          [] {
            auto body = [](Value s) { return s + random_normal(s); };
            auto goes_on = [](Value s) { return sum(s) < 3.0; };
            while_({x()}, goes_on, [&](Value s) {
              return while_({s}, goes_on, body, {.max_iterations = 9, .recompute = true})[0];
            });
          }},

      // --- control flow: a Value of another body
      Row{"OperandOfAnEndedBody",
          "relu",
          {"mul at misuse_table.cpp:", "if_ at misuse_table.cpp:", "return it from the body"},
          [] {
            branch_that_keeps();
            relu(kept);
          }},
      Row{"SecondOperandOfAnEndedBody",
          "add",
          {"mul at misuse_table.cpp:", "if_ at misuse_table.cpp:"},
          [] {
            branch_that_keeps();
            x() + kept;
          }},
      Row{"OperandOfTheOtherBranch",
          "tanh",
          {"mul at misuse_table.cpp:", "if_ at misuse_table.cpp:", "before the if_"},
          [] {
            if_(
                predicate(), [] { return keep(x() * 2.0); }, [] { return tanh(kept); });
          }},
      Row{"ResultOfTheOtherBranch",
          "if_",
          {"mul at misuse_table.cpp:", "if_ at misuse_table.cpp:", "before the if_"},
          [] {
            if_(
                predicate(), [] { return keep(x() * 2.0); }, [] { return kept; });
          }},
      Row{"ResultOfAnEarlierBody",
          "if_",
          {"mul at misuse_table.cpp:", "if_ at misuse_table.cpp:"},
          [] {
            branch_that_keeps();
            if_(
                predicate(), [] { return kept; }, [] { return x() * 1.0; });
          }},
      Row{"PredicateOfAnEndedBody",
          "if_",
          {"greater at misuse_table.cpp:", "if_ at misuse_table.cpp:"},
          [] {
            if_(
                predicate(), [] { return keep(sum(x()) > 2.0); }, [] { return predicate(); });
            if_(
                kept, [] { return x() * 2.0; }, [] { return x() * 1.0; });
          }},
      Row{"StateOfAnEndedBody",
          "while_",
          {"mul at misuse_table.cpp:", "if_ at misuse_table.cpp:"},
          [] {
            branch_that_keeps();
            while_(
                {kept}, [](Value s) { return sum(s) < 3.0; }, [](Value s) { return s * 2.0; });
          }},
      Row{"ResultOfALoopIsAValueOfAnEndedBody",
          "while_",
          {"mul at misuse_table.cpp:", "if_ at misuse_table.cpp:"},
          [] {
            branch_that_keeps();
            while_(
                {x()}, [](Value s) { return sum(s) < 3.0; }, [](Value) { return kept; });
          }},
      Row{"ConditionIsAValueOfAnEndedBody",
          "while_",
          {"greater at misuse_table.cpp:", "if_ at misuse_table.cpp:"},
          [] {
            if_(
                predicate(), [] { return keep(sum(x()) > 2.0); }, [] { return predicate(); });
            while_(
                {x()}, [](Value) { return kept; }, [](Value s) { return s * 2.0; });
          }},
      Row{"StateOfALoopUsedAfterIt",
          "relu",
          {"parameter at misuse_table.cpp:", "loop at misuse_table.cpp:"},
          [] {
            while_(
                {x()}, [](Value s) { return sum(s) < 3.0; }, [](Value s) { return keep(s) * 2.0; });
            relu(kept);
          }},
      Row{"ValueOfAnInnerBodyInTheOuterOne",
          "tanh",
          {"mul at misuse_table.cpp:", "if_ at misuse_table.cpp:"},
          [] {
            while_(
                {x()}, [](Value s) { return sum(s) < 3.0; },
                [](Value) {
                  branch_that_keeps();
                  return tanh(kept);
                });
          }},
      Row{"ValueOfABodyThatThrew",
          "relu",
          {"mul at misuse_table.cpp:", "if_ at misuse_table.cpp:"},
          [] {
            auto throws = [] { return keep(x() * 2.0) + floats(2); };
            try {
              if_(predicate(), throws, throws);
            } catch (const Error&) {
              relu(kept);
            }
          }},
      Row{"OutputOfAnEndedBody",
          "output",
          {"mul at misuse_table.cpp:", "if_ at misuse_table.cpp:"},
          [] {
            branch_that_keeps();
            graph().output("y", kept);
          }},
      Row{"RecordInABody",
          "record",
          {"sum at misuse_table.cpp:", "if_ at misuse_table.cpp:", "return it"},
          [] {
            auto records = [] {
              graph().record("s", sum(x()));
              return x() * 2.0;
            };
            if_(predicate(), records, records);
          }},
      Row{"AssignAValueOfAnEndedBody",
          "assign",
          {"mul at misuse_table.cpp:", "if_ at misuse_table.cpp:"},
          [] {
            branch_that_keeps();
            assign(w(), kept);
          }},
      Row{"LossOfAnEndedBody",
          "grad",
          {"sum at misuse_table.cpp:", "if_ at misuse_table.cpp:"},
          [] {
            if_(
                predicate(), [] { return keep(loss()); }, [] { return sum(x()); });
            grad(kept, {w()});
          }},
      Row{"GradientWithRespectToAValueOfAnEndedBody",
          "grad",
          {"mul at misuse_table.cpp:", "if_ at misuse_table.cpp:"},
          [] {
            branch_that_keeps();
            grad(loss(), {kept});
          }},

      // --- gradients through control flow
      Row{"GradientOfALoopInABranch",
          "while_",
          {"mul at misuse_table.cpp:", "grad() at misuse_table.cpp:", "give the loop .max_iterations"},
          [] {
            Value y = if_(
                predicate(),
                [] {
                  return while_(
                      {x() * w()}, [](Value s) { return sum(s) < 3.0; }, [](Value s) { return s * 2.0; })[0];
                },
                [] { return x() * 3.0; });
            grad(sum(y), {w()});
          }},
      Row{"GradientOfABranchThatUsesWhatAnEffectReturns",
          "check_finite",
          {"grad() at misuse_table.cpp:", "it has an effect", "move it out of the body"},
          [] {
            Value y = if_(
                predicate(), [] { return exp(check_finite(x() * w())); }, [] { return x() * 1.0; });
            grad(sum(y), {w()});
          }},
      Row{"GradientOfWhatALoopCaptures",
          "while_",
          {"add at misuse_table.cpp:", "grad() at misuse_table.cpp:", "give the loop .max_iterations"},
          [] {
            auto [y] = while_(
                {x()}, [](Value s) { return sum(s) < 3.0; }, [](Value s) { return s + w(); });
            grad(sum(y), {w()});
          }},
      Row{"GradientOfTheStateOfALoop",
          "while_",
          {"mul at misuse_table.cpp:", "give the loop .max_iterations"},
          [] {
            auto [y] = while_(
                {x() + w()}, [](Value s) { return sum(s) < 3.0; }, [](Value s) { return s * 2.0; });
            grad(sum(y), {w()});
          }},
      Row{"GradientThroughAnotherStateOfALoop",
          "while_",
          {"sub at misuse_table.cpp:"},
          [] {
            auto [y, z] = while_(
                {x(), x()}, [](Value s, Value) { return sum(s) < 3.0; },
                [](Value s, Value t) {
                  return std::array{s - t, t * w()};
                });
            grad(sum(y), {w()});
          }},
      Row{"GradientThroughABranchInALoop",
          "while_",
          {"log at misuse_table.cpp:"},
          [] {
            auto [y] = while_(
                {x()}, [](Value s) { return sum(s) < 3.0; },
                [](Value s) {
                  return if_(
                      predicate(), [&] { return log(s * w()); }, [&] { return s * 1.0; });
                });
            grad(sum(y), {w()});
          }},
      Row{"SgdThroughALoop",
          "while_",
          {"mul at misuse_table.cpp:", "give the loop .max_iterations"},
          [] {
            auto [y] = while_(
                {x() * 1.0}, [](Value s) { return sum(s) < 3.0; }, [](Value s) { return s * w(); });
            sgd(sum(y), {w()});
          }},
      Row{"AdamwThroughALoop",
          "while_",
          {"mul at misuse_table.cpp:", "give the loop .max_iterations"},
          [] {
            auto [y] = while_(
                {x()}, [](Value s) { return sum(s) < 3.0; }, [](Value s) { return s * w(); });
            adamw(sum(y), {w()});
          }},
      Row{"GradientOfALoopWithTooHighALimit",
          "while_",
          {"cannot keep 2147483647 times f32[65536, 65536]", "lower the limit"},
          [] {
            Value big = graph().input("big", f32, {65536, 65536});
            auto [y] = while_(
                {big}, [](Value s) { return sum(s) < 3.0; }, [](Value s) { return s * s; },
                {.max_iterations = 2147483647});
            grad(sum(y), {big});
          }},
      Row{"GradientInALoopOfWhatItsStateBeganWith",
          "while_",
          {"grad() at misuse_table.cpp:", "state"},
          [] {
            while_(
                {x() * w()}, [](Value s) { return sum(s) < 3.0; },
                [](Value s) { return s - grad(sum(s * s), {w()})[0]; });
          }},
      Row{"GradientInALoopOfAnEarlierIteration",
          "while_",
          {"grad() at misuse_table.cpp:", "state"},
          [] {
            while_(
                {x()}, [](Value s) { return sum(s) < 3.0; },
                [](Value s) { return s * w() - grad(sum(s * w()), {w()})[0]; });
          }},

      // --- gradients
      Row{"NoGradient",
          "cpu_plus_one",
          {"no gradient", "grad() at misuse_table.cpp:", ".grad"},
          [] { grad(sum(emit(cpu_plus_one, {x() * w()})[0]), {w()}); }},
      Row{"TooFewGradients",
          "two_inputs",
          {"1 Value for 2 inputs", "grad() at misuse_table.cpp:", "one Value per input"},
          [] { grad_through(one_gradient); }},
      Row{"TooManyGradients", "two_inputs", {"3 Values for 2 inputs"}, [] { grad_through(three_gradients); }},
      Row{"GradientOfAnotherShape",
          "two_inputs",
          {"f32[] for input 0, which is f32[3]"},
          [] { grad_through(scalar_gradients); }},
      Row{"GradientOfAnotherDtype",
          "two_inputs",
          {"i32[3] for input 0, which is f32[3]"},
          [] { grad_through(int_gradients); }},
      Row{"GradientOfAnotherGraph", "two_inputs", {"another graph"}, [] { grad_through(foreign_gradients); }},
      Row{"SgdWithTooFewGradients",
          "two_inputs",
          {"1 Value for 2 inputs"},
          [] { sgd(sum(emit(one_gradient, {x() * w(), x()})[0]), {w()}); }},
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
      Row{"LearningRateOfIntegers",
          "sgd",
          {"lr is i32[], not one f32 or f64; remedy: pass a number"},
          [] { sgd(loss(), {w()}, {.lr = argmax(x(), 0), .momentum = 0.9}); }},
      Row{"WeightDecayOfManyNumbers",
          "adamw",
          {"weight_decay is f32[3], not one f32 or f64; remedy: pass a number"},
          [] { adamw(loss(), {w()}, {.weight_decay = x()}); }},
      Row{"GradientsForOthers",
          "apply",
          {"2 gradients for 1 parameters", "one gradient for each"},
          [] { apply(SgdOptions{}, {w()}, grad(loss(), {w(), x()})); }},
      Row{"LossScaleBehindTheGradients",
          "apply",
          {"loss_scale", "LossScale::variable"},
          [] { apply(SgdOptions{.gradients = {.loss_scale = LossScale{}}}, {w()}, grad(loss(), {w()})); }},
      Row{"NoParameters", "sgd", {"there are no parameters", "pass the Variables"}, [] { sgd(loss(), std::vector<Variable>{}); }},
      Row{"GroupsWithoutParameters",
          "adamw",
          {"there are no parameters"},
          [] { adamw(loss(), std::vector<ParameterGroup>{{}, {}}); }},
      Row{"ParameterOfTwoOptimizers",
          "adamw",
          {"\"w\" is already updated by the optimizer at misuse_table.cpp:", "update it in one place"},
          [] {
            const Value first = loss(), second = sum(x() * x() * w());
            sgd(first, {w()});
            adamw(second, {w()});
          }},
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
      Row{"SgdOfAnEager", "sgd", {"Eager"}, [] { sgd(sum(Eager().tensor({1})), {w()}); }},

      Row{"ScaledAdamwOfAnEager",
          "adamw",
          {"Eager"},
          [] { adamw(sum(Eager().tensor({1})), {w()}, {.gradients = {.loss_scale = LossScale{}}}); }},

      Row{"ScheduleEndsInItsWarmup", "linear_schedule", {"ends before its warm-up"}, [] { linear_schedule(graph(), {.warmup = 5, .steps = 5}); }},
      Row{"ScheduleOfNoStep", "step_schedule", {"either an interval or steps"}, [] { step_schedule(graph(), {}); }},
      Row{"CycleWithoutSteps", "one_cycle_schedule", {"steps is 0 and warmup 3"}, [] { one_cycle_schedule(graph(), {.warmup = 3}); }},
      Row{"AverageOfWhatNothingUpdates", "updated", {"nothing in this graph has updated \"w\""}, [] { exponential_average(graph(), {w()}); }},
      Row{"AverageThatOnlyGrows",
          "exponential_average",
          {"decay is 1", "0 to below 1"},
          [] {
            sgd(loss(), {w()});
            exponential_average(graph(), {w()}, 1);
          }},

      // --- ops of users
      Row{"OpWithoutInfer", "no_infer", {"no .infer"}, [] { emit(no_infer, {x()}); }},
      Row{"OpWithoutInferInAnEager", "no_infer", {"no .infer"}, [] { emit(no_infer, {Eager().tensor({1})}); }},
      Row{"OpWithoutABody", "no_body", {"body"}, [] { run(emit(no_body, {x()})[0]); }},
      Row{"OpWithoutABodyInAnEager", "no_body", {"no body"}, [] { emit(no_body, {Eager().tensor({1})}); }},
      Row{"MovesOfAnAxisThatIsNone",
          "turned",
          {"its .moves gives axis 7 for axis 0 of 4", "name each axis of the whole once"},
          [] {
            Value q = graph().input("q", f32, {1, 2, 3, 4});
            graph().output("moved", attention(emit(turned, {q})[0], q, q));
            (void)compile(graph(), {.target = cpu()}).plan();
          }},
      Row{"MovesToAnotherNumberOfAxes",
          "flattened",
          {"an output of 3 axes for an operand of 4", "leave .moves out"},
          [] {
            Value q = graph().input("q", f32, {1, 2, 3, 4});
            graph().output("moved", attention(reshape(emit(flattened, {q})[0], {1, 2, 3, 4}), q, q));
            (void)compile(graph(), {.target = cpu()}).plan();
          }},
      Row{"EmitAnOpWithTwoCpuBodies",
          "two_bodies",
          {"more than one for the CPU", "leave one for the CPU"},
          [] { emit(two_bodies, {x()}); }},
      Row{"ViewLargerThanItsInput",
          "larger_view",
          {"output 0 is a view of input 0, and larger than it: f32[3]"},
          [] { emit(larger_view, {x()}); }},
      Row{"ViewLargerThanItsInputInAnEager",
          "larger_view",
          {"output 0", "input 0"},
          [] { emit(larger_view, {Eager().tensor({1})}); }},
      Row{"ViewLargerThanItsInputForAnotherSize",
          "squared_view",
          {"larger than it: f32[3]"},
          [] {
            Value f = graph().input("f", f32, {open(1)});
            graph().output("squared", emit(squared_view, {f})[0]);
            Program p = program();
            p.write(f, std::vector<float>(3));
            p.write(x(), std::vector<float>(3));
            p.run();
          }},
      Row{"ViewOfAnInputThatIsNotThere", "view_of_nothing", {"input 1"}, [] { emit(view_of_nothing, {x()}); }},
      Row{"ViewThatIsNoOutput", "nothing_is_view", {"output 1"}, [] { emit(nothing_is_view, {x()}); }},
      Row{"InPlaceOfAnInputThatIsNotThere",
          "in_place_of_nothing",
          {"output 0", "input 1, and one of the two does not exist: f32[3]", ".in_place"},
          [] { emit(in_place_of_nothing, {x()}); }},
      Row{"InPlaceThatIsNoOutput", "nothing_is_in_place", {"output 1"}, [] { emit(nothing_is_in_place, {x()}); }},
      Row{"InPlaceOfANegativeInput",
          "negative_in_place",
          {"input -1"},
          [] { emit(negative_in_place, {Eager().tensor({1})}); }},
      Row{"FewerThanNoTiles",
          "fewer_than_no_tiles",
          {"its Tiles::count returned -1", "number of tiles"},
          [] { run_fewer_than_no_tiles(sink); }}.with(ErrorCode::step_failed),
      Row{"FewerThanNoTilesOpByOp",
          "fewer_than_no_tiles",
          {"its Tiles::count returned -1"},
          [] { run_fewer_than_no_tiles(interactive_serial); }}.with(ErrorCode::step_failed),
      Row{"FewerThanNoTilesInAnEager",
          "fewer_than_no_tiles",
          {"its Tiles::count returned -1"},
          [] { Eager::read(emit(fewer_than_no_tiles, {Eager().tensor({1})})[0]); }}.with(ErrorCode::step_failed),
      Row{"OpWithoutInputs", "cpu_plus_one", {"no operand"}, [] { emit(cpu_plus_one, {}); }, Line::none},
      Row{"OpWithTooManyInputs",
          "cpu_plus_one",
          {"takes 1 inputs, was given 2"},
          [] { emit(cpu_plus_one, {x(), x()}); }},
      Row{"AttributesOfAnotherType", "wants_attributes", {"are of type double", "reads int"}, [] { emit(wants_attributes, {x()}, 1.0); }},
      Row{"NoAttributes", "wants_attributes", {"has no attributes", "reads int"}, [] { emit(wants_attributes, {x()}); }},
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
      Row{"WritesAVariableAndIsNotCapturable",
          "writes_uncaptured",
          {"a commit is part of one launch"},
          [] { emit(writes_uncaptured, {graph().value(w())}); }},
      Row{"BodyThrows", "refuse_negative", {"negative input"}, [] { run(emit(cpu_refuse_negative, {-x()})[0]); }}.with(ErrorCode::step_failed),

      // --- programs: compile and write
      Row{"NoSuchDevice", "cuda:97", {"remedy"}, [] { compile(graph(), {.target = cuda(97)}); }}.with(ErrorCode::unavailable),
      Row{"DefaultOnAFurtherDevice",
          "compile",
          {"default_placement names one of the further devices"},
          [] { compile(graph(), {.target = target(), .default_placement = on_device(1)}); }},
      Row{"TooManyFurtherDevices",
          "compile",
          {"9 further devices"},
          [] { make_plan(graph(), Target::cuda13(), system_ops(), {}, {.further_targets = std::vector<Target>(9, Target::cuda13())}); },
          Line::none},
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

      Row{"TooManyFeeds",
          "compile",
          {"60 feeds"},
          [] {
            for (int i = 0; i < 60; ++i) {
              std::string name = "f" + std::to_string(i);
              graph().output(name, graph().feed(name, f32, {1}) * 1.0);
            }
            compiled();
          },
          Line::none},

      // --- programs: run and read
      Row{"RunWithoutAnInput",
          "run",
          {"nothing was written to \"x\"", "f32[3]", "write()"},
          [] { program().run(); }},
      Row{"RunZeroSteps", "run", {"0 steps", "at least 1"}, [] { program().run(sink, {.steps = 0}); }},
      Row{"RunNegativeSteps", "run", {"-1 steps", "at least 1"}, [] { program().run(sink, {.steps = -1}); }},
      Row{"RunTooManySteps", "run", {"steps", "2^31"}, [] { program().run(sink, {.steps = std::int64_t{1} << 31}); }},
      Row{"RunOnAStreamOnTheCpu",
          "run",
          {"RunOptions::stream", "on the CPU", "compile for a CUDA device"},
          [] {
            graph().output("y", relu(x()));
            Program p = compile(graph(), {.target = cpu()});
            p.write(x(), std::vector<float>(3));
            p.run(sink, {.stream = nullptr});
          }},
      Row{"RunInNoMode",
          "run",
          {"no mode with the number 100", "pass one of the modes"},
          [] { program().run(static_cast<Mode>(100)); }},
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
      Row{"ReadUnknownRecord", "records", {"no record \"t\": the program has ", "graph.record"}, [] { program().records("t"); }},
      Row{"TryReadUnknownRecord", "records", {"no record \"t\""}, [] { program().try_records("t"); }},
      Row{"ReadUnknownOutput", "output", {"no output \"z\"", "graph.output"}, [] { program().output("z"); }},
      Row{"ReadBeforeRun", "output", {"has not run", "run()"}, [] { program().output("y"); }},
      Row{"ReadWhatIsNoOutputBeforeRun",
          "output",
          {"not an output", "graph.output"},
          [] {
            Program p = program();
            p.output(x());
          }},
      Row{"ReadWhatIsNoOutput",
          "output",
          {"not an output", "graph.output"},
          [] {
            Program p = program();
            p.write(x(), std::vector<float>(3));
            p.run();
            p.output(x());
          }},
      Row{"ReadAValueOfAnotherGraph",
          "output",
          {"another graph"},
          [] { program().output(Graph().constant(Tensor({1.0f}))); }},
      Row{"SetNegativeSteps", "set_steps", {"-1 steps"}, [] { program().set_steps(-1); }},
      Row{"SetTooManySteps", "set_steps", {"2^31"}, [] { program().set_steps(std::int64_t{1} << 31); }},
      Row{"GatherOutOfRange", "gather", {"lies outside the axis"}, [] { run(gather(floats(2), cast(x(), i32))); }}.with(ErrorCode::step_failed),
      Row{"EmbeddingOutOfRange",
          "embedding",
          {"lies outside the axis", "step 0"},
          [] { run(embedding(floats(2, 2), cast(x(), i32))); }}.with(ErrorCode::step_failed),
      Row{"ScatterOutOfRange",
          "scatter_add",
          {"lies outside the axis"},
          [] { run(scatter_add(floats(2), cast(x(), i32), x())); }}.with(ErrorCode::step_failed),
      Row{"TargetOutOfRange",
          "cross_entropy",
          {"is not a class"},
          [] { run(cross_entropy(floats(3, 2), cast(x(), i32))); }}.with(ErrorCode::step_failed),
      Row{"NotFinite", "check_finite", {"is not finite"}, [] { run(check_finite(x() / 0.0)); }}.with(ErrorCode::step_failed),
      Row{"NotFiniteAnywhere", "log", {"is not finite"}, [] { run(log(-x()), {.check_finite = true}); }}.with(ErrorCode::step_failed),

      Row{"ReadOfARecordAfterAFailedStep",
          "gather",
          {"lies outside the axis"},
          [] {
            Program p = with_failed_step();
            p.records("s");
          }}.with(ErrorCode::step_failed),
      Row{"ReadOfAnOutputAfterAFailedStep",
          "gather",
          {"lies outside the axis"},
          [] {
            Program p = with_failed_step();
            p.output("y");
          }}.with(ErrorCode::step_failed),
      Row{"PollAfterAFailedStep",
          "gather",
          {"lies outside the axis"},
          [] {
            Program p = with_failed_step();
            while (!p.poll()) {
            }
          }}.with(ErrorCode::step_failed),

      // --- Variables, Tensors and Shapes
      Row{"VariableOtherType", "Variable \"w\"", {"f32[3]", "f32[2]"}, [] { w().write(Tensor({1.0f, 2.0f})); }},
      Row{"VariableOtherDtype", "Variable \"w\"", {"f32[3]", "i32[3]"}, [] { w().write(Tensor({1, 2, 3})); }},
      Row{"TensorCount", "Tensor", {"2 values for f32[3]"}, [] { Tensor({3}, std::vector<float>(2)); }, Line::none},
      Row{"TensorElementType", "Tensor::as", {"f32, not f64"}, [] { Tensor({1.0f}).as<double>(); }},
      Row{"TensorIndex", "Tensor::at", {"element 1 of f32[1]"}, [] { Tensor({1.0f}).at(1); }},
      Row{"TensorNegativeIndex", "Tensor::at", {"element -1 of f32[1]"}, [] { Tensor({1.0f}).at(-1); }},
      Row{"TensorNegativeDimension", "Shape", {"a dimension is -1"}, [] { Tensor(f32, {-1}); }},
      Row{"UniformWithoutANumber", "Tensor::uniform", {"the lower bound is nan"}, [] { Tensor::uniform({3}, 1, NAN, 1); }},
      Row{"UniformOfAllFloats",
          "Tensor::uniform",
          {"the upper bound less the lower is inf"},
          [] { Tensor::uniform({3}, 1, -3e38f, 3e38f); }},
      Row{"UniformUpsideDown",
          "Tensor::uniform",
          {"the lower bound, 2, is above the upper, 1", "change their order"},
          [] { Tensor::uniform({3}, 1, 2, 1); }},
      Row{"NormalOfNegativeDeviation",
          "Tensor::normal",
          {"the deviation is -1", "at least 0"},
          [] { Tensor::normal({3}, 1, 0, -1); }},
      Row{"NormalAroundInfinity", "Tensor::normal", {"the mean is inf"}, [] { Tensor::normal({3}, 1, INFINITY, 1); }},
      Row{"ShapeOfRankNine", "Shape", {"more than 8"}, [] { Shape({1, 1, 1, 1, 1, 1, 1, 1, 1}); }, Line::none},

      // --- Eager
      Row{"EagerReadsAValueOfAGraph", "Eager::read", {"belongs to a Graph"}, [] { Eager::read(x()); }},
      Row{"EagerAndGraph", "add", {"two graphs"}, [] { Eager().tensor({1}) + x(); }},
      Row{"InputInTheGraphOfAnEager",
          "Graph",
          {"belongs to an Eager", "keeps no graph"},
          [] { Graph(Eager().tensor({1}).graph()).input("x", f32, {1}); }},
      Row{"OutputOfTheGraphOfAnEager",
          "Graph",
          {"belongs to an Eager"},
          [] {
            Value v = Eager().tensor({1});
            Graph(v.graph()).output("y", v);
          }},
      Row{"RecordInTheGraphOfAnEager",
          "Graph",
          {"belongs to an Eager"},
          [] {
            Value v = Eager().tensor({1});
            Graph(v.graph()).record("y", v);
          }},
      Row{"CompileTheGraphOfAnEager",
          "Graph",
          {"belongs to an Eager"},
          [] { compile(Graph(Eager().tensor({1}).graph()), {.target = target()}); }},
      Row{"PlanOfTheGraphOfAnEager",
          "Graph",
          {"belongs to an Eager"},
          [] { make_plan(Graph(Eager().tensor({1}).graph()), Target::host(), system_ops()); },
          Line::none},
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
          {"lies outside the axis"},
          [] {
            Eager eager(target());
            gather(eager.tensor({1}), eager.tensor(Tensor({5})));
          }}.with(ErrorCode::step_failed),
      Row{"EagerNotFinite",
          "check_finite",
          {"is not finite"},
          [] {
            Eager eager(target());
            check_finite(log(eager.tensor({-1})));
          }}.with(ErrorCode::step_failed),
      Row{"EagerBodyThrows",
          "refuse_negative",
          {"negative input"},
          [] { emit(cpu_refuse_negative, {Eager().tensor({-1})}); }}.with(ErrorCode::step_failed),

      // --- checkpoints
      Row{"CheckpointIsNotThere", nullptr, {"nothing", "cannot be opened"}, [] { read_checkpoint(directory() / "nothing"); }}.with(ErrorCode::io),
      Row{"CheckpointIsADirectory", nullptr, {"not a regular file"}, [] { read_checkpoint(directory().path()); }}.with(ErrorCode::io),
      Row{"CheckpointIsEmpty", nullptr, {"header size"}, [] { read_checkpoint(file("c", "")); }}.with(ErrorCode::io),
      Row{"CheckpointHeaderIsTooLarge", nullptr, {"header size"}, [] { read_checkpoint(file("c", "12345678")); }}.with(ErrorCode::io),
      Row{"CheckpointIsNoJson", nullptr, {"header", "not JSON"}, [] { read_checkpoint(checkpoint_file("{", 0)); }}.with(ErrorCode::io),
      Row{"CheckpointIsNoObject", nullptr, {"not a JSON object"}, [] { read_checkpoint(checkpoint_file("1", 0)); }}.with(ErrorCode::io),
      Row{"CheckpointIsTruncated",
          nullptr,
          {"tensor \"w\"", "data_offsets", "is not within the 3 bytes"},
          [] { read_checkpoint(checkpoint_file(R"({"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 3)); }}.with(ErrorCode::io),
      Row{"CheckpointOfUnknownDtype",
          nullptr,
          {"tensor \"w\", dtype", "seen \"F8\""},
          [] { read_checkpoint(checkpoint_file(R"({"w":{"dtype":"F8","shape":[1],"data_offsets":[0,1]}})", 1)); }}.with(ErrorCode::io),
      Row{"CheckpointOfABadBoolean",
          nullptr,
          {"tensor \"w\"", "neither 0 nor 1"},
          [] {
            std::string header = R"({"w":{"dtype":"BOOL","shape":[1],"data_offsets":[0,1]}})";
            read_checkpoint(file("c", std::string(1, static_cast<char>(header.size())) + std::string(7, '\0') + header + "2"));
          }}.with(ErrorCode::io),
      Row{"CheckpointInAMissingDirectory",
          nullptr,
          {"nowhere"},
          [] { write_checkpoint(directory() / "nowhere" / "c", Checkpoint()); }}.with(ErrorCode::io),
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
          [] { Checkpoint().number("step"); }}.with(ErrorCode::io),
      Row{"CheckpointNumberIsText",
          "the checkpoint",
          {"metadata \"step\": expected a whole number, seen \"x\""},
          [] {
            Checkpoint checkpoint;
            checkpoint.metadata["step"] = "x";
            checkpoint.number("step");
          }}.with(ErrorCode::io),
      Row{"SnapshotOfTwoOfOneName",
          "snapshot",
          {"two Variables are named \"w\""},
          [] { snapshot(std::vector{w(), Variable("w", Tensor({1.0f}))}); }},
      Row{"RestoreOfWhatIsMissing",
          "the checkpoint",
          {"no tensor \"w\"", "allow_missing"},
          [] { restore(std::vector{w()}, Checkpoint()); }}.with(ErrorCode::io),
      Row{"RestoreOfWhatIsUnused",
          "the checkpoint",
          {"\"v\" belongs to no Variable", "allow_unused"},
          [] { restore({}, checkpoint_of("v", Tensor({1.0f}))); }}.with(ErrorCode::io),
      Row{"RestoreOfAnotherShape",
          "the checkpoint",
          {"\"w\", shape", "f32[3]", "f32[1]"},
          [] { restore(std::vector{w()}, checkpoint_of("w", Tensor({1.0f}))); }}.with(ErrorCode::io),
      Row{"RestoreOfAnotherDtype",
          "the checkpoint",
          {"\"w\", dtype", "f32[3]", "i32[3]", "convert"},
          [] { restore(std::vector{w()}, checkpoint_of("w", Tensor({1, 2, 3}))); }}.with(ErrorCode::io),
      Row{"CheckpointOfAShardElsewhere",
          nullptr,
          {"weight_map, tensor \"w\"", "name of a file in the folder of the index, seen \"../w\""},
          [] { read_checkpoint(file("c", R"({"weight_map":{"w":"../w"}})")); }}.with(ErrorCode::io),
      Row{"CheckpointOfAShardThatIsNotThere",
          nullptr,
          {"missing", "cannot be opened"},
          [] { read_checkpoint(file("c", R"({"weight_map":{"w":"missing"}})")); }}.with(ErrorCode::io),
      Row{"CheckpointMetadataIsAFieldOfTheIndex",
          nullptr,
          {"metadata \"total_size\"", "another name"},
          [] {
            Checkpoint checkpoint = checkpoint_of("a", Tensor({1.0f}));
            checkpoint.tensors.emplace("b", Tensor({1.0f}));
            checkpoint.metadata["total_size"] = "8";
            write_checkpoint(directory() / "c", checkpoint, {.most_bytes_per_file = 4});
          }},
      Row{"RemovedCheckpointIsADirectory",
          nullptr,
          {"cannot be removed: it is a directory"},
          [] { remove_checkpoint(directory().path()); }}.with(ErrorCode::io),
      Row{"RemovedCheckpointHasShardsOfOthers",
          nullptr,
          {"cannot be removed: its shards were not written for this path"},
          [] { remove_checkpoint(file("c", R"({"weight_map":{"w":"model-00001-of-00001.safetensors"}})")); }}.with(ErrorCode::io),

      // --- loaders
      Row{"IdxIsNotThere", nullptr, {"nothing"}, [] { read_idx(directory() / "nothing"); }}.with(ErrorCode::io),
      Row{"IdxIsNoIdx", nullptr, {"remedy"}, [] { read_idx(file("idx", "this is no IDX file")); }}.with(ErrorCode::io),
      Row{"IdxIsEmpty", nullptr, {"remedy"}, [] { read_idx(file("idx", "")); }}.with(ErrorCode::io),
      Row{"DigitsAreNotThere", nullptr, {"t10k-images-idx3-ubyte"}, [] { read_digits(directory().path()); }}.with(ErrorCode::io),
      Row{"NoDigits", "seeded_digits", {"0"}, [] { seeded_digits(0, 1); }, Line::none},
      Row{"TextIsNotThere", nullptr, {"nothing"}, [] { read_text(directory() / "nothing"); }}.with(ErrorCode::io),
      Row{"TextIsTooShort", nullptr, {"256"}, [] { read_text(file("text", "short")); }}.with(ErrorCode::io),
      Row{"TokenOutsideTheVocabulary",
          "decode",
          {"1"},
          [] {
            Text text;
            text.vocabulary = "a";
            (void)text.decode({1});
          },
          Line::none},
      Row{"IndicesThatI32DoesNotHold", "index_source", {"at most 2147483648 samples"}, [] { index_source((std::int64_t{1} << 31) + 1); }},
  };
  return kRows;
}

}  // namespace graphsink::testing
