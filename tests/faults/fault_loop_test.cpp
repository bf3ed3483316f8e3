// Every CUDA call of every phase of a program's life fails, once, for ever, and as an error that ends the context. Each
// time the failure is named, nothing leaks, and where the device lives on, the next runs give the bits of an
// undisturbed one.
#include <gtest/gtest.h>

#include <iomanip>
#include <iostream>

#include "fault_harness.h"
#include "messages.h"
#include "phases.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/lsan_interface.h>
#endif

namespace graphsink::testing {

extern const char* const cuda_libraries;  // files, with colons between them

namespace fault_loop_test {
namespace {

// Of the calls of a phase every kStride-th fails, beginning with call 1 + first_call(); with GS_FULL=1 every call.
// Calls of one function that fails for ever are always all of them.
#if defined(__SANITIZE_ADDRESS__)
constexpr int kStride = 11;
#elif defined(__SANITIZE_THREAD__)
constexpr int kStride = 31;
#else
constexpr int kStride = 3;
#endif
constexpr int kStickyStride = 3;  // these cases end with the device and have less to say

int number_in_environment(const char* name) {
  const char* text = std::getenv(name);
  return text ? std::atoi(text) : 0;
}

int call_stride() { return number_in_environment("GS_FULL") ? 1 : kStride; }
// The environment's GS_FAULT_OFFSET, with which many runs together try every call.
int first_call() { return number_in_environment("GS_FAULT_OFFSET") % call_stride(); }

// These release or restore something in destructors, or give a better error message: they are logged and nothing is
// thrown. What else is not thrown belongs to a capture, without which the step runs op by op, to loading kernels
// ahead, or to an allocation that succeeds once what is kept for other shapes is given up.
const std::set<std::string> kOnlyLogged = {"cudaFree",
                                           "cudaFreeHost",
                                           "cudaStreamDestroy",
                                           "cudaEventDestroy",
                                           "cudaGraphDestroy",
                                           "cudaGraphExecDestroy",
                                           "cuMemRelease",
                                           "cublasLtMatmulPreferenceDestroy",
                                           "cudaThreadExchangeStreamCaptureMode",
                                           "cudaLogsRegisterCallback",
                                           "cudaLogsUnregisterCallback",
                                           "cudaSetDevice"};

// See sink_fault_test.cpp.
const std::set<std::string> kOnlyOfSinkCaches = {"cudaGraphCreate",
                                                 "cudaGraphEventRecordNodeGetEvent",
                                                 "cudaGraphEventWaitNodeGetEvent",
                                                 "cudaGraphExecUpdate",
                                                 "cudaGraphMemAllocNodeGetParams",
                                                 "cudaGraphMemFreeNodeGetParams",
                                                 "cudaGraphMemsetNodeGetParams"};
// See api/cuda_enqueue_test.cpp.
const std::set<std::string> kOnlyOfCallersGraphs = {"cudaUserObjectCreate", "cudaGraphRetainUserObject",
                                                    "cudaUserObjectRelease"};
// See fusion/cuda_fused_kernel_test.cpp.
const std::set<std::string> kOnlyOfCompiledKernels = {"cudaLibraryLoadData", "cudaLibraryGetKernel",
                                                      "cudaLibraryUnload"};

enum class Kind { once, function_for_ever, all_for_ever, sticky };
constexpr const char* kKindNames[] = {"once", "this function for ever", "all for ever", "sticky"};

struct Fault {
  Kind kind = Kind::once;
  std::string function;  // the first to fail; "" where it is to be found out
  int nth = 1;           // call of the phase; of the function if that alone fails
};

// The headers' template stands for cudaLaunchKernelExC.
bool names(const std::string& text, const std::string& function) {
  return contains(text, function == "cudaLaunchKernelExC" ? "cudaLaunchKernelEx" : function);
}

// What `action` throws; "" if nothing. All errors of the product are of one type.
template <class F>
std::string error_of(F&& action) {
  try {
    action();
  } catch (const Error& e) {
    return e.what();
  } catch (const std::exception& e) {
    ADD_FAILURE() << "not an Error: " << e.what();
    return e.what();
  }
  return "";
}

std::set<std::string> functions_of(const FaultCounts& counts) {
  std::set<std::string> result;
  for (const auto& [function, count] : counts) result.insert(function);
  return result;
}

// Those of `all` that are not in `some`.
std::string missing(const std::set<std::string>& all, const std::set<std::string>& some) {
  std::string names;
  for (const std::string& name : all)
    if (!some.contains(name)) names += name + " ";
  return names;
}

class FaultLoop : public ::testing::TestWithParam<NamedWorkload> {
 protected:
  FaultLoop() { emu::reset(); }
  ~FaultLoop() override {
    emu::set_device_count(1);
    cudaSetDevice(0);
  }

  void disturb(Workload (*make)());
  void disturb(Workload (*make)(), const Phase& phase, const Reference& reference);
  // The calls of a phase that nothing disturbs.
  FaultCounts calls_of(Workload (*make)(), const Phase& phase);
  // Returns the function that failed first, "" if the phase makes fewer calls.
  std::string run_case(Workload (*make)(), const Phase& phase, const Fault& fault, const Reference& reference);
  void check_outcome(const Phase& phase, const Fault& fault, const std::string& error, const std::string& log);
  void check_lost(Session& session);
  void go_on(Session& session, const Fault& fault, const Reference& reference);
  void restore_broken(Session& session, const Fault& fault, const Reference& reference);
  void clean_up(const emu::LiveObjects& before, const Leftover& leftover, bool keeps_memory);
  void print_table() const;

  LogText log_;
  Watchdog watchdog_{60};
  std::set<std::string> product_ = called_functions(cuda_libraries);
  FaultCounts called_, injected_;
  std::map<std::string, std::array<std::size_t, 4>> cases_;  // by workload and phase, then Kind
  std::size_t broken_commits_ = 0, kept_programs_ = 0;
};

void FaultLoop::check_outcome(const Phase& phase, const Fault& fault, const std::string& error,
                              const std::string& log) {
  EXPECT_TRUE(names(error + log, fault.function)) << "error: " << error << "\nlog: " << log;
  if (!error.empty() || phase.name == kDestroy || kOnlyLogged.contains(fault.function)) return;
  EXPECT_TRUE(contains(log, "its capture failed") || contains(log, "are loaded by its first use") ||
              contains(log, "memory is short") || contains(log, "is instantiated anew"))
      << log;
}

// After an error that ends the context every call that needs the device says so.
void FaultLoop::check_lost(Session& session) {
  if (!session.program) {
    EXPECT_TRUE(contains(error_of([&] { session.compile(); }), "cudaErrorIllegalAddress"));
    return;
  }
  for (int i = 0; i < 2; ++i) {
    std::string errors[] = {
        error_of([&] {
          session.feed(0);
          session.program->run(sink);
        }),
        error_of([&] { session.program->sync(); }), error_of([&] { (void)session.program->poll(); }),
        error_of([&] { (void)session.program->records("loss"); }), error_of([&] { (void)session.program->steps(); })};
    for (const std::string& error : errors) EXPECT_TRUE(contains(error, "cudaErrorIllegalAddress")) << error;
  }
}

// Variables that hold parts of two steps: every call says so, until they are written.
void FaultLoop::restore_broken(Session& session, const Fault& fault, const Reference& reference) {
  ++broken_commits_;
  bool names_another = fault.kind == Kind::all_for_ever;  // of which the first may have been no more than logged
  for (int i = 0; i < 2; ++i) {
    std::string errors[] = {error_of([&] { session.program->run(sink); }), error_of([&] { session.program->sync(); }),
                            error_of([&] { (void)session.program->records("loss"); }),
                            error_of([&] { (void)session.read_variables(); })};
    for (const std::string& error : errors)
      EXPECT_TRUE(contains(error, "broke off") && (names_another || names(error, fault.function))) << error;
  }
  session.write_variables(reference.states.at(static_cast<std::size_t>(session.program->steps())));
}

void FaultLoop::go_on(Session& session, const Fault& fault, const Reference& reference) {
  if (!session.program) session.compile();
  if (!error_of([&] { session.program->sync(); }).empty()) restore_broken(session, fault, reference);
  auto first = static_cast<int>(session.program->steps());
  for (int step = first; step < kSteps; ++step) {
    session.feed(step);
    session.run(sink);
    ASSERT_EQ(session.program->steps(), step + 1);
  }
  session.read_losses();
  EXPECT_EQ(session.losses, reference.losses);
  std::vector<Tensor> values = session.read_variables();
  for (std::size_t i = 0; i < values.size(); ++i)
    EXPECT_TRUE(same_bits(values[i], reference.states.back()[i])) << session.work.variables[i].name();
}

void FaultLoop::clean_up(const emu::LiveObjects& before, const Leftover& leftover, bool keeps_memory) {
  if (!keeps_memory) {
    EXPECT_EQ(leak(before, emu::live_objects(), leftover), "");
    EXPECT_EQ(emu::outstanding(), 0u);
  }
  emu::reset();
  emu::release_memory();
}

std::string FaultLoop::run_case(Workload (*make)(), const Phase& phase, const Fault& planned,
                                const Reference& reference) {
  Fault fault = planned;
  const emu::LiveObjects before = emu::live_objects();
  std::optional<Session> session(make());
  std::string key = session->work.name + ": " + std::string(phase.name);
  std::string what = key + ", call " + std::to_string(fault.nth) + " " + fault.function + " " +
                     kKindNames[static_cast<int>(fault.kind)];
  SCOPED_TRACE(what);
  watchdog_.begin(what);
  bool is_for_ever = fault.kind == Kind::function_for_ever || fault.kind == Kind::all_for_ever;
#if defined(__SANITIZE_ADDRESS__)
  // A program that cannot wait for its work is leaked on purpose.
  std::optional<__lsan::ScopedDisabler> no_leak_check;
  if (is_for_ever && phase.name == kDestroy) no_leak_check.emplace();
#endif
  emu::set_device_count(session->work.devices);
  cudaSetDevice(session->work.devices - 1);
  phase.reach(*session);
  log_.take();
  emu::reset_calls();
  emu::fail(fault.kind == Kind::function_for_ever ? fault.function : "*", fault.nth,
            fault.kind == Kind::sticky ? cudaErrorIllegalAddress : cudaErrorMemoryAllocation, is_for_ever);
  std::string error = error_of([&] { phase.act(session); });
  FaultCounts faults = emu::injected();
  emu::clear_faults();
  std::string log = log_.take();
  if (fault.function.empty() && !faults.empty()) fault.function = faults.begin()->first;
  if (!faults.empty()) {
    check_outcome(phase, fault, error, log);
    // A capture that fails costs a launch, and no step.
    if (phase.name == kCapture && error.empty() && contains(log, "its capture failed")) {
      EXPECT_EQ(session->program->counters().fallbacks, 1u);
    }
    ++cases_[key][static_cast<std::size_t>(fault.kind)];
  }
  for (const auto& [function, count] : faults) injected_[function] += count;
  if (session && fault.kind == Kind::sticky && !faults.empty()) check_lost(*session);
  if (session && fault.kind != Kind::sticky) {
    EXPECT_EQ(error_of([&] { go_on(*session, fault, reference); }), "");
  }
  bool keeps_memory = contains(log, "keeps its memory");
  kept_programs_ += keeps_memory;
  session.reset();
  clean_up(before, expected_leftover(faults, phase.name == kDestroy), keeps_memory);
  return faults.empty() ? "" : fault.function;
}

FaultCounts FaultLoop::calls_of(Workload (*make)(), const Phase& phase) {
  FaultCounts called;
  std::optional<Session> session(make());
  emu::set_device_count(session->work.devices);
  cudaSetDevice(session->work.devices - 1);
  phase.reach(*session);
  emu::reset_calls();
  phase.act(session);
  for (const std::string& function : product_)
    if (emu::calls(function) > 0) called[function] = emu::calls(function);
  return called;
}

void FaultLoop::disturb(Workload (*make)(), const Phase& phase, const Reference& reference) {
  const FaultCounts called = calls_of(make, phase);
  called_.insert(called.begin(), called.end());
  const int stride = call_stride() * make().stride;
  for (const auto& [function, count] : called) {
    std::string failed = run_case(make, phase, {Kind::function_for_ever, function, 1}, reference);
    EXPECT_EQ(failed, function);
    if (count > 1) run_case(make, phase, {Kind::function_for_ever, function, static_cast<int>(count)}, reference);
  }
  // A program that is destroyed waits first, and waits by other means where that fails: whatever the stride, it must
  // fail.
  const int all_until = phase.name == kDestroy ? 12 : 0;
  const int first = phase.name == kDestroy ? 1 : 1 + first_call();
  for (int n = first; !HasFatalFailure(); n += n < all_until ? 1 : stride) {
    std::string function = run_case(make, phase, {Kind::once, "", n}, reference);
    if (function.empty()) break;
    run_case(make, phase, {Kind::all_for_ever, function, n}, reference);
    if (n / stride % kStickyStride == 0) run_case(make, phase, {Kind::sticky, function, n}, reference);
  }
}

void FaultLoop::disturb(Workload (*make)()) {
  const Workload work = make();
  emu::set_device_count(work.devices);
  const Reference reference = undisturbed(make());
  for (const Phase& phase : kPhases)
    if (phase.is_in(work) && !HasFailure()) disturb(make, phase, reference);
}

void FaultLoop::print_table() const {
  std::array<std::size_t, 4> cases{};
  std::cout << std::left << std::setw(32) << "cases";
  for (const char* kind : kKindNames) std::cout << std::right << std::setw(24) << kind;
  for (const auto& [key, counts] : cases_) {
    std::cout << "\n" << std::left << std::setw(32) << key << std::right;
    for (std::size_t kind = 0; kind < counts.size(); ++kind) {
      std::cout << std::setw(24) << counts[kind];
      cases[kind] += counts[kind];
    }
  }
  std::cout << "\n" << std::left << std::setw(32) << "all" << std::right;
  for (std::size_t count : cases) std::cout << std::setw(24) << count;
  std::size_t total = 0;
  std::cout << "\n\ninjected faults by function\n";
  for (const auto& [function, count] : injected_) {
    std::cout << std::left << std::setw(48) << function << std::right << std::setw(8) << count << "\n";
    total += count;
  }
  const int stride = call_stride();
  std::cout << total << " faults in " << injected_.size() << " functions; every "
            << (stride == 1 ? "" : std::to_string(stride) + "th ") << "call from number " << 1 + first_call()
            << " on (every " << 3 * stride
            << "th of control, child graph, two devices, further device, host loop; as sticky errors every "
            << kStickyStride << "th of these); " << broken_commits_ << " commits broke off and were restored, "
            << kept_programs_ << " programs could not wait for their work and kept their memory\n";
}

TEST_P(FaultLoop, EveryCallOfEveryPhase) {
  disturb(GetParam().make);
  print_table();
  EXPECT_EQ(missing(functions_of(called_), functions_of(injected_)), "") << "are called, and did not fail";
  EXPECT_GT(broken_commits_, 0u);
}
INSTANTIATE_TEST_SUITE_P(Workloads, FaultLoop, ::testing::ValuesIn(kWorkloads),
                         [](const auto& info) { return std::string(info.param.name); });

class FaultWorkloads : public FaultLoop {};

// So that what the loop above makes fail is all of it. It goes through all workloads itself: its parameter, which the
// fixture asks for, is not used.
TEST_P(FaultWorkloads, CallAllThatTheProductCalls) {
  for (const NamedWorkload& workload : kWorkloads) {
    const Workload work = workload.make();
    for (const Phase& phase : kPhases)
      if (phase.is_in(work)) called_.merge(calls_of(workload.make, phase));
  }
  std::set<std::string> called = functions_of(called_);
  called.insert(kOnlyOfSinkCaches.begin(), kOnlyOfSinkCaches.end());
  called.insert(kOnlyOfCallersGraphs.begin(), kOnlyOfCallersGraphs.end());
  called.insert(kOnlyOfCompiledKernels.begin(), kOnlyOfCompiledKernels.end());
  EXPECT_EQ(missing(product_, called), "") << "are in the product, and are not called";
  EXPECT_EQ(missing(called, product_), "") << "are called, and are not in the product";
}
INSTANTIATE_TEST_SUITE_P(All, FaultWorkloads, ::testing::Values(kWorkloads[0]));

}  // namespace
}  // namespace fault_loop_test
}  // namespace graphsink::testing
