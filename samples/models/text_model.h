// Models of text: from a window of characters they predict what follows. Training, evaluation and sampling are programs
// of their own that share the Variables.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "samples/models/model.h"

namespace graphsink::models {

struct TextModel {
  std::string name;
  std::int64_t vocabulary = 0;
  std::int64_t context = 0;      // characters in a window
  std::int64_t predictions = 0;  // the last so many of its characters have their next one predicted
  std::vector<Variable> parameters;
  // i32 [n, context] -> [n * predictions, vocabulary]; `dropout` is the share of activations dropped in training.
  std::function<Value(const Value& tokens, double dropout)> logits;
};

// Predicts the next character from the last eight: embedding, one tanh layer, softmax (Bengio et al. 2003, "A neural
// probabilistic language model").
struct CharMlpSizes {
  std::int64_t width = 16;
  std::int64_t hidden = 128;
  DType dtype = f32;
};
TextModel charmlp(std::int64_t vocabulary, const CharMlpSizes& sizes, std::uint64_t seed);

// Layers of long short-term memory, built from ops, which begin a window with a state of zeros (Hochreiter &
// Schmidhuber 1997, "Long short-term memory", with the forget gate of Gers et al. 2000).
struct LstmSizes {
  std::int64_t layers = 2;
  std::int64_t hidden = 128;
  std::int64_t context = 32;
  DType dtype = f32;
  bool as_loop = false;  // one loop for each layer ("lstm-scan"), else unrolled: the ops of each character ("lstm")
};
TextModel lstm(std::int64_t vocabulary, const LstmSizes& sizes, std::uint64_t seed);

// A decoder of transformer blocks with normalisation first (Radford et al. 2019, "Language models are unsupervised
// multitask learners"); the embedding is also the output layer.
struct GptSizes {
  std::int64_t layers = 4;
  std::int64_t width = 128;
  std::int64_t heads = 4;
  std::int64_t context = 64;
  DType dtype = f32;
};
TextModel gpt(std::int64_t vocabulary, const GptSizes& sizes, std::uint64_t seed);

// One of the above by name, at its default sizes. Throws Error for another name.
TextModel text_model(std::string_view name, std::int64_t vocabulary, std::uint64_t seed);

struct TextTraining {
  std::int64_t batch = 64;
  double lr = 3e-3;              // at its highest
  std::int64_t warmup = 0;       // steps in which the learning rate rises to that
  std::int64_t decay_steps = 0;  // until when it falls to a tenth, as half a cosine; 0: it stays
  double weight_decay = 0.01;    // decay of matrices; vectors have none
  double clip_norm = 0;          // 0: none
  double dropout = 0;
  std::uint64_t seed = 1;
  Sharing sharing = {};
};

// The model of train_text and graphsink-bench, by its options.
TextTraining training_of(const TextModel& model);

// The last tenth of a text is held out from training.
std::int64_t training_characters(const Text& text);

// Cross entropy and AdamW on windows from random places of the training part. Throws Error for a text too short.
Model train(const TextModel& model, std::shared_ptr<const Text> text, const TextTraining& options);

// The windows of the training part for a Loader, one from each place, with fields of the names of the feeds. Throws
// Error for a text too short.
std::shared_ptr<const graphsink::Source> training_windows(const TextModel& model, std::shared_ptr<const Text> text);

// Measures on the held-out part.
class Evaluation {
 public:
  // Takes about so many predictions, in windows spread evenly. Throws Error for a text too short.
  Evaluation(const TextModel& model, std::shared_ptr<const Text> text, DeviceId device,
             std::int64_t predictions = 8192);
  // Mean cross entropy, in nats for each character. Call it when no other thread runs a program with the parameters.
  double loss();

 private:
  Graph graph_;
  std::unique_ptr<Program> program_;
};

// The last characters of a text, i32 [1, context]. Throws Error for a text too short.
Tensor last_window(const TextModel& model, const Text& text);

}  // namespace graphsink::models
