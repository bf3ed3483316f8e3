// Tests SlotCache: which slots are kept, and which are destroyed.
#include "exec/capture/slot_cache.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace graphsink::slot_cache_test {
namespace {

struct Slot {
  std::size_t size;
  std::set<std::string>* alive;
  std::string name;

  Slot(std::string is, std::size_t bytes, std::set<std::string>& living)
      : size(bytes), alive(&living), name(std::move(is)) {
    alive->insert(name);
  }
  ~Slot() { alive->erase(name); }
  Slot(const Slot&) = delete;
  Slot& operator=(const Slot&) = delete;
  std::size_t bytes() const { return size; }
};

struct SlotCacheTest : ::testing::Test {
  std::set<std::string> alive;
  SlotCache<std::string, Slot> cache{100};

  Slot& add(const std::string& name, std::size_t bytes) {
    return cache.add(name, std::make_unique<Slot>(name, bytes, alive));
  }
  std::size_t trim(const std::set<std::string>& busy = {}) {
    return cache.trim([&](const Slot& slot) { return busy.contains(slot.name); });
  }
};

using Names = std::set<std::string>;

TEST_F(SlotCacheTest, FindsWhatWasAdded) {
  EXPECT_EQ(cache.find("a"), nullptr);
  Slot& a = add("a", 10);
  add("b", 20);
  EXPECT_EQ(cache.find("a"), &a);
  EXPECT_EQ(cache.find("b")->name, "b");
  EXPECT_EQ(cache.find("c"), nullptr);
  EXPECT_EQ(cache.size(), 2u);
  EXPECT_EQ(cache.bytes(), 30u);
}

TEST_F(SlotCacheTest, NothingGoesWhileAllFit) {
  add("a", 60);
  add("b", 40);
  EXPECT_EQ(trim(), 0u);
  EXPECT_EQ(alive, (Names{"a", "b"}));
  EXPECT_EQ(cache.evicted(), 0u);
}

TEST_F(SlotCacheTest, SomebodyElseMayChooseHowManyStay) {
  add("a", 60);
  add("b", 30);
  EXPECT_EQ(cache.fitting(), 2u);
  add("c", 20);
  EXPECT_EQ(cache.fitting(), 2u);
  cache.find("a");
  EXPECT_EQ(cache.fitting(), 2u) << "those used last: a and c";
  add("d", 200);
  EXPECT_EQ(cache.fitting(), 1u) << "one stays, even if it is too large";
  const auto trim_to = [&](std::size_t most) {
    return cache.trim_to(
        most, [](const Slot&) { return false; }, [](Slot&) {});
  };
  EXPECT_EQ(trim_to(9), 0u);
  EXPECT_EQ(trim_to(2), 2u);
  EXPECT_EQ(alive, (Names{"a", "d"}));
}

TEST_F(SlotCacheTest, TheLeastRecentlyUsedGoFirst) {
  for (const char* name : {"a", "b", "c"}) add(name, 40);
  (void)cache.find("a");
  EXPECT_EQ(trim(), 1u);
  EXPECT_EQ(alive, (Names{"a", "c"}));
  EXPECT_EQ(cache.find("b"), nullptr);
  EXPECT_EQ(cache.bytes(), 80u);
  EXPECT_EQ(cache.evicted(), 1u);
}

TEST_F(SlotCacheTest, WhatIsBusyStaysAndOthersGoInItsPlace) {
  for (const char* name : {"a", "b", "c"}) add(name, 40);
  EXPECT_EQ(trim({"a", "b"}), 1u);
  EXPECT_EQ(alive, (Names{"a", "b"}));
  add("d", 40);
  EXPECT_EQ(trim({"a", "b", "d"}), 0u);  // more than the limit allows
  EXPECT_EQ(cache.bytes(), 120u);
  EXPECT_EQ(trim({"d"}), 1u);
  EXPECT_EQ(alive, (Names{"b", "d"}));
}

TEST_F(SlotCacheTest, SizesCountAsTheyAreWhenItIsTrimmed) {
  Slot& a = add("a", 10);
  add("b", 10);
  a.size = 95;
  EXPECT_EQ(trim(), 1u);
  EXPECT_EQ(alive, (Names{"b"}));
}

TEST_F(SlotCacheTest, NumbersAreUsedAgain) {
  for (const char* name : {"a", "b", "c"}) add(name, 40);
  EXPECT_EQ(cache.numbered(0)->name, "a");
  EXPECT_EQ(cache.numbered(2)->name, "c");
  EXPECT_EQ(cache.numbered(3), nullptr);
  trim();
  EXPECT_EQ(cache.numbered(0), nullptr);
  EXPECT_EQ(cache.next_number(), 0u);
  add("d", 1);
  EXPECT_EQ(cache.numbered(0)->name, "d");
  EXPECT_EQ(cache.numbered(1)->name, "b");
}

TEST_F(SlotCacheTest, ClearLeavesWhatIsBusy) {
  for (const char* name : {"a", "b", "c"}) add(name, 1);
  EXPECT_EQ(cache.clear([](const Slot& slot) { return slot.name == "b"; }), 2u);
  EXPECT_EQ(alive, (Names{"b"}));
}

TEST_F(SlotCacheTest, FindsTheOldestThatIsWanted) {
  EXPECT_EQ(cache.oldest([](const Slot&) { return true; }), nullptr);
  Slot& a = add("a", 10);
  Slot& b = add("b", 20);
  EXPECT_EQ(cache.oldest([](const Slot&) { return true; }), &a);
  EXPECT_EQ(cache.oldest([](const Slot& slot) { return slot.size > 10; }), &b);
  EXPECT_EQ(cache.oldest([](const Slot& slot) { return slot.size > 20; }), nullptr);
  cache.find("a");
  EXPECT_EQ(cache.oldest([](const Slot&) { return true; }), &b);
}

TEST_F(SlotCacheTest, DropsOneAndVisitsTheOthers) {
  add("a", 10);
  const Slot& b = add("b", 20);
  add("c", 30);
  cache.drop(b);
  EXPECT_EQ(alive, (Names{"a", "c"}));
  EXPECT_EQ(cache.find("b"), nullptr);
  EXPECT_EQ(cache.bytes(), 40u);
  EXPECT_EQ(cache.evicted(), 1u);
  Names visited;
  cache.for_each([&](const Slot& slot) { visited.insert(slot.name); });
  EXPECT_EQ(visited, alive);
}

}  // namespace
}  // namespace graphsink::slot_cache_test
