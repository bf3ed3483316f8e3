// The golden file: reading, comparing, confirming.
#include "conformance/golden.h"

#include <gtest/gtest.h>

#include <cstring>
#include <sstream>

namespace conformance {
namespace {

Case make_case(const char* name, std::vector<Answer> expected) { return {name, "a row", std::move(expected), nullptr}; }

std::vector<Case> two_cases() {
  return {make_case("b.first", {returns("cudaMalloc", cudaErrorInvalidValue, Status::kActive), gives("count", 3)}),
          make_case("a.second", {returns("cudaFree", cudaSuccess)})};
}

Golden parse(const std::string& text) {
  std::istringstream in(text);
  return read_golden(in);
}

TEST(Golden, IsWrittenFromTheTableInItsOrderAndReadBack) {
  const std::vector<Case> cases = two_cases();
  std::ostringstream out;
  write_golden(out, cases, assumed_golden(cases), "a header");
  EXPECT_EQ(
      "# a header\n# case, call, code, capture status, state\n"
      "b.first, cudaMalloc, cudaErrorInvalidValue(1), active, assumed\n"
      "b.first, count, 3, -, assumed\n"
      "a.second, cudaFree, cudaSuccess(0), -, assumed\n",
      out.str());
  EXPECT_TRUE(stale_lines(cases, parse(out.str())).empty());
}

TEST(Golden, LinesWithMissingPartsAreNamed) {
  try {
    parse("# header\na.second, cudaFree\n");
    FAIL();
  } catch (const std::runtime_error& error) {
    EXPECT_NE(nullptr, std::strstr(error.what(), "line 2"));
  }
}

TEST(Golden, ADifferenceNamesCaseCallExpectedAndGot) {
  const Golden golden = parse("a, cudaFree, cudaSuccess(0), none, assumed\na, count, 3, -, assumed\n");
  const Golden same = parse("a, cudaFree, cudaSuccess(0), none\na, count, 3, -\n");
  EXPECT_TRUE(differences("a", golden.at("a"), same.at("a")).empty());
  const Golden other = parse("a, cudaFree, cudaErrorInvalidValue(1), none\na, count, 3, -\n");
  EXPECT_EQ((std::vector<std::string>{
                "a, cudaFree: expected cudaSuccess(0), capture none; got cudaErrorInvalidValue(1), capture none"}),
            differences("a", golden.at("a"), other.at("a")));
  const Golden status = parse("a, cudaFree, cudaSuccess(0), active\na, count, 3, -\n");
  EXPECT_EQ(1u, differences("a", golden.at("a"), status.at("a")).size());
  EXPECT_EQ((std::vector<std::string>{"a, count: expected 3, capture -; got no answer"}),
            differences("a", golden.at("a"), {same.at("a")[0]}));
  const Golden stopped = parse("a, set-up: cudaMalloc, cudaErrorNoDevice(100), -\n");
  EXPECT_EQ(1u, differences("a", golden.at("a"), stopped.at("a")).size());
}

TEST(Golden, AnAssumedLineThatIsNotTheTablesIsStale) {
  const std::vector<Case> cases = two_cases();
  const std::string fine = "b.first, cudaMalloc, cudaErrorInvalidValue(1), active, assumed\n";
  const std::string rest = "b.first, count, 3, -, assumed\na.second, cudaFree, cudaSuccess(0), -, assumed\n";
  EXPECT_TRUE(stale_lines(cases, parse(fine + rest)).empty());
  EXPECT_EQ(1u, stale_lines(cases, parse("b.first, cudaMalloc, cudaSuccess(0), active, assumed\n" + rest)).size());
  EXPECT_TRUE(
      stale_lines(cases, parse("b.first, cudaMalloc, cudaSuccess(0), active, gpu-confirmed (x)\n" + rest)).empty());
  EXPECT_EQ(2u, stale_lines(cases, parse(rest)).size());  // one line short, and the first is not the table's
  EXPECT_EQ(1u, stale_lines(cases, parse(fine + "b.first, count, 3, -, assumed\n")).size());
  EXPECT_EQ(1u, stale_lines(cases, parse(fine + rest + "unknown, cudaFree, cudaSuccess(0), -, assumed\n")).size());
}

TEST(Golden, ARunConfirmsWhatItAnsweredAndNoMore) {
  const Golden golden = parse("a, cudaFree, cudaSuccess(0), none, assumed\na, count, 3, -, assumed\n");
  const Golden seen = parse("a, cudaFree, cudaErrorInvalidValue(1), none\n");
  const Lines one = confirm(golden.at("a"), seen.at("a"), "gpu-confirmed (x)");
  ASSERT_EQ(2u, one.size());
  EXPECT_EQ("cudaErrorInvalidValue(1)", one[0].code);
  EXPECT_EQ("gpu-confirmed (x)", one[0].state);
  EXPECT_EQ(kAssumed, one[1].state);
  const Golden stopped = parse("a, set-up: cudaMalloc, cudaErrorNoDevice(100), -\n");
  EXPECT_EQ(kAssumed, confirm(golden.at("a"), stopped.at("a"), "gpu-confirmed (x)")[0].state);
}

}  // namespace
}  // namespace conformance
