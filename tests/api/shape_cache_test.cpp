// What a program keeps for each set of input shapes, and what it drops when this exceeds the limit.
#include <cstring>
#include <vector>

#include "messages.h"
#include "program_fixture.h"

namespace graphsink {
namespace {

using testing::contains;
using testing::device_name;
using testing::kModes;
using testing::OnDevice;

// An output and a Variable that depend on everything written so far. The sort needs a workspace.
struct Model {
  Graph g;
  Value x = g.input("x", f32, {open(4)});
  Variable total{"total", Tensor(f32, {})};
  Value sorted = sort(x * 3.0).values;

  Model() {
    g.output("sorted", sorted);
    assign(total, g.value(total) * 0.5 + sum(sorted));
    g.record("first", sum(slice(sorted, {0}, {1})));
  }
  static std::vector<float> data(int size) {
    std::vector<float> values;
    for (int i = 0; i < size; ++i) values.push_back(static_cast<float>((i * 7 + size) % 11));
    return values;
  }
};

bool equal(const Tensor& a, const Tensor& b) {
  return a.type() == b.type() && std::memcmp(a.data(), b.data(), a.bytes()) == 0;
}

class ShapeCache : public OnDevice {
 protected:
  std::vector<std::string> warnings;

  CompileOptions options(std::size_t bytes) {
    CompileOptions options;
    options.shape_cache_bytes = bytes;
    options.log = [this](LogLevel, std::string_view text) { warnings.emplace_back(text); };
    return options;
  }
  // Returns the estimated bytes for one size, after the runs that the tests make.
  std::uint64_t bytes_of_one(Mode mode) {
    Model model;
    Program p = compile(model.g);
    p.write(model.x, Model::data(40));
    for (int i = 0; i < 2; ++i) {
      p.run(mode);
      p.run(mode, {.steps = 2});
    }
    return p.counters().cached_bytes;
  }
};
INSTANTIATE_TEST_SUITE_P(Devices, ShapeCache, ::testing::ValuesIn(testing::devices()), device_name);

TEST_P(ShapeCache, ManyShapesTakeNoMoreThanTheyMay) {
  constexpr int kShapes = 40, kRounds = 2, kKept = 5;
  for (Mode mode : kModes) {
    std::uint64_t limit = kKept * bytes_of_one(mode);
    Model model, reference;
    Program p = compile(model.g, options(limit)), all = compile(reference.g);
    for (int i = 0; i < kShapes * kRounds; ++i) {
      std::vector<float> data = Model::data(1 + i % kShapes);
      p.write(model.x, data);
      p.run(mode);
      p.run(mode, {.steps = 2});
      all.write(reference.x, data);
      all.run(interactive_serial, {.steps = 3});
      ASSERT_TRUE(equal(p.read(model.sorted), all.read(reference.sorted))) << to_string(mode) << ", run " << i;
      ASSERT_LE(p.counters().cached_bytes, limit);
    }
    EXPECT_TRUE(equal(model.total.read(), reference.total.read()));
    EXPECT_EQ(p.read("first"), all.read("first"));
    Counters counters = p.counters();
    EXPECT_GE(counters.cached_shapes, static_cast<std::uint64_t>(kKept - 1));
    EXPECT_EQ(counters.cached_shapes + counters.evicted_shapes, static_cast<std::uint64_t>(kShapes * kRounds));
    EXPECT_EQ(all.counters().cached_shapes, static_cast<std::uint64_t>(kShapes));
    EXPECT_EQ(all.counters().evicted_shapes, 0u);
  }
}

TEST_P(ShapeCache, MemoryOfWhatWasDroppedIsFree) {
  Model model;
  Program p = compile(model.g, options(0));
  auto run = [&](int size) {
    p.write(model.x, Model::data(size));
    for (int i = 0; i < 2; ++i) p.run();
    p.sync();
  };
  auto run_many = [&] {
    for (int size = 4000; size < 4050; ++size) run(size);
    EXPECT_EQ(p.counters().cached_shapes, 1u);
  };
  run_many();
  Counters before = p.counters();
  run_many();
  EXPECT_EQ(p.counters().device_bytes, before.device_bytes);
  EXPECT_EQ(p.counters().host_bytes, before.host_bytes);
}

// The host does not wait between the runs. So many sizes are in flight, although the program may keep none.
TEST_P(ShapeCache, WhatIsInFlightIsNeverDropped) {
  constexpr int kSizes = 300;
  for (Mode mode : {sink, interactive_parallel, automatic}) {
    Model model, reference;
    Program p = compile(model.g, options(0)), all = compile(reference.g);
    for (int i = 0; i < kSizes; ++i) {
      std::vector<float> data = Model::data(1 + i % 23);
      for (auto [program, x] : {std::pair(&p, model.x), std::pair(&all, reference.x)}) {
        program->write(x, data);
        program->run(program == &p ? mode : interactive_serial, {.steps = 2});
      }
    }
    EXPECT_EQ(p.read("first"), all.read("first")) << to_string(mode);
    EXPECT_TRUE(equal(model.total.read(), reference.total.read())) << to_string(mode);
    EXPECT_GT(p.counters().evicted_shapes, 100u);
  }
}

TEST_P(ShapeCache, WhatIsUsedOftenStays) {
  std::uint64_t limit = 3 * bytes_of_one(sink);
  Model model;
  Program p = compile(model.g, options(limit));
  auto run = [&](int size) {
    p.write(model.x, Model::data(size));
    p.run();
    p.run();
    p.sync();
  };
  run(40);
  std::uint64_t captures = p.counters().captures;
  for (int size = 1; size < 20; ++size) {
    run(size);
    run(40);
  }
  EXPECT_EQ(p.counters().captures, captures + 19);
}

TEST_P(ShapeCache, ShapesThatWereBoundAheadAreTrimmedOnceTheyAreCaptured) {
  std::uint64_t limit = 3 * bytes_of_one(sink);
  Model model;
  Program p = compile(model.g, options(limit));
  auto for_each_size = [&](auto&& act) {
    for (int size = 30; size < 36; ++size) {
      p.write(model.x, Model::data(size));
      act();
    }
  };
  for_each_size([&] { p.bind(); });
  for_each_size([&] {
    for (int i = 0; i < 2; ++i) p.run(sink, {.steps = 2});
    p.sync();
  });
  EXPECT_LE(p.counters().cached_bytes, limit);
}

TEST_P(ShapeCache, TheFirstDropIsSaidOnce) {
  Model model;
  Program p = compile(model.g, options(0));
  for (int size = 1; size < 9; ++size) {
    p.write(model.x, Model::data(size));
    p.run();
    p.sync();
  }
  ASSERT_EQ(warnings.size(), 1u);
  for (const char* word : {"the shape cache is full: 2 sets of input shapes take ", "so 1, used least recently, was",
                           "CompileOptions::shape_cache_bytes"})
    EXPECT_TRUE(contains(warnings[0], word)) << warnings[0];
}

// The argument audit compares captures of the same op. Another set of shapes may get the memory of a dropped one.
TEST_P(ShapeCache, TheArgumentAuditForgetsWhatWasDropped) {
  Model model;
  CompileOptions audited = options(std::size_t{1} << 40);
  audited.guards.arguments = true;
  audited.shape_cache_bytes = 0;
  Program p = compile(model.g, audited);
  for (int i = 0; i < 40; ++i) {
    p.write(model.x, Model::data(1 + i % 8));
    for (int k = 0; k < 2; ++k) p.run();
    p.sync();
  }
  EXPECT_EQ(warnings.size(), 1u) << warnings.back();  // the warning that the cache is full
}

TEST_P(ShapeCache, AutomaticMeasuresAnew) {
  Model model;
  Program p = compile(model.g, options(0));
  auto run = [&](int size) {
    p.write(model.x, Model::data(size));
    for (int i = 0; i < 50; ++i) p.run(automatic);
    p.sync();
    std::int64_t steps = 0;
    for (const auto& candidate : p.automatic_report().candidates) steps += candidate.steps;
    return steps;
  };
  std::int64_t first = run(10);
  EXPECT_GT(first, 0);
  EXPECT_LE(run(20), 50);
  EXPECT_LE(run(10), 50);
}

}  // namespace
}  // namespace graphsink
