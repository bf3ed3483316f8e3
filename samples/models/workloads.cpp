#include "samples/models/workloads.h"

#include <algorithm>

#include "samples/models/branch.h"
#include "samples/models/dynamic.h"
#include "samples/models/generate.h"
#include "samples/models/hetero.h"
#include "samples/models/jacobi.h"
#include "samples/models/mlp.h"
#include "samples/models/nonzero.h"
#include "samples/models/synthetic.h"
#include "samples/models/text_model.h"

namespace graphsink::models {
namespace {

constexpr std::int64_t kGpt2Vocabulary = 50257;

constexpr WorkloadInfo kWorkloads[] = {
    {"chain", "dependent operations on one element; --nodes says how many"},
    {"wide", "8 independent branches of 32 operations on 65,536 elements (test size: 4 of 4 on 256)"},
    {"mlp", "784-256-256-10 on digits, batch 32, AdamW (test size: 784-16-16-10, batch 8)"},
    {"charmlp", "8 characters of context, embedding, tanh layer, batch 64, AdamW (test size: batch 8)"},
    {"lstm", "2 layers of 128, 32 characters, batch 8, AdamW (test size: 2 of 8, 5 characters, batch 2)"},
    {"lstm-scan", "the same, each layer a loop over the characters"},
    {"gpt",
     "4 layers, 128 wide, 64 characters, batch 8, AdamW (test size: 2 layers, 16 wide, 8 characters, batch 2; large "
     "size: "
     "that of GPT-2 small, 12 layers, 768 wide, 1,024 tokens of 50,257, batch 8)"},
    {"hetero", "hashed 2- and 3-grams of 16 characters, batch 64, AdamW; 3 ops need the host (test size: batch 16)"},
    {"jacobi", "a heated plate of 512x512 cells, a loop until no cell changes by over 0.2 degrees (test size: 32x32)"},
    {"branch", "784-256, then by the batch 256-10 or 10, on digits, batch 32, SGD (test size: 16 for 256, batch 8)"},
    {"dynamic", "windows of 8 to 64 characters, padded, attention, batch 16, AdamW (test size: 2 to 16, batch 2)"},
    {"nonzero",
     "784-10 on digits, batch 32, 784-256-256-10 for those of less than 90 %, AdamW (test size: 16, batch 8)"},
    {"generate", "up to 256 characters from charmlp, untrained, in a loop that ends with a line (test size: 16)"},
};

}  // namespace

bool can_be_shared(std::string_view name) {
  return name == "mlp" || name == "charmlp" || name == "lstm" || name == "lstm-scan" || name == "gpt";
}

std::span<const WorkloadInfo> Workloads::list() { return kWorkloads; }

const DigitData& Workloads::digits() {
  if (!digits_) digits_ = find_digits(options_.directory);
  return *digits_;
}

const TextData& Workloads::text() {
  if (!text_) text_ = find_text(options_.directory, options_.text);
  return *text_;
}

std::optional<Source> Workloads::source(std::string_view name) {
  if (name == "mlp" || name == "branch" || name == "nonzero") return digits().source;
  for (std::string_view of_text : {"charmlp", "lstm", "lstm-scan", "gpt", "hetero", "dynamic", "generate"})
    if (name == of_text) return text().source;
  return std::nullopt;
}

TextModel Workloads::text_model(std::string_view name) {
  auto vocabulary = static_cast<std::int64_t>(text().text->vocabulary.size());
  std::uint64_t seed = options_.seed;
  if (options_.is_large_size)  // more tokens than the text has characters
    return gpt(kGpt2Vocabulary, {.layers = 12, .width = 768, .heads = 12, .context = 1024}, seed);
  if (!options_.is_test_size) return models::text_model(name, vocabulary, seed);
  if (name == "charmlp") return charmlp(vocabulary, {.width = 4, .hidden = 16}, seed);
  if (name.starts_with("lstm"))
    return lstm(vocabulary, {.layers = 2, .hidden = 8, .context = 5, .as_loop = name == "lstm-scan"}, seed);
  return gpt(vocabulary, {.layers = 2, .width = 16, .heads = 2, .context = 8}, seed);
}

Model Workloads::make(std::string_view name) {
  bool is_test = options_.is_test_size;
  std::uint64_t seed = options_.seed;
  if (options_.is_large_size && name != "gpt")
    throw Error("workload \"" + std::string(name) + "\"", Where(), "it has no size large", "gpt has: --workload gpt");
  if (name == "chain") return chain(options_.nodes);
  if (name == "wide") return is_test ? wide(4, 4, 256) : wide(8, 32, 65536);
  if (name == "mlp") {
    std::int64_t hidden = is_test ? 16 : 256;
    return train_mlp(Mlp(digits().digits->images.shape()[1], hidden, 10, seed), digits().digits,
                     {.batch = is_test ? 8 : 32, .seed = seed, .sharing = options_.sharing});
  }
  if (name == "charmlp" || name == "lstm" || name == "lstm-scan" || name == "gpt") {
    TextModel model = text_model(name);
    TextTraining training = training_of(model);
    training.seed = seed;
    training.sharing = options_.sharing;
    if (is_test) training.batch = std::min<std::int64_t>(training.batch / 4, 8);
    return train(model, text().text, training);
  }
  if (name == "hetero") {
    int round_trips = (options_.crossings + 1) / 2;
    HeteroOptions sizes{.round_trips = round_trips, .seed = seed};
    if (is_test)
      sizes = {.context = 6,
               .buckets = 256,
               .width = 8,
               .hidden = 16,
               .batch = 16,
               .round_trips = round_trips,
               .lr = 1e-2,
               .seed = seed};
    return hetero(text().text, sizes);
  }
  if (name == "jacobi") {
    JacobiOptions plate{.counts_on_host = options_.counts_on_host};
    if (is_test) plate.size = 32;
    return jacobi(plate);
  }
  if (name == "branch")
    return branch(digits().digits, is_test ? 16 : 256, {.batch = is_test ? 8 : 32, .lr = 0.1, .seed = seed});
  if (name == "nonzero")
    return nonzero(digits().digits, {.hidden = is_test ? 16 : 256}, {.batch = is_test ? 8 : 32, .seed = seed});
  if (name == "dynamic")
    return dynamic(text().text, is_test ? DynamicSizes{.width = 8, .longest = 16, .batch = 2, .lr = 1e-2, .seed = seed}
                                        : DynamicSizes{.seed = seed});
  if (name == "generate") return generator(text_model("charmlp"), *text().text, is_test ? 16 : 256);
  std::string known;
  for (const WorkloadInfo& workload : kWorkloads) known += (known.empty() ? "" : ", ") + std::string(workload.name);
  throw Error("workload \"" + std::string(name) + "\"", Where(), "expected one of " + known, "see --list");
}

}  // namespace graphsink::models
