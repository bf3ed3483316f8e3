// Every row of the table of misuses ends with the Error that the row names: not with a signal, not with a hang, not
// without a word. Each row runs in a process of its own, which is this program started again with the row's name.
#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>
#include <set>
#include <string>

#include "child_process.h"
#include "misuse.h"

namespace graphsink::testing {
namespace misuse_test {
namespace {

constexpr auto kLimit = std::chrono::seconds(60);

// "" if the Error is what the row wants, else what is wrong with it.
std::string compare(const Row& row, const Error& e) {
  std::string text = e.what(), wrong;
  if (row.op != nullptr && e.op() != row.op) wrong += "the op is not \"" + std::string(row.op) + "\"\n";
  for (const char* word : row.words)
    if (text.find(word) == std::string::npos) wrong += "there is no \"" + std::string(word) + "\"\n";
  if (e.remedy().empty()) wrong += "there is no remedy\n";
  if (e.code() != row.code) wrong.append("its code is ").append(to_string(e.code())).append("\n");
  auto rows = misuses();
  auto index = static_cast<std::size_t>(&row - rows.data());
  auto before = rows[index > 0 ? index - 1 : index].where.line();
  auto behind = rows[index + 1 < rows.size() ? index + 1 : index].where.line();
  bool is_here = std::string_view(e.where().file_name()) == row.where.file_name() && e.where().line() >= before &&
                 e.where().line() <= behind;
  if (row.line == Line::of_row && !is_here) wrong += "the line is not that of the call in the row\n";
  return wrong.empty() ? "" : wrong + "in: " + text + "\n";
}

// The whole of a child process: returns its exit code, and prints what is wrong.
int run_row(std::string_view name) {
  auto rows = misuses();
  auto row = std::find_if(rows.begin(), rows.end(), [&](const Row& r) { return name == r.name; });
  std::string wrong = "no such row\n";
  if (row != rows.end()) {
    try {
      row->act();
      wrong = "it was not refused\n";
    } catch (const Error& e) {
      wrong = compare(*row, e);
    } catch (const std::exception& e) {
      wrong = std::string("what was thrown is no Error: ") + e.what() + "\n";
    }
  }
  std::cout << wrong << std::flush;
  return wrong.empty() ? 0 : 1;
}

class Misuse : public ::testing::TestWithParam<Row> {};
INSTANTIATE_TEST_SUITE_P(All, Misuse, ::testing::ValuesIn(misuses().begin(), misuses().end()),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_P(Misuse, IsRefused) {
  ChildResult child = run_child({"/proc/self/exe", "--row", GetParam().name}, kLimit);
  EXPECT_EQ(child.problem, "") << child.output;
}

TEST(MisuseTable, RowsHaveDifferentNames) {
  std::set<std::string> names;
  for (const Row& row : misuses()) EXPECT_TRUE(names.insert(row.name).second) << row.name;
}

}  // namespace
}  // namespace misuse_test

void PrintTo(const Row& row, std::ostream* out) { *out << row.where.file_name() << ": " << row.name; }

}  // namespace graphsink::testing

int main(int argc, char** argv) {
  if (argc == 3 && std::string_view(argv[1]) == "--row") return graphsink::testing::misuse_test::run_row(argv[2]);
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
