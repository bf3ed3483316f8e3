// Memory of the CUDA device: blocks, arenas, uploads.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "cuda_device_fixture.h"

namespace graphsink::testing::cuda_memory_test {
namespace {

class CudaMemoryTest : public CudaDeviceTest {};

TEST_F(CudaMemoryTest, AllocatedMemoryIsZeroAndAligned) {
  for (std::size_t bytes : {std::size_t{0}, std::size_t{1}, std::size_t{1000}, std::size_t{70000}}) {
    Memory memory = device_->allocate(bytes);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(memory.get()) % 256, 0u);
    std::vector<char> seen(bytes, 'x');
    device_->copy(*stream_, seen.data(), memory.get(), bytes);
    device_->wait(*stream_);
    EXPECT_EQ(std::count(seen.begin(), seen.end(), '\0'), static_cast<std::ptrdiff_t>(bytes));
  }
  Memory host = device_->allocate_host(100);
  EXPECT_EQ(static_cast<const char*>(host.get())[99], 0);
}

TEST_F(CudaMemoryTest, MemoryMayOutliveItsDevice) {
  Memory memory = device_->allocate(64), host = device_->allocate_host(64);
  std::unique_ptr<Arena> arena = device_->reserve();
  arena->grow(100);
  stream_.reset();
  device_.reset();
  memory.reset();
  host.reset();
}

TEST_F(CudaMemoryTest, UploadsAreDoneBeforeTheirDeviceIsGone) {
  Memory memory = device_->allocate(sizeof(int));
  int value = 7, seen = 0;
  device_->upload(*stream_, memory.get(), &value, sizeof value);
  stream_.reset();
  device_.reset();
  // The legacy stream does not wait for ours.
  ASSERT_EQ(cudaMemcpy(&seen, memory.get(), sizeof seen, cudaMemcpyDefault), cudaSuccess);
  EXPECT_EQ(seen, 7);
}

TEST_F(CudaMemoryTest, OutOfMemorySaysHowMuchIsThereAndWhatToDo) {
  for (auto action : {std::function<void()>([&] { device_->allocate(std::size_t{1} << 60); }),
                      std::function<void()>([&] { device_->allocate(~std::size_t{0}); }),
                      std::function<void()>([&] { device_->reserve()->grow(std::size_t{1} << 60); })}) {
    std::string message = message_of(action);
    EXPECT_TRUE(contains(message, "out of memory")) << message;
    EXPECT_TRUE(contains(message, " MiB are free") || contains(message, " GiB are free")) << message;
    EXPECT_TRUE(contains(message, "remedy: use smaller shapes")) << message;
    EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
  }
  expect_usable();
}

TEST_F(CudaMemoryTest, HeldBytesAreThoseTheDeviceMisses) {
  [[maybe_unused]] auto missing = [] {
    std::size_t free = 0, total = 0;
    EXPECT_EQ(cudaMemGetInfo(&free, &total), cudaSuccess);
    return total - free;
  };
  std::size_t held_before = device_->counters().device_bytes, host_before = device_->counters().host_bytes;
  [[maybe_unused]] std::size_t missing_before = missing();
  auto expect_held = [&](std::size_t bytes) {
    EXPECT_EQ(device_->counters().device_bytes - held_before, bytes);
#ifdef GRAPHSINK_EMULATED  // a GPU gives memory out in blocks of 2 MiB, and to other processes, too
    EXPECT_EQ(missing() - missing_before, bytes);
#endif
  };
  {
    Memory one = device_->allocate(1), many = device_->allocate(100'000), host = device_->allocate_host(1000);
    expect_held(256 + 100'096);
    EXPECT_EQ(device_->counters().host_bytes - host_before, 1024u);
    std::unique_ptr<Arena> arena = device_->reserve();
    std::size_t planned = arena->size_for(1000);
    arena->grow(1000);
    EXPECT_EQ(arena->size(), planned);
    EXPECT_EQ(arena->size_for(1), planned);
    expect_held(256 + 100'096 + planned);
  }
  expect_held(0);
  EXPECT_EQ(device_->counters().host_bytes, host_before);
}

TEST_F(CudaMemoryTest, ArenaGrowsInPlaceAndKeepsItsData) {
  std::unique_ptr<Arena> arena = device_->reserve();
  EXPECT_EQ(arena->size(), 0u);
  arena->grow(1000);
  std::byte* base = arena->base();
  std::size_t first = arena->size();
  EXPECT_GE(first, 1000u);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(base) % 256, 0u);
  auto* x = reinterpret_cast<float*>(base);
  set(x, 7.0f);
  arena->grow(first);
  EXPECT_EQ(arena->size(), first);
  arena->grow(first + 1);
  EXPECT_GT(arena->size(), first);
  EXPECT_EQ(arena->base(), base);
  EXPECT_EQ(get(x), 7.0f);
  auto* last = reinterpret_cast<float*>(base + arena->size() - 256);
  set(last, 8.0f);
  call(*stream_, affine, {last}, Affine{2, 0});
  EXPECT_EQ(get(last), 16.0f);
}

TEST_F(CudaMemoryTest, UploadsMayReuseTheirSourceAtOnce) {
  constexpr std::size_t kCount = 3'000'000;  // several slots
  Memory memory = device_->allocate(kCount * sizeof(int));
  std::vector<int> source(kCount), seen(kCount);
  for (std::size_t i = 0; i < kCount; ++i) source[i] = static_cast<int>(i);
  device_->upload(*stream_, memory.get(), source.data(), kCount * sizeof(int));
  std::fill(source.begin(), source.end(), -1);
  device_->copy(*stream_, seen.data(), memory.get(), kCount * sizeof(int));
  device_->wait(*stream_);
  for (std::size_t i = 0; i < kCount; ++i) ASSERT_EQ(seen[i], static_cast<int>(i));

  auto* small = static_cast<int*>(memory.get());
  for (int i = 0; i < 20; ++i) set(small + i, 1000 + i);
  for (int i = 0; i < 20; ++i) EXPECT_EQ(get(small + i), 1000 + i);
}

TEST_F(CudaMemoryTest, MemoryMayBeMadeWhileCapturing) {
  float* x = make(1.0f);
  auto captured = capture([&](Stream& s) {
    call(s, affine, {x}, Affine{1, 1});
    Memory dropped = device_->allocate(64);
    Memory pinned = device_->allocate_host(64);
    device_->reserve()->grow(1);
    call(s, affine, {x}, Affine{1, 1});
  });
  device_->launch(*stream_, *captured);
  EXPECT_EQ(get(x), 3.0f);
}

}  // namespace
}  // namespace graphsink::testing::cuda_memory_test
