// The golden file: reading, comparing, confirming.
#include "conformance/golden.h"

#include <gtest/gtest.h>

#include <cstring>
#include <sstream>

namespace conformance::golden_test::golden_test {
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
  write_golden(out, cases, expected_golden(cases), "a header");
  EXPECT_EQ(
      "# a header\n# case, call, code, capture status, state[, reason]\n"
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

// A case with an answer that a foreign test expects, one that was decided, and one that may differ.
std::vector<Case> marked_cases() {
  Case one = make_case(
      "c.marked", {decided(gives("result", 2), "two tests say 6, the header says 2"),
                   either(returns("cudaDeviceSynchronize", cudaErrorStreamCaptureUnsupported, Status::kInvalidated),
                          returns("cudaDeviceSynchronize", cudaSuccess, Status::kActive))});
  one.expected.insert(one.expected.begin(),
                      by_foreign_test(make_case("", {returns("cudaFree", cudaSuccess)})).expected[0]);
  return {one};
}
const char* const kMarkedLines[] = {
    "c.marked, cudaFree, cudaSuccess(0), -, by a foreign test\n",
    "c.marked, result, 2, -, assumed, two tests say 6, the header says 2\n",
    ("c.marked, cudaDeviceSynchronize, cudaErrorStreamCaptureUnsupported(900) or cudaSuccess(0), "
     "invalidated or active, assumed\n")};

TEST(Golden, StatesAndReasonsAreWrittenReadAndCompared) {
  const std::vector<Case> cases = marked_cases();
  const std::string all = std::string(kMarkedLines[0]) + kMarkedLines[1] + kMarkedLines[2];
  std::ostringstream out;
  write_golden(out, cases, expected_golden(cases), "a header");
  EXPECT_EQ(all, out.str().substr(out.str().find("c.marked")));
  EXPECT_TRUE(stale_lines(cases, parse(all)).empty());
  const std::string assumed = "c.marked, cudaFree, cudaSuccess(0), -, assumed\n";
  EXPECT_EQ(1u, stale_lines(cases, parse(assumed + kMarkedLines[1] + kMarkedLines[2])).size());
  const std::string without_reason = "c.marked, result, 2, -, assumed\n";
  EXPECT_EQ(1u, stale_lines(cases, parse(kMarkedLines[0] + without_reason + kMarkedLines[2])).size());
}

TEST(Golden, AnAnswerThatMayDifferIsTakenEitherWayAndSaid) {
  const Golden golden = expected_golden(marked_cases());
  const std::string before = "c.marked, cudaFree, cudaSuccess(0), -\nc.marked, result, 2, -\n";
  for (const char* seen : {"cudaErrorStreamCaptureUnsupported(900), invalidated", "cudaSuccess(0), active"}) {
    const Golden run = parse(before + "c.marked, cudaDeviceSynchronize, " + seen + "\n");
    EXPECT_TRUE(differences("c.marked", golden.at("c.marked"), run.at("c.marked")).empty());
    const auto open = open_answers("c.marked", golden.at("c.marked"), run.at("c.marked"));
    ASSERT_EQ(1u, open.size());
    EXPECT_EQ(0u, open[0].find("c.marked, cudaDeviceSynchronize: cuda"));
  }
  const Golden other = parse(before + "c.marked, cudaDeviceSynchronize, cudaErrorInvalidValue(1), active\n");
  EXPECT_EQ(1u, differences("c.marked", golden.at("c.marked"), other.at("c.marked")).size());
  EXPECT_TRUE(open_answers("c.marked", golden.at("c.marked"), other.at("c.marked")).empty());
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
}  // namespace conformance::golden_test::golden_test
