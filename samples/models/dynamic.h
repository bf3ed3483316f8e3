// dynamic: a model of text that is trained on windows of varying length.
#pragma once

#include <memory>

#include "samples/models/model.h"

namespace graphsink::models {

struct DynamicSizes {
  std::int64_t width = 64;
  std::int64_t longest = 64;  // characters in a window; at least 1
  std::int64_t batch = 16;
  double lr = 3e-3;
  std::uint64_t seed = 1;
};

// Predicts each character of a window from those before it: embedding, causal attention, one tanh layer, AdamW. The
// windows of a step are of one length, which is drawn between an eighth of `longest` and all of it, and are padded
// to the next power of two. So all lengths share up to four plans and captured graphs. The loss is the mean over the
// characters that are no padding. Throws Error for a text that is too short.
Model dynamic(std::shared_ptr<const Text> text, const DynamicSizes& sizes);

// The length of the windows of a step.
std::int64_t length_of_windows(const DynamicSizes& sizes, std::int64_t step);

}  // namespace graphsink::models
