// Text from a model, character by character, as one loop that is part of the launch.
#pragma once

#include "samples/models/text_model.h"

namespace graphsink::models {

struct GenerateOptions {
  std::int64_t length = 200;  // characters for which there is room
  double temperature = 1;     // 0: always the most likely character
  std::int32_t end = -1;      // the token that ends the text; -1: none does
  std::int64_t at_least = 1;  // characters before it may
};

struct Generated {
  Value tokens;   // i32 [length]; -1 behind the end of the text
  Value count;    // number of its characters, an i32 scalar
  Value context;  // i32 [1, context]: the last characters, from which another text can go on
};

// Continues the characters of `context`, i32 [1, context], by up to `most`, an i32 scalar that is not above the length.
// The random numbers are those of random_uniform(): other ones in every step. The logits must be f32 or f64.
Generated generate(const TextModel& model, const Value& context, const Arg& most, const GenerateOptions& options);

// Continues the end of a text by as many characters, or less if a line ends in the second half of them. Call it when no
// other thread runs a program with the parameters.
std::string continue_text(const TextModel& model, const Text& text, std::int64_t characters, DeviceId device,
                          std::uint32_t seed);

// The workload: the first step continues the text, and each further one goes on where the one before has ended, for
// `length` characters, or less if a line ends behind the first quarter of them. Records "characters", their number, and
// as "loss" the mean over all places of (token + 1) * place.
Model generator(const TextModel& text_model, const Text& text, std::int64_t length);

}  // namespace graphsink::models
