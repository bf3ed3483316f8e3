// Which attributes are equal, and what a visitor sees of them.
#include "graphsink/fields.h"

#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <string>

#include "base/number_text.h"
#include "graphsink/op.h"

namespace graphsink::fields_test {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

enum class Side : std::uint8_t { left, right };
std::string to_string(Side side) { return side == Side::left ? "left" : "right"; }
enum class Level : std::uint8_t { low = 3, high = 7 };

struct Scale {
  double factor = 0;
  float bias = 0;
  static auto fields(auto& s) { return std::tie("factor", s.factor, "bias", s.bias); }
};
struct All {
  bool is = false;
  int axis = 0;
  std::string text;
  Side side = Side::left;
  Level level = Level::low;
  std::vector<double> numbers;
  std::array<std::int64_t, 2> pair{};
  std::optional<DType> dtype;
  std::optional<double> rate;
  std::vector<Scale> scales;
  static auto fields(auto& s) {
    return std::tie("is", s.is, "axis", s.axis, "text", s.text, "side", s.side, "level", s.level, "numbers", s.numbers,
                    "pair", s.pair, "dtype", s.dtype, "rate", s.rate, "scales", s.scales);
  }
};
struct Shaped {
  Shape shape;
  half small{};
  int matrix[2][2] = {};
  static auto fields(auto& s) { return std::tie("shape", s.shape, "small", s.small, "matrix", s.matrix); }
};
// Names its fields, which alone count.
struct Both {
  double x = 0;
  static auto fields(auto& s) { return std::tie("x", s.x); }
  friend bool operator==(const Both&, const Both&) { return true; }
};
struct OnlyEquality {
  int x = 0, ignored = 0;
  friend bool operator==(const OnlyEquality& a, const OnlyEquality& b) { return a.x == b.x; }
};
struct Neither {
  int x = 0;
};
struct Empty {};
struct OtherEmpty {};
struct OfNeither {
  Neither x;
  static auto fields(auto& s) { return std::tie("x", s.x); }
};

// An All with one change.
Attrs all_with(const std::function<void(All&)>& change) {
  All all;
  change(all);
  return all;
}

struct Row {
  const char* name;
  std::function<Attrs()> a, b;
  bool are_equal;
};
const Row kRows[] = {
    {"None", [] { return Attrs(); }, [] { return Attrs(); }, true},
    {"OneOfTwo", [] { return Attrs(); }, [] { return Attrs(Empty()); }, false},
    {"ZerosOfBothSigns", [] { return Scale{0.0}; }, [] { return Scale{-0.0}; }, false},
    {"FloatZerosOfBothSigns",
     [] {
       return Scale{1, 0.0f};
     },
     [] {
       return Scale{1, -0.0f};
     },
     false},
    {"HalfZerosOfBothSigns",
     [] {
       return Shaped{{}, half(0.0f)};
     },
     [] {
       return Shaped{{}, half(-0.0f)};
     },
     false},
    {"NanIsItself", [] { return Scale{kNan}; }, [] { return Scale{kNan}; }, true},
    {"NanOfBothSigns", [] { return Scale{kNan}; }, [] { return Scale{-kNan}; }, false},
    {"Defaults", [] { return All(); }, [] { return All(); }, true},
    {"Bools", [] { return All(); }, [] { return all_with([](All& s) { s.is = true; }); }, false},
    {"Integers", [] { return All(); }, [] { return all_with([](All& s) { s.axis = 1; }); }, false},
    {"Texts", [] { return All(); }, [] { return all_with([](All& s) { s.text = "a"; }); }, false},
    {"Enums", [] { return All(); }, [] { return all_with([](All& s) { s.side = Side::right; }); }, false},
    {"LengthsOfLists", [] { return All(); }, [] { return all_with([](All& s) { s.numbers = {0}; }); }, false},
    {"ZerosInLists", [] { return all_with([](All& s) {
                            s.numbers = {1, 0.0};
                          }); },
     [] { return all_with([](All& s) {
            s.numbers = {1, -0.0};
          }); }, false},
    {"NansInLists", [] { return all_with([](All& s) {
                           s.numbers = {1, kNan};
                         }); },
     [] { return all_with([](All& s) {
            s.numbers = {1, kNan};
          }); }, true},
    {"Arrays", [] { return All(); }, [] { return all_with([](All& s) { s.pair[1] = 1; }); }, false},
    {"ArraysOfC", [] { return Shaped(); },
     [] {
       return Shaped{{}, {}, {{0, 0}, {0, 1}}};
     },
     false},
    {"Shapes",
     [] {
       return Shaped{{2, 3}};
     },
     [] {
       return Shaped{{3, 2}};
     },
     false},
    {"OneOptional", [] { return All(); }, [] { return all_with([](All& s) { s.rate = 0.0; }); }, false},
    {"ZerosInOptionals", [] { return all_with([](All& s) { s.rate = 0.0; }); },
     [] { return all_with([](All& s) { s.rate = -0.0; }); }, false},
    {"NansInOptionals", [] { return all_with([](All& s) { s.rate = kNan; }); },
     [] { return all_with([](All& s) { s.rate = kNan; }); }, true},
    {"StructsInLists", [] { return all_with([](All& s) {
                              s.scales = {{1}, {2}};
                            }); },
     [] { return all_with([](All& s) {
            s.scales = {{1}, {2}};
          }); }, true},
    {"ZerosInStructsInLists", [] { return all_with([](All& s) { s.scales = {{0.0}}; }); },
     [] { return all_with([](All& s) { s.scales = {{-0.0}}; }); }, false},
    {"FieldsBeforeEquality", [] { return Both{0.0}; }, [] { return Both{-0.0}; }, false},
    {"OnlyEquality",
     [] {
       return OnlyEquality{1, 2};
     },
     [] {
       return OnlyEquality{1, 3};
     },
     true},
    {"OnlyEqualityDiffers",
     [] {
       return OnlyEquality{1, 2};
     },
     [] {
       return OnlyEquality{2, 2};
     },
     false},
    {"Neither", [] { return Neither{1}; }, [] { return Neither{1}; }, false},
    {"AFieldWithNeither", [] { return OfNeither{{1}}; }, [] { return OfNeither{{1}}; }, false},
    {"Empty", [] { return Empty(); }, [] { return Empty(); }, true},
    {"OtherTypes", [] { return Empty(); }, [] { return OtherEmpty(); }, false},
};

class Fields : public ::testing::TestWithParam<Row> {};
TEST_P(Fields, AreComparedBitForBit) {
  const Attrs a = GetParam().a(), b = GetParam().b(), copy = a;
  EXPECT_EQ(a == b, GetParam().are_equal);
  EXPECT_EQ(b == a, GetParam().are_equal);
  EXPECT_TRUE(a == copy);
}
INSTANTIATE_TEST_SUITE_P(All, Fields, ::testing::ValuesIn(kRows), [](const auto& info) { return info.param.name; });

// Writes what it receives, and takes two elements of each list.
class Text final : public FieldVisitor {
 public:
  std::string text;
  void name(std::string_view name) override { text += std::string(name) + "="; }
  void value(bool is) override { text += is ? "true " : "false "; }
  void value(std::int64_t number) override { text += std::to_string(number) + " "; }
  void value(std::uint64_t number) override { text += std::to_string(number) + "u "; }
  void value(double number) override { text += "float " + number_text(number) + " "; }
  void value(std::string_view is) override { text += "'" + std::string(is) + "' "; }
  void no_value() override { text += "none "; }
  void begin_struct() override { text += "{"; }
  void end_struct() override { text += "} "; }
  std::size_t begin_list(std::size_t size) override {
    text += "[";
    return std::min<std::size_t>(size, 2);
  }
  void end_list(std::size_t size) override { text += "of " + std::to_string(size) + "] "; }
};
std::string text_of(const Attrs& attrs) {
  Text visitor;
  attrs.visit_fields(visitor);
  EXPECT_EQ(attrs.has_fields(), !visitor.text.empty());
  return visitor.text;
}

struct Unsigned {
  std::uint64_t seed;
  static auto fields(auto& s) { return std::tie("seed", s.seed); }
};

TEST(Fields, AreVisitedInTheirOrder) {
  EXPECT_EQ(text_of(Unsigned{~std::uint64_t{0}}), "seed=18446744073709551615u ");
  EXPECT_EQ(text_of(All{true, -1, "a", Side::right, Level::high, {1, 2, 3}, {4, 5}, f16, {}, {{0.5, 2}}}),
            "is=true axis=-1 text='a' side='right' level=7 numbers=[float 1 float 2 of 3] "
            "pair=[4 5 of 2] dtype='f16' rate=none scales=[{factor=float 0.5 bias=float 2 } of 1] ");
  EXPECT_EQ(text_of(Shaped{{2, 3}, half(0.5f), {{1, 2}, {3, 4}}}),
            "shape='[2, 3]' small=float 0.5 matrix=[[1 2 of 2] [3 4 of 2] of 2] ");
  EXPECT_EQ(text_of(OfNeither{}), "x=none ");
  EXPECT_EQ(text_of(Attrs()), "");
  EXPECT_EQ(text_of(Empty()), "");
  EXPECT_EQ(text_of(OnlyEquality()), "");
}

}  // namespace
}  // namespace graphsink::fields_test
