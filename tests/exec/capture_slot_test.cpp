// Tests CaptureSlot with work that belongs to no Plan.
#include "exec/capture/capture_slot.h"

#include <gtest/gtest.h>

#include <stdexcept>

#include "program_fixture.h"

#ifdef GRAPHSINK_EMULATED
#include <cuda_runtime_api.h>

#include "emulator.h"
#endif

namespace graphsink::capture_slot_test {
namespace {

using testing::OnDevice;

// A slot that captures a copy from one buffer to another.
struct Copying {
  explicit Copying(DeviceId id) : device(open_device(id)), stream(device->make_stream()) {}

  bool capture() {
    Stream* const streams[] = {stream.get()};
    return slot.capture(*device, streams, [&](Streams given) {
      ++issued;
      device->copy(*given[0], to.get(), from.get(), sizeof(float));
      if (fails) throw std::runtime_error("no such file");
    });
  }
  // Launches the copy with this value in the source, and returns the result.
  float launch(float value) {
    float result = 0;
    device->upload(*stream, from.get(), &value, sizeof value);
    slot.launch(*device, *stream);
    device->copy(*stream, &result, to.get(), sizeof result);
    device->wait(*stream);
    return result;
  }

  std::shared_ptr<Device> device;
  std::unique_ptr<Stream> stream;
  Memory from = device->allocate(sizeof(float)), to = device->allocate(sizeof(float));
  CaptureSlot slot;
  int issued = 0;
  bool fails = false;
};

TEST_P(OnDevice, ASlotCapturesAFunctionOnceAndLaunchesItOften) {
  Copying copying(GetParam());
  EXPECT_FALSE(copying.slot.is_captured());
  ASSERT_TRUE(copying.capture());
  EXPECT_TRUE(copying.slot.is_captured());
  EXPECT_FALSE(copying.slot.failure());
  EXPECT_EQ(copying.launch(1.5f), 1.5f);
  EXPECT_EQ(copying.launch(2.5f), 2.5f);
  EXPECT_EQ(copying.issued, 1);
}

TEST_P(OnDevice, WhatTheFunctionThrowsPassesThroughASlot) {
  Copying copying(GetParam());
  copying.fails = true;
  for (int i = 0; i < 2 * CaptureSlot::kMaxFailures; ++i) EXPECT_THROW(copying.capture(), std::runtime_error);
  EXPECT_FALSE(copying.slot.is_captured());
  EXPECT_FALSE(copying.slot.is_refused()) << "the device has refused nothing";
  copying.fails = false;
  ASSERT_TRUE(copying.capture()) << "the stream is as it was";
  EXPECT_EQ(copying.launch(3.0f), 3.0f);
}

#ifdef GRAPHSINK_EMULATED
class CaptureFails : public ::testing::Test {
 protected:
  void TearDown() override { emu::clear_faults(); }
  Copying copying_{cuda(0)};
};

TEST_F(CaptureFails, OnceAndSucceedsAtTheNextAttempt) {
  emu::fail("cudaStreamEndCapture", 1, cudaErrorStreamCaptureInvalidated);
  EXPECT_FALSE(copying_.capture());
  ASSERT_TRUE(copying_.slot.failure());
  EXPECT_FALSE(copying_.slot.is_refused());
  EXPECT_TRUE(copying_.capture());
  EXPECT_FALSE(copying_.slot.failure()) << "of the last attempt";
  EXPECT_EQ(copying_.launch(4.0f), 4.0f);
}

TEST_F(CaptureFails, AlwaysAndIsRefusedWithTheReason) {
  emu::fail("cudaStreamEndCapture", 1, cudaErrorStreamCaptureInvalidated, true);
  for (int i = 0; i < CaptureSlot::kMaxFailures; ++i) {
    EXPECT_FALSE(copying_.slot.is_refused());
    EXPECT_FALSE(copying_.capture());
  }
  EXPECT_TRUE(copying_.slot.is_refused());
  ASSERT_TRUE(copying_.slot.failure());
  EXPECT_NE(copying_.slot.failure()->problem().find("cudaStreamEndCapture"), std::string::npos);
  emu::clear_faults();
  copying_.slot.forget_failures();
  EXPECT_FALSE(copying_.slot.is_refused());
  EXPECT_TRUE(copying_.capture());
}

TEST_F(CaptureFails, OnlyAtTheLaunchWhichDropsTheGraph) {
  const std::size_t execs = emu::live_objects().execs;
  for (int i = 0; i < CaptureSlot::kMaxFailures; ++i) {
    ASSERT_TRUE(copying_.capture());
    copying_.slot.drop(CaptureFailed("capture", Where(), "it cannot be launched", ""));
    EXPECT_FALSE(copying_.slot.is_captured());
    EXPECT_EQ(copying_.slot.failure()->problem(), "it cannot be launched");
  }
  EXPECT_TRUE(copying_.slot.is_refused());
  EXPECT_EQ(emu::live_objects().execs, execs);
}
#endif

}  // namespace
}  // namespace graphsink::capture_slot_test
