// CPU bodies treat denormal numbers as zeros, or compute with them, by CompileOptions::flush_denormals alone: in every
// mode, on every thread, whatever the setting of the caller's thread, which stays what it is.
#include <gtest/gtest.h>

#include <limits>
#include <stdexcept>

#include "base/flush_denormals.h"
#include "graphsink/graphsink.h"
#include "program_fixture.h"

#if defined(__x86_64__) || defined(__aarch64__)

namespace graphsink::denormal_test {
namespace {

using testing::OnDevice;

constexpr float kSmallest = std::numeric_limits<float>::min();
constexpr float kDenormal = kSmallest / 4;

// The setting of this thread for as long as it lives.
using ThreadSetting = FlushDenormals;

bool flushes() { return (FlushDenormals::control() & FlushDenormals::kFlushAll) == FlushDenormals::kFlushAll; }

// 37 elements are neither one vector nor several whole ones.
struct Denormals {
  Graph g;
  Value x = g.input("x", f32, {37});
  Value written = mul(x, 0.25, on_cpu);                         // of the smallest normal number
  Value read = mul(mul(x, 0x1p-2, on_device), 0x1p40, on_cpu);  // of a denormal, if a device wrote one
  Variable kept{"kept", Tensor(f32, {37})};
  Denormals() {
    g.output("written", written);
    g.output("read", read);
    g.assign(kept, written);
  }
};

class DenormalOnDevice : public OnDevice {
 protected:
  void expect_all(const Tensor& tensor, float wanted) {
    for (std::int64_t i = 0; i < tensor.shape().size(); ++i) ASSERT_EQ(tensor.at(i), wanted) << "element " << i;
  }
  void check(Mode mode, bool flush) {
    SCOPED_TRACE(std::string(to_string(mode)) + (flush ? ", flushed" : ", kept"));
    Denormals m;
    CompileOptions options;
    options.flush_denormals = flush;
    Program p = compile(m.g, options);
    p.write(m.x, Tensor::full(f32, {37}, kSmallest));
    const bool before = flushes();
    for (int step = 0; step < 3; ++step) p.run(mode);
    Tensor written = p.output("written"), read = p.output("read");
    EXPECT_EQ(flushes(), before);
    const ThreadSetting exact(false);
    expect_all(written, flush ? 0.0f : kDenormal);
    expect_all(m.kept.read(), flush ? 0.0f : kDenormal);
    expect_all(read, flush ? 0.0f : kDenormal * 0x1p40f);
  }
};
INSTANTIATE_TEST_SUITE_P(Devices, DenormalOnDevice, ::testing::ValuesIn(testing::devices()), testing::device_name);

TEST_P(DenormalOnDevice, AreZerosOrNotByTheOptionAlone) {
  for (bool caller : {false, true}) {
    const ThreadSetting setting(caller);
    for (bool flush : {true, false})
      for (Mode mode : kAllModes) check(mode, flush);
  }
}

TEST_P(DenormalOnDevice, AreZerosByDefault) {
  Denormals m;
  Program p = compile(m.g);
  p.write(m.x, Tensor::full(f32, {37}, kSmallest));
  p.run(interactive);
  EXPECT_EQ(p.output("written").at(0), 0);
}

void multiply_and_throw(const CpuArgs&) { throw std::runtime_error("a body that throws"); }
const OpDef throwing{.name = "throwing", .infer = testing::infer_like_first, .bodies = {multiply_and_throw}};

TEST_P(DenormalOnDevice, TheCallersSettingOutlivesABodyThatThrows) {
  for (Mode mode : kAllModes) {
    SCOPED_TRACE(to_string(mode));
    Graph g;
    Value x = g.input("x", f32, {4});
    g.output("y", emit(throwing, {x})[0]);
    Program p = compile(g);
    p.write(x, Tensor(f32, {4}));
    const bool before = flushes();
    p.run(mode);
    EXPECT_THROW(p.sync(), Error);
    EXPECT_EQ(flushes(), before);
  }
}

// They are ordinary numbers of the f32 in which they are computed.
TEST_P(DenormalOnDevice, OfHalvesAreKept) {
  Graph g;
  Value x = g.input("x", f16, {37});
  g.output("y", add(x, x, on_cpu));
  Program p = compile(g);
  for (double denormal : {0x1p-24, -0x1p-24, 0x1.ffp-16, -0x1p-15}) {
    p.write(x, Tensor::full(f16, {37}, denormal));
    p.run(interactive);
    EXPECT_EQ(p.output("y").at(0), 2 * denormal);
    EXPECT_EQ(p.output("y").at(36), 2 * denormal);
  }
}

// An Eager has no options.
TEST(Denormals, AreZerosInEagerOnTheCpu) {
  Eager e(cpu());
  Value y = mul(e.tensor(Tensor::full(f32, {37}, kSmallest)), 0.25);
  EXPECT_EQ(e.read(y).at(0), 0);
}

}  // namespace
}  // namespace graphsink::denormal_test
#endif
