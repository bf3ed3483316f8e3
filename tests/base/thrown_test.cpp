#include <gtest/gtest.h>

#include <stdexcept>

#include "base/thrown.h"

namespace graphsink {
namespace {

template <class Exception>
Thrown thrown_of(const Exception& exception) {
  try {
    throw exception;
  } catch (...) {
    return thrown();
  }
}

std::string problem_of(const Thrown& what, const Where& where) { return body_error("lookup", where, what).problem(); }

TEST(Thrown, WhatABodyThrowsIsSaidToComeFromThere) {
  const Where here = Where::current();
  EXPECT_EQ(problem_of(thrown_of(std::runtime_error("no row")), here), "its body threw: no row");
  EXPECT_EQ(problem_of(thrown_of(Error("table", Where(), "no row", "add it")), here), "its body threw: table: no row");
  EXPECT_EQ(problem_of(thrown_of(Error("look", Where(), "up: no row", "add it")), here),
            "its body threw: look: up: no row");
  EXPECT_EQ(body_error("lookup", here, thrown_of(Error("table", Where(), "no row", "add it"))).remedy(), "add it");
}

TEST(Thrown, WhatAnOpSaysAboutItselfIsNotSaidTwice) {
  const Where here = Where::current();
  EXPECT_EQ(problem_of(thrown_of(Error("lookup", Where(), "no row", "add it")), here), "no row");
  EXPECT_EQ(problem_of(thrown_of(Error("lookup", here, "no row", "add it")), here), "no row");
  EXPECT_EQ(problem_of(thrown_of(body_error("lookup", here, thrown_of(std::runtime_error("no row")))), here),
            "its body threw: no row");
}

TEST(Thrown, AnotherPlaceIsSaid) {
  const Where here = Where::current(), there = Where::current();
  const Where below = Where::current();
  EXPECT_EQ(problem_of(thrown_of(Error("lookup", there, "no row", "add it")), here), "no row") << "the same line";
  const std::string problem = problem_of(thrown_of(Error("lookup", below, "no row", "add it")), here);
  EXPECT_TRUE(problem.starts_with("its body threw: thrown_test.cpp:")) << problem;
  EXPECT_TRUE(problem.ends_with(": lookup: no row")) << problem;
}

// A node that the planner has added reports in the name of another op.
TEST(Thrown, WhatAnOpSaysAboutItselfIsNotSaidTwiceInAnotherName) {
  Thrown what = thrown_of(Error("agree", Where(), "it failed on rank 1", "see there"));
  EXPECT_EQ(problem_of(what, Where::current()), "its body threw: agree: it failed on rank 1");
  what.is_own = what.is_of("agree", Where());
  EXPECT_EQ(problem_of(what, Where::current()), "it failed on rank 1");
}

TEST(Thrown, LongTextsAreCut) {
  const Where here = Where::current();
  const std::string name(600, 'n');
  EXPECT_TRUE(problem_of(thrown_of(Error("lookup", here, name, "add it")), here).starts_with("nnnn"));
  EXPECT_TRUE(
      body_error(name, here, thrown_of(Error(name, here, "no row", "add it"))).problem().starts_with("its body threw"));
}

}  // namespace
}  // namespace graphsink
