// Models of text at a small size on every device: training, evaluation and continuation share the Variables; all modes
// and a resumed run give the same bits, dropout included.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "ir/plan.h"
#include "ir/system_ops.h"
#include "samples/models/generate.h"
#include "samples/models/source_dir.h"
#include "samples/models/text_model.h"
#include "test_ops.h"

namespace graphsink::text_model_test {
namespace {

std::shared_ptr<const Text> license() {
  static const auto kText = std::make_shared<const Text>(read_text(std::string(source_dir()) + "/LICENSE"));
  return kText;
}

models::TextModel small(const std::string& name) {
  auto vocabulary = static_cast<std::int64_t>(license()->vocabulary.size());
  if (name == "charmlp") return models::charmlp(vocabulary, {.width = 4, .hidden = 8}, 1);
  if (name.starts_with("lstm"))
    return models::lstm(vocabulary, {.layers = 2, .hidden = 6, .context = 4, .as_loop = name == "lstm-scan"}, 1);
  return models::gpt(vocabulary, {.layers = 1, .width = 8, .heads = 2, .context = 6}, 1);
}

// A model, and a program that trains it.
struct Training {
  models::TextModel text_model;
  models::Model model;
  Program program;

  Training(const std::string& name, DeviceId device, const models::TextTraining& options)
      : text_model(small(name)),
        model(models::train(text_model, license(), options)),
        program(compile(model.graph, {.target = device})) {}

  void run(std::int64_t first, std::int64_t count, Mode mode) {
    models::feed(program, model, first, count);
    program.run(mode, {.steps = count});
    program.sync();
  }
  std::vector<Tensor> state() const {
    std::vector<Tensor> tensors;
    for (const Variable& variable : model.variables) tensors.push_back(variable.read());
    return tensors;
  }
};

void expect_same_bits(const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) EXPECT_EQ(std::memcmp(a[i].data(), b[i].data(), a[i].bytes()), 0) << i;
}

std::string test_name(std::string model) {
  std::replace(model.begin(), model.end(), '-', '_');
  return model;
}

using Case = std::tuple<DeviceId, std::string>;
class TextModels : public ::testing::TestWithParam<Case> {
 protected:
  DeviceId device() const { return std::get<0>(GetParam()); }
  const std::string& name() const { return std::get<1>(GetParam()); }
};
INSTANTIATE_TEST_SUITE_P(Devices, TextModels,
                         ::testing::Combine(::testing::ValuesIn(testing::devices()),
                                            ::testing::Values("charmlp", "lstm", "lstm-scan", "gpt")),
                         [](const ::testing::TestParamInfo<Case>& info) {
                           bool is_cpu = std::get<0>(info.param).kind == DeviceKind::cpu;
                           return test_name(std::get<1>(info.param)) + (is_cpu ? "_cpu" : "_cuda");
                         });

TEST_P(TextModels, LearnMeasureAndContinue) {
  Training training(name(), device(), {.batch = 4, .lr = 3e-2, .warmup = 2, .clip_norm = 1});
  models::Evaluation evaluation(training.text_model, license(), device(), 64);
  double before = evaluation.loss();
  EXPECT_NEAR(before, std::log(static_cast<double>(training.text_model.vocabulary)), 1.0);  // it knows nothing
  training.run(0, 80, sink);
  EXPECT_LT(evaluation.loss(), before - 0.3);
  EXPECT_EQ(evaluation.loss(), evaluation.loss());
  std::string text = models::continue_text(training.text_model, *license(), 12, device(), 5);
  EXPECT_LE(text.size(), 12u);
  EXPECT_TRUE(text.size() == 12u || (text.size() >= 6u && text.back() == '\n')) << text;
  EXPECT_EQ(text, models::continue_text(training.text_model, *license(), 12, device(), 5));
}

TEST_P(TextModels, AllModesAndAResumedRunGiveTheSameBits) {
  models::TextTraining options{.batch = 2, .decay_steps = 6, .clip_norm = 1, .dropout = 0.2};
  Training undisturbed(name(), device(), options);
  undisturbed.run(0, 6, sink);
  std::vector<Tensor> wanted = undisturbed.state();
  for (Mode mode : {interactive_serial, interactive_parallel}) {
    Training other(name(), device(), options);
    other.run(0, 6, mode);
    expect_same_bits(other.state(), wanted);
  }

  Training first(name(), device(), options);
  first.run(0, 3, sink);
  Checkpoint checkpoint = snapshot(first.program);
  Training second(name(), device(), options);
  restore(second.program, checkpoint);
  second.run(3, 3, sink);
  expect_same_bits(second.state(), wanted);
}

// The loops do what the unrolled layers do; their gradients add up in another order.
TEST(LstmScan, LearnsWhatTheUnrolledOneLearns) {
  std::vector<std::vector<float>> losses;
  for (const char* name : {"lstm", "lstm-scan"}) {
    Training training(name, cpu(), {.batch = 3, .lr = 1e-2, .clip_norm = 1});
    training.run(0, 20, sink);
    losses.push_back(training.program.records("loss"));
  }
  for (std::size_t i = 0; i < losses[0].size(); ++i) EXPECT_NEAR(losses[1][i], losses[0][i], 1e-5) << "step " << i;
}

TEST(LstmScan, ATenthOfTheNodesIsEnough) {
  auto nodes = [](const char* name) {
    models::TextModel text_model = models::text_model(name, 65, 1);
    models::Model model = models::train(text_model, license(), models::training_of(text_model));
    return make_plan(model.graph, Target::cuda13(), system_ops()).nodes.size();
  };
  EXPECT_LE(nodes("lstm-scan") * 10, nodes("lstm"));
}

// Fusion, and attention without copies around it.
TEST(Gpt, AQuarterOfTheNodesIsNotNeeded) {
  models::TextModel text_model = models::text_model("gpt", 65, 1);
  models::Model model = models::train(text_model, license(), models::training_of(text_model));
  Target cuda = Target::cuda13();
  cuda.compiles_kernels = true;
  for (const Target& target : {Target::host(), cuda}) {
    const auto nodes = make_plan(model.graph, target, system_ops()).nodes.size();
    const auto separate = make_plan(model.graph, target, system_ops(), {}, {.fuse = false}).nodes.size();
    std::printf("gpt on %s: %zu nodes instead of %zu\n", to_string(target.id).c_str(), nodes, separate);
    EXPECT_LE(4 * nodes, 3 * separate);
  }
}

// At their default sizes, as train_text trains them.
class TextModelMemory : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Models, TextModelMemory, ::testing::Values("lstm", "lstm-scan", "gpt"),
                         [](const auto& info) { return test_name(info.param); });

TEST_P(TextModelMemory, TheArenaIsLittleMoreThanWhatIsLiveAtOnce) {
  models::TextModel text_model =
      models::text_model(GetParam(), static_cast<std::int64_t>(license()->vocabulary.size()), 1);
  models::Model model = models::train(text_model, license(), models::training_of(text_model));
  for (const Target& target : {Target::host(), Target::cuda13()}) {
    Plan plan = make_plan(model.graph, target, system_ops());
    auto arena = static_cast<double>(plan.devices[0].arena_bytes), values = static_cast<double>(plan.value_bytes),
         live = static_cast<double>(live_bytes(plan));
    std::string name = to_string(target.id).substr(0, 4);
    std::printf("%s on %s: %zu nodes, arena %.1f MiB, %.3f of what is live, %.3f of all values\n", GetParam().c_str(),
                name.c_str(), plan.nodes.size(), arena / (1 << 20), arena / live, arena / values);
    EXPECT_LE(arena, 1.05 * live) << name;
    EXPECT_LE(arena, 0.75 * values) << name;
  }
}

TEST(TextModelErrors, ATextThatIsTooShortIsRefused) {
  Text text{std::vector<std::int32_t>(20), "ab", "short"};
  auto shared = std::make_shared<const Text>(text);
  models::TextModel model = models::lstm(2, {}, 1);
  EXPECT_THROW(models::train(model, shared, {}), Error);
  EXPECT_THROW(models::Evaluation(model, shared, cpu()), Error);
  EXPECT_THROW(models::continue_text(model, text, 1, cpu(), 1), Error);
  EXPECT_THROW(models::text_model("bigram", 2, 1), Error);
}

// The point of scan(): the plan does not grow with the characters.
TEST(TextModelPlans, AnLstmOfLoopsHasATenthOfTheNodes) {
  for (bool fuse : {false, true}) {
    std::size_t nodes[2] = {};
    for (bool as_loop : {false, true}) {
      const models::TextModel lstm =
          models::lstm(static_cast<std::int64_t>(license()->vocabulary.size()), {.as_loop = as_loop}, 1);
      const models::Model model = models::train(lstm, license(), models::training_of(lstm));
      nodes[as_loop] = make_plan(model.graph, Target::host(), system_ops(), {}, {.fuse = fuse}).nodes.size();
    }
    EXPECT_LE(nodes[1] * 10, nodes[0]) << (fuse ? "with fusion" : "without fusion");
  }
}

}  // namespace
}  // namespace graphsink::text_model_test
