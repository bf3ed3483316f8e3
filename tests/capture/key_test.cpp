// Key: which keys are equal, and how they read.
#include "graphsink/key.h"

#include <gtest/gtest.h>

#include <array>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace key_test {
namespace {

using graphsink::Key;

enum class Phase : std::uint8_t { train, evaluate };

struct Batch {
  int rows;
  std::string name;
};
Key to_key(const Batch& batch) { return Key{batch.rows, batch.name}; }

TEST(KeyTest, IsComparedPartByPart) {
  EXPECT_EQ(Key(1, 2), Key(1, 2));
  EXPECT_NE(Key(1, 2), Key(2, 1));
  EXPECT_NE(Key(1, 2), Key(1, 2, 0));
  EXPECT_NE(Key(), Key(0));
  EXPECT_EQ(Key(), Key{});
}

TEST(KeyTest, IntegersCompareByValueWhateverTheirTypes) {
  EXPECT_EQ(Key(7), Key(std::uint8_t{7}));
  EXPECT_EQ(Key(7), Key(std::size_t{7}));
  EXPECT_EQ(Key(-1), Key(std::int64_t{-1}));
  EXPECT_NE(Key(-1), Key(~std::uint64_t{0}));
  EXPECT_EQ(Key(true), Key(1));
  EXPECT_EQ(Key(Phase::evaluate), Key(1));
  EXPECT_EQ(Key(-1), Key(static_cast<signed char>(-1)));
}

TEST(KeyTest, KindsOfPartsAreToldApart) {
  const int number = 0;
  const auto address = reinterpret_cast<std::uintptr_t>(&number);
  EXPECT_NE(Key(&number), Key(address));
  EXPECT_NE(Key("1"), Key(1));
  EXPECT_NE(Key(nullptr), Key(0));
  EXPECT_NE(Key(std::vector{1, 2}), Key(1, 2));
  EXPECT_NE(Key(std::vector{1, 2}, 3), Key(std::vector{1}, 2, 3));
  EXPECT_NE(Key(Key(1), 2), Key(1, 2));
  EXPECT_NE(Key(Key(1), 2), Key(Key(1, 2)));
}

TEST(KeyTest, StringsCompareByTheirText) {
  const std::string text = "decode";
  EXPECT_EQ(Key(text), Key("decode"));
  EXPECT_EQ(Key(std::string_view(text)), Key(text.c_str()));
  EXPECT_NE(Key("ab", "c"), Key("a", "bc"));
  EXPECT_NE(Key(std::string("a\0", 2)), Key("a"));
  EXPECT_NE(Key("12345678"), Key("123456789"));
  EXPECT_NE(Key(std::string(200, 'x')), Key(std::string(199, 'x') + 'y'));
}

TEST(KeyTest, LongKeysAreComparedInFull) {
  std::vector<int> many(100, 5), other = many;
  EXPECT_EQ(Key(many), Key(std::span<const int>(other)));
  other.back() = 6;
  EXPECT_NE(Key(many), Key(other));
  EXPECT_TRUE((Key(many) < Key(other)) != (Key(other) < Key(many)));
}

TEST(KeyTest, OrdersLikeAStrictWeakOrder) {
  const std::array keys = {Key(), Key(1), Key(2), Key(1, 1), Key("a"), Key(std::string(100, 'a')), Key(std::vector{1})};
  std::map<Key, int> numbers;
  for (const Key& key : keys) ++numbers[key];
  EXPECT_EQ(numbers.size(), keys.size());
  for (const Key& key : keys) EXPECT_EQ(numbers.at(key), 1);
}

TEST(KeyTest, OwnTypesArePartsOfKeys) {
  EXPECT_EQ(Key(Batch{3, "a"}, 1), Key(Key(3, "a"), 1));
  EXPECT_NE(Key(Batch{3, "a"}), Key(Batch{3, "b"}));
  EXPECT_NE(Key(std::vector{Batch{3, "a"}}), Key(std::vector{Batch{4, "a"}}));
}

TEST(KeyTest, ReadsAsOneLine) {
  EXPECT_EQ(to_string(Key(std::string("a\0b\n", 4), "\xff")), R"({"a\x00b\n", "\xff"})");
}

TEST(KeyTest, ReadsAsItsParts) {
  EXPECT_EQ(to_string(Key()), "{}");
  EXPECT_EQ(to_string(Key(32, -1, "decode", nullptr)), R"({32, -1, "decode", 0x0})");
  EXPECT_EQ(to_string(Key(reinterpret_cast<const int*>(0x7f00ab), ~std::uint64_t{0})),
            "{0x7f00ab, 18446744073709551615}");
  EXPECT_EQ(to_string(Key(std::vector{1, 2}, std::vector<int>{}, Batch{3, "long enough for more than a word"}, true)),
            R"({[1, 2], [], {3, "long enough for more than a word"}, 1})");
}

}  // namespace
}  // namespace key_test
