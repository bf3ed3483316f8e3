// NVTX: the ranges that a profiler sees. The test replaces the profiler, through NVTX's own injection interface.
#include <gtest/gtest.h>

#include "graphsink/graphsink.h"
#ifdef GRAPHSINK_EMULATED
#include "emulator.h"
#endif

#if __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>

#include <map>
#include <mutex>
#include <set>
#include <string>

namespace {

std::mutex mutex;
std::map<std::string, int> ranges;  // by "category: name"
std::map<std::string, int> domains;
std::map<std::uint32_t, std::string> categories;
std::set<std::string> names;  // that were registered; handles point to them
int open_ranges = 0;

nvtxDomainHandle_t NVTX_API create_domain(const char* name) {
  std::lock_guard lock(mutex);
  ++domains[name];
  static int handle;
  return reinterpret_cast<nvtxDomainHandle_t>(&handle);
}
void NVTX_API name_category(nvtxDomainHandle_t, std::uint32_t category, const char* name) {
  std::lock_guard lock(mutex);
  categories[category] = name;
}
nvtxStringHandle_t NVTX_API register_string(nvtxDomainHandle_t, const char* text) {
  std::lock_guard lock(mutex);
  return reinterpret_cast<nvtxStringHandle_t>(const_cast<std::string*>(&*names.insert(text).first));
}
int NVTX_API push(nvtxDomainHandle_t, const nvtxEventAttributes_t* event) {
  std::lock_guard lock(mutex);
  EXPECT_EQ(event->messageType, NVTX_MESSAGE_TYPE_REGISTERED);
  ++ranges[categories[event->category] + ": " + *reinterpret_cast<const std::string*>(event->message.registered)];
  return open_ranges++;
}
int NVTX_API pop(nvtxDomainHandle_t) {
  std::lock_guard lock(mutex);
  return --open_ranges;
}

int NVTX_API attach(NvtxGetExportTableFunc_t get_table) {
  const auto* callbacks = static_cast<const NvtxExportTableCallbacks*>(get_table(NVTX_ETID_CALLBACKS));
  NvtxFunctionTable table = nullptr;
  unsigned size = 0;
  if (!callbacks || !callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &table, &size)) return 0;
  *table[NVTX_CBID_CORE2_DomainCreateA] = reinterpret_cast<NvtxFunctionPointer>(create_domain);
  *table[NVTX_CBID_CORE2_DomainNameCategoryA] = reinterpret_cast<NvtxFunctionPointer>(name_category);
  *table[NVTX_CBID_CORE2_DomainRegisterStringA] = reinterpret_cast<NvtxFunctionPointer>(register_string);
  *table[NVTX_CBID_CORE2_DomainRangePushEx] = reinterpret_cast<NvtxFunctionPointer>(push);
  *table[NVTX_CBID_CORE2_DomainRangePop] = reinterpret_cast<NvtxFunctionPointer>(pop);
  return 1;
}

// This must be set before the first range, because NVTX looks for it then.
const bool is_attached = (InitializeInjectionNvtx2_fnptr = attach, true);

}  // namespace

namespace graphsink::trace_test {
namespace {

int count(const char* name) {
  std::lock_guard lock(mutex);
  return ranges[name];
}

class Trace : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(is_attached);
    ranges.clear();  // of earlier tests in this process
  }
};

TEST_F(Trace, PlanRecordLaunchAndInteractiveOpsAreRanges) {
  Graph g;
  Value x = g.feed("x", f32, {4});
  g.record("s", sum(relu(x)));
  Program p = compile(g, {.tuning = {.fuse = false}});  // else both ops are one
  p.write(x, std::vector<float>{1, 2, 3, 4});
  EXPECT_EQ(count("copy: write"), 1);
  EXPECT_EQ(count("plan: plan"), 1);
  p.run(interactive);
  EXPECT_EQ(count("plan: bind"), 1);
  EXPECT_EQ(count("op: relu"), 1);
  p.run(sink);  // captures the step, which issues each op once
  EXPECT_EQ(count("capture: capture"), 1);
  EXPECT_EQ(count("op: relu"), 2);
  EXPECT_EQ(count("launch: launch"), 1);
  p.run(sink);
  EXPECT_EQ(count("op: relu"), 2);
  EXPECT_EQ(count("launch: launch"), 2);
  EXPECT_EQ(count("fallback: op by op"), 0);
  EXPECT_EQ(domains["graphsink"], 1);
  EXPECT_EQ(open_ranges, 0);
}

TEST_F(Trace, RangesOfOpsCarryTheirScopes) {
  Graph g;
  Value x = g.input("x", f32, {4}), y;
  {
    const Scope layer("layer3");
    y = tanh(x);
  }
  g.output("y", sum(y));
  Program p = compile(g, {.tuning = {.fuse = false}});
  p.write(x, std::vector<float>{1, 2, 3, 4});
  p.run(interactive);
  EXPECT_EQ(count("op: tanh in layer3"), 1);
  EXPECT_EQ(count("op: sum"), 1);
}

#ifdef GRAPHSINK_EMULATED
TEST_F(Trace, WhatShouldHaveBeenALaunchIsAFallback) {
  Graph g;
  Value x = g.input("x", f32, {4});
  g.output("y", x + 1.0);
  Program p = compile(g, {.target = cuda(0), .log = [](LogLevel, std::string_view) {}});
  p.write(x, std::vector<float>{1, 2, 3, 4});
  p.run(interactive_serial);
  emu::fail("cudaStreamEndCapture", 1, cudaErrorUnknown);
  p.run(sink);
  EXPECT_EQ(count("fallback: op by op"), 1);
  EXPECT_EQ(count("launch: launch"), 0);
  p.run(sink);
  EXPECT_EQ(count("fallback: op by op"), 1);
  EXPECT_EQ(count("launch: launch"), 1);
  (void)p.output("y");
  EXPECT_EQ(count("copy: read"), 1);
  EXPECT_EQ(open_ranges, 0);
  emu::reset();
}
#endif

}  // namespace
}  // namespace graphsink::trace_test
#else
TEST(Trace, PlanRecordLaunchAndInteractiveOpsAreRanges) {
  GTEST_SKIP() << "no NVTX headers: ranges compile to nothing";
}
#endif
