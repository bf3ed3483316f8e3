#include <ostream>

#include "graphsink/capture.h"

namespace graphsink {

std::string to_string(const SinkReport& r) {
  auto number = [](auto value, const char* one, const char* many) {
    return std::to_string(value) + ' ' + (value == 1 ? one : many);
  };
  auto size = [](std::size_t bytes) {
    constexpr std::size_t kKib = 1024, kMib = kKib * kKib;
    return bytes < 10 * kMib ? std::to_string((bytes + kKib - 1) / kKib) + " KiB"
                             : std::to_string(bytes / kMib) + " MiB";
  };
  std::string text = number(r.calls, "call", "calls");
  if (r.steps != r.calls) text += " of " + number(r.steps, "step", "steps");
  text += ": " + number(r.launches, "launch", "launches");
  if (r.loops > 0) text += " (" + std::to_string(r.loops) + " of several steps)";
  text += ", " + std::to_string(r.warm) + " warm, " + std::to_string(r.as_is) + " as they are for a reason below";
  if (r.inside > 0) text += ", " + std::to_string(r.inside) + " inside of another capture";
  text += "\n" + number(r.captures, "capture", "captures") + ": " + std::to_string(r.instantiations) +
          " instantiated, " + std::to_string(r.updates) + " updated in place, " + std::to_string(r.update_refusals) +
          " updates refused, " + number(r.checks, "launch checked", "launches checked") + "\n" +
          number(r.keys, "key", "keys") + ": " + std::to_string(r.captured) + " captured, " +
          std::to_string(r.refused) + " refused, " + std::to_string(r.evictions) + " dropped so far; about " +
          size(r.bytes) + " of " + size(r.max_bytes) + "\n";
  if (r.captures > 0 && r.checks == 0) {
    text +=
        "numbers not compared: one that a kernel gets by value (a learning rate, a step counter) keeps the value of "
        "the capture; keep it in device memory or put it into the key; a trial with SinkOptions::check_every finds "
        "it\n";
  }
  if (r.captures > 0 && !r.watches_legacy_stream) {
    text +=
        "legacy stream not watched: what a function gives to it is missing from launches; a trial with "
        "SinkOptions::watch_legacy_stream or check_every finds it\n";
  }
  for (const SinkFailure& failure : r.failures) {
    text += number(failure.count, "time", "times") + ", first with key " + failure.key + ": " + failure.problem +
            "\n  remedy: " + failure.remedy + "\n";
  }
  if (r.refused > 0) {
    text +=
        "a refused key is tried again ever more rarely, unless its work has changed, and by try_again(); if only its "
        "first calls fail, SinkOptions::warm_runs leaves them out\n";
  }
  if (r.other_failures > 0) text += number(r.other_failures, "time", "times") + ": other reasons\n";
  return text;
}

std::ostream& operator<<(std::ostream& out, const SinkReport& report) { return out << to_string(report); }

}  // namespace graphsink
