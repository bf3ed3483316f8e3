#include "conformance/golden.h"

#include <algorithm>
#include <istream>
#include <ostream>
#include <stdexcept>

namespace conformance {
namespace {

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts;
  std::size_t begin = 0;
  for (;;) {
    const std::size_t comma = text.find(", ", begin);
    parts.push_back(text.substr(begin, comma - begin));
    if (comma == std::string::npos) return parts;
    begin = comma + 2;
  }
}

std::string answer_of(const Line& line) { return line.code + ", capture " + line.status; }

}  // namespace

Golden read_golden(std::istream& in) {
  Golden golden;
  std::string text;
  for (int number = 1; std::getline(in, text); ++number) {
    if (text.empty() || text[0] == '#') continue;
    std::vector<std::string> parts = split(text);
    if (parts.size() != 4 && parts.size() != 5) {
      throw std::runtime_error("line " + std::to_string(number) +
                               " is not `case, call, code, status[, state]`: " + text);
    }
    parts.resize(5);
    golden[parts[0]].push_back({parts[1], parts[2], parts[3], parts[4]});
  }
  return golden;
}

void write_golden(std::ostream& out, const std::vector<Case>& cases, const Golden& golden, const std::string& header) {
  out << "# " << header << "\n# case, call, code, capture status, state\n";
  for (const Case& one : cases) {
    const auto lines = golden.find(one.name);
    if (lines == golden.end()) continue;
    for (const Line& line : lines->second) {
      out << one.name << ", " << line.call << ", " << line.code << ", " << line.status << ", " << line.state << '\n';
    }
  }
}

Golden assumed_golden(const std::vector<Case>& cases) {
  Golden golden;
  for (const Case& one : cases) {
    for (const Answer& answer : one.expected) {
      golden[one.name].push_back({answer.call, answer_text(answer), status_text(answer.status), kAssumed});
    }
  }
  return golden;
}

std::vector<std::string> stale_lines(const std::vector<Case>& cases, const Golden& golden) {
  std::vector<std::string> found;
  const Golden wanted = assumed_golden(cases);
  for (const auto& [name, lines] : golden) {
    if (!wanted.contains(name)) found.push_back(name + ": the golden file has a case the program does not know");
  }
  for (const auto& [name, table] : wanted) {
    const auto there = golden.find(name);
    if (there == golden.end()) {
      found.push_back(name + ": the golden file lacks this case");
      continue;
    }
    const Lines& lines = there->second;
    if (lines.size() != table.size()) found.push_back(name + ": the golden file has another number of lines");
    for (std::size_t i = 0; i < std::min(lines.size(), table.size()); ++i) {
      if (lines[i].state != kAssumed || lines[i].agrees_with(table[i])) continue;
      found.push_back(name + ", " + lines[i].call + ": the golden file assumes " + answer_of(lines[i]) +
                      "; the table says " + table[i].call + " " + answer_of(table[i]));
    }
  }
  return found;
}

std::vector<std::string> differences(const std::string& name, const Lines& golden, const Lines& seen) {
  std::vector<std::string> found;
  for (std::size_t i = 0; i < std::max(golden.size(), seen.size()); ++i) {
    if (i >= seen.size()) {
      found.push_back(name + ", " + golden[i].call + ": expected " + answer_of(golden[i]) + "; got no answer");
    } else if (i >= golden.size()) {
      found.push_back(name + ", " + seen[i].call + ": expected no more answers; got " + answer_of(seen[i]));
    } else if (golden[i].call != seen[i].call) {
      found.push_back(name + ", " + golden[i].call + ": expected " + answer_of(golden[i]) + "; got " + seen[i].call +
                      " " + answer_of(seen[i]));
      return found;  // from here on answers belong to other calls
    } else if (!golden[i].agrees_with(seen[i])) {
      found.push_back(name + ", " + golden[i].call + ": expected " + answer_of(golden[i]) + "; got " +
                      answer_of(seen[i]));
    }
  }
  return found;
}

Lines confirm(const Lines& golden, const Lines& seen, const std::string& state) {
  Lines lines = golden;
  for (std::size_t i = 0; i < std::min(golden.size(), seen.size()); ++i) {
    if (golden[i].call != seen[i].call) break;
    lines[i] = seen[i];
    lines[i].state = state;
  }
  return lines;
}

}  // namespace conformance
