// charmlp: predicts the next character from the last eight: embedding, one tanh layer, softmax (Bengio et al. 2003, "A
// neural probabilistic language model").
#pragma once

#include <memory>

#include "samples/models/model.h"

namespace graphsink::models {

struct CharMlp {
  static constexpr std::int64_t kContext = 8;
  Variable table, w1, b1, w2, b2;

  CharMlp(std::int64_t vocabulary, std::int64_t width, std::int64_t hidden, std::uint64_t seed);

  // i32 [n, kContext] -> [n, vocabulary]; the batch size is the caller's.
  Value logits(const Value& tokens) const;
};

struct CharMlpTraining {
  std::int64_t batch = 64;
  double lr = 3e-3;
  std::uint64_t seed = 1;
};

// Cross entropy and AdamW on batches from random places of the text.
Model train_charmlp(const CharMlp& charmlp, std::shared_ptr<const Text> text, const CharMlpTraining& options = {});

// Continues the end of the text, character by character, with a program of its own on the same Variables. Call it when
// no other thread runs a program with them.
std::string continue_text(const CharMlp& charmlp, const Text& text, std::int64_t characters, DeviceId device,
                          std::uint64_t seed);

}  // namespace graphsink::models
