#include <array>
#include <ostream>
#include <sstream>

#include "site.h"

namespace graphsink::testing {

std::string_view to_string(Family family) {
  constexpr std::array<std::string_view, 19> kNames{
      "source",   "unary", "binary", "choice", "cast",     "product", "reduction", "order",   "softmax", "gather",
      "movement", "view",  "random", "window", "cpu_only", "state",   "optimizer", "control", "result"};
  return kNames[static_cast<std::size_t>(family)];
}

namespace {

int outputs_of(const Building& building, int entry) {
  auto found = building.types.find(entry);
  return found == building.types.end() || found->second.empty() ? 1 : static_cast<int>(found->second.size());
}

void print(std::ostream& out, const std::vector<Entry>& entries, const Building* building, int depth) {
  auto type = [](const std::map<int, std::vector<TensorType>>& types, int id, std::size_t i) {
    auto found = types.find(id);
    return found == types.end() || i >= found->second.size() ? std::string() : " " + to_string(found->second[i]);
  };
  for (const Entry& entry : entries) {
    out << std::string(static_cast<std::size_t>(2 * depth), ' ') << '#' << entry.id << ' '
        << kinds()[static_cast<std::size_t>(entry.kind)].name << '(';
    for (std::size_t i = 0; i < entry.picks.size(); ++i) {
      const Pick& pick = entry.picks[i];
      out << (i ? ", " : "");
      if (building && building->types.count(pick.entry) == 0) {
        out << "constant";
      } else {
        out << '#' << pick.entry;
      }
      int outputs = building ? outputs_of(*building, pick.entry) : 1;
      if (outputs > 1) out << '.' << pick.output % outputs;
      if (building) out << type(building->operands, entry.id, i);
    }
    out << ')' << (entry.on_cpu ? " on_cpu" : "");
    for (std::size_t i = 0; building && !type(building->types, entry.id, i).empty(); ++i)
      out << (i ? "," : " ->") << type(building->types, entry.id, i);
    out << "  bits " << std::hex << entry.bits;
    if (entry.wide != 0) out << ", wide " << entry.wide;
    out << std::dec << '\n';
    for (std::size_t i = 0; i < entry.bodies.size(); ++i) {
      out << std::string(static_cast<std::size_t>(2 * depth + 1), ' ') << (i ? "further body\n" : "body\n");
      print(out, entry.bodies[i], building, depth + 1);
    }
  }
}

}  // namespace

std::string to_string(const Recipe& recipe) {
  std::ostringstream out;
  out << recipe.steps << " steps";
  if (recipe.on_second > 0) out << ", " << recipe.on_second << " % on the second device";
  const Recipe::Options& options = recipe.options;
  if (options.check_finite) out << ", check_finite";
  if (options.replay_every > 0) out << ", replay_every " << options.replay_every;
  if (options.poison) out << ", poison";
  if (options.steps_per_launch > 0) out << ", " << options.steps_per_launch << " steps a launch";
  if (!(options.default_placement == Placement{}))
    out << (options.default_placement == on_cpu ? ", on the host" : ", on the device") << " by default";
  out << '\n';
  std::unique_ptr<Building> building;
  try {
    building = std::make_unique<Building>(recipe);
  } catch (const std::exception& e) {
    out << "(cannot be built: " << e.what() << ")\n";
  }
  print(out, recipe.entries, building.get(), 0);
  return out.str();
}

}  // namespace graphsink::testing
