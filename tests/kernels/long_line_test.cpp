// Ops along lines that are too long for one block of a GPU: the bits of their elements, equal elements, and where in a
// graph they stand.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>

#include "test_ops.h"

namespace graphsink::long_line_test {
namespace {

class LongLines : public ::testing::TestWithParam<DeviceId> {
 protected:
  // The bits that are sorted are those of denormal numbers, too.
  Program compile(const Graph& g) { return graphsink::compile(g, {.target = GetParam(), .flush_denormals = false}); }
};
std::string device_name(const ::testing::TestParamInfo<DeviceId>& info) {
  return info.param.kind == DeviceKind::cpu ? "cpu" : "cuda";
}
INSTANTIATE_TEST_SUITE_P(Devices, LongLines, ::testing::ValuesIn(testing::devices()), device_name);

// Calls body.operator()<T, Bits>() with an element type that can be sorted and the unsigned type of its size.
template <class Body>
void for_each_type(const Body& body) {
  body.template operator()<float, std::uint32_t>();
  body.template operator()<double, std::uint64_t>();
  body.template operator()<half, std::uint16_t>();
  body.template operator()<bfloat16, std::uint16_t>();
  body.template operator()<std::int32_t, std::uint32_t>();
  body.template operator()<std::int64_t, std::uint64_t>();
  body.template operator()<std::uint8_t, std::uint8_t>();
}

// Any bits, so that floats of every size and NaNs of many kinds occur; every second element is one of few, so that many
// are equal: zeros of both signs, infinities, NaNs, or the ends of the range of an integer.
template <class T, class Bits>
Tensor any_bits(const Shape& shape, unsigned seed) {
  constexpr auto kSign = static_cast<Bits>(Bits{1} << (8 * sizeof(T) - 1)), kAll = static_cast<Bits>(~Bits{0});
  std::vector<Bits> few{0, kSign, 1, static_cast<Bits>(kSign + 1), kAll, static_cast<Bits>(kAll ^ kSign)};
  if constexpr (is_float(dtype_of<T>())) {
    for (double infinity : {std::numeric_limits<double>::infinity(), -std::numeric_limits<double>::infinity()}) {
      T x(static_cast<float>(infinity));
      Bits bits;
      std::memcpy(&bits, &x, sizeof(T));
      few.push_back(bits);
    }
  }
  std::mt19937_64 random(seed);
  Tensor tensor(dtype_of<T>(), shape);
  for (std::int64_t i = 0; i < shape.size(); ++i) {
    auto bits = static_cast<Bits>(i % 2 ? few[random() % few.size()] : random());
    std::memcpy(tensor.data() + static_cast<std::size_t>(i) * sizeof(T), &bits, sizeof(T));
  }
  return tensor;
}

template <class T>
bool is_nan(T x) {
  return x != x;
}
template <class T>
bool precedes(T x, T y, bool descends) {
  return descends ? x > y || (is_nan(x) && !is_nan(y)) : x < y || (!is_nan(x) && is_nan(y));
}

// The elements of each line along `axis` in order, and their places.
template <class T>
struct SortedLines {
  SortedLines(const Tensor& x, int axis, bool descends) : values(x.type()), places(i32, x.shape()) {
    std::int64_t length = x.shape()[axis], inner = 1;
    for (int d = axis + 1; d < x.shape().rank(); ++d) inner *= x.shape()[d];
    const T* from = x.as<T>().data();
    for (std::int64_t first = 0; first < x.shape().size(); first += inner * length) {
      for (std::int64_t column = first; column < first + inner; ++column) {
        std::vector<std::int32_t> order(static_cast<std::size_t>(length));
        std::iota(order.begin(), order.end(), 0);
        std::stable_sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
          return precedes(from[column + a * inner], from[column + b * inner], descends);
        });
        for (std::int64_t i = 0; i < length; ++i) {
          std::int32_t place = order[static_cast<std::size_t>(i)];
          values.as<T>().data()[column + i * inner] = from[column + place * inner];
          places.as<std::int32_t>().data()[column + i * inner] = place;
        }
      }
    }
  }
  Tensor values, places;
};

void expect_same_bits(const Tensor& seen, const Tensor& wanted) {
  ASSERT_EQ(to_string(seen.type()), to_string(wanted.type()));
  auto size = size_of(wanted.dtype());
  for (std::size_t i = 0; i < wanted.bytes(); ++i)
    ASSERT_EQ(seen.data()[i], wanted.data()[i])
        << "element " << i / size << ": " << seen.at(static_cast<std::int64_t>(i / size)) << ", not "
        << wanted.at(static_cast<std::int64_t>(i / size));
}

struct LinesCase {
  Shape shape;
  int axis;
};

// As long as a block sorts, and a little longer; one line, several, and lines whose elements are not neighbours.
TEST_P(LongLines, AreSortedWithTheirBitsAndEqualsInOrder) {
  const LinesCase cases[] = {{{2047}, 0},    {{2048}, 0},       {{2049}, 0},    {{20000}, 0},
                             {{3, 2049}, 1}, {{2, 2100, 3}, 1}, {{4097, 5}, 0}, {{17, 2050}, 1}};
  unsigned seed = 0;
  for_each_type([&]<class T, class Bits>() {
    for (const auto& [shape, axis] : cases) {
      Tensor data = any_bits<T, Bits>(shape, ++seed);
      for (bool descends : {false, true}) {
        SCOPED_TRACE(to_string(data.type()) + (descends ? " descends" : ""));
        Graph g;
        Sorted sorted = sort(g.constant(data), axis, {descends});
        g.output("values", sorted.values);
        g.output("places", sorted.indices);
        Program p = compile(g);
        p.run(interactive);
        SortedLines<T> wanted(data, axis, descends);
        expect_same_bits(p.output("values"), wanted.values);
        expect_same_bits(p.output("places"), wanted.places);
      }
    }
  });
}

// The last case has so many lines that each has a block of a GPU.
TEST_P(LongLines, TopKChoosesWhatSortPutsFirst) {
  const LinesCase cases[] = {{{2049}, 0}, {{2, 2049, 2}, 1}, {{3, 5000}, 1}, {{130, 2049}, 1}};
  unsigned seed = 0;
  for_each_type([&]<class T, class Bits>() {
    for (const auto& [shape, axis] : cases) {
      if (shape[0] == 130 && sizeof(T) > 1) continue;  // it takes long
      Tensor data = any_bits<T, Bits>(shape, ++seed);
      SCOPED_TRACE(to_string(data.type()));
      Graph g;
      Value x = g.constant(data);
      TopK top = top_k(x, 100, axis);
      Sorted sorted = sort(x, axis, {.descending = true});
      std::vector<Value> values = split(sorted.values, {100, shape[axis] - 100}, axis);
      std::vector<Value> places = split(sorted.indices, {100, shape[axis] - 100}, axis);
      g.output("values", top.values);
      g.output("places", top.indices);
      g.output("first values", values[0]);
      g.output("first places", places[0]);
      Program p = compile(g);
      p.run(interactive);
      expect_same_bits(p.output("values"), p.output("first values"));
      expect_same_bits(p.output("places"), p.output("first places"));
    }
  });
}

TEST_P(LongLines, NoneOrNoElements) {
  for (const Shape& shape : {Shape{0, 3000}, Shape{3, 0}}) {
    Graph g;
    Value x = g.constant(Tensor(f32, shape));
    g.output("values", sort(x, 1).values);
    if (shape[0] == 0) g.output("top", top_k(x, 2, 1).values);
    Program p = compile(g);
    p.run(interactive);
    EXPECT_EQ(p.output("values").shape().size(), 0);
  }
}

// An index behind many good ones.
TEST_P(LongLines, AnIndexOutsideTheAxisFailsTheStep) {
  constexpr std::int32_t kMost = std::numeric_limits<std::int32_t>::max();
  for (std::int64_t rows : {0, 1, 3, 1000}) {
    for (std::int32_t bad : {-1, -kMost - 1, static_cast<std::int32_t>(rows), kMost}) {
      SCOPED_TRACE(std::to_string(rows) + " rows, " + std::to_string(bad));
      std::vector<std::int32_t> indices(3000, rows == 0 ? bad : 0);
      indices[2999] = bad;
      Graph g;
      Value at = g.input("at", i32, {3000});
      Value base = g.constant(Tensor(f32, {rows})), ones = g.constant(Tensor::full(f32, {3000}, 1.0));
      g.output("y", scatter_add(base, at, ones));
      Program p = compile(g);
      p.write(at, indices);
      p.run(interactive);
      EXPECT_THROW(p.sync(), Error);
      if (rows == 0) continue;
      indices[2999] = static_cast<std::int32_t>(rows - 1);
      p.write(at, indices);
      p.run(interactive);
      EXPECT_EQ(p.output("y").at(rows - 1), rows == 1 ? 3000 : 1);
    }
  }
}

// The sums of twice the elements along each line, added up in type Sum.
template <class T, class Sum>
Tensor sums_of_doubles(const Tensor& x, int axis, const CumsumOptions& options) {
  Tensor sums(x.type());
  std::int64_t length = x.shape()[axis], inner = 1;
  for (int d = axis + 1; d < x.shape().rank(); ++d) inner *= x.shape()[d];
  for (std::int64_t line = 0; line < x.shape().size() / length; ++line) {
    Sum sum(0);
    for (std::int64_t k = 0; k < length; ++k) {
      std::int64_t place = options.reverse ? length - 1 - k : k;
      std::int64_t at = (line / inner * length + place) * inner + line % inner;
      Sum before = sum;
      sum += Sum(2) * static_cast<Sum>(x.as<T>().data()[at]);
      sums.as<T>().data()[at] = static_cast<T>(options.exclusive ? before : sum);
    }
  }
  return sums;
}

// Sums of integers wrap. Floats are whole numbers whose sums are exact, so that every order of additions gives the same
// bits. Lengths are around the one from which many blocks share a line, and around whole numbers of their chunks. The
// doubled elements are read by nothing else, so that their sums may take their place.
TEST_P(LongLines, CumsumIsExactWhereSumsAre) {
  const LinesCase cases[] = {{{16383}, 0},    {{16384}, 0},       {{20481}, 0},
                             {{4, 17000}, 1}, {{2, 16400, 2}, 1}, {{16385, 5}, 0}};
  unsigned seed = 0;
  auto check = [&]<class T, class Sum>() {
    for (const auto& [shape, axis] : cases) {
      Tensor data(dtype_of<T>(), shape);
      std::mt19937_64 random(++seed);
      for (T& x : data.as<T>()) x = static_cast<T>(std::is_integral_v<T> ? random() : random() % 100);
      for (CumsumOptions options : {CumsumOptions{false, false}, {true, false}, {false, true}, {true, true}}) {
        SCOPED_TRACE(to_string(data.type()) + (options.exclusive ? " exclusive" : "") +
                     (options.reverse ? " reverse" : ""));
        Graph g;
        Value x = g.input("x", data.dtype(), shape);
        g.output("sums", cumsum(x + x, axis, options));
        Program p = compile(g);
        p.write(x, data);
        p.run(interactive);
        expect_same_bits(p.output("sums"), sums_of_doubles<T, Sum>(data, axis, options));
      }
    }
  };
  check.operator()<std::int32_t, std::uint32_t>();
  check.operator()<std::int64_t, std::uint64_t>();
  check.operator()<float, float>();
  check.operator()<double, double>();
}

// --- where they stand in a graph

constexpr std::int64_t kLines = 2, kLength = 20000, kIndices = 2500, kRows = 7;

// Results of the ops of this file. x is f32 [kLines, kLength]; rows is i32 [kIndices], from 0 to kRows - 1.
Values long_ops(const Value& x, const Value& rows) {
  Sorted sorted = sort(x, 1, {.descending = true});
  TopK top = top_k(x, 7, 1);
  Value updates = reshape(slice(x, {0, 0}, {1, kIndices}), {kIndices});
  Value sums = scatter_add(reshape(slice(x, {1, 0}, {2, kRows}), {kRows}), rows, updates);
  Value places = cumsum(sorted.indices, 1, {.exclusive = true}), floats = cumsum(x, 1, {.reverse = true});
  return {sorted.values, sorted.indices, top.values, top.indices, sums, places, floats};
}

Tensor some_rows(unsigned seed) {
  std::mt19937 random(seed);
  std::vector<std::int32_t> rows(kIndices);
  for (std::int32_t& row : rows) row = static_cast<std::int32_t>(random() % kRows);
  return Tensor({kIndices}, rows);
}

std::string output_name(const char* of, std::size_t i) { return of + std::to_string(i); }

// The first two steps, the second of which is sunk, do not take the branch.
TEST_P(LongLines, InABranchThatIsTakenLate) {
  for (Mode mode : {interactive, sink}) {
    Graph g, alone;
    Value alone_x = alone.input("x", f32, {kLines, kLength}), alone_rows = alone.input("rows", i32, {kIndices});
    Values wanted = long_ops(alone_x, alone_rows);
    Value x = g.input("x", f32, {kLines, kLength}), rows = g.input("rows", i32, {kIndices});
    Value flag = g.input("flag", f32, {});
    Values seen = if_(
        greater(flag, 0.0), [&] { return long_ops(x, rows); },
        [&] {
          Values nothing;
          for (const Value& value : wanted) nothing.push_back(g.constant(Tensor(value.type())));
          return nothing;
        });
    for (std::size_t i = 0; i < seen.size(); ++i) {
      g.output(output_name("y", i), seen[i]);
      alone.output(output_name("y", i), wanted[i]);
    }
    Program p = compile(g), reference = compile(alone);
    for (unsigned step = 0; step < 4; ++step) {
      SCOPED_TRACE("step " + std::to_string(step));
      Tensor data = Tensor::uniform({kLines, kLength}, step, -1, 1);
      p.write(x, data);
      p.write(rows, some_rows(step));
      p.write(flag, Tensor::scalar(step < 2 ? 0.0f : 1.0f));
      p.run(mode);
      if (step < 2) continue;
      reference.write(alone_x, data);
      reference.write(alone_rows, some_rows(step));
      reference.run(interactive);
      for (std::size_t i = 0; i < seen.size(); ++i)
        expect_same_bits(p.output(output_name("y", i)), reference.output(output_name("y", i)));
    }
  }
}

// The iterations of a loop, and the same ops one after the other, in steps with other numbers.
TEST_P(LongLines, InALoop) {
  for (Mode mode : {interactive, sink}) {
    Graph g;
    Value x = g.input("x", f32, {kLines, kLength}), rows = g.input("rows", i32, {kIndices});
    auto next = [&](const Value& state) {
      Values made = long_ops(state, rows);
      Value scale = sum(made[2]) - cast(sum(made[3]), f32) + sum(made[4]);
      return made[0] * cast(made[1], f32) + scale + sin(made[6]) * cast(made[5], f32);
    };
    Value wanted = x;
    for (int i = 0; i < 3; ++i) wanted = next(wanted);
    auto [seen, count] = while_(
        {Arg(x), Arg(0.0)}, [](const Value&, const Value& i) { return less(i, 3.0); },
        [&](const Value& state, const Value& i) {
          return std::array<Value, 2>{next(state), i + 1.0};
        });
    (void)count;
    g.output("seen", seen);
    g.output("wanted", wanted);
    Program p = compile(g);
    for (unsigned step = 0; step < 3; ++step) {
      p.write(x, Tensor::uniform({kLines, kLength}, step, -1, 1));
      p.write(rows, some_rows(step));
      p.run(mode);
      expect_same_bits(p.output("seen"), p.output("wanted"));
    }
  }
}

}  // namespace
}  // namespace graphsink::long_line_test
