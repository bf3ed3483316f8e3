// Gradients of the last layers are exchanged while those of the layers before are computed: what the software device
// has run, and what it ran beside a collective. The stand-in for NCCL waits for as much of it as there is.
#if defined(GRAPHSINK_EMULATED) && __has_include(<cupti.h>)
#include <cupti.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "graphsink/graphsink.h"
#include "graphsink/ranks.h"
#include "rank_world.h"

namespace graphsink::testing {
namespace overlap_test {

constexpr int kLayers = 5;

// A kernel, and when it began and ended.
struct Ran {
  std::string name;
  std::uint64_t begin = 0, end = 0;

  bool is_exchange() const { return name == "ncclAllReduce"; }
  bool is_beside(const Ran& other) const { return other.begin <= begin && end <= other.end && &other != this; }
};

std::vector<Ran>& recorded() {
  static std::vector<Ran> all;
  return all;
}

void give_buffer(std::uint8_t** buffer, std::size_t* size, std::size_t* most) {
  static std::vector<std::uint8_t> memory(std::size_t{1} << 20);
  *buffer = memory.data();
  *size = memory.size();
  *most = 0;
}

void take_buffer(CUcontext, std::uint32_t, std::uint8_t* buffer, std::size_t, std::size_t valid) {
  CUpti_Activity* record = nullptr;
  while (cuptiActivityGetNextRecord(buffer, valid, &record) == CUPTI_SUCCESS) {
    if (record->kind != CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) continue;
    const auto& kernel = *reinterpret_cast<const CUpti_ActivityKernel10*>(record);
    recorded().push_back({kernel.name, kernel.start, kernel.end});
  }
}

// A training of several layers, each of which has a bucket of its own.
struct Training {
  Training() {
    Graph g;
    input = g.input("x", f32, Shape{4, 16});
    Value y = input;
    std::vector<Arg> wanted;
    for (int layer = 0; layer < kLayers; ++layer) {
      const std::string number = std::to_string(layer);
      parameters.emplace_back("w" + number, Tensor::kaiming({16, 16}, static_cast<std::uint64_t>(layer)));
      parameters.emplace_back("b" + number, Tensor::full(f32, {16}, 0.1));
      y = tanh(add(matmul(y, parameters[parameters.size() - 2]), parameters.back()));
    }
    for (const Variable& parameter : parameters) wanted.emplace_back(parameter);
    const std::vector<Value> gradients = grad(sum(mul(y, y)), wanted);
    apply(SgdOptions{.lr = 0.01}, parameters, average(gradients, world_of_nccl(), {.bucket_bytes = 1100}));
    program.emplace(compile(g, {.target = cuda(0)}));
    program->write(input, Tensor::normal({4, 16}, static_cast<std::uint64_t>(world_of_nccl().rank())));
  }

  // The kernels of these steps, in the order in which they began.
  std::vector<Ran> run(Mode mode, int steps) {
    recorded().clear();
    EXPECT_EQ(cuptiActivityRegisterCallbacks(give_buffer, take_buffer), CUPTI_SUCCESS);
    EXPECT_EQ(cuptiActivityEnable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL), CUPTI_SUCCESS);
    for (int i = 0; i < steps; ++i) program->run(mode);
    program->sync();
    EXPECT_EQ(cuptiActivityFlushAll(0), CUPTI_SUCCESS);
    EXPECT_EQ(cuptiActivityDisable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL), CUPTI_SUCCESS);
    std::vector<Ran> result = recorded();
    std::sort(result.begin(), result.end(), [](const Ran& a, const Ran& b) { return a.begin < b.begin; });
    return result;
  }
  std::string bits() const {
    std::string all;
    for (const Variable& parameter : parameters) {
      const Tensor value = parameter.read();
      all.append(reinterpret_cast<const char*>(value.data()), value.bytes());
    }
    return all;
  }

  std::vector<Variable> parameters;
  Value input;
  std::optional<Program> program;
};

std::ptrdiff_t beside(const std::vector<Ran>& all, const Ran& exchange, std::string_view name = "") {
  return std::count_if(all.begin(), all.end(), [&](const Ran& each) {
    return each.is_beside(exchange) && !each.is_exchange() && (name.empty() || each.name == name);
  });
}

class Overlap : public ::testing::Test {
 protected:
  void SetUp() override {
    if (world_of_nccl().size() == 1) GTEST_SKIP() << "one rank exchanges nothing";
  }
  void TearDown() override { unsetenv("GS_NCCL_BESIDE"); }
};

TEST_F(Overlap, ThePlanHasTheExchangesOnAStreamOfTheirOwn) {
  Training training;
  const std::string text = training.program->explain();
  EXPECT_TRUE(has(text, std::to_string(kLayers) + " collectives on the device: ")) << text;
  EXPECT_TRUE(has(text, " can run beside others, all_reduce #")) << text;
}

TEST_F(Overlap, GradientsAreComputedWhileOthersAreExchanged) {
  constexpr int kSteps = 6;
  Training training;
  for (int i = 0; i < 3; ++i) training.program->run(sink);
  setenv("GS_NCCL_BESIDE", "1000", 1);
  const std::vector<Ran> all = training.run(sink, kSteps);
  unsetenv("GS_NCCL_BESIDE");
  std::vector<Ran> exchanges;
  std::copy_if(all.begin(), all.end(), std::back_inserter(exchanges),
               [](const Ran& each) { return each.is_exchange(); });
  ASSERT_EQ(exchanges.size(), static_cast<std::size_t>(kSteps * kLayers));
  // The first one of each step lets all run that is ready or becomes so, and is not behind it.
  std::ptrdiff_t products = 0;
  for (int step = 0; step < kSteps; ++step)
    products += beside(all, exchanges[static_cast<std::size_t>(step * kLayers)], "library_kernel");
  EXPECT_GE(products, kSteps) << "products of the layers before";
  for (std::size_t i = 1; i < exchanges.size(); ++i)
    EXPECT_LE(exchanges[i - 1].end, exchanges[i].begin) << "collectives run one after the other";
  EXPECT_EQ(training.program->counters().fallbacks, 0u);
}

// One thing at a time, as the software device runs kernels that do not wait.
TEST_F(Overlap, NothingIsBesideAnExchangeThatDoesNotWait) {
  Training training;
  const std::vector<Ran> all = training.run(sink, 4);
  for (const Ran& each : all)
    if (each.is_exchange()) {
      EXPECT_EQ(beside(all, each), 0);
    }
}

TEST_F(Overlap, ChangesNoBits) {
  Training overlapped, serial;
  setenv("GS_NCCL_BESIDE", "1000", 1);
  overlapped.run(sink, 5);
  unsetenv("GS_NCCL_BESIDE");
  serial.run(interactive_serial, 5);
  EXPECT_EQ(overlapped.bits(), serial.bits());
}

}  // namespace overlap_test
}  // namespace graphsink::testing
#endif
