#include "samples/models/generate.h"

namespace graphsink::models {
namespace {

// With noise of this distribution, argmax(logits + temperature * noise) is a character drawn from softmax(logits /
// temperature) (Maddison et al. 2014, "A* sampling", section 2).
Value gumbel_noise_like(const Value& x) { return -log(-log(random_uniform(x, 1e-10, 1))); }

// -1 for a text of one line.
std::int32_t newline_in(const Text& text) {
  std::size_t place = text.vocabulary.find('\n');
  return place == std::string::npos ? -1 : static_cast<std::int32_t>(place);
}

}  // namespace

Generated generate(const TextModel& model, const Value& context, const Arg& most, const GenerateOptions& options) {
  Graph g(context.graph());
  Value no_tokens = g.constant(Tensor::full(i32, {options.length}, -1));
  Value no_count = g.constant(Tensor::scalar(0)), not_done = g.constant(Tensor::scalar(false));

  auto goes_on = [&](Value, Value, Value count, Value done) {
    return logical_and(less(count, most), logical_not(done));
  };
  auto make_next = [&](Value window, Value tokens, Value count, Value) {
    Value scores = slice(model.logits(window, 0), {-1}, {to_end});
    if (options.temperature > 0) scores = scores + gumbel_noise_like(scores) * options.temperature;
    Value next = argmax(scores, 1);  // [1]
    Value written = where(equal(arange(tokens, 0), count), next, tokens);
    Value is_end = logical_and(equal(reshape(next, {}), options.end), count + 1 >= options.at_least);
    Value moved = concat({slice(window, {0, 1}, {1, to_end}), reshape(next, {1, 1})}, 1);
    return std::array{moved, written, count + 1, is_end};
  };
  auto [last, tokens, count, done] = while_({context, no_tokens, no_count, not_done}, goes_on, make_next);
  return {tokens, count, last};
}

std::string continue_text(const TextModel& model, const Text& text, std::int64_t characters, DeviceId device,
                          std::uint32_t seed) {
  Tensor window = last_window(model, text);
  Graph g;
  Value context = g.input("context", i32, window.shape()), most = g.input("most", i32, {});
  Generated made =
      generate(model, context, most, {.length = characters, .end = newline_in(text), .at_least = characters / 2});
  g.output("tokens", made.tokens);
  g.output("count", made.count);
  Program program = compile(g, {.target = device, .seed = seed});
  program.write(context, window);
  // The first step of a program runs op by op. It makes no character, so that all of them come from one launch.
  for (std::int64_t count : {std::int64_t{0}, characters}) {
    program.write(most, Tensor::scalar(static_cast<std::int32_t>(count)));
    program.run(sink);
  }
  Tensor tokens = program.output("tokens");
  auto first = tokens.as<std::int32_t>().begin();
  return text.decode({first, first + static_cast<std::ptrdiff_t>(program.output("count").at(0))});
}

Model generator(const TextModel& text_model, const Text& text, std::int64_t length) {
  Variable context("context", last_window(text_model, text));
  Model model;
  model.name = "generate";
  Generated made = generate(text_model, model.graph.value(context), length,
                            {.length = length, .end = newline_in(text), .at_least = length / 4});
  assign(context, made.context);
  Value places = arange(made.tokens, 0, f32) + 1.0;
  model.graph.record("loss", mean(cast(made.tokens + 1, f32) * places));
  model.graph.record("characters", cast(made.count, f32));
  model.variables = text_model.parameters;
  model.variables.push_back(context);
  return model;
}

}  // namespace graphsink::models
