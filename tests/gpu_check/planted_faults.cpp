// Tests that fail in every way in which a test can fail on a GPU. The rehearsal of profiling/gpu_check.sh puts this
// program into the middle of a plan, and checks the outcome that the runner gives to each test.
#include <cuda_runtime.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>

#include "gpu_check/planted_trap.h"

namespace {

bool is_a_capture_open = false;

cudaError_t use_the_device() {
  void* memory = nullptr;
  cudaError_t code = cudaMalloc(&memory, 256);
  if (code == cudaSuccess) code = cudaFree(memory);
  if (code == cudaSuccess) code = cudaDeviceSynchronize();
  return code;
}
void expect_working_device() { EXPECT_STREQ("cudaSuccess", cudaGetErrorName(use_the_device())); }

TEST(PlantedCuda, A_Passes) { expect_working_device(); }
TEST(PlantedCuda, B_Crashes) { std::raise(SIGSEGV); }
TEST(PlantedCuda, C_PassesBehindTheCrash) { expect_working_device(); }
TEST(PlantedCuda, D_Hangs) {
  for (;;) pause();
}
TEST(PlantedCuda, E_PassesBehindTheHang) { expect_working_device(); }
TEST(PlantedCuda, F_LosesTheDevice) {
  graphsink::testing::launch_trap();
  expect_working_device();
}
TEST(PlantedCuda, G_PassesInAnotherProcess) { expect_working_device(); }
TEST(PlantedCuda, H_LeavesACaptureOpen) {
  is_a_capture_open = true;
  FAIL() << "Failure that is to be seen in the summary";
}
TEST(PlantedCuda, I_IsTheVictimOfTheOneBefore) { EXPECT_FALSE(is_a_capture_open); }
TEST(PlantedCuda, J_IsSkipped) { GTEST_SKIP() << "on purpose"; }
TEST(PlantedCuda, K_Passes) { expect_working_device(); }

}  // namespace
