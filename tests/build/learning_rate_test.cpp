// Learning rates: of the dtype of the parameters, and schedules against their formula.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "test_ops.h"

namespace graphsink::learning_rate_test {
namespace {

class LearningRates : public ::testing::TestWithParam<DeviceId> {};
std::string device_name(const ::testing::TestParamInfo<DeviceId>& info) {
  return info.param.kind == DeviceKind::cpu ? "cpu" : "cuda";
}
INSTANTIATE_TEST_SUITE_P(Devices, LearningRates, ::testing::ValuesIn(testing::devices()), device_name);

TEST_P(LearningRates, OfDoublesAreDoubles) {
  Graph g;
  Variable a("a", Tensor({1.0})), b("b", Tensor({1.0f})), c("c", Tensor({1.0}));
  Value loss = sum(g.value(a)) + cast(sum(g.value(b)), f64) + sum(g.value(c));
  Optimizer opt =
      sgd(loss, {{.parameters = {a}}, {.parameters = {b}, .lr = 0.1}, {.parameters = {c}, .lr = 0.2}}, {.lr = 0.1});
  EXPECT_EQ(opt.lr.type(), (TensorType{f64, {}}));
  EXPECT_EQ(opt.group_lr[1].type(), (TensorType{f32, {}}));
  EXPECT_EQ(opt.group_lr[2].type(), (TensorType{f64, {}}));
  Program program = compile(g, {.target = GetParam()});
  program.run(interactive);
  EXPECT_EQ(a.read().at(0), 1 - 0.1);
  EXPECT_EQ(b.read().as<float>()[0], 1 - 0.1f);
  EXPECT_EQ(c.read().at(0), 1 - 0.2);
}

double rate_at(double step, const CosineSchedule& s) {
  double warmup = static_cast<double>(s.warmup), steps = static_cast<double>(s.steps);
  double risen = s.warmup == 0 ? 1 : std::min((step + 1) / warmup, 1.0);
  if (s.steps == 0) return s.peak * risen;
  double done = std::clamp((step - warmup) / (steps - warmup), 0.0, 1.0);
  return s.peak * risen * ((0.5 * std::cos(done * M_PI) + 0.5) * (1 - s.final) + s.final);
}

TEST_P(LearningRates, SchedulesFollowTheirFormulaInTheirDtype) {
  for (const CosineSchedule& schedule : std::vector<CosineSchedule>{{.peak = 0.1},
                                                                    {.peak = 0.1, .warmup = 3},
                                                                    {.peak = 0.1, .warmup = 3, .steps = 4},
                                                                    {.peak = 0.1, .warmup = 2, .steps = 7, .final = 0},
                                                                    {.peak = 0.1, .steps = 5, .dtype = f64}}) {
    Graph g;
    Value rate = cosine_schedule(g, schedule);
    ASSERT_EQ(rate.type(), (TensorType{schedule.dtype, {}}));
    g.output("rate", rate);
    Program program = compile(g, {.target = GetParam()});
    for (int step = 0; step < 9; ++step) {
      program.run(interactive);
      EXPECT_NEAR(program.output("rate").at(0), rate_at(step, schedule), schedule.dtype == f64 ? 1e-15 : 1e-8) << step;
    }
  }
}

TEST(LearningRates, SchedulesThatCannotBeFollowedAreRefused) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  for (const CosineSchedule& schedule : std::vector<CosineSchedule>{{.warmup = 5, .steps = 5},
                                                                    {.warmup = 5, .steps = 1},
                                                                    {.warmup = -1},
                                                                    {.steps = -1},
                                                                    {.peak = kNan},
                                                                    {.peak = 1e300},
                                                                    {.steps = 5, .final = 1 / kNan},
                                                                    {.dtype = f16}}) {
    Graph g;
    try {
      cosine_schedule(g, schedule);
      ADD_FAILURE() << "not refused: " << schedule.warmup << " " << schedule.steps;
    } catch (const Error& e) {
      EXPECT_EQ(e.op(), "cosine_schedule");
      EXPECT_NE(std::string(e.where().file_name()).find("learning_rate_test.cpp"), std::string::npos) << e.what();
    }
  }
}

}  // namespace
}  // namespace graphsink::learning_rate_test
