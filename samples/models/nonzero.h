// nonzero: a model for images of digits that looks twice only at the images of which it is not sure.
#pragma once

#include <memory>

#include "samples/models/mlp.h"

namespace graphsink::models {

// A matrix classifies all images of a batch. Those to whose most probable class it gives less than `sure` are selected,
// in a result of `size`, and go through three more matrices, which learn from them alone: their number falls while the
// first matrix learns. The loss is the cross entropy of all images by the first matrix, plus that of the selected ones
// by the others, both divided by the batch. AdamW. The matrices are "glance", "w1", "w2" and "w3"; it records "loss"
// and, as "unsure", how many images were selected.
struct NonzeroOptions {
  std::int64_t hidden = 256;
  double sure = 0.9;
  ResultSize size = next_power_of_two();
};
Model nonzero(std::shared_ptr<const Digits> digits, const NonzeroOptions& options, const MlpTraining& training);

}  // namespace graphsink::models
