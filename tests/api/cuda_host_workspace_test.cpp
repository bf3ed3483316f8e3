// The scratch memory of an op that runs on the host of a CUDA program is host memory.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cstring>
#include <mutex>
#include <set>

#include "program_fixture.h"

namespace graphsink::cuda_host_workspace_test {
namespace {

using testing::kModes;

constexpr std::size_t kBytes = 100'000;

// The addresses of the workspaces that the bodies of a graph received, and how many of these workspaces were
// overwritten by other ops.
struct Seen {
  std::mutex mutex;
  std::set<void*> addresses;
  int overwritten = 0;
};

struct Scratch {
  std::shared_ptr<Seen> seen;
  unsigned char mark = 0;  // every op of a test has a different mark
};

// Computes x + 1. It fills its workspace first, and checks at the end that the workspace is unchanged.
void plus_one_with_scratch(const CpuArgs& a) {
  const auto& [seen, mark] = a.attrs<Scratch>();
  auto* workspace = static_cast<unsigned char*>(a.workspace());
  std::memset(workspace, mark, a.workspace_bytes());
  testing::plus_one(a);
  std::lock_guard lock(seen->mutex);
  seen->addresses.insert(workspace);
  for (std::size_t i = 0; i < a.workspace_bytes(); ++i) seen->overwritten += workspace[i] != mark;
}
const OpDef scratch_op{
    .name = "plus_one_with_scratch",
    .infer = testing::infer_like_first,
    .prepare =
        [](const PrepareArgs&) {
          return Prepared{nullptr, kBytes};
        },
    .bodies = {plus_one_with_scratch},
};

// Three independent branches, each with an op on the host, and a loop that the host drives.
struct Branches {
  Graph g;
  std::shared_ptr<Seen> seen = std::make_shared<Seen>();
  Value x = g.input("x", f32, {64});
  Branches() {
    Value sum_of_all = x * 0.0;
    for (unsigned char i = 1; i <= 3; ++i)
      sum_of_all = sum_of_all + tanh(emit(scratch_op, {exp(x * (0.1 * i))}, Scratch{seen, i})[0]);
    auto [y] = while_(
        {x * 0.5}, [](Value s) { return sum(s) < 200.0; },
        [&](Value s) {
          return emit(scratch_op, {s}, Scratch{seen, 4})[0] * 1.5;
        });
    g.output("y", sum_of_all + y);
  }
};

class CudaHostWorkspace : public ::testing::Test {
 protected:
  void SetUp() override {
    if (cuda_device_count() == 0) GTEST_SKIP() << "no CUDA device answers";
  }
};

TEST_F(CudaHostWorkspace, IsHostMemoryInEveryMode) {
  std::vector<Mode> modes(std::begin(kModes), std::end(kModes));
  modes.insert(modes.end(), {split_serial, split_parallel, split_sink});
  for (Mode mode : modes) {
    Branches branches;
    Program p = compile(branches.g, {.target = cuda(0)});
    p.write(branches.x, std::vector<float>(64, 0.25f));
    p.run(mode, {.steps = 3});
    Tensor y = p.output("y");
    EXPECT_EQ(branches.seen->overwritten, 0) << to_string(mode);
    ASSERT_FALSE(branches.seen->addresses.empty());
    for (void* address : branches.seen->addresses) {
      cudaPointerAttributes attributes;
      ASSERT_EQ(cudaPointerGetAttributes(&attributes, address), cudaSuccess);
      EXPECT_EQ(attributes.type, cudaMemoryTypeHost) << to_string(mode);
    }
  }
}

// Ops on the host and ops on the device that share a stream have separate workspaces.
TEST_F(CudaHostWorkspace, IsHostMemoryWhereItsStreamHasAWorkspaceOnTheDeviceToo) {
  Graph g;
  auto seen = std::make_shared<Seen>();
  Value x = g.input("x", f32, {2, 3, 8, 8}), w = g.input("w", f32, {3, 3, 3, 3});
  Value on_host = emit(scratch_op, {conv2d(x, w)}, Scratch{seen, 1})[0];
  g.output("y", conv2d(on_host, w));
  Program p = compile(g, {.target = cuda(0)});
  ASSERT_GT(p.memory().workspaces, 0u);
  p.write(x, Tensor::uniform({2, 3, 8, 8}, 1));
  p.write(w, Tensor::uniform({3, 3, 3, 3}, 2));
  p.run(interactive, {.steps = 2});
  p.sync();
  EXPECT_EQ(seen->overwritten, 0);
  ASSERT_FALSE(seen->addresses.empty());
  for (void* address : seen->addresses) {
    cudaPointerAttributes attributes;
    ASSERT_EQ(cudaPointerGetAttributes(&attributes, address), cudaSuccess);
    EXPECT_EQ(attributes.type, cudaMemoryTypeHost);
  }
}

TEST_F(CudaHostWorkspace, IsCountedWithTheHostArena) {
  Branches branches;
  Program p = compile(branches.g, {.target = cuda(0)});
  MemoryReport before = p.memory();
  EXPECT_GE(before.host_arena, kBytes);
  std::string json = p.explain_json();
  EXPECT_NE(json.find("\"host_arena_bytes\": " + std::to_string(before.host_arena)), std::string::npos) << json;
  EXPECT_LT(before.workspaces, kBytes) << "no op of this graph has a workspace on the device";
  p.write(branches.x, std::vector<float>(64, 0.25f));
  p.run();
  p.sync();
  EXPECT_EQ(p.memory().host_bytes(), p.counters().host_bytes) << to_string(p.memory());
  EXPECT_EQ(p.memory().device_bytes(), p.counters().device_bytes) << to_string(p.memory());
}

// The case in which the bug was found: an op with both bodies and the placement on_cpu.
TEST_F(CudaHostWorkspace, ServesAConvolutionOnTheHost) {
  auto result_on = [](DeviceId device, Placement placement) {
    Graph g;
    Value x = g.input("x", f32, {2, 3, 8, 8}), w = g.input("w", f32, {4, 3, 3, 3});
    g.output("y", conv2d(x, w, {}, placement));
    Program p = compile(g, {.target = device});
    p.write(x, Tensor::uniform({2, 3, 8, 8}, 1));
    p.write(w, Tensor::uniform({4, 3, 3, 3}, 2));
    p.run(sink);
    p.run(sink);
    return p.output("y");
  };
  Tensor on_host = result_on(cuda(0), on_cpu), on_cpu_alone = result_on(cpu(), {});
  EXPECT_EQ(std::memcmp(on_host.data(), on_cpu_alone.data(), on_cpu_alone.bytes()), 0);
}

}  // namespace
}  // namespace graphsink::cuda_host_workspace_test
