// Addresses that work here by chance, as all memory is the host's, and on a GPU do not: each makes the kernel fail.
#include <cstring>
#include <memory>

#include "test_support.h"

namespace emu_test::address_test {
namespace {

class AddressTest : public EmulatorTest {
 protected:
  void TearDown() override {
    emu::reset();
    for (const cudaStream_t stream : streams_) cudaStreamDestroy(stream);
    cudaSetDevice(0);
    emu::set_peer_access(true);
    emu::set_device_count(1);
    EmulatorTest::TearDown();
  }
  void expect_failure(cudaError_t launched, const char* text, cudaStream_t stream = nullptr) {
    ASSERT_EQ(cudaSuccess, launched);
    EXPECT_CUDA(cudaErrorIllegalAddress, cudaStreamSynchronize(stream == nullptr ? stream_ : stream));
    EXPECT_NE(std::string::npos, emu::last_failure().find(text)) << emu::last_failure();
    emu::reset();
  }
  cudaStream_t stream_of(int device) {
    EXPECT_EQ(cudaSuccess, cudaSetDevice(device));
    streams_.emplace_back();
    EXPECT_EQ(cudaSuccess, cudaStreamCreateWithFlags(&streams_.back(), cudaStreamNonBlocking));
    return streams_.back();
  }

 private:
  std::vector<cudaStream_t> streams_;
};

constexpr const char* kPageable = "neither pinned nor mapped";
constexpr const char* kFreed = "not allocated";
constexpr const char* kForeign = "no access";

TEST_F(AddressTest, HostMemoryThatIsNeitherPinnedNorMappedFails) {
  const auto heap = std::make_unique<int>(1);
  int stack = 1;
  int* target = device<int>(1);
  for (const unsigned seed : {0u, 1u, 2u}) {
    emu::set_seed(seed);
    for (int* source : {heap.get(), &stack}) {
      expect_failure(launch_set(stream_, source, 2), kPageable);
      expect_failure(launch_add(stream_, target, source, 2), kPageable);
      EXPECT_EQ(1, *source);
    }
  }
}

#if defined(__GNUC__) && !defined(__clang__)  // others cannot tell the members of a structure from what is between them
TEST_F(AddressTest, AStructureHidesNone) {
  int pageable = 1;
  int *target = device<int>(1), *source = device(std::vector<int>{4}), *freed = nullptr;
  ASSERT_OK(cudaMalloc(&freed, sizeof(int)));
  ASSERT_OK(cudaFree(freed));
  Addition addition;
  std::memset(static_cast<void*>(&addition), 0x7f, sizeof addition);  // what is between members means nothing
  addition.target = target;
  addition.source = source;
  addition.value = 3;
  ASSERT_OK(launch_addition(stream_, addition));
  ASSERT_OK(cudaStreamSynchronize(stream_));
  EXPECT_EQ(7, host(target, 1)[0]);
  addition.source = &pageable;
  expect_failure(launch_addition(stream_, addition), kPageable);
  addition.source = freed;
  expect_failure(launch_addition(stream_, addition), kFreed);
}
#endif

TEST_F(AddressTest, PinnedMemoryAndTheEndOfAnArrayAreAllRight) {
  int *pinned = nullptr, *target = device<int>(1);
  ASSERT_OK(cudaMallocHost(reinterpret_cast<void**>(&pinned), sizeof(int)));
  *pinned = 5;
  ASSERT_OK(launch_add(stream_, target, pinned, 1));
  ASSERT_OK(launch_set(stream_, pinned, 8));
  ASSERT_OK(cudaStreamSynchronize(stream_));
  EXPECT_EQ(6, host(target, 1)[0]);
  EXPECT_EQ(8, *pinned);
  ASSERT_OK(launch_ignore(stream_, target + 1));
  ASSERT_OK(cudaStreamSynchronize(stream_));
  ASSERT_OK(cudaFreeHost(pinned));
}

TEST_F(AddressTest, FreedMemoryFails) {
  int* freed = nullptr;
  ASSERT_OK(cudaMalloc(&freed, sizeof(int)));
  ASSERT_OK(cudaFree(freed));
  expect_failure(launch_set(stream_, freed, 2), kFreed);
  expect_failure(launch_ignore(stream_, freed), kFreed);
  emu::set_address_check(false);
  ASSERT_OK(launch_ignore(stream_, freed));
  ASSERT_OK(cudaStreamSynchronize(stream_)) << "it is not used";
  emu::set_address_check(true);
}

TEST_F(AddressTest, AnotherDevicesMemoryNeedsPeerAccess) {
  emu::set_device_count(2);
  emu::set_peer_access(false);  // forgets what was enabled
  emu::set_peer_access(true);
  int *target = device<int>(1), *source = device(std::vector<int>{4});  // of device 0
  const cudaStream_t stream = stream_of(1);
  expect_failure(launch_add(stream, target, source, 2), kForeign, stream);
  const Addition addition = {false, target, source, 2};
#if defined(__GNUC__) && !defined(__clang__)
  expect_failure(launch_addition(stream, addition), kForeign, stream);
#endif
  ASSERT_OK(cudaDeviceEnablePeerAccess(0, 0));
  ASSERT_OK(launch_addition(stream, addition));
  ASSERT_OK(cudaStreamSynchronize(stream));
  ASSERT_OK(cudaSetDevice(0));
  EXPECT_EQ(6, host(target, 1)[0]);
}

// The memory is filled with 0xFF when it is allocated, and with some seed work runs before the host writes.
TEST_F(AddressTest, PinnedMemoryThatTheHostHasNotWrittenYetShowsWithSomeSeed) {
  for (const bool by_copy : {false, true}) {
    int wrong = 0;
    for (const unsigned seed : {0u, 1u, 2u}) {
      emu::set_seed(seed);
      int *pinned = nullptr, *target = device<int>(1);
      ASSERT_OK(cudaMallocHost(reinterpret_cast<void**>(&pinned), sizeof(int)));
      if (by_copy) {
        ASSERT_OK(cudaMemcpyAsync(target, pinned, sizeof(int), cudaMemcpyHostToDevice, stream_));
      } else {
        ASSERT_OK(launch_add(stream_, target, pinned, 0));
      }
      *pinned = 7;  // too late
      ASSERT_OK(cudaStreamSynchronize(stream_));
      const int seen = host(target, 1)[0];
      EXPECT_TRUE(seen == 7 || seen == -1) << seen;
      wrong += seen == -1;
      ASSERT_OK(cudaFreeHost(pinned));
    }
    EXPECT_GT(wrong, 0);
  }
}

}  // namespace
}  // namespace emu_test::address_test
