// What a group of ranks does when an exchange fails, or is asked for at a wrong time. Without MPI.
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "graphsink/error.h"
#include "ranks/rank_group.h"

namespace graphsink::rank_group_test {
namespace {

enum class Ends { yes, no, throws };

struct Seen {
  Ends ends = Ends::yes;
  int begun = 0;
  bool was_given_up = false;
  std::optional<std::string> words = {};  // of the other rank, when this one gives up
};

// Two ranks, of which the other one does as this one.
class FakeBackend : public RankBackend {
 public:
  explicit FakeBackend(Seen& seen) : seen_(seen) {}
  int rank() const override { return 1; }
  int size() const override { return 2; }
  void all_to_all(Channel, const void*, void*, std::size_t) override { ++seen_.begun; }
  void all_gather(Channel, const void* in, void* out, std::size_t bytes) override {
    ++seen_.begun;
    for (std::size_t i = 0; i < 2 * bytes; ++i)
      static_cast<std::byte*>(out)[i] = static_cast<const std::byte*>(in)[i % bytes];
  }
  void broadcast(Channel, void*, std::size_t, int) override { ++seen_.begun; }
  bool is_done() override {
    if (seen_.ends == Ends::throws) throw Error("fake", Where(), "the wire is cut", "mend it", ErrorCode::device_lost);
    return seen_.ends == Ends::yes;
  }
  std::vector<std::optional<std::string>> give_up(const std::string&, double) override {
    seen_.was_given_up = true;
    return {seen_.words, std::nullopt};
  }
  std::unique_ptr<RankBackend> split(int, int, const std::vector<int>&) override {
    return std::make_unique<FakeBackend>(seen_);
  }

 private:
  Seen& seen_;
};

template <class Call>
std::string problem_of(const Call& call) {
  try {
    call();
  } catch (const Error& e) {
    return e.problem();
  }
  return "";
}

TEST(RankGroup, TextsOfAllRanksCome) {
  Seen seen;
  RankGroup group(std::make_unique<FakeBackend>(seen), 1);
  EXPECT_EQ(group.all_texts("abc", {"barrier", Where()}), (std::vector<std::string>{"abc", "abc"}));
  EXPECT_EQ(group.all_texts("", {"barrier", Where()}), (std::vector<std::string>{"", ""}));
  const auto values = group.all_values(7, {"barrier", Where()});
  EXPECT_EQ(std::vector(values.begin(), values.end()), (std::vector{7, 7}));
}

TEST(RankGroup, ARankThatDoesNotComeEndsAllExchanges) {
  Seen seen{.ends = Ends::no};
  RankGroup group(std::make_unique<FakeBackend>(seen), 0.001);
  const std::string first = problem_of([&] { group.all_to_all(nullptr, nullptr, 0, {"all_reduce", Where()}); });
  EXPECT_NE(first.find("rank 1 of 2 has waited 1 ms in all_reduce"), std::string::npos) << first;
  EXPECT_TRUE(seen.was_given_up);
  seen.ends = Ends::yes;
  EXPECT_EQ(problem_of([&] { group.all_texts("", {"barrier", Where()}); }), first);
  EXPECT_EQ(seen.begun, 1);
}

TEST(RankGroup, TheWordsOfTheOthersTellWhereTheyWait) {
  struct Row {
    std::optional<std::string> words;
    const char* end;  // of the problem
  };
  for (const auto& [words, end] :
       {Row{std::nullopt, "in all_reduce for rank 0, not heard of: ended, or busy with something else"},
        Row{"all_reduce", "in all_reduce for rank 0, which has given up, too, maybe before this rank came"},
        Row{"all_gather (a.cpp:3)", "in all_reduce; rank 0 waits in all_gather (a.cpp:3)"}}) {
    Seen seen{.ends = Ends::no, .words = words};
    RankGroup group(std::make_unique<FakeBackend>(seen), 0.001);
    const std::string problem = problem_of([&] { group.all_to_all(nullptr, nullptr, 0, {"all_reduce", Where()}); });
    EXPECT_TRUE(problem.ends_with(end)) << problem;
  }
}

TEST(RankGroup, AFailingExchangeEndsAllExchanges) {
  Seen seen{.ends = Ends::throws};
  RankGroup group(std::make_unique<FakeBackend>(seen), 1);
  EXPECT_EQ(problem_of([&] { (void)group.all_values('f', {"agree", Where()}); }), "the wire is cut");
  EXPECT_TRUE(seen.was_given_up);
  seen.ends = Ends::yes;
  EXPECT_EQ(problem_of([&] { (void)group.all_values('f', {"agree", Where()}); }), "the wire is cut");
}

TEST(RankGroup, TheStepOfOneProgramExcludesWhatIsOutside) {
  Seen seen;
  RankGroup group(std::make_unique<FakeBackend>(seen), 1);
  const int a = 0, b = 0;
  const Exchange step{"all_reduce", Where(), &a}, other{"all_reduce", Where(), &b}, outside{"barrier", Where()};
  group.all_to_all(nullptr, nullptr, 0, step);
  for (const Exchange& refused : {other, outside}) {
    EXPECT_NE(problem_of([&] { group.all_texts("", refused); }).find("a step of another program"), std::string::npos);
    group.end_step(refused);  // does not end the step of a
  }
  group.all_to_all(nullptr, nullptr, 0, step);
  group.end_step(step);
  EXPECT_EQ(problem_of([&] { group.all_texts("", outside); }), "");
  EXPECT_EQ(problem_of([&] { group.all_to_all(nullptr, nullptr, 0, other); }), "");
}

// Each group waits as long as the one that it is a part of, and its failure is its own.
TEST(RankGroup, PartsNameThemselvesAndBreakAlone) {
  Seen seen;
  const auto whole = std::make_shared<RankGroup>(std::make_unique<FakeBackend>(seen), 0.002);
  const auto part = RankGroup::split(whole, 4, 0, {"split", Where()});
  const auto inner = RankGroup::split(part, 7, 0, {"split", Where()});
  EXPECT_EQ(whole->suffix(), "");
  EXPECT_EQ(inner->suffix(), " of the group of colour 7 of the group of colour 4");
  EXPECT_EQ(RankGroup::split(whole, 4, 0, {"split", Where()})->origin().number, 1);
  seen.ends = Ends::no;
  const std::string problem = problem_of([&] { part->all_to_all(nullptr, nullptr, 0, {"all_reduce", Where()}); });
  EXPECT_NE(problem.find("rank 1 of 2, of the group of colour 4, has waited 2 ms"), std::string::npos) << problem;
  seen.ends = Ends::yes;
  EXPECT_EQ(problem_of([&] { part->all_texts("", {"barrier", Where()}); }), problem);
  EXPECT_EQ(problem_of([&] { whole->all_texts("", {"barrier", Where()}); }), "");
}

TEST(RankGroup, RemembersPlans) {
  Seen seen;
  RankGroup group(std::make_unique<FakeBackend>(seen), 1);
  EXPECT_FALSE(group.has_agreed_on("a"));
  group.note_agreement("a");
  EXPECT_TRUE(group.has_agreed_on("a"));
  EXPECT_FALSE(group.has_agreed_on("b"));
}

}  // namespace
}  // namespace graphsink::rank_group_test
