// branch: a model for images of digits that chooses between two ways through its layers in every step.
#pragma once

#include <memory>

#include "samples/models/mlp.h"

namespace graphsink::models {

// A batch that is brighter than the one before goes through two more layers, another one through a single one; only the
// layers on the way that was taken learn. Cross entropy and SGD on randomly drawn batches. Its Variables are the
// brightness of the batch before and the matrices "first", "long1", "long2" and "short"; it records "loss" and, as
// "long", 1 for the long way and 0 for the short one.
Model branch(std::shared_ptr<const Digits> digits, std::int64_t hidden, const MlpTraining& options);

}  // namespace graphsink::models
