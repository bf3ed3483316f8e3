// A loop of somebody else that a StreamLoader feeds: its steps append the batches that they see to lists on the device.
#pragma once

#include <cstring>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "graphsink/graphsink.h"
#include "guest_fixture.h"

namespace graphsink::testing {

inline constexpr std::int64_t kSamples = 50, kBatch = 4;

// Sample i is the number i and the label 2 i.
inline std::shared_ptr<const Source> numbers(std::function<void(std::int64_t)> seen = {}) {
  return function_source(kSamples, {{"x", {DType::f32, {}}}, {"label", {DType::i32, {}}}},
                         [seen = std::move(seen)](std::int64_t i, SampleMemory to) {
                           if (seen) seen(i);
                           const auto x = static_cast<float>(i);
                           const auto label = static_cast<std::int32_t>(2 * i);
                           std::memcpy(to[0].data(), &x, sizeof x);
                           std::memcpy(to[1].data(), &label, sizeof label);
                         });
}

inline std::vector<float> samples_of(const SampleOrder& order, std::int64_t epoch, std::int64_t from = 0) {
  std::vector<float> all;
  for (std::int64_t b = from; b < order.batches(); ++b)
    for (std::int64_t sample : order.batch(epoch, b).samples) all.push_back(static_cast<float>(sample));
  return all;
}

class StreamLoaderTest : public Guest {
 protected:
  static constexpr std::int64_t kMost = 4096;  // elements of a list

  void SetUp() override {
    Guest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    ASSERT_EQ(cudaMalloc(&lists_, 2 * kMost * sizeof(float)), cudaSuccess);
    xs_ = static_cast<float*>(lists_);
    labels_ = static_cast<int*>(lists_) + kMost;
    count_ = sums_[0];
  }
  void TearDown() override {
    if (lists_) {
      EXPECT_EQ(cudaFree(lists_), cudaSuccess);
    }
    Guest::TearDown();
#ifdef GRAPHSINK_EMULATED
    emu::set_seed(seed_);
#endif
  }

  // The step of somebody else: appends the batch to lists in device memory.
  void step(SinkCache& sinks, const StreamLoader& loader, std::int64_t samples) {
    const float* x = loader.data<float>("x");
    const int* label = loader.data<std::int32_t>("label");
    sinks.run(stream_, Key{samples},
              [&](cudaStream_t s) { guest_append(s, x, label, static_cast<int>(samples), xs_, labels_, count_); });
  }
  void run_epoch(SinkCache& sinks, StreamLoader& loader) {
    while (const std::int64_t samples = loader.next()) step(sinks, loader, samples);
  }
  // The samples that the steps saw; empties the lists. Fails where a label is not that of its sample.
  std::vector<float> seen() {
    std::vector<float> xs(static_cast<std::size_t>(read(count_)));
    std::vector<int> labels(xs.size());
    EXPECT_EQ(cudaMemcpy(xs.data(), xs_, xs.size() * sizeof(float), cudaMemcpyDeviceToHost), cudaSuccess);
    EXPECT_EQ(cudaMemcpy(labels.data(), labels_, xs.size() * sizeof(int), cudaMemcpyDeviceToHost), cudaSuccess);
    for (std::size_t i = 0; i < xs.size(); ++i) EXPECT_EQ(labels[i], 2 * static_cast<int>(xs[i]));
    EXPECT_EQ(cudaMemset(count_, 0, sizeof(int)), cudaSuccess);
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    return xs;
  }

#ifdef GRAPHSINK_EMULATED
  const std::uint64_t seed_ = emu::seed();
#endif
  void* lists_ = nullptr;
  float* xs_ = nullptr;
  int *labels_ = nullptr, *count_ = nullptr;
};

}  // namespace graphsink::testing
