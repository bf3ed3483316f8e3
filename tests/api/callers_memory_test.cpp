// Programs whose inputs, outputs and Variables are in memory of the caller.
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "device/device.h"
#include "messages.h"
#include "program_fixture.h"

namespace graphsink::callers_memory_test {
namespace {

using testing::contains;
using testing::message_of;

// Memory that the caller might pass: memory of the device that no program allocated.
class TheirMemory {
 public:
  TheirMemory(DeviceId device, std::size_t floats)
      : device_(open_device(device)), stream_(device_->make_stream()), floats_(floats) {
    memory_ = device_->allocate(bytes());
  }
  void* address() const { return memory_.get(); }
  std::size_t bytes() const { return floats_ * sizeof(float); }
  void write(const std::vector<float>& values) {
    device_->upload(*stream_, address(), values.data(), values.size() * sizeof(float));
    device_->wait(*stream_);
  }
  std::vector<float> read() const {
    Memory host = device_->allocate_host(bytes());
    device_->copy(*stream_, host.get(), address(), bytes());
    device_->wait(*stream_);
    const auto* first = static_cast<const float*>(host.get());
    return {first, first + floats_};
  }

 private:
  std::shared_ptr<Device> device_;
  std::unique_ptr<Stream> stream_;
  Memory memory_;
  std::size_t floats_;
};

class CallersMemoryTest : public testing::OnDevice {
 protected:
  TheirMemory memory(std::size_t floats) const { return TheirMemory(GetParam(), floats); }
};

TEST_P(CallersMemoryTest, IsReadAndWrittenInPlaceInEveryMode) {
  for (Mode mode : kAllModes) {
    Graph g;
    Value x = g.input("x", f32, {3});
    Variable w("w", Tensor({3}, std::vector<float>{9, 9, 9}));
    Value y = g.value(w) * x;
    g.output("y", y);
    g.assign(w, g.value(w) + 1.0);
    Program p = compile(g);
    TheirMemory input = memory(3), output = memory(3), weights = memory(3);
    p.bind_memory(x, input.address(), input.bytes());
    p.bind_memory(y, output.address(), output.bytes());
    weights.write({1, 2, 3});
    p.bind_memory(w, weights.address(), weights.bytes());
    input.write({10, 10, 10});
    p.run(mode);
    p.sync();
    EXPECT_EQ(output.read(), (std::vector<float>{10, 20, 30})) << to_string(mode);
    EXPECT_EQ(weights.read(), (std::vector<float>{2, 3, 4})) << to_string(mode);
    EXPECT_EQ(w.read().as<float>()[2], 4.0f);
    input.write({1, 0, 1});
    weights.write({5, 6, 7});
    p.run(mode);
    EXPECT_EQ(p.output("y").as<float>()[2], 7.0f) << to_string(mode);
    EXPECT_EQ(output.read(), (std::vector<float>{5, 0, 7})) << to_string(mode);
    EXPECT_EQ(weights.read(), (std::vector<float>{6, 7, 8})) << to_string(mode);
    w.write(Tensor({3}, std::vector<float>{0, 1, 2}));
    EXPECT_EQ(weights.read(), (std::vector<float>{0, 1, 2}));
    p.write(x, std::vector<float>{4, 4, 4});
    p.run(mode, {.steps = 3});
    p.sync();
    EXPECT_EQ(input.read(), (std::vector<float>{4, 4, 4}));
    EXPECT_EQ(output.read(), (std::vector<float>{8, 12, 16})) << to_string(mode);
  }
}

// Ops on the host read copies of inputs, and of Variables that no step writes. The copies must be refreshed when these
// have changed.
TEST_P(CallersMemoryTest, IsReadAnewByOpsOnTheHost) {
  for (Mode mode : kAllModes) {
    Graph g;
    Value x = g.input("x", f32, {2});
    Variable w("w", Tensor(f32, {2}));
    Value y = emit(testing::cpu_plus_one, {x + 0.0})[0] + emit(testing::cpu_plus_one, {x})[0] +
              emit(testing::cpu_plus_one, {g.value(w)})[0];
    g.output("y", y);
    Program p = compile(g);
    TheirMemory input = memory(2), weights = memory(2);
    p.bind_memory(x, input.address(), input.bytes());
    p.bind_memory(w, weights.address(), weights.bytes());
    for (int i = 0; i < 3; ++i) {
      auto value = static_cast<float>(i);
      input.write({value, value});
      weights.write({10 * value, 10 * value});
      p.run(mode);
      EXPECT_EQ(p.output("y").as<float>()[1], 2 * (value + 1) + 10 * value + 1) << to_string(mode) << " " << i;
    }
  }
}

TEST_P(CallersMemoryTest, MayBeChanged) {
  Graph g;
  Value x = g.input("x", f32, {2});
  Value y = x * 2.0;
  g.output("y", y);
  Program p = compile(g);
  p.write(x, std::vector<float>{1, 2});
  p.run();
  EXPECT_EQ(p.output(y).as<float>()[1], 4.0f);
  std::size_t own = p.memory().inputs;
  TheirMemory first = memory(2), second = memory(2), out = memory(2);
  first.write({3, 4});
  second.write({5, 6});
  for (TheirMemory* each : {&first, &second, &first}) {
    p.bind_memory(x, each->address(), each->bytes());
    p.bind_memory(y, out.address(), out.bytes());
    for (int i = 0; i < 3; ++i) p.run();
    p.sync();
    EXPECT_EQ(out.read()[1], 2 * each->read()[1]);
  }
  EXPECT_EQ(p.memory().inputs, 0u);
  EXPECT_GT(own, 0u);
}

TEST_P(CallersMemoryTest, OfAVariableIsSharedByItsPrograms) {
  Variable w("w", Tensor(f32, {2}));
  auto counting = [&](double by) {
    Graph g;
    g.assign(w, g.value(w) + by);
    return compile(g);
  };
  TheirMemory weights = memory(2);
  weights.write({1, 1});
  Program one = counting(1), ten = counting(10);
  one.bind_memory(w, weights.address(), weights.bytes());
  ten.bind_memory(w, weights.address(), weights.bytes());
  for (int i = 0; i < 3; ++i) {
    one.run();
    ten.run();
  }
  ten.sync();
  EXPECT_EQ(weights.read(), (std::vector<float>{34, 34}));
  EXPECT_EQ(one.memory().variables, 0u);
}

TEST_P(CallersMemoryTest, OfAVariableIsKeptByTheOwnerOfTheLastCall) {
  const auto theirs = std::make_shared<TheirMemory>(memory(3));
  theirs->write({1, 2, 3});
  const auto owner = [&] { return std::shared_ptr<const void>(theirs->address(), [kept = theirs](const void*) {}); };
  auto first = owner(), second = owner();
  const std::weak_ptr<const void> is_first = first, is_second = second;
  {
    Graph g;
    Variable w("w", Tensor(f32, {3}));
    g.assign(w, g.value(w) + 1.0);
    {
      Program p = compile(g);
      p.bind_memory(w, theirs->address(), theirs->bytes(), std::move(first));
      p.bind_memory(w, theirs->address(), theirs->bytes(), std::move(second));
      p.bind_memory(w, theirs->address(), theirs->bytes());
      EXPECT_TRUE(is_first.expired());
      p.run();
    }
    EXPECT_FALSE(is_second.expired());  // the Variable still lives there
    EXPECT_EQ(w.read().at(2), 4.0);
  }
  EXPECT_TRUE(is_second.expired());
}

TEST_P(CallersMemoryTest, ThatDoesNotFitIsRefused) {
  Graph g;
  Value x = g.input("x", f32, {2}), z = g.input("z", f32, {2}), free = g.input("free", f32, {open(2)});
  Value feed = g.feed("feed", f32, {2});
  Variable w("w", Tensor(f32, {2})), stranger("stranger", Tensor(f32, {2}));
  Value y = x * 2.0 + z + g.value(w) + sum(free) + feed;
  Value same = reshape(y, {2, 1}), constant = g.constant(Tensor(f32, {2}));
  g.output("y", y);
  g.output("same", same);
  g.output("constant", constant);
  g.assign(w, y);
  Program p = compile(g);
  TheirMemory m = memory(512);
  std::byte* begin = static_cast<std::byte*>(m.address());
  auto expect = [&](const std::string& message, std::vector<const char*> words) {
    words.push_back("callers_memory_test.cpp:");
    words.push_back("; remedy: ");
    for (const char* word : words) EXPECT_TRUE(contains(message, word)) << word << " in: " << message;
  };
  auto refused = [&](const auto& what, void* address, std::size_t bytes, const std::vector<const char*>& words) {
    expect(message_of([&] { p.bind_memory(what, address, bytes); }), words);
  };
  refused(x, nullptr, 8, {"the address for input \"x\" is null"});
  refused(x, begin, 7, {"input \"x\" takes 8 B, the memory has 7 B"});
  refused(w, begin, 0, {"Variable \"w\" takes 8 B, the memory has 0 B"});
  refused(y, begin + 16, 8, {"the address for output \"y\" is not a multiple of ", "but 16 bytes behind one"});
  refused(free, begin, 8, {"the input \"free\" has an open dimension", "write() it"});
  refused(feed, begin, 8, {"\"feed\" is a feed", "use an input"});
  refused(x * 2.0, begin, 8, {"neither an input nor an output", "before compile()"});
  refused(Value(), begin, 8, {"another graph"});
  refused(stranger, begin, 8, {"does not use that Variable"});
  refused(Variable(), begin, 8, {"does not use that Variable"});
  p.bind_memory(x, begin, 300);
  p.bind_memory(z, begin, 8);  // both are only read, so they may overlap
  refused(y, begin + 256, 8, {"the memory for output \"y\" overlaps that of input \"x\""});
  refused(w, begin, 8, {"the memory for Variable \"w\" overlaps that of input"});
  p.bind_memory(w, begin + 512, 8);
  refused(same, begin + 512, 8, {"overlaps that of Variable \"w\""});
  for (const Value& each : {free, feed}) p.write(each, std::vector<float>{0, 0});
  p.bind_memory(constant, begin + 768, 8);
  expect(message_of([&] { p.run(); }), {"output \"constant\" is a constant, which no step writes"});
}

TEST_P(CallersMemoryTest, OutputsThatAreTheSameMemoryAreRefusedAndAVariableThatHasAHome) {
  Graph g;
  Value x = g.input("x", f32, {2});
  Variable w("w", Tensor(f32, {2}));
  Value y = x + g.value(w), same = reshape(y, {2, 1});
  g.output("y", y);
  g.output("same", same);
  TheirMemory first = memory(2), second = memory(2), third = memory(2);
  std::optional<Program> p = compile(g);
  p->write(x, std::vector<float>{1, 2});
  p->run();
  std::string message = message_of([&] { p->bind_memory(w, third.address(), third.bytes()); });
  for (const char* word : {"\"w\" has memory on a device already", "before any program that uses it"})
    EXPECT_TRUE(contains(message, word)) << message;
  p->bind_memory(y, first.address(), first.bytes());
  p->run();
  EXPECT_EQ(p->output(same).as<float>()[1], 2.0f);
  EXPECT_EQ(first.read()[1], 2.0f);
  p->bind_memory(same, second.address(), second.bytes());
  message = message_of([&] { p->run(); });
  for (const char* word : {"output \"y\"", "output \"same\"", "are the same memory in this plan"})
    EXPECT_TRUE(contains(message, word)) << message;
}

INSTANTIATE_TEST_SUITE_P(Devices, CallersMemoryTest, ::testing::ValuesIn(testing::devices()), testing::device_name);

}  // namespace
}  // namespace graphsink::callers_memory_test
