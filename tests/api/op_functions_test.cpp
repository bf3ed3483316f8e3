// What goes wrong in the functions of a user's op, beside its CPU body: it is an Error that names the op, in all modes.
#include <atomic>
#include <limits>
#include <stdexcept>

#include "messages.h"
#include "program_fixture.h"

namespace graphsink::op_functions_test {
namespace {

using testing::contains;
using testing::infer_like_first;
using testing::message_of;
using testing::OnDevice;
using testing::plus_one;

// --- Tiles::count

std::atomic<bool> count_throws = false;  // other threads read it
std::int64_t count_if_it_may(const BodyArgs& a) {
  if (count_throws) throw std::runtime_error("cannot count");
  return a.in_type(0).shape.size();
}
std::int64_t count_below_zero(const BodyArgs& a) { return count_throws ? -3 : a.in_type(0).shape.size(); }
void run_plus_one(const CpuArgs& a, std::int64_t first, std::int64_t end) {
  for (std::int64_t i = first; i < end; ++i) a.out<float>(0)[i] = a.in<float>(0)[i] + 1;
}
const OpDef counts{
    .name = "counts", .infer = infer_like_first, .bodies = {Tiles{.count = count_if_it_may, .run = run_plus_one}}};
const OpDef counts_below_zero{.name = "counts_below_zero",
                              .infer = infer_like_first,
                              .bodies = {Tiles{.count = count_below_zero, .run = run_plus_one}}};

// The mode may meet the op for the first time when it cannot count, or have counted its tiles before.
TEST_P(OnDevice, TilesThatCannotBeCountedFailTheStepInEveryMode) {
  for (const OpDef* op : {&counts, &counts_below_zero}) {
    for (Mode mode : kAllModes) {
      SCOPED_TRACE(std::string(op->name) + ", " + std::string(to_string(mode)));
      Graph g;
      Value x = g.input("x", f32, {64});
      Variable w("w", Tensor::full(f32, {64}, 10));
      assign(w, g.value(w) + emit(*op, {x})[0]);
      Program p = compile(g, {.tuning = {.threads = 2}, .guards = {.share_all = true}});
      p.write(x, std::vector<float>(64, 1));
      count_throws = true;
      ASSERT_NO_THROW(p.run(mode));
      try {
        p.sync();
        ADD_FAILURE() << "the failure was not reported";
      } catch (const Error& e) {
        EXPECT_EQ(e.op(), op->name);
        EXPECT_EQ(e.code(), ErrorCode::step_failed);
        EXPECT_TRUE(contains(e.what(), op == &counts ? "cannot count" : "Tiles::count returned -3")) << e.what();
        EXPECT_TRUE(contains(e.what(), "op_functions_test.cpp")) << e.what();
      }
      count_throws = false;
      EXPECT_EQ(p.steps(), 0);
      p.run(mode);
      p.sync();
      EXPECT_EQ(w.read().at(63), 12.0);
      EXPECT_EQ(p.steps(), 1);
    }
  }
}

// --- OpDef::flops

std::atomic<bool> flops_throw = false;
const OpDef counts_flops{.name = "counts_flops",
                         .infer = infer_like_first,
                         .bodies = {Tiles{.count = count_if_it_may, .run = run_plus_one}},
                         .flops = [](const BodyArgs&) -> std::uint64_t {
                           if (flops_throw) throw std::runtime_error("cannot say how many");
                           return 64;
                         }};

TEST_P(OnDevice, FlopsThatCannotBeCountedLeaveStepsAloneAndAreAnErrorOfWhatAsksForThem) {
  flops_throw = true;
  for (Mode mode : kAllModes) {
    SCOPED_TRACE(to_string(mode));
    Graph g;
    Value x = g.input("x", f32, {64});
    g.output("y", emit(counts_flops, {x})[0]);
    Program p = compile(g, {.tuning = {.threads = 2}, .guards = {.share_all = true}});
    p.write(x, std::vector<float>(64, 1));
    p.run(mode);
    EXPECT_EQ(p.output("y").at(63), 2.0);
    const std::string message = message_of([&] { (void)p.time_ops(1); });
    EXPECT_TRUE(contains(message, "counts_flops: its OpDef::flops threw: cannot say how many")) << message;
    EXPECT_TRUE(contains(message, "op_functions_test.cpp")) << message;
  }
  flops_throw = false;
}

// --- Elements

ElementwiseRow no_row(std::span<const TensorType>) { throw std::runtime_error("no row"); }
const OpDef without_row{
    .name = "without_row", .infer = infer_like_first, .elements = {.row = no_row}, .bodies = {plus_one}};
// The neighbours are those with which the op would be joined.
TEST(OpFunctions, ARowThatThrowsIsAnErrorOfTheOp) {
  Graph g;
  g.output("y", emit(without_row, {g.input("x", f32, {8}) * 3.0})[0] + 1.0);
  const std::string message = message_of([&] { (void)compile(g, {.target = cpu()}); });
  EXPECT_TRUE(contains(message, "without_row: its Elements::row threw: no row")) << message;
  EXPECT_TRUE(contains(message, "op_functions_test.cpp")) << message;
}

// --- OpDef::prepare

struct Wanted {
  std::size_t bytes;
};
const OpDef wants_workspace{.name = "wants_workspace",
                            .infer = infer_like_first,
                            .prepare =
                                [](const PrepareArgs& p) {
                                  return Prepared{nullptr, p.attrs.as<Wanted>().bytes};
                                },
                            .bodies = {[](const CpuArgs& a) {
                              if (a.workspace() == nullptr) throw std::runtime_error("there is no workspace");
                              plus_one(a);
                            }}};

// As of a subtraction that went below zero.
TEST_P(OnDevice, AWorkspaceLargerThanAnyMemoryIsAnErrorOfTheOp) {
  constexpr std::size_t kMost = std::numeric_limits<std::size_t>::max();
  for (std::size_t bytes :
       {kMost, kMost - 100, kMost - 300, kMost - 70'000, kMost / 2 + 1, (std::size_t{1} << 60) + 1}) {
    SCOPED_TRACE(bytes);
    Graph g;
    Value x = g.input("x", f32, {1});
    g.output("y", emit(wants_workspace, {x}, Wanted{bytes})[0]);
    try {
      Program p = compile(g);
      p.write(x, std::vector<float>{1});
      p.run(interactive);
      p.sync();
      ADD_FAILURE() << "nothing was thrown";
    } catch (const Error& e) {
      EXPECT_EQ(e.op(), "wants_workspace") << e.what();
      EXPECT_EQ(e.code(), ErrorCode::out_of_memory) << e.what();
      EXPECT_TRUE(contains(e.what(), "op_functions_test.cpp")) << e.what();
    }
  }
}

TEST(OpFunctions, AWorkspaceLargerThanAnyMemoryIsAnErrorOfAnEager) {
  Eager eager(cpu());
  const Value x = eager.tensor(Tensor({1.0f}));
  const std::string message =
      message_of([&] { (void)emit(wants_workspace, {x}, Wanted{std::numeric_limits<std::size_t>::max() - 100}); });
  EXPECT_TRUE(contains(message, "wants_workspace: its prepare() asks for a workspace of")) << message;
}

// --- BodyArgs::step()

void add_step(const CpuArgs& a) { a.out<float>(0)[0] = a.in<float>(0)[0] + static_cast<float>(a.step()->step); }
const OpDef adds_step{.name = "adds_step", .infer = infer_like_first, .traits = {.random = true}, .bodies = {add_step}};

// The host of a GPU knows nothing of the step that runs.
TEST_P(OnDevice, AStepThatABodyCannotSeeIsAnError) {
  for (Mode mode : kAllModes) {
    SCOPED_TRACE(to_string(mode));
    Graph g;
    Value x = g.input("x", f32, {1});
    g.output("y", emit(adds_step, {x})[0]);
    Program p = compile(g);
    p.write(x, std::vector<float>{1});
    if (!is_cuda()) {
      p.run(mode, {.steps = 2});
      EXPECT_EQ(p.output("y").at(0), 2.0);
      continue;
    }
    p.run(mode);
    const std::string message = message_of([&] { p.sync(); });
    EXPECT_TRUE(contains(message, "adds_step: its body calls step()")) << message;
    EXPECT_TRUE(contains(message, "give the op a CUDA body")) << message;
  }
}

// --- OpDef::infer

const OpDef other_dtype{
    .name = "other_dtype", .infer = [](InferArgs& a) { a.out(static_cast<DType>(77), {1}); }, .bodies = {plus_one}};

TEST(OpFunctions, ADTypeThatDoesNotExistIsAnErrorOfTheOp) {
  Graph g;
  const std::string message = message_of([&] { (void)emit(other_dtype, {g.input("x", f32, {1})}); });
  EXPECT_TRUE(contains(message, "other_dtype: output 0 has no dtype that exists")) << message;
}

}  // namespace
}  // namespace graphsink::op_functions_test
