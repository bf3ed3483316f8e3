// hetero: a model of text that needs the host in the middle of every step, because three of its ops have only a CPU
// body.
#pragma once

#include <memory>

#include "samples/models/model.h"

namespace graphsink::models {

struct HeteroOptions {
  std::int64_t context = 16;    // characters
  std::int64_t buckets = 4096;  // number of buckets for hashed character sequences
  std::int64_t width = 32;      // width of their embedding
  std::int64_t hidden = 128;
  std::int64_t batch = 64;
  int round_trips = 0;  // further ones to the host and back, with 8 ops on the device between them
  double lr = 2e-3;
  std::uint64_t seed = 1;
};

// Predicts the next character from the 2- and 3-character sequences of its context. On the host they are hashed to
// buckets (K. Weinberger et al. 2009, "Feature hashing for large scale multitask learning"), how often each bucket was
// seen is counted (a Variable whose next value the host computes and the device reads, as rare ones weigh more), and
// the examples with the highest losses are left out of the mean. Embedding, layers and AdamW run on the device.
Model hetero(std::shared_ptr<const Text> text, const HeteroOptions& options);

}  // namespace graphsink::models
