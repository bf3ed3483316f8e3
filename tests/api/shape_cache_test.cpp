// What a program keeps for each set of input shapes, and what it drops when this exceeds the limit.
#include <array>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "api/program_access.h"
#include "messages.h"
#include "program_fixture.h"
#include "resident_bytes.h"

namespace graphsink::shape_cache_test {
namespace {

using testing::contains;
using testing::device_name;
using testing::kModes;
using testing::kSanitized;
using testing::OnDevice;
using testing::resident_bytes;

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
    options.limits.shape_cache_bytes = bytes;
    options.tuning.capture_after = 1;
    options.log = [this](LogLevel, std::string_view text) { warnings.emplace_back(text); };
    return options;
  }
  // Returns the estimated bytes for one size, after the runs that the tests make.
  std::uint64_t bytes_of_one(Mode mode) {
    Model model;
    Program p = compile(model.g, {.tuning = {.capture_after = 1}});
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
      ASSERT_TRUE(equal(p.output(model.sorted), all.output(reference.sorted))) << to_string(mode) << ", run " << i;
      ASSERT_LE(p.counters().cached_bytes, limit);
    }
    EXPECT_TRUE(equal(model.total.read(), reference.total.read()));
    EXPECT_EQ(p.records("first"), all.records("first"));
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
    EXPECT_EQ(p.records("first"), all.records("first")) << to_string(mode);
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
                           "Limits::shape_cache_bytes"})
    EXPECT_TRUE(contains(warnings[0], word)) << warnings[0];
}

// The argument audit compares captures of the same op. Another set of shapes may get the memory of a dropped one.
TEST_P(ShapeCache, TheArgumentAuditForgetsWhatWasDropped) {
  Model model;
  CompileOptions audited = options(std::size_t{1} << 40);
  audited.guards.arguments = true;
  audited.limits.shape_cache_bytes = 0;
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
    // Whatever times say, the second of these runs captures. Then the other shapes, whose launches are over, are
    // dropped.
    for (int i = 0; i < 2; ++i) {
      p.run(sink);
      p.sync();
    }
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

// A model whose steps have the same kernels for all sizes, so that only their arguments differ.
struct Rows {
  Graph g;
  Value x = g.input("x", f32, {open(4), 3});
  Variable w{"w", Tensor::kaiming({3, 2}, 1)};
  Value y = tanh(x * 2.0) + 1.0;

  Rows() {
    g.output("y", y);
    g.record("sum", sum(y), {.capacity = 128});  // little memory to touch for the first time
  }
  static std::vector<float> data(int size) {
    std::vector<float> values;
    for (int i = 0; i < 3 * size; ++i) values.push_back(static_cast<float>((i * 5 + size) % 7) * 0.1f);
    return values;
  }
};

CompileOptions bounded(std::size_t shapes, std::int64_t capture_after = 0) {
  CompileOptions options;
  options.limits.shape_cache_shapes = shapes;
  options.tuning.capture_after = capture_after;
  options.log = [](LogLevel, std::string_view) {};
  return options;
}

TEST_P(ShapeCache, OfMoreShapesThanAllowedTheLeastRecentlyUsedGo) {
  Rows model;
  Program p = compile(model.g, bounded(3, 1));
  auto run = [&](int size) {
    p.write(model.x, Rows::data(size));
    for (int i = 0; i < 2; ++i) p.run(sink);
    p.sync();
    return p.counters().captures;
  };
  for (int size : {1, 2, 3, 1}) run(size);
  EXPECT_EQ(p.counters().captures, 3u);
  EXPECT_EQ(run(4), 4u) << "in place of 2";
  EXPECT_EQ(run(1), 4u);
  EXPECT_EQ(run(3), 4u);
  EXPECT_EQ(run(2), 5u);
  EXPECT_EQ(p.counters().cached_shapes, 3u);
  EXPECT_EQ(p.counters().evicted_shapes, 2u);
}

TEST_P(ShapeCache, TheNextCaptureChangesWhatWasDroppedInPlace) {
  Rows model, reference;
  Program p = compile(model.g, bounded(2, 1)), all = compile(reference.g, {.tuning = {.capture_after = 1}});
  constexpr int kShapes = 20;
  for (int i = 0; i < kShapes; ++i) {
    const std::vector<float> data = Rows::data(1 + i);
    p.write(model.x, data);
    all.write(reference.x, data);
    for (int k = 0; k < 3; ++k) {
      p.run(sink);
      all.run(interactive_serial);
    }
    ASSERT_TRUE(equal(p.output(model.y), all.output(reference.y))) << i;
  }
  EXPECT_EQ(p.records("sum"), all.records("sum"));
  const Counters counters = p.counters();
  EXPECT_EQ(counters.captures, static_cast<std::uint64_t>(kShapes));
  EXPECT_EQ(counters.graph_update_refusals, 0u);
  EXPECT_EQ(counters.graph_updates, GetParam().kind == DeviceKind::cuda ? kShapes - 2u : 0u);
  EXPECT_EQ(all.counters().graph_updates, 0u);
}

// A loop is a conditional node, which CUDA cannot change in an executable graph.
TEST_P(ShapeCache, GraphsWithLoopsAreMadeAnew) {
  Graph g;
  Value x = g.input("x", f32, {open(4)});
  auto [i, y] = while_(
      {g.constant(Tensor::scalar(0)), x}, [](const Value& i, const Value&) { return i < 11; },  // not unrolled
      [](const Value& i, const Value& v) {
        return std::array{i + 1, v * 2.0};
      });
  g.output("y", y);
  Program p = compile(g, bounded(1, 1));
  for (int size = 1; size < 6; ++size) {
    p.write(x, std::vector<float>(static_cast<std::size_t>(size), 1.0f));
    for (int k = 0; k < 3; ++k) p.run(sink);
    EXPECT_EQ(p.output("y").at(size - 1), 2048.0);
  }
  EXPECT_EQ(p.counters().captures, 5u);
  EXPECT_EQ(p.counters().graph_updates + p.counters().graph_update_refusals, 0u);
}

// 300 sizes in random order, of which eight are kept.
TEST_P(ShapeCache, MemoryIsFlatWithManyRandomShapes) {
  Rows model;
  Program p = compile(model.g, bounded(8));
  std::mt19937 random(3);
  auto change = [&](int times) {
    for (int i = 0; i < times; ++i) {
      p.write(model.x, Rows::data(std::uniform_int_distribution(1, 300)(random)));
      for (int k = 0; k < 3; ++k) p.run(sink);
      p.sync();
      ASSERT_LE(p.counters().cached_shapes, 8u);
    }
  };
  // There is room for the largest, and queues were used to their ends: their pages count once they were touched.
  p.write(model.x, Rows::data(300));
  for (int i = 0; i < 1100; ++i) p.run(interactive_serial);
  change(kSanitized ? 20 : 100);
  const Counters before = p.counters();
  const std::size_t resident = resident_bytes();
  change(kSanitized ? 100 : std::getenv("GS_FULL") ? 10'000 : 2'000);
  const Counters after = p.counters();
  EXPECT_LE(after.device_bytes, before.device_bytes + before.device_bytes / 100);
  EXPECT_LE(after.host_bytes, before.host_bytes + before.host_bytes / 100);
  EXPECT_GT(after.captures, before.captures);
  if (!kSanitized) {
    EXPECT_LE(static_cast<double>(resident_bytes()), static_cast<double>(resident) * 1.01);
  }
}

TEST_P(ShapeCache, AShapeThatIsRepeatedIsSunk) {
  for (int others : {0, 1, 5}) {
    Rows model;
    Program p = compile(model.g, bounded(8));
    for (int size = 1; size <= others; ++size) {
      p.write(model.x, Rows::data(size));
      p.run(sink, {.steps = 3});
    }
    p.write(model.x, Rows::data(50));
    const std::uint64_t launches = p.counters().graph_launches;
    for (int i = 0; i < 50; ++i) p.run(sink);
    p.sync();
    EXPECT_GE(p.counters().graph_launches - launches, 40u) << others;
    EXPECT_EQ(p.counters().fallbacks, 0u);
  }
}

TEST_P(ShapeCache, ExplainSaysWhatIsKeptAndWhyAShapeIsNotCapturedYet) {
  Rows model;
  Program p = compile(model.g, bounded(2));
  for (int size = 1; size < 5; ++size) {
    p.write(model.x, Rows::data(size));
    p.run(sink);
    p.sync();
  }
  for (const char* text : {"shape cache: 2 sets of input shapes, 0 captured, ", "; 2 dropped so far\n",
                           "note: these input shapes: not captured yet: 1 step op by op so far; what a capture takes "
                           "and saves is not measured yet; cost: one launch for each op; remedy: "})
    EXPECT_TRUE(contains(p.explain(), text)) << p.explain();
  for (int i = 0; i < 10; ++i) p.run(sink);
  EXPECT_TRUE(contains(p.explain(), "2 sets of input shapes, 1 captured, ")) << p.explain();
  EXPECT_FALSE(contains(p.explain(), "not captured yet")) << p.explain();
  EXPECT_TRUE(contains(p.explain_json(), "\"evicted\": 2")) << p.explain_json();
}

// What a sunk step saves is learned from one shape and used for the others.
TEST_P(ShapeCache, AutomaticCapturesOnlyWhatPays) {
  for (bool is_faster : {true, false}) {
    Rows model;
    Program p = compile(model.g, bounded(8));
    ProgramAccess::set_step_clock(p, [=](Mode mode) { return (mode == sink) == is_faster ? 1e5 : 2e5; });
    auto run = [&](int size, int times) {
      p.write(model.x, Rows::data(size));
      for (int i = 0; i < times; ++i) {
        p.run(automatic);
        p.sync();
      }
    };
    run(1, 50);
    const std::uint64_t launches = p.counters().graph_launches;
    EXPECT_GT(launches, 0u);
    for (int size = 2; size < 10; ++size) run(size, 10);
    const std::uint64_t sunk = p.counters().graph_launches - launches;
    if (is_faster) {
      EXPECT_GE(sunk, 8u * 8u);
    } else {
      EXPECT_EQ(sunk, 0u);
    }
  }
}

TEST_P(ShapeCache, AllShapesShareOneArena) {
  auto arena_bytes = [&](int first) {
    Rows model;
    Program p = compile(model.g, bounded(8, 1));
    for (int size = first; size <= 8000; size += 1000) {
      p.write(model.x, Rows::data(size));
      for (int i = 0; i < 2; ++i) p.run(sink);
    }
    p.sync();
    return p.arena_bytes();
  };
  EXPECT_LE(static_cast<double>(arena_bytes(1000)), 1.1 * static_cast<double>(arena_bytes(8000)));
}

TEST_P(ShapeCache, ANegativeNumberOfStepsIsRefused) {
  Rows model;
  const std::string error = testing::message_of([&] { (void)compile(model.g, bounded(8, -1)); });
  EXPECT_TRUE(contains(error, "capture_after is -1")) << error;
}

}  // namespace
}  // namespace graphsink::shape_cache_test
