#include "conformance/golden.h"

#include <algorithm>
#include <istream>
#include <ostream>
#include <stdexcept>

namespace conformance {
namespace {

// Into at most so many parts, of which the last has the rest.
std::vector<std::string> split(const std::string& text, const std::string& separator, std::size_t most) {
  std::vector<std::string> parts;
  std::size_t begin = 0;
  while (parts.size() + 1 < most) {
    const std::size_t end = text.find(separator, begin);
    if (end == std::string::npos) break;
    parts.push_back(text.substr(begin, end - begin));
    begin = end + separator.size();
  }
  parts.push_back(text.substr(begin));
  return parts;
}

constexpr const char* kOr = " or ";

std::string answer_of(const Line& line) { return line.code + ", capture " + line.status; }

bool is_among(const std::string& text, const std::string& choices) {
  const std::vector<std::string> all = split(choices, kOr, choices.size() + 1);
  return std::find(all.begin(), all.end(), text) != all.end();
}

Line line_of(const Answer& answer) {
  Line line{answer.call, answer_text(answer), status_text(answer.status), answer.by_foreign_test ? kForeign : kAssumed,
            answer.reason};
  for (const Answer& other : answer.others) {
    const std::string code = answer_text(other), status = status_text(other.status);
    if (!is_among(code, line.code)) line.code += kOr + code;
    if (!is_among(status, line.status)) line.status += kOr + status;
  }
  return line;
}

}  // namespace

bool Line::is_open() const { return code.find(kOr) != std::string::npos || status.find(kOr) != std::string::npos; }

bool Line::allows(const Line& seen) const {
  return call == seen.call && is_among(seen.code, code) && is_among(seen.status, status);
}

Golden read_golden(std::istream& in) {
  Golden golden;
  std::string text;
  for (int number = 1; std::getline(in, text); ++number) {
    if (text.empty() || text[0] == '#') continue;
    std::vector<std::string> parts = split(text, ", ", 6);
    if (parts.size() < 4) {
      throw std::runtime_error("line " + std::to_string(number) +
                               " is not `case, call, code, status[, state[, reason]]`: " + text);
    }
    parts.resize(6);
    golden[parts[0]].push_back({parts[1], parts[2], parts[3], parts[4], parts[5]});
  }
  return golden;
}

void write_golden(std::ostream& out, const std::vector<Case>& cases, const Golden& golden, const std::string& header) {
  out << "# " << header << "\n# case, call, code, capture status, state[, reason]\n";
  for (const Case& one : cases) {
    const auto lines = golden.find(one.name);
    if (lines == golden.end()) continue;
    for (const Line& line : lines->second) {
      out << one.name << ", " << line.call << ", " << line.code << ", " << line.status << ", " << line.state;
      out << (line.reason.empty() ? "" : ", " + line.reason) << '\n';
    }
  }
}

Golden expected_golden(const std::vector<Case>& cases) {
  Golden golden;
  for (const Case& one : cases) {
    for (const Answer& answer : one.expected) golden[one.name].push_back(line_of(answer));
  }
  return golden;
}

std::vector<std::string> stale_lines(const std::vector<Case>& cases, const Golden& golden) {
  std::vector<std::string> found;
  const Golden wanted = expected_golden(cases);
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
      if (lines[i].is_confirmed() || lines[i] == table[i]) continue;
      const auto say = [](const Line& line) {
        return line.call + " " + answer_of(line) + ", " + line.state + (line.reason.empty() ? "" : ", " + line.reason);
      };
      found.push_back(name + ": the golden file says " + say(lines[i]) + "; the table says " + say(table[i]));
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
    } else if (!golden[i].allows(seen[i])) {
      found.push_back(name + ", " + golden[i].call + ": expected " + answer_of(golden[i]) + "; got " +
                      answer_of(seen[i]));
    }
  }
  return found;
}

std::vector<std::string> open_answers(const std::string& name, const Lines& golden, const Lines& seen) {
  std::vector<std::string> found;
  for (std::size_t i = 0; i < std::min(golden.size(), seen.size()); ++i) {
    if (!golden[i].is_open() || !golden[i].allows(seen[i])) continue;
    found.push_back(name + ", " + golden[i].call + ": " + answer_of(seen[i]) + "; allowed is " + answer_of(golden[i]));
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
