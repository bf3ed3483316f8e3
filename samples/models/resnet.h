// resnet: convolutions with group norms, in blocks that add their input to their result (He et al. 2016, "Deep residual
// learning for image recognition"), for classes of images.
#pragma once

#include <string>
#include <vector>

#include "samples/models/model.h"

namespace graphsink::models {

struct ResnetSizes {
  std::int64_t width = 16;  // channels of the first block, a multiple of `groups`; each block has twice as many
  std::int64_t blocks = 3;  // the layer in front of them, and all but the first, halve height and width
  int groups = 4;           // a group norm divides the channels into so many groups
};

class Resnet {
 public:
  Resnet(std::int64_t channels, std::int64_t classes, std::uint64_t seed, const ResnetSizes& sizes = {});

  // [n, channels, height, width] -> [n, classes]; the caller chooses the batch and the size of its images. A group norm
  // looks at one sample at a time, so that training and testing compute the same.
  Value logits(const Value& x) const;

  const std::vector<Variable>& variables() const { return variables_; }

 private:
  // A convolution of 3 x 3 and a group norm.
  struct Layer {
    Variable filters, gain, bias;
    std::int64_t stride;
    int groups;
    Value operator()(const Value& x) const;
  };
  struct Block {
    std::string name;
    Layer first, second;
    Variable skip;  // filters of 1 x 1 for the input
    Value operator()(const Value& x) const;
  };

  Variable add(const std::string& name, const Tensor& initial);
  Variable filters(const std::string& name, std::int64_t from, std::int64_t to, std::int64_t side);
  Layer layer(const std::string& name, std::int64_t from, std::int64_t to, std::int64_t stride, int groups);

  std::uint64_t seed_;
  std::vector<Variable> variables_;
  Layer stem_;
  std::vector<Block> blocks_;
  Variable head_;
};

}  // namespace graphsink::models
