#include "samples/models/nonzero.h"

namespace graphsink::models {

Model nonzero(std::shared_ptr<const Digits> digits, const NonzeroOptions& options, const MlpTraining& training) {
  constexpr std::int64_t kClasses = 10;
  const std::int64_t inputs = digits->images.shape()[1];
  Variable glance("glance", Tensor::kaiming({inputs, kClasses}, training.seed));
  const Mlp look(inputs, options.hidden, kClasses, training.seed + 1);

  Model model;
  model.name = "nonzero";
  Value x = model.graph.feed("x", f32, {training.batch, inputs});
  Value t = model.graph.feed("t", i32, {training.batch});
  Value first = matmul(x, glance);
  Value is_unsure = max(softmax(first), {1}) < options.sure;
  const Padded unsure = flat_nonzero(is_unsure, options.size);
  Value second = look.logits(gather(x, unsure).values);
  Value losses = cross_entropy(second, gather(t, unsure).values, {.per_row = true});
  Value loss = cross_entropy(first, t) + sum(Padded{losses, unsure.count}) / static_cast<double>(training.batch);
  const std::vector<Variable> parameters = {glance, look.w1, look.w2, look.w3};
  Optimizer optimizer = adamw(loss, parameters, {.lr = training.lr});
  model.graph.record("loss", loss);
  model.graph.record("unsure", cast(unsure.count, f32));

  model.feeds = digit_batches(x, t, std::move(digits), training);
  model.variables = optimizer.variables();
  model.variables.insert(model.variables.end(), parameters.begin(), parameters.end());
  return model;
}

}  // namespace graphsink::models
