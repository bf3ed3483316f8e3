// Text from a model in a loop: greedy, it is what the host makes; sampled, its characters have the frequencies that the
// model gives them; sunk, all of it is one launch.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <vector>

#include "program_fixture.h"
#include "samples/models/generate.h"

namespace graphsink::generate_test {
namespace {

using Tokens = std::vector<std::int32_t>;
constexpr std::int64_t kVocabulary = 13, kLength = 20;
constexpr std::int32_t kEmpty = -1;

std::int32_t largest(const std::vector<double>& scores) {
  return static_cast<std::int32_t>(std::max_element(scores.begin(), scores.end()) - scores.begin());
}

// y[j] = bias[j] + sum over i of x[i] * w[i, j]
std::vector<double> layer(const std::vector<double>& x, const Tensor& w, const Tensor& bias) {
  std::vector<double> y;
  const std::int64_t columns = w.shape()[1];
  for (std::int64_t j = 0; j < columns; ++j) {
    double sum = bias.at(j);
    for (std::size_t i = 0; i < x.size(); ++i) sum += x[i] * w.at(static_cast<std::int64_t>(i) * columns + j);
    y.push_back(sum);
  }
  return y;
}

// The most likely character behind a window, by charmlp computed on the host.
std::int32_t next_by_host(const models::TextModel& charmlp, const Tokens& window) {
  const Tensor table = charmlp.parameters[0].read();
  const std::int64_t width = table.shape()[1];
  std::vector<double> features;
  for (std::int32_t token : window)
    for (std::int64_t i = 0; i < width; ++i) features.push_back(table.at(token * width + i));
  std::vector<double> hidden = layer(features, charmlp.parameters[1].read(), charmlp.parameters[2].read());
  for (double& x : hidden) x = std::tanh(x);
  return largest(layer(hidden, charmlp.parameters[3].read(), charmlp.parameters[4].read()));
}

// What generate() has to give, one character after the other.
template <class Next>
Tokens greedy(Tokens window, std::int64_t most, const models::GenerateOptions& options, const Next& next) {
  Tokens made;
  while (static_cast<std::int64_t>(made.size()) < most) {
    made.push_back(next(window));
    window.erase(window.begin());
    window.push_back(made.back());
    if (made.back() == options.end && static_cast<std::int64_t>(made.size()) >= options.at_least) break;
  }
  return made;
}

Tokens start_of(const models::TextModel& model, std::uint64_t seed) {
  Tokens window;
  for (std::int64_t i = 0; i < model.context; ++i)
    window.push_back(static_cast<std::int32_t>(models::random_bits(seed, static_cast<std::uint64_t>(i)) % kVocabulary));
  return window;
}

models::TextModel small(const std::string& name) {
  if (name == "charmlp") return models::charmlp(kVocabulary, {.width = 4, .hidden = 12}, 3);
  if (name == "lstm") return models::lstm(kVocabulary, {.layers = 1, .hidden = 6, .context = 4}, 3);
  return models::gpt(kVocabulary, {.layers = 1, .width = 8, .heads = 2, .context = 6}, 3);
}

Tokens tokens_in(const Tensor& x) { return {x.as<std::int32_t>().begin(), x.as<std::int32_t>().end()}; }

// A program that is nothing but generate().
struct Generator {
  Graph g;
  Value context, most;
  Program program;

  Generator(const models::TextModel& model, const models::GenerateOptions& options,
            const CompileOptions& compile_options)
      : context(g.input("context", i32, {1, model.context})),
        most(g.input("most", i32, {})),
        program(compiled(model, options, compile_options)) {}

  // The characters, after checks of what else there is.
  Tokens run(Mode mode, const Tokens& window, std::int64_t count) {
    program.write(context, window);
    program.write(most, Tensor::scalar(static_cast<std::int32_t>(count)));
    program.run(mode);
    Tokens tokens = tokens_in(program.output("tokens"));
    const auto end = tokens.begin() + static_cast<std::ptrdiff_t>(program.output("count").at(0));
    EXPECT_TRUE(std::all_of(end, tokens.end(), [](std::int32_t token) { return token == kEmpty; }));
    Tokens all = window;
    all.insert(all.end(), tokens.begin(), end);
    EXPECT_EQ(tokens_in(program.output("last")),
              Tokens(all.end() - static_cast<std::ptrdiff_t>(window.size()), all.end()));
    return {tokens.begin(), end};
  }

 private:
  Program compiled(const models::TextModel& model, const models::GenerateOptions& options,
                   const CompileOptions& compile_options) {
    models::Generated made = models::generate(model, context, most, options);
    g.output("tokens", made.tokens);
    g.output("count", made.count);
    g.output("last", made.context);
    return compile(g, compile_options);
  }
};

class Generate : public testing::OnDevice {};
INSTANTIATE_TEST_SUITE_P(Devices, Generate, ::testing::ValuesIn(testing::devices()), testing::device_name);

TEST_P(Generate, GreedyIsWhatTheHostMakesOfCharmlpInEveryMode) {
  const models::TextModel model = small("charmlp");
  auto next = [&](const Tokens& window) { return next_by_host(model, window); };
  // A character that occurs ends the text in some of the cases.
  const std::int32_t end = greedy(start_of(model, 0), kLength, {}, next)[7];
  int ended_early = 0;
  for (std::int64_t at_least : {1, 10}) {
    const models::GenerateOptions options{.length = kLength, .temperature = 0, .end = end, .at_least = at_least};
    for (Mode mode : testing::kModes) {
      SCOPED_TRACE(to_string(mode));
      Generator generator(model, options, {.target = GetParam(), .require_whole_graph = true});
      for (std::uint64_t seed = 0; seed < 5; ++seed) {
        for (std::int64_t most : {kLength, std::int64_t{1}, std::int64_t{0}}) {
          const Tokens expected = greedy(start_of(model, seed), most, options, next);
          EXPECT_EQ(generator.run(mode, start_of(model, seed), most), expected) << "start " << seed << ", " << most;
          if (static_cast<std::int64_t>(expected.size()) < most) ++ended_early;
        }
      }
    }
  }
  EXPECT_GT(ended_early, 0);
}

TEST_P(Generate, GreedyOfEveryModelIsWhatItsLogitsSayOneByOne) {
  for (const char* name : {"lstm", "gpt"}) {
    SCOPED_TRACE(name);
    const models::TextModel model = small(name);
    Graph g;
    Value context = g.input("context", i32, {1, model.context});
    g.output("logits", slice(model.logits(context, 0), {-1}, {to_end}));
    Program one_by_one = compile(g);
    auto next = [&](const Tokens& window) {
      one_by_one.write(context, window);
      one_by_one.run();
      const Tensor logits = one_by_one.output("logits");
      std::vector<double> scores;
      for (std::int64_t i = 0; i < kVocabulary; ++i) scores.push_back(logits.at(i));
      return largest(scores);
    };
    const models::GenerateOptions options{.length = kLength, .temperature = 0};
    Generator generator(model, options, {.target = GetParam()});
    for (std::uint64_t seed = 0; seed < 3; ++seed) {
      const Tokens start = start_of(model, seed);
      EXPECT_EQ(generator.run(sink, start, kLength), greedy(start, kLength, options, next)) << "start " << seed;
    }
  }
}

// A model that gives the same probabilities whatever came before.
models::TextModel constant_model(const std::vector<float>& logits) {
  models::TextModel model = models::charmlp(static_cast<std::int64_t>(logits.size()), {.width = 1, .hidden = 1}, 1);
  for (Variable& parameter : model.parameters) parameter.write(Tensor(f32, parameter.type().shape));
  model.parameters[4].write(Tensor({static_cast<std::int64_t>(logits.size())}, logits));
  return model;
}

TEST_P(Generate, SampledCharactersHaveTheirFrequencies) {
  const std::vector<float> logits{0.0f, 1.0f, 2.0f, -1.0f, 0.5f};
  constexpr std::int64_t kMany = 3000;
  const models::TextModel model = constant_model(logits);
  for (double temperature : {0.5, 1.0, 3.0}) {
    SCOPED_TRACE("temperature " + std::to_string(temperature));
    Generator generator(model, {.length = kMany, .temperature = temperature}, {.target = GetParam(), .seed = 5});
    const Tokens tokens = generator.run(sink, Tokens(8, 0), kMany);
    double sum = 0, chi_square = 0;
    for (float logit : logits) sum += std::exp(logit / temperature);
    for (std::size_t i = 0; i < logits.size(); ++i) {
      const double expected = std::exp(logits[i] / temperature) / sum * kMany;
      const auto seen = static_cast<double>(std::count(tokens.begin(), tokens.end(), static_cast<std::int32_t>(i)));
      chi_square += (seen - expected) * (seen - expected) / expected;
    }
    EXPECT_LT(chi_square, 23.5) << "one in 10,000 with 4 degrees of freedom";
  }
}

TEST_P(Generate, SampledTextDependsOnTheSeedAndTheStepButNotOnTheMode) {
  const models::TextModel model = small("charmlp");
  auto two_texts = [&](Mode mode, std::uint32_t seed) {
    Generator generator(model, {.length = kLength}, {.target = GetParam(), .seed = seed});
    const Tokens start = start_of(model, 1);
    return std::vector{generator.run(mode, start, kLength), generator.run(mode, start, kLength)};
  };
  const auto texts = two_texts(sink, 1);
  EXPECT_NE(texts[0], texts[1]) << "another step";
  EXPECT_NE(texts[0], two_texts(sink, 2)[0]) << "another seed";
  for (Mode mode : testing::kModes) EXPECT_EQ(two_texts(mode, 1), texts) << to_string(mode);
}

TEST_P(Generate, AllCharactersAreOneLaunchWithOneLoop) {
  for (double temperature : {0.0, 1.0}) {
    Generator generator(small("charmlp"), {.length = kLength, .temperature = temperature},
                        {.target = GetParam(), .require_whole_graph = true});
    const Tokens start = start_of(small("charmlp"), 1);
    EXPECT_EQ(generator.run(sink, start, 0).size(), 0u) << "op by op";
    EXPECT_EQ(generator.program.counters().graph_launches, 0u);
    EXPECT_EQ(generator.run(sink, start, kLength).size(), static_cast<std::size_t>(kLength));
    EXPECT_EQ(generator.program.counters().graph_launches, 1u);
    EXPECT_EQ(generator.program.counters().fallbacks, 0u);
    EXPECT_EQ(generator.program.captured()->conditional_nodes, 1);
  }
}

TEST_P(Generate, TheWorkloadGoesOnWhereItHasEnded) {
  Text text{Tokens(30), "\nabc", "test"};
  for (std::size_t i = 0; i < text.tokens.size(); ++i) text.tokens[i] = static_cast<std::int32_t>(i * i % 4);
  const models::TextModel text_model = models::charmlp(4, {.width = 2, .hidden = 4}, 1);
  models::Model model = models::generator(text_model, text, 16);
  const Variable& context = model.variables.back();
  EXPECT_EQ(tokens_in(context.read()), Tokens(text.tokens.end() - 8, text.tokens.end()));
  Program p = compile(model.graph, {.require_whole_graph = true});
  for (int step = 0; step < 8; ++step) {
    const Tokens before = tokens_in(context.read());
    p.run(sink);
    const Tokens after = tokens_in(context.read());
    const auto characters = static_cast<int>(p.records("characters").back());
    EXPECT_GE(characters, 4);
    EXPECT_LE(characters, 16);
    EXPECT_TRUE(characters == 16 || after.back() == 0) << "a line has ended";
    const auto kept = before.size() - static_cast<std::size_t>(std::min(characters, 8));
    EXPECT_TRUE(std::equal(before.end() - static_cast<std::ptrdiff_t>(kept), before.end(), after.begin()));
  }
  EXPECT_EQ(p.records("loss").size(), 8u);
}

}  // namespace
}  // namespace graphsink::generate_test
