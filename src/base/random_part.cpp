#include "base/random_part.h"

#include <string>

#include "graphsink/random_part.h"

namespace graphsink {
namespace {

thread_local const RandomPart* innermost_part = nullptr;

void check_part(std::int64_t number, const RandomPartOptions& options, const Where& where) {
  const auto fail = [&](const std::string& problem, const char* remedy) {
    throw Error("RandomPart", where, problem, remedy);
  };
  if (number < 0) fail("the part is " + std::to_string(number), "give one of at least 0");
  if (options.parts < 0 || (options.parts == 0 && options.axis != 0)) {
    fail("tensors are divided along axis " + std::to_string(options.axis) + " into " + std::to_string(options.parts) +
             " parts",
         "give RandomPartOptions::parts, the number of parts");
  }
  if (options.parts > 0 && number >= options.parts) {
    fail("the part is " + std::to_string(number) + " of " + std::to_string(options.parts),
         "count parts from 0, and give RandomPartOptions::parts, the number of all of them");
  }
}

}  // namespace

PartOfWhole part_of_whole(int rank) {
  PartOfWhole place;
  bool has_first = false, has_other = false;
  for (const RandomPart* each = innermost_part; each != nullptr; each = each->outer_) {
    const int axis = each->options_.axis < 0 ? each->options_.axis + rank : each->options_.axis;
    bool& has = axis == 0 ? has_first : has_other;
    if (has) continue;
    has = true;
    if (axis == 0) {
      place.first = each->number_;
    } else if (each->options_.parts != 1) {
      place.axis = axis > 0 ? axis : each->options_.axis;
      place.number = each->number_;
      place.parts = each->options_.parts;
    }
  }
  return place;
}

RandomPart::RandomPart(std::int64_t number, RandomPartOptions options, Where where)
    : number_(number), options_(options), outer_(innermost_part) {
  check_part(number, options, where);
  innermost_part = this;
}

RandomPart::~RandomPart() { innermost_part = outer_; }

}  // namespace graphsink
