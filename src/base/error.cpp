#include "graphsink/error.h"

#include <string_view>
#include <utility>

#include "base/printable.h"

namespace graphsink {
namespace {

std::string compose(const std::string& op, const Where& where, const std::string& problem, const std::string& remedy) {
  std::string text = to_string(where);
  if (!text.empty()) text += ": ";
  text += op + ": " + problem;
  if (!remedy.empty()) text += "; remedy: " + remedy;
  return text;
}

}  // namespace

std::string line_of(const Where& where) {
  std::string_view file = where.file_name();
  if (file.empty() || where.line() == 0) return "";
  if (auto slash = file.find_last_of('/'); slash != std::string_view::npos) file.remove_prefix(slash + 1);
  return printable(file) + ":" + std::to_string(where.line());
}

std::string to_string(const Where& where) {
  std::string text = line_of(where);
  if (!text.empty() && !where.scope().empty()) text.append(" in ").append(printable(where.scope()));
  return text;
}

std::string_view to_string(ErrorCode code) {
  constexpr std::string_view kNames[] = {"misuse",      "unavailable", "out_of_memory", "device_lost",
                                         "step_failed", "io",          "stopped"};
  return kNames[static_cast<std::size_t>(code)];
}

Error::Error(std::string op, Where where, std::string problem, std::string remedy, ErrorCode code)
    : std::runtime_error(printable(compose(op, where, problem, remedy))),
      op_(printable(op)),
      where_(where),
      problem_(printable(problem)),
      remedy_(printable(remedy)),
      code_(code) {}

}  // namespace graphsink
