// Which copies into states and results of bodies remain, and that the values are right without the others.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "api/plan_of.h"
#include "graphsink/graphsink.h"
#include "ir/system_ops.h"
#include "program_fixture.h"

namespace graphsink::coalesce_copies_test {
namespace {

using Floats = std::vector<float>;

struct Case {
  const char* name;
  int copies;                                                             // in the plan, each of a body once
  std::function<void(Graph&, const Value& x, const Value& limit)> build;  // x: f32[4]; limit: i32
  // The outputs "y" and, if it is not empty, "z", for x = {1, 2, 3, 4} and limit = 3.
  Floats y, z = {};
};

// A loop over the states and a counter, which goes to `limit`.
Values count_to(Graph& g, const Value& limit, Values states, const std::function<Values(const Values&)>& body) {
  states.push_back(g.constant(Tensor::scalar(0)));
  return while_(
      states, [&](const Values& s) { return s.back() < limit; },
      [&](const Values& s) {
        Values next = body(s);
        next.push_back(s.back() + 1);
        return next;
      });
}

// Not computed in place.
Value reversed(const Value& x) { return slice(x, {-1}, {to_end}, {-1}); }

// Each loop has a counter whose initial value, a constant, is copied.
const Case kCases[] = {
    {"a state is computed in place",
     2,
     [](Graph& g, const Value& x, const Value& limit) {
       g.output("y", count_to(g, limit, {x}, [](const Values& s) { return Values{s[0] * 2.0}; })[0]);
     },
     {8, 16, 24, 32}},
    {"an initial value that is computed becomes the state",
     1,
     [](Graph& g, const Value& x, const Value& limit) {
       g.output("y", count_to(g, limit, {x + 1.0}, [](const Values& s) { return Values{s[0] * 2.0}; })[0]);
     },
     {16, 24, 32, 40}},
    {"an initial value that is needed later is copied",
     2,
     [](Graph& g, const Value& x, const Value& limit) {
       Value first = x + 1.0;
       g.output("y", count_to(g, limit, {first}, [](const Values& s) { return Values{s[0] * 2.0}; })[0]);
       g.output("z", first);
     },
     {16, 24, 32, 40},
     {2, 3, 4, 5}},
    {"an initial value of two states is copied once",
     2,
     [](Graph& g, const Value& x, const Value& limit) {
       Value first = x + 1.0;
       Values ends = count_to(g, limit, {first, first}, [](const Values& s) { return Values{s[0] * 2.0, s[1] * 3.0}; });
       g.output("y", ends[0]);
       g.output("z", ends[1]);
     },
     {16, 24, 32, 40},
     {54, 81, 108, 135}},
    {"a state that is read after the next one was computed stays until then",
     4,
     [](Graph& g, const Value& x, const Value& limit) {
       Values ends = count_to(g, limit, {x, x}, [](const Values& s) {
         Value next = reversed(s[0] * 2.0);
         return Values{next, s[1] + (next - s[0])};
       });
       g.output("y", ends[0]);
       g.output("z", ends[1]);
     },
     {32, 24, 16, 8},
     {32, 24, 16, 8}},
    {"an op that does not work in place has its result copied",
     3,
     [](Graph& g, const Value& x, const Value& limit) {
       g.output("y", count_to(g, limit, {x}, [](const Values& s) { return Values{reversed(s[0])}; })[0]);
     },
     {4, 3, 2, 1}},
    {"states that change places are copied",
     6,
     [](Graph& g, const Value& x, const Value& limit) {
       Values ends = count_to(g, limit, {x, x * 2.0}, [](const Values& s) { return Values{s[1], s[0]}; });
       g.output("y", ends[0]);
       g.output("z", ends[1]);
     },
     {2, 4, 6, 8},
     {1, 2, 3, 4}},
    {"a value that becomes two states is copied once",
     4,
     [](Graph& g, const Value& x, const Value& limit) {
       Values ends = count_to(g, limit, {x, x}, [](const Values& s) {
         Value next = s[0] + s[1];
         return Values{next, next};
       });
       g.output("y", ends[0]);
       g.output("z", ends[1]);
     },
     {8, 16, 24, 32},
     {8, 16, 24, 32}},
    {"a branch writes its results itself",
     0,
     [](Graph& g, const Value& x, const Value& limit) {
       Value y = if_(
           limit < 5, [&] { return x * 2.0; }, [&] { return x + 1.0; });
       g.output("y", y);
     },
     {2, 4, 6, 8}},
    {"a value from outside of a branch is copied",
     1,
     [](Graph& g, const Value& x, const Value& limit) {
       Value outside = x + 1.0;
       Value y = if_(
           limit < 2, [&] { return x * 2.0; }, [&] { return outside; });
       g.output("y", y);
     },
     {2, 3, 4, 5}},
    {"a value is the result of a branch twice",
     1,
     [](Graph& g, const Value& x, const Value& limit) {
       Values results = if_(
           limit < 5,
           [&] {
             Value twice = x * 2.0;
             return Values{twice, twice};
           },
           [&] {
             return Values{x + 1.0, x - 1.0};
           });
       g.output("y", results[0]);
       g.output("z", results[1]);
     },
     {2, 4, 6, 8},
     {2, 4, 6, 8}},
    {"the state of an outer loop is the initial one of an inner loop",
     5,
     [](Graph& g, const Value& x, const Value& limit) {
       g.output("y", count_to(g, limit, {x}, [&](const Values& s) {
                  return Values{count_to(g, limit, {s[0]}, [](const Values& t) { return Values{t[0] + 1.0}; })[0]};
                })[0]);
     },
     {10, 11, 12, 13}},
    {"a loop without iterations has its initial values",
     1,
     [](Graph& g, const Value& x, const Value& limit) {
       Values ends = count_to(g, limit - 3, {x + 1.0}, [](const Values& s) { return Values{s[0] * 2.0}; });
       g.output("y", ends[0]);
     },
     {2, 3, 4, 5}},
};

std::ptrdiff_t copies(const Plan& plan) {
  return std::count_if(plan.tasks.begin(), plan.tasks.end(),
                       [](const Task& task) { return task.kind == TaskKind::copy; });
}

Floats floats(const Tensor& tensor) {
  const auto elements = tensor.as<float>();
  return {elements.begin(), elements.end()};
}

TEST(CoalesceCopies, LeavesThoseThatAreNeeded) {
  for (const Case& c : kCases) {
    for (bool fuse : {false, true}) {
      SCOPED_TRACE(c.name);
      Graph g;
      Value x = g.input("x", f32, {4}), limit = g.input("limit", i32, {});
      c.build(g, x, limit);
      Program step = compile(g, {.tuning = {.fuse = fuse}});
      // A group reads each element of a state before it writes the element of the next one.
      EXPECT_LE(copies(plan_of(step)), c.copies) << step.explain();
      if (!fuse) {
        EXPECT_EQ(copies(plan_of(step)), c.copies) << step.explain();
      }
      step.write(x, Tensor({1.0f, 2.0f, 3.0f, 4.0f}));
      step.write(limit, Tensor::scalar(3));
      for (Mode mode : testing::kModes) {
        for (int run = 0; run < 2; ++run) step.run(mode);
        EXPECT_EQ(floats(step.output("y")), c.y) << to_string(mode);
        EXPECT_EQ(c.z.empty() ? Floats() : floats(step.output("z")), c.z) << to_string(mode);
      }
    }
  }
}

// Ids of tasks are indices, and every task is part of a sequence.
TEST(CoalesceCopies, LeavesNoTaskBehind) {
  Graph g;
  Value x = g.input("x", f32, {4}), limit = g.input("limit", i32, {});
  g.output("y", count_to(g, limit, {x + 1.0}, [](const Values& s) { return Values{s[0] * 2.0}; })[0]);
  const Plan plan = make_plan(g, Target::cuda13(), system_ops());
  std::vector<int> ids;
  for (const Sequence& sequence : plan.sequences) ids.insert(ids.end(), sequence.tasks.begin(), sequence.tasks.end());
  std::sort(ids.begin(), ids.end());
  ASSERT_EQ(ids.size(), plan.tasks.size());
  for (std::size_t i = 0; i < ids.size(); ++i) EXPECT_EQ(ids[i], static_cast<int>(i));
}

}  // namespace
}  // namespace graphsink::coalesce_copies_test
