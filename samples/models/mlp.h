// mlp: three matrices without biases, relu between them, for images of digits.
#pragma once

#include <memory>

#include "samples/models/model.h"

namespace graphsink::models {

struct Mlp {
  Variable w1, w2, w3;

  Mlp(std::int64_t inputs, std::int64_t hidden, std::int64_t classes, std::uint64_t seed)
      : w1("w1", Tensor::kaiming({inputs, hidden}, seed)),
        w2("w2", Tensor::kaiming({hidden, hidden}, seed + 1)),
        w3("w3", Tensor::kaiming({hidden, classes}, seed + 2)) {}

  // [n, inputs] -> [n, classes]; the batch size is the caller's.
  Value logits(const Value& x) const { return matmul(relu(matmul(relu(matmul(x, w1)), w2)), w3); }
};

struct MlpTraining {
  std::int64_t batch = 32;
  std::int64_t examples = 8000;  // trains on the first so many of the digits (all, if there are fewer)
  double lr = 1e-3;
  std::uint64_t seed = 1;
  // The digits live on the device, and each step gathers its batch by a feed of their numbers, "index".
  bool is_resident = false;
  Sharing sharing = {};
};

// Data for the feeds of images [batch, inputs] and labels [batch]: randomly drawn batches.
std::vector<Feed> digit_batches(const Value& images, const Value& labels, std::shared_ptr<const Digits> digits,
                                const MlpTraining& options);

// Cross entropy and AdamW on such batches.
Model train_mlp(const Mlp& mlp, std::shared_ptr<const Digits> digits, const MlpTraining& options = {});

}  // namespace graphsink::models
