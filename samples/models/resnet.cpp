#include "samples/models/resnet.h"

namespace graphsink::models {

Resnet::Resnet(std::int64_t channels, std::int64_t classes, std::uint64_t seed, const ResnetSizes& sizes)
    : seed_(seed), stem_(layer("stem", channels, sizes.width, 2, sizes.groups)) {
  std::int64_t from = sizes.width;
  for (std::int64_t i = 0; i < sizes.blocks; ++i) {
    const std::string name = "block." + std::to_string(i);
    const std::int64_t to = sizes.width << i, stride = i == 0 ? 1 : 2;
    blocks_.push_back({name, layer(name + ".first", from, to, stride, sizes.groups),
                       layer(name + ".second", to, to, 1, sizes.groups), filters(name + ".skip", from, to, 1)});
    from = to;
  }
  head_ = add("head", Tensor::xavier({from, classes}, ++seed_));
}

Value Resnet::logits(const Value& x) const {
  Value y = relu(stem_(x));
  for (const Block& block : blocks_) y = block(y);
  return matmul(mean(y, {2, 3}), head_);
}

Value Resnet::Layer::operator()(const Value& x) const {
  const Value y = conv2d(x, filters, {.stride = {stride, stride}, .padding = {1, 1}});
  return group_norm(y, groups, gain, bias);
}

Value Resnet::Block::operator()(const Value& x) const {
  const Scope scope(name);
  const Value y = second(relu(first(x)));
  return relu(y + conv2d(x, skip, {.stride = {first.stride, first.stride}}));
}

Variable Resnet::add(const std::string& name, const Tensor& initial) {
  return variables_.emplace_back(Variable(name, initial));
}

Variable Resnet::filters(const std::string& name, std::int64_t from, std::int64_t to, std::int64_t side) {
  return add(name, Tensor::kaiming({to, from, side, side}, ++seed_));
}

Resnet::Layer Resnet::layer(const std::string& name, std::int64_t from, std::int64_t to, std::int64_t stride,
                            int groups) {
  return {filters(name + ".filters", from, to, 3), add(name + ".gain", Tensor::full(f32, {to}, 1)),
          add(name + ".bias", Tensor::full(f32, {to}, 0)), stride, groups};
}

}  // namespace graphsink::models
