// Compares the gradients of the model with differences of its loss, for every tensor of parameters: along the gradient
// itself, along a random direction, and for single parameters.
#include <algorithm>
#include <cstdio>
#include <exception>

#include "model.cuh"

namespace {

struct Checker {
  static constexpr int kSingles = 3;     // parameters of each tensor
  static constexpr double kStep = 2e-2;  // length of the difference
  static constexpr double kRelative = 1e-2, kAbsolute = 1e-4;

  Model& model;
  cudaStream_t stream;
  int rows;
  std::vector<float> values;  // values of the parameters
  std::vector<float> gradients;
  int checks = 0, wrong = 0;
  double worst = 0;  // the largest difference, divided by the one that is allowed

  template <class T>
  std::vector<T> read(const T* from, std::size_t count) {
    std::vector<T> result(count);
    CHECK(cudaMemcpyAsync(result.data(), from, count * sizeof(T), cudaMemcpyDeviceToHost, stream));
    CHECK(cudaStreamSynchronize(stream));
    return result;
  }
  void write_parameters(const std::vector<float>& from) {
    CHECK(
        cudaMemcpyAsync(model.parameters(), from.data(), from.size() * sizeof(float), cudaMemcpyHostToDevice, stream));
    CHECK(cudaStreamSynchronize(stream));
  }

  // The mean loss after `tensor` has moved by `distance` along `direction`. The losses of the rows are added in double.
  double loss_at(const Tensor& tensor, const std::vector<double>& direction, double distance) {
    std::vector<float> moved = values;
    for (std::size_t i = 0; i < direction.size(); ++i) {
      float& value = moved[static_cast<std::size_t>(tensor.offset) + i];
      value = static_cast<float>(value + distance * direction[i]);
    }
    write_parameters(moved);
    model.forward(stream);
    double sum = 0;
    for (const float loss : read(model.row_losses(), static_cast<std::size_t>(rows))) sum += static_cast<double>(loss);
    return sum / rows;
  }

  void compare(const Tensor& tensor, const char* what, const std::vector<double>& direction) {
    double expected = 0;
    for (std::size_t i = 0; i < direction.size(); ++i) {
      expected += direction[i] * static_cast<double>(gradients[static_cast<std::size_t>(tensor.offset) + i]);
    }
    // Two lengths of the difference are combined so that the error of the third derivative cancels (Richardson).
    const auto slope = [&](double h) {
      return (loss_at(tensor, direction, h) - loss_at(tensor, direction, -h)) / (2 * h);
    };
    const double seen = (4 * slope(kStep) - slope(2 * kStep)) / 3;
    const double share = std::abs(seen - expected) / (kAbsolute + kRelative * std::abs(expected));
    ++checks;
    worst = std::max(worst, share);
    if (share <= 1) return;
    ++wrong;
    std::printf("%s, %s: the gradient says %.6g, the loss %.6g\n", tensor.name.c_str(), what, expected, seen);
  }

  void check(const Tensor& tensor, Random& random) {
    const auto count = static_cast<std::size_t>(tensor.count);
    const auto unit = [](std::vector<double> v) {
      double squares = 0;
      for (const double x : v) squares += x * x;
      for (double& x : v) x /= std::sqrt(squares);
      return v;
    };
    std::vector<double> along(count), any(count);
    double largest = 0;
    for (std::size_t i = 0; i < count; ++i) {
      along[i] = static_cast<double>(gradients[static_cast<std::size_t>(tensor.offset) + i]);
      any[i] = static_cast<double>(random.normal());
      largest = std::max(largest, std::abs(along[i]));
    }
    if (!(largest > 0)) {
      std::printf("%s: the gradient is zero\n", tensor.name.c_str());
      ++wrong;
      return;
    }
    compare(tensor, "along the gradient", unit(along));
    compare(tensor, "along a random direction", unit(any));
    for (int i = 0; i < kSingles; ++i) {
      const std::size_t at = random.next() % count;
      std::vector<double> single(count);
      single[at] = 1;
      compare(tensor, ("parameter " + std::to_string(at)).c_str(), single);
    }
  }
};

int check_gradients() {
  Shape shape;
  shape.batch = 2;
  shape.context = 9;  // sizes that are no multiples of a warp or of each other
  shape.layers = 2;
  shape.width = 12;
  shape.heads = 3;
  shape.vocabulary = 37;
  cudaStream_t stream = nullptr;
  CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  int wrong = 0;
  {
    Model model(shape, AdamW(), 1, 1, stream);
    Checker checker{model, stream, shape.rows(), {}, {}};
    Random random(7);
    // Larger values than at the start of a training, so that every part of the model matters.
    for (const Tensor& tensor : model.layout().tensors) {
      for (long i = 0; i < tensor.count; ++i) checker.values.push_back(tensor.mean + 0.3f * random.normal());
    }
    std::vector<int> tokens(static_cast<std::size_t>(shape.batch * (shape.context + 1)));
    for (int& token : tokens) token = static_cast<int>(random.next() % 11) * 3;  // some occur several times, some never
    CHECK(cudaMemcpyAsync(model.tokens(), tokens.data(), tokens.size() * sizeof(int), cudaMemcpyHostToDevice, stream));
    checker.write_parameters(checker.values);
    model.forward(stream);
    model.backward(stream);
    checker.gradients = checker.read(model.gradients(), checker.values.size());
    for (const Tensor& tensor : model.layout().tensors) checker.check(tensor, random);
    wrong = checker.wrong;
    std::printf("%d comparisons of %zu tensors, %d wrong; the largest difference is %.2f of what is allowed\n",
                checker.checks, model.layout().tensors.size(), wrong, checker.worst);
  }
  CHECK(cudaStreamDestroy(stream));
  return wrong == 0 ? 0 : 1;
}

}  // namespace

int main() {
  try {
    return check_gradients();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 1;
  }
}
