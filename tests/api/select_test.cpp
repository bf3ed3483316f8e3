// Results whose size depends on data, with an upper bound and without one, against simple loops over the same data.
#include "graphsink/select.h"

#include <algorithm>
#include <functional>
#include <map>
#include <random>

#include "messages.h"
#include "program_fixture.h"

namespace graphsink::select_test {
namespace {

using testing::contains;
using testing::device_name;
using testing::kModes;
using testing::message_of;
using testing::OnDevice;

class Select : public OnDevice {};
INSTANTIATE_TEST_SUITE_P(Devices, Select, ::testing::ValuesIn(testing::devices()), device_name);

constexpr Mode kEvery[] = {interactive_serial, interactive_parallel, sink, automatic};

std::vector<double> numbers_of(const Tensor& tensor) {
  std::vector<double> numbers;
  for (std::int64_t i = 0; i < tensor.type().shape.size(); ++i) numbers.push_back(tensor.at(i));
  return numbers;
}

// Small integers, so that many are equal and many are 0.
std::vector<float> draw(std::mt19937& random, int count, int most) {
  std::vector<float> values;
  for (int i = 0; i < count; ++i) values.push_back(static_cast<float>(random() % (most + 1u)));
  return values;
}

struct Sized {
  const char* name;
  ResultSize size;
  std::int64_t rows(std::int64_t count) const { return size.is_bound() ? size.most() : size.bucket().round_up(count); }
};
const Sized kSizes[] = {{"Bound", 40},
                        {"Exact", {}},
                        {"PowersOfTwo", next_power_of_two()},
                        {"Multiples", multiples_of(6)},
                        {"OneOf", one_of({3, 40})}};

// --- places

TEST_P(Select, PlacesOfAllThatIsNotZero) {
  for (const Sized& sized : kSizes) {
    for (Mode mode : kEvery) {
      SCOPED_TRACE(std::string(sized.name) + ", " + std::string(to_string(mode)));
      Graph g;
      Value x = g.input("x", f32, {4, 5, 2});
      const Padded places = nonzero(x, sized.size), numbers = flat_nonzero(x, sized.size);
      g.output("places", places.values);
      g.output("numbers", numbers.values);
      g.output("count", places.count);
      Program p = compile(g, {.tuning = {.capture_after = 1}});
      std::mt19937 random(1);
      for (int step = 0; step < 12; ++step) {
        std::vector<float> values = draw(random, 40, static_cast<int>(random() % 4));
        if (step == 3) values.assign(40, 0.0f);
        if (step == 4) values.assign(40, std::numeric_limits<float>::quiet_NaN());
        if (step == 5) values.assign(40, -0.0f);
        p.write(x, values);
        p.run(mode);
        std::vector<double> wanted, wanted_numbers;
        for (int i = 0; i < 40; ++i) {
          if (values[static_cast<std::size_t>(i)] == 0) continue;
          wanted_numbers.push_back(i);
          for (int index : {i / 10, i / 2 % 5, i % 2}) wanted.push_back(index);
        }
        const auto count = static_cast<std::int64_t>(wanted_numbers.size());
        ASSERT_EQ(p.output("count").at(0), static_cast<double>(count));
        wanted_numbers.resize(static_cast<std::size_t>(sized.rows(count)));
        wanted.resize(3 * wanted_numbers.size());
        ASSERT_EQ(numbers_of(p.output("numbers")), wanted_numbers);
        ASSERT_EQ(numbers_of(p.output("places")), wanted);
      }
      EXPECT_EQ(p.steps(), 12);
    }
  }
}

TEST_P(Select, AllTypesHaveAZero) {
  for (DType dtype : {f32, f64, f16, bf16, i32, i64, u8, boolean}) {
    Graph g;
    Value x = g.input("x", f32, {6});
    const Padded places = flat_nonzero(cast(x, dtype), 4);
    g.output("places", places.values);
    Program p = compile(g);
    p.write(x, std::vector<float>{0, 2, 0, 1, 1, 0});
    p.run();
    EXPECT_EQ(numbers_of(p.output("places")), (std::vector<double>{1, 3, 4, 0})) << to_string(dtype);
  }
}

TEST_P(Select, NothingToChooseFrom) {
  for (const ResultSize& size : {ResultSize(0), ResultSize(3), ResultSize(), ResultSize(next_power_of_two())}) {
    Graph g;
    Value x = g.input("x", f32, {open(3), 2});
    const Padded places = nonzero(x, size);
    g.output("count", places.count);
    g.output("places", places.values);
    Program p = compile(g);
    p.write(x, Tensor(f32, {0, 2}));
    p.run();
    EXPECT_EQ(p.output("count").at(0), 0);
    const std::int64_t rows = size.is_bound() ? size.most() : size.bucket().round_up(0);
    EXPECT_EQ(p.output("places").type().shape, Shape({rows, 2}));
  }
}

TEST_P(Select, MoreThanTheBoundFailsTheStep) {
  for (Mode mode : kEvery) {
    Graph g;
    Variable steps("steps", Tensor::scalar(0.0f));
    Value x = g.input("x", f32, {6});
    g.output("places", flat_nonzero(x, 2).values);
    assign(steps, g.value(steps) + 1.0);
    Program p = compile(g);
    p.write(x, std::vector<float>{1, 0, 0, 0, 0, 1});
    p.run(mode);
    p.write(x, std::vector<float>{1, 1, 1, 0, 0, 1});
    p.run(mode);
    const std::string message = message_of([&] { p.sync(); });
    for (const char* word : {"nonzero", "select_test.cpp", "found 4 elements", "no room", "room for more"})
      EXPECT_TRUE(contains(message, word)) << message;
    p.write(x, std::vector<float>{0, 0, 0, 0, 1, 1});
    p.run(mode);
    EXPECT_EQ(numbers_of(p.output("places")), (std::vector<double>{4, 5}));
    EXPECT_EQ(steps.read().at(0), 2) << "the failed step committed";
  }
}

TEST_P(Select, MoreThanTheLargestBucketFailsTheStep) {
  Graph g;
  Value x = g.input("x", f32, {6});
  g.output("places", flat_nonzero(x, one_of({1, 2})).values);
  Program p = compile(g);
  p.write(x, std::vector<float>{1, 1, 1, 0, 0, 1});
  p.run();
  EXPECT_TRUE(contains(message_of([&] { p.sync(); }), "found 4 elements"));
  p.write(x, std::vector<float>{0, 1, 0, 0, 0, 0});
  p.run();
  EXPECT_EQ(numbers_of(p.output("places")), (std::vector<double>{1}));
}

// --- programs whose sizes change

// What is written with steps whose sizes change is written once, in order, and feeds and records keep their place.
TEST_P(Select, StepsThatFindAnotherSizeRunOnce) {
  for (const Sized& sized : kSizes) {
    std::vector<double> first_noise;
    for (Mode mode : kEvery) {
      SCOPED_TRACE(std::string(sized.name) + ", " + std::string(to_string(mode)));
      Graph g;
      Variable total("total", Tensor::scalar(0.0)), drawn("drawn", Tensor::scalar(0.0));
      Value x = g.feed("x", f64, {10});
      const Padded chosen = masked_select(x, greater(x, 0.0), sized.size);
      assign(total, g.value(total) + sum(chosen));
      Value noise = random_uniform(g, f64, {}, 0, 1);
      assign(drawn, noise);
      g.record("count", cast(chosen.count, f64));
      g.record("step", cast(g.step(), f64));
      g.record("noise", noise);
      Program p = compile(g, {.tuning = {.capture_after = 1}});
      std::mt19937 random(2);
      double wanted_total = 0;
      std::vector<double> wanted_counts;
      for (int run = 0; run < 4; ++run) {
        constexpr int kSteps = 7;
        Tensor slices(f64, {kSteps, 10});
        for (int step = 0; step < kSteps; ++step) {
          double count = 0;
          for (int i = 0; i < 10; ++i) {
            const double value = static_cast<double>(random() % 8) - (run == 2 ? 10 : 4);
            slices.as<double>()[static_cast<std::size_t>(10 * step + i)] = value;
            if (value <= 0) continue;
            ++count;
            wanted_total += value;
          }
          wanted_counts.push_back(count);
        }
        p.write(x, slices);
        p.run(mode, {.steps = kSteps});
      }
      EXPECT_EQ(p.records<double>("count"), wanted_counts);
      EXPECT_EQ(total.read().at(0), wanted_total);
      std::vector<double> steps;
      for (int i = 0; i < 28; ++i) steps.push_back(i);
      EXPECT_EQ(p.records<double>("step"), steps);
      EXPECT_EQ(p.steps(), 28);
      const std::vector<double> all_noise = p.records<double>("noise");
      ASSERT_EQ(all_noise.size(), 28u);
      EXPECT_EQ(drawn.read().at(0), all_noise.back());
      if (first_noise.empty()) first_noise = all_noise;
      EXPECT_EQ(all_noise, first_noise) << "the numbers depend on how often a step ran";
    }
  }
}

TEST_P(Select, SizesDependOnSizes) {
  for (Mode mode : kEvery) {
    Graph g;
    Value x = g.input("x", i32, {24});
    const Value half = cast(floor(cast(x, f32) / 2.0), i32);
    const Padded odd = masked_select(x, equal(x - half * 2, 1));
    const Padded large = masked_select(odd.values, greater(odd.values, 10));
    const Padded larger = masked_select(large.values, greater(large.values, 15));
    g.output("larger", larger.values);
    g.output("odd", odd.values);
    Program p = compile(g);
    std::mt19937 random(3);
    for (int step = 0; step < 10; ++step) {
      std::vector<std::int32_t> values;
      std::vector<double> wanted_odd, wanted;
      for (int i = 0; i < 24; ++i) {
        values.push_back(static_cast<std::int32_t>(random() % (step == 4 ? 9 : 20)));
        if (values.back() % 2 == 1) wanted_odd.push_back(values.back());
        if (values.back() % 2 == 1 && values.back() > 15) wanted.push_back(values.back());
      }
      p.write(x, values);
      p.run(mode);
      ASSERT_EQ(numbers_of(p.output("odd")), wanted_odd);
      ASSERT_EQ(numbers_of(p.output("larger")), wanted);
    }
  }
}

TEST_P(Select, ASizeThatComesBackIsNotPlannedAgain) {
  Graph g;
  Value x = g.input("x", f32, {16});
  g.output("places", flat_nonzero(x, next_power_of_two()).values);
  Program p = compile(g, {.tuning = {.capture_after = 1}});
  auto run = [&](int ones) {
    std::vector<float> values(16);
    std::fill_n(values.begin(), ones, 1.0f);
    p.write(x, values);
    p.run(sink);
  };
  for (int ones : {3, 4, 8, 5, 16, 1, 3, 9}) run(ones);
  EXPECT_EQ(p.counters().cached_shapes, 4u);  // 1, 4, 8, 16; the example is 8
  const auto captures = p.counters().captures;
  const auto launches = p.counters().graph_launches;
  for (int i = 0; i < 10; ++i) run(4);
  EXPECT_EQ(p.counters().cached_shapes, 4u);
  EXPECT_LE(p.counters().captures, captures + 1);
  EXPECT_GE(p.counters().graph_launches, launches + 9);
}

TEST_P(Select, ABoundedSizeStaysInOneLaunch) {
  Graph g;
  Value x = g.feed("x", f32, {16});
  const Padded chosen = masked_select(x, greater(x, 0.0), 8);
  g.record("mean", mean(chosen));
  Program p = compile(g, {.require_whole_graph = true});
  Tensor slices(f32, {6, 16});
  for (std::size_t i = 0; i < 96; ++i) slices.as<float>()[i] = static_cast<float>(i % 5) - 3;
  p.write(x, slices);
  p.run(sink, {.steps = 1});
  const auto before = p.counters().graph_launches;
  p.run(sink, {.steps = 6});
  EXPECT_EQ(p.counters().graph_launches, before + 1);
}

TEST_P(Select, AnOrdinaryFailureIsNotLost) {
  for (Mode mode : kEvery) {
    Graph g;
    Value x = g.input("x", f32, {6}), index = g.input("index", i32, {1});
    g.output("picked", gather(x, index));
    g.output("places", flat_nonzero(x).values);
    Program p = compile(g);
    p.write(index, std::vector<std::int32_t>{0});
    p.write(x, std::vector<float>{1, 1, 1, 0, 0, 1});
    p.run(mode);
    p.write(index, std::vector<std::int32_t>{9});
    p.write(x, std::vector<float>{1, 0, 0, 0, 0, 0});
    p.run(mode);
    p.write(x, std::vector<float>{1, 0, 0, 1, 1, 1});
    p.write(index, std::vector<std::int32_t>{5});
    p.run(mode);  // commits nothing, as the failure was not reported, and finds another size
    EXPECT_TRUE(contains(message_of([&] { p.sync(); }), "index 9 lies outside")) << to_string(mode);
    p.run(mode);
    EXPECT_EQ(numbers_of(p.output("places")), (std::vector<double>{0, 3, 4, 5}));
    EXPECT_EQ(p.steps(), 2);
  }
}

TEST_P(Select, AnIndexIntoAWrongSizeIsNoFailure) {
  // Rows are counted apart from the op that finds them, so that in a step planned for fewer rows the indices lie
  // outside of them, perhaps before that is known.
  for (Mode mode : kEvery) {
    Graph g;
    Value x = g.input("x", i32, {8});
    const Padded ones = flat_nonzero(x);
    Value number = sub(cumsum(x, 0), 1);  // of the one at or before each place
    Value rows = mul(ones.values, 0);
    g.output("sizes", scatter_add(rows, number, add(mul(x, 0), 1)));
    Program p = compile(g);
    for (const std::vector<std::int32_t>& values :
         {std::vector<std::int32_t>{1, 0, 0, 1, 0, 1, 1, 1}, {1, 1, 1, 1, 1, 1, 1, 1}, {1, 0, 0, 0, 0, 0, 0, 0}}) {
      p.write(x, values);
      p.run(mode);
      const auto found = static_cast<std::int64_t>(std::count(values.begin(), values.end(), 1));
      const Tensor sizes = p.output("sizes");
      ASSERT_EQ(sizes.type().shape, Shape({found}));
      double all = 0;
      for (double size : numbers_of(sizes)) all += size;
      EXPECT_EQ(all, 8);
    }
  }
}

// Of a CUDA program.
TEST_P(Select, ASizeIsFoundOnTheHost) {
  for (Mode mode : kEvery) {
    Graph g;
    Variable total("total", Tensor::scalar(0.0f));
    Value x = g.input("x", f32, {16});
    const Padded places = flat_nonzero(greater(x, 0.0, on_cpu), next_power_of_two(), on_cpu);
    const Padded chosen = gather(x, places);
    const Padded large = masked_select(chosen.values, greater(chosen.values, 1.0));
    assign(total, g.value(total) + sum(large));
    Program p = compile(g);
    std::mt19937 random(6);
    double wanted = 0;
    for (int step = 0; step < 10; ++step) {
      const std::vector<float> values = draw(random, 16, 1 + step % 3);
      for (float value : values) wanted += value > 1 ? double{value} : 0;
      p.write(x, values);
      p.run(mode);
    }
    EXPECT_EQ(total.read().at(0), wanted) << to_string(mode);
    EXPECT_EQ(p.steps(), 10);
  }
}

// The second of three steps that are issued at once finds another size on one side, and the third, which is issued
// behind it and does not count, another one on the other side.
TEST_P(Select, StepsBehindTheOneThatFindsAnotherSizeFindNone) {
  for (const bool is_host_first : {false, true}) {
    for (Mode mode : kEvery) {
      SCOPED_TRACE(std::string(to_string(mode)) + (is_host_first ? ", the host first" : ", the device first"));
      Graph g;
      Value x = g.feed("x", f32, {8}), y = g.feed("y", f32, {8});
      auto on_host = [&] { return flat_nonzero(greater(x, 0.0, on_cpu), {}, on_cpu); };
      // The node with the smaller number is the one that the last step must not choose.
      const Padded first = is_host_first ? flat_nonzero(greater(y, 0.0)) : on_host();
      const Padded second = is_host_first ? on_host() : flat_nonzero(greater(y, 0.0));
      const Padded &of_x = is_host_first ? second : first, &of_y = is_host_first ? first : second;
      g.record("x", sum(cast(of_x.values, f32) + 1.0) + cast(of_x.count, f32));
      g.record("y", sum(cast(of_y.values, f32) + 1.0) + cast(of_y.count, f32));
      Program p = compile(g, {.tuning = {.capture_after = 1}});
      auto ones = [](std::vector<int> counts) {
        Tensor rows(f32, {static_cast<std::int64_t>(counts.size()), 8});
        for (std::size_t k = 0; k < counts.size(); ++k)
          for (int i = 0; i < counts[k]; ++i) rows.as<float>()[k * 8 + static_cast<std::size_t>(i)] = 1;
        return rows;
      };
      const std::vector<int> changes_first{1, 3, 3}, changes_last{2, 2, 5};
      const std::vector<int>&counts_x = is_host_first ? changes_first : changes_last,
            &counts_y = is_host_first ? changes_last : changes_first;
      std::vector<double> wanted_x, wanted_y;
      for (int run = 0; run < 3; ++run) {
        p.write(x, ones(counts_x));
        p.write(y, ones(counts_y));
        p.run(mode, {.steps = 3});
        for (int n : counts_x) wanted_x.push_back(n * (n + 1) / 2 + n);
        for (int n : counts_y) wanted_y.push_back(n * (n + 1) / 2 + n);
      }
      EXPECT_EQ(p.records<double>("x"), wanted_x);
      EXPECT_EQ(p.records<double>("y"), wanted_y);
    }
  }
}

TEST_P(Select, GuardsLookAtSuchPrograms) {
  Graph g;
  Variable total("total", Tensor::scalar(0.0f));
  Value x = g.input("x", f32, {16});
  const Padded chosen = masked_select(x, greater(x, 0.0));
  assign(total, g.value(total) + sum(chosen));
  Program p =
      compile(g, {.tuning = {.capture_after = 1}, .guards = {.poison = true, .replay_every = 2, .arguments = true}});
  std::mt19937 random(4);
  double wanted = 0;
  for (int step = 0; step < 12; ++step) {
    const std::vector<float> values = draw(random, 16, 1 + step % 3);
    for (float value : values) wanted += double{value};
    p.write(x, values);
    p.run(sink);
  }
  EXPECT_EQ(total.read().at(0), wanted);
}

// --- what is made of places

TEST_P(Select, UniqueElements) {
  for (const Sized& sized : kSizes) {
    for (Mode mode : kModes) {
      SCOPED_TRACE(std::string(sized.name) + ", " + std::string(to_string(mode)));
      Graph g;
      Value x = g.input("x", f32, {5, 4});
      const Unique found = unique(x, sized.size);
      g.output("values", found.values.values);
      g.output("count", found.values.count);
      g.output("counts", found.counts);
      g.output("inverse", found.inverse);
      Program p = compile(g);
      std::mt19937 random(5);
      for (int most : {0, 3, 7, 19, 3}) {
        const std::vector<float> values = draw(random, 20, most);
        p.write(x, values);
        p.run(mode);
        std::map<float, int> counts;
        for (float value : values) ++counts[value];
        const auto rows = static_cast<std::size_t>(sized.rows(static_cast<std::int64_t>(counts.size())));
        std::vector<double> wanted, wanted_counts, wanted_inverse;
        for (auto [value, count] : counts) wanted.push_back(double{value}), wanted_counts.push_back(count);
        for (float value : values)
          wanted_inverse.push_back(static_cast<double>(std::distance(counts.begin(), counts.find(value))));
        wanted.resize(rows), wanted_counts.resize(rows);
        ASSERT_EQ(p.output("count").at(0), static_cast<double>(counts.size()));
        ASSERT_EQ(numbers_of(p.output("values")), wanted);
        ASSERT_EQ(numbers_of(p.output("counts")), wanted_counts);
        ASSERT_EQ(numbers_of(p.output("inverse")), wanted_inverse);
        ASSERT_EQ(p.output("inverse").type().shape, Shape({5, 4}));
      }
    }
  }
}

TEST_P(Select, PaddingHasNoPartInResultsAndGradients) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  Graph g;
  Variable table("table", Tensor(f32, {3, 2}));
  Value x = g.input("x", f32, {4, 2}), count = g.input("count", i32, {}), indices = g.input("indices", i32, {4});
  const Padded rows{x * 1.0, count}, places{indices, count};
  Value all = sum(rows), average = mean(rows);
  const Padded weights = softmax(rows);
  Value added = scatter_add(g.value(table), places, rows.values);
  const Padded gathered = gather(g.value(table) + 1.0, places);
  g.output("sum", all);
  g.output("mean", average);
  g.output("softmax", weights.values);
  g.output("added", added);
  g.output("gathered", gathered.values);
  g.output("mask", valid_mask(rows));
  Value loss = sum(all + average) + sum(weights.values * 3.0) + sum(added * added) + sum(gathered.values * 2.0);
  const std::vector<Value> gradients = grad(loss, {x, g.value(table)});
  g.output("gradient of x", gradients[0]);
  g.output("gradient of table", gradients[1]);
  Program p = compile(g);
  p.write(x, std::vector<float>{1, 2, 3, 4, nan, nan, nan, nan});
  p.write(count, std::vector<std::int32_t>{2});
  p.write(indices, std::vector<std::int32_t>{2, 1, -5, 99});
  for (Mode mode : kModes) {
    p.run(mode);
    EXPECT_EQ(numbers_of(p.output("sum")), (std::vector<double>{4, 6}));
    EXPECT_EQ(numbers_of(p.output("mean")), (std::vector<double>{2, 3}));
    EXPECT_EQ(numbers_of(p.output("mask")), (std::vector<double>{1, 1, 0, 0}));
    EXPECT_EQ(numbers_of(p.output("added")), (std::vector<double>{0, 0, 3, 4, 1, 2}));
    EXPECT_EQ(numbers_of(p.output("gathered")), (std::vector<double>{1, 1, 1, 1, 0, 0, 0, 0}));
    const std::vector<double> weight = numbers_of(p.output("softmax"));
    EXPECT_NEAR(weight[0], 1 / (1 + std::exp(2.0)), 1e-6);
    EXPECT_NEAR(weight[0] + weight[2], 1, 1e-6);
    for (std::size_t i = 4; i < 8; ++i) EXPECT_EQ(weight[i], 0);
    const std::vector<double> of_x = numbers_of(p.output("gradient of x"));
    for (std::size_t i = 0; i < 4; ++i) EXPECT_NEAR(of_x[i], 1.5 + 2.0 * static_cast<double>(i + 1), 1e-5) << i;
    for (std::size_t i = 4; i < 8; ++i) EXPECT_EQ(of_x[i], 0) << i;
    EXPECT_EQ(numbers_of(p.output("gradient of table")), (std::vector<double>{0, 0, 8, 10, 4, 6}));
  }
  p.write(count, std::vector<std::int32_t>{0});
  p.run();
  EXPECT_EQ(numbers_of(p.output("sum")), (std::vector<double>{0, 0}));
  EXPECT_TRUE(std::isnan(p.output("mean").at(0)));
  EXPECT_EQ(numbers_of(p.output("softmax")), std::vector<double>(8, 0.0));
}

TEST_P(Select, GradientsGoToWhatWasSelected) {
  for (const Sized& sized : kSizes) {
    Graph g;
    Value x = g.input("x", f32, {6});
    const Padded chosen = masked_select(x, greater(x, 1.0), sized.size);
    g.output("gradient", grad(sum(chosen.values * chosen.values), {x})[0]);
    const Unique different = unique(x, sized.size);
    g.output("gradient of unique", grad(sum(different.values.values * 3.0), {x})[0]);
    Program p = compile(g);
    p.write(x, std::vector<float>{3, 0, 2, 0, 1, 3});
    p.run();
    EXPECT_EQ(numbers_of(p.output("gradient")), (std::vector<double>{6, 0, 4, 0, 0, 6})) << sized.name;
    EXPECT_EQ(numbers_of(p.output("gradient of unique")), (std::vector<double>{3, 3, 3, 0, 3, 0})) << sized.name;
  }
}

TEST_P(Select, TopPDrawsFromTheMostProbable) {
  constexpr int kRows = 400;
  const std::vector<double> probabilities{0.05, 0.4, 0.3, 0.1, 0.15};
  Tensor logits(f32, {kRows, 5});
  for (std::size_t i = 0; i < kRows * 5; ++i)
    logits.as<float>()[i] = static_cast<float>(std::log(probabilities[i % 5]));
  for (auto [p, classes] : {std::pair{0.3, 1}, {0.5, 2}, {0.8, 3}, {0.9, 4}, {1.0, 5}}) {
    Graph g;
    Value x = g.input("x", f32, {kRows, 5});
    g.output("drawn", sample_top_p(x, p));
    Program program = compile(g, {.seed = 3});
    program.write(x, logits);
    std::map<int, int> seen;
    for (int step = 0; step < 5; ++step) {
      program.run(step < 2 ? interactive_serial : sink);
      for (double choice : numbers_of(program.output("drawn"))) ++seen[static_cast<int>(choice)];
    }
    const std::vector<int> order{1, 2, 4, 3, 0};
    double kept = 0;
    for (int k = 0; k < classes; ++k)
      kept += probabilities[static_cast<std::size_t>(order[static_cast<std::size_t>(k)])];
    EXPECT_EQ(seen.size(), static_cast<std::size_t>(classes)) << p;
    for (int k = 0; k < classes; ++k) {
      const int choice = order[static_cast<std::size_t>(k)];
      EXPECT_NEAR(seen[choice] / 2000.0, probabilities[static_cast<std::size_t>(choice)] / kept, 0.05) << p;
    }
  }
}

TEST_P(Select, TemperatureSharpens) {
  Graph g;
  Value x = g.input("x", f32, {1, 4});
  g.output("drawn", sample_top_p(x, 1, {.temperature = 0.01}));
  Program p = compile(g);
  p.write(x, std::vector<float>{1, 2, 4, 3});
  for (int i = 0; i < 10; ++i) {
    p.run();
    EXPECT_EQ(p.output("drawn").at(0), 2);
  }
}

TEST_P(Select, InBranchesAndLoops) {
  for (Mode mode : kModes) {
    Graph g;
    Value x = g.input("x", f32, {8});
    Value is_positive = greater(sum(x), 0.0);
    Value branch = if_(
        is_positive, [&] { return sum(masked_select(x, greater(x, 0.0), next_power_of_two())); },
        [&] { return sum(x * 0.0) - 1.0; });
    // Each iteration adds the elements above its number; their count changes.
    auto [total, above] = while_(
        {Arg(sum(x) * 0.0), Arg(0.0)}, [&](Value, Value limit) { return less(limit, 4.0); },
        [&](Value sum_so_far, Value limit) {
          Value some = sum(masked_select(x, greater(x, limit), 8));
          return std::array<Value, 2>{sum_so_far + some, limit + 1.0};
        });
    (void)above;
    g.output("branch", branch);
    g.output("total", total);
    Program p = compile(g);
    for (const std::vector<float>& values :
         {std::vector<float>{1, -2, 3, 0, 2, 0, 1, 1}, {-1, 0, 0, 0, 0, 0, 0, 0}, {4, 4, 4, 4, 4, 4, 4, 4}}) {
      p.write(x, values);
      p.run(mode);
      double positive = 0, all = 0, wanted = 0;
      for (float value : values) {
        all += double{value};
        if (value > 0) positive += double{value};
        for (int limit = 0; limit < 4; ++limit)
          if (value > static_cast<float>(limit)) wanted += double{value};
      }
      EXPECT_EQ(p.output("branch").at(0), all > 0 ? positive : -1);
      EXPECT_EQ(p.output("total").at(0), wanted);
    }
  }
}

TEST(SelectNow, AnEagerKnowsTheSize) {
  Eager eager;
  Value x = eager.tensor({3, 0, 2, 3, 0, 1});
  EXPECT_EQ(numbers_of(Eager::read(flat_nonzero(x).values)), (std::vector<double>{0, 2, 3, 5}));
  EXPECT_EQ(numbers_of(Eager::read(nonzero(x, multiples_of(3)).values)), (std::vector<double>{0, 2, 3, 5, 0, 0}));
  EXPECT_EQ(numbers_of(Eager::read(masked_select(x, greater(x, 1.0), 4).values)), (std::vector<double>{3, 2, 3, 0}));
  const Unique different = unique(x);
  EXPECT_EQ(numbers_of(Eager::read(different.values.values)), (std::vector<double>{0, 1, 2, 3}));
  EXPECT_EQ(numbers_of(Eager::read(different.counts)), (std::vector<double>{2, 1, 1, 2}));
  EXPECT_TRUE(contains(message_of([&] { flat_nonzero(x, 2); }), "found 4 elements"));
  EXPECT_TRUE(contains(message_of([&] { flat_nonzero(x, one_of({1, 2})); }), "found 4 elements"));
}

// --- what is refused

struct Refusal {
  const char* name;
  std::function<void(Graph&, Value)> act;  // x: f32 [4]
  std::vector<const char*> words;
};
void PrintTo(const Refusal& row, std::ostream* out) { *out << row.name; }

void effect(const CpuArgs&) {}
const OpDef effect_op{
    .name = "effect", .infer = [](InferArgs&) {}, .traits = {.host_effect = true}, .bodies = {effect}};

const Refusal kRefusals[] = {
    {"NegativeBound", [](Graph&, Value x) { nonzero(x, -1); }, {"nonzero", "-1", "at least 0"}},
    {"Scalar", [](Graph&, Value x) { nonzero(sum(x)); }, {"nonzero", "scalar", "reshape()"}},
    {"MaskOfNumbers", [](Graph&, Value x) { masked_select(x, x); }, {"masked_select", "f32[4]", "booleans"}},
    {"MaskOfAnotherShape",
     [](Graph& g, Value x) { masked_select(x, g.input("mask", boolean, {3})); },
     {"masked_select", "f32[4]", "bool[3]", "broadcast"}},
    {"InALoop",
     [](Graph&, Value x) {
       while_(
           {Arg(sum(x))}, [](Value i) { return less(i, 3.0); },
           [&](Value i) { return std::array<Value, 1>{i + sum(masked_select(x, greater(x, i)))}; });
     },
     {"masked_select", "in a loop", "upper bound"}},
    {"WithAnEffect",
     [](Graph& g, Value x) {
       emit(effect_op, {x});
       g.output("places", nonzero(x).values);
       compile(g);
     },
     {"effect", "twice", "upper bound", "repeatable"}},
    {"EmptyPadded", [](Graph&, Value) { valid_mask(Padded{}); }, {"valid_mask", "select_test.cpp", "empty Padded"}},
    {"SumOfAScalar",
     [](Graph&, Value x) {
       sum(Padded{sum(x), sum(x)});
     },
     {"sum", "scalar", "first axis"}},
    {"MeanOfIntegers",
     [](Graph& g, Value) { mean(flat_nonzero(g.input("y", i32, {3}), 2)); },
     {"mean", "not of floats", "cast()"}},
    {"TopPOfAVector", [](Graph&, Value x) { sample_top_p(x, 0.5); }, {"sample_top_p", "f32[4]", "[n, classes]"}},
    {"TopPOfNothing", [](Graph&, Value x) { sample_top_p(unsqueeze(x, 0), 0); }, {"sample_top_p", "p is 0", "above 0"}},
    {"TopPAtZeroTemperature",
     [](Graph&, Value x) { sample_top_p(unsqueeze(x, 0), 0.5, {.temperature = 0}); },
     {"sample_top_p", "temperature is 0", "argmax()"}},
};

class SelectRefusal : public ::testing::TestWithParam<Refusal> {};
INSTANTIATE_TEST_SUITE_P(All, SelectRefusal, ::testing::ValuesIn(kRefusals),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_P(SelectRefusal, SaysWhy) {
  Graph g;
  Value x = g.input("x", f32, {4});
  const std::string message = message_of([&] { GetParam().act(g, x); });
  for (const char* word : GetParam().words) EXPECT_TRUE(contains(message, word)) << message;
}

// A random op that does not keep to the step: a step that runs again finds another size each time.
void restless(const CpuArgs& a) {
  static int calls = 0;
  std::fill_n(a.out<float>(0), 64, 0.0f);
  std::fill_n(a.out<float>(0), ++calls % 64, 1.0f);
}
const OpDef restless_op{
    .name = "restless", .infer = [](InferArgs& a) { a.out(DType::f32, {64}); }, .bodies = {restless}};

TEST_P(Select, SizesThatNeverSettleAreToldOf) {
  Graph g;
  Value x = g.input("x", f32, {1});
  g.output("places", flat_nonzero(emit(restless_op, {x})[0]).values);
  Program p = compile(g);
  p.write(x, std::vector<float>{0});
  const std::string message = message_of([&] {
    for (int i = 0; i < 3; ++i) p.run();
  });
  for (const char* word : {"another size each time", "upper bound"}) EXPECT_TRUE(contains(message, word)) << message;
}

}  // namespace
}  // namespace graphsink::select_test
