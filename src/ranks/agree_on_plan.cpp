// How the ranks of a group agree on what a plan does, when all have bound it.
#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <cstring>
#include <exception>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/at.h"
#include "ranks/collective.h"
#include "ranks/updates.h"
#include "ranks/voters.h"

namespace graphsink {
namespace {

std::string_view name_of(Reduction reduction) {
  return reduction == Reduction::sum ? "sum" : reduction == Reduction::mean ? "mean" : "max";
}

}  // namespace

std::string described(std::string_view op, const CollectiveAttrs& attrs, std::span<const TensorType> types) {
  std::string text =
      std::string(op) + " (" + std::string(name_of(attrs.reduction)) + ", root " + std::to_string(attrs.root);
  if (attrs.same_program) text += ", same program";
  if (!attrs.sources.empty()) text += ", sources";
  for (const int source : attrs.sources) text += " " + std::to_string(source);
  text += ") of";
  for (const TensorType& type : types) text += " " + to_string(type);
  return text;
}

namespace {

// The same on all machines.
std::uint64_t number_of(const void* data, std::size_t bytes) {
  std::uint64_t hash = bytes;
  for (std::size_t first = 0; first < bytes; first += sizeof hash) {
    std::uint64_t word = 0;
    std::memcpy(&word, static_cast<const std::byte*>(data) + first, std::min(sizeof word, bytes - first));
    hash = (hash ^ word) * 0x9E3779B97F4A7C15u;
    hash ^= hash >> 32;
  }
  return hash;
}

std::string hash_of(const void* data, std::size_t bytes) {
  const std::uint64_t hash = number_of(data, bytes);
  std::array<char, 16> digits;
  return {digits.data(), std::to_chars(digits.data(), digits.data() + digits.size(), hash, 16).ptr};
}
std::string hash_of(std::string_view text) { return hash_of(text.data(), text.size()); }

// A line for each collective of the group: what must be equal on all ranks, a tab, and the place.
std::string collectives_of(const Agreement& agreement, const RankGroup& group) {
  std::string text;
  for (const CollectiveUse& use : agreement.collectives) {
    const auto& attrs = use.attrs.as<CollectiveAttrs>();
    if (attrs.group.get() != &group) continue;
    text += described(use.op->name, attrs, use.types);
    if (use.is_in_body) text += " in a loop or branch";
    text += "\t" + to_string(use.where) + "\n";
  }
  return text;
}

// A line for each Variable: name and type, a tab, and the hash of its value.
std::string values_of(const std::vector<Variable>& variables) {
  std::string text;
  for (const Variable& variable : variables) {
    const Tensor value = variable.read();
    text += variable.name() + " " + to_string(variable.type()) + "\t" + hash_of(value.data(), value.bytes()) + "\n";
  }
  return text;
}

struct Line {
  std::string what, behind;  // the tab
};

std::vector<Line> lines_of(const std::string& text) {
  std::vector<Line> lines;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t tab = text.find('\t', at), end = text.find('\n', tab);
    lines.push_back({text.substr(at, tab - at), text.substr(tab + 1, end - tab - 1)});
    at = end + 1;
  }
  return lines;
}

// The text without what is behind the tabs.
std::string without_places(const std::string& text) {
  std::string what;
  for (const Line& line : lines_of(text)) what += line.what + "\n";
  return what;
}

std::string described(const std::vector<Line>& lines, std::size_t number) {
  if (number >= lines.size()) return "no further one";
  const Line& line = lines[number];
  return line.what + (line.behind.empty() ? "" : " (" + line.behind + ")");
}

// The first line that differs between two ranks; empty if there is none.
std::string different_line(const std::string& of_first, const std::string& of_other, const std::string& rank) {
  const std::vector<Line> first = lines_of(of_first), other = lines_of(of_other);
  for (std::size_t i = 0; i < std::max(first.size(), other.size()); ++i)
    if (i >= first.size() || i >= other.size() || first[i].what != other[i].what)
      return "number " + std::to_string(i) + " of rank 0 is " + described(first, i) + ", that of rank " + rank +
             " is " + described(other, i);
  return "";
}

std::string different_voters(const std::string& first, const std::string& other, const std::string& rank) {
  if (first == other) return "";
  return "rank 0 agrees on steps with " + first + ", and rank " + rank + " with " + other +
         ", because their plans have collectives of other groups, too";
}

std::string different_value(const std::string& of_first, const std::string& of_other, const std::string& rank) {
  const std::vector<Line> first = lines_of(of_first), other = lines_of(of_other);
  for (std::size_t i = 0; i < std::min(first.size(), other.size()); ++i) {
    if (first[i].what != other[i].what)
      return "rank 0 has " + first[i].what + " where rank " + rank + " has " + other[i].what;
    if (first[i].behind != other[i].behind) return "of " + first[i].what + ", on rank 0 and on rank " + rank;
  }
  return "";
}

// A text that ranks compare, and how they say that it differs.
struct Compared {
  std::string text;
  std::string (*difference)(const std::string& first, const std::string& other, const std::string& rank);
  const char *problem, *remedy;
};

constexpr const char* kSameCollectives =
    "build the same collectives in the same order on all ranks, of equal groups, and write data of the same sizes";
constexpr const char* kSameOps =
    "build the same graph on all ranks, with equal numbers; or give average() or apply_sharded() same_program = false "
    "on all of them, if their graphs differ on purpose";
constexpr const char* kSameValues =
    "call broadcast_variables() before bind() or the first run(), or begin with equal values, from one seed or one "
    "checkpoint, and equal options of the optimizer; or give average() or apply_sharded() same_program = false on all "
    "ranks, if the values differ on purpose";

constexpr const char* kSameUndivided =
    "what an optimizer updates beside parts of divided_variable() is equal on all ranks: begin with equal values, from "
    "one seed, one checkpoint or broadcast_variables() before bind(); give parameters that differ on purpose an "
    "optimizer of their own";

// The part of a plan that a group compares.
struct Part {
  std::string collectives, voters;
  Updates updates;
  std::string undivided{};            // names and types of Variables that an optimizer updates beside parts
  std::string ops{};                  // stands for the updates and what is not divided
  std::string plan{};                 // stands for all that must be equal, but for values
  std::weak_ptr<const void> graph{};  // GraphData::identity

  // Values are compared once for the updates of a graph, whatever shapes its plans have. Another graph may have other
  // Variables.
  bool needs_values(RankGroup& group) const { return !updates.equal.empty() && !group.has_compared(graph, ops); }
  std::string values(RankGroup& group) const { return needs_values(group) ? values_of(updates.equal) : ""; }
};

Part part_of(const Agreement& agreement, const GraphData& graph, const Voters& voters, const RankGroup& group) {
  const auto is_compared = [&](const CollectiveUse& use) {
    const auto& attrs = use.attrs.as<CollectiveAttrs>();
    return attrs.same_program && attrs.group.get() == &group;
  };
  Part part{collectives_of(agreement, group), name_of(*voters.all), {}};
  if (std::any_of(agreement.collectives.begin(), agreement.collectives.end(), is_compared))
    part.updates = updates_of(graph, group);
  for (const auto& [of, variables] : graph.undivided) {
    if (of.get() != &group) continue;
    part.updates.equal.insert(part.updates.equal.end(), variables.begin(), variables.end());
    for (const Variable& variable : variables)
      part.undivided += variable.name() + " " + to_string(variable.type()) + "\t\n";
  }
  part.ops = "ops " + hash_of(without_places(part.updates.ops) + part.undivided);
  part.plan = without_places(part.collectives) + part.voters + "\n" + part.ops;
  part.graph = graph.identity;
  return part;
}

// Compares the parts of all ranks, for which it waits. Returns the problem, which is the same on all of them.
std::optional<Error> difference(RankGroup& group, const Part& mine, const std::string& values, const Where& where) {
  const Exchange exchange{"bind", where};
  const std::vector<std::string> hashes = group.all_texts(hash_of(mine.plan + values), exchange);
  if (std::adjacent_find(hashes.begin(), hashes.end(), std::not_equal_to<>()) == hashes.end()) {
    group.note_agreement(mine.plan);
    if (!mine.updates.equal.empty()) group.note_compared(mine.graph, mine.ops);
    return {};
  }
  const Compared all[] = {
      {mine.collectives, different_line, "have different collectives: ", kSameCollectives},
      {mine.voters, different_voters, "have different collectives: ", kSameCollectives},
      {mine.updates.ops, different_line, "compute different updates: ", kSameOps},
      {mine.undivided, different_line, "update different Variables beside parts: ", kSameUndivided},
      {values, different_value,
       "begin with different values: ", mine.updates.ops.empty() ? kSameUndivided : kSameValues},
  };
  for (const Compared& each : all) {
    const std::vector<std::string> texts = group.all_texts(each.text, exchange);
    for (std::size_t rank = 1; rank < texts.size(); ++rank)
      if (const std::string found = each.difference(texts[0], texts[rank], std::to_string(rank)); !found.empty())
        return Error("bind", where, "the ranks" + group.suffix() + " " + each.problem + found, each.remedy);
  }
  return Error("bind", where, "the ranks" + group.suffix() + " have different plans", kSameOps);
}

// A rank that could not bind its plan, as the ranks of a group tell each other: a digit for the ErrorCode, then the
// problem. Empty if all could.
std::string unbound_text(const Error& failure, const RankGroup& group) {
  return std::to_string(static_cast<int>(failure.code())) + "rank " + std::to_string(group.rank()) + group.suffix() +
         " cannot bind its plan: " + failure.op() + ": " + failure.problem();
}

[[noreturn]] void throw_unbound(const std::string& text, const Where& where) {
  throw Error("bind", where, text.substr(1), "see the Error of that rank", static_cast<ErrorCode>(text[0] - '0'));
}

// The first such text of a group; the same for all of its ranks.
std::string first_unbound(RankGroup& group, const std::string& mine, const Where& where) {
  const std::vector<std::string> texts = group.all_texts(mine, {"bind", where});
  const auto found = std::find_if(texts.begin(), texts.end(), [](const std::string& text) { return !text.empty(); });
  return found == texts.end() ? "" : *found;
}

}  // namespace

std::uint64_t mark_of_plan(const Agreement& agreement, const GraphData& graph) {
  try {
    const Voters voters = voters_of(agreement, Where());
    if (std::find(voters.groups.begin(), voters.groups.end(), voters.all) == voters.groups.end()) return 0;
    const Part part = part_of(agreement, graph, voters, *voters.all);
    std::string text = part.plan;
    for (const Variable& variable : part.updates.equal) text += "\n" + variable.name();
    return number_of(text.data(), text.size()) | 1;
  } catch (const Error&) {
    return 0;  // the groups have no common one: bind() says so
  }
}

// A rank may bind a plan of a graph again whenever it likes, so what was compared before is not exchanged again. This
// is done in all groups before a rank throws, so that none waits for it, and so that a group hears of failures in those
// before it.
void agree_on_plan(const Agreement& agreement, const GraphData& graph, const Error* failure, const Where& where) {
  const Voters voters = voters_of(agreement, where);
  std::string unbound, values;
  std::optional<Error> problem;
  std::exception_ptr thrown;
  for (RankGroup* group : voters.groups) {
    const Part mine = part_of(agreement, graph, voters, *group);
    if (group->has_agreed_on(mine.plan) && !mine.needs_values(*group)) continue;
    if (failure != nullptr && unbound.empty()) unbound = unbound_text(*failure, *group);
    try {
      if (unbound.empty()) values = mine.values(*group);
    } catch (const std::exception& e) {
      thrown = std::current_exception();
      const auto* error = dynamic_cast<const Error*>(&e);
      unbound = unbound_text(error ? *error : Error("bind", where, e.what(), ""), *group);
    }
    unbound = first_unbound(*group, unbound, where);
    if (!unbound.empty()) continue;
    const std::optional<Error> found = difference(*group, mine, values, where);
    if (found && !problem) problem.emplace(*found);
  }
  if (thrown) std::rethrow_exception(thrown);
  if (!unbound.empty()) throw_unbound(unbound, where);
  if (problem) throw Error(*problem);
}

}  // namespace graphsink
