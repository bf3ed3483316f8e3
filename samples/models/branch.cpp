#include "samples/models/branch.h"

namespace graphsink::models {

Model branch(std::shared_ptr<const Digits> digits, std::int64_t hidden, const MlpTraining& options) {
  constexpr std::int64_t kClasses = 10;
  std::int64_t inputs = digits->images.shape()[1];
  Variable brightness("brightness", Tensor::scalar(0.0f));
  Variable first("first", Tensor::kaiming({inputs, hidden}, options.seed));
  Variable long1("long1", Tensor::kaiming({hidden, hidden}, options.seed + 1));
  Variable long2("long2", Tensor::kaiming({hidden, kClasses}, options.seed + 2));
  Variable short1("short", Tensor::kaiming({hidden, kClasses}, options.seed + 3));

  Model model;
  model.name = "branch";
  Value x = model.graph.feed("x", f32, {options.batch, inputs});
  Value t = model.graph.feed("t", i32, {options.batch});
  Value bright = mean(x), is_long = bright > model.graph.value(brightness);
  Value features = relu(matmul(x, first));
  Value logits = if_(
      is_long, [&] { return matmul(relu(matmul(features, long1)), long2); }, [&] { return matmul(features, short1); });
  Value loss = cross_entropy(logits, t);
  Optimizer optimizer = sgd(loss, {first, long1, long2, short1}, {.lr = options.lr});
  assign(brightness, bright);
  model.graph.record("loss", loss);
  model.graph.record("long", cast(is_long, f32));

  model.feeds = digit_batches(x, t, std::move(digits), options);
  model.variables = {brightness, first, long1, long2, short1, optimizer.lr};
  return model;
}

}  // namespace graphsink::models
