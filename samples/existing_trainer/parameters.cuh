// The sizes of the model, and where each of its parameters lies in one array. Gradients and both moments of AdamW lie
// in arrays of the same layout.
#pragma once

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

struct Shape {
  int batch = 8, context = 64, layers = 2, width = 64, heads = 4, vocabulary = 0;
  int rows() const { return batch * context; }
  int head_width() const { return width / heads; }
};

// Uniform and normal numbers that are the same with every standard library.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next() {  // splitmix64
    std::uint64_t z = state_ += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
  }
  double uniform() { return (static_cast<double>(next() >> 11) + 0.5) / 9007199254740992.0; }
  float normal() {
    const double radius = std::sqrt(-2.0 * std::log(uniform()));
    return static_cast<float>(radius * std::cos(6.283185307179586 * uniform()));
  }

 private:
  std::uint64_t state_;
};

struct Tensor {
  std::string name;
  long offset, count;
  float deviation;  // of the initial values
  float mean;
};

// Offsets of the parameters. Weights are [outputs, inputs].
struct Layout {
  struct Layer {
    long qkv, projection, hidden, output;                    // matrices
    long norm1_gain, norm1_bias, qkv_bias, projection_bias;  // vectors
    long norm2_gain, norm2_bias, hidden_bias, output_bias;
  };
  long tokens, positions, norm_gain, norm_bias;
  std::vector<Layer> layers;
  std::vector<Tensor> tensors;
  long matrices = 0, count = 0;  // the matrices come first

  explicit Layout(const Shape& s) : layers(static_cast<std::size_t>(s.layers)) {
    const long width = s.width;
    const float deviation = 0.02f, residual = deviation / std::sqrt(2.0f * static_cast<float>(s.layers));
    tokens = add("tokens", s.vocabulary * width, deviation);
    positions = add("positions", s.context * width, deviation);
    for (std::size_t i = 0; i < layers.size(); ++i) {
      const std::string name = "layer" + std::to_string(i) + ".";
      layers[i].qkv = add(name + "qkv", 3 * width * width, deviation);
      layers[i].projection = add(name + "projection", width * width, residual);
      layers[i].hidden = add(name + "hidden", 4 * width * width, deviation);
      layers[i].output = add(name + "output", 4 * width * width, residual);
    }
    matrices = count;
    for (std::size_t i = 0; i < layers.size(); ++i) {
      const std::string name = "layer" + std::to_string(i) + ".";
      layers[i].norm1_gain = add(name + "norm1_gain", width, 0, 1);
      layers[i].norm1_bias = add(name + "norm1_bias", width, 0);
      layers[i].qkv_bias = add(name + "qkv_bias", 3 * width, 0);
      layers[i].projection_bias = add(name + "projection_bias", width, 0);
      layers[i].norm2_gain = add(name + "norm2_gain", width, 0, 1);
      layers[i].norm2_bias = add(name + "norm2_bias", width, 0);
      layers[i].hidden_bias = add(name + "hidden_bias", 4 * width, 0);
      layers[i].output_bias = add(name + "output_bias", width, 0);
    }
    norm_gain = add("norm_gain", width, 0, 1);
    norm_bias = add("norm_bias", width, 0);
  }

  std::vector<float> initial_values(std::uint64_t seed) const {
    Random random(seed);
    std::vector<float> values;
    values.reserve(static_cast<std::size_t>(count));
    for (const Tensor& tensor : tensors) {
      for (long i = 0; i < tensor.count; ++i) {
        values.push_back(tensor.deviation == 0 ? tensor.mean : tensor.mean + tensor.deviation * random.normal());
      }
    }
    return values;
  }

 private:
  long add(const std::string& name, long size, float deviation, float mean = 0) {
    tensors.push_back({name, count, size, deviation, mean});
    count += size;
    return count - size;
  }
};
