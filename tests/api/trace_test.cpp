// NVTX: the ranges that a profiler sees. The test replaces the profiler, through NVTX's own injection interface.
#include <gtest/gtest.h>

#include "graphsink/graphsink.h"

#if __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>

#include <map>
#include <mutex>
#include <string>

namespace {

std::mutex mutex;
std::map<std::string, int> ranges;
std::map<std::string, int> domains;
int open_ranges = 0;

nvtxDomainHandle_t NVTX_API create_domain(const char* name) {
  std::lock_guard lock(mutex);
  ++domains[name];
  static int handle;
  return reinterpret_cast<nvtxDomainHandle_t>(&handle);
}
int NVTX_API push(nvtxDomainHandle_t, const nvtxEventAttributes_t* event) {
  std::lock_guard lock(mutex);
  ++ranges[event->message.ascii];
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
  *table[NVTX_CBID_CORE2_DomainRangePushEx] = reinterpret_cast<NvtxFunctionPointer>(push);
  *table[NVTX_CBID_CORE2_DomainRangePop] = reinterpret_cast<NvtxFunctionPointer>(pop);
  return 1;
}

// This must be set before the first range, because NVTX looks for it then.
const bool is_attached = (InitializeInjectionNvtx2_fnptr = attach, true);

}  // namespace

namespace graphsink {
namespace {

TEST(Trace, PlanRecordLaunchAndInteractiveOpsAreRanges) {
  ASSERT_TRUE(is_attached);
  ranges.clear();  // of earlier tests in this process
  Graph g;
  Value x = g.feed("x", f32, {4});
  g.record("s", sum(relu(x)));
  Program p = compile(g);
  p.write(x, std::vector<float>{1, 2, 3, 4});
  auto count = [](const char* name) {
    std::lock_guard lock(mutex);
    return ranges[name];
  };
  EXPECT_EQ(count("plan"), 1);
  p.run(interactive);
  EXPECT_EQ(count("relu"), 1);
  p.run(sink);  // captures the step, which issues each op once
  EXPECT_EQ(count("capture"), 1);
  EXPECT_EQ(count("relu"), 2);
  EXPECT_EQ(count("launch"), 1);
  p.run(sink);
  EXPECT_EQ(count("relu"), 2);
  EXPECT_EQ(count("launch"), 2);
  EXPECT_EQ(domains["graphsink"], 1);
  EXPECT_EQ(open_ranges, 0);
}

}  // namespace
}  // namespace graphsink
#else
TEST(Trace, PlanRecordLaunchAndInteractiveOpsAreRanges) {
  GTEST_SKIP() << "no NVTX headers: ranges compile to nothing";
}
#endif
