#include "samples/models/text_model.h"

#include <algorithm>
#include <cstring>
#include <numeric>

namespace graphsink::models {
namespace {

constexpr std::int64_t kEvaluationBatches = 8;

// Windows of a text and, as targets, the characters that follow each of their last `predictions`.
struct Windows {
  std::shared_ptr<const Text> text;
  std::int64_t context;
  std::int64_t predictions;
  std::int64_t batch;
  std::function<std::int64_t(std::int64_t)> place;  // place of window i

  Tensor contexts(std::int64_t first, std::int64_t count) const {
    return copy(first, count, Shape{count, batch, context}, 0, context);
  }
  Tensor targets(std::int64_t first, std::int64_t count) const {
    return copy(first, count, Shape{count, batch, predictions}, context - predictions + 1, predictions);
  }
  std::vector<Feed> feeds(const Value& x, const Value& t) const {
    return {{x, [w = *this](std::int64_t first, std::int64_t count) { return w.contexts(first, count); }},
            {t, [w = *this](std::int64_t first, std::int64_t count) { return w.targets(first, count); }}};
  }

 private:
  Tensor copy(std::int64_t first, std::int64_t count, const Shape& shape, std::int64_t offset,
              std::int64_t length) const {
    Tensor tensor(i32, shape);
    auto* to = tensor.as<std::int32_t>().data();
    for (std::int64_t i = 0; i < count * batch; ++i)
      std::copy_n(text->tokens.data() + place(first * batch + i) + offset, length, to + i * length);
    return tensor;
  }
};

std::int64_t size_of_text(const Text& text) { return static_cast<std::int64_t>(text.tokens.size()); }

void check_length(const TextModel& model, std::int64_t characters, const char* part) {
  if (characters > model.context) return;
  throw Error(model.name, Where(),
              "a window has " + std::to_string(model.context) + " characters, the " + part + " part of the text " +
                  std::to_string(characters),
              "give a longer text");
}

Value learning_rate(Graph& graph, const TextTraining& options) {
  CosineSchedule schedule{.peak = options.lr, .warmup = options.warmup, .steps = options.decay_steps};
  if (schedule.steps > 0) schedule.warmup = std::min(schedule.warmup, schedule.steps / 2);  // in short runs
  return cosine_schedule(graph, schedule);
}

// In the order of the groups.
std::vector<Value> gradients_of(const Value& loss, const std::vector<ParameterGroup>& groups) {
  std::vector<Arg> parameters;
  for (const ParameterGroup& group : groups)
    parameters.insert(parameters.end(), group.parameters.begin(), group.parameters.end());
  return grad(loss, parameters);
}

}  // namespace

TextModel text_model(std::string_view name, std::int64_t vocabulary, std::uint64_t seed) {
  if (name == "charmlp") return charmlp(vocabulary, {}, seed);
  if (name == "lstm") return lstm(vocabulary, {}, seed);
  if (name == "lstm-scan") return lstm(vocabulary, {.as_loop = true}, seed);
  if (name == "gpt") return gpt(vocabulary, {}, seed);
  throw Error("model \"" + std::string(name) + "\"", Where(), "expected charmlp, lstm, lstm-scan or gpt",
              "name one of them");
}

TextTraining training_of(const TextModel& model) {
  if (model.name.starts_with("lstm")) return {.batch = 8, .lr = 2e-3, .clip_norm = 1};
  if (model.name == "gpt") return {.batch = 8, .lr = 1e-3, .warmup = 100, .weight_decay = 0.1, .clip_norm = 1};
  return {};
}

std::int64_t training_characters(const Text& text) { return size_of_text(text) - size_of_text(text) / 10; }

Model train(const TextModel& text_model, std::shared_ptr<const Text> text, const TextTraining& options) {
  check_length(text_model, training_characters(*text), "training");
  Model model;
  model.name = text_model.name;
  Value x = model.graph.feed("x", i32, {options.batch, text_model.context});
  Value t = model.graph.feed("t", i32, {options.batch, text_model.predictions});
  Value logits = text_model.logits(x, options.dropout);
  Value loss = cross_entropy(logits, flatten(t, 0));
  std::vector<ParameterGroup> groups(2);
  groups[1].weight_decay = 0;
  for (const Variable& parameter : text_model.parameters)
    groups[parameter.type().shape.rank() > 1 ? 0 : 1].parameters.push_back(parameter);
  AdamwOptions adamw_options{
      .lr = options.lr, .weight_decay = options.weight_decay, .gradients = {.clip_norm = options.clip_norm}};
  if (options.decay_steps > 0 || options.warmup > 0) adamw_options.lr = learning_rate(model.graph, options);
  const Sharing& sharing = options.sharing;
  Optimizer optimizer = sharing.apply ? sharing.apply(adamw_options, groups, gradients_of(loss, groups))
                                      : adamw(loss, groups, adamw_options);
  model.graph.record("loss", sharing.loss ? sharing.loss(loss) : loss);

  std::int64_t places = training_characters(*text) - text_model.context;
  auto place = [places, seed = options.seed](std::int64_t i) {
    return static_cast<std::int64_t>(random_bits(seed, static_cast<std::uint64_t>(i)) %
                                     static_cast<std::uint64_t>(places));
  };
  model.feeds = Windows{text, text_model.context, text_model.predictions, options.batch, place}.feeds(x, t);
  model.variables = text_model.parameters;
  std::vector<Variable> state = optimizer.variables();
  model.variables.insert(model.variables.end(), state.begin(), state.end());
  return model;
}

std::shared_ptr<const graphsink::Source> training_windows(const TextModel& model, std::shared_ptr<const Text> text) {
  const std::int64_t places = training_characters(*text) - model.context;
  const std::int64_t context = model.context, predictions = model.predictions;
  return function_source(places, {{"x", {i32, {context}}}, {"t", {i32, {predictions}}}},
                         [=](std::int64_t place, SampleMemory to) {
                           const std::int32_t* window = text->tokens.data() + place;
                           std::memcpy(to[0].data(), window, to[0].size());
                           std::memcpy(to[1].data(), window + context - predictions + 1, to[1].size());
                         });
}

Evaluation::Evaluation(const TextModel& model, std::shared_ptr<const Text> text, DeviceId device,
                       std::int64_t predictions) {
  std::int64_t begin = training_characters(*text);
  std::int64_t held_out = size_of_text(*text) - begin;
  check_length(model, held_out, "held-out");
  std::int64_t batch = std::max<std::int64_t>(predictions / kEvaluationBatches / model.predictions, 1);
  std::int64_t windows = batch * kEvaluationBatches, last_place = held_out - model.context - 1;
  Value x = graph_.feed("x", i32, {batch, model.context});
  Value t = graph_.feed("t", i32, {batch, model.predictions});
  Value logits = model.logits(x, 0);
  graph_.record("loss", cross_entropy(logits, flatten(t, 0)));
  program_ = std::make_unique<Program>(compile(graph_, {.target = device}));
  auto place = [=](std::int64_t i) { return begin + i * last_place / (windows - 1); };
  for (const Feed& feed : Windows{text, model.context, model.predictions, batch, place}.feeds(x, t))
    program_->write(feed.value, feed.slices(0, kEvaluationBatches));
}

double Evaluation::loss() {
  program_->run(sink, {.steps = kEvaluationBatches});
  std::vector<double> losses = program_->records<double>("loss");
  return std::accumulate(losses.begin(), losses.end(), 0.0) / static_cast<double>(losses.size());
}

Tensor last_window(const TextModel& model, const Text& text) {
  check_length(model, size_of_text(text), "given");
  return {{1, model.context}, std::span(text.tokens).last(static_cast<std::size_t>(model.context))};
}

}  // namespace graphsink::models
